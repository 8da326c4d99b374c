"""Damaged parts of a model folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rightlung.core import InputError
from rightlung.models.folder import load_folder, save_model
from tests.models.gloria.test_model import create


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(create(), tmp_path / "model")
    return tmp_path / "model"


def rehash(folder: Path, name: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps(config))


def test_integer_weights_are_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    name = "image_encoder.global_projection.weight"
    save_file(weights | {name: weights[name].to(torch.int8)}, folder / "model.safetensors")
    rehash(folder, "model.safetensors")
    with pytest.raises(InputError, match=rf"tensor '{name}': expected floating-point numbers; got torch\.int8"):
        load_folder(folder)


def test_a_tokenizer_that_is_not_utf_8_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(b'{"version": "\xff"}')
    rehash(folder, "tokenizer.json")
    with pytest.raises(InputError, match=r"tokenizer\.json is not UTF-8 text: invalid start byte at byte 13"):
        load_folder(folder)
