from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from rightlung.audit import Sureness, audit
from rightlung.audit.instances import SCHEMA, peak_of
from rightlung.audit.pixels import painted, upsampled
from rightlung.audit.targets import Target, side_of_target, size_class, target_pixels
from rightlung.core import Box, Extent, Grounding, Heatmap, Mask, Phrase, Query, ScoredBox, Study
from rightlung.predictions import Prediction, PredictionWriter
from tests.audit.cards import SIDE, Cards, disc, write_answers

QUICK = Sureness(resamples=200)


@pytest.mark.parametrize("extent", [Extent(), Extent(-0.2, 0.0, 1.2, 1.0), Extent(0.3, 0.4, 0.7, 0.9)])
@pytest.mark.parametrize("size", [(64, 64), (37, 51), (5, 3)])
def test_maps_are_upsampled_as_heatmaps_are_but_for_the_scale(extent: Extent, size: tuple[int, int]) -> None:
    values = np.random.default_rng(0).random((7, 9), dtype=np.float32) * 5
    expected = Heatmap(values, extent).to_size(size, keep_mass=False) / values.max()
    assert np.allclose(upsampled(values, extent.as_tuple(), size), expected, atol=1e-6)


def test_a_peak_between_all_pixel_centres_is_not_lost() -> None:
    values = np.zeros((9, 9), dtype=np.float32)
    values[4, 4] = 1.0
    assert upsampled(values, (0.0, 0.0, 1.0, 1.0), (2, 2)).sum() > 0


def test_scores_are_scikit_learns(tmp_path: Path) -> None:
    source, rng = Cards(8), np.random.default_rng(3)
    maps: dict[tuple[str, str], Heatmap] = {}

    def answer(study: Study, phrase: Phrase, text: str) -> Heatmap:
        heatmap = Heatmap(rng.random((12, 10)), Extent(-0.1, 0.0, 1.1, 1.0))
        maps[study.id, text] = heatmap
        return heatmap

    folder = write_answers(source, tmp_path / "p", answer, conditions=("none",))
    done = audit(folder, source, tmp_path / "out", sureness=QUICK, cases=0)
    rows = pq.read_table(done.instances).to_pylist()
    assert len(rows) == 32
    checked = 0
    for row in rows:
        mask = source.study(row["study"]).phrases[int(row["query"][-1])].mask
        if mask is None:
            assert row["reason"] == "no target"
            assert np.isnan(row["auroc"])
            continue
        pixels = maps[row["study"], row["asked"]].to_size(mask.size).ravel()
        assert row["auroc"] == pytest.approx(roc_auc_score(mask.pixels.ravel(), pixels), abs=1e-6)
        assert row["average_precision"] == pytest.approx(average_precision_score(mask.pixels.ravel(), pixels), abs=1e-6)
        peaks = np.argwhere(np.isclose(pixels.reshape(mask.size), pixels.max(), rtol=1e-6))  # ties at the border
        y, x = (peaks.mean(axis=0) + 0.5) / SIDE
        assert row["pointing"] == pytest.approx(np.mean([mask.pixels[down, across] for down, across in peaks]))
        assert (row["peak_x"], row["peak_y"]) == pytest.approx((x, y))
        assert row["peak_side"] == ("left" if x > 0.5 else "right")
        checked += 1
    assert checked == 24


def test_the_table_says_what_was_asked_and_what_is_true(tmp_path: Path) -> None:
    source = Cards(6)
    folder = write_answers(source, tmp_path / "p", lambda *_: Heatmap(np.eye(4)))
    done = audit(folder, source, tmp_path / "out", sureness=QUICK, cases=0)
    table = pq.read_table(done.instances)
    assert table.schema.names == SCHEMA.names
    assert table.schema.metadata[b"rightlung.note"].startswith(b"Not a medical device")
    rows = {(row["study"], row["query"], row["condition"]): row for row in table.to_pylist()}
    for (study, query, condition), row in rows.items():
        phrase = source.study(study).phrases[int(query[-1])]
        assert row["phrase"] == phrase.text
        assert (row["asked"] != phrase.text) == (condition == "swap-sides")
        if condition == "swap-sides":
            assert {row["side_asked"], row["side_named"]} == {"left", "right"}
        if query == "phrase:0":
            assert row["target_side"] == row["side_named"]
            assert row["target_kind"] == "exact mask"
            assert phrase.mask is not None
            assert row["target_area"] == phrase.mask.area
        if query == "phrase:2":
            assert (row["target_side"], row["side_named"]) == ("midline", "none")


