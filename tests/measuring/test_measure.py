from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from rightlung.core import Box, Extent, Grounding, Heatmap, Phrase, Query, ScoredBox, Study
from rightlung.explain import side_of_peak
from rightlung.measuring import (
    Measure,
    Targets,
    find_protocol,
    gather_targets,
    measure,
    prepare_studies,
    register_measure,
    write_instances,
)
from rightlung.measuring.maps import to_pixels
from rightlung.measuring.measures import MEASURES, MapsAndMasks
from rightlung.predictions import Batch, Prediction
from rightlung.scoring.localisation import METRICS
from tests.measuring.made_up import REGIONS, SIZE, Spots, answers, every_phrase

AUDIT, WRONG_LUNG = find_protocol("audit"), find_protocol("wrong-lung")


def noise(study: Study, phrase: Phrase, condition: str) -> Heatmap | None:
    rng = np.random.default_rng([*f"{study.id} {phrase.text} {condition}".encode()])
    if rng.random() < 0.1:
        return None
    values = rng.random((6, 5)) ** 3
    return Heatmap(np.ones((6, 5)) if rng.random() < 0.1 else values, Extent(-0.1, 0.0, 1.1, 1.0), float(rng.random()))


@pytest.fixture
def own() -> Targets:
    source = Spots()
    return gather_targets(source, every_phrase(source))


def test_scores_are_scikit_learns_on_the_pixels_of_the_target(own: Targets) -> None:
    source = Spots()
    predictions = answers(source, noise)
    rows = measure(predictions, own, AUDIT.applied_to(own)).to_pylist()
    assert len(rows) == 24
    checked = failed = 0
    for row in rows:
        study = source.study(row["study"])
        phrase = study.phrases[int(row["query"][-1])]
        heatmap = noise(study, phrase, "none")
        if heatmap is None:
            assert row["reason"] == "no answer: planted"
            assert np.isnan(row["auroc"])
            failed += 1
        elif phrase.mask is None:
            assert (row["reason"] == "no target") == (row["target_kind"] is None) == np.isnan(row["auroc"])
        else:
            truth, pixels = phrase.mask.pixels.ravel(), heatmap.to_size(SIZE).ravel()
            assert row["auroc"] == pytest.approx(roc_auc_score(truth, pixels), abs=1e-6)
            assert row["average_precision"] == pytest.approx(average_precision_score(truth, pixels), abs=1e-6)
            assert row["mass_inside"] == pytest.approx(pixels[truth].sum() / pixels.sum(), abs=1e-6)
            assert row["scored_pixels"] == SIZE[0] * SIZE[1]
            assert row["abstention"] == pytest.approx(heatmap.abstention)
            checked += 1
    assert checked >= 4
    assert failed >= 1


def test_the_peak_is_on_a_side_and_the_row_says_what_was_asked(own: Targets) -> None:
    values = np.zeros((8, 8), np.float32)
    values[2, 6] = 1.0
    predictions = answers(Spots(), lambda *_: Heatmap(values))
    rows = measure(predictions, own, AUDIT.applied_to(own)).to_pylist()
    for row in rows:
        if row["query"] == "phrase:0":
            assert row["peak_side"] == "left"  # the patient's left is the image's right
            assert row["peak_on_side"] == float(row["target_side"] == "left")
            assert row["side_named"] == row["side_asked"] == row["target_side"]
            assert (row["peak_x"], row["peak_y"]) == pytest.approx((6.5 / 8, 2.5 / 8), abs=0.02)
            assert (row["findings"], row["polarity"]) == (["nodule"], "positive")
        assert row["grid_entropy"] == 0.0
        assert row["target"] == "own"
    nothing = answers(Spots(), lambda *_: Heatmap(np.zeros((2, 2))))
    empty = measure(nothing, own, AUDIT.applied_to(own)).to_pylist()[0]
    assert (empty["peak_side"], empty["peak_on_side"], np.isnan(empty["grid_entropy"])) == (None, 0.5, True)
    flat = answers(Spots(), lambda *_: Heatmap(np.full((2, 2), 0.7)))
    row = measure(flat, own, AUDIT.applied_to(own)).to_pylist()[0]
    assert (row["peak_side"], row["peak_on_side"]) == (side_of_peak(Heatmap(np.full((2, 2), 0.7))), 0.5)
    assert np.isnan([row["peak_x"], row["peak_y"]]).all()
    table = measure([], own, AUDIT.applied_to(own))
    assert table.num_rows == 0
    assert {"auroc", "moved_mass", "kl_random"} <= set(table.schema.names)


