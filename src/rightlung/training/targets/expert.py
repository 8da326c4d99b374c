"""Where an expert looked, or an annotation of the same form, for the images of an expert stream (eCLIP)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from rightlung.core import InputError, Study
from rightlung.training.annotations import StudyAnnotations
from rightlung.training.expert_maps import ExpertMapKind, MapMaker, MapSettings
from rightlung.training.targets.base import TARGETS, BatchPart, DrawContext, RaggedTensor, StudyFrame, TargetBuilder
from rightlung.training.targets.phrases import to_uint8

if TYPE_CHECKING:
    from rightlung.training.recipe import DataEntry

LEAST = 0.02
"""The maximum below which a map has moved out of the image; it is then one everywhere."""


@TARGETS.register
@dataclass(frozen=True)
class ExpertTargets(MapSettings, TargetBuilder):
    """The maps of the ``p`` images of entries with ``expert_map``.

    - ``image_indices``: list of length p, the index of each map's image
    - ``maps`` (p, grid, grid): 0 to 1, with a maximum of 1 before augmentation
    - ``matches_text`` (p,) bool: whether the map is about the image's text, and not about the study in general

    The settings say how gaze is changed (`MapSettings`). ``map`` is set by the entry. The maps of all ``kinds`` are
    cached together, so that entries and runs with different maps share what they cache.
    """

    kinds: tuple[ExpertMapKind, ...] = ()
    map: ExpertMapKind | None = None

    name = "expert"

    def for_entry(self, entry: DataEntry) -> TargetBuilder:
        """Return the builder of the entry's kind of map."""
        return replace(self, map=None if entry.expert_map in self.kinds else entry.expert_map)

    def needs_build(self, entry: DataEntry) -> bool:
        """Maps are needed where an entry names them."""
        return entry.expert_map not in (None, "none")

    def build(self, study: Study, annotations: StudyAnnotations, frame: StudyFrame) -> Mapping[str, Any]:
        """Return the patient and, for each kind, ``maps`` (k, grid, grid), ``matches`` (k, 1), and each sentence's row.

        The first map is that of the whole study; k is 0 if the study has no such map.
        """
        maker = MapMaker(study, frame, MapSettings(self.jitter, self.offset, self.seconds))
        built: dict[str, Any] = {"patient": study.patient or study.id}
        for kind in self.kinds if self.map is None else (self.map,):
            built |= {f"{kind}/{name}": value for name, value in self._columns(maker, kind).items()}
        return built

    @staticmethod
    def _columns(maker: MapMaker, kind: str) -> dict[str, Any]:
        made = maker.make(kind)
        maps = [] if made.whole is None else [made.whole, *made.of_sentences.values()]
        if any(not torch.isfinite(one).all() for one in maps):
            raise InputError(f"study {maker.study.id!r}: its map for expert_map: {kind} is not finite")
        matches = [not kind.startswith("sentence-") and not made.nothing_to_see, *[True] * len(made.of_sentences)]
        grid = maker.frame.grid
        return {
            "maps": to_uint8(torch.stack(maps)) if maps else torch.zeros(0, grid, grid, dtype=torch.uint8),
            "matches": torch.tensor(matches[: len(maps)], dtype=torch.bool)[:, None],
            "rows": {text: row for row, text in enumerate(made.of_sentences, start=1)} if maps else {},
        }

    def draw(self, annotations: StudyAnnotations, context: DrawContext) -> tuple[str, bool]:
        """Return the image's first text, and whether it may describe something visible."""
        if not context.texts:
            return "", True
        said = context.texts[0]
        return said, all(sentence.visible is not False for sentence in annotations.sentences if sentence.text == said)

    def collate(self, part: BatchPart) -> dict[str, Any]:
        """Return image_indices, maps and matches_text."""
        kind = part.entry.expert_map
        column, flags = part.columns.get(f"{kind}/maps"), part.columns.get(f"{kind}/matches")
        wanted = self.needs_build(part.entry)  # a data set may also serve an entry without maps
        if not wanted or not isinstance(column, RaggedTensor) or not isinstance(flags, RaggedTensor):
            nothing = part.tensor([], torch.float32)
            return {"image_indices": [], "maps": nothing.view(0, part.grid, part.grid), "matches_text": nothing.bool()}
        rows_of_texts: Any = part.columns[f"{kind}/rows"]
        own = [of_study.get(said, 0) for of_study, (said, _) in zip(rows_of_texts, part.drawn, strict=True)]
        lenders: Sequence[int] = range(len(own))
        if kind == "other-patient":
            lenders = other_patients(part.columns["patient"])  # type: ignore[arg-type]
        maps = column.at([column.first[lender] + row for lender, row in zip(lenders, own, strict=True)])
        moved = part.move_masks(maps.float() / 255)
        gone = moved.flatten(1).amax(1) < LEAST
        visible = part.tensor([shown for _, shown in part.drawn], torch.bool)
        matches = flags.at([flags.first[image] + row for image, row in enumerate(own)])[:, 0]
        return {
            "image_indices": list(range(len(own))),
            "maps": torch.where(gone[:, None, None], 1.0, moved),
            "matches_text": matches & visible & ~gone,
        }


def other_patients(patients: Sequence[str]) -> list[int]:
    """Return the index of the next study of another patient, for each study of a batch.

    >>> other_patients(["a", "a", "b", "c"])
    [2, 2, 3, 0]
    """
    count = len(patients)
    found = []
    for own in range(count):
        others = (index % count for index in range(own + 1, own + count))
        other = next((index for index in others if patients[index] != patients[own]), None)
        if other is None:
            raise InputError("expert_map: other-patient needs studies of two patients in every batch; add images")
        found.append(other)
    return found