def target(side: str, midline: float = 0.5) -> Target:
    return Target("s", "phrase:0", "p", "x", (), "none", (), "none", midline, side=side)  # type: ignore[arg-type]


def test_tied_peaks_share_the_side_and_an_empty_map_has_no_peak() -> None:
    flat = np.ones((4, 8), dtype=np.float32)
    assert peak_of(flat, target("left"))["peak_on_side"] == 0.5
    assert peak_of(flat, target("left", midline=0.25))["peak_on_side"] == 0.75
    assert peak_of(flat, target("midline"))["peak_on_side"] != peak_of(flat, target("midline"))["peak_on_side"]  # NaN
    nothing = peak_of(np.zeros((4, 8), dtype=np.float32), target("right"))
    assert nothing["peak_side"] is None
    assert nothing["peak_on_side"] == 0.5


def test_targets_have_sides_and_sizes() -> None:
    left, right = disc(48, 30, 4), disc(12, 30, 4)
    assert side_of_target(left, 0.5) == "left"  # the patient's left is the image's right
    assert side_of_target(right, 0.5) == "right"
    assert side_of_target(left | right, 0.5) == "both"
    assert side_of_target(disc(32, 30, 6), 0.5) == "midline"
    assert side_of_target(disc(32, 30, 6), 0.2) == "left"  # a rotated patient's middle lies elsewhere
    assert [size_class(area) for area in (0.0099, 0.01, 0.0499, 0.05)] == ["small", "medium", "medium", "large"]


def test_boxes_are_targets_too_and_their_kind_is_told() -> None:
    box = Box(0.25, 0.5, 0.5, 1.0)
    pixels, kind = target_pixels(Phrase("x", boxes=(box,), findings={"mass": "positive"}))  # type: ignore[dict-item]
    assert kind == "finding boxes"
    assert pixels is not None
    assert pixels.mean() == box.area
    assert target_pixels(Phrase("x", boxes=(box,)))[1] == "region boxes"
    assert target_pixels(Phrase("x", boxes=(box,), mask=Mask(disc(9, 9, 2))))[1] == "exact mask"
    assert target_pixels(Phrase("x", mask=Mask(np.zeros((4, 4))))) == (None, None)


def test_answers_of_boxes_alone_are_painted_with_their_scores() -> None:
    box = {"x0": 0.0, "y0": 0.0, "x1": 0.5, "y1": 1.0, "score": 0.2}
    better = {"x0": 0.25, "y0": 0.0, "x1": 0.75, "y1": 1.0, "score": 0.9}
    expected = np.tile(np.array([0.2, 0.9, 0.9, 0.0], dtype=np.float32), (4, 1))
    assert np.array_equal(painted([better, box], (4, 4)), expected)
    assert painted([{**box, "score": -3.0}], (4, 4)).max() == 1.0
    assert painted([], (4, 4)).max() == 0.0


def test_detectors_and_failures_are_scored_as_what_they_are(tmp_path: Path) -> None:
    source = Cards(6)
    with PredictionWriter(tmp_path / "p", source="cards", model="m") as writer:
        for study in source:
            mask = study.phrases[0].mask
            assert mask is not None
            box = mask.box()
            assert box is not None
            grounding = Grounding(boxes=[ScoredBox(box, 0.7)])
            writer.write(Prediction(study.id, "phrase:0", asked=Query(study.phrases[0].text), grounding=grounding))
            writer.write(Prediction(study.id, "phrase:1", asked=Query("x"), similarity_global=0.25))
            writer.write(Prediction.failed(study.id, "phrase:2", "none", Query("y"), "out of memory"))
            writer.write(Prediction(study.id, "image", similarity_global=0.5))
    done = audit(tmp_path / "p", source, tmp_path / "out", sureness=QUICK, cases=1)
    rows = {row["query"]: row for row in pq.read_table(done.instances).to_pylist()}
    assert set(rows) == {"phrase:0", "phrase:1", "phrase:2"}
    mask = source.study(rows["phrase:0"]["study"]).phrases[0].mask
    assert mask is not None
    box = mask.box()
    assert box is not None
    assert rows["phrase:0"]["pointing"] == pytest.approx(mask.area / box.area)  # all of the box is the peak
    assert rows["phrase:1"]["reason"] == "neither a map nor boxes"
    assert rows["phrase:1"]["similarity_global"] == 0.25
    assert rows["phrase:2"]["reason"] == "no answer: out of memory"
    assert any("6 rows ask something else" in note for note in done.result["notes"])
    assert done.result["overall"]["auroc"]["model"]["phrases"] == 6
