"""Phrases, each asked of one image: is it seen there, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rightlung.core import Mask, Study
from rightlung.core.keyed import Stream
from rightlung.lexicon.side_changes import mirrored, with_sides_exchanged, without_side
from rightlung.phantom.stream import PhantomBatch, cell_shares
from rightlung.training.augmentation import on_device
from rightlung.training.study_texts import DEVICES, NO_FINDING, StudySentence, StudyTexts, finding_prompts
from rightlung.training.targets.base import TARGETS, BatchPart, Column, Drawing, Rows, StudyFrame, TargetBuilder

if TYPE_CHECKING:
    from rightlung.training.recipe import DataEntry

TRIES = 4
"""Other studies that are searched for a phrase that is false of this one."""


@dataclass(frozen=True, slots=True)
class DrawnPhrase:
    """A phrase asked of an image: whether it is seen there, and the targets that it is about, where known."""

    text: str
    present: bool
    targets: tuple[int, ...] = ()


@TARGETS.register
@dataclass(frozen=True)
class Phrases(TargetBuilder):
    """``p`` phrases with masks, up to ``phrases`` of the entry for each image.

    - ``texts``, ``images``: lists of length p
    - ``present`` (p,): 1 (seen in the image), 0 (not seen) or NaN (moved out of the image)
    - ``masks`` (p, grid, grid): share of each cell that the phrase covers, 0 to 1
    - ``located`` (p,) bool: whether that is known
    """

    name = "phrases"

    def wanted(self, entry: DataEntry) -> bool:
        """Masks are needed where phrases are asked and their locations may be used."""
        return entry.phrases > 0 and entry.masks != "none"

    def build(self, study: Study, texts: StudyTexts, frame: StudyFrame) -> Mapping[str, Any]:
        """Return ``masks``: of each target of the study, in 255ths."""
        shares = [torch.zeros(0, frame.grid, frame.grid)]
        for place in frame.locations:
            mask = place if isinstance(place, Mask) else Mask.from_boxes(place, study.image.shape)
            shares.append(frame.cells(mask.pixels.astype(np.float32))[None].clamp(0.0, 1.0))
        return {"masks": in_255ths(torch.cat(shares))}

    def can_paint(self, entry: DataEntry) -> bool:
        """Exact masks are painted; boxes of regions are not."""
        return entry.masks == "exact"

    def paint(self, batch: PhantomBatch, grid: int) -> Mapping[str, Column]:
        """Return ``masks`` of each study's lesions, then of its devices."""
        pairs = zip(batch.rendering.lesion_masks, batch.rendering.device_masks, strict=True)
        masks = torch.cat([mask for pair in pairs for mask in pair])
        counts = [len(scene.lesions) + len(scene.devices) for scene in batch.scenes]
        return {"masks": Rows.of(in_255ths(cell_shares(masks, grid)), counts)}

    def draw(self, texts: StudyTexts, drawing: Drawing) -> list[DrawnPhrase]:
        """Draw up to ``entry.phrases`` phrases about one image."""
        return draw_phrases(texts, drawing) if drawing.entry.phrases else []

    def mirror(self, words: list[DrawnPhrase]) -> list[DrawnPhrase] | None:
        """Mirror the phrases, None where one of them has no mirror image."""
        texts = [mirrored(phrase.text) for phrase in words]
        pairs = zip(words, texts, strict=True)
        return None if None in texts else [replace(phrase, text=str(text)) for phrase, text in pairs]

    def collate(self, part: BatchPart) -> dict[str, Any]:
        """Return texts, images, present, located and masks."""
        asked = [(image, phrase) for image, phrases in enumerate(part.words) for phrase in phrases]
        images = part.tensor([image for image, _ in asked], torch.long)
        targets = [(image, phrase.targets) for image, phrase in asked]
        masks = part.move_masks(united_masks(part.columns.get("masks"), targets, part.grid, images.device), images)
        present = part.tensor([float(phrase.present) for _, phrase in asked], torch.float32)
        placed = part.tensor([bool(phrase.targets) for _, phrase in asked], torch.bool)
        # What has moved across the border is not visible, so that nobody can say whether it is there.
        located = placed & (masks.flatten(1).amax(1) > 0.02) if asked else placed
        return {
            "texts": [phrase.text for _, phrase in asked],
            "images": [image for image, _ in asked],
            "present": torch.where(placed & ~located, torch.nan, present),
            "located": located,
            "masks": masks,
        }


def in_255ths(shares: Tensor) -> Tensor:
    """Return shares as bytes, rounded up so that nothing small is lost."""
    return (shares * 255).ceil_().clamp_(0, 255).to(torch.uint8)


