"""MS-CXR, as CSV and as COCO JSON, with the published names: https://physionet.org/content/ms-cxr/1.1.0/.

Columns and keys are as public code that reads them lists them; the files themselves are not public.
"""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rightlung import open_source
from rightlung.core import Box
from rightlung.studies.check import check_source
from tests.studies.readers.published import POSITIVE, Files, refuses

HEADER = "dicom_id,category_name,label_text,path,x,y,w,h,image_width,image_height,split"
A, B = "675d792f-a3521e48", "2a2277a9-b0ded155"
PATH_A, PATH_B = f"files/p10/p10233088/s54276838/{A}.jpg", f"files/p11/p11000000/s55000000/{B}.jpg"
ROWS = [
    f'{A},Pneumonia,"consolidation, right lower lobe",{PATH_A},20,50,40,25,200,100,test',
    f"{A},Pleural Effusion,bilateral effusions,{PATH_A},0,60,50,40,200,100,test",
    f"{A},Pleural Effusion,bilateral effusions,{PATH_A},150,60,50,40,200,100,test",
    f"{B},Cardiomegaly,enlarged heart,{PATH_B},10,10,20,20,50,50,val",
]


@pytest.fixture
def mimic(files: Files) -> Path:
    files.image(f"mimic/{PATH_A}", size=(100, 200))
    return files.root / "mimic"


@pytest.fixture
def folder(mimic: Path, files: Files) -> Path:
    return files.table("ms-cxr/MS_CXR_Local_Alignment_v1.1.0.csv", HEADER, ROWS).parent


def test_a_check_names_the_table_and_its_line(mimic: Path, files: Files) -> None:
    swapped = ROWS[0].replace("right lower lobe", "left lower lobe")
    folder = files.table("ms-cxr/MS_CXR_Local_Alignment_v1.1.0.csv", HEADER, [swapped]).parent
    findings = check_source(f"mscxr:{folder}?images={mimic}", images=False).findings
    assert [(f.check, f.place.file, f.place.row, f.field) for f in findings if f.check == "box-side"] == [
        ("box-side", "MS_CXR_Local_Alignment_v1.1.0.csv", 2, "phrases[0].boxes[0]")
    ]


def coco() -> dict[str, Any]:
    """The same rows as COCO has them."""
    names = ["Pneumonia", "Pleural Effusion", "Cardiomegaly"]
    images, annotations = {}, []
    for row in csv.DictReader([HEADER, *ROWS]):
        size = {"width": int(row["image_width"]), "height": int(row["image_height"])}
        image = {"id": 7 if row["dicom_id"] == A else 8, "file_name": f"{row['dicom_id']}.jpg", "path": row["path"]}
        images[row["dicom_id"]] = image | size
        told = {"label_text": row["label_text"], "bbox": [int(row[edge]) for edge in "xywh"], "split": row["split"]}
        annotations.append({"image_id": image["id"], "category_id": names.index(row["category_name"]), **told, **size})
    categories = [{"id": number, "name": name} for number, name in enumerate(names)]
    return {"info": {}, "images": list(images.values()), "annotations": annotations, "categories": categories}


def test_boxes_in_pixels_become_fractions_and_one_text_has_all_its_boxes(folder: Path, mimic: Path) -> None:
    study = open_source(f"mscxr:{folder}?images={mimic}").study(A)
    pneumonia, effusion = study.phrases
    assert pneumonia.text == "consolidation, right lower lobe"
    assert pneumonia.boxes == (Box(0.1, 0.5, 0.3, 0.75),)
    assert pneumonia.findings == {"pneumonia": POSITIVE}
    assert effusion.boxes == (Box(0.0, 0.6, 0.25, 1.0), Box(0.75, 0.6, 1.0, 1.0))
    assert study.findings == {"pneumonia": POSITIVE, "pleural effusion": POSITIVE}
    assert study.extra["categories"] == ("Pneumonia", "Pleural Effusion")
    assert (study.patient, study.exam, study.split) == ("10233088", "54276838", "test")
    assert study.image.shape == (100, 200)


def test_both_forms_give_the_same(folder: Path, mimic: Path, files: Files) -> None:
    path = files.root / "MS_CXR_Local_Alignment_v1.1.0.json"
    path.write_text(json.dumps(coco()))
    one, other = (list(open_source(f"mscxr:{place}?images={mimic}")) for place in (folder, path))
    assert [study.id for study in one] == [study.id for study in other] == [A, B]
    for left, right in zip(one, other, strict=True):
        assert (left.phrases, left.split, left.patient) == (right.phrases, right.split, right.patient)
        assert left.extra == right.extra


