"""Names and columns as at https://physionet.org/content/vindr-cxr/1.0.0/ ("Data Description") and
https://www.kaggle.com/c/vinbigdata-chest-xray-abnormalities-detection/data; ``train_meta.csv`` as in the resized copies
(https://www.kaggle.com/datasets/xhlulu/vinbigdata), which give the original height and width as dim0 and dim1.
"""

import csv
import gzip
import pickle
from collections import Counter

import pytest

from rightlung.core import InputError
from rightlung.studies.index import IndexedSource
from rightlung.studies.readers.vindr import polarity_of
from tests.studies.readers.published import NEGATIVE, POSITIVE, UNCERTAIN, Files, places, real_table

LABELS = (
    "Aortic enlargement,Atelectasis,Calcification,Cardiomegaly,Clavicle fracture,Consolidation,Edema,Emphysema,"
    "Enlarged PA,ILD,Infiltration,Lung Opacity,Lung cavity,Lung cyst,Mediastinal shift,Nodule/Mass,Pleural effusion,"
    "Pleural thickening,Pneumothorax,Pulmonary fibrosis,Rib fracture,Other lesion,"
    "COPD,Lung tumor,Pneumonia,Tuberculosis,Other diseases,No finding"
)
A, B, C = ("50a418190bc3fb1ef1633bf9678929b3", "9a5094b2563a1ef3ff50dc5c7ff71345", "002a34c58c5b758217ed1f584ccbcfe9")
TRAIN = [
    *(f"{A},{reader},No finding,,,," for reader in ("R11", "R7", "R10")),
    f"{B},R10,Cardiomegaly,20,60,80,100",
    f"{B},R8,Cardiomegaly,24,60,84,100",
    f"{B},R9,Cardiomegaly,28,60,88,100",
    f"{B},R9,Nodule/Mass,0,0,10,20",
    f"{B},R8,Pleural effusion,50,150,100,200",
    f"{B},R10,Pleural effusion,60,160,100,200",
]
TEST = [f"{C},Cardiomegaly,10,20,50,100", f"{C},Cardiomegaly,12,22,52,102"]


def labels_row(*names: str) -> str:
    return ",".join("1" if label in names else "0" for label in LABELS.split(","))


IMAGE_LABELS = [
    *(f"{A},{reader},{labels_row('No finding')}" for reader in ("R11", "R7", "R10")),
    *(f"{B},{reader},{labels_row('Cardiomegaly', 'Pleural effusion', 'Tuberculosis')}" for reader in ("R10", "R8")),
    f"{B},R9,{labels_row('Cardiomegaly', 'Nodule/Mass')}",
]


def write(
    files: Files,
    train: list[str] = TRAIN,
    labels: list[str] | None = IMAGE_LABELS,
    query: str = "",
    folder: str = "annotations/",
) -> IndexedSource:
    edges = "class_name,x_min,y_min,x_max,y_max"
    files.table(f"{folder}annotations_train.csv", f"image_id,rad_id,{edges}", train)
    files.table(f"{folder}annotations_test.csv", f"image_id,{edges}", TEST)
    if labels is not None:
        files.table(f"{folder}image_labels_train.csv", f"image_id,rad_id,{LABELS}", labels)
        header = f"image_id,{LABELS.replace('Other diseases', 'Other disease')}"
        files.table(f"{folder}image_labels_test.csv", header, [f"{C},{labels_row('Cardiomegaly', 'Other diseases')}"])
    for name in (f"train/{A}", f"train/{B}", f"test/{C}"):
        files.dicom(f"{name}.dicom", (200, 100), PatientAge="061Y", PatientSex="F")
    return files.open("vindr", query)


def test_three_readers_are_fused_label_by_label(files: Files) -> None:
    source = write(files)
    assert (list(source.ids), source.problems) == ([A, B, C], [])
    study = source.study(B)
    phrases = {phrase.text: phrase for phrase in study.phrases}
    assert list(phrases) == ["cardiomegaly", "lung nodule or mass", "pleural effusion"]
    (heart,) = phrases["cardiomegaly"].boxes  # the mean of three, in a 200 x 100 image
    assert heart.as_tuple() == pytest.approx((0.24, 0.3, 0.84, 0.5))
    (effusion,) = phrases["pleural effusion"].boxes
    assert effusion.as_tuple() == pytest.approx((0.55, 0.775, 1.0, 1.0))
    assert {one["label"]: (round(one["score"], 3), one["readers"]) for one in study.extra["boxes"]} == {
        "Cardiomegaly": (1.0, ["R10", "R8", "R9"]),
        "Pleural effusion": (0.667, ["R10", "R8"]),
        "Nodule/Mass": (0.333, ["R9"]),
    }


