"""The figures that ChEX prints, and where they contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
import yaml

from rightlung.core import InputError
from rightlung.reproduce.published import PublishedValue, Subject, parse, published_in

PACKAGE = "rightlung.reproduce.chex"
BOOK = published_in(PACKAGE)
OBSERVATIONS = (
    "Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion", "Enlarged Cardiomediastinum",
    "Fracture", "Lung Lesion", "Lung Opacity", "Pleural Other", "Pneumonia", "Pneumothorax", "Support Devices",
    "No Finding",
)  # fmt: skip
KINDS = {
    "best-supod": ("frcnn", "detr", "conditional", "deformable", "co-"),
    "best-wsupod": ("chexnet", "mil-", "loc-"),
    "best-supvg": ("transvg",),
    "best-contrastive": ("biovil", "chexzero"),
}


@pytest.fixture
def content() -> dict[str, Any]:
    return dict(yaml.safe_load(files(PACKAGE).joinpath("published.yaml").read_text(encoding="utf-8")))


def find(model: str, measure: str, subset: str, table: str | None = None) -> PublishedValue:
    found = BOOK.find(Subject(model, measure, subset, "benchmark"), table)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("model", "measure", "subset", "printed", "std", "table"),
    [
        ("chex", "box_miou", "ms-cxr", "47.52", 1.45, "2"),
        ("best-generative", "box_miou", "ms-cxr", "46.2", None, "2"),
        ("no-s", "finding_auroc", "ms-cxr", "80.89", None, "3"),
        ("no-post-decoder", "micro_f1_14", "cig", "43.90", None, "4"),
        ("chex-by-name", "micro_f1_14", "cig", "54.70", 0.41, "5"),
        ("prompts-no-positive", "micro_precision_14", "mimic", "49.38", None, "6"),
        ("transvg-chexzero", "sentence_map", "ms-cxr", "44.05", 2.63, "7"),
        ("loc-adpd-biovil", "map", "nih8", "11.89", 0.88, "8"),
        ("chexzero-cropped", "finding_auroc_weighted", "cig", "61.80", 0.28, "9"),
        ("rgrg", "macro_f1_5", "ms-cxr", "38.34", 2.23, "10"),
        ("biovil", "macro_f1_14", "cig", "7.15", 0.10, "11"),
        ("med-palm-m-84b", "macro_f1_14", "mimic", "39.83", None, "12"),
        ("maira-1", "meteor", "mimic", "33.3", None, "13"),
        ("chex", "f1 Lung Lesion", "mimic", "14.24", 3.05, "14"),
    ],
)
def test_figures_are_those_of_the_paper(
    model: str, measure: str, subset: str, printed: str, std: float | None, table: str
) -> None:
    found = find(model, measure, subset)
    assert (found.printed, found.table) == (printed, table)
    assert found.value == pytest.approx(float(printed) / 100)
    assert found.std == (None if std is None else pytest.approx(std / 100))


def test_every_table_has_all_its_figures(content: dict[str, Any]) -> None:
    figures = {
        number: sum(1 for row in table["rows"] for value in row[2:] if value != "-")
        for number, table in content["tables"].items()
    }
    assert figures == {
        "2": 19 + 5 + 5 + 2 + 13 + 13, "3": 19 * 10, "4": 6 * 3, "5": 4, "6": 8 * 6, "7": 15, "8": 23 * 3,
        "9": 20, "10": 20, "11": 20,
        "12": 2 * 5 + 3 + 3 * 4 + 4 + 2 + 7 * 1, "13": 4 * 5 + 2 + 3 * 4 + 8 * 4 + 3 + 2,
        "14": 14 * 3,
    }  # fmt: skip


def test_tables_that_repeat_a_figure_agree_except_where_marked() -> None:
    default = find("chex", "micro_f1_14", "mimic")
    assert (default.printed, default.tables) == ("52.32", ("2", "3", "4", "12"))
    assert find("chex", "micro_f1_14", "mimic", "6").printed == "52.37"
    assert find("chex", "micro_f1_14", "mimic", "12").printed == "52.32"
    assert {(subject.measure, table) for subject, table in BOOK.contradictions} == {
        (measure, "6") for measure in ("micro_f1_14", "macro_f1_14", "example_f1_14", "meteor")
    }
    assert any("52.37" in remark for remark in BOOK.remarks)


def test_contradictions_must_be_marked_and_marked_ones_must_be_there(content: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"table 6, row 4: micro_f1_14 is 52\.37 here but 52\.32 in table 2"):
        parse(content | {"contradictions": []})
    wrong = [{"model": "chex", "subset": "mimic", "measure": "micro_f1_14", "table": "12", "note": "none"}]
    with pytest.raises(InputError, match="chex, mimic, micro_f1_14, 12: this table does not contradict"):
        parse(content | {"contradictions": [*content["contradictions"], *wrong]})


def best_of(kind: str, measure: str, subset: str) -> Iterator[float]:
    for subject, value in BOOK.values.items():
        if subject.model.startswith(KINDS[kind]) and (subject.measure, subject.subset) == (measure, subset):
            yield value.value


def test_table_2_repeats_the_best_baselines_of_the_other_tables_except_in_one_place() -> None:
    differing = {
        (subject.model, subject.measure, subject.subset)
        for subject, value in BOOK.values.items()
        if subject.model in KINDS and max(best_of(subject.model, subject.measure, subject.subset)) != value.value
    }
    assert differing == {("best-contrastive", "meteor", "ms-cxr")}
    assert any("4.26" in remark and "3.82" in remark for remark in BOOK.remarks)


def test_means_of_table_14_are_the_macro_f1_of_table_12_except_for_rgrg() -> None:
    means = {
        model: sum(find(model, f"f1 {name}", "mimic").value for name in OBSERVATIONS) / 14
        for model in ("chex", "rgrg", "maira-1")
    }
    assert means["chex"] == pytest.approx(find("chex", "macro_f1_14", "mimic").value, abs=1e-4)
    assert means["maira-1"] == pytest.approx(find("maira-1", "macro_f1_14", "mimic").value, abs=1e-3)
    assert (round(means["rgrg"], 3), find("rgrg", "macro_f1_14", "mimic").printed) == (0.305, "31.8")


def test_f1_of_table_6_follows_from_precision_and_recall() -> None:
    models = {subject.model for subject in BOOK.values if subject.measure == "micro_recall_14"}
    assert len(models) == 8
    for model in models:
        f1, precision, recall = (
            find(model, f"micro_{name}_14", "mimic", "6").value for name in ("f1", "precision", "recall")
        )
        assert f1 == pytest.approx(2 * precision * recall / (precision + recall), abs=2e-4)
