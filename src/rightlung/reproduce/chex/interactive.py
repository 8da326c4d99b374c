"""How a model reacts to more precise questions (ChEX, Müller et al., ECCV 2024, sections 5.2, 5.3, A.5, A.6 and E.3).

A box of a finding is asked for by the finding's name, by the name with a hint (the region it lies in), with a hint at
the other side, and with modified names; the predicted boxes are compared with it. Descriptions are asked for by name,
box, both, region, and name with region, and their findings are labelled by rules (the paper: CheXbert). The evaluation
is not in the released code; what the paper leaves open is said where it is decided.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rightlung.asking.answerer import Answerer, NoAnswer
from rightlung.asking.questions import Question
from rightlung.core import Box, InputError, Polarity, Query, ScoredBox, Study
from rightlung.core.progress import Progress, no_progress
from rightlung.lexicon import (
    REGIONS,
    canonical_finding,
    descendants,
    label_map,
    label_set,
    mirror_region,
    prompt,
    region,
)
from rightlung.lexicon.labeller import observations
from rightlung.models.base import Describer, Grounder
from rightlung.predictions import Key

FINDINGS: tuple[str, ...] = tuple(label_set("ms-cxr-8").findings.values())
"""The eight findings of MS-CXR (E.3)."""
BIAS_REGIONS: tuple[str, ...] = (
    *(f"{side} {part} lung zone" for part in ("upper", "mid", "lower") for side in ("right", "left")),
    "cardiac silhouette", "upper mediastinum",
)  # fmt: skip
"""The regions among which a box is placed in Figure 9; the paper does not list its own."""
MODIFICATIONS: Mapping[str, str] = {
    name: f"{name} {{}}" for name in ("mild", "moderate", "severe", "improved", "unchanged", "worsened")
}
"""Prompts of Figure 8 besides the name and its negation. The text names moderate, worsened and improved only."""
NO_HINT, COARSE, FINE, OPPOSITE, NEGATED = "no hint", "coarse hint", "fine hint", "opposite hint", "negated"
NAME, BOX, BOTH, REGION, NAME_AND_REGION = "finding", "box", "finding and box", "region", "finding in region"
STUDIES_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class FindingBox:
    """One box of a finding, and what hints can name.

    ``fine`` and ``coarse`` are regions. ``other`` is the box of the same finding on the other side, if the finding has
    exactly two boxes, one on each side (Figure 4). ``opposite`` is the box of the coarse region's mirror image, if the
    finding has a single box (Figure 5).
    """

    study: str
    patient: str
    finding: str
    place: int
    box: Box
    fine: str | None = None
    coarse: str | None = None
    other: Box | None = None
    opposite: Box | None = None


# --------------------------------------------------------------------------------------------------------------- hints


def fine_region(box: Box, associated: Iterable[str], regions: Mapping[str, Box]) -> str | None:
    """Return the region of highest IoU with a box among associated regions and all inside them; None if none overlaps.

    >>> boxes = {"left lung": Box(0.5, 0, 1, 1), "left lower lung zone": Box(0.5, 0.6, 1, 1)}
    >>> fine_region(Box(0.6, 0.7, 0.9, 1), ["left lung"], boxes)
    'left lower lung zone'
    """
    inside = (name for outer in associated if outer in REGIONS for name in (outer, *descendants(outer)))
    overlaps = {name: box.iou(regions[name]) for name in inside if name in regions}
    best = max(overlaps, key=lambda name: overlaps[name], default=None)
    return best if best is not None and overlaps[best] > 0 else None


def coarse_region(fine: str) -> str:
    """Return the region around a region; the region itself if there is none, or none on one side.

    The paper's example is a zone, whose parent is a lung. "Lungs", the parent of a lung, would be no hint at a side.

    >>> coarse_region("left lower lung zone"), coarse_region("left lung")
    ('left lung', 'left lung')
    """
    parent = region(fine).parent
    return fine if parent is None or REGIONS[parent].side == "both" else parent


def outlined_findings(study: Study, findings: Sequence[str] = FINDINGS) -> dict[str, tuple[Box, ...]]:
    """Return the boxes of each of ``findings`` that the source outlines in a study."""
    found: dict[str, dict[Box, None]] = {}
    for phrase in study.located_findings or study.phrases:
        for finding, polarity in phrase.findings.items():
            name = canonical_finding(finding)
            if polarity is Polarity.POSITIVE and name in findings:
                found.setdefault(name, {}).update(dict.fromkeys(phrase.target_boxes))
    return {name: tuple(boxes) for name, boxes in found.items() if boxes}


def positive_regions(study: Study) -> dict[str, list[str]]:
    """Return the regions in which each finding is present, by the study's labels of regions."""
    found: dict[str, list[str]] = {}
    for name, findings in study.region_findings.items():
        for finding, polarity in findings.items():
            if polarity is Polarity.POSITIVE:
                found.setdefault(canonical_finding(finding), []).append(name)
    return found


