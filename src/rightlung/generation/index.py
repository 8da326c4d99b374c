"""The index of training reports: normalised embeddings of findings, their texts, studies and patients.

eCLIP supp. D, step 1. The search is exact: a matrix product or, as in the paper, FAISS, with the same result. The index
also holds what writers choose once: two exemplars for a language model, and one constant report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import InputError, Report, Study
from rightlung.core.keyed import text_digest
from rightlung.core.progress import Progress, no_progress
from rightlung.models.base import Embedder
from rightlung.models.folder import weights_digest
from rightlung.scoring.clinical import positive_observations
from rightlung.scoring.language import mean_sentence_bleu, token_rule
from rightlung.scoring.nearest import Backend, nearest
from rightlung.studies import Source
from rightlung.studies.sources import build_studies

Vectors = NDArray[np.float32]

EXEMPLARS = 2
EXEMPLAR_WORDS = range(12, 81)
"""Words that the findings of an exemplar may have."""
COMPARED = 4000
"""At most so many distinct texts are candidates for the constant report, and so many entries are its references:
every second one, every third one…"""
_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class ReportIndex:
    """Entries with one text each (rows of ``embeddings``), and the model that embedded them.

    ``exemplars`` are entries, ``exemplar_images`` the embeddings of their images: what a report like theirs would be
    written from. ``constant`` is the entry with the highest mean BLEU-2 against all entries.
    """

    texts: tuple[str, ...]
    studies: tuple[str, ...]
    patients: tuple[str, ...]
    embeddings: Vectors
    exemplars: tuple[int, ...]
    exemplar_images: Vectors
    constant: int
    model: str
    weights: str | None
    source: str

    def nearest(
        self, vectors: Vectors, count: int, without: str | None = None, backend: Backend = "matrix"
    ) -> list[tuple[NDArray[np.intp], Vectors]]:
        """Return, for each embedding (n, dimension), the nearest entries by cosine, nearest first, and their cosines.

        The entries of the patient ``without`` do not count. ``faiss`` finds the same entries as ``matrix``.
        """
        left = np.array([place for place, patient in enumerate(self.patients) if patient != without], np.intp)
        if not len(left) or not len(vectors):
            return [(left, np.zeros(0, np.float32))] * len(vectors)
        ids, cosines = nearest(vectors, self.embeddings[left], min(count, len(left)), backend)
        return list(zip(left[ids], cosines.astype(np.float32), strict=True))

    def check_model(self, embedder: Any, name: str) -> None:
        """Raise an error if the index was made with another model or with other weights."""
        dimension, found = self.embeddings.shape[1], embedder.encode_text(["clear lungs"]).shape[1]
        made = f"the index was made with the model {self.model!r}"
        if found != dimension:
            raise InputError(f"{made}, whose embeddings have {dimension} dimensions; those of {name!r} have {found}")
        if self.weights is not None and (now := weights_digest(embedder)) != self.weights:
            raise InputError(f"{made} with the weights {self.weights}; {name!r} has the weights {now}: make it again")


def findings_of(report: Report | None) -> str:
    """Return the findings of a report on one line; the whole text of a report without sections."""
    if report is None:
        return ""
    return " ".join((report.sections.get("findings", "") if report.sections else report.text).split())


def patient_of(study: Study) -> str:
    """Return the patient as `rightlung.asking` names it; a study without a patient is its own patient."""
    return study.patient or f"study {study.id}"


def encode_images(embedder: Any, images: Sequence[Any]) -> Vectors:
    """Return unit embeddings of images."""
    return unit(embedder.encode_image(images))


def unit(vectors: Any) -> Vectors:
    """Return vectors of length one."""
    array = np.asarray(vectors, np.float32)
    scaled: Vectors = array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-12)
    return scaled


def build_index(
    embedder: Any, name: str, source: Source, progress: Progress = no_progress
) -> tuple[ReportIndex, list[str]]:
    """Index the findings of a source with a model; return the index and the problems of studies that were left out.

    A text counts once for each patient, because one examination may have several images.
    """
    if not isinstance(embedder, Embedder):
        raise InputError(f"model {name!r} does not embed images and texts, which an index needs")
    found: dict[tuple[str, str], int] = {}  # by patient and text, the position of the study
    problems: dict[str, str] = {}
    for begin in range(0, len(source), _AT_ONCE):
        positions = range(begin, min(begin + _AT_ONCE, len(source)))
        for position, study in build_studies(source, positions, problems).items():
            if text := findings_of(study.report):
                found.setdefault((patient_of(study), text), position)
        progress("reading reports", positions.stop, len(source))
    listed = [*map(str, source.problems), *problems.values()]
    if not found:
        raise InputError(f"{source.address}: no study has a report with findings, so there is nothing to index")
    patients, texts = zip(*found, strict=True)
    parts = []
    for begin in range(0, len(texts), _AT_ONCE):
        parts.append(unit(embedder.encode_text(texts[begin : begin + _AT_ONCE])))
        progress("embedding reports", min(begin + _AT_ONCE, len(texts)), len(texts))
    progress("choosing exemplars", 0, 1)
    positions_of = list(found.values())
    exemplars, images = _choose_exemplars(texts, positions_of, partial(_image_of, embedder, source))
    index = ReportIndex(
        texts, tuple(source.ids[position] for position in positions_of), patients, np.concatenate(parts), exemplars,
        images, choose_constant(texts), name, weights_digest(embedder), source.address,
    )  # fmt: skip
    return index, listed


def _image_of(embedder: Any, source: Source, position: int) -> Vectors | None:
    """Return the embedding of a study's image, None if it cannot be read."""
    try:
        (vector,) = encode_images(embedder, [source[position].image])
    except InputError:
        return None
    found: Vectors = vector
    return found


def _choose_exemplars(texts: Sequence[str], positions: Sequence[int], image_of: Any) -> tuple[tuple[int, ...], Vectors]:
    """Return two entries with the embeddings of their images: a report without a positive finding and one with some.

    The order is that of a hash of the texts. If only one kind is there, both are of that kind; with one entry, there
    is one exemplar.
    """
    order = sorted(range(len(texts)), key=lambda one: (len(texts[one].split()) not in EXEMPLAR_WORDS, _key(texts[one])))
    chosen: dict[int, Vectors] = {}
    for wanted in (False, True, None):
        for one in order:
            if len(chosen) == EXEMPLARS or (wanted is not None and len(chosen) > wanted):
                break
            positive = any(name != "No Finding" for name in positive_observations(texts[one]))
            known = one in chosen or texts[one] in {texts[other] for other in chosen}
            if known or wanted not in (None, positive) or (image := image_of(positions[one])) is None:
                continue
            chosen[one] = image
    if not chosen:
        raise InputError("none of the images behind the reports can be read, so no exemplar can be chosen")
    return tuple(chosen), np.stack(list(chosen.values()))


def _key(text: str) -> bytes:
    return text_digest("exemplar", text)


def choose_constant(texts: Sequence[str]) -> int:
    """Return the entry whose text has the highest mean sentence BLEU-2 against all texts."""
    split = token_rule("cased")
    first: dict[str, int] = {}
    for place, text in enumerate(texts):
        first.setdefault(text, place)
    candidates, references = list(first), list(texts)
    candidates, references = (some[:: -(-len(some) // COMPARED)] for some in (candidates, references))
    means = mean_sentence_bleu([split(text) for text in candidates], [split(text) for text in references])
    return first[candidates[int(means.argmax())]]
