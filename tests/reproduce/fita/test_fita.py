"""The reproduction of FITA: a quick run end to end, reports against the scene, and the paper's figures."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import PIL.Image
import pyarrow as pa
import pytest

from rightlung.core.files import read_json
from rightlung.reproduce.experiment import reproduce
from rightlung.reproduce.fita.claims import CLAIMS, TITLES
from rightlung.reproduce.fita.truth import RATES, rates, scene_truth, scenes_of, stated, truth_table
from rightlung.reproduce.fita.variants import STEPS, TABLE_2, VARIANTS
from rightlung.reproduce.plan import Plan, recipes_of
from rightlung.reproduce.published import Subject, published_in
from rightlung.studies import open_source
from rightlung.training.loop import Hardware
from tests.studies.readers.test_mimic import LABELS, METADATA

SCENE = {
    "labels": ["Cardiomegaly", "Pleural Effusion"],
    "pairs": ["left Pleural Effusion"],
    "lesions": [[["Cardiomegaly"], [], 0.1], [["Pleural Effusion"], ["left"], 0.9]],
}


def test_a_quick_run_trains_measures_and_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)  # without METEOR, which takes seconds
    monkeypatch.setattr("rightlung.models.blind.reports.SENTENCES", 10)
    plan = Plan(
        "fita", tmp_path, source="phantom?count=6&seed=13&size=64", only=("kiut", "fita", "saliency"), pixels=32,
        quick=True, hardware=Hardware(accelerator="cpu"),
    )  # fmt: skip
    done = reproduce(plan)
    assert not done.left_out
    found = read_json(tmp_path / "results.json")
    assert {"kiut", "fita", "saliency", "prior"} <= {one["slug"] for one in found["models"]}
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    titles = [
        "Table 1: from a transformer to FITA", "against the scene", "Omissions and hallucinations", "Figure 1",
        "Figure 3", "sentences glued together for BLEU-4", "KiUT: Table 2 prints .262",
    ]  # fmt: skip
    assert [title for title in titles if title not in page] == []
    # Without a text refiner there is no retrieval; the plain models share the trained classifier.
    assert (tmp_path / "measures" / "fita" / "image-to-text.parquet").is_file()
    assert not (tmp_path / "measures" / "kiut" / "image-to-text.parquet").is_file()
    assert len(list((tmp_path / "runs" / "shared").glob("*/classifier"))) == 1


def test_reports_are_compared_with_what_the_scene_shows() -> None:
    labels, pairs = stated("Moderate right pleural effusion. Consolidation of the left lower lobe.")
    assert labels == ["Consolidation", "Lung Opacity", "Pleural Effusion"]
    assert pairs == ["left Consolidation", "left Lung Opacity", "right Pleural Effusion"]
    found = rates(labels, pairs, SCENE)
    # Cardiomegaly (mild) is omitted, the effusion (severe) is stated, on the wrong side; two of three are not there.
    assert (found["omitted_mild"], found["omitted_severe"], found["omitted"]) == (1.0, 0.0, 0.5)
    assert found["hallucinated"] == pytest.approx(2 / 3)
    assert found["wrong_side"] == 1.0
    assert np.isnan(found["omitted_moderate"])
    assert [*found] == [*RATES]


def test_the_truth_of_a_scene_is_that_of_its_lesions(tmp_path: Path) -> None:
    address = "phantom?count=8&size=64&seed=7"
    source = open_source(address)
    known = scenes_of(address, source.ids, tmp_path / "scenes.json")
    again = scenes_of(address, source.ids, tmp_path / "scenes.json")
    assert [one["pairs"] for one in again.values()] == [one["pairs"] for one in known.values()]
    for study in source:
        scene = study.twins.scene  # type: ignore[union-attr]
        truth = scene_truth(scene)
        assert ("No Finding" in truth["labels"]) == (not {*truth["labels"]} - {"No Finding", "Support Devices"})
        assert [severity for *_, severity in truth["lesions"]] == [lesion.severity for lesion in scene.lesions]
        sided = {lesion.side for lesion in scene.lesions}
        assert {pair.partition(" ")[0] for pair in truth["pairs"]} <= sided | (
            {"left", "right"} if "both" in sided else set()
        )
    assert scenes_of("manifest:/none", ["a"], tmp_path / "none.json") == {}
    table = pa.table({"study": ["a"], "patient": ["p"], "answer_text": ["Left pleural effusion."]})
    (row,) = truth_table(table, {"a": SCENE}).to_pylist()
    assert (row["labels_called"], row["pairs_true"], row["hallucinated"]) == (["Pleural Effusion"], SCENE["pairs"], 0.0)


def test_variants_differ_in_the_parts_that_their_names_say() -> None:
    plan, switches = Plan("fita", Path("out")), ("rra", "connection", "graph", "ifr", "tfr")
    configs, losses, classifiers = {}, {}, set()
    for job in plan.jobs():
        if job.variant.derive is None and job.seed == 1:
            recipes = recipes_of(plan, job)
            made = recipes.get("text", recipes["report"]).model.config
            defaults = {"rra": True, "connection": "u", "graph": True, "ifr": True, "tfr": True}
            configs[job.variant.slug] = [made.get(name, defaults[name]) for name in switches]
            losses[job.variant.slug] = {*recipes["report"].losses}
            classifiers.add(str(recipes["report"].schedule.steps) + str(recipes["classifier"].model))
    assert [configs[slug] for slug in STEPS] == [
        [False, "last", False, False, False],
        [True, "last", False, False, False],
        [True, "u", False, False, False],
        [True, "u", True, False, False],
        [True, "u", True, True, False],
        [True, "u", True, True, True],
        [True, "u", True, True, True],
    ]
    assert configs["tfr"] == [True, "u", True, False, True]
    words, seen = "report_generation", "image_classification"
    assert [losses[slug] for slug in TABLE_2] == [
        {words}, {words, seen}, {words}, {words, seen}, {words, seen, "image_text_contrastive"},
    ]  # fmt: skip
    assert len(classifiers) == 1
    known = {variant.slug for variant in VARIANTS} | {"prior"}
    assert all({claim.first, claim.second} <= known and claim.place in TITLES for claim in CLAIMS)


def test_the_papers_tables_are_printed_with_their_contradiction() -> None:
    published = published_in("rightlung.reproduce.fita")
    fita = published.find(Subject("fita", "bleu_4", "mimic", "reports"), "1")
    assert fita is not None
    assert fita.printed == ".122"
    assert fita.value == pytest.approx(0.122)
    kiut = Subject("kiut", "ce_r2gen_f1", "mimic", "reports")
    assert [published.find(kiut, table).printed for table in ("1", "2")] == [".321", ".262"]  # type: ignore[union-attr]
    assert sum(subject.measure == "rouge_l" for subject in published.values) == 14


def mimic_tree(root: Path, patients: int = 12) -> None:
    """Write a MIMIC-CXR-JPG tree of drawn patients with the published names and columns."""
    images = {study.id: study for study in open_source(f"phantom?count={patients}&size=64&seed=3")}
    rows, splits, labels = [], [], []
    for number, study in enumerate(images.values()):
        patient, exam, dicom = 10_000_000 + number, 50_000_000 + number, f"{number:08d}-00000000"
        folder = root / "files" / "p10" / f"p{patient}" / f"s{exam}"
        folder.mkdir(parents=True)
        PIL.Image.fromarray((study.image * 255).astype(np.uint8)).save(folder / f"{dicom}.jpg")
        assert study.report is not None
        folder.with_suffix(".txt").write_text(f"FINDINGS: {' '.join(one.text for one in study.phrases)}\n")
        rows.append(f"{dicom},{patient},{exam},CHEST,PA,64,64,21800506,213014.531,CHEST,postero-anterior,Erect")
        splits.append(f"{dicom},{exam},{patient},{'test' if number % 3 == 0 else 'train'}")
        labels.append(f"{patient},{exam},,{number % 2},,,,,,,,,,,,")
    for name, header, lines in (
        ("metadata", METADATA, rows),
        ("split", "dicom_id,study_id,subject_id,split", splits),
        ("chexpert", LABELS, labels),
    ):
        (root / f"mimic-cxr-2.0.0-{name}.csv").write_text("\n".join([header, *lines]) + "\n")


def test_the_ablation_runs_on_a_mimic_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr("rightlung.models.blind.reports.SENTENCES", 10)
    root = tmp_path / "mimic"
    mimic_tree(root)
    train, test = (f"mimic:{root}?split={split}&report=findings" for split in ("train", "test"))
    plan = Plan(
        "fita", tmp_path / "out", source=test, train=train, validation=train, only=("fita",), pixels=32, quick=True,
        hardware=Hardware(accelerator="cpu"),
    )  # fmt: skip
    assert not reproduce(plan).left_out
    page = (tmp_path / "out" / "results.md").read_text(encoding="utf-8")
    assert "Table 1: from a transformer to FITA" in page
    assert "Omissions and hallucinations" not in page  # only synthetic studies have a scene
