"""The benchmark on real images: folds by patient, recipes of every run, and AUROC over findings and models."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

import rightlung
from rightlung.training.recipe_file import read_recipe

BENCHMARKS = str(Path(__file__).parents[3] / "benchmarks")


@pytest.fixture(scope="module")
def scripts() -> dict[str, ModuleType]:
    sys.path.insert(0, BENCHMARKS)
    try:
        return {name: importlib.import_module(f"eclip_real{name}") for name in ("", "_runs", "_pairs")}
    finally:
        sys.path.remove(BENCHMARKS)


def archive(path: Path, boxed: bool) -> Path:
    """Write an archive of 24 images of 12 patients, a third of them in the split ``val`` (or with a box)."""
    picture = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(picture, "png")
    rows: list[dict[str, Any]] = []
    for number in range(24):
        patient = number // 2
        split = ("train", "val", "boxes" if boxed else "train")[patient % 3]
        row: dict[str, Any] = {
            "id": f"i{number}",
            "patient": f"p{patient}",
            "split": split,
            "file": f"images/{number}.png",
        }
        row |= {"findings": ["Mass", "Nodule"], "sections": {"findings": f"Text {patient}."}}
        rows.append(row | {"boxes": [{"label": "Mass", "box": [0.1, 0.1, 0.5, 0.5]}] if split == "boxes" else []})
    files = {row["file"]: picture.getvalue() for row in rows}
    files["manifest.jsonl"] = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def benchmark(scripts: dict[str, ModuleType], folder: Path) -> Any:
    given = argparse.Namespace(
        out=folder, openi=archive(folder / "openi.tar", False), nih=archive(folder / "nih.tar", True), folds=3,
        limit=None, resamples=100, phantoms=8, annotated=4, pixels=64, seed=1, steps=20, set=["batch_size=8"],
    )  # fmt: skip
    return scripts["_runs"].Benchmark(given)


def test_every_image_is_held_out_once_and_its_patient_is_in_no_training(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    bench = benchmark(scripts, tmp_path)
    held_out = []
    for fold in range(3):
        own, others = (list(rightlung.open_source(f"manifest:{bench.openi}/fold-{fold}?split={split}"))
                       for split in ("own", "others"))  # fmt: skip
        assert {study.patient for study in own}.isdisjoint(study.patient for study in others)
        assert len(own) + len(others) == 24
        held_out += [study.id for study in own]
    assert sorted(held_out) == sorted(f"i{number}" for number in range(24))


def test_folds_of_boxes_hold_boxed_images_with_their_boxed_finding_alone(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    bench = benchmark(scripts, tmp_path)
    studies = list(rightlung.open_source(f"manifest:{bench.nih}/fold-0"))
    assert len(studies) == 8
    assert all(list(study.findings) == ["Mass"] and study.phrases[0].boxes for study in studies)


def test_the_command_line_has_the_last_word_in_every_recipe(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    bench = benchmark(scripts, tmp_path)
    runs = [scripts[""].boxed_run(bench, model, 0) for model in scripts[""].BOXED]
    runs += [scripts["_pairs"].retrieval_run(bench, model, "manifest:x") for model in scripts["_pairs"].RETRIEVERS]
    for recipe, *changes in runs:
        read = read_recipe(recipe, [one for one in changes if one != "--set"])
        assert (read.schedule.steps, read.schedule.warmup_steps, read.batch_size) == (20, 2, 8)


def test_mean_auroc_over_findings_and_models_is_that_of_scikit_learn(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    generator = np.random.default_rng(3)
    labels = (generator.random((60, 2)) < 0.4).astype(float)
    tables = [generator.random((60, 2)) + 0.3 * labels for _ in range(3)]
    bench, patients = benchmark(scripts, tmp_path), [f"p{number // 2}" for number in range(60)]
    by_hand = [np.mean([roc_auc_score(labels[:, k], table[:, k]) for k in range(2)]) for table in tables]
    found = scripts[""].auroc(bench, labels, patients, tables[:2])
    assert found.value == pytest.approx(np.mean(by_hand[:2]))
    assert found.low < found.value < found.high
    difference = scripts[""].auroc(bench, labels, patients, tables[:2], tables[2:])
    assert difference.value == pytest.approx(np.mean(by_hand[:2]) - by_hand[2])
