from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.asking import ask
from rightlung.audit import TaskAudit, audit_tasks
from rightlung.audit.tasks import TASKS
from rightlung.core import InputError, Polarity, Report, Study
from rightlung.lexicon import swap_sides
from rightlung.measuring import BoxSettings
from rightlung.models.base import Similarities
from rightlung.models.blind import fold_of
from rightlung.predictions import open_predictions
from rightlung.results.estimate import BootstrapSettings
from rightlung.scoring.retrieval import ranks, recall_at
from tests.audit.oracle import BoxesOnly, Oracle, Ward

QUICK = BootstrapSettings(resamples=100)


def run(folder: Path, tasks: list[str], source: Any = None, scale: float = 1.0, **options: Any) -> TaskAudit:
    given = {"settings": QUICK, "name": "oracle"} | options
    return audit_tasks(Oracle(scale), source or Ward(), folder, tasks, **given)


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)


def test_a_model_that_knows_the_truth_detects_everything(tmp_path: Path) -> None:
    done = run(tmp_path, ["detection"])
    found = done.result["tasks"]["detection"]
    assert done.result["map"] == found["map"] == pytest.approx(1.0)
    assert found["classes"] == ["cardiomegaly", "nodule"]
    assert found["without_cardiomegaly"]["map"] == pytest.approx(1.0)
    assert {name: one["model"]["estimate"] for name, one in found["by_class"].items()} == pytest.approx(
        {"cardiomegaly": 1.0, "nodule": 1.0}
    )
    assert found["measures"]["map"]["instances"] == 12 * 2  # each class of each image is a row
    assert found["boxes"] == {"tuned_on": None, "nms": 0.25, "merge": False, "scale": {}}
    assert json.loads((tmp_path / "audit.json").read_text())["map"] == pytest.approx(1.0)
    assert "Detection of findings" in done.page.read_text()
    assert set(pq.read_table(tmp_path / "instances-detection.parquet")["condition"].to_pylist()) == {
        "none", "blind-constant", "blind-random",
    }  # fmt: skip


def test_the_blind_baseline_of_detection_knows_where_but_not_when(tmp_path: Path) -> None:
    found = run(tmp_path, ["detection"]).result["tasks"]["detection"]["by_class"]["cardiomegaly"]
    # The heart is always at one place, so every box hits where there is a target: 4 of 12 images, the first of three
    # each. With equal scores the ranking is that of the studies, and the highest precision from a recall on is 1, 2/4,
    # 3/7, 4/10 where the first, second, third, fourth is found: 26, 25, 25 and 25 of the 101 recalls.
    expected = (26 * 1 + 25 * 2 / 4 + 25 * 3 / 7 + 25 * 4 / 10) / 101
    assert found["blind-constant"]["estimate"] == pytest.approx(expected)


def test_cross_validation_undoes_a_wrong_scale(tmp_path: Path) -> None:
    half = run(tmp_path / "a", ["detection"], scale=0.5)
    assert half.result["map"] == pytest.approx(2 / 7)  # IoU 0.25: matches at 0.1 and 0.2
    options: dict[str, Any] = {"boxes": BoxSettings(merge=True), "tune": "cross-validate"}
    done = run(tmp_path / "b", ["detection"], scale=0.5, **options)
    found = done.result["tasks"]["detection"]
    assert done.result["map"] == pytest.approx(1.0)
    assert len(found["boxes"]["folds"]) == 5
    assert all(fold["scale"] == {"cardiomegaly": 1.7, "nodule": 1.7} for fold in found["boxes"]["folds"])
    assert "cross-validated over 5 folds" in found["boxes"]["tuned_on"]
    assert "cross-validated over 5 folds" in done.page.read_text()


