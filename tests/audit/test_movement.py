from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.audit import Audit, Sureness, audit
from rightlung.audit.movement import GRID, moved_mass, moved_peak, on_common_grid
from rightlung.core import Heatmap, Phrase, Study
from rightlung.predictions import open_predictions
from tests.audit.cards import Cards, write_answers

WHOLE = (0.0, 0.0, 1.0, 1.0)
QUICK = Sureness(resamples=200)


def top_corner(study: Study, phrase: Phrase, text: str) -> Heatmap:
    """Follow the word for the side, and point at the top corner there: always wrong, so no score can change."""
    values = np.zeros((8, 8), dtype=np.float32)
    values[0, 7 if "left" in text else 0] = 1.0
    return Heatmap(values)


@pytest.fixture(scope="module")
def corners(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder, source = tmp_path_factory.mktemp("corners"), Cards(30)
    written = write_answers(source, folder / "p", top_corner)
    return audit(written, source, folder / "out", sureness=QUICK, cases=0)


def test_a_map_that_moves_without_scoring_otherwise_is_said_to_move(corners: Audit) -> None:
    swapped = corners.result["conditions"]["swap-sides"]
    assert not swapped["change"]["average_precision"]["shown"]
    assert swapped["follows_words"]["estimate"] == 1.0
    assert swapped["moved"]["moved_mass"]["estimate"] == pytest.approx(1.0)
    assert swapped["moved"]["moved_peak"]["estimate"] == pytest.approx(7 / 8)  # between the middles of the corner cells
    said = " ".join(corners.result["summary"])
    assert "Swapping left and right in the words moves 100 % (100 to 100 %) of the maps' mass" in said
    assert "no difference in average precision is shown" in said
    assert "not move" not in said
    page = corners.page.read_text(encoding="utf-8")
    assert "How far the answers move" in page


def test_movement_is_stored_with_every_changed_answer_also_of_phrases_without_a_target(corners: Audit) -> None:
    rows = pq.read_table(corners.instances).to_pylist()
    for row in rows:
        assert np.isnan(row["moved_mass"]) == np.isnan(row["moved_peak"]) == (row["condition"] == "none")
    exchanged = [row for row in rows if row["condition"] == "exchange-image"]
    assert {row["query"] for row in exchanged} == {f"phrase:{index}" for index in range(4)}
    assert corners.result["conditions"]["exchange-image"]["moved"]["moved_mass"]["phrases"] == len(exchanged) == 120


def test_movement_is_a_plain_loops(tmp_path: Path) -> None:
    source, rng = Cards(4), np.random.default_rng(2)
    folder = write_answers(source, tmp_path / "p", lambda *_: Heatmap(rng.random((16, 32))))
    done = audit(folder, source, tmp_path / "out", sureness=QUICK, cases=0)
    maps: dict[tuple[str, ...], Any] = {}
    for batch in open_predictions(folder).batches():
        for key, values in zip(batch.keys, batch.maps, strict=True):
            maps[tuple(key)] = values
    checked = 0
    for row in pq.read_table(done.instances).to_pylist():
        if row["condition"] == "none":
            continue
        before, after = (maps[row["study"], row["query"], name] for name in ("none", row["condition"]))
        shares = before / before.sum(), after / after.sum()
        moved = sum(abs(one - other) for one, other in zip(shares[0].ravel(), shares[1].ravel(), strict=True)) / 2
        assert row["moved_mass"] == pytest.approx(moved, abs=1e-5)
        (y, x), (down, across) = (np.unravel_index(int(one.argmax()), one.shape) for one in (before, after))
        assert row["moved_peak"] == pytest.approx(np.hypot((x - across) / 32, (y - down) / 16))
        checked += 1
    assert checked == 4 + 16


def test_maps_on_other_grids_are_compared_where_they_lie_in_the_image() -> None:
    fine = np.zeros((128, 128), dtype=np.float32)
    fine[:64, 64:] = 1.0
    quarter = on_common_grid(np.ones((1, 1), dtype=np.float32), (0.5, 0.0, 1.0, 0.5), None)
    whole = on_common_grid(fine, WHOLE, None)
    box = on_common_grid(None, WHOLE, [{"x0": 0.5, "y0": 0.0, "x1": 1.0, "y1": 0.5, "score": 0.3}])
    assert quarter is not None
    assert whole is not None
    assert box is not None
    assert quarter.shape == (GRID, GRID)
    for other in (whole, box):
        assert moved_mass(quarter, other) == pytest.approx(0.0, abs=1e-6)
        assert moved_peak(quarter, other) == pytest.approx(0.0, abs=1e-9)
    flat = on_common_grid(np.ones((3, 5), dtype=np.float32), WHOLE, None)
    assert flat is not None
    assert moved_mass(flat, quarter) == pytest.approx(0.75, abs=1e-5)
    assert moved_peak(flat, quarter) == pytest.approx(np.hypot(0.25, 0.25))


def test_nothing_in_the_image_has_no_movement() -> None:
    assert on_common_grid(np.zeros((4, 4), dtype=np.float32), WHOLE, None) is None
    assert on_common_grid(np.ones((4, 4), dtype=np.float32), (1.5, 0.0, 2.0, 1.0), None) is None
    assert on_common_grid(None, WHOLE, []) is None