def test_most_readers_decide_and_one_of_three_is_uncertain(files: Files) -> None:
    study = write(files).study(B)
    assert study.findings["cardiomegaly"] is POSITIVE
    assert study.findings["pleural effusion"] is POSITIVE
    assert study.findings["nodule or mass"] is UNCERTAIN
    assert study.findings["tuberculosis"] is POSITIVE  # a label of the whole image, without a box
    assert study.findings.items() >= {"pneumothorax": NEGATIVE, "no finding": NEGATIVE}.items()
    assert len(study.findings) == 28
    assert study.extra["labels"]["Pleural effusion"] == 2
    (nodule,) = [phrase for phrase in study.phrases if phrase.text == "lung nodule or mass"]
    assert nodule.findings == {"nodule or mass": UNCERTAIN}
    assert [polarity_of(count, 3).value for count in range(4)] == ["negative", "uncertain", "positive", "positive"]


def test_single_readers_are_kept_for_a_human_ceiling(files: Files) -> None:
    readers = write(files).study(B).extra["readers"]
    assert list(readers) == ["R10", "R8", "R9"]
    heart = {"label": "Cardiomegaly", "box": [0.28, 0.3, 0.88, 0.5]}
    nodule = {"label": "Nodule/Mass", "box": [0.0, 0.0, 0.1, 0.1]}
    assert readers["R9"] == {"labels": ["Cardiomegaly", "Nodule/Mass"], "boxes": [heart, nodule]}


def test_agreement_keeps_what_so_many_have_drawn(files: Files) -> None:
    two = write(files, query="?agreement=2").study(B)
    assert [phrase.text for phrase in two.phrases] == ["cardiomegaly", "pleural effusion"]
    source = pickle.loads(pickle.dumps(write(files, query="?agreement=3")))
    assert [phrase.text for phrase in source.study(B).phrases] == ["cardiomegaly"]
    assert len(source.study(C).phrases) == 1  # the consensus is one voice, and stands
    with pytest.raises(InputError, match="agreement must be an integer of at least 1"):
        write(files, query="?agreement=0")


def test_the_consensus_of_the_test_images_is_taken_as_it_is(files: Files) -> None:
    study = write(files, query="?split=test")[0]
    (phrase,) = study.phrases
    assert [box.as_tuple() for box in phrase.boxes] == [(0.1, 0.1, 0.5, 0.5), pytest.approx((0.12, 0.11, 0.52, 0.51))]
    assert study.findings["cardiomegaly"] is POSITIVE
    assert study.findings["other disease"] is POSITIVE  # "Other disease" in this file
    assert study.findings["edema"] is NEGATIVE


def test_a_normal_image_has_no_phrase(files: Files) -> None:
    study = write(files).study(A)
    assert study.phrases == ()
    assert study.findings["no finding"] is POSITIVE
    assert (study.view, study.age, study.sex, study.split, study.patient) == ("PA", 61.0, "F", "train", None)
    assert study.image.shape == (200, 100)


def test_labels_come_from_the_boxes_where_there_is_no_table_of_them(files: Files) -> None:
    source = write(files, labels=None, folder="")
    assert source.study(B).findings.items() >= {"pleural effusion": POSITIVE, "nodule or mass": UNCERTAIN}.items()
    assert source.study(A).findings["no finding"] is POSITIVE
    assert "tuberculosis" not in source.study(B).findings  # nobody was asked


def test_bad_rows_are_named_and_the_rest_stays(files: Files) -> None:
    source = write(files,
        [*TRAIN, f"{B},R9,Wart,0,0,10,20", f"{B},R9,Mass,1,1,2,2", f"{B},R9,ILD,20,0,10,20", f"{B},R9,ILD,,0,10,20",
         f"{A}0,R9,ILD,1,0,10,20", f"{B},,ILD,1,0,10,20"],
        [*IMAGE_LABELS, f"{A},R10,{labels_row('ILD').replace('1', '2')}"],
    )  # fmt: skip
    names = [problem.file.rpartition("/")[2] for problem in source.problems]
    assert names == ["image_labels_train.csv"] + ["annotations_train.csv"] * 6
    boxes = ((11, "class_name"), (12, "class_name"), (13, "x_min"), (14, "x_min"), (15, "image_id"), (16, "rad_id"))
    assert places(source) == [(8, "ILD"), *boxes]
    assert len(source) == 3


def test_a_box_outside_its_image_is_a_problem_of_the_study(files: Files) -> None:
    source = write(files, [*TRAIN, f"{A},R7,ILD,50,50,500,90"])
    assert [study.id for study in source] == [B, C]
    assert "leaves the image, which is 100 pixels wide and 200 high" in str(source.problems[0])


def test_kaggles_layout_is_read(files: Files) -> None:
    rows = [f"{A},No finding,14,R11,,,,", f"{A},No finding,14,R7,,,,", f"{A},ILD,5,R8,20,50,80,150"]
    files.table("train.csv", "image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max", rows)
    files.table("train_meta.csv", "image_id,dim0,dim1", [f"{A},200,100"])
    files.image(f"train/{A}.png", (20, 10))
    (study,) = files.open("vindr")
    assert study.phrases[0].boxes[0].as_tuple() == (0.2, 0.25, 0.8, 0.75)  # of the original size, not of 20 x 10
    assert study.findings.items() >= {"interstitial lung disease": UNCERTAIN, "no finding": POSITIVE}.items()
    assert len(study.findings) == 15  # the competition's 14 and "No finding"


