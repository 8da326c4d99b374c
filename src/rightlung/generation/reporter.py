"""A reporter that retrieves training reports for an image and writes one of its own from them (eCLIP supp. D).

Its folder is a model folder: the index (texts, embeddings, patients), the settings, and the name of the model that
embeds images, with a digest of its weights. ``INDEX?writer=medoid`` loads it with another setting.
"""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from rightlung.core import InputError, Report
from rightlung.core.checks import check_limits
from rightlung.core.errors import check_known
from rightlung.generation.index import ReportIndex, Vectors, encode_images
from rightlung.generation.language_model import MAX_NEW_TOKENS, ChatModel, find_model, question
from rightlung.generation.writers import VOTE_SHARE, WRITERS, Retrieved, choose_snippets, vote
from rightlung.models.hub import Pretrained
from rightlung.models.inputs import Images, as_images
from rightlung.scoring.nearest import Backend

ENTRIES_FILE = "entries.parquet"
LANGUAGE_MODEL = "language-model"
RETRIEVED = {"paper": 20, "released": 100}
"""How many reports are retrieved for five snippets: in the paper (4 x 5) and in its released code (20 x 5)."""


@dataclass(frozen=True)
class Settings:
    """How reports are written from what is retrieved."""

    writer: str = LANGUAGE_MODEL
    retrieved: int | str = "paper"
    clusters: int = 5
    language_model: str | None = None
    max_new_tokens: int = MAX_NEW_TOKENS
    vote_share: float = VOTE_SHARE
    embedder: str | None = None
    """The model that embeds images. Default: the one that the index names."""
    search: Backend = "matrix"
    """How the nearest reports are found: ``matrix`` or ``faiss``, with the same result."""

    def __post_init__(self) -> None:
        check_known("writer", self.writer, WRITERS)
        check_known("search", self.search, get_args(Backend))
        if isinstance(self.retrieved, str):
            check_known("number of retrieved reports", self.retrieved, RETRIEVED)
        check_limits(self.count, "retrieved", 1, 100_000)
        check_limits(self.clusters, "clusters", 1, 1000)
        check_limits(self.max_new_tokens, "max_new_tokens", 1, MAX_NEW_TOKENS)
        if not 0 < self.vote_share <= 1:
            raise InputError(f"vote_share must be above 0 and at most 1; got {self.vote_share!r}")

    @property
    def count(self) -> int:
        """The number of reports to retrieve."""
        return RETRIEVED[self.retrieved] if isinstance(self.retrieved, str) else self.retrieved


SETTINGS = tuple(one.name for one in fields(Settings))
ABOUT = ("model", "weights", "source", "exemplars", "constant")
"""What the configuration of an index holds besides the settings."""


@dataclass(frozen=True)
class WrittenReport:
    """A report with what it was written from."""

    text: str
    snippets: tuple[str, ...]
    nearest: str
    cosine: float
    """Of the image with the nearest report."""
    seconds: float


