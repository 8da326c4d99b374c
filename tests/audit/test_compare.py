"""Comparisons of audits, tasks and scored reports as they are written, and the protocols in all result files."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rightlung.asking import ask
from rightlung.audit import audit_tasks
from rightlung.audit.compare import CompareResult, compare
from rightlung.core import Image, InputError, ScoredBox, Study
from rightlung.measuring import Protocol
from rightlung.predictions import open_predictions
from rightlung.results.estimate import BootstrapSettings
from tests.audit.cards import Cards, audited, diagonal_map, true_map
from tests.audit.oracle import HEART, Oracle, Ward
from tests.audit.test_report_scores import reports, scored

QUICK = BootstrapSettings(resamples=100)
TRUE = [f"{size} {side} pleural effusion. Heart size is {heart}." for size in ("small", "moderate", "large")
        for side in ("left", "right") for heart in ("normal", "enlarged")]  # fmt: skip
POOR = [text.replace("pleural", "small").replace("Heart size", "Heart") for text in TRUE]
FIELDS = {field.name for field in fields(Protocol)} | {"hash"}


class Eager(Oracle):
    """Sees an enlarged heart in every image, and is as sure of it as of what is there."""

    def detect(self, images: Sequence[Image], findings: Sequence[str]) -> list[list[ScoredBox]]:
        return [[*boxes, ScoredBox(HEART, 0.95, "cardiomegaly")] for boxes in super().detect(images, findings)]


@pytest.fixture(scope="module")
def no_java() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.which", lambda name: None)
        yield


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, found = tmp_path_factory.mktemp("tasks"), []
    for name, model in (("oracle", Oracle()), ("eager", Eager())):
        options: dict[str, Any] = {"name": name, "settings": QUICK, "cases": 0}
        found.append(audit_tasks(model, Ward(24), folder / name, ["detection", "classification"], **options).folder)
    return found


@pytest.fixture(scope="module")
def scores(no_java: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Scores of perfect reports, of poor ones, and of the poor ones but the first three."""
    found = {}
    for name, said in (("good", reports(TRUE)), ("poor", reports(POOR)), ("fewer", reports(POOR)[3:])):
        found[name] = scored(tmp_path_factory.mktemp(name), said, reports(TRUE), protocols=["whole"]).folder
        found[name] = found[name].rename(found[name].with_name(name))
    return found


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("audits")
    found = []
    for name, answer in (("knows", true_map), ("guesses", diagonal_map)):
        (folder / name).mkdir()
        found.append(audited(folder / name, Cards(24), answer, ("none", "swap-sides")).folder)
    return found


@pytest.fixture(scope="module")
def compared(audits: list[Path], tmp_path_factory: pytest.TempPathFactory) -> CompareResult:
    return compare(audits, tmp_path_factory.mktemp("comparison"), settings=QUICK)


def test_audits_are_compared_by_the_numbers_that_they_print(audits: list[Path], compared: CompareResult) -> None:
    part = compared.result["parts"]["audit"]
    printed = [json.loads((folder / "audit.json").read_text())["overall"] for folder in audits]
    (pair,) = [one for one in part["measures"]["average_precision"] if one["group"] == "all"]
    expected = [one["average_precision"]["model"]["estimate"] for one in printed]
    assert [one["estimate"] for one in pair["values"]] == pytest.approx(expected)
    assert pair["difference"]["estimate"] == pytest.approx(expected[0] - expected[1])
    assert pair["difference"]["verdict"] == "difference shown"
    groups = {one["group"] for one in part["measures"]["pointing"]}
    assert groups == {"all", "cardiomegaly", "lung opacity"}


def test_the_page_says_which_is_better_and_draws_all_findings(compared: CompareResult) -> None:
    page, markdown = ((compared.folder / name).read_text(encoding="utf-8") for name in ("compare.html", "compare.md"))
    for text in (page, markdown):
        assert "average precision: known (out) is better." in text or "is better" in text
        assert "Not a medical device" in text
        assert "cardiomegaly" in text
    assert "<svg" in page
    assert list((compared.folder / "figures").glob("forest-*.png"))
    assert json.loads((compared.folder / "compare.json").read_text()) == json.loads(json.dumps(compared.result))


def test_warnings_of_an_audit_are_repeated(audits: list[Path], tmp_path: Path) -> None:
    first, second = (shutil.copytree(folder, tmp_path / f"{place}") for place, folder in enumerate(audits))
    found = json.loads((first / "audit.json").read_text())
    (first / "audit.json").write_text(json.dumps(found | {"warnings": ["the heatmaps are mirrored"]}))
    done = compare([first, second], tmp_path / "out", settings=QUICK)
    assert done.result["warnings"] == [f"{first}: the heatmaps are mirrored"]
    assert "the heatmaps are mirrored" in done.page.read_text(encoding="utf-8")


def test_detection_is_compared_by_the_map_of_all_boxes(tasks: list[Path], tmp_path: Path) -> None:
    parts = compare(tasks, tmp_path / "out", settings=QUICK).result["parts"]
    assert set(parts) == {"classification", "detection"}
    found = {one["group"]: one for one in parts["detection"]["measures"]["map"]}
    printed = [json.loads((folder / "audit.json").read_text())["tasks"]["detection"] for folder in tasks]
    assert [one["estimate"] for one in found["all"]["values"]] == pytest.approx([one["map"] for one in printed])
    for finding in ("cardiomegaly", "nodule"):
        values = [one["by_class"][finding]["model"]["estimate"] for one in printed]
        assert [one["estimate"] for one in found[finding]["values"]] == pytest.approx(values)
    assert found["cardiomegaly"]["difference"]["verdict"] == "difference shown"
    assert found["nodule"]["difference"]["estimate"] == 0
    (auroc,) = [one for one in parts["classification"]["measures"]["finding_auroc"] if one["group"] == "all"]
    assert auroc["difference"]["verdict"] == "no difference shown"


