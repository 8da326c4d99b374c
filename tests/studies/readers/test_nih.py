"""Columns and file names as at https://nihcc.app.box.com/v/ChestXray-NIHCC (README_ChestXray.pdf, FAQ_CHESTXRAY.pdf).

``BBox_List_2017.csv`` is quoted from there: one pair of brackets over four columns, and three commas too many.
"""

import csv
import gzip

import pytest

from rightlung.studies.index import IndexedSource
from tests.studies.readers.published import NEGATIVE, POSITIVE, Files, real_table

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)
ROWS = [
    "00000001_000.png,Cardiomegaly|Effusion,0,1,57,M,PA,2682,2749,0.143,0.143",
    "00000001_001.png,No Finding,1,1,58,M,AP,2894,2729,0.143,0.143",
    "00000002_000.png,Pleural_Thickening,0,2,0,F,PA,2500,2048,0.168,0.168",
]
BOX_HEADER = "Image Index,Finding Label,Bbox [x,y,w,h],,,"


def write(
    files: Files,
    rows: list[str] = ROWS,
    boxes: list[str] | None = None,
    header: str = HEADER,
    table: str = "Data_Entry_2017_v2020.csv",
    query: str = "",
) -> IndexedSource:
    files.table(table, header, rows)
    if boxes is not None:
        files.table("BBox_List_2017.csv", BOX_HEADER, boxes)
    files.image("images_001/images/00000001_000.png", value=10)
    files.image("images_001/images/00000001_001.png", value=20)
    files.image("images_012/images/00000002_000.png", value=30)
    return files.open("nih", query)


def test_a_row_becomes_a_study(files: Files) -> None:
    source = write(files)
    assert list(source.ids) == ["00000001_000", "00000001_001", "00000002_000"]
    assert source.problems == []
    study = source[0]
    assert (study.patient, study.age, study.sex, study.view) == ("1", 57.0, "M", "PA")
    assert study.extra["labels"] == ["Cardiomegaly", "Effusion"]
    assert study.extra["follow_up"] == 0
    assert study.image[0, 0] == pytest.approx(10 / 255)
    assert source[2].image[0, 0] == pytest.approx(30 / 255)  # from another of the twelve folders


def test_an_image_file_that_changes_is_another_image(files: Files) -> None:
    source = write(files)
    before = [source.image_identity(position) for position in range(3)]
    assert len({*before}) > 1
    files.image("images_001/images/00000001_001.png", value=21)
    after = [source.image_identity(position) for position in range(3)]
    assert [one != other for one, other in zip(before, after, strict=True)] == [False, True, False]


def test_labels_not_named_are_unknown_and_no_finding_denies_all(files: Files) -> None:
    first, normal, third = write(files)
    assert first.findings == {"cardiomegaly": POSITIVE, "pleural effusion": POSITIVE}
    assert normal.findings.items() >= {"no finding": POSITIVE, "hernia": NEGATIVE}.items()
    assert len(normal.findings) == 15
    assert third.findings == {"pleural thickening": POSITIVE}


def test_boxes_are_left_top_width_height_in_1024_pixels(files: Files) -> None:
    source = write(files, boxes=[
        "00000001_000.png,Cardiomegaly,256,512,512,256,,,",
        "00000001_000.png,Infiltrate,0,0,102.4,102.4",
        "00000001_000.png,Infiltrate,512,0,102.4,102.4",
    ])  # fmt: skip
    assert source.problems == []
    heart, infiltrate = source[0].phrases
    assert (heart.text, heart.findings) == ("cardiomegaly", {"cardiomegaly": POSITIVE})
    assert heart.boxes[0].as_tuple() == (0.25, 0.5, 0.75, 0.75)
    edges = [box.as_tuple() for box in infiltrate.boxes]
    assert edges == [pytest.approx((0.0, 0.0, 0.1, 0.1)), pytest.approx((0.5, 0.0, 0.6, 0.1))]
    assert source[0].findings["infiltration"] is POSITIVE  # boxed, though the mined labels do not name it
    assert source[1].phrases == ()


def test_a_box_takes_no_finding_back(files: Files) -> None:
    study = write(files, boxes=["00000001_001.png,Nodule,10,10,50,50"])[1]
    assert study.findings == {"nodule": POSITIVE}


