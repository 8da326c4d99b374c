from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, ResNetConfig, ResNetModel

from rightlung.core import InputError
from rightlung.models.encoders import ImageEncoder, ImageEncoderConfig, train_tokenizer
from rightlung.models.gloria import Gloria

TEXTS = ["left pleural effusion.", "no pneumothorax is seen."] * 3


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Backbones as `transformers` saves them: a ResNet for colour pictures, and a BERT with its tokenizer."""
    torch.manual_seed(0)
    resnet = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_channels=3)
    ResNetModel(resnet).save_pretrained(tmp_path / "resnet")  # type: ignore[no-untyped-call]
    definition = train_tokenizer(TEXTS)
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer.from_str(definition), unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]"
    )
    tokenizer.save_pretrained(tmp_path / "bert")
    bert = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64,
    )  # fmt: skip
    BertModel(bert).save_pretrained(tmp_path / "bert")  # type: ignore[no-untyped-call]
    return tmp_path / "resnet", tmp_path / "bert"


def config(resnet: Path, bert: Path) -> dict[str, Any]:
    return {
        "image": {"kind": "resnet", "size": 64, "pyramid_levels": [1], "pretrained": str(resnet)},
        "text": {"max_length": 32, "pretrained": str(bert)},
        "dimension": 16,
    }


def test_weights_and_tokenizer_come_from_the_folders(folders: tuple[Path, Path]) -> None:
    model = Gloria.create(config(*folders), [], seed=0).eval()
    resnet, bert = ResNetModel.from_pretrained(folders[0]), BertModel.from_pretrained(folders[1])
    ours = model.state_dict()
    for name, weight in resnet.state_dict().items():
        assert torch.equal(ours[f"image_encoder.backbone.{name}"], weight)
    for name, weight in bert.state_dict().items():
        if not name.startswith("pooler."):
            assert torch.equal(ours[f"text_encoder.backbone.{name}"], weight)
    assert model.tokenizer.encode(["left pleural effusion."]).word_count.tolist() == [4]


def test_a_saved_model_no_longer_needs_the_folders(folders: tuple[Path, Path]) -> None:
    model = Gloria.create(config(*folders), [], seed=0).eval()
    for folder in folders:
        for file in folder.iterdir():
            file.unlink()
    again = Gloria.from_parts(model.to_config(), model.tensors(), model.extra_files())
    assert again.config.image.pretrained is None
    picture = torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(model.image_encoder(picture).global_embedding, again.image_encoder(picture).global_embedding)


def test_a_grey_picture_goes_through_an_encoder_for_colour_ones(folders: tuple[Path, Path]) -> None:
    encoder = ImageEncoder(ImageEncoderConfig(size=64, pyramid_levels=(0,), pretrained=str(folders[0])), 8)
    assert encoder.channels == 3
    assert encoder(torch.rand(2, 1, 64, 64)).patch_embeddings.shape == (2, 8, 16, 16)


def test_a_vocabulary_padded_beyond_its_tokenizer_can_be_saved_and_loaded(folders: tuple[Path, Path]) -> None:
    bert = BertModel.from_pretrained(folders[1])
    bert.resize_token_embeddings(bert.config.vocab_size + 13)
    bert.half().save_pretrained(folders[1])  # type: ignore[no-untyped-call]
    model = Gloria.create(config(*folders), [], seed=0).eval()
    again = Gloria.from_parts(model.to_config(), model.tensors(), model.extra_files())
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    with torch.no_grad():
        assert torch.equal(model.embed_texts(TEXTS).global_embedding, again.embed_texts(TEXTS).global_embedding)


def test_more_tokens_than_the_encoder_has_positions_are_refused(folders: tuple[Path, Path]) -> None:
    asked = config(*folders)
    asked["text"]["max_length"] = 65
    with pytest.raises(InputError, match="max_position_embeddings of at least 65; got 64: reduce max_length"):
        Gloria.create(asked, [], seed=0)


def test_a_folder_of_another_kind_is_refused(folders: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match=r"resnet: expected a 'vit' as the image encoder; the folder holds a 'resnet'"):
        ImageEncoder(ImageEncoderConfig(kind="vit", size=64, pyramid_levels=(0,), pretrained=str(folders[0])), 8)


def test_a_pickle_in_the_folder_is_not_loaded(folders: tuple[Path, Path]) -> None:
    weights = folders[0] / "model.safetensors"
    weights.unlink()
    torch.save({}, folders[0] / "pytorch_model.bin")
    with pytest.raises(InputError, match="cannot read the pretrained image encoder from this folder"):
        ImageEncoder(ImageEncoderConfig(size=64, pyramid_levels=(0,), pretrained=str(folders[0])), 8)
