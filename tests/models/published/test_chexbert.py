"""Checkpoints with random weights in the layout of stanfordmlgroup/CheXbert's ``chexbert.pth``.

The layout: https://github.com/stanfordmlgroup/CheXbert, ``src/label.py`` (``model_state_dict``, ``module.``),
``src/models/bert_labeler.py`` (``bert``, ``linear_heads``), ``src/constants.py`` (order of heads and classes).
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from rightlung.core import InputError
from rightlung.lexicon.labeller import OBSERVATIONS
from rightlung.measuring.texts import chexbert_columns
from rightlung.models.published.checkpoints import read_tensors
from rightlung.models.published.chexbert import CLASSES, CONDITIONS, CheXbert, convert, load_chexbert
from tests.models.published.layout import Attack, bert_shapes, weight

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "no", "small", "left", "effusion", "##s", "pneumo", "##thorax", ".", "or")
HIDDEN, LAYERS, INNER, POSITIONS = 128, 2, 96, 24


def random_tensors() -> dict[str, Tensor]:
    """Return tensors under CheXbert's names, the unused pooling layer and stored position numbers included."""
    shapes = {
        f"bert.{name}": shape for name, shape in bert_shapes(len(WORDS), POSITIONS, HIDDEN, INNER, LAYERS).items()
    }
    for head, classes in enumerate([4] * 13 + [2]):
        shapes |= {f"linear_heads.{head}.weight": (classes, HIDDEN), f"linear_heads.{head}.bias": (classes,)}
    made = {name: weight(name, shape) for name, shape in shapes.items()}
    return made | {"bert.embeddings.position_ids": torch.arange(POSITIONS)[None]}