def test_bad_boxes_are_named_and_the_rest_stays(files: Files) -> None:
    source = write(files, boxes=[
        "00000001_000.png,Cardiomegaly,900,512,512,256",
        "00000001_000.png,Wart,0,0,10,10",
        "00000009_000.png,Mass,0,0,10,10",
        "00000001_000.png,Mass,0,,10,10",
        "00000001_000.png,Mass,10,10,20,20",
    ])  # fmt: skip
    lines = [(problem.file, problem.line) for problem in source.problems]
    assert lines == [("BBox_List_2017.csv", line) for line in (2, 3, 5, 4)]
    assert "leaves the image" in source.problems[0].message
    assert "'Wart' is not one of the 8" in source.problems[1].message
    assert "00000009_000.png is not in Data_Entry_2017_v2020.csv" in source.problems[3].message
    assert [phrase.text for phrase in source[0].phrases] == ["mass"]


def test_the_official_split_is_read(files: Files) -> None:
    (files.root / "train_val_list.txt").write_text("00000001_000.png\r\n00000001_001.png\r\n")
    (files.root / "test_list.txt").write_text("00000002_000.png")
    assert [study.split for study in write(files)] == ["train", "train", "test"]
    assert list(write(files, query="?split=test").ids) == ["00000002_000"]
    assert list(write(files, query="?split=train_val&limit=1").ids) == ["00000001_000"]


def test_the_first_release_is_read(files: Files) -> None:
    start = ("00000001_000.png,Cardiomegaly,000,1,058Y", "00000002_000.png,Hernia,000,2,411Y")
    rows = [f"{one},M,PA,2682,2749,0.143,0.143," for one in start]
    source = write(files, rows, header=HEADER + ",", table="Data_Entry_2017.csv")
    assert [study.age for study in source] == [58.0, None]


def test_rows_that_cannot_be_used_are_named(files: Files) -> None:
    source = write(files, [
        ROWS[0],
        "00000003_000.png,Mass,0,3,57,M,PA,2682,2749,0.143,0.143",
        "../../etc/passwd,Mass,0,3,57,M,PA,2682,2749,0.143,0.143",
        "00000001_001.png,Wart,0,1,57,M,PA,2682,2749,0.143,0.143",
        "00000002_000.png,Mass,0,1",
        ROWS[0],
    ])  # fmt: skip
    assert list(source.ids) == ["00000001_000"]
    assert [problem.line for problem in source.problems] == [3, 4, 5, 6, 7]
    place = "Data_Entry_2017_v2020.csv, line 3, field Image Index"
    assert str(source.problems[0]) == f"{place}: there is no image 00000003_000.png"
    assert "is a duplicate" in source.problems[4].message


def test_what_is_missing_altogether_is_an_error(files: Files) -> None:
    files.refuses("nih", "has no table of images")
    files.table("Data_Entry_2017_v2020.csv", HEADER, ROWS)
    files.refuses("nih", "no folder with images")
    (files.root / "images").mkdir()
    files.table("Data_Entry_2017_v2020.csv", HEADER.replace("Patient ID", "Patient"), ROWS)
    files.refuses("nih", "has no column 'Patient ID'")


def test_the_real_tables_read(files: Files) -> None:
    """All 984 boxes of the real table, whose 880 images are given one and the same file."""
    table, boxes = real_table("Data_Entry_2017_v2020.csv.gz"), real_table("BBox_List_2017.csv.gz")
    (files.root / table.name).write_bytes(table.read_bytes())
    (files.root / "BBox_List_2017.csv").write_bytes(gzip.decompress(boxes.read_bytes()))
    with gzip.open(boxes, "rt", newline="") as file:
        rows = list(csv.reader(file))[1:]
    files.images({f"images/{row[0]}" for row in rows})
    source = files.open("nih")
    assert len(source) == 880
    problems = [problem for problem in source.problems if problem.file == "BBox_List_2017.csv"]
    assert problems == []
    found = {
        (study.id + ".png", box.as_tuple()) for study in source for phrase in study.phrases for box in phrase.boxes
    }
    assert len(found) == len({tuple(row[:1] + row[2:]) for row in rows})
    for name, _, x, y, width, height, *_ in rows[::50]:
        corners = (float(x), float(y), float(x) + float(width), float(y) + float(height))
        expected = tuple(edge / 1024 for edge in corners)
        assert any(name == other and box == pytest.approx(expected, abs=2 / 1024) for other, box in found)
