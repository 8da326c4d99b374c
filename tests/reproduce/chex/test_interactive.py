"""The interactive evaluation on hand-made studies, with a model whose boxes and sentences are known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from rightlung.core import Box, Grounding, Image, InputError, Phrase, Polarity, Query, ScoredBox, Study
from rightlung.core.frozen import FrozenMapping
from rightlung.reproduce.chex import interactive
from rightlung.reproduce.chex.interactive import (
    BIAS_REGIONS,
    FindingBox,
    ask_interactively,
    box_scores,
    coarse_region,
    finding_boxes,
    fine_region,
    labels_agree,
    nearest_region,
    prompts_for,
    queries_for,
    sentence_scores,
)
from rightlung.studies import open_source

POSITIVE, NEGATIVE, UNCERTAIN = Polarity.POSITIVE, Polarity.NEGATIVE, Polarity.UNCERTAIN
# The patient's left is on the image's right.
REGIONS = {
    "right lung": Box(0.0, 0.0, 0.4, 1.0),
    "right upper lung zone": Box(0.0, 0.0, 0.4, 0.4),
    "right lower lung zone": Box(0.0, 0.6, 0.4, 1.0),
    "left lung": Box(0.6, 0.0, 1.0, 1.0),
    "left upper lung zone": Box(0.6, 0.0, 1.0, 0.4),
    "left lower lung zone": Box(0.6, 0.6, 1.0, 1.0),
    "cardiac silhouette": Box(0.4, 0.5, 0.8, 0.9),
    "mediastinum": Box(0.4, 0.0, 0.8, 0.9),
}
RIGHT_BASE, LEFT_BASE = Box(0.0, 0.8, 0.4, 1.0), Box(0.6, 0.8, 1.0, 1.0)
LEFT_TOP = Box(0.6, 0.0, 1.0, 0.2)


def study(
    boxes: Mapping[str, Sequence[Box]], places: Mapping[str, Sequence[str]], name: str = "one",
    findings: Mapping[str, Polarity] | None = None,
) -> Study:  # fmt: skip
    """A study with ``boxes`` of findings, and findings in ``places``: regions by finding."""
    of_region: dict[str, dict[str, Polarity]] = {}
    for finding, regions in places.items():
        for region in regions:
            of_region.setdefault(region, {})[finding] = POSITIVE
    shade = 0.1 + 0.1 * len(name)
    return Study(
        name, lambda: np.full((8, 8), min(shade, 1.0), dtype=np.float32), patient=f"patient of {name}",
        phrases=tuple(Phrase(name, boxes=tuple(own), findings={name: POSITIVE}) for name, own in boxes.items()),
        regions=FrozenMapping(REGIONS), region_findings=of_region, findings=findings or {},
    )  # fmt: skip


BOTH_SIDES = study({"pleural effusion": (RIGHT_BASE, LEFT_BASE)}, {"pleural effusion": ("right lung", "left lung")})
ONE_SIDE = study({"pneumonia": (LEFT_TOP,)}, {"pneumonia": ("left lung",)})


def test_the_fine_hint_is_the_region_of_highest_iou_among_the_associated_ones_and_those_inside() -> None:
    # IoU with the lower zone 0.5, with the lung 0.2; the right lung, also positive, does not overlap.
    assert fine_region(LEFT_BASE, ["right lung", "left lung"], REGIONS) == "left lower lung zone"
    assert fine_region(LEFT_BASE, ["left upper lung zone"], REGIONS) is None  # not associated, though it overlaps
    assert fine_region(REGIONS["left lung"], ["left lung"], REGIONS) == "left lung"
    # A region that the image lacks, and one that the lexicon does not know, are no hints.
    assert fine_region(LEFT_BASE, ["left hemidiaphragm", "a ward"], REGIONS) is None


@pytest.mark.parametrize(
    ("fine", "coarse"),
    [
        ("left upper lung zone", "left lung"),
        ("right apical zone", "right upper lung zone"),
        ("left lung", "left lung"),
        ("cardiac silhouette", "mediastinum"),
        ("spine", "spine"),
    ],
)
def test_the_coarse_hint_is_the_parent_unless_that_has_no_side(fine: str, coarse: str) -> None:
    assert coarse_region(fine) == coarse


def test_a_finding_on_both_sides_has_another_box_and_one_on_one_side_an_opposite_region() -> None:
    right, left = finding_boxes(BOTH_SIDES)
    assert (right.fine, right.coarse, right.other, right.opposite) == (
        "right lower lung zone", "right lung", LEFT_BASE, None,
    )  # fmt: skip
    assert (left.fine, left.coarse, left.other, left.place) == ("left lower lung zone", "left lung", RIGHT_BASE, 1)
    (single,) = finding_boxes(ONE_SIDE)
    assert (single.fine, single.other, single.opposite) == ("left upper lung zone", None, REGIONS["right lung"])


def test_two_boxes_on_one_side_and_a_finding_of_the_midline_have_neither() -> None:
    twice = study({"consolidation": (LEFT_TOP, LEFT_BASE)}, {"consolidation": ("left lung",)})
    assert [(one.other, one.opposite) for one in finding_boxes(twice)] == [(None, None)] * 2
    heart = study({"cardiomegaly": (REGIONS["cardiac silhouette"],)}, {"cardiomegaly": ("cardiac silhouette",)})
    (only,) = finding_boxes(heart)
    assert (only.fine, only.coarse, only.opposite) == ("cardiac silhouette", "mediastinum", None)


def test_studies_whose_labels_disagree_are_left_out() -> None:
    apart = study({"pneumonia": (LEFT_TOP,), "edema": (LEFT_BASE,)}, {"pneumonia": ("left lung",)})
    assert not labels_agree(apart)
    assert finding_boxes(apart) == []
    # A finding that is not among those asked for, or only uncertain, does not matter.
    assert labels_agree(apart, ["pneumonia"])
    perhaps = Study(
        "x",
        lambda: np.zeros((8, 8), np.float32),
        phrases=(Phrase("edema", (LEFT_TOP,), findings={"edema": UNCERTAIN}),),
    )
    assert labels_agree(perhaps)
    assert finding_boxes(perhaps) == []


def test_prompts_name_the_finding_its_regions_and_the_other_side() -> None:
    (single,) = finding_boxes(ONE_SIDE)
    assert prompts_for(single) == {
        "no hint": "pneumonia",
        "mild": "mild pneumonia",
        "moderate": "moderate pneumonia",
        "severe": "severe pneumonia",
        "improved": "improved pneumonia",
        "unchanged": "unchanged pneumonia",
        "worsened": "worsened pneumonia",
        "negated": "no pneumonia",
        "coarse hint": "pneumonia in the left lung",
        "fine hint": "pneumonia in the left upper lung zone",
        "opposite hint": "pneumonia in the right lung",
    }
    assert queries_for(single) == {
        "finding": Query("pneumonia"),
        "box": Query(box=LEFT_TOP),
        "finding and box": Query("pneumonia", LEFT_TOP),
        "region": Query("left lung"),
        "finding in region": Query("pneumonia in the left lung"),
    }
    assert "opposite hint" not in prompts_for(finding_boxes(BOTH_SIDES)[0])


def test_boxes_are_weighted_by_their_scores() -> None:
    found = FindingBox("s", "p", "pneumonia", 0, Box(0.0, 0.0, 0.5, 1.0), other=Box(0.5, 0.0, 1.0, 1.0))
    # gIoU with itself 1; of the halves of an image 0 - (1 - 1) / 1 = 0; of the left half and the whole image 0.5.
    scores = box_scores(found, [ScoredBox(found.box, 0.6), ScoredBox(Box(0.0, 0.0, 1.0, 1.0), 0.2)])
    assert scores == pytest.approx(
        {"giou": (0.6 * 1 + 0.2 * 0.5) / 0.8, "giou_best": 1.0, "relative_other": (0.6 * 1 + 0.2 * 0) / 0.8}
    )
    unsure = box_scores(found, [ScoredBox(found.box, 0.0), ScoredBox(Box(0.5, 0.0, 1.0, 1.0), 0.0)])
    assert unsure["giou"] == pytest.approx(0.5)
    assert unsure["relative_other"] == pytest.approx(0.0)
    assert math.isnan(box_scores(found, [])["giou"])


def test_findings_that_were_not_queried_are_counted_whether_stated_or_denied() -> None:
    told = "Cardiomegaly and small left effusion, no pneumothorax."
    assert sentence_scores("pleural effusion", told) == {"queried": 1, "non_queried": 2, "non_queried_positive": 1}
    assert sentence_scores("pneumonia", told) == {"queried": 0, "non_queried": 3, "non_queried_positive": 2}
    assert sentence_scores("edema", "") == {"queried": 0, "non_queried": 0, "non_queried_positive": 0}
    assert sentence_scores("edema", "Normal chest.")["non_queried_positive"] == 0  # "No Finding" is no finding
    with pytest.raises(InputError, match="scoliosis is none of CheXpert"):
        sentence_scores("scoliosis", told)


def test_bias_is_the_region_of_the_best_box() -> None:
    boxes = [ScoredBox(LEFT_BASE, 0.2), ScoredBox(Box(0.0, 0.0, 0.3, 0.3), 0.9)]
    assert nearest_region(boxes, REGIONS) == "right upper lung zone"
    assert nearest_region([], REGIONS) is None
    assert nearest_region(boxes, {"left lung": REGIONS["left lung"]}) is None  # not among those shown
    assert set(BIAS_REGIONS) >= {"cardiac silhouette", "left lower lung zone"}


class Obedient:
    """Locates where the words say (else in both bases), and describes what it is asked for and an effusion."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        where = {"right lung": RIGHT_BASE, "right lower": RIGHT_BASE, "left": LEFT_BASE}
        found = []
        for phrase in map(str, phrases):
            boxes = [box for words, box in where.items() if words in phrase][:1] or [RIGHT_BASE, LEFT_BASE]
            found.append(Grounding(boxes=[ScoredBox(box, 0.5) for box in boxes]))
        return found

    def describe(self, images: Sequence[Image], queries: Sequence[Query]) -> list[str]:
        return [
            ("" if query.phrase is None else f"There is {query.phrase}. ")
            + ("" if query.box is None else "Left effusion.")
            for query in queries
        ]


