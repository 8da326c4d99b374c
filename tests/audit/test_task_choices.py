"""Linear probes, selections of images with one class, and missing labels, as parts of the audit of tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from rightlung.audit import audit_tasks
from rightlung.audit.tasks import parts_of
from rightlung.core import InputError, Polarity, Study
from rightlung.measuring.measures import find_measure
from rightlung.models.probe import HEADS, ProbeSettings
from rightlung.results.estimate import BootstrapSettings
from tests.audit.oracle import BoxesOnly, Oracle, Ward

QUICK = BootstrapSettings(resamples=100)
CLASSES = ("atelectasis", "cardiomegaly", "consolidation", "edema", "pleural effusion")


class Singles(Ward):
    """Studies with one of five findings each, the others unknown; every sixth one has none."""

    def _build(self, position: int) -> Study:
        kind = position % 6
        findings = {CLASSES[kind]: Polarity.POSITIVE} if kind < 5 else {}
        return replace(super()._build(position), findings=findings, phrases=(), report=None)


class Guesser:
    """Knows the class of an image unless its number is a multiple of 5, and then says edema."""

    def classify(self, images: Any, findings: Any, boxes: Any = None, multiclass: bool = False) -> Any:
        assert multiclass == (len(findings) == 5)
        numbers = [round(float(image[0, 0]) * 255) - 1 for image in images]
        called = ["edema" if n % 5 == 0 else CLASSES[n % 6] if n % 6 < 5 else "" for n in numbers]
        return np.array([[float(name == one) for name in findings] for one in called])


def test_accuracy_and_macro_f1_of_a_selection_are_scikit_learns(tmp_path: Path) -> None:
    done = audit_tasks(Guesser(), Singles(60), tmp_path, ["classification:5x10"], settings=QUICK)
    found = done.result["tasks"]["classification"]["5x10"]
    numbers = [n for n in range(60) if n % 6 < 5]
    true = [CLASSES[n % 6] for n in numbers]
    called = ["edema" if n % 5 == 0 else CLASSES[n % 6] for n in numbers]
    assert found["class_accuracy"] == pytest.approx(accuracy_score(true, called))
    assert found["class_macro_f1"] == pytest.approx(f1_score(true, called, average="macro"))
    blind = found["blind"]["blind-constant"]["measures"]
    assert blind["class_accuracy"]["estimate"] == pytest.approx(1 / 5)
    assert found["measures"]["class_accuracy"]["patients"] == len({n // 2 for n in numbers})
    assert "Classification of images with one of 5 classes (5x10)" in done.page.read_text()
    columns = {name: done.parts[0].table[name].to_numpy(zero_copy_only=False) for name in ("study", "target")}
    assert len(columns["study"]) == 2 * 50 * 5  # the model and the baseline, for each image and class
    assert find_measure("class_accuracy").better == "higher"


def test_a_selection_that_a_source_cannot_fill_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="5x11 needs 11 studies of each class alone; got atelectasis 10"):
        audit_tasks(Guesser(), Singles(60), tmp_path, ["classification:5x11"])
    with pytest.raises(InputError, match="ward has no findings"):
        audit_tasks(Guesser(), BoxesOnly(), tmp_path, ["classification:5x1"])
    with pytest.raises(InputError, match="unknown selection '3x3'"):
        parts_of(["classification:3x3"])


def test_probes_are_named_by_head_and_share() -> None:
    (part,) = parts_of(["probe:cxr-8:2.5%"])
    assert (part.findings, part.share, part.slug) == (HEADS["cxr-8"], 0.025, "probe-cxr-8-2.5-percent")
    with pytest.raises(InputError, match="head or share of a linear probe 'cxr8'; did you mean 'cxr-8'"):
        parts_of(["probe:cxr8"])
    with pytest.raises(InputError, match="above 0 and at most 100 %"):
        parts_of(["probe:120%"])


def test_missing_labels_can_count_as_negative(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="known not to have"):
        audit_tasks(Guesser(), Singles(60), tmp_path / "a", ["classification"], settings=QUICK)
    given: dict[str, Any] = {"settings": QUICK, "missing_labels": "negative"}
    done = audit_tasks(Oracle(), Singles(60), tmp_path / "b", ["classification"], **given)
    found = done.result["tasks"]["classification"]
    assert found["classes"] == [
        "atelectasis",
        "cardiomegaly",
        "consolidation",
        "edema",
        "no finding",
        "pleural effusion",
    ]
    assert found["measures"]["finding_auroc"]["instances"] == 60 * 6
    assert found["protocol"]["labels"].endswith("missing labels are negative")
    with pytest.raises(InputError, match="missing_labels"):
        audit_tasks(Oracle(), Ward(), tmp_path / "c", ["classification"], missing_labels="absent")


def test_a_probe_learns_what_the_embedding_holds(tmp_path: Path) -> None:
    taught = Ward(30, "taught", first=100)
    done = audit_tasks(Oracle(), Ward(), tmp_path, ["probe"], settings=QUICK, train=taught, name="oracle")
    found = done.result["tasks"]["probe"]
    assert found["classes"] == ["cardiomegaly"]  # the nodule is never absent
    assert found["finding_auroc"] == 1.0
    assert found["by_class"]["cardiomegaly"]["blind-constant"]["estimate"] == 0.5
    assert "logistic regression to convergence" in found["protocol"]["labels"]
    assert done.result["train"] == "taught"
    tasks, paper = ["probe:50%", "probe:40%"], ProbeSettings("five-epochs")
    done = audit_tasks(Oracle(), Ward(), tmp_path / "b", tasks, settings=QUICK, train=taught, probe=paper)
    assert [*done.result["tasks"]["probe"]] == ["50%", "40%"]
    labels = done.result["tasks"]["probe"]["50%"]["protocol"]["labels"]
    assert labels.endswith(
        "5 epochs, the one with the lowest loss on 10 % of the training patients; labels of 50 % of them"
    )


def test_a_probe_is_refused_without_other_patients_or_labels(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="task probe: patient 'p1' is both in taught and in ward"):
        audit_tasks(Oracle(), Ward(), tmp_path, ["probe"], train=Ward(12, "taught", first=2))
    with pytest.raises(InputError, match="give their source by --train"):
        audit_tasks(Oracle(), Ward(), tmp_path, ["probe"])
    with pytest.raises(InputError, match="boxes lacks a finding"):
        audit_tasks(Oracle(), Ward(), tmp_path, ["probe"], train=BoxesOnly(12, "boxes", first=100))
    with pytest.raises(InputError, match="ward lacks a finding"):
        audit_tasks(Oracle(), Ward(), tmp_path, ["probe:pneumonia"], train=Ward(12, "taught", first=100))
