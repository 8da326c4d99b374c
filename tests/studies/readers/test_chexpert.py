"""Columns as in the released train.csv and valid.csv (https://stanfordmlgroup.github.io/competitions/chexpert/),
groundtruth.csv of https://github.com/rajpurkarlab/cheXpert-test-set-labels, and chexpert_5x200.csv as
``preprocess_chexpert_5x200_data`` of https://github.com/marshuang80/gloria writes it.
"""

import csv
import gzip
from collections import Counter

import pytest

from rightlung.core import InputError
from rightlung.studies.check import check_source
from rightlung.studies.index import IndexedSource
from tests.studies.conftest import there
from tests.studies.readers.published import CHEXPERT, NEGATIVE, POSITIVE, UNCERTAIN, Files, places, real_table

HEADER = f"Path,Sex,Age,Frontal/Lateral,AP/PA,{CHEXPERT}"
TRAIN = [
    "train/patient00001/study1/view1_frontal.jpg,Female,68,Frontal,AP,1.0,,,,,,,,,0.0,,,,1.0",
    "train/patient00002/study2/view1_frontal.jpg,Female,87,Frontal,PA,,,-1.0,1.0,,-1.0,-1.0,,-1.0,,-1.0,,1.0,",
    "train/patient00002/study1/view2_lateral.jpg,Male,83,Lateral,,,,,1.0,,,-1.0,,,,,,1.0,",
    "train/patient00003/study1/view1_frontal.jpg,Unknown,0,Frontal,LL,,,,,,,,,,,,,,",
]
VALID = ["valid/patient64541/study1/view1_frontal.jpg,Male,73,Frontal,AP," + ",".join(["0.0"] * 13 + ["1.0"])]


def write(
    files: Files, train: list[str] = TRAIN, name: str = "CheXpert-v1.0", inside: str = "", query: str = ""
) -> IndexedSource:
    files.table(f"{inside}train.csv", HEADER, [f"{name}/{row}" for row in train])
    files.table(f"{inside}valid.csv", HEADER, [f"{name}/{row}" for row in VALID])
    files.image(f"{inside}train/patient00001/study1/view1_frontal.jpg", value=10)
    files.image(f"{inside}train/patient00002/study2/view1_frontal.jpg", value=20)
    files.image(f"{inside}valid/patient64541/study1/view1_frontal.jpg", value=30)
    return files.open("chexpert", query)


def test_one_zero_minus_one_and_nothing_are_four_different_things(files: Files) -> None:
    first, second, valid = write(files)
    assert first.findings == {"no finding": POSITIVE, "pneumothorax": NEGATIVE, "support devices": POSITIVE}
    assert second.findings.items() >= {"cardiomegaly": UNCERTAIN, "lung opacity": POSITIVE}.items()
    assert "pneumonia" not in second.findings
    uncertain = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
    assert second.extra["labels"] == {**dict.fromkeys(uncertain, -1), "Lung Opacity": 1, "Fracture": 1}
    assert Counter(valid.findings.values()) == {NEGATIVE: 13, POSITIVE: 1}


def test_a_row_becomes_a_study_and_laterals_are_counted(files: Files) -> None:
    source = write(files)
    exams = ("patient00001_study1", "patient00002_study2", "patient64541_study1")
    assert list(source.ids) == [f"{exam}_view1_frontal" for exam in exams]
    assert dict(source.left_out) == {"lateral view": 2}  # one by its name, one by its projection
    study = source[1]
    assert (study.patient, study.exam) == ("patient00002", "patient00002_study2")
    assert (study.age, study.sex, study.view, study.split) == (87.0, "F", "PA", "train")
    assert [round(float(one.image[0, 0]) * 255) for one in source] == [10, 20, 30]
    assert (study.phrases, source.problems) == ((), [])


def test_a_check_names_table_line_and_kind(files: Files) -> None:
    clear = ",".join([""] * 14)
    rows = [
        *TRAIN[:1],
        f"train/patient00004/study1/view1_frontal.jpg,Female,210,Frontal,AP,{clear}",
        f"train/patient00005/study1/view1_frontal.jpg,Femal,21,Frontal,AP,{clear}",
        f"train/patient00006/study1/view1_frontal.jpg,Male,21,Frontal,AP,7.0,{clear[1:]}",
        TRAIN[0],
        f"train/patient00007/study1/view1_frontal.jpg,Male,21,Frontal,XY,{clear}",
    ]
    write(files, rows)
    findings = check_source(f"chexpert:{files.root}?split=train", images=False).findings
    told = {(f.check, f.place.file, f.place.row, f.field) for f in findings}
    assert told == {
        ("label-value", "train.csv", 3, "Age"), ("label-value", "train.csv", 4, "Sex"),
        ("label-value", "train.csv", 5, "No Finding"), ("duplicate-id", "train.csv", 6, "id"),
        ("label-value", "train.csv", 7, "view"),
    }  # fmt: skip
    missing = [f for f in check_source(f"chexpert:{files.root}").findings if f.check == "missing-image"]
    assert [(f.place.file, f.place.row, f.field) for f in missing] == [("train.csv", 7, "image")]


def test_labels_that_a_table_lacks_are_listed(files: Files) -> None:
    header = HEADER.replace(",Fracture", "").replace(",Pleural Other", "")
    files.table("train.csv", header, [f"{TRAIN[0].rsplit(',', 2)[0]}"])
    source = files.open("chexpert")
    found = [(one.file, one.line, one.field, one.kind) for one in source.problems]
    assert found == [("train.csv", None, label, "label-name") for label in ("Pleural Other", "Fracture")]
    assert len(source) == 1


