"""Scores of reports from files, against hand calculations, and bad files."""

from __future__ import annotations

import csv
import json
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rightlung.audit.report_files import ReportColumns, paired, read_reports
from rightlung.audit.report_scores import ReportScores, ReportScoring, score_reports, without_positives
from rightlung.core import InputError
from rightlung.models.blind.reports import RANDOM, BlindReports, CorpusBleu, assembled_report, best_report
from rightlung.results.estimate import BootstrapSettings
from rightlung.scoring.language import bleu_statistics, clean_words, corpus_bleu

SIDED = [
    "Small left pleural effusion.", "Right basal atelectasis. Heart size is normal.", "Left pneumothorax.",
    "Lungs are clear. No pleural effusion.", "Possible right upper lobe nodule.", "Large right pleural effusion.",
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def reports(texts: list[str], **further: list[str]) -> list[dict[str, Any]]:
    return [
        {"id": f"s{n}", "report": text} | {name: values[n] for name, values in further.items()}
        for n, text in enumerate(texts)
    ]


def scored(
    tmp_path: Path, said: list[dict[str, Any]], true: list[dict[str, Any]], train: Any = None, **o: Any
) -> ReportScores:
    files = [read_reports(table(tmp_path / f"{name}.csv", rows)) for name, rows in (("said", said), ("true", true))]
    taught = None if train is None else read_reports(table(tmp_path / "train.csv", train)).reports
    settings = BootstrapSettings(resamples=100)
    scoring = ReportScoring(paired(*files), ("said.csv", "true.csv"), train=taught, settings=settings, **o)
    return score_reports(scoring, tmp_path / "out")


def values(done: ReportScores, part: str, condition: str | None = None) -> dict[str, float]:
    found = done.result["parts"][part]
    listed = found["measures"] if condition is None else found["blind"][condition]["measures"]
    return {name: one["estimate"] for name, one in listed.items()}


def test_exchanged_sides_escape_every_measure_but_the_sided_ones(tmp_path: Path) -> None:
    done = scored(tmp_path, reports(SIDED), reports(SIDED), protocols=["whole"])
    check = done.result["check"]
    assert check["ce_r2gen_micro_f1"] == {"none": 1.0, "swap-sides": 1.0, "no-positives": pytest.approx(2 / (2 + 5))}
    assert check["sided_f1"] == {"none": 1.0, "swap-sides": 0.0, "no-positives": 0.0}
    assert check["rouge_l"]["swap-sides"] > 0.8
    assert "What each measure does not notice" in done.page.read_text()


def test_r2gens_protocol_cuts_replaces_rare_words_and_keeps_full_stops_as_words(tmp_path: Path) -> None:
    """By hand (fita.md section 4): "heart" and "normal" are known; "heart <unk> normal ." against the answers."""
    train = reports(["1. Heart normal.", "Heart normal. 2. Clear.", "Heart/normal heart normal.", "Rare."])
    true = reports(["1. Heart quite normal.", "Heart, normal."])
    said = reports(["heart <unk> normal .", "Heart normal. 2. Heart"])
    done = scored(tmp_path, said, true, train, protocols=["r2gen", "whole"])
    table = done.parts[0].table.filter(pa.compute.equal(done.parts[0].table["condition"], "none"))
    assert table["reference_text"].to_pylist() == ["heart <unk> normal .", "heart normal ."]
    assert table["answer_text"].to_pylist() == ["heart <unk> normal .", "heart normal . heart ."]
    # Words: 4 of 4 and 3 of 5 (heart, normal and one full stop); 9 said, 7 true, so no brevity penalty.
    assert values(done, "r2gen")["bleu_1"] == pytest.approx(7 / 9)
    assert values(done, "r2gen")["bleu_2"] == pytest.approx((7 / 9 * 5 / 7) ** 0.5)  # pairs: 3 of 3 and 2 of 4
    assert values(done, "whole")["bleu_1"] == pytest.approx(6 / 9)  # "unk" is not "quite"
    cut = scored(tmp_path, said, true, train, protocols=["r2gen"], max_words=2).parts[0].table
    assert cut["reference_text"].to_pylist()[0] == "heart <unk>"
    assert done.result["vocabulary"] == 3  # heart, normal and the full stop
    assert done.result["baselines"]["learned_from"] == "the training reports"


def test_clinical_efficacy_by_papers_names_against_hand_counts(tmp_path: Path) -> None:
    """One of three positives is found; atelectasis is uncertain in a reference and said to be there."""
    true = reports(["Small left pleural effusion.", "Possible atelectasis.", "Cardiomegaly.", "Pneumothorax."])
    said = reports(["Left pleural effusion.", "Atelectasis.", "Pleural effusion.", "Lungs are clear."])
    found = values(scored(tmp_path, said, true, protocols=["whole"]), "clinical")
    # Negative: effusion 1 hit of 2 calls and 1 positive; atelectasis has no positive; No Finding is called once.
    assert found["ce_r2gen_f1"] == pytest.approx(2 / 3 / 14)
    assert found["ce_r2gen_micro_precision"] == pytest.approx(1 / 4)
    assert found["ce_r2gen_micro_recall"] == pytest.approx(1 / 3)
    assert found["macro_f1_14"] == pytest.approx(2 / 3 / 3)
    assert found["ce_promptmrg_recall"] == pytest.approx(1 / 4)
    # Positive: atelectasis is right, too. Weights: effusion, atelectasis, cardiomegaly, pneumothorax once each.
    assert found["ce_organ_recall"] == pytest.approx(2 / 4)
    assert found["ce_organ_f1"] == pytest.approx((2 / 3 + 1) / 4)
    assert found["ce_apart_recall"] == pytest.approx(1 / 4)
    assert found["micro_f1_5_ones"] == pytest.approx(2 * 2 / (3 + 3))
    assert found["sided_precision"] == found["sided_recall"] == 1.0


def test_diversity_intervals_and_rows_of_each_report(tmp_path: Path) -> None:
    patients = ["a", "a", "b", "b", "c", "c"]
    said = ["Clear.", "clear.", "Left effusion.", "", "Clear.", "Nodule."]
    done = scored(tmp_path, reports(said), reports(SIDED, patient=patients), protocols=["whole"])
    diversity = done.result["parts"]["diversity"]
    assert values(done, "diversity") == pytest.approx({"distinct_share": 4 / 6, "most_frequent_share": 3 / 6})
    assert diversity["measures"]["distinct_share"]["patients"] == 3
    with (done.folder / "reports.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["generated"] for row in rows] == said
    assert rows[2]["pairs_generated"] == "left pleural effusion"
    assert float(rows[3]["whole_rouge_l"]) == float(rows[3]["whole_bleu_1"]) == 0.0
    counted = bleu_statistics(clean_words(said[0]), clean_words(SIDED[0]))
    assert float(rows[0]["whole_bleu_1"]) == pytest.approx(exp(1 - 5 / 2) * counted["bleu_matches_1"] / 2, rel=1e-5)
    assert rows[0]["whole_meteor"] == ""
    assert any("METEOR needs Java" in note for note in done.result["notes"])
    assert any(note.startswith("1 of 6 generated reports are empty") for note in done.result["notes"])
    alone = scored(tmp_path, reports(said), reports(SIDED), protocols=["whole"])
    assert alone.result["counts"]["clusters"] == "reports"
    assert "bootstrap over reports" in alone.page.read_text()


def test_blind_reports_are_the_best_of_other_patients_and_bleu_is_the_corpus_bleu() -> None:
    texts = ["The heart is normal.", "No effusion. The heart is normal. Lungs are clear.", "No effusion today."]
    score = CorpusBleu(texts)
    for text in (*texts, "The the the heart is normal."):
        rows = [bleu_statistics(clean_words(text), clean_words(other)) for other in texts]
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        assert score.of(text) == pytest.approx(float(corpus_bleu(columns, np.ones((1, 3)), 4)[0]))
    best, glued = best_report(texts), assembled_report(texts)
    assert best == max(texts, key=score.of)
    assert score.of(glued or "") >= score.of(best or "") > 0
    blind = BlindReports()
    for number in range(30):
        blind.add(f"p{number}", f"Report of p{number}.")
    assert all(blind.text(RANDOM, f"p{n}", f"s{n}") != f"Report of p{n}." for n in range(30))
    assert blind.text(RANDOM, "p1", "s1", seed=3) == blind.text(RANDOM, "p1", "s1", seed=3)
    assert best_report([]) is None
    assert assembled_report([]) is None


def test_bad_rows_are_named_by_file_place_and_field_and_left_out(tmp_path: Path) -> None:
    said = reports(["A nodule.", "x", "Clear.", "Clear.", "Clear."])
    said[4]["id"] = "s3"
    said += [{"id": "s3", "report": "Other."}, {"id": "", "report": "Lost."}, {"id": "extra", "report": "More."}]
    true = reports(["A nodule.", "Clear.", "", "Clear.", "Clear."])
    true.append({"id": "long", "report": "word " * 10_001})
    files = [read_reports(table(tmp_path / f"{name}.csv", rows)) for name, rows in (("said", said), ("true", true))]
    pairs = paired(*files)
    assert list(pairs.generated) == ["s0", "s1"]
    told = [str(problem).replace(str(tmp_path), "") for problem in pairs.problems]
    assert "/said.csv, line 6 (study 's3'), column report: the same report stands here again; it counts once" in told
    for part in (
        "line 7 (study 's3'), column report: another text", "line 8, column id: is empty",
        "line 7, column report: has 10,001 words", "(study 's2'), column report: the reference is empty",
        "(study 's4'), column report: ", "(study 'extra'), column report: ",
    ):  # fmt: skip
        assert any(part in one for one in told), part
    assert [note.partition(" generated")[0] for note in pairs.notes] == ["1 of 2", "1 of 2"]  # one word; no finding


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("id,words\na,b\n", {}, "has no column for the report"),
        ("name,report\na,b\n", {}, "has no column 'id' or 'study' or 'study_id'"),
        ("id,report\na,b\n", {"text": "raport"}, "has no column 'raport'"),
        ("id,report\n", {}, "holds no report"),
    ],
)
def test_bad_tables_are_one_sentence(tmp_path: Path, content: str, columns: dict[str, str], message: str) -> None:
    path = tmp_path / "some.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_reports(path, ReportColumns(**columns))


