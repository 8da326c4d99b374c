"""Studies, phrases, queries, and the answers of models.

A finding that is not named is unknown: neither present nor absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from rightlung.core.box import Box
from rightlung.core.checks import check_number, check_text
from rightlung.core.errors import InputError, check_known
from rightlung.core.frozen import FrozenMapping
from rightlung.core.heatmap import Heatmap
from rightlung.core.mask import Mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image as Picture


class Polarity(StrEnum):
    """Whether a finding is said to be present. A finding that is not named has no polarity."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    UNCERTAIN = "uncertain"


_POLARITIES = list(Polarity)


def _check_findings(findings: object) -> FrozenMapping[str, Polarity]:
    if not isinstance(findings, Mapping):
        raise InputError(f"findings must map names to polarities; got {findings!r}")
    checked = {}
    for name, polarity in findings.items():
        check_known(f"polarity of finding {name!r}:", polarity, _POLARITIES)
        checked[check_text(name, "a finding's name")] = Polarity(polarity)
    return FrozenMapping(checked)


def _check_all(values: Iterable[object], kind: type, what: str) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{what} must be a list of {kind.__name__} values; got {values!r}")
    checked = tuple(values)
    for value in checked:
        if not isinstance(value, kind):
            raise InputError(f"{what} must be {kind.__name__} values; got {value!r}")
    return checked


def _check_optional(value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind | None):
        raise InputError(f"{what} must be a {'text' if kind is str else kind.__name__} or None; got {value!r}")


def _check_mapping(values: object, kind: type, what: str) -> FrozenMapping[str, Any]:
    if not isinstance(values, Mapping):
        raise InputError(f"{what} must map names to {kind.__name__} values; got {values!r}")
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, kind):
            raise InputError(f"{what}: {name!r} must be a {kind.__name__}; got {value!r}")
    return FrozenMapping(values)


def _check_regions(regions: Iterable[object], what: str) -> tuple[str, ...]:
    return tuple(check_text(name, "a region's name") for name in _check_all(regions, str, what))


@dataclass(frozen=True, slots=True)
class Phrase:
    """A text to ground, with its target (boxes, a mask, both, or none), regions and findings.

    ``regions`` are all regions that the phrase is about. ``locations`` maps findings to their regions, if known: "left
    consolidation with a small right effusion" has two findings in two places. They may include regions that contain
    those of ``regions``. A finding without locations belongs to all ``regions``. ``coded`` says that ``findings`` are
    complete, so that a phrase without findings is known to have none.
    """

    text: str
    boxes: tuple[Box, ...] = ()
    mask: Mask | None = None
    regions: tuple[str, ...] = ()
    findings: Mapping[str, Polarity] = field(default_factory=FrozenMapping)
    locations: Mapping[str, tuple[str, ...]] = field(default_factory=FrozenMapping)
    coded: bool = False

    def __post_init__(self) -> None:
        check_text(self.text, "a phrase's text")
        object.__setattr__(self, "boxes", _check_all(self.boxes, Box, "boxes"))
        _check_optional(self.mask, Mask, "a phrase's mask")
        object.__setattr__(self, "regions", _check_regions(self.regions, "regions"))
        object.__setattr__(self, "findings", _check_findings(self.findings))
        object.__setattr__(self, "coded", self.coded or bool(self.findings))
        if not isinstance(self.locations, Mapping):
            raise InputError(f"locations must map findings to lists of regions; got {self.locations!r}")
        for finding in self.locations:
            check_known("finding in locations:", finding, self.findings)
        located = {name: _check_regions(regions, f"locations of {name!r}") for name, regions in self.locations.items()}
        object.__setattr__(self, "locations", FrozenMapping(located))

    @property
    def target_boxes(self) -> tuple[Box, ...]:
        """The boxes or, without any, the box around the mask."""
        if self.boxes or self.mask is None or (box := self.mask.box()) is None:
            return self.boxes
        return (box,)

    def without_target(self) -> Phrase:
        """Return the phrase without boxes and mask."""
        return replace(self, boxes=(), mask=None)


@dataclass(frozen=True, slots=True)
class ScoredBox:
    """A predicted box with its score and, if the model gives one, its label."""

    box: Box
    score: float
    label: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.box, Box):
            raise InputError(f"a scored box needs a Box; got {self.box!r}")
        object.__setattr__(self, "score", check_number(self.score, "box score"))
        _check_optional(self.label, str, "a box's label")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a report with its boxes, the model's score, the prompt it was generated from, and its map."""

    text: str
    boxes: tuple[Box, ...] = ()
    score: float | None = None
    prompt: str | None = None
    heatmap: Heatmap | None = None

    def __post_init__(self) -> None:
        check_text(self.text, "a sentence's text")
        object.__setattr__(self, "boxes", _check_all(self.boxes, Box, "boxes"))
        if self.score is not None:
            object.__setattr__(self, "score", check_number(self.score, "sentence score"))
        _check_optional(self.prompt, str, "a sentence's prompt")
        _check_optional(self.heatmap, Heatmap, "a sentence's heatmap")


