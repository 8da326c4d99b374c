"""Phrases, each asked of one image: is it seen there, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rightlung.core import Box, Extent, Mask, Study
from rightlung.core.keyed import RandomStream
from rightlung.lexicon.side_changes import mirrored, with_sides_exchanged, without_side
from rightlung.phantom.loader import PhantomBatch, cell_shares
from rightlung.training.annotations import (
    DEVICES,
    NO_FINDING,
    Location,
    StudyAnnotations,
    StudySentence,
    finding_prompts,
)
from rightlung.training.augmentation import to_device
from rightlung.training.targets.base import (
    TARGETS,
    BatchPart,
    Column,
    DrawContext,
    RaggedTensor,
    StudyFrame,
    TargetBuilder,
)
from rightlung.training.targets.regions import MIN_BOX_SIDE

if TYPE_CHECKING:
    from rightlung.training.recipe import DataEntry

NOTHING = torch.tensor([1.0, 1.0, 0.0, 0.0])
"""The box around nothing: an inverted one, which enlarges no other."""
MAX_TRIES = 4
"""Other studies that are searched for a phrase that is false of this one."""


@dataclass(frozen=True, slots=True)
class DrawnPhrase:
    """A phrase asked of an image: whether it is seen there, and the locations that it is about, where known."""

    text: str
    present: bool
    locations: tuple[int, ...] = ()


@TARGETS.register
@dataclass(frozen=True)
class PhraseTargets(TargetBuilder):
    """``p`` phrases with masks, up to ``phrases_per_image`` of the entry for each image.

    - ``texts``, ``image_indices``: lists of length p, the phrases and the index of each one's image
    - ``present`` (p,): 1 (seen in the image), 0 (not seen) or NaN (moved out of the image)
    - ``masks`` (p, grid, grid): share of each cell that the phrase covers, 0 to 1
    - ``has_mask`` (p,) bool: whether that is known

    With the setting ``boxes: true`` also

    - ``boxes`` (p, 4): x0, y0, x1, y1 in fractions of the square image; the box around all that the phrase is about
    - ``has_box`` (p,) bool: whether that is known and inside the image
    """

    boxes: bool = False

    name = "phrases"

    def needs_build(self, entry: DataEntry) -> bool:
        """Masks are needed where phrases are asked and their locations may be used."""
        return entry.phrases_per_image > 0 and entry.phrase_masks != "none"

    def build(self, study: Study, annotations: StudyAnnotations, frame: StudyFrame) -> Mapping[str, Any]:
        """Return ``masks``: of each location of the study, 0 to 255; and ``boxes`` around them."""
        shares = [torch.zeros(0, frame.grid, frame.grid)]
        for location in frame.locations:
            mask = location if isinstance(location, Mask) else Mask.from_boxes(location, study.image.shape)
            shares.append(frame.cells(mask.pixels.astype(np.float32))[None].clamp(0.0, 1.0))
        boxes = {"boxes": _corners(map(_outline, frame.locations), frame)} if self.boxes else {}
        return {"masks": to_uint8(torch.cat(shares)), **boxes}

    def can_build_from_rendering(self, entry: DataEntry) -> bool:
        """Exact masks are rendered; boxes of regions are not."""
        return entry.phrase_masks == "exact"

    def build_from_rendering(self, batch: PhantomBatch, grid: int) -> Mapping[str, Column]:
        """Return ``masks`` of each study's lesions, then of its devices."""
        pairs = zip(batch.rendering.lesion_masks, batch.rendering.device_masks, strict=True)
        masks = torch.cat([mask for pair in pairs for mask in pair])
        counts = [len(scene.lesions) + len(scene.devices) for scene in batch.scenes]
        columns = {"masks": RaggedTensor.of(to_uint8(cell_shares(masks, grid)), counts)}
        if self.boxes:
            frame = StudyFrame(masks.shape[-1], grid, Extent())
            outlines = (one for truth in batch.truths for one in truth.outlines)
            columns["boxes"] = RaggedTensor.of(_corners(outlines, frame).to(masks.device), counts)
        return columns

    def draw(self, study: StudyAnnotations, context: DrawContext) -> list[DrawnPhrase]:
        """Draw up to ``entry.phrases_per_image`` phrases about one image."""
        return draw_phrases(study, context) if context.entry.phrases_per_image else []

    def mirror(self, words: list[DrawnPhrase]) -> list[DrawnPhrase] | None:
        """Mirror the phrases, None where one of them has no mirror image."""
        texts = [mirrored(phrase.text) for phrase in words]
        pairs = zip(words, texts, strict=True)
        return None if None in texts else [replace(phrase, text=str(text)) for phrase, text in pairs]

    def collate(self, part: BatchPart) -> dict[str, Any]:
        """Return texts, image_indices, present, has_mask and masks, and boxes and has_box if they are wanted."""
        asked = [(image, phrase) for image, phrases in enumerate(part.drawn) for phrase in phrases]
        images = part.tensor([image for image, _ in asked], torch.long)
        locations = [(image, phrase.locations) for image, phrase in asked]
        masks = part.move_masks(union_masks(part.columns.get("masks"), locations, part.grid, images.device), images)
        present = part.tensor([float(phrase.present) for _, phrase in asked], torch.float32)
        placed = part.tensor([bool(phrase.locations) for _, phrase in asked], torch.bool)
        # What has moved across the border is not visible, so that nobody can say whether it is there.
        has_mask = placed & (masks.flatten(1).amax(1) > 0.02) if asked else placed
        return {
            "texts": [phrase.text for _, phrase in asked],
            "image_indices": [image for image, _ in asked],
            "present": torch.where(placed & ~has_mask, torch.nan, present),
            "has_mask": has_mask,
            "masks": masks,
            **(self._collated_boxes(part, locations, images) if self.boxes else {}),
        }

    def _collated_boxes(
        self, part: BatchPart, locations: Sequence[tuple[int, tuple[int, ...]]], images: Tensor
    ) -> dict[str, Tensor]:
        whole = enclosing_boxes(part.columns.get("boxes"), locations, images.device)
        known = (whole[:, 2:] > whole[:, :2]).all(-1)
        moved = part.move_boxes(whole, images).clamp(0.0, 1.0)
        known &= (moved[:, 2:] - moved[:, :2] > MIN_BOX_SIDE).all(-1)  # what the border has cut off is left out
        return {"boxes": torch.where(known[:, None], moved, 0.0), "has_box": known}