def printed_scores(folder: Path) -> dict[str, float]:
    measures = json.loads((folder / "scores.json").read_text())["parts"]["whole"]["measures"]
    return {name: one["estimate"] for name, one in measures.items()}


def test_reports_are_compared_by_the_bleu_of_the_corpus(scores: dict[str, Path], tmp_path: Path) -> None:
    parts = compare([scores["good"], scores["poor"]], tmp_path, settings=QUICK).result["parts"]
    expected = [printed_scores(scores[name]) for name in ("good", "poor")]
    for name in ("bleu_2", "bleu_4", "cider"):
        (pair,) = parts["whole"]["measures"][name]
        assert [one["estimate"] for one in pair["values"]] == pytest.approx([one[name] for one in expected])
    assert parts["whole"]["measures"]["bleu_4"][0]["difference"]["verdict"] == "difference shown"
    assert "micro_f1_13" in parts["clinical"]["measures"]


def test_on_common_reports_bleu_is_computed_anew_and_cider_is_not_compared(
    scores: dict[str, Path], tmp_path: Path
) -> None:
    done = compare([scores["good"], scores["fewer"]], tmp_path, settings=QUICK).result
    part, expected = done["parts"]["whole"], printed_scores(scores["fewer"])
    (pair,) = part["measures"]["bleu_4"]
    assert [one["estimate"] for one in pair["values"]] == pytest.approx([1.0, expected["bleu_4"]])
    assert part["dropped"] == {"good": 3, "fewer": 0}
    assert "cider" not in part["measures"]
    assert any(note.startswith("CIDEr is not compared: it depends on all instances") for note in part["notes"])
    assert any(note.startswith("diversity: no measure to compare; 3 of 12") for note in done["notes"])


def protocols_in(content: Any) -> list[dict[str, Any]]:
    """Return every protocol of a JSON file, wherever it stands."""
    if isinstance(content, list):
        return [one for item in content for one in protocols_in(item)]
    if not isinstance(content, dict):
        return []
    own = [content["protocol"]] if isinstance(content.get("protocol"), dict) else []
    return own + [one for item in content.values() for one in protocols_in(item)]


def test_every_result_file_and_page_carries_the_full_protocol(
    audits: list[Path], tasks: list[Path], scores: dict[str, Path], compared: CompareResult
) -> None:
    for folder, parts in ((audits[0], 1), (tasks[0], 2), (scores["good"], 3), (compared.folder, 1)):
        (file,) = folder.glob("*.json")
        found = protocols_in(json.loads(file.read_text()))
        assert len(found) == parts, file
        page = html.unescape(next(folder.glob("*.html")).read_text(encoding="utf-8"))
        for given in found:
            assert set(given) == FIELDS
            protocol = Protocol.from_json(given, str(file))
            assert protocol.hash in page
            assert protocol.ties in page
            assert protocol.phrase_set in page
        for path in folder.glob("instances*.parquet"):
            given = json.loads(pq.read_metadata(path).metadata[b"rightlung.protocol"])
            assert Protocol.from_json(given, str(path)).hash in {one["hash"] for one in found}


# Bad input


def test_a_predictions_file_of_another_source_is_refused_or_said(tmp_path: Path) -> None:
    class Elsewhere(Ward):
        @property
        def ids(self) -> Sequence[str]:
            return [f"t{number}" for number in range(self.count)]

        def _build(self, position: int) -> Study:
            return replace(super()._build(position), id=f"t{position}")

    ask(Oracle(), Ward(6), tmp_path / "p", queries=["image"], method="detect", findings=["nodule"])
    predictions = open_predictions(tmp_path / "p")
    with pytest.raises(InputError, match="hold no answers for it; the predictions name the source ward but were audi"):
        audit_tasks(predictions, Elsewhere(6, "elsewhere"), tmp_path / "out", ["detection"], settings=QUICK)
    done = audit_tasks(predictions, Ward(6, "moved"), tmp_path / "out", ["detection"], settings=QUICK, cases=0)
    assert done.result["warnings"] == ["the predictions name the source ward but were audited against moved"]
    assert done.result["warnings"][0] in done.page.read_text()
    assert audit_tasks(predictions, Ward(6), tmp_path / "out", ["detection"], settings=QUICK).result["warnings"] == []


def test_audits_of_different_sources_are_refused_with_both_sources(audits: list[Path], tmp_path: Path) -> None:
    other = audited(tmp_path / "other", Cards(8, seed=3, address="other cards"), true_map, ("none", "swap-sides"))
    with pytest.raises(InputError, match="different truths"):  # studies have the same names
        compare([audits[0], other.folder], tmp_path / "out", settings=QUICK)


def test_unknown_measures_are_refused(audits: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown measure 'aurok'; did you mean 'auroc'"):
        compare(audits, tmp_path / "out", measures=["aurok"])
    with pytest.raises(InputError, match="none of the results was measured by bleu_1"):
        compare(audits, tmp_path / "out", measures=["bleu_1"])
    assert not (tmp_path / "out").exists()
