"""Boxes, texts and finding scores through the pipeline: predictions in, measures with intervals out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.core import Box, Grounding, Phrase, Polarity, Query, Report, ScoredBox, Sentence, Study
from rightlung.measuring import Targets, find_measure, find_protocol, gather_targets, measure, write_instances
from rightlung.predictions import Batch, Prediction
from rightlung.results.aggregates import estimate
from rightlung.results.estimate import BootstrapSettings
from rightlung.scoring.detection import Detections, score
from tests.measuring.made_up import REGIONS, Spots

SETTINGS = BootstrapSettings(resamples=50)
OPACITY = Box(0.25, 0.5, 0.5, 1.0)
HALF = Box(0.25, 0.5, 0.375, 1.0)
REPORTS = [
    "Small left pleural effusion.",
    "Right pleural effusion.",
    "Cardiomegaly.",
    "Lungs are clear.",
    "Edema.",
    "x",
]


class Described(Spots):
    """Spots with a report each, and findings of the left lung."""

    def _build(self, position: int) -> Study:
        study = super()._build(position)
        polarity = Polarity.POSITIVE if position < 2 else Polarity.NEGATIVE
        known = {"left lung": {"edema": polarity, "mass": Polarity.POSITIVE if position == 2 else Polarity.NEGATIVE}}
        return replace(study, report=Report(REPORTS[position]), region_findings=known)


def boxes(*scored: tuple[Box, float, str | None]) -> Grounding:
    return Grounding(boxes=[ScoredBox(*one) for one in scored])


def test_boxes_of_phrases_have_both_mious_and_the_map_of_sentences() -> None:
    targets = gather_targets(Spots())
    given = [
        Prediction("s0", "phrase:1", grounding=boxes((OPACITY, 0.9, None))),
        Prediction("s1", "phrase:1", grounding=boxes((HALF, 0.25, None))),
        Prediction("s2", "phrase:1", grounding=boxes()),
        Prediction.failed("s3", "phrase:1", "none", Query("An opacity."), "planted"),
    ]
    table = measure([Batch.of(given)], targets, find_protocol("chex-sg").applied_to(targets))
    ious = [1.0, 0.5 * 2 / 5, 0.0]  # the half box is used at two of five score thresholds
    assert estimate(table, "box_miou", settings=SETTINGS).value == pytest.approx(np.mean(ious))
    pooled = [(1 + 0.5 + 0) / 3] * 2 + [(1 + 0 + 0) / 3] * 3
    assert estimate(table, "box_miou_pooled", settings=SETTINGS).value == pytest.approx(np.mean(pooled))
    assert table["sentence_map"].to_pylist()[:3] == pytest.approx([1.0, 5 / 7, 0.0])  # IoU 0.5 passes five of seven
    assert np.isnan(table["sentence_map"].to_pylist()[3])
    assert table["reason"].to_pylist()[3] == "no answer: planted"


def test_a_mask_is_a_target_by_the_box_around_it() -> None:
    targets = gather_targets(Spots())
    around = Box(*targets.phrases["s0", "phrase:0"].boxes[0])
    assert around == Box(27 / 40, 5 / 32, 34 / 40, 12 / 32)  # a disc of radius 3 about column 30, row 8
    given = [Prediction("s0", "phrase:0", grounding=boxes((around, 0.9, None)))]
    table = measure([Batch.of(given)], targets, find_protocol("chex-sg").applied_to(targets))
    assert find_measure("sentence_map").value({"sentence_map": table["sentence_map"].to_numpy()}) == 1.0


def test_labelled_boxes_of_images_have_the_map_of_detection_also_from_a_file(tmp_path: Path) -> None:
    gather_targets(Spots(), None, tmp_path / "targets")
    targets = Targets.open(tmp_path / "targets")
    wrong = Box(0.8, 0.0, 1.0, 0.2)
    given = [
        Prediction("s0", "image", grounding=boxes((OPACITY, 0.9, "Lung Opacity"), (wrong, 0.95, "edema"))),
        Prediction("s1", "image", grounding=boxes((wrong, 0.8, "lung opacity"), (OPACITY, 0.1, None))),
        Prediction("s2", "image", grounding=boxes()),
        Prediction.failed("s3", "image", "none", Query(), "planted"),
    ]
    protocol = find_protocol("chex-od").applied_to(targets)
    write_instances(tmp_path / "instances.parquet", measure([Batch.of(given)], targets, protocol), protocol)
    table = pq.read_table(tmp_path / "instances.parquet")
    nodules = [Detections([], [], [Box(*targets.labels[f"s{n}"].boxes["nodule"][0])]) for n in range(3)]
    opacities = [Detections([OPACITY], [0.9], [OPACITY]), Detections([wrong], [0.8], [OPACITY])]
    opacities.append(Detections([], [], [OPACITY]))
    expected = score([*nodules, *opacities], ["nodule"] * 3 + ["opacity"] * 3)
    found = estimate(table, "map", settings=SETTINGS)
    # Edema has no target, so it does not count; one of three opacities is found first: 34 of 101 recall points.
    assert found.value == pytest.approx(expected.map) == pytest.approx(34 / 101 / 2)
    assert estimate(table, "map@70", settings=SETTINGS).value == pytest.approx(expected.by_threshold[-1])
    assert table["reason"].to_pylist().count("no answer: planted") == 2


def test_reports_have_clinical_scores_and_a_missing_package_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pycocoevalcap.meteor.meteor", None)
    targets = gather_targets(Described())
    said = ["Small right pleural effusion.", "Right pleural effusion.", "Cardiomegaly.", "Edema."]
    given = [Prediction(f"s{n}", "image", report=text) for n, text in enumerate(said)]
    protocol = replace(
        find_protocol("whole"), measures=("bleu_1", "meteor", "micro_f1_13", "micro_f1_14", "sided_f1", "macro_mcc_13")
    ).applied_to(targets)
    table = measure([Batch.of(given)], targets, protocol)
    assert estimate(table, "micro_f1_13", settings=SETTINGS).value == pytest.approx(2 * 3 / (4 + 3))
    assert estimate(table, "micro_f1_14", settings=SETTINGS).value == pytest.approx(2 * 3 / (4 + 4))
    assert estimate(table, "sided_f1", settings=SETTINGS).value == pytest.approx(1 / 2)  # one of two sides
    assert estimate(table, "macro_mcc_13", settings=SETTINGS).value == 1.0  # effusion and cardiomegaly; no true edema
    assert estimate(table, "bleu_1", settings=SETTINGS).defined
    assert set(table["reason"].to_pylist()) == {"METEOR needs pycocoevalcap: pip install 'rightlung[language]'"}


def test_regions_have_auroc_weighted_by_positives_and_their_sentences() -> None:
    targets = gather_targets(Described(), region_labels=True)
    assert set(REGIONS) == {query.removeprefix("region:") for study, query in targets.region_labels if study == "s0"}
    scores = [(0.9, 0.1), (0.3, 0.2), (0.5, 0.3), (0.2, 0.4), (0.1, 0.1), (0.1, 0.1)]
    given = [
        Prediction(f"s{n}", "region:left lung", finding_scores={"edema": edema, "mass": mass})
        for n, (edema, mass) in enumerate(scores)
    ]
    given.append(Prediction("s0", "image", finding_scores={"nodule": 0.5}))  # not about a region
    table = measure([Batch.of(given)], targets, find_protocol("chex-rc").applied_to(targets))
    assert set(table["target_kind"].to_pylist()) == {"region label"}
    edema, mass = 7 / 8, 4 / 5  # two positives against four, one against five
    assert estimate(table, "finding_auroc", settings=SETTINGS).value == pytest.approx((edema + mass) / 2)
    assert estimate(table, "finding_auroc_weighted", settings=SETTINGS).value == pytest.approx((2 * edema + mass) / 3)

    told = [Prediction("s0", "region:right lung", sentences=(Sentence("An opacity."), Sentence("No effusion.")))]
    protocol = replace(find_protocol("chex-re"), measures=("bleu_4", "micro_f1_14")).applied_to(targets)
    table = measure([Batch.of(told)], targets, protocol)
    assert table["reference_text"].to_pylist() == ["An opacity. No effusion."]
    assert estimate(table, "bleu_4", settings=SETTINGS).value == pytest.approx(1.0)


def test_for_the_place_of_a_phrase_findings_that_it_does_not_assert_are_absent() -> None:
    targets = gather_targets(Spots())
    given = [Prediction("s0", "phrase:1", finding_scores={"lung opacity": 0.8, "edema": 0.1})]
    protocol = replace(find_protocol("chex-rc"), queries=("phrase",)).applied_to(targets)
    rows = measure([Batch.of(given)], targets, protocol).to_pylist()
    assert {row["target"]: row["finding_label"] for row in rows} == {"lung opacity": 1.0, "edema": 0.0}


def test_the_text_rule_and_the_kind_of_query_change_the_hash_of_a_protocol() -> None:
    audit = find_protocol("audit")
    assert replace(audit, text="whole").hash != audit.hash != replace(audit, queries=("region",)).hash
    assert find_protocol("r2gen").hash != find_protocol("whole").hash


def test_target_boxes_of_a_phrase_without_a_target_are_empty() -> None:
    assert Phrase("No effusion.").target_boxes == ()