def test_boxes_and_answers_without_a_place_are_measured_as_what_they_are(own: Targets) -> None:
    given, areas = [], []
    for study in Spots():
        mask = study.phrases[0].mask
        assert mask is not None
        box = mask.box() or Box(0, 0, 1, 1)
        areas.append(mask.area / box.area)
        grounding = Grounding(boxes=[ScoredBox(box, 0.7)])
        given += [
            Prediction(study.id, "phrase:0", asked=Query(study.phrases[0].text), grounding=grounding),
            Prediction(study.id, "phrase:1", asked=Query("x"), similarity_global=0.25),
            Prediction(study.id, "image", similarity_global=0.5),  # not a phrase of the source
        ]
    rows = measure([Batch.of(given)], own, AUDIT.applied_to(own)).to_pylist()
    assert len(rows) == 12
    assert [row["pointing"] for row in rows[::2]] == pytest.approx(areas)  # all of the box is the peak
    assert rows[-1]["reason"] == "neither a map nor boxes"
    assert (rows[-1]["similarity_global"], rows[-1]["asked"]) == (0.25, "x")


def test_every_target_of_the_protocol_gets_a_row_and_moved_ones_under_no_condition(tmp_path: Path) -> None:
    source, targets = prepare_studies(Spots(), tmp_path / "kept", WRONG_LUNG, pixels=24)
    predictions = answers(source, noise, ("none", "swap-sides"))
    rows = measure(predictions, targets, WRONG_LUNG.applied_to(targets)).to_pylist()
    found: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        found.setdefault((row["study"], row["query"], row["condition"]), set()).add(row["target"])
        phrase = targets.phrases[row["study"], row["query"]]
        assert row["target_area"] == phrase.masks[row["target"]].area
        assert (row["abnormal"], row["mdrb"]) == (phrase.columns["abnormal"], phrase.columns["mdrb"])
    assert len(found) == 6 * 3 * 2  # the phrases without a region are passed over
    for (study, query, condition), names in found.items():
        masks = targets.phrases[study, query].masks
        assert names == {name for name in masks if condition == "none" or "-" not in name}


@pytest.mark.parametrize("protocol", ["audit", "wrong-lung"])
def test_tensors_on_a_device_give_the_same_table_as_arrays(protocol: str) -> None:
    source = Spots()
    chosen = find_protocol(protocol)
    options = {"rules": chosen.rules, "pixels": chosen.pixels and 24, "subsets": chosen.subsets}
    targets = gather_targets(source, every_phrase(source), **options)  # type: ignore[arg-type]
    predictions, applied = answers(source, noise, ("none", "random-sentence")), chosen.applied_to(targets)
    arrays, tensors = (measure(predictions, targets, applied, device=one) for one in ("cpu", torch.device("cpu")))
    assert arrays.schema == tensors.schema
    for name in arrays.schema.names:
        one, other = arrays.column(name).to_pylist(), tensors.column(name).to_pylist()
        if isinstance(one[0], float):
            assert np.allclose(one, other, atol=1e-6, equal_nan=True), name
        else:
            assert one == other, name


