"""Names and columns as at https://www.kaggle.com/c/rsna-pneumonia-detection-challenge/data; the mapping's keys as in
InnerEye-DataQuality's create_noisy_chestxray_dataset.py (Microsoft), which reads the file that the RSNA publishes.
"""

import csv
import io
import zipfile

import pytest

from rightlung.studies.index import IndexedSource
from tests.studies.readers.published import NEGATIVE, POSITIVE, Files, places, real_table

HEADER = "patientId,x,y,width,height,Target"
A = "0004cfab-14fd-4e49-80ba-63a80b6bddd6"
B = "00436515-870c-4b36-a041-de91049b9ab4"
C = "00569f44-917d-4c86-a842-81832af98c30"
ROWS = [f"{A},,,,,0", f"{B},256.0,128.0,512.0,256.0,1", f"{B},0.0,0.0,102.4,102.4,1", f"{C},,,,,0"]
CLASSES = [f"{A},No Lung Opacity / Not Normal", f"{B},Lung Opacity", f"{B},Lung Opacity", f"{C},Normal"]


def write(files: Files, rows: list[str] = ROWS, classes: list[str] | None = CLASSES) -> IndexedSource:
    files.table("stage_2_train_labels.csv", HEADER, rows)
    if classes is not None:
        files.table("stage_2_detailed_class_info.csv", "patientId,class", classes)
    for name in (A, B, C):
        path = f"stage_2_train_images/{name}.dcm"
        files.dicom(path, PatientAge="51", PatientSex="F", ViewPosition="AP", PatientID=name)
    return files.open("rsna")


def test_boxes_of_an_image_make_one_phrase(files: Files) -> None:
    source = write(files)
    assert (len(source), source.problems) == (3, [])
    study = source.study(B)
    (phrase,) = study.phrases
    assert phrase.text == "opacity suspicious for pneumonia"
    assert phrase.boxes[0].as_tuple() == (0.25, 0.125, 0.75, 0.375)
    assert phrase.boxes[1].as_tuple() == pytest.approx((0.0, 0.0, 0.1, 0.1))
    assert study.findings == {"pneumonia-like opacity": POSITIVE}


def test_the_other_two_classes_deny_the_opacity(files: Files) -> None:
    abnormal, _, normal = write(files)
    assert abnormal.findings == {"pneumonia-like opacity": NEGATIVE, "other abnormality": POSITIVE}
    assert normal.findings == {"pneumonia-like opacity": NEGATIVE, "no finding": POSITIVE}
    assert normal.extra["class"] == "Normal"
    assert normal.phrases == ()


def test_age_sex_and_view_come_from_the_header_and_no_patient_does(files: Files) -> None:
    study = write(files, classes=None)[0]
    assert (study.age, study.sex, study.view, study.split) == (51.0, "F", "AP", "train")
    assert study.patient is None  # patientId names an image
    assert dict(study.extra) == {}
    assert study.image.shape == (6, 4)


def test_the_mapping_gives_the_nih_patient(files: Files) -> None:
    nih = {A: "00014197_010.png", B: "00014197_011.png", C: None}
    entries = [{"subset_img_id": ours, "img_id": theirs, "orig_labels": ["Mass"]} for ours, theirs in nih.items()]
    files.json("pneumonia-challenge-dataset-mappings_2018.json", entries)
    source = write(files)
    assert [study.patient for study in source] == ["14197", "14197", None]
    assert source[0].extra["nih"] == "00014197_010.png"
    assert [problem.message[:7] for problem in source.problems] == ["entry 3"]


def test_bad_rows_are_named(files: Files) -> None:
    bad = [f"{A},1,1,,5,1", f"{C},,,,,2", "11111111-1111-1111-1111-111111111111,,,,,0", f"{C},1000,1000,300,300,1"]
    source = write(files, [*ROWS, *bad])
    assert places(source) == [(6, "width"), (7, "Target"), (8, "patientId"), (9, "x")]
    assert len(source) == 3


def test_a_broken_image_is_a_problem_of_its_row(files: Files) -> None:
    source = write(files)
    (files.root / f"stage_2_train_images/{C}.dcm").write_bytes(b"\0" * 200)
    assert len(list(source)) == 2
    assert "is not an image in DICOM, PNG or JPEG format" in str(source.problems[0])
    assert source.problems[0].line == 5


def test_what_is_missing_altogether_is_an_error(files: Files) -> None:
    files.refuses("rsna", "has no table of boxes")
    files.table("stage_2_train_labels.csv", HEADER, ROWS)
    files.refuses("rsna", "stage_2_train_images")


def test_the_real_table_reads(files: Files) -> None:
    """The first 2,000 images of the real table, all given one and the same file, against a plain reading of it."""
    path = real_table("kaggle_stage_2_train_labels.csv.zip")
    data = zipfile.ZipFile(path).read("stage_2_train_labels.csv").decode()
    (files.root / "stage_2_train_labels.csv.zip").write_bytes(path.read_bytes())
    rows = list(csv.DictReader(io.StringIO(data)))
    names = list(dict.fromkeys(row["patientId"] for row in rows))
    assert len(names) == 26_684
    kept = names[:2000]
    files.images(f"stage_2_train_images/{name}.png" for name in kept)
    source = files.open("rsna")
    assert list(source.ids) == kept
    expected = {
        (row["patientId"], float(row["x"]) / 1024, (float(row["y"]) + float(row["height"])) / 1024)
        for row in rows
        if row["Target"] == "1" and row["patientId"] in set(kept)
    }
    found = {(study.id, box.x0, box.y1) for study in source for phrase in study.phrases for box in phrase.boxes}
    assert found == expected
    assert len(found) > 1000