def plain_logits(tensors: dict[str, Tensor], ids: list[int]) -> list[Tensor]:
    """BERT by its paper (Devlin et al. 2019), one text at a time, without any library's layers."""

    def linear(name: str, value: Tensor) -> Tensor:
        return value @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def normed(name: str, value: Tensor) -> Tensor:
        centred = value - value.mean(-1, keepdim=True)
        scaled = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-12)
        return scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    embedded = tensors["bert.embeddings.word_embeddings.weight"][ids]
    embedded = embedded + tensors["bert.embeddings.position_embeddings.weight"][: len(ids)]
    value = normed("bert.embeddings.LayerNorm", embedded + tensors["bert.embeddings.token_type_embeddings.weight"][0])
    for layer in range(LAYERS):
        start = f"bert.encoder.layer.{layer}."
        query, key, content = (linear(f"{start}attention.self.{name}", value) for name in ("query", "key", "value"))
        parts = []
        for head in range(HIDDEN // 64):
            chosen = slice(64 * head, 64 * head + 64)
            weights = torch.softmax(query[:, chosen] @ key[:, chosen].T / 8, dim=-1)
            parts.append(weights @ content[:, chosen])
        attended = linear(f"{start}attention.output.dense", torch.cat(parts, dim=1))
        value = normed(f"{start}attention.output.LayerNorm", value + attended)
        inner = linear(f"{start}intermediate.dense", value)
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        value = normed(f"{start}output.LayerNorm", value + linear(f"{start}output.dense", inner))
    return [linear(f"linear_heads.{head}", value[0]) for head in range(14)]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "chexbert.pth"
    state = {f"module.{name}": tensor for name, tensor in random_tensors().items()}
    torch.save({"epoch": 3, "model_state_dict": state, "optimizer_state_dict": {"state": {}, "param_groups": []}}, path)
    return path


@pytest.fixture
def model(checkpoint: Path, vocabulary: Path) -> CheXbert:
    return load_chexbert(checkpoint, vocabulary)


TEXTS = ("No effusions or pneumothorax.", "Small left effusion.", "")


def test_the_logits_are_those_of_bert_written_out(model: CheXbert) -> None:
    encoded = [[2, 4, 7, 8, 12, 9, 10, 11, 3], [2, 5, 6, 7, 11, 3], [2, 3]]
    together = model.logits(TEXTS)
    for row, ids in enumerate(encoded):
        assert model.encode(TEXTS[row]) == ids
        for logits, plain in zip(together, plain_logits(random_tensors(), ids), strict=True):
            torch.testing.assert_close(logits[row], plain, rtol=1e-4, atol=1e-5)


def test_the_classes_are_blank_positive_negative_uncertain_and_two_for_no_finding(model: CheXbert) -> None:
    logits = model.logits(TEXTS)
    assert [tuple(part.shape) for part in logits] == [(3, 4)] * 13 + [(3, 2)]
    for row, labels in enumerate(model.label(TEXTS, batch=2)):
        assert tuple(labels) == CONDITIONS
        for name, part in zip(CONDITIONS, logits, strict=True):
            order = (None, "positive", "negative", "uncertain")
            assert labels[name] == order[max(range(part.shape[1]), key=lambda index: float(part[row, index]))]


def test_the_observations_are_chexperts_in_another_order() -> None:
    assert set(CONDITIONS) == set(OBSERVATIONS)
    assert CONDITIONS[-1] == "No Finding"
    assert CLASSES == (None, "positive", "negative", "uncertain")


def test_neighbours_in_a_batch_change_nothing(model: CheXbert) -> None:
    alone = [model.logits([text]) for text in TEXTS]
    for row, parts in enumerate(alone):
        for part, together in zip(parts, model.logits(TEXTS), strict=True):
            torch.testing.assert_close(part[0], together[row], rtol=1e-4, atol=1e-5)


def test_a_long_text_is_cut_and_closed_with_sep(model: CheXbert) -> None:
    ids = model.encode("no " * 600)
    assert (len(ids), ids[0], ids[-1]) == (POSITIONS, 2, 3)


def test_converting_keeps_every_tensor_and_the_labels(checkpoint: Path, vocabulary: Path, tmp_path: Path) -> None:
    out = tmp_path / "chexbert.safetensors"
    convert(checkpoint, out)
    stored = load_file(out)
    for name, tensor in random_tensors().items():
        assert torch.equal(stored[name], tensor)
    first, second = load_chexbert(checkpoint, vocabulary), load_chexbert(out, vocabulary)
    assert list(first.label(TEXTS)) == list(second.label(TEXTS))


def test_a_tokenizer_file_and_a_folder_give_the_same_pieces(
    model: CheXbert, checkpoint: Path, vocabulary: Path
) -> None:
    file = vocabulary.parent / "tokenizer.json"
    file.write_text(model.tokenizer.to_str(), encoding="utf-8")
    for tokenizer in (file, vocabulary):
        assert load_chexbert(checkpoint, tokenizer).encode(TEXTS[0]) == model.encode(TEXTS[0])
    file.unlink()
    assert load_chexbert(checkpoint, vocabulary.parent).encode(TEXTS[0]) == model.encode(TEXTS[0])


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "evil.pth"
    torch.save({"model_state_dict": Attack()}, path)
    with pytest.raises(InputError, match="more than tensors"):
        read_tensors(path, "model_state_dict")


def _changed(tmp_path: Path, **changes: Tensor | None) -> Path:
    tensors: dict[str, Tensor] = random_tensors()
    for name, tensor in changes.items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    path = tmp_path / "changed.pth"
    torch.save({"model_state_dict": tensors}, path)
    return path


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"bert.embeddings.word_embeddings.weight": None}, "lacks bert.embeddings.word_embeddings.weight"),
        ({"bert.encoder.layer.1.output.dense.bias": None}, "lacks bert.encoder.layer.1.output.dense.bias"),
        ({"linear_heads.13.weight": None, "linear_heads.13.bias": None}, "expected 14 heads, .* got 13"),
        ({"linear_heads.13.weight": torch.zeros(4, HIDDEN)}, r"linear_heads.13.weight must be of shape \(2, 128\)"),
        ({"decoder.weight": torch.zeros(1)}, "has decoder.weight, which the model has not"),
    ],
)
def test_a_checkpoint_of_another_layout_is_an_error_that_names_the_tensor(
    tmp_path: Path, vocabulary: Path, changes: dict[str, Tensor | None], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        load_chexbert(_changed(tmp_path, **changes), vocabulary)


def test_a_vocabulary_of_another_size_is_an_error(checkpoint: Path, vocabulary: Path) -> None:
    vocabulary.write_text("\n".join([*WORDS, "more"]), encoding="utf-8")
    with pytest.raises(InputError, match="trained with 13 word pieces, and the tokenizer has 14"):
        load_chexbert(checkpoint, vocabulary)


@pytest.mark.parametrize("content", [b"", b"no checkpoint"])
@pytest.mark.parametrize("name", ["a.pth", "a.safetensors"])
def test_a_file_that_is_no_checkpoint_is_an_error_that_names_it(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        read_tensors(tmp_path / name, "model_state_dict")


def test_what_is_not_there_and_what_is_no_text_are_errors(model: CheXbert, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_tensors(tmp_path / "missing.pth", "model_state_dict")
    with pytest.raises(InputError, match="must be a text"):
        list(model.label([None]))  # type: ignore[list-item]
    with pytest.raises(InputError, match="batch"):
        list(model.label(["x"], batch=0))
    assert list(model.label([])) == []


def test_embeddings_are_what_the_heads_read(model: CheXbert, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = model.embed(TEXTS, batch=2)
    with torch.inference_mode():
        for head, logits in zip(model.linear_heads, model.logits(TEXTS), strict=True):
            torch.testing.assert_close(head(embedded), logits)
    assert model.embed([]).shape == (0, HIDDEN)
    monkeypatch.delenv("RIGHTLUNG_BERT_VOCABULARY", raising=False)
    monkeypatch.setenv("RIGHTLUNG_CHEXBERT", "chexbert.pth")
    with pytest.raises(InputError, match=r"needs the vocab\.txt of bert-base-uncased: set RIGHTLUNG_BERT_VOCABULARY"):
        chexbert_columns(TEXTS, TEXTS, "whole")


def test_the_cosine_of_equal_reports_is_one(
    checkpoint: Path, vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIGHTLUNG_CHEXBERT", str(checkpoint))
    monkeypatch.setenv("RIGHTLUNG_BERT_VOCABULARY", str(vocabulary))
    same, other = chexbert_columns([TEXTS[0], TEXTS[1]], [TEXTS[0]] * 2, "whole")["chexbert_cosine"]
    assert same == pytest.approx(1.0)
    assert other < 0.9999
