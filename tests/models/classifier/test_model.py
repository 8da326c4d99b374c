"""What the classifier answers, what it learns from, and that it comes back from disk as it was."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rightlung.core import Extent, Heatmap, InputError, Phrase, Polarity
from rightlung.explain import grad_cam
from rightlung.models.base import TrainingBatch
from rightlung.models.classifier import Classifier
from rightlung.models.classifier import model as classifier_module
from rightlung.models.classifier.losses import ClassifierLossInputs, finding_masks, label_bce, mask_bce
from rightlung.models.folder import load_folder, save_model
from rightlung.models.preprocessing import letterbox
from tests.models.classifier.tiny import tiny_classifier

FINDINGS = ("cardiomegaly", "pleural effusion", "lung opacity", "nodule")


@pytest.fixture
def model() -> Classifier:
    return tiny_classifier(*FINDINGS)


def images(*shapes: tuple[int, int], seed: int = 0) -> list[NDArray[np.float32]]:
    generator = np.random.default_rng(seed)
    return [generator.random(shape, dtype=np.float32) for shape in shapes]


def heatmap_of(model: Classifier, image: NDArray[np.float32], phrase: Phrase | str) -> Heatmap:
    heatmap = model.ground([image], [phrase])[0].heatmap
    assert heatmap is not None
    return heatmap


def test_probabilities_are_pooled_from_the_cells_of_the_prepared_image(model: Classifier) -> None:
    given = images((64, 64), (80, 50))
    squares = torch.stack([letterbox(image, 64)[0] for image in given])
    with torch.no_grad():
        cells = model.image_encoder.patches(squares[:, None])
    assert cells.shape == (2, 4, 4, 4)
    pooled = (3.0 * cells).exp().mean(dim=(2, 3)).log() / 3.0
    np.testing.assert_allclose(model.classify(given), pooled.sigmoid().numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("sharpness", "pooled"), [(1.0, math.log((1 + math.e + math.e**2 + math.e**5) / 4)), (0.001, 2.0), (1000.0, 5.0)]
)
def test_log_sum_exp_pooling_lies_between_the_mean_and_the_maximum(sharpness: float, pooled: float) -> None:
    cells = torch.tensor([[[[0.0, 1.0], [2.0, 5.0]]]])
    assert float(tiny_classifier("nodule", sharpness=sharpness).pool(cells)) == pytest.approx(pooled, abs=0.01)
    assert float(tiny_classifier("nodule", pooling="mean").pool(cells)) == 2.0


def test_sharp_pooling_of_large_logits_stays_finite() -> None:
    model = tiny_classifier("nodule", sharpness=50.0)
    assert float(model.pool(torch.full((1, 1, 2, 2), 40.0))) == pytest.approx(40.0, rel=1e-6)


def test_the_default_is_a_resnet_18_on_14_by_14_cells() -> None:
    model = Classifier.create({"findings": FINDINGS}, [], 0)
    assert model.image_encoder.grid == (14, 14)
    # torchvision's ResNet-18 has 11,689,512 with its classifier of 1,000 classes and kernels of three channels.
    backbone = sum(parameter.numel() for parameter in model.image_encoder.backbone.parameters())
    assert backbone == 11_689_512 - 513_000 - 2 * 64 * 49
    assert sum(parameter.numel() for parameter in model.parameters()) == backbone + 4 * (256 + 512 + 2)


def test_an_image_is_judged_the_same_alone_and_among_others(model: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier_module, "IMAGE_BATCH_SIZE", 2)
    given = images(*[(64, 64)] * 5)
    together = model.classify(given)
    alone = np.concatenate([model.classify([image]) for image in given])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    phrases = ["effusion", "nodule", "cardiomegaly", "effusion", "nodule"]
    for grounding, image, phrase in zip(model.ground(given, phrases), given, phrases, strict=True):
        assert grounding.heatmap is not None
        np.testing.assert_allclose(grounding.heatmap.values, heatmap_of(model, image, phrase).values, atol=1e-6)


def test_findings_can_be_chosen_in_any_order_and_by_a_data_sets_names(model: Classifier) -> None:
    given = images((64, 64))
    everything = model.classify(given)
    chosen = model.classify(given, ["Nodule", "Effusion"])
    assert np.array_equal(chosen, everything[:, [3, 1]])
    assert model.classify([]).shape == (0, 4)


def test_a_finding_the_network_was_not_taught_has_no_score_and_alone_it_is_refused_by_name(model: Classifier) -> None:
    given = images((64, 64))
    found = model.classify(given, ["pneumothorax", "Nodule"])
    assert np.isnan(found[:, 0]).all()
    assert np.array_equal(found[:, 1], model.classify(given)[:, 3])
    assert [model.knows(name) for name in ("pneumothorax", "Nodule")] == [False, True]
    with pytest.raises(InputError, match="'pneumothorax'"):
        model.classify(given, ["pneumothorax"])


@pytest.mark.parametrize("pooling", ["mean", "lse"])
def test_the_map_is_grad_cam_of_the_finding_that_the_phrase_names(pooling: str) -> None:
    image = {**tiny_classifier("nodule").to_config()["image"], "pyramid_levels": [-2]}
    model = tiny_classifier(*FINDINGS, pooling=pooling, image=image)
    given = images((64, 64))[0]
    seen: list[torch.Tensor] = []
    layer = model.image_encoder.patch_projections[0]
    hook = layer.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    cells = model.image_encoder.patches(torch.from_numpy(given)[None, None])
    hook.remove()
    (gradients,) = torch.autograd.grad(model.pool(cells)[0, 1], seen[0])
    expected = grad_cam(seen[0].detach(), gradients)[0].numpy()
    assert expected.max() > 0
    np.testing.assert_allclose(heatmap_of(model, given, "small left pleural effusion").values, expected, atol=1e-6)
    assert not np.allclose(heatmap_of(model, given, "nodule").values, expected)


def test_the_map_of_a_letterboxed_image_lies_on_the_square_around_it(model: Classifier) -> None:
    assert heatmap_of(model, images((128, 64))[0], "nodule").extent == Extent(-0.5, 0.0, 1.5, 1.0)


@pytest.mark.parametrize(
    ("phrase", "columns"),
    [
        ("cardiomegaly", [0]),
        ("The heart is normal. No pleural effusions.", [1]),
        ("right basal consolidation", [2]),  # a consolidation is an opacity
        ("cardiac enlargement with effusion", [0, 1]),
        ("lung nodule", [3]),
        ("left shoe", []),
        ("small pneumothorax", []),
    ],
)
def test_a_phrase_asks_for_the_findings_it_names_or_their_nearest_broader_ones(
    model: Classifier, phrase: str, columns: list[int]
) -> None:
    assert model.columns.of_phrase(phrase) == columns


def test_findings_given_with_a_phrase_come_before_its_words(model: Classifier) -> None:
    assert model.columns.of_phrase(Phrase("a nodule", findings={"Cardiomegaly": Polarity.POSITIVE})) == [0]


def test_a_phrase_without_a_known_finding_gets_an_empty_map_and_full_abstention(model: Classifier) -> None:
    grounding = model.ground(images((64, 64)), ["left shoe"])[0]
    assert grounding.abstention == 1.0
    assert grounding.heatmap is not None
    assert grounding.heatmap.mass == 0.0


def test_the_abstention_is_the_probability_that_none_of_the_findings_is_there(model: Classifier) -> None:
    given = images((64, 64))
    probabilities = model.classify(given, ["cardiomegaly", "effusion"])[0]
    abstention = model.ground(given, ["cardiomegaly and effusion"])[0].abstention
    assert abstention == pytest.approx(1 - probabilities.max(), abs=1e-6)


def test_asking_leaves_the_mode_of_the_model_and_its_gradients_alone(model: Classifier) -> None:
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.classify(images((64, 64)))
    model.ground(images((64, 64)), ["nodule"])
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_saved_model_answers_as_before(model: Classifier, tmp_path: Path) -> None:
    with torch.no_grad():
        model.train().image_encoder.patches(torch.rand(4, 1, 64, 64))  # running statistics other than the first ones
    model.eval()
    save_model(model, tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"config.json", "model.safetensors"}
    loaded = load_folder(tmp_path / "model")
    assert isinstance(loaded, Classifier)
    given = images((64, 64), (30, 90))
    assert loaded.config == model.config
    assert np.array_equal(loaded.classify(given), model.classify(given))
    assert loaded.ground(given, ["nodule"] * 2) == model.ground(given, ["nodule"] * 2)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"findings": ["nodule"]}, "the weights do not fit the configuration"),
        ({"findings": []}, "findings must name at least one finding"),
        ({"findings": ["nodule", "mass", "nodule"]}, "findings: 'nodule' is given more than once"),
        ({"sharpness": 0.0}, "sharpness must be a positive number; got 0"),
        ({"pooling": "max"}, "pooling"),
        ({"depth": 3}, "unknown field of ClassifierConfig 'depth'"),
        ({"image": 3}, "image must be a table"),
    ],
)
def test_a_wrong_configuration_is_refused_by_field(
    model: Classifier, tmp_path: Path, changes: dict[str, Any], part: str
) -> None:
    save_model(model, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"config": written["config"] | changes}))
    with pytest.raises(InputError, match=part):
        load_folder(tmp_path / "model")


def test_images_and_phrases_go_in_pairs(model: Classifier) -> None:
    with pytest.raises(InputError, match="got 1 images and 2 phrases"):
        model.ground(images((64, 64)), ["nodule", "mass"])


# -------------------------------------------------------------------- training


def batch(labels: list[list[float]], phrases: dict[str, Any] | None = None) -> TrainingBatch:
    generator = torch.Generator().manual_seed(0)
    pictures = torch.rand(len(labels), 1, 64, 64, generator=generator)
    targets: dict[str, Any] = {"labels": {"values": torch.tensor(labels)}}
    return TrainingBatch(pictures, [], targets=targets | ({} if phrases is None else {"phrases": phrases}))


def test_the_label_loss_is_the_cross_entropy_of_the_known_labels(model: Classifier) -> None:
    given = batch([[1.0, 0.0, math.nan, math.nan], [math.nan, 1.0, 0.0, math.nan]])
    with torch.no_grad():
        losses = model(given)
    assert list(losses) == ["label_bce"]
    probability = model.classify(list(given.images[:, 0].numpy())).astype(np.float64)
    right = [probability[0, 0], 1 - probability[0, 1], probability[1, 1], 1 - probability[1, 2]]
    assert float(losses["label_bce"]) == pytest.approx(-np.mean(np.log(right)), rel=1e-4)


def test_no_known_label_is_no_loss() -> None:
    assert float(label_bce(torch.ones(2, 2), torch.full((2, 2), math.nan))) == 0.0


def test_covered_and_free_cells_weigh_the_same_however_few_there_are() -> None:
    logits = torch.tensor([[[[1.0, -2.0], [0.5, 0.0]]]])
    masks = torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]])
    inside = math.log1p(math.exp(-1.0))
    outside = sum(math.log1p(math.exp(value)) for value in (-2.0, 0.5, 0.0)) / 3
    loss = mask_bce(logits, masks, torch.tensor([[True]]))
    assert float(loss) == pytest.approx((inside + outside) / 2, rel=1e-5)
    assert float(mask_bce(logits, masks, torch.tensor([[False]]))) == 0.0


def test_masks_are_those_of_the_located_phrases_that_name_a_finding() -> None:
    model = tiny_classifier("pleural effusion", "nodule", losses=["label_bce", "mask_bce"])
    masks = torch.zeros(5, 8, 8)
    masks[0, :2, :2] = 1.0  # one cell of 4 x 4
    masks[1, 6:, 6:] = 1.0
    masks[2, 0, 0] = 1.0  # a quarter of a cell
    masks[3:] = 1.0
    phrases = {
        "texts": ["left effusion", "right pleural effusion", "small nodule", "nodule", "left shoe"],
        "image_indices": [0, 0, 1, 1, 1],
        "present": torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0]),
        "has_mask": torch.tensor([True, True, True, True, True]),
        "masks": masks,
    }
    labels = [[1.0, 0.0], [math.nan, 1.0]]
    found, known = finding_masks(
        ClassifierLossInputs(model, batch(labels, phrases), torch.zeros(0), torch.tensor(labels))
    )
    expected = torch.zeros(2, 2, 4, 4)
    expected[0, 0, 0, 0] = expected[0, 0, 3, 3] = 1.0
    expected[1, 1, 0, 0] = 0.25
    assert torch.equal(found, expected)
    assert known.tolist() == [[True, True], [False, True]]
    with torch.no_grad():
        losses = model(batch(labels, phrases))
        cells = model.image_encoder.patches(batch(labels).images)
    assert float(losses["mask_bce"]) == pytest.approx(float(mask_bce(cells, expected, known)), rel=1e-5)


def test_a_batch_whose_phrases_are_none_still_has_a_mask_loss() -> None:
    model = tiny_classifier("nodule", "mass", losses=["mask_bce"])
    none = {
        "texts": [],
        "image_indices": [],
        "present": torch.zeros(0),
        "has_mask": torch.zeros(0),
        "masks": torch.zeros(0, 8, 8),
    }
    losses = model.train()(batch([[math.nan] * 2] * 2, none))
    assert losses["mask_bce"].item() == 0.0
    losses["mask_bce"].backward()


def test_a_classifier_learns_that_and_where_something_is() -> None:
    options = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    image = {"kind": "resnet", "size": 32, "pyramid_levels": [1], "options": options}
    model = tiny_classifier("nodule", losses=["label_bce", "mask_bce"], image=image).train()
    generator = torch.Generator().manual_seed(0)
    pictures = 0.3 * torch.rand(32, 1, 32, 32, generator=generator)
    masks = torch.zeros(16, 4, 4)
    for number in range(16):
        row, column = (int(place) for place in torch.randint(0, 4, (2,), generator=generator))
        pictures[number, 0, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] += 0.6
        masks[number, row, column] = 1.0
    labels = torch.cat([torch.ones(16, 1), torch.zeros(16, 1)])
    phrases = {
        "texts": ["nodule"] * 16, "image_indices": list(range(16)), "present": torch.ones(16),
        "has_mask": torch.ones(16, dtype=torch.bool), "masks": masks,
    }  # fmt: skip
    given = TrainingBatch(pictures, [], targets={"labels": {"values": labels}, "phrases": phrases})
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(40):
        losses = model(given)
        optimiser.zero_grad()
        (losses["label_bce"] + losses["mask_bce"]).backward()
        optimiser.step()
    scores = model.classify(list(pictures[:, 0].numpy()))[:, 0]
    assert scores[:16].min() > scores[16:].max()
    answers = model.ground(list(pictures[:16, 0].numpy()), ["nodule"] * 16)
    peaks = [int(answer.heatmap.values.argmax()) for answer in answers if answer.heatmap is not None]
    assert np.mean(np.array(peaks) == masks.flatten(1).argmax(dim=1).numpy()) > 0.9


def test_labels_and_pictures_that_are_not_the_models_are_refused(model: Classifier) -> None:
    with pytest.raises(InputError, match=r"must equal model.config.findings \(cardiomegaly, .* got 2 labels"):
        model(batch([[1.0, 0.0]]))
    with pytest.raises(InputError, match="learns from labels, which the batch lacks"):
        model(TrainingBatch(torch.rand(1, 1, 64, 64), []))
    with pytest.raises(
        InputError, match=r"data\.image_size must equal model\.config\.image\.size, 64 pixels; got images of 48"
    ):
        model(TrainingBatch(torch.rand(1, 1, 48, 48), []))