def united_masks(
    masks: Column | None, targets: Sequence[tuple[int, tuple[int, ...]]], grid: int, device: torch.device
) -> Tensor:
    """Return the union of the targets of (study, targets) pairs, (p, grid, grid) in 0 to 1; zeros without targets."""
    longest = max((len(numbers) for _, numbers in targets), default=0)
    if not longest or not isinstance(masks, Rows):
        return torch.zeros(len(targets), grid, grid, device=device)
    rows = [[masks.first[study] + number for number in numbers] for study, numbers in targets]
    index = [[*own, *([own[0] if own else 0] * (longest - len(own)))] for own in rows]
    united = masks.at([row[0] for row in index])
    for turn in range(1, longest):
        united = torch.maximum(united, masks.at([row[turn] for row in index]))
    empty = on_device(torch.tensor([not own for own in rows]), device)
    return united.float().div_(255).masked_fill_(empty[:, None, None], 0.0)


def draw_phrases(texts: StudyTexts, drawing: Drawing) -> list[DrawnPhrase]:
    """Draw up to ``entry.phrases`` phrases about a study."""
    entry, stream = drawing.entry, drawing.stream
    if entry.prompts == "labels":
        return _label_prompts(texts, drawing)
    few = entry.examples is not None
    seen = stream.shuffled(one for one in texts.sentences if (one.targets if few else one.seen))
    unseen = stream.shuffled(one for one in texts.sentences if one.seen is False and not (few and one.targets))
    asked: list[DrawnPhrase] = []
    for _ in range(entry.phrases):
        drawn = None
        kind = stream.random()
        if kind < entry.from_other_studies:
            drawn = _from_another(texts, drawing)
        elif kind < entry.from_other_studies + entry.sides_swapped and (possible := swappable(texts)):
            drawn = DrawnPhrase(stream.choice(possible), False)
        drawn = drawn or _own(texts, entry, stream, seen, unseen)
        asked += [drawn] if drawn else []
    return asked


def _own(
    texts: StudyTexts, entry: DataEntry, stream: Stream, seen: list[StudySentence], unseen: list[StudySentence]
) -> DrawnPhrase | None:
    """Take the next of the study's own sentences, of something visible by a chance of ``positive``."""
    wants_seen, wants_prompt = stream.chance(entry.positive), stream.chance(float(entry.prompts))
    wants_no_side = stream.chance(entry.without_side)
    if wants_prompt and (drawn := _prompt(texts, stream, wants_seen)) is not None:
        return drawn
    if seen and (wants_seen or not unseen):
        one = seen.pop()
        text = without_side(one.text) if wants_no_side and one.side is not None else None
        return DrawnPhrase(text or one.text, one.seen is not False, one.targets)
    return DrawnPhrase(unseen.pop().text, False) if unseen else None


def _prompt(texts: StudyTexts, stream: Stream, present: bool) -> DrawnPhrase | None:
    if not (names := sorted(texts.targets_of if present else texts.absent)):
        return None
    name = stream.choice(names)
    return DrawnPhrase(stream.choice(finding_prompts(name)), present, texts.targets_of[name] if present else ())


def _from_another(texts: StudyTexts, drawing: Drawing) -> DrawnPhrase | None:
    """Take a sentence that is true of another study, and none of whose findings is present in this one."""
    for _ in range(TRIES):
        theirs = drawing.other()
        if theirs.id == texts.id:
            continue
        possible = [one for one in theirs.sentences if one.targets and one.positive and one.positive <= texts.absent]
        if possible:
            return DrawnPhrase(drawing.stream.choice(possible).text, False)
    return None


def swappable(texts: StudyTexts) -> list[str]:
    """Return sentences about one side as sentences about the other, if that has no such finding."""
    changed = [with_sides_exchanged(one.text) for one in texts.sentences if one.side is not None]
    return [text for text in changed if text is not None]


def _label_prompts(texts: StudyTexts, drawing: Drawing) -> list[DrawnPhrase]:
    """Ask for labels that are present and for labels that are absent, in turn where there are both."""
    entry, stream = drawing.entry, drawing.stream
    there = stream.shuffled(sorted(name for name in texts.labels if name != NO_FINDING))
    healthy = NO_FINDING in texts.labels
    if entry.unlabeled == "negative" or healthy:
        missing = drawing.findings - texts.present - texts.uncertain - {NO_FINDING}
        if healthy and entry.unlabeled == "unknown":
            missing -= {DEVICES}  # reports say "no finding" of patients with tubes
    else:
        missing = texts.absent
    gone = stream.shuffled(sorted(missing))
    asked: list[DrawnPhrase] = []
    while (there or gone) and len(asked) < entry.phrases:
        present = bool(there) and (not gone or stream.chance(entry.positive))
        name = (there if present else gone).pop()
        asked.append(DrawnPhrase(stream.choice(finding_prompts(name)), present))
    return asked