def _outline(location: Location) -> Box | None:
    """Return the box around a location, None for an empty mask."""
    return location.box() if isinstance(location, Mask) else reduce(Box.enclosing, location)


def _corners(outlines: Iterable[Box | None], frame: StudyFrame) -> Tensor:
    """Return boxes (k, 4) in fractions of the square."""
    return torch.stack([torch.zeros(4), *(NOTHING if box is None else frame.box(box) for box in outlines)])[1:]


def to_uint8(shares: Tensor) -> Tensor:
    """Return shares as bytes, rounded up so that nothing small is lost."""
    return (shares * 255).ceil_().clamp_(0, 255).to(torch.uint8)


def union_masks(
    masks: Column | None, locations: Sequence[tuple[int, tuple[int, ...]]], grid: int, device: torch.device
) -> Tensor:
    """Return the union of the masks of each (study, locations) pair, (p, grid, grid) in 0 to 1; zeros without any."""
    longest = max((len(indices) for _, indices in locations), default=0)
    if not longest or not isinstance(masks, RaggedTensor):
        return torch.zeros(len(locations), grid, grid, device=device)
    united = reduce(torch.maximum, (masks.at(rows) for rows in _rows_of_locations(masks, locations, longest)))
    empty = to_device(torch.tensor([not own for _, own in locations]), device)
    return united.float().div_(255).masked_fill_(empty[:, None, None], 0.0)


def enclosing_boxes(
    boxes: Column | None, locations: Sequence[tuple[int, tuple[int, ...]]], device: torch.device
) -> Tensor:
    """Return the box around the boxes of each (study, locations) pair, (p, 4); `NOTHING` without any."""
    nothing = to_device(NOTHING, device).expand(len(locations), 4)
    longest = max((len(indices) for _, indices in locations), default=0)
    if not longest or not isinstance(boxes, RaggedTensor):
        return nothing
    turns = torch.stack([boxes.at(rows) for rows in _rows_of_locations(boxes, locations, longest)])
    around = torch.cat([turns[..., :2].amin(0), turns[..., 2:].amax(0)], dim=-1)
    empty = to_device(torch.tensor([not own for _, own in locations]), device)
    return torch.where(empty[:, None], nothing, around)


