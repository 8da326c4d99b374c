"""Embeddings of images and reports: kept for their geometry and for the UMAP figure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from rightlung.core.files import write_whole
from rightlung.predictions import Batch, Prediction
from rightlung.scoring.text_retrieval import TextPool

EMBEDDED = ("clip", "clip-expert")
"""Variants whose embeddings are kept, for their geometry and for the UMAP."""
GROUPS = ("no finding", "cardiomegaly", "atelectasis", "lung opacity")
"""The groups of Figure 2: studies with one of these labels alone."""
EMBEDDINGS = "embeddings.safetensors"


@dataclass(frozen=True)
class Embedded:
    """The embeddings (studies, dimension) of images and of their reports."""

    studies: list[str]
    images: NDArray[np.float32] = field(repr=False)
    texts: NDArray[np.float32] = field(repr=False)

    def keep(self, path: Path, expert: Mapping[str, NDArray[np.float32]] | None = None) -> None:
        """Write them with half precision, and the embeddings of some studies' expert images."""
        tables = {"images": self.images, "texts": self.texts}
        if expert:
            tables["expert"] = np.array(list(expert.values()))
        half = {name: table.astype(np.float16) for name, table in tables.items()}
        about = {"studies": json.dumps(self.studies), "expert": json.dumps([*(expert or ())])}
        write_whole(path, lambda part: save_file(half, part, about))

    @classmethod
    def read(cls, path: Path) -> tuple[Embedded, dict[str, NDArray[np.float32]]]:
        """Return what `keep` wrote."""
        with safe_open(path, "numpy") as file:
            about, tables = file.metadata(), {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118
        expert = dict(zip(json.loads(about["expert"]), tables.get("expert", ()), strict=True))
        return cls(json.loads(about["studies"]), tables["images"], tables["texts"]), expert


def group_of(findings: Mapping[str, str]) -> str | None:
    """Return the only one of the four `GROUPS` that a study belongs to. Atelectasis is an opacity, too."""
    present = [name for name in GROUPS if findings.get(name) == "positive"]
    if "atelectasis" in present:
        present = [name for name in present if name != "lung opacity"]
    return present[0] if len(present) == 1 else None


def embeddings_of(batches: Iterable[Batch]) -> Embedded:
    """Return the embeddings of the studies of which image and report were embedded."""
    rows: list[Prediction] = [row for batch in batches for row in batch.predictions()]
    images = {row.study: row.image_embedding for row in rows if row.image_embedding is not None}
    texts = {row.study: row.text_embedding for row in rows if row.text_embedding is not None}
    both = [study for study in images if study in texts]
    vectors = (np.array([some[study] for study in both], np.float32) for some in (images, texts))
    return Embedded(both, *vectors)


def distinct(reports: Sequence[str]) -> NDArray[np.intp]:
    """Return the place of the first study with each report: identical ones would raise the uniformity."""
    _, first = np.unique(TextPool.of(reports).places(reports), return_index=True)
    return first