class RetrievalReporter(Pretrained):
    """Writes the report of an image from the training reports that are nearest to it."""

    kind: ClassVar[str] = "retrieval-reporter"

    def __init__(
        self, embedder: Any, index: ReportIndex, settings: Settings | None = None, chat: ChatModel | None = None
    ) -> None:
        self.embedder, self.index, self.settings = embedder, index, settings or Settings()
        self.embeddings = index.embeddings  # an attribute, so that it counts as a weight
        self.device: Any = "cpu"
        if chat is not None:
            self.chat = self._with_exemplars(chat)

    @cached_property
    def chat(self) -> ChatModel:
        """The language model, loaded when it is first needed, with the exemplars of the index."""
        return self._with_exemplars(ChatModel.load(self.settings.language_model, self.device))

    @cached_property
    def exemplars(self) -> list[tuple[str, str]]:
        """Questions and answers: the snippets for an exemplar's image, without its patient, and its findings."""
        found = []
        for entry, image in zip(self.index.exemplars, self.index.exemplar_images, strict=True):
            patient = self.index.patients[entry]
            if set(self.index.patients) != {patient}:
                (retrieved,) = self._retrieve(image[None], without=patient)
                snippets = self._snippets(retrieved)
                found.append((question(snippets), self.index.texts[entry]))
        return found

    def to(self, device: str | torch.device) -> Self:
        """Move the embedder and the language model to a device."""
        self.device = device
        if callable(getattr(self.embedder, "to", None)):
            self.embedder.to(device)
        if "chat" in self.__dict__:
            self.chat.to(device)
        return self

    def report(self, images: Images, patients: Sequence[str | None] | None = None) -> list[Report]:
        """Return a report for each image. A patient whose reports are in the index is an error."""
        return [Report(one.text, {"findings": one.text}) for one in self.write(images, patients)]

    def write(self, images: Images, patients: Sequence[str | None] | None = None) -> list[WrittenReport]:
        """Return a report for each image, with its snippets."""
        arrays = as_images(images)
        known = set(self.index.patients)
        for patient in patients or ():
            if patient in known:
                raise InputError(
                    f"patient {patient!r} has a report in the index, which was made of {self.index.source}: "
                    "ask about patients who are not in it"
                )
        if not arrays:
            return []
        return [self._write(retrieved) for retrieved in self._retrieve(encode_images(self.embedder, arrays))]

    def _write(self, retrieved: Retrieved) -> WrittenReport:
        began = time.monotonic()
        snippets = self._snippets(retrieved)
        text = self._text(retrieved, snippets)
        seconds = time.monotonic() - began
        return WrittenReport(text, snippets, retrieved.texts[0], float(retrieved.cosines[0]), seconds)

    def _text(self, retrieved: Retrieved, snippets: Sequence[str]) -> str:
        writer = self.settings.writer
        if writer == LANGUAGE_MODEL:
            return self.chat.write(snippets)
        if writer == "constant":
            return self.index.texts[self.index.constant]
        if writer == "vote":
            return vote(retrieved, self.settings.vote_share)
        plain = WRITERS[writer]
        assert plain is not None
        return plain(retrieved)

    def _retrieve(self, vectors: Vectors, without: str | None = None) -> list[Retrieved]:
        found = self.index.nearest(vectors, self.settings.count, without, self.settings.search)
        return [
            Retrieved(tuple(self.index.texts[one] for one in ids), self.index.embeddings[ids], cosines)
            for ids, cosines in found
        ]

    def _snippets(self, retrieved: Retrieved) -> tuple[str, ...]:
        return tuple(retrieved.texts[place] for place in choose_snippets(retrieved, self.settings.clusters))

    def _with_exemplars(self, chat: ChatModel) -> ChatModel:
        chat.exemplars, chat.max_new_tokens = self.exemplars, self.settings.max_new_tokens
        return chat

    def to_config(self) -> dict[str, Any]:
        """Return the settings and the identity of the model that embeds."""
        index = self.index
        about = {"model": index.model, "weights": index.weights, "source": index.source}
        return about | {"exemplars": list(index.exemplars), "constant": index.constant} | asdict(self.settings)

    def tensors(self) -> dict[str, Tensor]:
        """Return the embeddings of the reports and of the exemplars' images."""
        found = {"embeddings": self.index.embeddings, "exemplar_images": self.index.exemplar_images}
        return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in found.items()}

    def extra_files(self) -> dict[str, bytes]:
        """Return the texts, studies and patients of the entries."""
        index, content = self.index, io.BytesIO()
        columns = {"text": index.texts, "study": index.studies, "patient": index.patients}
        pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), content, compression="zstd")
        return {ENTRIES_FILE: content.getvalue()}

    @classmethod
    def check_settings(cls, config: Mapping[str, Any]) -> None:
        """Refuse wrong settings, and a language model that is not here: now, not at the first image."""
        for name in config:
            check_known("setting of an index", name, (*ABOUT, *SETTINGS))
        settings = Settings(**{name: config[name] for name in SETTINGS if name in config})
        if settings.writer == LANGUAGE_MODEL:
            find_model(settings.language_model)

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], files: Mapping[str, bytes]) -> Self:
        """Load the model that embeds, check that it is the one of the index, and build the reporter."""
        from rightlung.models.registry import load

        settings = Settings(**{name: config[name] for name in SETTINGS if name in config})
        entries = pq.read_table(io.BytesIO(files[ENTRIES_FILE]))
        texts, studies, patients = (tuple(entries[name].to_pylist()) for name in ("text", "study", "patient"))
        embeddings, images = (tensors[name].float().numpy() for name in ("embeddings", "exemplar_images"))
        if not texts or len(texts) != len(embeddings):
            raise InputError(f"the index has {len(texts)} texts and {len(embeddings)} embeddings")
        index = ReportIndex(
            texts, studies, patients, embeddings, tuple(config["exemplars"]), images, config["constant"],
            config["model"], config["weights"], config["source"],
        )  # fmt: skip
        name = settings.embedder or index.model
        embedder = load(name)
        index.check_model(embedder, name)
        return cls(embedder, index, settings)


def load_reporter(folder: str | Path, **changes: Any) -> RetrievalReporter:
    """Load an index with other settings, such as ``writer="nearest"``; None leaves a setting as it is."""
    from rightlung.models.folder import load_folder, read_config

    if (kind := read_config(folder).kind) != RetrievalReporter.kind:
        raise InputError(f"{folder} is a model of the kind {kind!r}, not an index made by 'rightlung index'")
    given = {name: value for name, value in changes.items() if value is not None}
    reporter: RetrievalReporter = load_folder(folder, changes=given)
    return reporter


def model_identity(name: str) -> str:
    """Return a model's name as an index keeps it: a folder by its absolute path."""
    from rightlung.models.registry import list_models

    plain, mark, changes = name.partition("?")
    path = Path(plain).expanduser()
    shipped = plain in {model.name for model in list_models()}
    return name if shipped or not path.is_dir() else f"{path.resolve()}{mark}{changes}"