def test_an_equal_map_against_the_same_mask_is_scored_once(own: Targets, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = ("none", "swap-sides", "exchange-image")
    predictions = answers(Spots(), lambda *_: Heatmap(np.eye(5)), conditions)
    scored: list[int] = []

    def counted(maps: Any, *rest: Any) -> Any:
        scored.append(len(maps))
        return to_pixels(maps, *rest)

    monkeypatch.setattr("rightlung.measuring.run.to_pixels", counted)
    rows = measure(predictions, own, AUDIT.applied_to(own)).to_pylist()
    assert scored == [1, 1]  # one map, on two sizes of targets
    by_condition = {name: [row["auroc"] for row in rows if row["condition"] == name] for name in conditions}
    assert np.array_equal(by_condition["none"], by_condition["exchange-image"], equal_nan=True)


def test_a_model_that_is_shown_regions_has_the_entropy_of_its_shares_of_them(own: Targets) -> None:
    boxes = [ScoredBox(REGIONS["left lung"], 0.5, "left lung"), ScoredBox(REGIONS["right lung"], 0.5, "right lung")]
    shown = {"s0": boxes, "s1": [ScoredBox(Box(0, 0, 1, 1), 0.5, "nodule")]}
    given = [
        Prediction(name, "phrase:0", asked=Query("x"), grounding=Grounding(Heatmap(np.ones((4, 4))), found))
        for name, found in shown.items()
    ]
    rows = measure([Batch.of(given)], own, AUDIT.applied_to(own)).to_pylist()
    assert [row["grid_entropy"] for row in rows] == pytest.approx([np.log(2), np.log(16)])


def test_findings_of_whole_images_become_rows_with_score_and_label() -> None:
    source = Spots()
    targets = gather_targets(source, {study: [] for study in source.ids})
    known = {"edema": 0.5, "mass": 0.5}  # edema is uncertain, mass is not known
    scores = [{"Nodule": number / 10, **known} for number in range(6)]
    given = [Prediction(study, "image", finding_scores=one) for study, one in zip(source.ids, scores, strict=True)]
    table = measure([Batch.of(given)], targets, find_protocol("classification").applied_to(targets))
    assert table.column("target").to_pylist() == ["nodule"] * 6
    assert table.column("finding_label").to_pylist() == [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    columns = {name: table.column(name).to_numpy() for name in ("target", "finding_score", "finding_label")}
    expected = roc_auc_score(columns["finding_label"], columns["finding_score"])
    assert MEASURES["finding_auroc"].value(columns) == pytest.approx(expected)


def test_a_measure_of_ones_own_gets_a_column(own: Targets) -> None:
    def mean(pairs: MapsAndMasks, names: Any) -> dict[str, Any]:
        return {"brightness": pairs.maps.mean(axis=(1, 2))}

    register_measure(Measure("brightness", "brightness", "Mean of the map.", None, (0, 1), statistics=mean))
    protocol = replace(AUDIT.applied_to(own), measures=("auroc", "brightness"))
    predictions = answers(Spots(), lambda *_: Heatmap(np.ones((3, 3))))
    table = measure(predictions, own, protocol)
    assert table.column("brightness")[0].as_py() == 1.0
    assert {"auroc", "cnr"} & set(table.schema.names) == {"auroc"}
    del MEASURES["brightness"]


def test_tables_are_written_with_their_protocol_and_rounded_where_it_says_so(own: Targets, tmp_path: Path) -> None:
    protocol = AUDIT.applied_to(own)
    table = measure(answers(Spots(), noise), own, protocol)
    write_instances(tmp_path / "out" / "a.parquet", table, protocol, "made up", {"rightlung.about": "{}"})
    back = pq.read_table(tmp_path / "out" / "a.parquet")
    assert back.schema.equals(table.schema)
    assert np.array_equal(back.column("auroc").to_numpy(), table.column("auroc").to_numpy(), equal_nan=True)
    notes = back.schema.metadata
    assert json.loads(notes[b"rightlung.protocol"])["hash"] == protocol.hash
    assert (notes[b"rightlung.model"], notes[b"rightlung.about"]) == (b"made up", b"{}")
    assert notes[b"rightlung.note"].startswith(b"Not a medical device")
    write_instances(tmp_path / "b.parquet", table, replace(protocol, decimals=2))
    rounded = pq.read_table(tmp_path / "b.parquet")
    for name in METRICS:
        expected = np.round(table.column(name).to_numpy(), 2).astype(np.float32)
        assert np.array_equal(rounded.column(name).to_numpy(), expected, equal_nan=True)
