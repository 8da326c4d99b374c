"""The loop of ``benchmarks/supervised.py``: losses by hand, and that a small network learns where something is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks.supervised import (
    TrainingData,
    TrainingSettings,
    _together,
    adapt_statistics,
    label_loss,
    position_loss,
    predict,
    start_at_prevalence,
    train,
)
from rightlung.models.classifier import NetworkConfig, ResidualNetwork
from rightlung.training.augmentation import Augmentation

NOTHING = Augmentation(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def small_network(pooling: str = "lse", seed: int = 0) -> ResidualNetwork:
    torch.manual_seed(seed)
    return ResidualNetwork(
        NetworkConfig(1, widths=(4, 8, 8, 8), blocks=(1, 1, 1, 1), stride=8, pooling=pooling)  # type: ignore[arg-type]
    )


def squares(count: int = 48, size: int = 32) -> TrainingData:
    """Noise; in every second image a bright square at a random place, with its mask."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 80, (count, size, size), generator=generator, dtype=torch.uint8)
    labels, masks = torch.zeros(count, 1), torch.zeros(count, 1, 4, 4, dtype=torch.uint8)
    for number in range(0, count, 2):
        row, column = (int(place) for place in torch.randint(0, 4, (2,), generator=generator))
        images[number, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] += 150
        labels[number], masks[number, 0, row, column] = 1.0, 255
    return TrainingData(images, labels, masks)


def test_unknown_labels_do_not_count_in_the_loss() -> None:
    logits = torch.tensor([[0.3, -1.0], [2.0, 0.7]])
    labels = torch.tensor([[1.0, math.nan], [0.0, 1.0]])
    probabilities = torch.sigmoid(torch.tensor([0.3, 2.0, 0.7])).numpy()
    assert float(label_loss(logits, labels)) == pytest.approx(log_loss([1, 0, 1], probabilities), rel=1e-5)
    assert float(label_loss(logits, torch.full((2, 2), math.nan))) == 0.0


def test_covered_and_free_positions_weigh_the_same_however_few_there_are() -> None:
    logits = torch.tensor([[[[1.0, -2.0], [0.5, 0.0]]]])
    masks = torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]])
    inside = math.log1p(math.exp(-1.0))
    outside = sum(math.log1p(math.exp(value)) for value in (-2.0, 0.5, 0.0)) / 3
    loss = position_loss(logits, masks, torch.tensor([[1.0]]))
    assert float(loss) == pytest.approx((inside + outside) / 2, rel=1e-5)
    assert float(position_loss(logits, masks, torch.tensor([[math.nan]]))) == 0.0


def test_a_network_learns_that_and_where_something_is() -> None:
    data = squares()
    network = small_network()
    start_at_prevalence(network, data.labels)
    settings = TrainingSettings(steps=40, batch_size=16, rate=0.01, averaging=0.9, augmentation=NOTHING)
    trained = train(network, data, settings)
    scores = predict(trained.network, data.images)[:, 0].numpy()
    assert roc_auc_score(data.labels[:, 0].numpy(), scores) > 0.95
    assert trained.steps == 40
    assert trained.losses[-1] < trained.losses[0]
    assert data.masks is not None
    with torch.no_grad():
        images = data.images[::2, None].float() / 255
        standard = (images - images.mean(dim=(1, 2, 3), keepdim=True)) / images.std(dim=(1, 2, 3), keepdim=True)
        peaks = trained.network.position_logits(trained.network.features(standard)).flatten(1).argmax(dim=1)
    assert float((peaks == data.masks[::2].flatten(1).argmax(dim=1)).float().mean()) > 0.8


def test_the_same_seed_trains_the_same_network() -> None:
    data, settings = squares(), TrainingSettings(steps=4, batch_size=8, seed=5)
    first, again = (train(small_network(), data, settings).network.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_data_without_masks_teach_nothing_about_where_but_train_beside_data_with_masks() -> None:
    data = squares()
    blank = TrainingData(data.images, data.labels)
    batch = _together([blank, data])
    assert batch[0].shape == (96, 1, 32, 32)
    assert batch[2] is not None
    assert float(batch[2][:48].max()) == 0.0
    assert bool(batch[3][:48].isnan().all())
    assert torch.equal(batch[3][48:], data.labels)
    settings = TrainingSettings(steps=2, batch_size=8, beside_batch=4)
    assert train(small_network(), blank, settings, beside=data).steps == 2


def test_the_bias_starts_at_the_frequency_of_the_known_labels() -> None:
    network = small_network("average")
    labels = torch.tensor([[1.0], [0.0], [0.0], [0.0], [math.nan]])
    start_at_prevalence(network, labels)
    assert float(torch.sigmoid(network.classifier.bias.detach())) == pytest.approx(0.25)  # type: ignore[union-attr]


def test_adapted_statistics_are_those_of_the_new_images_and_weights_stay() -> None:
    data, network = squares(), small_network().eval()
    adapted = adapt_statistics(network, data.images, batch_size=len(data))
    images = data.images[:, None].double() / 255
    deviation, mean = torch.std_mean(images, dim=(1, 2, 3), keepdim=True, correction=0)
    first, norm = adapted.stem[0], adapted.stem[1]
    assert isinstance(norm, torch.nn.BatchNorm2d)
    assert norm.running_mean is not None
    with torch.no_grad():
        seen = first(((images - mean) / deviation).float())
    np.testing.assert_allclose(norm.running_mean.numpy(), seen.mean(dim=(0, 2, 3)).numpy(), atol=1e-4)
    assert not adapted.training
    assert norm.momentum == 0.1
    for (name, before), after in zip(network.named_parameters(), adapted.parameters(), strict=True):
        assert torch.equal(before, after), name