def labels_agree(study: Study, findings: Sequence[str] = FINDINGS) -> bool:
    """Return whether every outlined finding is present in a region, too; other studies are left out (E.3)."""
    return outlined_findings(study, findings).keys() <= positive_regions(study).keys()


def finding_boxes(study: Study, findings: Sequence[str] = FINDINGS) -> list[FindingBox]:
    """Return the boxes to ask for in a study; none if its labels do not agree."""
    if not labels_agree(study, findings):
        return []
    associated, patient, found = positive_regions(study), study.patient or f"study {study.id}", []
    for finding, boxes in outlined_findings(study, findings).items():
        fine = [fine_region(box, associated[finding], study.regions) for box in boxes]
        coarse = [None if name is None else coarse_region(name) for name in fine]
        sides = [None if name is None else REGIONS[name].side for name in fine]
        on_both_sides = sorted(map(str, sides)) == ["left", "right"]
        for place, (box, near, around) in enumerate(zip(boxes, fine, coarse, strict=True)):
            mirrored = None if around is None or len(boxes) > 1 else mirror_region(around)
            opposite = study.regions.get(mirrored) if mirrored is not None and mirrored != around else None
            other = boxes[1 - place] if on_both_sides else None
            found.append(FindingBox(study.id, patient, finding, place, box, near, around, other, opposite))
    return found


# ----------------------------------------------------------------------------------------------------------- questions


def hinted(finding: str, name: str) -> str:
    """Return a finding's name with a region as a hint.

    >>> hinted("pleural effusion", "right lower lung zone")
    'pleural effusion in the right lower lung zone'
    """
    where = region(name)
    return f"{prompt(finding)} {where.preposition} the {where.spoken}"


def prompts_for(found: FindingBox) -> dict[str, str]:
    """Return the texts that ask for the box of a finding, by name (Figures 4, 5, 6a and 8)."""
    plain = prompt(found.finding)
    texts = {NO_HINT: plain} | {name: words.format(plain) for name, words in MODIFICATIONS.items()}
    texts[NEGATED] = prompt(found.finding, "negative")
    if found.fine is not None and found.coarse is not None:
        texts |= {COARSE: hinted(found.finding, found.coarse), FINE: hinted(found.finding, found.fine)}
        if found.opposite is not None:
            texts[OPPOSITE] = hinted(found.finding, mirror_region(found.coarse))
    return texts


def queries_for(found: FindingBox) -> dict[str, Query]:
    """Return the queries that ask for a description of a finding, by name (Figure 6b)."""
    plain = prompt(found.finding)
    queries = {NAME: Query(plain), BOX: Query(box=found.box), BOTH: Query(plain, found.box)}
    if found.coarse is not None:
        queries |= {
            REGION: Query(region(found.coarse).spoken),
            NAME_AND_REGION: Query(hinted(found.finding, found.coarse)),
        }
    return queries


