"""Turned and mirrored images, with and without their side markers, and images with a note that contradicts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Image, InputError, Phrase, Polarity, Study
from rightlung.lexicon import FINDINGS
from rightlung.lexicon.side_changes import mirrored
from rightlung.lexicon.wordkeys import findings_about
from rightlung.probes.images import ring_mean
from rightlung.probes.probe import Ask, Probed, Setting

Turn = Callable[[NDArray[Any]], NDArray[Any]]

TURNS: Mapping[str, tuple[Turn, Turn]] = {
    "mirror-image": (np.fliplr, np.fliplr),
    "rotate-90": (np.rot90, lambda values: np.rot90(values, -1)),
    "rotate-180": (lambda values: np.rot90(values, 2), lambda values: np.rot90(values, 2)),
}
"""Changes of the image by name, and what undoes them. ``rotate-90`` is counter-clockwise."""
UNMARKED = "unmarked"
TURNED: Mapping[str, str] = {"mirror-both": "mirror-image"} | {
    name: turn for turn in TURNS for name in (turn, f"{turn}-{UNMARKED}")
}
"""The turn of the image under each condition that has one."""
NOTE_HEIGHT = 0.045
NORMAL = "NORMAL CHEST"


@dataclass(frozen=True)
class Turned:
    """The image turned, its marks filled with the mean grey value around them before."""

    turn: str | None
    marks: tuple[Box, ...] = ()

    def __call__(self, image: Image) -> Image:
        """Return the turned image."""
        changed = image.copy()
        for box in self.marks:
            place = np.zeros(image.shape, dtype=np.bool_)
            place[box.pixel_slices(image.shape)] = True
            changed[place] = ring_mean(image, place)
        return np.ascontiguousarray(changed if self.turn is None else TURNS[self.turn][0](changed))


@dataclass(frozen=True)
class Noted:
    """The image with words burned into its lower edge, white on black."""

    words: str

    def __call__(self, image: Image) -> Image:
        """Write the words."""
        from PIL import Image as Pictures
        from PIL import ImageDraw, ImageFont

        height, width = image.shape
        font = ImageFont.load_default(max(8, round(NOTE_HEIGHT * height)))
        _, top, right, bottom = (int(end) for end in font.getbbox(self.words))
        picture = Pictures.new("L", (right + 4, bottom - top + 4))
        ImageDraw.Draw(picture).text((2, 2 - top), self.words, fill=255, font=font)
        if picture.width > width:
            picture = picture.resize((width, max(1, picture.height * width // picture.width)))
        changed = image.copy()
        note = np.asarray(picture, dtype=np.float32) / 255
        changed[height - note.shape[0] :, : note.shape[1]] = note[:height]
        return changed


def marks_of(study: Study) -> tuple[Box, ...] | None:
    """Return the boxes of side markers and burned-in texts, ``extra["marks"]``; None if the source does not tell."""
    marks = study.extra.get("marks")
    if marks is None:
        return None
    try:
        return tuple(Box(*(float(end) for end in corners)) for corners in marks)
    except (TypeError, ValueError, InputError):
        raise InputError(
            f"study {study.id!r}, marks: expected a list of boxes [x0, y0, x1, y1]; got {marks!r}"
        ) from None


def turned(turn: str | None, marked: bool) -> Ask:
    """Return a probe that keeps the words and turns the image, without its (known) marks unless ``marked``."""

    def ask(study: Study, phrase: Phrase | None, setting: Setting) -> Probed | None:
        marks = () if marked else marks_of(study)
        return Probed(phrase, study.id, Turned(turn, marks or ())) if marked or marks else None

    return ask


def mirrored_pair(study: Study, phrase: Phrase | None, setting: Setting) -> Probed | None:
    """Mirror the image and the words; known marks are removed, because mirrored ones would contradict the words."""
    alter = Turned(TURNED["mirror-both"], marks_of(study) or ())
    if phrase is None:
        return Probed(None, study.id, alter)
    text = mirrored(phrase.text)
    return None if text is None else Probed(Phrase(text, findings=phrase.findings), study.id, alter)


def contradicting_note(study: Study, phrase: Phrase | None, setting: Setting) -> Probed | None:
    """Write "normal chest" into an image with findings, and the name of an absent finding into one without any."""
    present = findings_about(study.findings)
    absent = [name for name, polarity in study.findings.items() if polarity == Polarity.NEGATIVE and name in FINDINGS]
    shown = [name for name in present if name not in ("no finding", "support devices")]
    if shown:
        return Probed(phrase, study.id, Noted(NORMAL))
    chosen = _drawn(absent, setting, study)
    return None if chosen is None else Probed(phrase, study.id, Noted(FINDINGS[chosen].phrase.upper()))


def _drawn(names: Sequence[str], setting: Setting, study: Study) -> str | None:
    known = [name for name in names if name not in ("no finding", "support devices")]
    return setting.dice("contradicting-note", study).choice(known) if known else None