def _rows_of_locations(
    column: RaggedTensor, locations: Sequence[tuple[int, tuple[int, ...]]], longest: int
) -> Iterator[list[int]]:
    """Yield the rows of the first location of every pair, then of the second…; shorter pairs repeat their first."""
    rows = [[column.first[study] + index for index in indices] for study, indices in locations]
    for turn in range(longest):
        yield [own[turn if turn < len(own) else 0] if own else 0 for own in rows]


def draw_phrases(study: StudyAnnotations, context: DrawContext) -> list[DrawnPhrase]:
    """Draw up to ``entry.phrases_per_image`` phrases about a study."""
    entry, stream = context.entry, context.stream
    if entry.words_from == "labels":
        return _label_prompts(study, context)
    few = entry.few_shot_studies is not None
    seen = stream.shuffled(one for one in study.sentences if (one.locations if few else one.visible))
    unseen = stream.shuffled(one for one in study.sentences if one.visible is False and not (few and one.locations))
    asked: list[DrawnPhrase] = []
    for _ in range(entry.phrases_per_image):
        drawn = None
        kind = stream.random()
        if kind < entry.other_study_probability:
            drawn = _from_another(study, context)
        elif kind < entry.other_study_probability + entry.swapped_side_probability:
            swapped = side_swapped_sentences(study)
            drawn = DrawnPhrase(stream.choice(swapped), False) if swapped else None
        drawn = drawn or _own(study, entry, stream, seen, unseen)
        asked += [drawn] if drawn else []
    return asked


def _own(
    study: StudyAnnotations,
    entry: DataEntry,
    stream: RandomStream,
    seen: list[StudySentence],
    unseen: list[StudySentence],
) -> DrawnPhrase | None:
    """Take the next of the study's own sentences, of something visible with probability ``positive_share``."""
    wants_seen, wants_prompt = stream.chance(entry.positive_share), stream.chance(entry.prompt_probability)
    wants_no_side = stream.chance(entry.drop_side_probability)
    if wants_prompt and (drawn := _prompt(study, stream, wants_seen)) is not None:
        return drawn
    if seen and (wants_seen or not unseen):
        one = seen.pop()
        text = without_side(one.text) if wants_no_side and one.side is not None else None
        return DrawnPhrase(text or one.text, one.visible is not False, one.locations)
    return DrawnPhrase(unseen.pop().text, False) if unseen else None


def _prompt(study: StudyAnnotations, stream: RandomStream, present: bool) -> DrawnPhrase | None:
    if not (names := sorted(study.finding_locations if present else study.absent)):
        return None
    name = stream.choice(names)
    return DrawnPhrase(stream.choice(finding_prompts(name)), present, study.finding_locations[name] if present else ())


def _from_another(study: StudyAnnotations, context: DrawContext) -> DrawnPhrase | None:
    """Take a sentence that is true of another study, and none of whose findings is present in this one."""
    for _ in range(MAX_TRIES):
        theirs = context.other()
        if theirs.id == study.id:
            continue
        possible = [one for one in theirs.sentences if one.locations and one.positive and one.positive <= study.absent]
        if possible:
            return DrawnPhrase(context.stream.choice(possible).text, False)
    return None


def side_swapped_sentences(study: StudyAnnotations) -> list[str]:
    """Return sentences about one side as sentences about the other, if that has no such finding."""
    changed = [with_sides_exchanged(one.text) for one in study.sentences if one.side is not None]
    return [text for text in changed if text is not None]


def _label_prompts(study: StudyAnnotations, context: DrawContext) -> list[DrawnPhrase]:
    """Ask for labels that are present and for labels that are absent, in turn where there are both."""
    entry, stream = context.entry, context.stream
    there = stream.shuffled(sorted(name for name in study.positive_findings if name != NO_FINDING))
    healthy = NO_FINDING in study.positive_findings
    if entry.missing_labels == "negative" or healthy:
        missing = context.findings - study.present - study.uncertain - {NO_FINDING}
        if healthy and entry.missing_labels == "unknown":
            missing -= {DEVICES}  # reports say "no finding" of patients with tubes
    else:
        missing = study.absent
    gone = stream.shuffled(sorted(missing))
    asked: list[DrawnPhrase] = []
    while (there or gone) and len(asked) < entry.phrases_per_image:
        present = bool(there) and (not gone or stream.chance(entry.positive_share))
        name = (there if present else gone).pop()
        asked.append(DrawnPhrase(stream.choice(finding_prompts(name)), present))
    return asked
