"""What requests hold. Every text and number has limits, so that a store of any kind can keep it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from rightlung.app.perturbing import Kind
from rightlung.app.settings import MODELS, MOST_PIXELS, PHRASE_CHARACTERS, PHRASES
from rightlung.core import Box, InputError


def _printable(text: str) -> str:
    """Refuse control characters: PostgreSQL cannot store some, and logs and tables must not hold any."""
    if any(not character.isprintable() and character not in "\n\t" for character in text):
        raise ValueError("control characters are not allowed")
    return text


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("must have at least one character")
    return _printable(text)


def _box(values: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    try:
        return Box(*values).as_tuple()
    except InputError as error:
        raise ValueError(str(error)) from None


Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Corners = Annotated[tuple[float, float, float, float], AfterValidator(_box)]
Text = Annotated[str, Field(max_length=PHRASE_CHARACTERS), AfterValidator(_filled)]
Short = Annotated[str, Field(max_length=200), AfterValidator(_filled)]
Name = Annotated[str, Field(max_length=80), AfterValidator(_filled)]
Comment = Annotated[str, Field(max_length=4_000), AfterValidator(_printable)]
SaveKey = Annotated[str, Field(min_length=8, max_length=64, pattern=r"^[A-Za-z0-9-]+$")]
StudyKey = Annotated[str, Field(max_length=1_000)]
Rating = Annotated[int, Field(ge=1, le=5, strict=True)]
Choice = Annotated[int, Field(ge=1, le=7, strict=True)]
Version = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Body(BaseModel):
    """A request's body; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class Perturb(Body):
    """A perturbation; ``text`` is for ``replace`` and ``finding`` for twins."""

    kind: Kind
    text: Text | None = None
    finding: Short | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "replace" and self.text is None:
            raise ValueError("the text that replaces the phrase is missing")
        return self


class GroundRequest(Body):
    """Phrases to find in a study, by several models."""

    study: StudyKey
    phrases: Annotated[list[Text], Field(min_length=1, max_length=PHRASES)]
    models: Annotated[list[Name], Field(min_length=1, max_length=MODELS)]
    perturb: Perturb | None = None
    blinded: bool = False


class RevealRequest(Body):
    """The token of a blinded answer."""

    token: Annotated[str, Field(max_length=64)]


class QueryBody(Body):
    """A phrase, a box, or both."""

    phrase: Text | None = None
    box: Corners | None = None

    @model_validator(mode="after")
    def _filled(self) -> Self:
        if self.phrase is None and self.box is None:
            raise ValueError("a query needs a phrase or a box")
        return self


class ReportRequest(Body):
    """A study to report."""

    study: StudyKey
    model: Name


class DescribeRequest(ReportRequest):
    """What to describe in a study."""

    queries: Annotated[list[QueryBody], Field(min_length=1, max_length=PHRASES)]


class ClassifyRequest(ReportRequest):
    """A study, or a box in it, to classify."""

    box: Corners | None = None


class RegionsRequest(Body):
    """A study whose regions are asked for, all or those at a point."""

    study: StudyKey
    point: tuple[Fraction, Fraction] | None = None


class LoginRequest(Body):
    """Name and password."""

    name: Name
    password: Annotated[str, Field(max_length=500)]


class UserRequest(Body):
    """A new account."""

    name: Name
    password: Annotated[str, Field(min_length=10, max_length=500)]
    role: Literal["annotator", "owner"] = "annotator"


class MaskBody(Body):
    """A mask as row-major runs, alternating 0 and 1, starting with 0."""

    size: tuple[Annotated[int, Field(ge=1, le=20_000)], Annotated[int, Field(ge=1, le=20_000)]]
    runs: Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1, max_length=200_000)]

    @model_validator(mode="after")
    def _filled(self) -> Self:
        rows, columns = self.size
        if rows * columns > MOST_PIXELS or sum(self.runs) != rows * columns:
            raise ValueError(f"the runs must add up to {rows} x {columns} pixels")
        if not any(self.runs[1::2]):
            raise ValueError("no pixel is set")
        return self


class Drawn(Body):
    """A box, a mask, or both, with a label."""

    label: Short
    text: Text | None = None
    box: Corners | None = None
    mask: MaskBody | None = None

    @model_validator(mode="after")
    def _drawn(self) -> Self:
        if self.box is None and self.mask is None:
            raise ValueError("draw a box or a mask")
        return self

    def values(self) -> dict[str, Any]:
        """Return what is drawn as JSON values."""
        return self.model_dump(mode="json", include={"label", "text", "box", "mask"})


class AnnotationRequest(Drawn):
    """New truth. ``key`` makes repeating a request harmless."""

    study: StudyKey
    key: SaveKey


class AnnotationChange(Drawn):
    """A changed annotation, based on a version."""

    version: Version


class CustomQuestion(Body):
    """A question of one's own, with two to seven choices, or free text."""

    text: Short
    choices: Annotated[list[Short], Field(min_length=2, max_length=7)] | None = None


class ReaderStudyRequest(Body):
    """A new reader study."""

    title: Short
    models: Annotated[list[Name], Field(min_length=1, max_length=8)]
    annotators: Annotated[list[Name], Field(min_length=1, max_length=200)]
    mode: Literal["choose", "planned"] = "choose"
    per_annotator: Annotated[int, Field(ge=1, le=2_000)] = 10
    overlap: Annotated[int, Field(ge=0, le=2_000)] = 5
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    custom_prompts: bool = True
    show_truth: bool = False
    abnormal: bool = False
    questions: Annotated[list[CustomQuestion], Field(max_length=10)] = []


class PromptRequest(Body):
    """The sentence that the reader chose, by its index, or in words of their own."""

    phrase: Annotated[int, Field(ge=0, le=100_000)] | None = None
    text: Text | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.phrase is None) == (self.text is None):
            raise ValueError("give the index of a sentence, or a text of your own")
        return self


class CustomPromptRequest(Body):
    """A prompt of one's own about the image of an item."""

    text: Text


class AnswerRequest(Body):
    """The answer to one model's heatmap. ``version`` is the one that the reader saw, None for a new answer.

    ``judged_at`` counts if it is past and at most 30 days ago, for answers that waited in a browser.
    """

    recall: Rating
    precision: Rating
    intuitiveness: Rating
    comment: Comment = ""
    answers: Annotated[
        dict[Annotated[str, Field(pattern=r"^q[1-9][0-9]?$")], Rating | Comment], Field(max_length=10)
    ] = {}
    version: Version | None = None
    judged_at: AwareDatetime | None = None
    key: SaveKey