def test_tuning_on_a_named_source_stores_what_was_tuned_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rightlung.audit.task_run.open_source", lambda address: BoxesOnly(8, address, first=100))
    done = run(tmp_path, ["detection", "grounding"], scale=0.5, tune="other")
    boxes = {name: one["boxes"] for name, one in done.result["tasks"].items()}
    assert boxes["detection"]["tuned_on"] == "other"
    assert boxes["detection"]["scale"] == {"cardiomegaly": 1.7, "nodule": 1.7}
    assert boxes["grounding"]["scale"] == {"": 1.7}
    assert {one["protocol"]["box_settings"] for one in done.result["tasks"].values()} == {
        "NMS and scale tuned on other"
    }


def test_tuning_on_the_patients_that_are_measured_is_refused_or_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="use --tune cross-validate"):
        run(tmp_path, ["detection"], tune="ward")
    monkeypatch.setattr("rightlung.audit.task_run.open_source", lambda address: BoxesOnly(8, address, first=6))
    (problem,) = run(tmp_path, ["detection"], tune="other").result["problems"]
    assert problem.startswith("3 patients of ward are also in other")  # p3 to p6 there, p0 to p5 here


@pytest.mark.usefixtures("no_java")
def test_every_task_of_a_source_that_has_the_targets(tmp_path: Path) -> None:
    done = run(tmp_path, [*TASKS], train=Ward(20, "taught", first=100))
    tasks = done.result["tasks"]
    assert done.result["missing"] == {}
    assert done.result["problems"] == []
    assert tasks["grounding"]["box_miou"] == pytest.approx(1.0)
    assert tasks["grounding"]["sentence_map"] == pytest.approx(1.0)
    assert tasks["classification"]["finding_auroc"] == pytest.approx(1.0)
    assert tasks["probe"]["finding_auroc"] == pytest.approx(1.0)
    for way in ("regions", "finding-boxes"):
        found = tasks["region-classification"][way]
        assert found["finding_auroc"] == pytest.approx(1.0)
        (blind,) = found["blind"].values()
        known = {name: one["estimate"] for name, one in blind["measures"].items() if name in blind["difference"]}
        assert {name: one["estimate"] for name, one in blind["difference"].items()} == pytest.approx(
            {name: 1.0 - value for name, value in known.items()}
        )
        assert tasks["region-description"][way]["micro_f1_14"] == pytest.approx(1.0)
    assert tasks["region-description"]["finding-boxes"]["measures"]["bleu_4"]["estimate"] == pytest.approx(1.0)
    assert tasks["report"]["measures"]["rouge_l"]["estimate"] == pytest.approx(1.0)
    assert tasks["report"]["blind"]["blind-frequent"]["measures"]["rouge_l"]["estimate"] < 1.0


def test_the_blind_baseline_of_regions_and_boxes_knows_how_often_findings_are_there(tmp_path: Path) -> None:
    class LeftWard(Ward):
        """The nodule is on the left in five of six studies; with one study to a patient."""

        def _build(self, position: int) -> Study:
            left = position % 6 != 5
            study = super()._build(2 * position + (not left))
            return replace(study, id=f"s{position}", patient=f"p{position}")

    done = run(tmp_path, ["region-classification"], LeftWard(60), overwrite=True)
    rows = {one.part.name: one.table.to_pylist() for one in done.parts}
    blind = {name: [row for row in own if row["condition"].startswith("blind")] for name, own in rows.items()}
    assert {row["condition"] for row in blind["regions"]} == {"blind-frequency"}
    assert {row["condition"] for row in blind["finding-boxes"]} == {"blind-nearby"}
    tasks = done.result["tasks"]["region-classification"]
    # 50 of 60 left lungs and 10 of 60 right ones have a nodule: AUROC 5/6, but for small differences between folds.
    found = tasks["regions"]["blind"]["blind-frequency"]["measures"]["finding_auroc"]["estimate"]
    assert found == pytest.approx(5 / 6, abs=0.06)
    # Hearts and nodules lie at different places.
    assert tasks["finding-boxes"]["blind"]["blind-nearby"]["measures"]["finding_auroc"]["estimate"] == 1.0
    assert done.result["baselines"]["classify"] == {
        "blind-frequency": "frequency of each finding in the region",
        "blind-nearby": "frequency of each finding in boxes nearby",
    }