# -------------------------------------------------------------------------------------------------------------- scores


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the mean of values by weight, plain if all weights are 0, NaN without values."""
    if not values:
        return math.nan
    total = math.fsum(weights)
    if total <= 0:
        return math.fsum(values) / len(values)
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / total


def box_scores(found: FindingBox, boxes: Sequence[ScoredBox]) -> dict[str, float]:
    """Return how near predicted boxes are to that of the finding.

    ``giou`` (Figures 6a, 8) is the mean over boxes, weighted by their scores (the paper plots every box, darker for a
    higher score); ``giou_best`` that of the box with the highest score. ``relative_other`` and ``relative_opposite``
    (Figures 4b, 5b) are the gIoU with the finding minus that with the other box or region: above 0, the finding is
    nearer.
    """
    scores = [max(one.score, 0.0) for one in boxes]
    values = [one.box.giou(found.box) for one in boxes]
    best = max(range(len(boxes)), key=lambda place: scores[place], default=None)
    row = {"giou": weighted_mean(values, scores), "giou_best": math.nan if best is None else values[best]}
    for name, against in (("relative_other", found.other), ("relative_opposite", found.opposite)):
        if against is not None:
            differences = [value - one.box.giou(against) for value, one in zip(values, boxes, strict=True)]
            row[name] = weighted_mean(differences, scores)
    return row


def sentence_scores(finding: str, sentence: str) -> dict[str, float]:
    """Return whether a sentence states the queried finding, and how many others of CheXpert's findings it names.

    ``non_queried`` counts those stated or denied (the caption of Figure 6), ``non_queried_positive`` those stated
    (E.3). "No Finding" is none.

    >>> sentence_scores("pleural effusion", "Small left effusion. No pneumothorax.")
    {'queried': 1.0, 'non_queried': 1.0, 'non_queried_positive': 0.0}
    """
    said = {name: polarity for name, polarity in observations(sentence).items() if polarity and name != "No Finding"}
    own = label_map("findings", "chexpert-14").apply(finding)
    if not own:
        raise InputError(f"{finding} is none of CheXpert's observations, so its descriptions cannot be labelled")
    others = [polarity for name, polarity in said.items() if name not in own]
    return {
        "queried": float(any(said.get(name) == "positive" for name in own)),
        "non_queried": float(len(others)),
        "non_queried_positive": float(others.count("positive")),
    }


def nearest_region(boxes: Sequence[ScoredBox], regions: Mapping[str, Box]) -> str | None:
    """Return the one of `BIAS_REGIONS` with the highest IoU with the best box (Figure 9), None if none overlaps."""
    if not boxes:
        return None
    best = max(boxes, key=lambda one: one.score).box
    overlaps = {name: best.iou(regions[name]) for name in BIAS_REGIONS if name in regions}
    name = max(overlaps, key=lambda one: overlaps[one], default=None)
    return name if name is not None and overlaps[name] > 0 else None


# -------------------------------------------------------------------------------------------------------------- asking


@dataclass
class Interactive:
    """The answers of a model: one row for each box and question, and the regional bias.

    A row has ``study``, ``patient``, ``finding``, ``place`` (of the box), ``query`` (a name of `prompts_for` or
    `queries_for`), ``text`` and the scores; ``target`` (the box, four numbers) and ``boxes`` (those found, each with
    its score) or, for descriptions, ``sentence``; ``error`` if there is no answer.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    bias: list[dict[str, Any]] = field(default_factory=list)
    """``study``, ``patient``, ``finding`` and ``region`` of each finding's best box in images without it."""
    studies: Counter[str] = field(default_factory=Counter)
    """Number of studies ``asked``, with labels that ``disagree``, and ``without`` boxes of a finding."""

    def bias_counts(self) -> dict[str, Counter[str]]:
        """Return how often each region has the highest overlap, by finding."""
        counts: dict[str, Counter[str]] = {}
        for row in self.bias:
            counts.setdefault(row["finding"], Counter())[row["region"]] += 1
        return counts


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question about an image, with what its answer is compared with; ``found`` is None for regional bias."""

    study: Study
    name: str
    query: Query
    finding: str
    found: FindingBox | None = None

    @property
    def question(self) -> Question:
        return Question(Key(self.study.id, self.name, "none"), self.query, patient=self.study.patient)


def ask_interactively(
    model: object,
    studies: Iterable[Study],
    findings: Sequence[str] = FINDINGS,
    *,
    batch_size: int = 256,
    total: int | None = None,
    progress: Progress = no_progress,
) -> Interactive:
    """Ask a model everything about the boxes of findings in studies, and score its answers.

    A `Grounder` is asked for boxes, a `Describer` for descriptions. Regional bias is asked for in all images whose
    source denies a finding. ``total`` is the number of studies, for the progress bar.
    """
    asked = Interactive()
    methods = {"ground": isinstance(model, Grounder), "describe": isinstance(model, Describer)}
    if not any(methods.values()):
        raise InputError(f"{type(model).__name__} implements neither ground nor describe; there is nothing to ask")
    answerers = {name: Answerer(model, batch_size, method=name) for name, there in methods.items() if there}
    for some in some_at_once(studies):
        for study in some:
            outlined, agree = outlined_findings(study, findings), labels_agree(study, findings)
            asked.studies["disagree" if not agree else "asked" if outlined else "without"] += 1
        for method, answerer in answerers.items():
            questions = [one for study in some for one in _questions(study, findings, method)]
            images = [one.study.image for one in questions]
            for one, answer in zip(
                questions, answerer.answers([one.question for one in questions], images), strict=True
            ):
                _add(asked, one, answer)
        progress("interactive questions", asked.studies.total(), total or asked.studies.total())
    return asked


def some_at_once(studies: Iterable[Study]) -> Iterator[list[Study]]:
    """Yield some studies at a time, whose images fit into memory."""
    rest = iter(studies)
    while some := list(islice(rest, STUDIES_AT_ONCE)):
        yield some


def _questions(study: Study, findings: Sequence[str], method: str) -> Iterator[_Asked]:
    for found in finding_boxes(study, findings):
        texts = {name: Query(text) for name, text in prompts_for(found).items()}
        for name, query in (texts if method == "ground" else queries_for(found)).items():
            yield _Asked(study, name, query, found.finding, found)
    if method == "ground":
        known = {canonical_finding(name): polarity for name, polarity in study.findings.items()}
        for finding in findings:
            if known.get(finding) is Polarity.NEGATIVE:
                yield _Asked(study, "bias", Query(prompt(finding)), finding)


def _add(asked: Interactive, one: _Asked, answer: dict[str, Any] | NoAnswer) -> None:
    patient = one.study.patient or f"study {one.study.id}"
    known: dict[str, Any] = {"study": one.study.id, "patient": patient, "finding": one.finding}
    if one.found is None:
        boxes = () if isinstance(answer, NoAnswer) else answer["grounding"].boxes
        if (name := nearest_region(boxes, one.study.regions)) is not None:
            asked.bias.append(known | {"region": name})
        return
    row = known | {"place": one.found.place, "query": one.name, "text": one.query.phrase}
    if isinstance(answer, NoAnswer):
        row["error"] = answer.reason
    elif "grounding" in answer:
        boxes = answer["grounding"].boxes
        row |= box_scores(one.found, boxes) | {"target": _corners(one.found.box)}
        row["boxes"] = [[*_corners(found.box), round(found.score, 4)] for found in boxes]
    else:
        sentence = " ".join(sentence.text for sentence in answer["sentences"])
        row |= {"sentence": sentence} | sentence_scores(one.finding, sentence)
    asked.rows.append(row)


def _corners(box: Box) -> list[float]:
    return [round(corner, 4) for corner in box.as_tuple()]