@pytest.mark.parametrize(
    ("name", "inside"),
    [("CheXpert-v1.0", ""), ("CheXpert-v1.0-small", ""), ("CheXpert-v1.0-small", "CheXpert-v1.0-small/")],
)
def test_paths_of_both_releases_lead_to_the_images(files: Files, name: str, inside: str) -> None:
    assert [study.image.shape for study in write(files, name=name, inside=inside)] == [(6, 4)] * 3


def test_splits_have_their_names_and_common_ones(files: Files) -> None:
    assert len(write(files, query="?split=train")) == 2
    assert list(write(files, query="?split=val").ids) == ["patient64541_study1_view1_frontal"]


def test_the_parts_of_the_download_are_read_side_by_side(files: Files) -> None:
    first = "CheXpert-v1.0 batch 1 (validate & csv)"
    files.table(f"{first}/train.csv", HEADER, [f"CheXpert-v1.0/{row}" for row in TRAIN[:2]])
    files.image("CheXpert-v1.0 batch 2 (train 1)/patient00001/study1/view1_frontal.jpg", value=10)
    files.image("CheXpert-v1.0 batch 3 (train 2)/patient00002/study2/view1_frontal.jpg", value=20)
    source = files.open("chexpert")
    assert [round(float(study.image[0, 0]) * 255) for study in source] == [10, 20]


def test_test_labels_by_image_or_by_examination(files: Files) -> None:
    values = ",".join(["0"] * 13 + ["1"])
    for name in ("view1_frontal", "view2_lateral", "view3_frontal"):
        files.image(f"test/patient64741/study1/{name}.jpg")
    studies = ("CheXpert-v1.0/test/patient64741/study1", "CheXpert-v1.0/test/patient64742/study1", "nonsense")
    path = files.table("groundtruth.csv", f"Study,{CHEXPERT}", [f"{study},{values}" for study in studies])
    source = files.open("chexpert")
    assert list(source.ids) == ["patient64741_study1_view1_frontal", "patient64741_study1_view3_frontal"]
    assert places(source) == [(3, "Study"), (4, "Study")]
    assert source[0].findings["support devices"] is POSITIVE
    assert {study.exam for study in source} == {"patient64741_study1"}
    path.unlink()
    images = ("view1_frontal.jpg", "view2_lateral.jpg")
    rows = [f"test/patient64741/study1/{image},{values}" for image in images]
    files.table("test_labels.csv", f"Path,{CHEXPERT}", rows)
    (study,) = files.open("chexpert", "?split=test")
    assert study.image.shape == (6, 4)


def test_5x200_knows_its_class_and_takes_no_filled_blank_for_a_negative(files: Files) -> None:
    one = ["1.0" if label == "Edema" else "0.0" for label in CHEXPERT.split(",")]
    row = ["17", "CheXpert-v1.0/train/patient00001/study1/view1_frontal.jpg", "Female", "68", "Frontal", "AP", *one]
    files.table("chexpert_5x200.csv", f",{HEADER},Report Impression", [[*row, '"1. Edema, mild."']])
    source = write(files, query="?subset=5x200")
    (study,) = source
    assert (study.split, study.extra["class"]) == ("5x200", "Edema")
    assert study.findings == {"edema": POSITIVE}
    assert there(study.report).sections == {"impression": "1. Edema, mild."}
    assert study.image.shape == (6, 4)
    assert len(write(files)) == 3  # the same folder without the subset
    with pytest.raises(InputError, match="unknown subset '5x20'; did you mean '5x200'"):
        write(files, query="?subset=5x20")


def test_bad_rows_are_named(files: Files) -> None:
    paths = ("train/patient00009/study1/view1_frontal.gif", "train/../../patient00009/study1/view1_frontal.jpg")
    rows = [f"{path},Female,68,Frontal,AP" + "," * 14 for path in paths]
    rows += [f"train/patient00009/study1/view1_frontal.jpg,Female,old,Frontal,AP{',' * 14}"]
    source = write(files, [*TRAIN, *rows])
    assert places(source) == [(6, "Path"), (7, "Path"), (8, "Age")]
    assert len(source) == 3


def test_what_is_missing_altogether_is_an_error(files: Files) -> None:
    files.refuses("chexpert", r"has no table of CheXpert \(train\.csv, valid\.csv")
    files.refuses("chexpert", r"\(chexpert_5x200\.csv\)", "?subset=5x200")


def test_the_real_table_reads(files: Files) -> None:
    """20,000 rows of the released train.csv against a plain count."""
    with gzip.open(real_table("chexpert_train.csv.gz"), "rt", newline="") as file:
        lines = [next(file) for _ in range(20_001)]
    (files.root / "train.csv").write_text("".join(lines))
    source = files.open("chexpert")
    rows = [
        row for row in csv.DictReader(lines) if row["Frontal/Lateral"] == "Frontal" and row["AP/PA"] in ("AP", "PA")
    ]
    assert (len(source), source.problems) == (len(rows), [])
    assert source.left_out["lateral view"] == 20_000 - len(rows)
    values = {"positive": "1.0", "negative": "0.0", "uncertain": "-1.0"}
    found = Counter(polarity for study in source for name, polarity in study.findings.items() if name == "edema")
    assert {polarity.value: count for polarity, count in found.items()} == {
        name: sum(row["Edema"] == value for row in rows) for name, value in values.items()
    }