@pytest.mark.usefixtures("no_java")
def test_meteor_without_java_is_undefined_and_says_why(tmp_path: Path) -> None:
    found = run(tmp_path, ["report"]).result["tasks"]["report"]
    assert math.isnan(found["meteor"])
    assert json.loads((tmp_path / "audit.json").read_text())["tasks"]["report"]["meteor"] is None
    assert any("Java" in note for note in found["notes"])


@pytest.mark.usefixtures("no_java")
def test_a_source_that_lacks_a_target_is_said_to(tmp_path: Path) -> None:
    done = run(tmp_path, ["detection", "report", "region-explanation"], BoxesOnly())
    assert [*done.result["missing"]] == ["region-description-regions", "report"]
    assert done.result["missing"]["report"] == "Report generation: not measured, because ward lacks reports"
    assert "lacks reports" in done.page.read_text()
    with pytest.raises(InputError, match="ward lacks reports"):
        run(tmp_path, ["report"], BoxesOnly())


def test_the_median_box_comes_from_other_patients(tmp_path: Path) -> None:
    done = run(tmp_path, ["grounding"])
    table = done.parts[0].table
    rows = [row for row in table.to_pylist() if row["condition"] == "blind-median" and "Nodule" in row["phrase"]]
    folds = {fold_of(row["patient"]) for row in rows}
    assert len(folds) > 1
    assert all(row["sentence_map"] == 1.0 for row in rows)  # the words name the side, and the side the place


def test_showing_another_image_is_a_condition(tmp_path: Path) -> None:
    found = run(tmp_path, ["detection"], conditions=["none", "exchange-image"]).result["tasks"]["detection"]
    changed = found["conditions"]["exchange-image"]
    assert changed["measures"]["map"]["estimate"] < 1.0
    assert changed["difference"]["map"]["estimate"] == pytest.approx(changed["measures"]["map"]["estimate"] - 1.0)


def test_predictions_are_measured_without_the_model(tmp_path: Path) -> None:
    ask(Oracle(), Ward(), tmp_path / "p", queries=["image"], method="detect", findings=["cardiomegaly", "nodule"])
    done = audit_tasks(open_predictions(tmp_path / "p"), Ward(), tmp_path / "out", ["detection", "grounding"])
    assert done.result["map"] == pytest.approx(1.0)
    assert "hold no answers" in done.result["missing"]["grounding"]
    with pytest.raises(InputError, match="needs a model"):
        audit_tasks(open_predictions(tmp_path / "p"), Ward(), tmp_path / "out", ["detection"], tune="other")


def test_a_model_without_the_method_and_an_unknown_task_are_refused(tmp_path: Path) -> None:
    class Silent:
        def report(self, images: Any) -> Any:
            return []

    with pytest.raises(InputError, match="task detection: Silent has no method detect"):
        audit_tasks(Silent(), Ward(), tmp_path, ["detection"])
    with pytest.raises(InputError, match="task"):
        audit_tasks(Oracle(), Ward(), tmp_path, ["detect"])