def test_json_lines_parquet_and_sections_are_read_like_csv(tmp_path: Path) -> None:
    rows = [{"study": 5, "findings": "Clear.", "impression": "Normal."}, {"study": "b", "findings": None}]
    lines = tmp_path / "some.jsonl"
    lines.write_text("\n".join(map(json.dumps, rows)) + '\n{"study": "c"\n[1]\n{"study": ["d"], "findings": "x"}\n')
    found = read_reports(lines)
    assert {name: one.text for name, one in found.reports.items()} == {"5": "Clear. Normal.", "b": ""}
    assert [problem.line for problem in found.problems] == [3, 4, 5]
    parquet = tmp_path / "some.parquet"
    pq.write_table(pa.table({"id": ["a"], "said": ["Clear."], "subject_id": [7]}), parquet)
    (one,) = read_reports(parquet, ReportColumns(text="said")).reports.values()
    assert (one.study, one.text, one.patient, one.place.row) == ("a", "Clear.", "7", 0)


def test_very_long_and_odd_reports_are_scored(tmp_path: Path) -> None:
    said = ["no effusion " * 2500, "effusion", "qwertz asdf", "<b>left</b> \x00 |||", "ä" * 50, "."]
    done = scored(tmp_path, reports(said), reports(SIDED), protocols=["r2gen"])
    assert done.result["counts"]["studies"] == 6
    assert "<b>left</b>" not in done.page.read_text()
    assert without_positives("Left effusion.") == ""
