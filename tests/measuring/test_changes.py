from __future__ import annotations

import numpy as np
import pytest

from rightlung.core import Heatmap, Phrase, Study
from rightlung.measuring import find_protocol, gather_targets, measure
from rightlung.measuring.changes import GRID, Changes, moved_mass, moved_peak, on_common_grid
from rightlung.measuring.maps import AnswerMap
from rightlung.predictions import Key
from tests.measuring.made_up import Spots, answers, every_phrase

CONDITIONS = ("none", "swap-sides", "random-sentence")


def of(values: object, extent: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)) -> AnswerMap:
    return AnswerMap(np.asarray(values, np.float32), extent)


@pytest.mark.parametrize("reverse", [False, True])
def test_changes_are_a_plain_loops_in_whatever_order_answers_come(reverse: bool) -> None:
    source, maps = Spots(4), {}

    def answer(study: Study, phrase: Phrase, condition: str) -> Heatmap | None:
        if study.id == "s1" and condition == "none":
            return None  # nothing to compare with
        rng = np.random.default_rng([*f"{study.id}{phrase.text}{condition}".encode()])
        maps[study.id, phrase.text, condition] = rng.random((16, 32), dtype=np.float32)
        return Heatmap(maps[study.id, phrase.text, condition])

    predictions = answers(source, answer, CONDITIONS, reverse)
    targets = gather_targets(source, every_phrase(source))
    rows = measure(predictions, targets, find_protocol("audit").applied_to(targets)).to_pylist()
    compared = 0
    for row in rows:
        key = row["study"], row["phrase"]
        if row["study"] == "s1":
            assert np.isnan([row["moved_mass"], row["moved_peak"], row["kl_random"]]).all()
            continue
        before, after = (maps[*key, name].astype(float) for name in ("none", row["condition"]))
        if row["condition"] == "none":
            assert np.isnan(row["moved_mass"])
            one, other = (shares / shares.sum() for shares in (before, maps[*key, "random-sentence"].astype(float)))
            expected = ((one * np.log(one / other)).sum() + (other * np.log(other / one)).sum()) / 2
            assert row["kl_random"] == pytest.approx(expected, rel=1e-5)
        else:
            moved = np.abs(before / before.sum() - after / after.sum()).sum() / 2
            assert row["moved_mass"] == pytest.approx(moved, abs=1e-5)
            (y, x), (down, across) = (np.unravel_index(int(one.argmax()), one.shape) for one in (before, after))
            assert row["moved_peak"] == pytest.approx(np.hypot((x - across) / 32, (y - down) / 16))
            assert np.isnan(row["kl_random"])
            compared += 1
    assert compared == 3 * 4 * 2


def test_maps_on_other_grids_are_compared_where_they_lie_in_the_image() -> None:
    fine = np.zeros((128, 128))
    fine[:64, 64:] = 1.0
    corner = {"x0": 0.5, "y0": 0.0, "x1": 1.0, "y1": 0.5, "score": 0.3, "label": None}
    quarter = on_common_grid(of([[1.0]], (0.5, 0.0, 1.0, 0.5)))
    assert quarter is not None
    assert quarter.shape == (GRID, GRID)
    for other in (of(fine), AnswerMap(None, boxes=[corner])):
        found = on_common_grid(other)
        assert found is not None
        assert moved_mass(quarter, found) == pytest.approx(0.0, abs=1e-6)
        assert moved_peak(quarter, found) == pytest.approx(0.0, abs=1e-9)
    flat = on_common_grid(of(np.ones((3, 5))))
    assert flat is not None
    assert moved_mass(flat, quarter) == pytest.approx(0.75, abs=1e-5)
    assert moved_peak(flat, quarter) == pytest.approx(np.hypot(0.25, 0.25))


def test_an_answer_with_no_mass_in_the_image_does_not_move_and_maps_on_other_cells_have_no_divergence() -> None:
    for nothing in (of(np.zeros((4, 4))), of(np.ones((4, 4)), (1.5, 0.0, 2.0, 1.0)), AnswerMap(None, boxes=[])):
        assert on_common_grid(nothing) is None
        with Changes() as changes:
            changes.add(Key("s", "q", "none"), of([[1.0]]), [0])
            changes.add(Key("s", "q", "swap-sides"), nothing, [1])
            assert changes.values["moved_mass"] == {}
    with Changes() as changes:
        changes.add(Key("s", "q", "random-sentence"), of(np.eye(3)), [0])
        changes.add(Key("s", "q", "none"), of(np.eye(4)), [1, 2])
        assert changes.values["kl_random"] == {}
        assert set(changes.values["moved_mass"]) == {0}
