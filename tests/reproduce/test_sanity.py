"""What is measured of models whose answers are known beforehand is what they must score, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rightlung.asking import answers, questions
from rightlung.core import Box, InputError
from rightlung.lexicon import side_of
from rightlung.measuring import measure
from rightlung.reproduce.papers import find_paper
from rightlung.reproduce.prepared import PreparedStudies, fit_priors
from rightlung.reproduce.sanity import ImageBlind, Mirrored, Oracle, SanityCheck, TextBlind, check_sanity, known_models
from rightlung.reproduce.wrong_lung.variants import PERTURBATIONS
from rightlung.results.measured import Measured
from tests.reproduce.made_up import DRAWN, Levels, write

WORDS = ("swap-sides", "random-sentence", "synthetic", "synthetic-swapped")
SCORES = ("auroc", "average_precision", "pointing", "iou@10", "mass_inside")
Pixels = NDArray[np.bool_]


@pytest.fixture(scope="module")
def rows(prepared: PreparedStudies) -> Callable[[object], dict[tuple[str, str, str, str], dict[str, Any]]]:
    """Measure a model, once, and return its rows by study, query, condition and target."""
    kept: dict[str, Any] = {}

    def of(model: object) -> Any:
        name = type(model).__name__
        if name not in kept:
            batches = answers(model, prepared.source, prepared.protocol.conditions, queries=("phrases",))
            found = measure(batches, prepared.targets, prepared.protocol).to_pylist()
            kept[name] = {tuple(row[one] for one in ("study", "query", "condition", "target")): row for row in found}
        return kept[name]

    return of


def mask(prepared: PreparedStudies, key: tuple[str, str], rule: str) -> Pixels:
    found: Pixels = prepared.targets.store.read([prepared.targets.phrases[key].masks[rule].place])[0]
    return found


def by_hand(pointed: Pixels, target: Pixels) -> float:
    """AUROC of a map of zeros and ones: a half, more by the share that is hit, less by the share that is painted."""
    return float(0.5 * (1 + pointed[target].mean() - pointed[~target].mean()))


def painted(boxes: list[Box], size: int) -> Pixels:
    centres = (np.arange(size) + 0.5) / size
    found: Pixels = np.any(
        [((centres >= b.y0) & (centres < b.y1))[:, None] & ((centres >= b.x0) & (centres < b.x1)) for b in boxes],
        axis=0,
    )
    return found


def exact(found: dict[Any, Any], condition: str) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """The rows of a condition against exact masks, whose words are not in the report anyway."""
    own = {(study, row["asked"]) for (study, _, name, _), row in found.items() if name == "none"}
    for (study, query, name, target), row in found.items():
        if (name, target) == (condition, "exact") and (name == "none" or (study, row["asked"]) not in own):
            yield (study, query), row


def test_the_oracle_is_perfect_where_the_truth_is_exact(prepared: PreparedStudies, rows: Any) -> None:
    found = [*exact(rows(Oracle(prepared)), "none")]
    assert len(found) > 30
    for key, row in found:
        for name in ("auroc", "average_precision", "pointing", "mass_inside"):
            assert row[name] == pytest.approx(1.0, abs=1e-5), row
        assert row["grid_entropy"] == pytest.approx(np.log(mask(prepared, key, "exact").sum()), abs=1e-4)
        assert row["similarity_local"] == 1


def test_swapped_sides_send_the_oracle_to_the_mirrored_place_and_its_mirror_image_back(
    prepared: PreparedStudies, rows: Any
) -> None:
    oracle, turned = rows(Oracle(prepared)), rows(Mirrored(Oracle(prepared)))
    found, lost = [*exact(oracle, "swap-sides")], 0
    assert len(found) > 8
    for key, row in found:
        target = mask(prepared, key, "exact")
        other = by_hand(target[:, ::-1], target)
        assert row["auroc"] == pytest.approx(other, abs=1e-5)
        lost += other < 0.5 and row["pointing"] == 0
        assert turned[*key, "none", "exact"]["auroc"] == pytest.approx(other, abs=1e-5)
        assert turned[*key, "swap-sides", "exact"]["auroc"] == pytest.approx(1.0, abs=1e-5)
    assert lost > 4


@pytest.mark.parametrize("condition", ["random-sentence", "exchange-image", "synthetic-swapped"])
def test_words_from_elsewhere_send_the_oracle_to_the_regions_they_name_in_the_image_shown(
    prepared: PreparedStudies, rows: Any, condition: str
) -> None:
    asked = [*questions(prepared.source, prepared.protocol.conditions)]
    regions: dict[str, set[tuple[str, ...]]] = {}
    for one in asked:
        assert one.phrase is not None
        regions.setdefault(one.phrase.text, set()).add(one.phrase.regions)
    known = ("none", "swap-sides", "synthetic")
    own = {(one.key.study, one.phrase.text) for one in asked if one.phrase and one.key.condition in known}
    found, checked = rows(Oracle(prepared)), 0
    for one in asked:
        key, shown = (one.key.study, one.key.query), one.image_of or one.key.study
        row = found.get((*one.key, "exact"))
        assert one.phrase is not None
        text = one.phrase.text
        if one.key.condition != condition or row is None or len(regions[text]) > 1 or (shown, text) in own:
            continue
        names, boxes = one.phrase.regions, prepared.source.study(shown).regions
        close = [  # a lung only where nothing closer on its side is named
            name for name in names
            if name not in ("left lung", "right lung")
            or not any(name.split()[0] in other.split() for other in names if other != name)
        ]  # fmt: skip
        there = [boxes[name] for name in close if name in boxes]
        target = mask(prepared, key, "exact")
        expected = by_hand(painted(there, len(target)), target) if there else 0.5
        assert row["auroc"] == pytest.approx(expected, abs=2e-5)
        assert row["abstention"] == (0.0 if there else 1.0)
        checked += 1
    assert checked > 8


def test_moved_targets_cost_the_oracle_what_they_cover(prepared: PreparedStudies, rows: Any) -> None:
    found, checked = rows(Oracle(prepared)), 0
    for (study, query, _, target), row in found.items():
        if target in ("exact-shuffled", "exact-random"):
            own, moved = (mask(prepared, (study, query), rule) for rule in ("exact", target))
            assert row["auroc"] == pytest.approx(by_hand(own, moved), abs=1e-5)
            checked += 1
    assert checked > 40


def changes(found: dict[Any, Any], condition: str) -> list[float]:
    plain = {(study, query, target): row for (study, query, name, target), row in found.items() if name == "none"}
    return [
        row[score] - plain[study, query, target][score]
        for (study, query, name, target), row in found.items() if name == condition
        for score in SCORES
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "condition"), [*((TextBlind, name) for name in WORDS), (ImageBlind, "exchange-image")]
)
def test_who_cannot_read_or_see_loses_nothing_by_other_words_or_another_image(
    rows: Any, model: Any, condition: str
) -> None:
    found = changes(rows(model()), condition)
    assert len(found) > 100
    assert set(found) == {0.0}


def test_who_cannot_read_loses_with_another_image_and_who_cannot_see_follows_the_words(rows: Any) -> None:
    assert any(change != 0 for change in changes(rows(TextBlind()), "exchange-image"))
    followed = 0
    for (_, _, condition, _), row in rows(ImageBlind()).items():
        side = side_of(row["asked"])
        if condition in ("none", "swap-sides") and side in ("left", "right"):
            assert row["peak_side"] == side
            followed += 1
    assert followed > 20


def test_the_prior_never_sees_the_image_but_reads_the_words(prepared: PreparedStudies, rows: Any) -> None:
    priors = dict(fit_priors(prepared))
    assert list(priors) == ["prior", "prior-regions"]
    _, _, prior = priors["prior"]
    assert len(prior) == sum("exact" in one.masks for one in prepared.targets.phrases.values())
    found = rows(prior)
    assert set(changes(found, "exchange-image")) == {0.0}
    assert any(change < 0 for change in changes(found, "swap-sides"))
    assert 0.6 < np.mean([row["auroc"] for _, row in exact(found, "none")]) < 1


def test_the_oracle_knows_only_what_is_asked_here(prepared: PreparedStudies) -> None:
    oracle = Oracle(prepared)
    with pytest.raises(InputError, match="only knows the images of the prepared studies"):
        oracle.ground([np.zeros((64, 64), np.float32)], ["Left effusion."])
    image = prepared.source[0].image
    with pytest.raises(InputError, match="only knows the phrases of this experiment; got 'The moon"):
        oracle.ground([image], ["The moon."])
    assert set(known_models(prepared)) == {"oracle", "blind-to-text", "blind-to-image", "mirrored"}


# ------------------------------------------------------------------ what their figures must be

MOVED = dict.fromkeys(("swap-sides", "random-sentence", "synthetic-swapped", "exchange-image"), 0.4)
KNOWN: dict[str, Levels] = {
    "oracle": {"level": 1.0, **MOVED, "exact-shuffled": 0.4, "exact-random": 0.4, "noise": None},
    "blind-to-text": {"auroc": DRAWN, ("auroc", "exchange-image"): 0.5},
    "blind-to-image": {"auroc": DRAWN, ("auroc", "swap-sides"): 0.5},
    "mirrored": {"level": 0.3, "swap-sides": 0.9, "noise": None},
}


def known(folder: Path, slug: str = "oracle", **changed: Any) -> Path:
    """Write the known models with some levels of one of them changed."""
    changes = {("auroc", name.replace("_", "-")): value for name, value in changed.items()}
    write(folder, {name: {**levels, **(changes if name == slug else {})} for name, levels in KNOWN.items()})
    return folder


def test_checks_that_pass_are_reported(tmp_path: Path) -> None:
    said = check_sanity(known(tmp_path), find_paper("wrong-lung"))
    changes = [f"the oracle changes by -0.600 under {one.name}" for one in PERTURBATIONS]
    assert said[: 1 + len(changes)] == ["the oracle's lowest AUROC on exact masks is 1.00000", *changes]
    assert said[-1] == "the mirrored oracle gains +0.600 when sides are swapped, on One Lung"
    assert len(said) == 1 + 6 + 4 + 1


@pytest.mark.parametrize(
    ("slug", "condition", "level", "said"),
    [
        ("oracle", "none", 0.99, "the oracle's lowest AUROC on exact masks is 0.99"),
        ("oracle", "exchange_image", 1.0, r"the oracle changes by \+0.000 under exchange-image"),
        ("blind-to-text", "swap_sides", 0.5, "blind to the text changes by at most 0.* under swap-sides"),
        ("blind-to-image", "exchange_image", 0.5, "blind to the image changes by at most 0.* under exchange-image"),
        ("mirrored", "swap_sides", 0.3, r"mirrored oracle gains \+0.000"),
    ],
)
def test_figures_that_cannot_be_right_end_a_synthetic_run_and_are_reported_of_ones_own_studies(
    tmp_path: Path, slug: str, condition: str, level: float, said: str
) -> None:
    folder, paper = known(tmp_path, slug, **{condition: level}), find_paper("wrong-lung")
    with pytest.raises(InputError, match=f"sanity checks failed, so the code is broken: .*{said}"):
        check_sanity(folder, paper)
    assert any(one.endswith(", which is unexpected") for one in check_sanity(folder, paper, synthetic=False))


def test_what_no_phrase_allows_is_not_checked_and_said(tmp_path: Path) -> None:
    def figures(measured: Measured) -> Iterator[SanityCheck]:
        yield SanityCheck("nothing is {:.2f}", measured.nothing(), np.mean, lambda of: False)

    paper = replace(find_paper("wrong-lung"), sanity_checks=figures)
    assert check_sanity(known(tmp_path), paper) == ["not checked, because no phrase has a value: nothing is ?"]
