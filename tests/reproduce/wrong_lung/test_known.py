"""What is measured of grounders whose answers are known beforehand is what they must score, worked out by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from rightlung.audit.prior import PriorRow, fit_prior, fold_of
from rightlung.core import Box
from rightlung.lexicon import side_of
from rightlung.reproduce.wrong_lung.instances import CONDITIONS, Instances
from rightlung.reproduce.wrong_lung.known import ImageBlind, Mirrored, Oracle, TextBlind
from rightlung.reproduce.wrong_lung.measuring import METRICS, Question, measure
from rightlung.reproduce.wrong_lung.prior_row import PriorPointer, fit_on, measure_prior

ABOUT = {"slug": "known", "variant": "known", "name": "Known", "group": "reference", "order": 0}
WORDS = ("swap-sides", "random-sentence", "synthetic", "synthetic-swapped")
Place = NDArray[np.bool_]


@dataclass
class Measured:
    """The files of one measurement, by (instance, condition[, target])."""

    answers: dict[tuple[int, str], dict[str, Any]]
    scores: dict[tuple[int, str, str], dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> Measured:
        answers, scores = (pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("answers", "scores"))
        return cls(
            {(row["instance"], row["condition"]): row for row in answers},
            {(row["instance"], row["condition"], row["target"]): row for row in scores},
        )

    def changes(self, condition: str, plain: str = "none") -> dict[tuple[int, str], dict[str, float]]:
        """Each measure perturbed minus plain, by instance and target, where both are defined."""
        found = {}
        for (instance, name, target), row in self.scores.items():
            before = self.scores.get((instance, plain, target))
            if name == condition and before is not None:
                found[instance, target] = {metric: row[metric] - before[metric] for metric in METRICS}
        return found


@pytest.fixture(scope="module")
def rows(prepared: Instances) -> list[dict[str, Any]]:
    return list(pq.read_table(prepared.folder / "instances.parquet").to_pylist())


@pytest.fixture(scope="module")
def measured(prepared: Instances, tmp_path_factory: pytest.TempPathFactory) -> Callable[[object], Measured]:
    done: dict[str, Measured] = {}

    def of(model: object) -> Measured:
        name = type(model).__name__
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            measure(model, prepared, folder, about=ABOUT, batch_size=40)
            done[name] = Measured.read(folder)
        return done[name]

    return of


def area_under_curve(pointed: Place, target: Place) -> float:
    """AUROC of a map of zeros and ones: a half, more by the share that is hit, less by the share that is painted."""
    return float(0.5 * (1 + pointed[target].mean() - pointed[~target].mean()))


def painted(boxes: list[Box], size: int) -> Any:
    centres = (np.arange(size) + 0.5) / size
    return np.any(
        [((centres >= b.y0) & (centres < b.y1))[:, None] & ((centres >= b.x0) & (centres < b.x1)) for b in boxes],
        axis=0,
    )


def test_the_oracle_is_perfect_where_the_truth_is_exact(prepared: Instances, measured: Any) -> None:
    found = measured(Oracle(prepared))
    exact = [row for (_, condition, target), row in found.scores.items() if (condition, target) == ("none", "exact")]
    assert len(exact) > 50
    for row in exact:
        for metric in ("auroc", "average_precision", "pointing", "mass_inside"):
            assert row[metric] == pytest.approx(1.0, abs=1e-5), row


def test_the_oracles_map_has_the_entropy_of_its_target(prepared: Instances, measured: Any) -> None:
    found = measured(Oracle(prepared))
    for instance in prepared:
        if "exact" in instance.targets:
            pixels = np.count_nonzero(prepared.mask(instance.targets["exact"]))
            assert found.answers[instance.number, "none"]["entropy"] == pytest.approx(np.log(pixels), abs=2e-5)


def test_swapped_sides_send_the_oracle_to_the_mirrored_place(
    prepared: Instances, rows: list[dict[str, Any]], measured: Any
) -> None:
    found = measured(Oracle(prepared))
    own_words = {(row["study"], row["text"]) for row in rows}
    checked = lost = 0
    for instance, row in zip(prepared, rows, strict=True):
        if row["asked_swap_sides"] is None or not row["has_exact"]:
            continue
        if (row["study"], row["asked_swap_sides"]) in own_words:
            continue  # the report says that, too
        target = prepared.mask(instance.targets["exact"])
        value = found.scores[instance.number, "swap-sides", "exact"]["auroc"]
        assert value == pytest.approx(area_under_curve(target[:, ::-1], target), abs=1e-5)
        checked += 1
        if not (target & target[:, ::-1]).any():
            assert value < 0.5
            assert found.scores[instance.number, "swap-sides", "exact"]["pointing"] == 0
            lost += 1
    assert checked > 15
    assert lost > 8


@pytest.mark.parametrize("condition", ["random-sentence", "exchange-image", "synthetic-swapped"])
def test_words_from_elsewhere_send_the_oracle_to_the_regions_they_name_in_the_image_shown(
    prepared: Instances, rows: list[dict[str, Any]], measured: Any, condition: str
) -> None:
    found = measured(Oracle(prepared))
    told: dict[str, set[tuple[str, ...]]] = {}
    for instance in prepared:
        for one in instance.asked.values():
            told.setdefault(one.text, set()).add(one.regions)
    own_words = {(instance.image, asked.text) for instance in prepared for name, asked in instance.asked.items()
                 if name in ("none", "synthetic", "swap-sides")}  # fmt: skip
    checked = lower = 0
    for instance, row in zip(prepared, rows, strict=True):
        asked = instance.asked.get(condition)
        if asked is None or not row["has_exact"] or len(told[asked.text]) > 1 or (asked.image, asked.text) in own_words:
            continue
        shown = prepared.shown[asked.image].regions
        close = [
            name for name in asked.regions
            if name not in ("left lung", "right lung")
            or not any(name.split()[0] in other.split() for other in asked.regions if other != name)
        ]  # fmt: skip
        boxes = [shown[name] for name in close if name in shown]
        target = prepared.mask(instance.targets["exact"])
        expected = area_under_curve(painted(boxes, prepared.size), target) if boxes else 0.5
        value = found.scores[instance.number, condition, "exact"]["auroc"]
        assert value == pytest.approx(expected, abs=2e-5)
        checked += 1
        lower += value < 1 - 1e-6
    assert checked > 20
    assert lower == checked  # a box is never exactly the finding


def test_the_oracle_reads_synthetic_sentences_as_what_they_say(
    prepared: Instances, rows: list[dict[str, Any]], measured: Any
) -> None:
    found = measured(Oracle(prepared))
    said = Counter((row["study"], row["asked_synthetic"]) for row in rows)
    same = [
        row["instance"] for row in rows
        if row["abnormal"] and row["has_exact"] and said[row["study"], row["asked_synthetic"]] == 1
    ]  # fmt: skip
    assert len(same) > 15
    for number in same:
        assert found.scores[number, "synthetic", "exact"]["auroc"] == pytest.approx(1.0, abs=1e-5)


def test_moved_targets_cost_the_oracle_what_they_cover(prepared: Instances, measured: Any) -> None:
    found = measured(Oracle(prepared))
    checked = 0
    for instance in prepared:
        for name in ("exact-shuffled", "exact-random"):
            if name not in instance.targets or "exact" not in instance.targets:
                continue
            own, moved = (prepared.mask(instance.targets[one]) for one in ("exact", name))
            assert found.scores[instance.number, "none", name]["auroc"] == pytest.approx(
                area_under_curve(own, moved), abs=1e-5
            )
            checked += 1
    assert checked > 60


def test_the_oracle_knows_its_own_sentences_from_random_ones(
    prepared: Instances, rows: list[dict[str, Any]], measured: Any
) -> None:
    found = measured(Oracle(prepared))
    own_words = {(row["study"], row["text"]) for row in rows}
    for row in rows:
        assert found.answers[row["instance"], "none"]["similarity_local"] == 1
        other = found.answers[row["instance"], "random-sentence"]["similarity_global"]
        if (row["study"], row["asked_random_sentence"]) not in own_words:
            assert other == 0


@pytest.mark.parametrize("condition", WORDS)
def test_who_cannot_read_loses_nothing_by_other_words(measured: Any, condition: str) -> None:
    found = measured(TextBlind())
    changes = found.changes(condition)
    assert len(changes) > 20
    assert all(value == 0 for change in changes.values() for value in change.values())
    for (_, name), row in found.answers.items():
        if name == "none":
            assert row["kl_random"] == 0


def test_who_cannot_read_loses_with_another_image_or_another_patients_target(measured: Any) -> None:
    found = measured(TextBlind())
    changes = found.changes("exchange-image")
    assert any(change["auroc"] != 0 for change in changes.values())


def test_who_cannot_see_loses_nothing_by_another_image(measured: Any) -> None:
    found = measured(ImageBlind())
    changes = found.changes("exchange-image")
    assert len(changes) > 200
    assert all(value == 0 for change in changes.values() for value in change.values())


def test_who_cannot_see_follows_swapped_words_to_the_other_side(rows: list[dict[str, Any]], measured: Any) -> None:
    found = measured(ImageBlind())
    other = {"left": "right", "right": "left"}
    followed = 0
    for row in rows:
        named = side_of(row["text"])
        if row["asked_swap_sides"] is not None and named in other:
            assert found.answers[row["instance"], "none"]["peak_side"] == named
            assert found.answers[row["instance"], "swap-sides"]["peak_side"] == other[named]
            followed += 1
    assert followed > 8


def test_who_is_the_wrong_way_round_gains_by_swapped_sides(
    prepared: Instances, rows: list[dict[str, Any]], measured: Any
) -> None:
    found = measured(Mirrored(Oracle(prepared)))
    own_words = {(row["study"], row["text"]) for row in rows}
    gained = 0
    for instance, row in zip(prepared, rows, strict=True):
        if not row["one_lung"] or not row["has_exact"] or row["asked_swap_sides"] is None:
            continue
        if (row["study"], row["asked_swap_sides"]) in own_words:
            continue
        target = prepared.mask(instance.targets["exact"])
        before, after = (found.scores[instance.number, name, "exact"]["auroc"] for name in ("none", "swap-sides"))
        assert after == pytest.approx(1.0, abs=1e-5)
        assert before == pytest.approx(area_under_curve(target[:, ::-1], target), abs=1e-5)
        assert before < after
        gained += 1
    assert gained > 8


def test_the_prior_reads_words_and_never_sees_the_image(
    prepared: Instances, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    about = measure_prior(prepared, tmp_path, about=ABOUT, batch_size=100)
    found = Measured.read(tmp_path)
    assert about["prior"]["phrases"] == sum(row["has_exact"] for row in rows)
    assert all(value == 0 for change in found.changes("exchange-image").values() for value in change.values())
    assert all(row["similarity_global"] is None and row["similarity_local"] is None for row in found.answers.values())
    assert any(change["auroc"] < 0 for change in found.changes("swap-sides").values())
    scores = [row["auroc"] for (_, name, target), row in found.scores.items() if (name, target) == ("none", "exact")]
    assert 0.7 < np.mean(scores) < 1


def test_every_question_has_its_row_and_every_row_its_targets(
    prepared: Instances, rows: list[dict[str, Any]], measured: Any
) -> None:
    found = measured(TextBlind())
    asked = {
        "none": "text", "swap-sides": "asked_swap_sides", "random-sentence": "asked_random_sentence",
        "synthetic": "asked_synthetic", "synthetic-swapped": "asked_synthetic_swapped", "exchange-image": "partner",
    }  # fmt: skip
    questions = {(row["instance"], name) for row in rows for name in CONDITIONS if row[asked[name]] is not None}
    assert set(found.answers) == questions
    everywhere = {
        (instance, name, target)
        for instance, name in questions
        for target in ("regions", "trimmed", *(["exact"] if rows[instance]["has_exact"] else []))
    }
    moved = {key for key in found.scores if key[2] not in ("regions", "trimmed", "exact")}
    assert set(found.scores) - moved == everywhere
    assert {name for _, name, _ in moved} == {"none"}
    assert {target for _, _, target in moved} == {
        "regions-shuffled", "exact-shuffled", "regions-random", "exact-random"
    }  # fmt: skip


def test_the_priors_map_knows_nothing_of_its_own_patient(prepared: Instances) -> None:
    pointer = PriorPointer(fit_on(prepared, "exact"), prepared)
    for instance in prepared.rows[::40]:
        own = fold_of(prepared.patient(instance))
        strangers = fit_prior(
            PriorRow(
                prepared.patient(one), one.asked["none"].text, one.asked["none"].findings,
                prepared.mask(one.targets["exact"]),
            )
            for one in prepared
            if "exact" in one.targets and fold_of(prepared.patient(one)) != own
        )  # fmt: skip
        for condition, asked in instance.asked.items():
            (answer,) = pointer.answers([Question(instance, condition, asked)])
            assert answer.grounding is not None
            assert answer.grounding.heatmap is not None
            expected = strangers.map_of(asked.text, asked.findings)
            assert np.allclose(answer.grounding.heatmap.values, expected.values, atol=1e-6)