@dataclass(frozen=True, slots=True)
class Report:
    """A radiology report: its text, sections by name (``findings``, ``impression``, …) and grounded sentences."""

    text: str
    sections: Mapping[str, str] = field(default_factory=FrozenMapping)
    sentences: tuple[Sentence, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InputError(f"a report's text must be a text; got {self.text!r}")
        object.__setattr__(self, "sections", _check_mapping(self.sections, str, "a report's sections"))
        object.__setattr__(self, "sentences", _check_all(self.sentences, Sentence, "a report's sentences"))


QueryKind = Literal["phrase", "box", "phrase+box", "image"]


@dataclass(frozen=True, slots=True)
class Query:
    """A question about an image: a phrase, a box, both, or the whole image."""

    phrase: str | None = None
    box: Box | None = None

    def __post_init__(self) -> None:
        if self.phrase is not None:
            check_text(self.phrase, "a query's phrase")
        _check_optional(self.box, Box, "a query's box")

    @property
    def kind(self) -> QueryKind:
        """The kind of query."""
        if self.phrase is None:
            return "image" if self.box is None else "box"
        return "phrase" if self.box is None else "phrase+box"


@dataclass(frozen=True, slots=True, init=False)
class Grounding:
    """Where a model sees a phrase: a heatmap, scored boxes, or both.

    ``has_boxes`` is True if the model looked for boxes, even if it found none, and False if it only returned a map,
    which detection scores must not punish.
    """

    heatmap: Heatmap | None
    boxes: tuple[ScoredBox, ...]
    has_boxes: bool

    def __init__(self, heatmap: Heatmap | None = None, boxes: Iterable[ScoredBox] | None = None) -> None:
        _check_optional(heatmap, Heatmap, "a grounding's heatmap")
        object.__setattr__(self, "heatmap", heatmap)
        object.__setattr__(self, "boxes", _check_all(boxes if boxes is not None else (), ScoredBox, "boxes"))
        object.__setattr__(self, "has_boxes", boxes is not None or heatmap is None)

    @property
    def abstention(self) -> float:
        """The heatmap's abstention; without a heatmap, 1 if there is no box, else 0."""
        if self.heatmap is not None:
            return self.heatmap.abstention
        return 0.0 if self.boxes else 1.0

    def plot(self, image: Image | None = None, ax: Axes | None = None, *, target: Phrase | None = None) -> Axes:
        """Draw the map and the boxes over ``image`` on matplotlib axes (new ones by default), and return the axes.

        A grounding does not hold its image: without ``image`` the map is drawn on black. The mask of ``target``, or
        its boxes, are drawn in green.
        """
        from rightlung.core.plotting import plot

        targets = () if target is None else (target,)
        return plot(image, self.heatmap, targets=targets, predicted=self.boxes, ax=ax)

    def overlay(self, image: Image | None = None, *, target: Phrase | None = None, side: int = 320) -> Picture:
        """Return the same as a PIL image whose longer side has ``side`` pixels."""
        from rightlung.core.plotting import overlay

        masks, boxes = _drawn(() if target is None else (target,))
        predicted = [scored.box for scored in self.boxes]
        return overlay(image, self.heatmap, targets=boxes, masks=masks, predicted=predicted, side=side)

    def _repr_html_(self) -> str:
        from rightlung.core.plotting import as_html

        boxes = f"{len(self.boxes)} box{'' if len(self.boxes) == 1 else 'es'}"
        parts = [*([] if self.heatmap is None else ["map {} × {}".format(*self.heatmap.grid)]), boxes]
        return as_html(self.overlay(), ", ".join([*parts, f"abstention {self.abstention:.2f}"]))


Image = NDArray[np.float32]
"""A radiograph: float32 ``(height, width)``, 0 (black) to 1 (white)."""


class Twins(Protocol):
    """Makes exact twins of one study: the same patient with one finding ``removed``, ``moved`` or ``worse``.

    With the change ``unsigned`` or ``signed``, a planted sign disappears or appears instead of a finding.
    """

    def findings(self, change: str) -> tuple[str, ...]:
        """Return the findings that can be changed so, without rendering anything."""

    def make(self, study: Study, change: str, finding: str) -> Study:
        """Return the twin; the error says why there is none."""


@dataclass(frozen=True, eq=False)
class Study:
    """One frontal image with everything its source knows about it. The image loads on first use.

    ``id`` is unique in its source and never a path. Intervals are clustered by ``patient``; ``exam`` groups the images
    of one examination. ``region_findings`` holds the findings of each region; what is missing there is unknown.
    ``located_findings`` are prompts for the findings that the source outlines whatever the report says, each with all
    boxes and the union of the masks of its finding; empty where ``phrases`` are all there is.
    ``twins`` makes exact twins (see `twin`), where a source can.
    ``extra`` holds source-specific fields.
    """

    id: str
    load: Callable[[], Image] = field(repr=False)
    patient: str | None = None
    exam: str | None = None
    view: str | None = None
    split: str | None = None
    age: float | None = None
    sex: str | None = None
    report: Report | None = None
    phrases: tuple[Phrase, ...] = ()
    regions: Mapping[str, Box] = field(default_factory=FrozenMapping)
    findings: Mapping[str, Polarity] = field(default_factory=FrozenMapping)
    gaze: Heatmap | None = None
    source: str = ""
    extra: Mapping[str, Any] = field(default_factory=FrozenMapping)
    region_findings: Mapping[str, Mapping[str, Polarity]] = field(default_factory=FrozenMapping)
    located_findings: tuple[Phrase, ...] = ()
    twins: Twins | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_text(self.id, "a study's id")
        if not callable(self.load):
            raise InputError(f"study {self.id!r}: load must be a function that returns the image; got {self.load!r}")
        texts = dict.fromkeys(("patient", "exam", "view", "split", "sex"), str)
        for name, kind in (texts | {"report": Report, "gaze": Heatmap}).items():
            _check_optional(getattr(self, name), kind, f"study {self.id!r}: {name}")
        for name in ("phrases", "located_findings"):
            object.__setattr__(self, name, _check_all(getattr(self, name), Phrase, f"study {self.id!r}: {name}"))
        object.__setattr__(self, "regions", _check_mapping(self.regions, Box, f"study {self.id!r}: regions"))
        object.__setattr__(self, "findings", _check_findings(self.findings))
        object.__setattr__(self, "extra", _check_mapping(self.extra, object, f"study {self.id!r}: extra"))
        regions = _check_mapping(self.region_findings, Mapping, f"study {self.id!r}: region_findings")
        checked = {name: _check_findings(findings) for name, findings in regions.items()}
        object.__setattr__(self, "region_findings", FrozenMapping(checked))
        if self.age is not None:
            object.__setattr__(self, "age", check_number(self.age, f"study {self.id!r}: age"))
            if self.age < 0:
                raise InputError(f"study {self.id!r}: age must not be negative; got {self.age}")

    @property
    def region_sentences(self) -> dict[str, tuple[int, ...]]:
        """The indices in ``phrases`` of the phrases about each region."""
        found: dict[str, tuple[int, ...]] = {}
        for index, phrase in enumerate(self.phrases):
            for region in dict.fromkeys(phrase.regions):
                found[region] = (*found.get(region, ()), index)
        return found

    @property
    def image(self) -> Image:
        """The radiograph, float32 ``(height, width)`` in 0–1, read-only; cached after loading.

        For PyTorch, copy it: ``torch.tensor(study.image)``.
        """
        image: Image | None = self.__dict__.get("_image")
        if image is None:
            image = check_image(self.load(), f"study {self.id!r}")
            self.__dict__["_image"] = image
        return image

    def twin(self, change: str, finding: str) -> Study:
        """Return the same patient with a finding ``removed``, ``moved`` to the other lung, or made ``worse``.

        All else is equal to the pixel; the twin has its own masks, report and phrases. Phantoms and painted
        studies have twins.
        """
        if self.twins is None:
            raise InputError(f"study {self.id!r} has no exact twins: only phantoms and painted studies have them")
        return self.twins.make(self, change, finding)

    def show(self, ax: Axes | None = None) -> Axes:
        """Draw the image with the mask or boxes of each phrase on matplotlib axes, and return the axes."""
        from rightlung.core.plotting import plot

        targets = [phrase for phrase in self.phrases if phrase.mask or phrase.boxes]
        return plot(self.image, targets=targets, legend=True, ax=ax)

    def _repr_html_(self) -> str:
        from rightlung.core.plotting import as_html, overlay

        known = {"patient": self.patient, "view": self.view, "sex": self.sex}
        caption = ", ".join([f"study {self.id}", *(f"{name} {value}" for name, value in known.items() if value)])
        try:
            masks, boxes = _drawn(self.phrases)
            picture = overlay(self.image, targets=boxes, masks=masks)
        except InputError as error:
            return as_html(None, f"{caption}: {error}")
        return as_html(picture, caption, [phrase.text for phrase in self.phrases])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_image"}


def _drawn(phrases: Iterable[Phrase]) -> tuple[list[Mask], list[Box]]:
    """Return what is drawn of phrases' targets: the mask, or the boxes where there is none."""
    masks = [phrase.mask for phrase in phrases if phrase.mask]
    return masks, [box for phrase in phrases if not phrase.mask for box in phrase.boxes]


def check_image(image: object, what: str) -> Image:
    """Return ``image`` read-only if it is float32 ``(height, width)`` in 0–1, else raise an error."""
    if not isinstance(image, np.ndarray) or image.ndim != 2 or image.size == 0 or image.dtype != np.float32:
        shape, dtype = getattr(image, "shape", None), getattr(image, "dtype", type(image).__name__)
        raise InputError(f"{what}: an image must be float32 of shape (height, width); got {dtype} of shape {shape}")
    low, high = float(image.min()), float(image.max())
    if not (low >= 0.0 and high <= 1.0):
        raise InputError(f"{what}: an image's values must lie between 0 and 1; got {low} to {high}")
    kept: Image = image.view()  # a view, so that the loader's own array stays writable
    kept.setflags(write=False)
    return kept
