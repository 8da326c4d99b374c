"""Retrieval: answer with the sentences of a bank whose embeddings are nearest to that of the image or region.

As ChEX uses contrastive models for region explanation (supp. E.4). The bank is made of the reports of training studies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core import Box, Image, InputError, Report, Sentence, Study
from rightlung.core.checks import check_limits
from rightlung.lexicon.labeller import read_report
from rightlung.models.base import Embedder
from rightlung.models.hub import Pretrained
from rightlung.models.inputs import Images, Queries, as_images, as_queries
from rightlung.models.kinds import class_of
from rightlung.models.roi import crop
from rightlung.models.sentences import choose_sentences

SENTENCES_FILE = "sentences.json"
PREFIX = "embedder."
"""Of the names of the embedder's weights and files in a model folder."""
CANDIDATES = 64
"""How many of the nearest sentences are considered for a report."""


class Retrieval(Pretrained):
    """Sentences of a bank that are nearest to an image or region, by any model that embeds images and texts.

    ``embeddings`` (sentences, dimension) are those of the sentences; by default they are computed.
    """

    kind: ClassVar[str] = "retrieval"

    def __init__(
        self,
        embedder: Any,
        sentences: Sequence[str],
        embeddings: NDArray[np.float32] | None = None,
        sentences_per_report: int = 4,
    ) -> None:
        if not isinstance(embedder, Embedder):
            raise InputError(f"retrieval needs encode_image and encode_text, which a {type(embedder).__name__} lacks")
        if not sentences:
            raise InputError("retrieval needs at least one sentence")
        check_limits(sentences_per_report, "sentences_per_report", 1, 1000)
        self.embedder: Any = embedder
        self.sentences = list(sentences)
        self.embeddings = _unit(self.embedder.encode_text(self.sentences) if embeddings is None else embeddings)
        if len(self.embeddings) != len(self.sentences):
            raise InputError(f"got {len(self.embeddings)} embeddings for {len(self.sentences)} sentences")
        self.sentences_per_report = sentences_per_report

    @classmethod
    def fit(cls, embedder: Any, studies: Iterable[Study], sentences_per_report: int = 4) -> Self:
        """Make a bank of the distinct sentences that describe the images of studies."""
        reports = (study.report for study in studies if study.report is not None)
        told = chain.from_iterable(read_report(report) for report in reports)
        sentences = list(dict.fromkeys(sentence.text for sentence in told))
        return cls(embedder, sentences, sentences_per_report=sentences_per_report)

    def to(self, device: str | torch.device) -> Self:
        """Move the embedder to a device."""
        self.embedder.to(device)
        return self

    def describe(self, images: Images, queries: Queries) -> list[str]:
        """Return the nearest sentence to each query's box, or to its image if it has none.

        If the query has a phrase, the sentence's cosine with it is added to that with the image.
        """
        arrays, listed = as_queries(images, queries)
        vectors: dict[int, NDArray[np.float32]] = {}
        boxes = {place: query.box for place, query in enumerate(listed) if query.box is not None}
        whole = [place for place in range(len(listed)) if place not in boxes]
        phrases = {place: query.phrase for place, query in enumerate(listed) if query.phrase is not None}
        if boxes:
            regions = self._encode_regions([arrays[place] for place in boxes], list(boxes.values()))
            vectors |= dict(zip(boxes, regions, strict=True))
        if whole:
            embedded = _unit(self.embedder.encode_image([arrays[place] for place in whole]))
            vectors |= dict(zip(whole, embedded, strict=True))
        if phrases:
            for place, text in zip(phrases, _unit(self.embedder.encode_text(list(phrases.values()))), strict=True):
                vectors[place] = vectors[place] + text
        return [self.sentences[int((self.embeddings @ vectors[place]).argmax())] for place in range(len(listed))]

    def report(self, images: Images) -> list[Report]:
        """Return the nearest sentences to each image, without near-duplicates and contradictions."""
        arrays = as_images(images)
        if not arrays:
            return []
        reports = []
        for cosines in _unit(self.embedder.encode_image(arrays)) @ self.embeddings.T:
            nearest = np.argsort(-cosines, kind="stable")[:CANDIDATES]
            candidates = [Sentence(self.sentences[one], score=float(cosines[one])) for one in nearest]
            embeddings = torch.from_numpy(self.embeddings[nearest])
            chosen = choose_sentences(candidates, embeddings, self.sentences_per_report)
            reports.append(Report(" ".join(sentence.text for sentence in chosen), sentences=chosen))
        return reports

    def _encode_regions(self, images: Sequence[Image], boxes: Sequence[Box]) -> NDArray[np.float32]:
        """Return embeddings of boxes: pooled by the embedder if it can, else those of crops."""
        if hasattr(self.embedder, "encode_regions"):
            return _unit(self.embedder.encode_regions(images, boxes))
        return _unit(self.embedder.encode_image([crop(image, box) for image, box in zip(images, boxes, strict=True)]))

    def to_config(self) -> dict[str, Any]:
        """Return the kind and configuration of the embedder, and the length of reports."""
        embedder = {"kind": self.embedder.kind, "config": self.embedder.to_config()}
        return {"embedder": embedder, "sentences_per_report": self.sentences_per_report}

    def tensors(self) -> dict[str, Tensor]:
        """Return the embeddings of the sentences and the weights of the embedder."""
        weights = {PREFIX + name: weight for name, weight in self.embedder.tensors().items()}
        return {"embeddings": torch.from_numpy(self.embeddings), **weights}

    def extra_files(self) -> dict[str, bytes]:
        """Return the sentences and the files of the embedder."""
        files = {PREFIX + name: content for name, content in self.embedder.extra_files().items()}
        return {SENTENCES_FILE: json.dumps(self.sentences, indent=0).encode(), **files}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], files: Mapping[str, bytes]) -> Self:
        """Build the model that `to_config`, `tensors` and `extra_files` describe."""
        described = config["embedder"]
        own_tensors, own_files = (
            {name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)}
            for given in (tensors, files)
        )
        embedder = class_of(described["kind"]).from_parts(described["config"], own_tensors, own_files)
        sentences = json.loads(files[SENTENCES_FILE])
        return cls(embedder, sentences, tensors["embeddings"].float().numpy(), config["sentences_per_report"])


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit
