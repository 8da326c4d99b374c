"""REFLACX as PhysioNet has it.

Files and columns: https://physionet.org/content/reflacx-xray-localization/1.0.0/ (README). The values are made up.
"""

import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from rightlung.core import Box
from rightlung.studies import open_source
from tests.studies.conftest import there
from tests.studies.readers.published import NEGATIVE, POSITIVE, UNCERTAIN, Files, refuses

DICOM = "f7216f70-ea0d379f-f2d9028e-817459ef-f8357a3e"
IMAGE = f"physionet.org/files/mimic-cxr/2.0.0/files/p10/p10000032/s50414267/{DICOM}.dcm"
LABELS = (
    "Abnormal mediastinal contour,Acute fracture,Atelectasis,Consolidation,Enlarged cardiac silhouette,Enlarged hilum,"
    "Groundglass opacity,Hiatal hernia,High lung volume / emphysema,Interstitial lung disease,Lung nodule or mass,"
    "Pleural abnormality,Pneumothorax,Pulmonary edema"
)
METADATA = (
    "id,split,eye_tracking_data_discarded,image,dicom_id,subject_id,image_size_x,image_size_y,"
    f"{LABELS},Support devices,Other"
)
FIXATIONS = (
    "timestamp_start_fixation,timestamp_end_fixation,x_position,y_position,pupil_area_normalized,window_level,"
    "window_width,angular_resolution_x_pixels_per_degree,angular_resolution_y_pixels_per_degree"
)
ELLIPSES = f"xmin,ymin,xmax,ymax,certainty,{LABELS}"


def row(reading: str, discarded: str = "False", split: str = "train") -> str:
    scores = "0,0,5,3,0,0,0,0,0,0,0,0,0,0"
    return f"{reading},{split},{discarded},{IMAGE},{DICOM},10000032,2000,1000,{scores},True,scar|old rib"


@pytest.fixture
def tree(files: Files) -> Path:
    """Two readings of one image, 2,000 pixels wide and 1,000 high; the eye tracking of the second was discarded."""
    files.table("reflacx/main_data/metadata_phase_3.csv", METADATA, [row("P300R000001")])
    files.table("reflacx/main_data/metadata_phase_2.csv", METADATA, [row("P200R000002", "True", split="validate")])
    for reading in ("P300R000001", "P200R000002"):
        folder = f"reflacx/main_data/{reading}"
        drawn = ["200,100,600,300,5,False,False,True,True", "1000,500,1400,900,3,False,False,True,False"]
        files.table(f"{folder}/anomaly_location_ellipses.csv", ELLIPSES, [one + ",False" * 10 for one in drawn])
        files.table(f"{folder}/chest_bounding_box.csv", "xmin,ymin,xmax,ymax", ["200,100,1800,1050"])
    folder = "reflacx/main_data/P300R000001"
    fixations = ["0.5,3.5,500,250,1.1,0.5,1.0,100,100", "4.0,5.0,1500,750,1.1,0.5,1.0,200,100"]
    files.table(f"{folder}/fixations.csv", FIXATIONS, fixations)
    words, header = ["atelectasis,1.0,1.5", ".,1.6,1.8", '",",2.0,2.1'], "word,timestamp_start_word,timestamp_end_word"
    files.table(f"{folder}/timestamps_transcription.csv", header, words)
    files.text({f"{folder}/transcription.txt": "Atelectasis at the left base. No pneumothorax."})
    files.image(f"mimic/files/p10/p10000032/s50414267/{DICOM}.jpg", (10, 20))
    return files.root


def address(tree: Path, more: str = "") -> str:
    return f"reflacx:{tree}/reflacx?images={tree}/mimic{more}"


def test_a_reading_has_its_words_labels_and_place(tree: Path) -> None:
    source = open_source(address(tree))
    assert list(source.ids) == ["P200R000002", "P300R000001"]
    assert source.problems == []
    study = pickle.loads(pickle.dumps(source)).study("P300R000001")
    assert (study.patient, study.exam, study.split) == ("10000032", "50414267", "train")
    assert study.image.shape == (10, 20)
    assert there(study.report).text == "Atelectasis at the left base. No pneumothorax."
    assert [phrase.text for phrase in study.phrases[2:]] == ["Atelectasis at the left base.", "No pneumothorax."]
    assert study.extra["words"] == [("atelectasis", 1.0, 1.5), (".", 1.6, 1.8), (",", 2.0, 2.1)]
    assert study.extra["chest"] == Box(0.1, 0.1, 0.9, 1.0)
    assert (study.extra["other"], study.extra["phase"]) == ("scar|old rib", 3)


def test_certainties_become_polarities(tree: Path) -> None:
    findings = open_source(address(tree)).study("P300R000001").findings
    expected = {"atelectasis": POSITIVE, "consolidation": UNCERTAIN}
    expected |= {"pneumothorax": NEGATIVE, "support devices": POSITIVE}
    assert findings.items() >= expected.items()
    # Not selecting an acute fracture says nothing of old ones, nor ground glass of other opacities.
    assert not {"fracture", "lung opacity", "other pleural abnormality"} & set(findings)


def test_ellipses_are_masks_and_boxes_of_their_labels(tree: Path) -> None:
    atelectasis, consolidation, *_ = open_source(address(tree)).study("P300R000001").phrases
    assert atelectasis.text == "atelectasis"
    assert atelectasis.boxes == (Box(0.1, 0.1, 0.3, 0.3), Box(0.5, 0.5, 0.7, 0.9))
    assert dict(consolidation.findings) == {"consolidation": POSITIVE}
    mask = there(consolidation.mask)
    assert mask.size == (384, 768)
    assert mask.area == pytest.approx(math.pi / 4 * 0.2 * 0.2, rel=0.01)
    np.testing.assert_allclose(there(mask.box()).as_tuple(), (0.1, 0.1, 0.3, 0.3), atol=0.003)
    assert pickle.loads(pickle.dumps(consolidation)).mask == mask


def test_fixations_spread_by_their_own_angular_resolution(tree: Path) -> None:
    study = open_source(address(tree)).study("P300R000001")
    assert study.extra["fixations"] == [(0.25, 0.25, 3.0), (0.75, 0.75, 1.0)]
    expected = np.zeros((32, 32))
    places = (np.arange(32) + 0.5) / 32
    for x, y, seconds, wide, high in ((0.25, 0.25, 3.0, 0.05, 0.1), (0.75, 0.75, 1.0, 0.1, 0.1)):
        down, across = np.exp(-(((places - y) / high) ** 2) / 2), np.exp(-(((places - x) / wide) ** 2) / 2)
        expected += seconds * np.outer(down, across)
    np.testing.assert_allclose(there(study.gaze).values, expected / expected.sum(), rtol=1e-3, atol=1e-9)


def test_readings_without_eye_tracking_keep_their_labels(tree: Path) -> None:
    study = open_source(address(tree, "&split=val"))[0]
    assert (study.id, study.gaze, study.report) == ("P200R000002", None, None)
    assert study.findings["atelectasis"] is POSITIVE
    assert [phrase.text for phrase in study.phrases] == ["atelectasis", "consolidation"]


def test_one_phase_can_be_taken(tree: Path) -> None:
    assert list(open_source(address(tree, "&phase=3")).ids) == ["P300R000001"]
    refuses(address(tree, "&phase=1"), r"has no metadata_phase_1\.csv")
    refuses(address(tree, "&phase=4"), "unknown phase")


@pytest.mark.parametrize(
    ("file", "content", "line", "says"),
    [
        ("fixations.csv", f"{FIXATIONS}\n3.0,2.0,5,5,1,1,1,100,100\n", 2, "before the start"),
        ("fixations.csv", f"{FIXATIONS}\n1.0,2.0,5,5,1,1,1,0,100\n", 2, "at least 1"),
        ("fixations.csv", "x\n", None, "has no column"),
        ("anomaly_location_ellipses.csv", f"{ELLIPSES}\n1,1,1,1,5{',False' * 14}\n", 2, "has no area"),
        ("anomaly_location_ellipses.csv", f"{ELLIPSES}\n1,1,9,9,7{',False' * 14}\n", 2, "at most 5"),
        ("anomaly_location_ellipses.csv", f"{ELLIPSES}\n1,1,9,9,5{',perhaps' * 14}\n", 2, "must be True or False"),
        ("timestamps_transcription.csv", None, None, "does not exist"),
        ("transcription.txt", None, None, "does not exist"),
    ],
)
def test_a_fault_in_a_readings_file_is_named_and_the_rest_goes_on(
    tree: Path, file: str, content: str | None, line: int | None, says: str
) -> None:
    path = tree / "reflacx" / "main_data" / "P300R000001" / file
    path.unlink() if content is None else path.write_text(content)
    source = open_source(address(tree))
    assert list(source.ids) == ["P200R000002"]
    (problem,) = source.problems
    assert (problem.file, problem.line) == (f"main_data/P300R000001/{file}", line)
    assert says in problem.message


def test_a_row_whose_image_has_no_place_is_named(tree: Path) -> None:
    path = tree / "reflacx" / "main_data" / "metadata_phase_3.csv"
    path.write_text(path.read_text().replace("p10/p10000032/s50414267/", "elsewhere/"))
    (problem,) = open_source(address(tree)).problems
    assert (problem.line, problem.field) == (2, "image")
