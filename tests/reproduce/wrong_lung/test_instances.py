"""The prepared set: what is in it, what is left out and said, and that nothing half-written is taken for whole."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.core import Box, Image, InputError, Mask, Phrase, Polarity, Study
from rightlung.core.problem import Problem
from rightlung.reproduce.wrong_lung.gathering import exact_target, reduced, resized
from rightlung.reproduce.wrong_lung.instances import CONDITIONS, Instances, open_instances, prepare
from rightlung.studies import open_source
from rightlung.studies.sources import Source
from tests.reproduce.wrong_lung.conftest import PHANTOMS

POSITIVE, NEGATIVE = Polarity.POSITIVE, Polarity.NEGATIVE

LUNGS = {"left lung": Box(0.55, 0.1, 0.9, 0.8), "right lung": Box(0.1, 0.1, 0.45, 0.8)}
ZONES = {"left lower lung zone": Box(0.55, 0.6, 0.9, 0.8), "spine": Box(0.45, 0.0, 0.55, 1.0)}


@dataclass
class Listed(Source):
    """Studies from a list, built one by one; counts how often."""

    studies: list[Study]
    built: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__("list")

    @property
    def ids(self) -> Sequence[str]:
        return [study.id for study in self.studies]

    def _build(self, position: int) -> Study:
        self.built.append(self.studies[position].id)
        if self.studies[position].id == "broken":
            raise InputError("row 3 is broken")
        return self.studies[position]

    def _position(self, study_id: str) -> int | None:
        return self.ids.index(study_id) if study_id in self.ids else None


def grey(number: int, shape: tuple[int, int] = (40, 30)) -> Any:
    return lambda: np.full(shape, number / 255, np.float32)


def unreadable() -> Image:
    raise OSError("the disk is gone")


def study(name: str, number: int, patient: str | None, *phrases: Phrase, load: Any = None) -> Study:
    return Study(name, load or grey(number), patient, phrases=phrases, regions={**LUNGS, **ZONES})


LEFT = Phrase("Effusion on the left.", regions=("left lower lung zone",), findings={"pleural effusion": POSITIVE})
BOTH = Phrase("No edema.", regions=("left lung", "right lung"), findings={"edema": NEGATIVE})
NODULE = Phrase("A nodule.", boxes=(Box(0.2, 0.2, 0.3, 0.3),), regions=("right lung",), findings={"nodule": POSITIVE})
BOXED = Phrase("Lungs.", boxes=tuple(LUNGS.values()), regions=("left lung", "right lung"))
NOWHERE = Phrase("Compared with yesterday.")
UNKNOWN = Phrase("A clavicle.", regions=("left clavicle",))


def small() -> Listed:
    return Listed(
        [
            study("a", 1, "p", LEFT, BOTH, NODULE, NOWHERE),
            study("b", 2, "p", NODULE),
            study("broken", 3, "q"),
            study("dark", 4, "q", LEFT, load=unreadable),
            study("c", 5, None, BOTH, UNKNOWN, BOXED),
            study("empty", 6, "r", NOWHERE),
            study("garbled", 7, "r", Phrase("\ud800", regions=("left lung",))),
        ]
    )


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Instances:
    return prepare(small(), tmp_path_factory.mktemp("few"), seed=1, size=40)


def rows_of(instances: Instances) -> list[dict[str, Any]]:
    return list(pq.read_table(instances.folder / "instances.parquet").to_pylist())


def test_whatever_is_not_measured_is_counted_by_its_reason(few: Instances) -> None:
    assert few.about["left_out"] == {
        "phrases that are told of no region": 2,
        "phrases whose regions have no box in their image": 1,
        "studies that cannot be read": 1,
        "studies whose image, masks or words cannot be read": 2,
        "studies without a phrase to measure": 1,
    }
    counts = few.about["counts"]
    assert (counts["studies"], counts["instances"], counts["studies without a patient"]) == (3, 6, 1)
    assert few.about["without"]["exact"] == 4
    assert few.about["without"]["regions-shuffled"] == 1  # a report of one sentence
    assert few.about["without"]["exact-shuffled"] == 6
    assert few.about["without"]["swap-sides"] == 5
    named = sorted(problem.split(":")[0] for problem in few.about["problems"])
    assert named == ["study 'broken'", "study 'dark'", "study 'garbled'"]
    assert counts["without findings"] == 1
    assert counts["in no subset"] == sum(
        not (row["abnormal"] or row["one_lung"] or row["mdrb"]) for row in rows_of(few)
    )


def test_rows_that_the_source_refused_are_counted_with_what_cannot_be_read(few: Instances, tmp_path: Path) -> None:
    source = small()
    source.problems += [Problem("list", "no study", row) for row in (8, 9)]
    prepared = prepare(source, tmp_path, seed=1, size=40)
    assert prepared.unread == {
        "rows that the source refused": 2,
        "studies that cannot be read": 1,
        "studies whose image, masks or words cannot be read": 2,
    }
    assert prepared.about["left_out"] == {**few.about["left_out"], "rows that the source refused": 2}
    assert prepared.about["problems"][0] == "list, line 8: no study"
    assert prepared.about["protocol"] == few.about["protocol"]


def test_each_row_says_what_the_phrase_is(few: Instances) -> None:
    rows = rows_of(few)
    assert [(row["study"], row["phrase"], row["text"]) for row in rows] == [
        ("a", 0, LEFT.text), ("a", 1, BOTH.text), ("a", 2, NODULE.text), ("b", 0, NODULE.text), ("c", 0, BOTH.text),
        ("c", 2, BOXED.text),
    ]  # fmt: skip
    assert [row["abnormal"] for row in rows] == [True, False, True, True, False, False]
    assert [row["one_lung"] for row in rows] == [True, False, True, True, False, False]
    assert [row["has_exact"] for row in rows] == [False, False, True, True, False, False]  # region boxes are not exact
    assert [row["exact_side"] for row in rows] == ["none", "none", "right", "right", "none", "none"]
    assert [row["focal"] for row in rows] == [False, False, True, True, False, False]
    assert [row["names_side"] for row in rows] == [True, False, False, False, False, False]
    assert rows[0]["findings"] == ["pleural effusion"]
    assert rows[1]["findings"] == []
    assert rows[0]["regions"] == ["left lower lung zone", "left lung"]
    assert rows[0]["asked_swap_sides"] == "Effusion on the right."
    assert rows[1]["asked_swap_sides"] is None
    assert rows[0]["asked_synthetic"] == "There is pleural effusion in the left lung and left lower lung zone."
    assert rows[5]["asked_synthetic"] is None  # it says nothing of any finding
    assert [row["patient"] for row in rows] == ["p"] * 4 + [None] * 2


def test_partners_sentences_and_random_targets_are_another_patients(few: Instances) -> None:
    rows = rows_of(few)
    assert [row["partner"] for row in rows] == ["c"] * 4 + [rows[4]["partner"]] * 2
    assert rows[4]["partner"] in ("a", "b")
    assert {row["asked_random_sentence"] for row in rows[:4]} <= {BOTH.text, UNKNOWN.text, BOXED.text}
    owners = [few.patient(instance) for instance in few]
    masks_of: dict[int, set[str]] = {}
    for instance, owner in zip(few, owners, strict=True):
        masks_of.setdefault(instance.targets["regions"], set()).add(owner)
    for instance, owner in zip(few, owners, strict=True):
        assert owner not in masks_of[instance.targets["regions-random"]]
        assert "exact-random" not in instance.targets  # the exact targets are all of one patient


def test_targets_are_the_boxes_painted_on_the_whole_image(few: Instances) -> None:
    first, *_, last = few.rows
    expected = np.zeros((40, 40), dtype=bool)
    expected[4:32, 22:36] = True  # the left lung, which holds the zone
    assert np.array_equal(few.mask(first.targets["regions"]), expected)
    expected[:24] = False
    assert np.array_equal(few.mask(first.targets["trimmed"]), expected)
    assert last.targets["regions"] == last.targets["trimmed"]
    exact = few.mask(few.rows[2].targets["exact"])
    assert np.array_equal(np.argwhere(exact)[[0, -1]], [[8, 8], [11, 11]])


def test_images_come_back_as_they_were(few: Instances) -> None:
    assert [float(few.image(number).max() * 255) for number in range(3)] == pytest.approx([1, 2, 5])
    assert few.image(0).shape == (40, 30)
    assert few.image(0).dtype == np.float32


def test_shuffled_targets_are_those_of_other_sentences_of_the_report(prepared: Instances) -> None:
    by_study: dict[int, list[Any]] = {}
    for instance in prepared:
        by_study.setdefault(instance.image, []).append(instance)
    for members in by_study.values():
        for kind in ("regions", "exact"):
            with_target = [one for one in members if kind in one.targets]
            if len(with_target) < 2:
                assert all(f"{kind}-shuffled" not in one.targets for one in members)
                continue
            assert sorted(one.targets[f"{kind}-shuffled"] for one in with_target) == sorted(
                one.targets[kind] for one in with_target
            )


def test_the_most_diverse_reports_have_the_least_overlap(prepared: Instances) -> None:
    rows = rows_of(prepared)
    overlap: dict[str, list[float]] = {}
    for one, other in combinations(prepared, 2):
        if one.image == other.image:
            first, second = (prepared.mask(instance.targets["regions"]) for instance in (one, other))
            overlap.setdefault(rows[one.number]["study"], []).append((first & second).sum() / (first | second).sum())
    means = {name: np.mean(values) for name, values in overlap.items()}
    chosen = {row["study"] for row in rows if row["mdrb"]}
    assert max(means[name] for name in chosen) <= min(value for name, value in means.items() if name not in chosen)
    count = sum(row["mdrb"] for row in rows)
    assert 0.1 * len(rows) <= count < 0.1 * len(rows) + 20


def test_phantoms_have_regions_of_every_kind_and_masks_of_their_own(prepared: Instances) -> None:
    source = open_source(PHANTOMS)
    rows = rows_of(prepared)
    for instance, row in zip(prepared, rows, strict=True):
        if row["has_exact"] and instance.number % 7 == 0:
            phrase = source.study(row["study"]).phrases[row["phrase"]]
            assert phrase.text == row["text"]
            assert phrase.mask is not None
            share = prepared.mask(instance.targets["exact"]).mean()
            assert share == pytest.approx(phrase.mask.area, rel=0.25, abs=0.002)
    assert {name for instance in prepared for name in instance.asked} == set(CONDITIONS)


def test_a_second_call_builds_nothing_and_other_wishes_are_refused(tmp_path: Path) -> None:
    first = prepare(small(), tmp_path, seed=1, size=40)
    source = small()
    second = prepare(source, tmp_path, seed=1, size=40)
    assert source.built == []
    assert second.about == first.about
    assert second.rows == first.rows
    with pytest.raises(InputError, match=r"prepared with seed 1, and now 2 is asked for; choose another folder"):
        prepare(small(), tmp_path, seed=2, size=40)
    with pytest.raises(InputError, match=r"prepared with limit None, and now 2"):
        prepare(small(), tmp_path, seed=1, size=40, limit=2)


def test_a_cache_that_was_thrown_away_is_made_again_and_must_be_the_same(tmp_path: Path) -> None:
    first = prepare(small(), tmp_path, seed=1, size=40)
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(InputError, match="not there"):
        open_instances(tmp_path)
    again = prepare(small(), tmp_path, seed=1, size=40)
    assert again.rows == first.rows
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(InputError, match="no longer what was prepared"):
        prepare(Listed([*small().studies[:5], study("new", 9, "s", LEFT)]), tmp_path, seed=1, size=40)


def test_what_was_stopped_is_not_taken_for_whole(tmp_path: Path) -> None:
    def stop(done: float, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(small(), tmp_path, seed=1, size=40, progress=stop)
    assert not (tmp_path / "instances.json").exists()
    assert not (tmp_path / "cache").exists()
    assert len(prepare(small(), tmp_path, seed=1, size=40)) == 6


def test_one_patient_alone_has_no_partner_and_no_random_targets(tmp_path: Path) -> None:
    alone = prepare(Listed([study("a", 1, "p", LEFT, BOTH)]), tmp_path, size=40)
    for name in ("exchange-image", "random-sentence", "regions-random"):
        assert alone.about["without"][name] == 2
    assert rows_of(alone)[0]["partner"] is None


def test_nothing_to_measure_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of the 1 studies of list has a phrase with region boxes"):
        prepare(Listed([study("a", 1, "p", NOWHERE)]), tmp_path)
    with pytest.raises(InputError, match="size must be at least 8"):
        prepare(small(), tmp_path, size=2)


def test_a_mask_too_small_for_the_grid_keeps_a_pixel() -> None:
    pixels = np.zeros((100, 100), dtype=bool)
    pixels[51, 3] = True
    found = resized(Mask(pixels), 10)
    assert np.argwhere(found.pixels).tolist() == [[5, 0]]
    assert not resized(Mask(np.zeros((5, 5), dtype=bool)), 10)


def test_boxes_of_its_regions_are_no_exact_target() -> None:
    assert exact_target(study("c", 5, None), BOXED, 40) is None
    assert exact_target(study("c", 5, None), NODULE, 40) is not None
    assert exact_target(study("c", 5, None), Phrase("x", mask=Mask(np.zeros((4, 4), dtype=bool))), 40) is None


def test_large_images_are_kept_smaller() -> None:
    assert reduced(np.zeros((3000, 1500), np.float32)).shape == (1024, 512)
    assert reduced(np.ones((1024, 7), np.float32)).shape == (1024, 7)


def test_phrases_as_scene_graphs_have_them_are_measured_on_their_regions_alone(tmp_path: Path) -> None:
    """As the reader of Chest ImaGenome makes them: a phrase has the boxes of its regions, and no mask."""

    def graph(name: str, patient: str, grey_level: int) -> Study:
        regions = {**LUNGS, **ZONES}
        phrases = [
            Phrase(text, tuple(regions[one] for one in places), None, places, {finding: polarity})
            for text, places, finding, polarity in (
                ("Left base opacity.", ("left lung", "left lower lung zone"), "lung opacity", POSITIVE),
                ("No pneumothorax.", ("left lung", "right lung"), "pneumothorax", NEGATIVE),
                ("Left effusion.", ("left lung", "left lower lung zone"), "pleural effusion", POSITIVE),
            )
        ]
        return Study(name, grey(grey_level, (50, 40)), patient, phrases=tuple(phrases), regions=regions)

    found = prepare(Listed([graph("a", "p", 1), graph("b", "q", 2), graph("c", "r", 3)]), tmp_path, size=32)
    rows = rows_of(found)
    assert not any(row["has_exact"] for row in rows)
    assert [row["one_lung"] for row in rows[:3]] == [True, False, True]
    assert set(found.rows[0].targets) == {"regions", "trimmed", "regions-shuffled", "regions-random"}
    assert rows[0]["asked_synthetic_swapped"] == "There is pleural effusion in the left lung and left lower lung zone."