def test_retrieval_is_compared_with_chance_and_with_frequent_reports(tmp_path: Path) -> None:
    found = run(tmp_path, ["retrieval"]).result["tasks"]["retrieval"]
    for direction in ("image-to-text", "text-to-image"):
        assert found[direction]["recall@1"] == 1.0
        assert found[direction]["measures"]["median_rank"]["estimate"] == 1.0
        assert found[direction]["measures"]["recall@1"]["instances"] == 12
    blind = {name: one["blind"]["blind-frequent"]["measures"] for name, one in found.items()}
    # Four studies each have the reports "left" and "right", two each those with a large heart: four distinct reports.
    # By frequency, the first two places are a tie of both frequent ones, and the last two one of the others.
    expected = {"recall@1": 8 / 12 * 1 / 2, "recall@5": 1.0, "median_rank": np.median(8 * [1.5] + 4 * [3.5])}
    assert {name: blind["image-to-text"][name]["estimate"] for name in expected} == pytest.approx(expected)
    chances = found["image-to-text"]["blind"]["blind-chance"]["measures"]
    assert chances["recall@1"]["estimate"] == pytest.approx(1 / 4)
    assert np.isnan(chances["recall@1_once"]["estimate"])  # no report occurs once
    chance = (8 * 4 / 12 + 4 * 2 / 12) / 12
    assert blind["text-to-image"]["recall@1"]["estimate"] == pytest.approx(chance)


def test_a_pool_adds_candidates_and_the_frequency_of_other_patients_reports(tmp_path: Path) -> None:
    class Pooled(Ward):
        """The same 12 studies, and 48 of other patients, one in four of which has a report of its own."""

        def _build(self, position: int) -> Study:
            study = super()._build(position)
            if position < 12 or position % 4:
                return study
            return replace(study, report=Report(f"{study.report.text} Number {position}.") if study.report else None)

    class Embedding:
        encode_image = Oracle().encode_image

        def encode_text(self, texts: Any) -> Any:
            own = [text.partition(" Number ")[0] for text in texts]
            vectors = Oracle().encode_text(own)
            return vectors + 0.01 * np.array([[" Number " in text] for text in texts])

    pool = Pooled(60, "pool")
    done = audit_tasks(Embedding(), Ward(), tmp_path, ["retrieval"], settings=QUICK, pool=pool)
    found = done.result["tasks"]["retrieval"]
    texts = [str(study.report.text) for study in pool if study.report is not None]
    own, other = texts[:12], texts[12:]
    about = found["image-to-text"]["pool"]
    assert (about["source"], about["candidates"]) == ("pool", len({*texts}))
    assert about["reports_of_other_patients"] == 48
    assert len({*texts}) > len({*own}) + 10
    assert found["image-to-text"]["recall@1"] == 1.0
    # The blind answer: texts by their number of occurrences among other patients, ties in random order.
    counts = Counter(other)
    relevant = np.array([[text == one for one in dict.fromkeys(texts)] for text in own])
    frequencies = np.array([[counts[one] for one in dict.fromkeys(texts)]] * 12)
    blind = found["image-to-text"]["blind"]["blind-frequent"]["measures"]
    for k in (1, 5, 10):
        assert blind[f"recall@{k}"]["estimate"] == pytest.approx(recall_at(frequencies, relevant, k).mean())
    assert blind["median_rank"]["estimate"] == pytest.approx(np.median(ranks(frequencies, relevant)))
    chance = found["image-to-text"]["blind"]["blind-chance"]["measures"]
    assert chance["recall@5"]["estimate"] == pytest.approx(5 / len({*texts}))
    corrected = found["image-to-text"]["conditions"]["prior-corrected"]["measures"]
    assert corrected["recall@1"]["instances"] == 12
    assert about["prior"]["log_frequency"] == 0  # this embedding finds every text without a correction
    assert "conditions" in found["text-to-image"]
    assert found["text-to-image"]["conditions"] == {}  # the frequency of a text orders no images
    assert "pool" in done.page.read_text()
    alone = audit_tasks(Embedding(), Ward(), tmp_path / "b", ["retrieval"], settings=QUICK).result["tasks"]["retrieval"]
    assert alone["image-to-text"]["protocol"]["hash"] != found["image-to-text"]["protocol"]["hash"]
    same = audit_tasks(Embedding(), Ward(), tmp_path / "c", ["retrieval"], settings=QUICK, pool=Ward())
    assert any("no prior correction" in problem for problem in same.result["problems"])
    with pytest.raises(InputError, match="--pool applies to --task retrieval"):
        audit_tasks(Oracle(), Ward(), tmp_path / "d", ["detection"], pool=pool)