def test_images_that_were_made_smaller_are_refused_without_their_sizes(files: Files) -> None:
    rows = [f"{A},ILD,5,R8,2,5,8,15", f"{B},ILD,5,R8,20,50,80,150"]  # the first fits its small image, and is wrong
    files.table("train.csv", "image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max", rows)
    for name in (A, B):
        files.image(f"train/{name}.png", (20, 10))
    files.refuses("vindr", r"resized.*train_meta\.csv \(image_id, dim0, dim1\)")
    files.table("train_meta.csv", "image_id,dim0,dim1", [f"{A},200,100", f"{B},200,100"])
    boxes = [study.phrases[0].boxes[0].as_tuple() for study in files.open("vindr")]
    assert boxes == [pytest.approx((0.02, 0.025, 0.08, 0.075)), pytest.approx((0.2, 0.25, 0.8, 0.75))]


def test_what_is_missing_altogether_is_an_error(files: Files) -> None:
    files.refuses("vindr", "has no table of boxes")
    files.table("annotations/annotations_test.csv", "image_id,class_name,x_min,y_min,x_max,y_max", TEST)
    files.refuses("vindr", "no folder test with its images")


def test_the_real_table_reads(files: Files) -> None:
    """1,500 images of the competition's table, given one file, against a plain count of its rows."""
    path = real_table("vinbigdata-train.csv.gz")
    (files.root / "train.csv.gz").write_bytes(path.read_bytes())
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    names = list(dict.fromkeys(row["image_id"] for row in rows))
    assert len(names) == 15_000
    kept = set(names[:1500])
    files.images(f"train/{name}.png" for name in kept)
    files.table("train_meta.csv", "image_id,dim0,dim1", [f"{name},4000,4000" for name in kept])
    source = files.open("vindr")
    assert set(source.ids) == kept
    readers: dict[str, set[str]] = {}
    drawn: dict[str, Counter[str]] = {name: Counter() for name in kept}
    for row in rows:
        if row["image_id"] in kept:
            readers.setdefault(row["image_id"], set()).add(row["rad_id"])
            if row["class_name"] != "No finding":
                drawn[row["image_id"]][row["class_name"]] += 1
    fused = 0
    for study in source:
        assert set(study.extra["readers"]) == readers[study.id]
        given = sum(len(reader["boxes"]) for reader in study.extra["readers"].values())
        assert given == drawn[study.id].total()
        assert len(study.extra["boxes"]) <= given
        assert {one["label"] for one in study.extra["boxes"]} == set(drawn[study.id])
        fused += len(study.extra["boxes"])
    assert 0.3 < fused / sum(count.total() for count in drawn.values()) < 0.8  # three readers who mostly agree


def test_the_test_images_are_halved_by_seed(files: Files) -> None:
    write(files)
    names = [f"{number:032x}" for number in range(9)]
    rows = [f"{name},Cardiomegaly,10,20,50,100" for name in names]
    files.table("annotations/annotations_test.csv", "image_id,class_name,x_min,y_min,x_max,y_max", rows)
    (files.root / "annotations/image_labels_test.csv").unlink()
    for name in names:
        files.dicom(f"test/{name}.dicom", (200, 100))
    val, test = (set(files.open("vindr", f"?split={half}&seed=1").ids) for half in ("val", "test"))
    assert (len(val), len(test), val | test) == (4, 5, set(names))
    assert set(files.open("vindr", "?split=val&seed=1").ids) == val
    assert any(set(files.open("vindr", f"?split=val&seed={seed}").ids) != val for seed in (2, 3))
    assert set(files.open("vindr", "?split=train&seed=1").ids) == {A, B}
    assert len(files.open("vindr", "?split=test")) == 9
    files.refuses("vindr", "unknown split 'val'", "?split=val")


def test_the_most_frequent_classes_can_be_selected(files: Files) -> None:
    train = [*TRAIN, f"{B},R8,Rib fracture,10,10,20,20", f"{B},R9,Mediastinal shift,10,10,20,20"]
    study = write(files, train, query="?classes=15").study(B)
    assert "mediastinal shift" in [phrase.text for phrase in study.phrases]
    assert "rib fracture" not in [phrase.text for phrase in study.phrases]
    assert len(study.findings) == 15 + 6
    assert "rib fracture" not in study.findings
    assert any(one["label"] == "Rib fracture" for one in study.extra["boxes"])
    assert len(files.open("vindr", "?classes=22").study(B).findings) == 28
    files.refuses("vindr", "unknown classes '14'", "?classes=14")
