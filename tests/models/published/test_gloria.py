"""The released GLoRIA, with made-up weights in its layout.

The expected figures come from the released classes themselves (marshuang80/gloria @ 416466a with torchvision 0.29 and
OpenCV 5), filled with the weights below, on the image and the texts below, run once beside this.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import ResNetConfig, ResNetModel

import rightlung
from rightlung.core import Extent, Image, InputError
from rightlung.models.encoders.image import torchvision_name
from rightlung.models.published.checkpoints import read_tensors
from rightlung.models.published.gloria import ReleasedGloria, load_gloria, released_square, released_words
from tests.models.published.layout import Attack, bert_shapes, weight

WORDS = (
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "no", "small", "left", "right", "effusion", "##s", "pneumo",
    "##thorax", "or", "lung", "in", "the", "of", "opacity", "stable",
)  # fmt: skip
HIDDEN, LAYERS, INNER, POSITIONS = 128, 5, 192, 128
IMAGES, TEXTS = "gloria.img_encoder.", "gloria.text_encoder.model."
SHORT, LONG = (
    "Small left effusions or pneumothorax.",
    "No opacity in the right lung. Small pneumothorax of the left lung.",
)
# Of the released classes: cosine of the global embeddings, log-sum-exp of 5 cosines / 5, and 361 x the mean attention.
EXPECTED = {
    SHORT: (-0.08499, 0.26729, (1.02876, 0.99913, 0.98268, 1.28195)),
    LONG: (-0.08104, 0.44063, (1.06602, 0.99068, 1.02131, 0.99785)),
}
CELLS = ((0, 0), (3, 15), (9, 9), (18, 4))


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    with torch.device("meta"):
        resnet = ResNetModel(ResNetConfig()).state_dict()  # type: ignore[no-untyped-call]
    shapes = {f"{IMAGES}model.{torchvision_name(name)}": tuple(one.shape) for name, one in resnet.items()}
    shapes |= {
        f"{IMAGES}global_embedder.weight": (HIDDEN, 2048),
        f"{IMAGES}global_embedder.bias": (HIDDEN,),
        f"{IMAGES}local_embedder.weight": (HIDDEN, 1024, 1, 1),
    }
    assert len(shapes) - 3 == 318  # as many as in the released file
    shapes |= {TEXTS + name: shape for name, shape in bert_shapes(len(WORDS), POSITIONS, HIDDEN, INNER, LAYERS).items()}
    made = {name: weight(name, shape) if shape else torch.tensor(0) for name, shape in shapes.items()}
    return {**made, f"{TEXTS}embeddings.position_ids": torch.arange(POSITIONS)[None]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("Bio_ClinicalBERT")
    (place / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def checkpoint(tensors: dict[str, Tensor], folder: Path) -> Path:
    """A checkpoint as Lightning writes it, with settings that are objects of OmegaConf."""
    module = types.ModuleType("omegaconf.dictconfig")
    kind = type("DictConfig", (), {"__module__": module.__name__})
    module.DictConfig = kind  # type: ignore[attr-defined]
    settings = kind()
    settings.content = {"temp1": 4.0}
    path = folder / "chexpert_resnet50.ckpt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "omegaconf", types.ModuleType("omegaconf"))
        patch.setitem(sys.modules, module.__name__, module)
        torch.save({"epoch": 3, "state_dict": tensors, "hyper_parameters": settings}, path)
    return path


@pytest.fixture(scope="module")
def model(checkpoint: Path, folder: Path) -> ReleasedGloria:
    loaded: ReleasedGloria = rightlung.load(f"gloria:{checkpoint}?text={folder}")
    return loaded


@pytest.fixture(scope="module")
def image() -> Image:
    rows, columns = np.mgrid[0:300, 0:260]
    bits = np.rint(127.5 + 127.5 * np.sin(rows / 17.0) * np.cos(columns / 23.0 + rows / 90.0))
    pixels: Image = (bits / 255.0).astype(np.float32)
    return pixels


def test_maps_and_similarities_are_those_of_the_released_classes(model: ReleasedGloria, image: Image) -> None:
    similarity = model.similarity([image], list(EXPECTED))
    answers = model.ground([image, image], list(EXPECTED))
    assert similarity.local_similarity is not None
    for number, (whole, local, shares) in enumerate(EXPECTED.values()):
        assert similarity.global_similarity[0, number] == pytest.approx(whole, abs=2e-5)
        assert similarity.local_similarity[0, number] == pytest.approx(local, abs=2e-5)
        heatmap = answers[number].heatmap
        assert heatmap is not None
        assert heatmap.values.shape == (19, 19)
        found = [float(heatmap.values[cell]) * 361 for cell in CELLS]
        assert found == pytest.approx(shares, abs=1e-3)  # OpenCV rounds a few pixels to the next of 256 greys
        assert answers[number].abstention == 0


def test_a_checkpoint_is_read_without_omegaconf_and_without_running_code(checkpoint: Path, tmp_path: Path) -> None:
    assert "omegaconf" not in sys.modules
    assert len(read_tensors(checkpoint, "state_dict", settings=True)) > 318
    with pytest.raises(InputError, match=r"omegaconf\.dictconfig\.DictConfig"):
        read_tensors(checkpoint, "state_dict")
    torch.save({"state_dict": {}, "hyper_parameters": Attack()}, tmp_path / "evil.ckpt")
    with pytest.raises(InputError, match=r"evil\.ckpt holds more than tensors .*exec"):
        load_gloria(tmp_path / "evil.ckpt", tmp_path)


def test_the_square_is_the_centre_of_the_padded_image_and_knows_where_it_lies(image: Image) -> None:
    square, extent = released_square(image)
    assert square.shape == (224, 224)
    # 300 x 260 becomes 256 x 221, padded by 17 and 18 columns; 16 pixels are cut off on every side.
    assert extent == Extent((16 - 17) / 221, 16 / 256, (240 - 17) / 221, 240 / 256)
    assert not square[:, 0].any()
    halved, whole = released_square(
        np.kron(np.arange(256 * 256).reshape(256, 256) % 256 / 255.0, np.ones((2, 2))).astype(np.float32)
    )
    assert np.array_equal(halved.numpy()[0], np.arange(16, 240, dtype=np.float32) / np.float32(255))
    assert whole == Extent(1 / 16, 1 / 16, 15 / 16, 15 / 16)


def test_texts_are_spelled_as_in_training() -> None:
    assert (
        released_words("Findings:\n1. No (focal) opacity; 2. Café-au-lait. Stable.") == "no focal opacity caf au lait"
    )
    assert released_words("Cardiomegaly.") == "cardiomegaly"  # alone it is not dropped
    assert released_words("?!") == ""


def test_long_texts_are_read_up_to_97_pieces(model: ReleasedGloria) -> None:
    assert model.reads(LONG).complete
    reading = model.reads("small left lung " * 40)
    assert not reading.complete
    assert len(reading.text.split()) == 95  # and [CLS] and [SEP]


@pytest.mark.parametrize(
    ("name", "shape", "problem"),
    [
        (f"{IMAGES}model.layer3.5.bn2.running_mean", None, "lacks gloria.img_encoder.model.layer3.5.bn2.running_mean"),
        (f"{TEXTS}encoder.layer.4.output.dense.bias", None, "lacks gloria.text_encoder.model.encoder.layer.4.output"),
        (f"{TEXTS}embeddings.word_embeddings.weight", None, "it is no checkpoint of GLoRIA"),
        (f"{IMAGES}local_embedder.weight", (HIDDEN, 256, 1, 1), r"local_embedder.weight must be of shape \(128, 1024,"),
        (f"{IMAGES}model.fc.weight", (1000, 2048), "has gloria.img_encoder.model.fc.weight, which the model has not"),
        ("gloria.head.weight", (2, 2), "has gloria.head.weight, which GLoRIA has not"),
    ],
)
def test_another_layout_is_an_error_that_names_file_and_tensor(
    tensors: dict[str, Tensor], model: ReleasedGloria, name: str, shape: tuple[int, ...] | None, problem: str
) -> None:
    changed = {key: tensor for key, tensor in tensors.items() if key != name}
    if shape is not None:
        changed[name] = torch.zeros(shape)
    with pytest.raises(InputError, match=f"^mine.ckpt.*{problem}"):
        ReleasedGloria(changed, model.tokenizer.definition, "mine.ckpt")


def test_addresses_that_cannot_be_loaded_are_one_sentence(checkpoint: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="text is missing"):
        rightlung.load(f"gloria:{checkpoint}")
    with pytest.raises(InputError, match="did you mean 'text'"):
        rightlung.load(f"gloria:{checkpoint}?txt={folder}")
    with pytest.raises(InputError, match="there is no such file"):
        rightlung.load(f"gloria:{tmp_path}/none.ckpt?text={folder}")
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS[:-1]), encoding="utf-8")
    with pytest.raises(InputError, match=r"trained with 20 word pieces.*Bio_ClinicalBERT"):
        rightlung.load(f"gloria:{checkpoint}?text={tmp_path}/vocab.txt")
