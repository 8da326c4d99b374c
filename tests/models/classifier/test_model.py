"""What the classifier answers, to whom, and that it comes back from disk as it was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rightlung.core import Extent, Heatmap, InputError, Phrase, Polarity
from rightlung.explain import class_activation
from rightlung.models.classifier import Classifier, NetworkConfig, ResidualNetwork
from rightlung.models.folder import load_folder, save_model
from rightlung.models.preprocessing import letterbox, standardise

FINDINGS = ("cardiomegaly", "pleural effusion", "lung opacity", "nodule")


@pytest.fixture
def model() -> Classifier:
    torch.manual_seed(0)
    network = ResidualNetwork(NetworkConfig(4, widths=(4, 4, 8, 8), blocks=(1, 1, 1, 1)))
    torch.nn.init.normal_(network.classifier.weight)
    return Classifier(network, FINDINGS, size=64)


def images(*shapes: tuple[int, int], seed: int = 0) -> list[NDArray[np.float32]]:
    generator = np.random.default_rng(seed)
    return [generator.random(shape, dtype=np.float32) for shape in shapes]


def heatmap_of(model: Classifier, image: NDArray[np.float32], phrase: Phrase | str) -> Heatmap:
    heatmap = model.ground([image], [phrase])[0].heatmap
    assert heatmap is not None
    return heatmap


def test_probabilities_are_those_of_the_network_on_the_prepared_image(model: Classifier) -> None:
    given = images((64, 64), (80, 50))
    squares = torch.stack([letterbox(image, 64)[0] for image in given])
    with torch.no_grad():
        expected = model.network(standardise(squares[:, None])).sigmoid().numpy()
    np.testing.assert_allclose(model.classify(given), expected, atol=1e-6)


def test_an_image_is_judged_the_same_alone_and_in_company(model: Classifier) -> None:
    given = images(*[(64, 64)] * 5)
    model.batch_size = 2
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


def test_a_finding_the_network_was_not_taught_is_refused_by_name(model: Classifier) -> None:
    with pytest.raises(InputError, match="'pneumothorax'"):
        model.classify(images((64, 64)), ["pneumothorax"])


def test_the_map_is_the_positive_part_of_the_class_activation_of_the_finding_named(model: Classifier) -> None:
    image = images((64, 64))[0]
    with torch.no_grad():
        features = model.network.features(standardise(torch.from_numpy(image)[None, None]))
        maps = class_activation(features, model.network.classifier.weight.flatten(1))[0]
    expected = maps[1].clamp_min(0).numpy() / maps[1].numel()
    np.testing.assert_allclose(heatmap_of(model, image, "small left pleural effusion").values, expected, atol=1e-6)
    assert not np.allclose(heatmap_of(model, image, "nodule").values, expected)


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
    assert model.columns_of(phrase) == columns


def test_findings_given_with_a_phrase_come_before_its_words(model: Classifier) -> None:
    assert model.columns_of(Phrase("a nodule", findings={"Cardiomegaly": Polarity.POSITIVE})) == [0]


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


def test_maps_are_made_where_the_caller_has_switched_gradients_off_and_leave_none_behind(model: Classifier) -> None:
    given = images((64, 64))
    with torch.no_grad():
        quiet = heatmap_of(model, given[0], "nodule")
    assert quiet == heatmap_of(model, given[0], "nodule")
    assert all(parameter.grad is None for parameter in model.network.parameters())


def test_a_saved_model_answers_as_before(model: Classifier, tmp_path: Path) -> None:
    with torch.no_grad():
        model.network.train()(torch.rand(4, 1, 64, 64))  # running statistics that are not the initial ones
    model.network.eval()
    save_model(model, tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"config.json", "model.safetensors"}
    loaded = load_folder(tmp_path / "model")
    assert isinstance(loaded, Classifier)
    weights = loaded.network.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in model.network.state_dict().items())
    given = images((64, 64), (30, 90))
    assert loaded.findings == model.findings
    assert np.array_equal(loaded.classify(given), model.classify(given))
    assert loaded.ground(given, ["nodule"] * 2) == model.ground(given, ["nodule"] * 2)


def test_a_broken_folder_is_refused_with_file_and_field_named(model: Classifier, tmp_path: Path) -> None:
    save_model(model, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    written = json.loads(path.read_text())
    config = written["config"]
    for changed, part in (
        (config | {"network": config["network"] | {"widths": [4, 4, 8, 16]}}, r"model\.safetensors does not hold"),
        (config | {"network": config["network"] | {"depth": 3}}, r"config\.json, field 'config'.*depth"),
        (config | {"network": 3}, r"config\.json, field 'config'"),
        (config | {"findings": ["nodule"]}, r"config\.json, field 'config'.*4 outputs"),
        ({"findings": FINDINGS}, r"config\.json, field 'config', lacks network, size"),
    ):
        path.write_text(json.dumps(written | {"config": changed}))
        with pytest.raises(InputError, match=part):
            load_folder(tmp_path / "model")


def test_it_moves_with_its_network(model: Classifier) -> None:
    assert model.to("meta") is model
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert model.device.type == "meta"


def test_images_and_phrases_go_in_pairs(model: Classifier) -> None:
    with pytest.raises(InputError, match="1 images do not go with 2 phrases"):
        model.ground(images((64, 64)), ["nodule", "mass"])