def test_the_newest_version_is_read_and_the_first_had_no_split(folder: Path, mimic: Path, files: Files) -> None:
    old = "ms-cxr/MS_CXR_Local_Alignment_v1.0.0.csv"
    files.table(old, HEADER.removesuffix(",split"), [row.rpartition(",")[0] for row in ROWS[:3]])
    assert list(open_source(f"mscxr:{folder}?images={mimic}").ids) == [A, B]
    first = f"mscxr:{files.root / old}?images={mimic}"
    assert [(study.id, study.split) for study in open_source(first)] == [(A, None)]
    refuses(f"{first}&split=test", "has no splits; remove split=test")


def test_the_split_is_the_tables_own(folder: Path, mimic: Path) -> None:
    assert list(open_source(f"mscxr:{folder}?images={mimic}&split=validate").ids) == [B]


def test_bad_rows_are_named_and_their_image_keeps_the_good_ones(mimic: Path, files: Files) -> None:
    bad = [
        f"{A},Pneumonia,outside,{PATH_A},20,50,400,25,200,100,test",
        f"{A},Pnuemonia,misspelt,{PATH_A},20,50,40,25,200,100,test",
        f"{A},Pneumonia,path,../../etc/{A}.jpg,20,50,40,25,200,100,test",
        f"{A},Pneumonia,another split,{PATH_A},20,50,40,25,200,100,train",
        f"{A},Pneumonia,another size,{PATH_A},20,50,40,25,100,200,test",
        f"{A},Pneumonia,not a number,{PATH_A},left,50,40,25,200,100,test",
    ]
    folder = files.table("ms-cxr/MS_CXR_Local_Alignment_v1.1.0.csv", HEADER, [ROWS[0], *bad, ROWS[1]]).parent
    source = open_source(f"mscxr:{folder}?images={mimic}")
    (study,) = source
    assert [phrase.text for phrase in study.phrases] == ["consolidation, right lower lobe", "bilateral effusions"]
    found = {problem.line: (problem.field, problem.message) for problem in source.problems}
    assert sorted(found) == [3, 4, 5, 6, 7, 8]  # type: ignore[type-var]
    assert "leaves the image, which is 200 pixels wide and 100 high" in found[3][1]
    assert "did you mean 'Pneumonia'?" in found[4][1]
    assert found[5][0] == "path"
    assert "is in 'test' and in 'train'" in found[6][1]
    assert "has another size than on line 2" in found[7][1]
    assert found[8] == ("x", "must be a number; got 'left'")


def test_coco_that_is_none_is_refused_and_its_bad_entries_are_named(mimic: Path, files: Files) -> None:
    path = files.root / "MS_CXR_Local_Alignment_v1.1.0.json"
    for text in ("[1]", "{", '{"images": []}'):
        path.write_text(text)
        refuses(f"mscxr:{path}?images={mimic}", "is not in COCO format")
    whole = coco()
    whole["annotations"][1] = {"image_id": 7}
    whole["annotations"][2]["image_id"] = 99
    whole["annotations"].append({**whole["annotations"][3], "bbox": [10, 10, 20]})
    path.write_text(json.dumps(whole))
    source = open_source(f"mscxr:{path}?images={mimic}")
    assert [str(problem) for problem in source.problems] == [
        "MS_CXR_Local_Alignment_v1.1.0.json, field annotations[1]: 'category_id' is missing",
        "MS_CXR_Local_Alignment_v1.1.0.json, field annotations[2]: image_id 99 is not among the images",
        "MS_CXR_Local_Alignment_v1.1.0.json, field annotations[4]: bbox must be [x, y, width, height]; got 3 numbers",
    ]
    assert [len(study.phrases) for study in source] == [1, 1]


def test_a_folder_without_the_table_and_one_without_images_are_refused(folder: Path, mimic: Path) -> None:
    refuses(f"mscxr:{mimic}?images={mimic}", r"has no MS_CXR_Local_Alignment_v….csv or .json")
    refuses(f"mscxr:{folder}", "add images=/path/to/mimic-cxr-jpg")


def test_with_mimics_split_its_validation_and_test_images_are_the_test_set(
    folder: Path, mimic: Path, files: Files
) -> None:
    address = f"mscxr:{folder}?images={mimic}&splits=mimic"
    refuses(address, "splits=mimic needs mimic-cxr-2.0.0-split.csv")
    rows = [f"{A},54276838,10233088,validate", f"{B},55000000,11000000,test"]
    table = "mimic/mimic-cxr-2.0.0-split.csv"
    files.table(table, "dicom_id,study_id,subject_id,split", rows)
    assert list(open_source(f"{address}&split=test").ids) == [A, B]
    files.table(table, "dicom_id,study_id,subject_id,split", [rows[0], rows[1].replace("test", "train")])
    assert {study.id: study.split for study in open_source(address)} == {A: "test", B: "train"}