def test_a_model_that_only_compares_retrieves_as_one_that_embeds(tmp_path: Path) -> None:
    class Matching:
        def similarity(self, images: Any, texts: Any) -> Similarities:
            oracle = Oracle()
            return Similarities(5 * oracle.encode_image(images) @ oracle.encode_text(texts).T)

    class Embedding:
        encode_image, encode_text = Oracle().encode_image, Oracle().encode_text

    given: dict[str, Any] = {"settings": QUICK, "conditions": ["none", "exchange-image"]}
    # Dot products order images and texts otherwise than cosines: a text without a heart fits an image with one as well.
    found = audit_tasks(Matching(), Ward(), tmp_path / "a", ["retrieval"], **given).result["tasks"]["retrieval"]
    image = text = Oracle().encode_image([study.image for study in Ward()])
    numbers = [number % 6 if number % 3 == 0 else number % 2 + 1 for number in range(12)]  # the kinds of reports
    same = np.equal.outer(numbers, numbers)
    first = np.unique(numbers, return_index=True)[1]  # of each kind of report
    expected = ranks(image @ text[first].T, same[:, first])
    assert set(expected) == {1.0, 1.5}  # one of two ways: a report without a heart ties with another
    assert found["image-to-text"]["measures"]["median_rank"]["estimate"] == np.median(expected)
    hits = recall_at(image @ text[first].T, same[:, first], 1)
    assert found["image-to-text"]["recall@1"] == pytest.approx(hits.mean())
    assert 0 < found["image-to-text"]["recall@1"] < 1
    assert found["text-to-image"]["recall@1"] == pytest.approx(recall_at(text @ image.T, same, 1).mean())
    other = audit_tasks(Embedding(), Ward(), tmp_path / "b", ["retrieval"], **given).result["tasks"]["retrieval"]
    assert other["image-to-text"]["recall@1"] == 1.0
    with pytest.raises(InputError, match="task retrieval: object has neither encode_image"):
        audit_tasks(object(), Ward(), tmp_path / "c", ["retrieval"])


class Named(Oracle):
    """Classifies regions by their names, too; it takes the patient's right for the left."""

    def classify(self, images: Any, findings: Any, boxes: Any = None, queries: Any = None) -> Any:
        if queries is None:
            return super().classify(images, findings, boxes)
        assert all(query.box is None for query in queries)
        known = [
            self.study(image).region_findings[swap_sides(query.phrase)]
            for image, query in zip(images, queries, strict=True)
        ]
        return np.array([[float(one.get(name) == Polarity.POSITIVE) for name in findings] for one in known])


@pytest.mark.usefixtures("no_java")
def test_regions_are_asked_about_by_name_on_demand(tmp_path: Path) -> None:
    tasks = ["region-classification:regions-by-name", "region-explanation:regions-by-name"]
    done = audit_tasks(Named(), Ward(), tmp_path, tasks, settings=QUICK)
    found = done.result["tasks"]
    assert [*found["region-classification"]] == [*found["region-description"]] == ["regions-by-name"]
    named = found["region-classification"]["regions-by-name"]
    assert named["finding_auroc"] == 0.0  # of the wrong side, always
    assert named["measures"]["finding_auroc"]["instances"] == 12 * 2
    assert named["protocol"]["queries"] == ["region-name"]
    asked = {
        one.asked.phrase for one in open_predictions(tmp_path / "predictions-region-classification-regions-by-name")
    }
    assert asked == {"left lung", "right lung"}
    described = found["region-description"]["regions-by-name"]
    assert described["measures"]["rouge_l"]["estimate"] == pytest.approx(1.0)
    assert (
        "regions-by-name" not in run(tmp_path / "b", ["region-classification"]).result["tasks"]["region-classification"]
    )
    with pytest.raises(InputError, match="cannot answer region-names"):
        run(tmp_path / "c", tasks[:1])
    with pytest.raises(InputError, match="region-classification:regions"):
        run(tmp_path / "d", ["region-classification:region"])


