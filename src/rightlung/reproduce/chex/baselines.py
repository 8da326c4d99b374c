"""Baselines of ChEX that are made instead of trained: from a CLIP, or from the training studies alone (supp. E.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Image, Study
from rightlung.models.blind.model import BlindModel
from rightlung.models.retrieval import Retrieval

FITTED_ON = 1000
"""Number of training studies whose sentences, boxes and reports are used."""


def retrieve_sentences(clip: Any, studies: Iterable[Study]) -> Retrieval:
    """Return a model that answers with the nearest sentence of the training studies."""
    return Retrieval.fit(clip, islice(studies, FITTED_ON))


@dataclass
class CroppedClip:
    """A CLIP that classifies regions by their crops, not by their pooled patches, and does nothing else."""

    clip: Any

    @classmethod
    def of(cls, clip: Any, studies: Iterable[Study]) -> Self:
        """Return the model with the weights of another; no study is needed."""
        config = clip.to_config() | {"regions": "cropped"}
        return cls(type(clip).from_parts(config, clip.tensors(), clip.extra_files()).to(clip.device))

    def classify(
        self,
        images: Sequence[Image],
        findings: Sequence[str],
        boxes: Sequence[Box] | None = None,
        multiclass: bool = False,
    ) -> NDArray[np.float32]:
        """Return the probability of each finding, (images, findings)."""
        found: NDArray[np.float32] = self.clip.classify(images, findings, boxes, multiclass)
        return found


def fit_blind(start: None, studies: Iterable[Study]) -> BlindModel:
    """Return what can be answered without the image: median boxes, frequencies of findings, frequent texts."""
    return BlindModel.fit(islice(studies, FITTED_ON))