def test_a_model_that_follows_hints_is_steered() -> None:
    asked = ask_interactively(Obedient(), [BOTH_SIDES, study({"edema": (LEFT_TOP,)}, {}, "disagreeing")])
    assert asked.studies == {"asked": 1, "disagree": 1}
    relative = {
        (row["place"], row["query"]): row["relative_other"] for row in asked.rows if "relative_other" in row
    }  # fmt: skip
    # gIoU of the two bases: no overlap, areas 0.08 each in an enclosing box of 0.2.
    apart = 1 - (0 - (0.2 - 0.16) / 0.2)
    assert relative[0, "no hint"] == pytest.approx(0.0)
    assert relative[0, "coarse hint"] == relative[0, "fine hint"] == pytest.approx(apart)
    assert relative[1, "coarse hint"] == pytest.approx(apart)
    assert relative[1, "negated"] == pytest.approx(0.0)
    said = {row["query"]: row for row in asked.rows if row["place"] == 0 and "sentence" in row}
    assert {name: row["queried"] for name, row in said.items()} == {
        "finding": 1, "box": 1, "finding and box": 1, "region": 0, "finding in region": 1,
    }  # fmt: skip
    assert {row["patient"] for row in asked.rows} == {"patient of one"}


def test_the_opposite_hint_leads_away_from_the_finding() -> None:
    asked = ask_interactively(Obedient(), [study({"pneumonia": (LEFT_BASE,)}, {"pneumonia": ("left lung",)})])
    row = {row["query"]: row["relative_opposite"] for row in asked.rows if "relative_opposite" in row}
    # With the opposite hint, the box is the right base: gIoU with the right lung 0.2, with the left base -0.2.
    assert row["opposite hint"] == pytest.approx(-0.2 - 0.2)
    assert row["coarse hint"] > row["no hint"] > row["opposite hint"]