def test_finding_boxes_are_multiclass_where_the_model_can(tmp_path: Path) -> None:
    class OneOf(Oracle):
        """Scores every finding of a box alike, unless told that exactly one is there."""

        def classify(self, images: Any, findings: Any, boxes: Any = None, multiclass: bool = False) -> Any:
            found = super().classify(images, findings, boxes)
            return found if multiclass or boxes is None else np.full_like(found, 0.5)

    tasks = ["region-classification:finding-boxes", "region-classification:finding-boxes-binary"]
    found = audit_tasks(OneOf(), Ward(), tmp_path / "a", tasks, settings=QUICK).result["tasks"]["region-classification"]
    assert found["finding-boxes"]["finding_auroc"] == 1.0
    assert found["finding-boxes-binary"]["finding_auroc"] == 0.5
    assert found["finding-boxes"]["protocol"]["hash"] != found["finding-boxes-binary"]["protocol"]["hash"]
    assert "multiclass" in found["finding-boxes"]["protocol"]["labels"]
    other = run(tmp_path / "b", tasks[:1]).result["tasks"]["region-classification"]
    assert other["finding-boxes"]["finding_auroc"] == 1.0  # a model without the parameter is asked one by one


class Narrow(Oracle):
    """Knows the nodule only; misses all others, which would count as no box and as an error."""

    def knows(self, finding: str) -> bool:
        return finding == "nodule"

    def detect(self, images: Any, findings: Any) -> Any:
        assert findings == ("nodule",)
        return super().detect(images, findings)

    def classify(self, images: Any, findings: Any, boxes: Any = None) -> Any:
        assert findings == ("nodule",)
        return super().classify(images, findings, boxes)


def test_findings_that_the_model_does_not_know_are_listed_and_not_measured(tmp_path: Path) -> None:
    done = audit_tasks(Narrow(), Ward(), tmp_path / "a", ["detection"], settings=QUICK)
    found = done.result["tasks"]["detection"]
    assert found["map"] == pytest.approx(1.0)
    assert (found["classes"], found["unknown"]) == (["nodule"], ["cardiomegaly"])
    assert found["measures"]["map"]["instances"] == 12
    assert [*found["by_class"]] == ["nodule"]
    assert (
        found["protocol"]["hash"] != run(tmp_path / "d", ["detection"]).result["tasks"]["detection"]["protocol"]["hash"]
    )
    assert "Not known by the model and not measured: cardiomegaly." in done.page.read_text()
    again = audit_tasks(
        open_predictions(tmp_path / "a" / "predictions-detection"), Ward(), tmp_path / "b", ["detection"]
    )
    assert again.result["tasks"]["detection"]["unknown"] == ["cardiomegaly"]
    with pytest.raises(InputError, match="Narrow knows none of the findings: cardiomegaly"):
        audit_tasks(Narrow(), Ward(), tmp_path / "c", ["classification"], settings=QUICK)


def test_a_score_of_nan_is_no_score(tmp_path: Path) -> None:
    class Silent(Oracle):
        def classify(self, images: Any, findings: Any, boxes: Any = None) -> Any:
            found = super().classify(images, findings, boxes)
            found[:, findings.index("nodule")] = np.nan
            return found

    tasks = ["region-classification:finding-boxes"]
    found = audit_tasks(Silent(), Ward(), tmp_path, tasks, settings=QUICK).result["tasks"]["region-classification"]
    assert found["finding-boxes"]["finding_auroc"] == 1.0  # of cardiomegaly
    assert found["finding-boxes"]["measures"]["finding_auroc"]["instances"] == 12 + 4
    assert found["finding-boxes"]["unknown"] == ["nodule"]
    assert found["finding-boxes"]["classes"] == ["cardiomegaly"]
