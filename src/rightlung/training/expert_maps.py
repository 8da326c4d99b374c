"""The maps of an expert stream by name: masks, gaze, changed gaze, and controls (docs/eclip.md lists them).

Everything random follows from the study's id, so a study has the same map whenever it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core import Box, InputError, Mask, Phrase, Study
from rightlung.core.gaze import GRID, gaze_map
from rightlung.core.keyed import text_generator
from rightlung.phantom.gaze import SCAN

if TYPE_CHECKING:
    from rightlung.training.targets.base import StudyFrame

ExpertMapKind = Literal[
    "sentence-mask", "study-masks", "sentence-gaze", "gaze", "gaze-jitter", "gaze-offset", "gaze-short", "normal-scan",
    "other-patient", "random", "noise", "ones", "boxes", "none",
]  # fmt: skip
KINDS: tuple[str, ...] = get_args(ExpertMapKind)
NEEDS = {
    "sentence-gaze": "fixations with what each rests on, or with times of phrases",
    "gaze": "a gaze map",
    "other-patient": "a gaze map",
    "gaze-jitter": "fixations",
    "gaze-offset": "fixations",
    "gaze-short": "fixations",
    "normal-scan": "fixations with what each rests on",
    "random": "fixations",
    "boxes": "a phrase with a box",
}
"""What a study must have for a kind of map; studies without it are left out."""

Path = NDArray[np.float64]
"""Fixations (n, 3): x and y in fractions of the image, and seconds."""


@dataclass(frozen=True)
class MapSettings:
    """How gaze is changed: lengths in fractions of the image, and seconds."""

    jitter: float = 0.08  # standard deviation by which each fixation is displaced, in either direction
    offset: float = 0.15  # by which the whole path is displaced, in a direction that is the study's own
    seconds: float = 2.0  # after which the reading is cut off


@dataclass(frozen=True)
class ExpertMaps:
    """The maps of one study on the grid of its square, each with a maximum of 1.

    ``whole`` belongs to the whole study, None if the study has no such map. ``nothing_to_see`` says that it is one
    everywhere because the study has no mask. ``of_sentences`` holds the maps of sentences that have one of their own.
    """

    whole: Tensor | None
    of_sentences: Mapping[str, Tensor]
    nothing_to_see: bool = False


class MapMaker:
    """Makes the maps of one study."""

    def __init__(self, study: Study, frame: StudyFrame, settings: MapSettings) -> None:
        self.study, self.frame, self.settings = study, frame, settings
        self.size: tuple[int, int] = (study.image.shape[0], study.image.shape[1])
        path = study.extra.get("fixations")
        self.path: Path | None = None if not path else np.array(path, dtype=np.float64).reshape(-1, 3)
        self.rests_on: Sequence[str] | None = study.extra.get("fixation_subjects")

    def make(self, kind: str) -> ExpertMaps:
        """Return the maps of a kind."""
        if kind in ("sentence-mask", "study-masks"):
            return self._masks(with_sentences=kind == "sentence-mask")
        if kind == "sentence-gaze":
            own = dict(self._sentence_gaze())
            return ExpertMaps(self._looked(), own) if self._has_subjects else ExpertMaps(None, {})
        wholes: dict[str, Callable[[], Tensor | None]] = {
            "gaze": self._looked,
            "other-patient": self._looked,
            "boxes": self._boxes,
            "ones": self._ones,
            "noise": lambda: torch.from_numpy(self._random("noise").random((self.frame.grid,) * 2, dtype=np.float32)),
        }
        whole = wholes[kind]() if kind in wholes else self._from_path(self._changed_path(kind))
        return ExpertMaps(whole, {})

    def _random(self, what: str) -> np.random.Generator:
        return text_generator("expert map", what, self.study.id)

    def _ones(self) -> Tensor:
        return torch.ones(self.frame.grid, self.frame.grid)

    # ------------------------------------------------------------------ masks

    def _masks(self, with_sentences: bool) -> ExpertMaps:
        own = {phrase.text: mask for phrase in self.study.phrases if (mask := self._mask(phrase)) is not None}
        outlined = [mask for phrase in self.study.located_findings if (mask := self._mask(phrase)) is not None]
        every = outlined or list(own.values())
        if not every:
            return ExpertMaps(self._ones(), {}, nothing_to_see=True)
        return ExpertMaps(reduce(torch.maximum, every), own if with_sentences else {})

    def _mask(self, phrase: Phrase) -> Tensor | None:
        if phrase.mask is None and not phrase.boxes:
            return None
        mask = phrase.mask if phrase.mask is not None else Mask.from_boxes(phrase.boxes, self.size)
        return self._scaled(mask.pixels.astype(np.float32))

    def _boxes(self) -> Tensor | None:
        """A Gaussian for each box, whose sides are two standard deviations from its middle."""
        named = [*self.study.located_findings, *self.study.phrases]
        boxes = list(dict.fromkeys(box for phrase in named for box in phrase.boxes))
        return reduce(torch.maximum, map(self._gaussian, boxes)) if boxes else None

    def _gaussian(self, box: Box) -> Tensor:
        std = [max(box.width / 4, 0.5 / GRID), max(box.height / 4, 0.5 / GRID)]
        looked = gaze_map([(*box.centre, 1.0)], std=np.array([std]))
        return self._scaled(looked.to_size(self.size))

    # ------------------------------------------------------------------- gaze

    def _looked(self) -> Tensor | None:
        return None if self.study.gaze is None else self._scaled(self.study.gaze.to_size(self.size))

    def _from_path(self, path: Path | None) -> Tensor | None:
        return None if path is None or not len(path) else self._scaled(gaze_map(path).to_size(self.size))

    def _changed_path(self, kind: str) -> Path | None:
        if self.path is None:
            return None
        path, random, settings = self.path.copy(), self._random(kind), self.settings
        if kind == "gaze-jitter":
            path[:, :2] += random.normal(0.0, settings.jitter, path[:, :2].shape)
        elif kind == "gaze-offset":
            angle = random.uniform(0.0, 2 * np.pi)
            path[:, :2] += settings.offset * np.array([np.cos(angle), np.sin(angle)])
        elif kind == "gaze-short":
            begins = np.cumsum(path[:, 2]) - path[:, 2]
            path = path[begins < settings.seconds]
        elif kind == "random":
            path[:, :2] = random.random(path[:, :2].shape)
        elif kind == "normal-scan":
            if self.rests_on is None:
                return None
            path = path[[name in SCAN for name in self.rests_on]]
        return path

    @cached_property
    def _has_subjects(self) -> bool:
        timed = self.study.extra.get("timed_phrases") and self.study.extra.get("fixation_starts")
        return self.path is not None and (self.rests_on is not None or bool(timed))

    def _sentence_gaze(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the sentences during which, or about what, the reader looked somewhere, and where.

        Simulated fixations say what they rest on: those on lesions and devices belong to the sentences whose mask they
        lie in. Recorded ones have times: those during a dictated phrase belong to the sentences that contain it.
        """
        if self.path is None or not self._has_subjects:
            return
        for phrase in self.study.phrases:
            chosen = self._rests_in(phrase) if self.rests_on is not None else self._during(phrase.text)
            if (own := self._from_path(self.path[chosen])) is not None:
                yield phrase.text, own

    def _rests_in(self, phrase: Phrase) -> NDArray[np.bool_]:
        assert self.path is not None
        assert self.rests_on is not None
        if phrase.mask is None and not phrase.boxes:
            return np.zeros(len(self.path), dtype=bool)
        pixels = (phrase.mask if phrase.mask is not None else Mask.from_boxes(phrase.boxes, self.size)).pixels
        height, width = pixels.shape
        rows = np.clip((self.path[:, 1] * height).astype(int), 0, height - 1)
        columns = np.clip((self.path[:, 0] * width).astype(int), 0, width - 1)
        dwells = np.array([name not in SCAN for name in self.rests_on])
        inside: NDArray[np.bool_] = dwells & pixels[rows, columns]
        return inside

    def _during(self, text: str) -> NDArray[np.bool_]:
        starts = np.array(self.study.extra["fixation_starts"])
        during = np.zeros(len(starts), dtype=bool)
        said: Sequence[tuple[str, float, float]] = self.study.extra["timed_phrases"]
        for phrase, begin, end in said:
            if phrase.strip(" .,").lower() in text.lower():
                during |= (starts >= begin) & (starts <= end)
        return during

    def _scaled(self, pixels: NDArray[np.float32]) -> Tensor:
        cells = self.frame.cells(pixels)
        if not (highest := float(cells.max())) > 0:
            raise InputError(f"study {self.study.id!r}: its expert map is zero everywhere")
        return cells / highest