def test_bias_is_asked_for_only_where_a_finding_is_denied() -> None:
    denied = study({}, {}, findings={"Effusion": NEGATIVE, "edema": UNCERTAIN, "pneumonia": POSITIVE})
    asked = ask_interactively(Obedient(), [denied])
    assert asked.rows == []
    assert asked.studies == {"without": 1}
    assert asked.bias_counts() == {"pleural effusion": {"right lower lung zone": 1}}


def test_models_are_asked_only_for_what_they_can_answer_and_failures_are_listed() -> None:
    class OnlyGrounds:
        def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
            if any("worsened" in str(phrase) for phrase in phrases):
                raise ValueError("too hard")
            return [Grounding(boxes=[ScoredBox(LEFT_TOP, 1.0)])] * len(phrases)

    asked = ask_interactively(OnlyGrounds(), [ONE_SIDE])
    failed = [row for row in asked.rows if "error" in row]
    assert [(row["query"], row["error"]) for row in failed] == [("worsened", "ValueError: too hard")]
    assert all(row["giou"] == pytest.approx(1.0) for row in asked.rows if "error" not in row)
    with pytest.raises(InputError, match="neither ground nor describe"):
        ask_interactively(object(), [ONE_SIDE])


def test_phantoms_have_everything_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    studies = list(open_source("phantom?count=12&seed=3&size=64"))
    monkeypatch.setattr(interactive, "STUDIES_AT_ONCE", 5)
    asked = ask_interactively(Obedient(), studies)
    assert asked.studies.total() == 12
    assert {"coarse hint", "fine hint", "opposite hint", "region"} <= {row["query"] for row in asked.rows}
    assert any("relative_other" in row for row in asked.rows)
    assert "pneumothorax" in asked.bias_counts()
