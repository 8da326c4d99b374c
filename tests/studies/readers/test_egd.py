"""EGD-CXR as PhysioNet has it.

Files and columns: https://physionet.org/content/egd-cxr/1.0.0/ and its table_descriptions.pdf. The values are made up.
"""

import pickle
from pathlib import Path

import numpy as np
import pytest

from rightlung.core import Box, InputError
from rightlung.studies import open_source
from tests.studies.conftest import encode, there
from tests.studies.readers.published import NEGATIVE, POSITIVE, UNCERTAIN, Files, refuses

FIRST, SECOND = "24c7496c-d7635dfe-b8e0b87f-d818affc-78ff7cf4", "78711a04-264d5305-d5feec9b-ebef1cec-fdc6db9c"
SHEET = (
    "dicom_id,path,study_id,patient_id,stay_id,gender,anchor_age,image_top_pad,image_bottom_pad,image_left_pad,"
    "image_right_pad,dx1,dx1_icd,normal_reports,Normal,CHF,pneumonia,consolidation,atelectasis__chx,cardiomegaly__chx,"
    "edema__chx,no_finding__chx,pleural_effusion__chx,cxr_exam_indication"
)
SHEET_ROWS = [
    f"{FIRST},files/p15/p15628804/s58573295/{FIRST}.dcm,58573295,15628804,33811834,F,20 - 30,86,86,448,448,"
    '"Heart failure, unspecified",I50.9,0,0,1,0,0,,1,-1,,0,"___F with CHF\nand shortness of breath"',
    f"{SECOND},files/p19/p19462352/s51900589/{SECOND}.dcm,51900589,19462352,32954494,M,60 - 70,0,0,534,534,"
    ",,1,1,0,0,0,,,,1,,",
]
GAZE = (
    "SESSION_ID,MEDIA_ID,DICOM_ID,CNT,Time (in secs),TIMETICK(f=10000000),FPOGX,FPOGY,FPOGS,FPOGD,FPOGID,FPOGV,"
    "X_ORIGINAL,Y_ORIGINAL"
)


def fixation(dicom: str, x: float, y: float, seconds: float, start: float = 0.0, valid: int = 1) -> str:
    return f"1,0,{dicom},45,{start + seconds},69.0,0.45,0.33,{start},{seconds},2,{valid},{x},{y}"


@pytest.fixture
def tree(files: Files) -> Path:
    """Two images of 40 x 20 pixels, the first with everything, the second with a gaze outside the picture only."""
    files.table("egd/master_sheet.csv", SHEET, SHEET_ROWS)
    fixations = [fixation(FIRST, 5, 10, 3.0, 0.5), fixation(FIRST, 15, 30, 1.0, 4.0)]
    fixations += [fixation(FIRST, 0, 0, 9.0, 6.0, valid=0), fixation(SECOND, -900, 4000, 1.0)]
    files.table("egd/fixations.csv", GAZE, fixations)
    samples = [fixation(FIRST, 5, 10, 0.1), fixation(FIRST, 5, 10, 0.2), fixation(FIRST, 15, 30, 0.3)]
    files.table("egd/eye_gaze.csv", GAZE, samples)
    boxes = [f"{FIRST},cardiac silhouette,10.0,18.0,20.0,32.0", f"{FIRST},left lung,10.0,500.0,0.0,40.0"]
    files.table("egd/bounding_boxes.csv", "dicom_id,bbox_name,x1,x2,y1,y2", boxes)
    folder = f"egd/audio_segmentation_transcripts/{FIRST}"
    timed = [{"phrase": "Heart is enlarged.", "begin_time": 0.4, "end_time": 1.6}]
    said = {"full_text": "Heart is enlarged. No pneumothorax.", "time_stamped_text": timed}
    files.json(f"{folder}/transcript.json", said)
    files.write(f"{folder}/right_lung.png", encode(np.tile(np.arange(20) < 10, (40, 1))))
    files.image(f"mimic/files/p15/p15628804/s58573295/{FIRST}.jpg", (40, 20))
    files.image(f"mimic/files/p19/p19462352/s51900589/{SECOND}.jpg", (40, 20))
    return files.root


def address(tree: Path, more: str = "") -> str:
    return f"egd:{tree}/egd?images={tree}/mimic{more}"


def test_a_reading_has_its_words_gaze_regions_and_labels(tree: Path) -> None:
    source = open_source(address(tree))
    assert list(source.ids) == [FIRST, SECOND]
    study = pickle.loads(pickle.dumps(source))[0]
    assert (study.patient, study.exam, study.sex) == ("15628804", "58573295", "F")
    assert study.image.shape == (40, 20)
    assert [phrase.text for phrase in study.phrases] == ["Heart is enlarged.", "No pneumothorax."]
    assert there(study.report).sections["indication"] == "___F with CHF\nand shortness of breath"
    assert dict(study.findings) == {"cardiomegaly": POSITIVE, "edema": UNCERTAIN, "pleural effusion": NEGATIVE}
    assert study.extra["labels"]["CHF"] == "1"
    assert study.regions["cardiac silhouette"] == Box(0.5, 0.5, 0.9, 0.8)
    assert study.extra["timed_phrases"] == [("Heart is enlarged.", 0.4, 1.6)]
    assert study.extra["masks"]["right lung"].area == 0.5


def test_splits_are_mimics(tree: Path, files: Files) -> None:
    rows = [f"{FIRST},58573295,15628804,validate", f"{SECOND},51900589,19462352,train", "another,1,1,test"]
    with pytest.raises(InputError, match=r"splits=mimic needs mimic-cxr-2\.0\.0-split\.csv"):
        open_source(address(tree, "&splits=mimic"))
    files.table("mimic/mimic-cxr-2.0.0-split.csv", "dicom_id,study_id,subject_id,split", rows)
    assert [study.split for study in open_source(address(tree, "&splits=mimic"))] == ["validate", "train"]
    assert list(open_source(address(tree, "&splits=mimic&split=train")).ids) == [SECOND]
    assert list(open_source(address(tree, "&splits=mimic&split=val")).ids) == [FIRST]
    assert [study.split for study in open_source(address(tree))] == [None, None]


def test_gaze_is_where_and_as_long_as_was_looked(tree: Path) -> None:
    first, second = open_source(address(tree))
    assert first.extra["fixations"] == [(0.25, 0.25, 3.0), (0.75, 0.75, 1.0)]
    assert first.extra["fixation_starts"] == [0.5, 4.0]
    gaze = there(first.gaze).values
    assert gaze[:16, :16].sum() == pytest.approx(0.75, abs=0.01)
    assert gaze[16:, 16:].sum() == pytest.approx(0.25, abs=0.01)
    # Round on the screen: twice as wide in fractions of a picture that is half as wide as high.
    down = gaze[:16, :16].sum(axis=1)
    across = gaze[:16, :16].sum(axis=0)
    places = (np.arange(16) + 0.5) / 32
    spread = [float(np.sqrt((part * (places - 0.25) ** 2).sum() / part.sum())) for part in (across, down)]
    assert spread[0] / spread[1] == pytest.approx(2.0, rel=0.05)
    assert second.gaze is None


def test_every_sample_can_be_taken_instead_of_fixations(tree: Path) -> None:
    gaze = open_source(address(tree, "&gaze=samples")).study(FIRST).gaze
    assert there(gaze).values[:16, :16].sum() == pytest.approx(2 / 3, abs=0.01)


def test_sizes_of_the_originals_hold_where_the_images_were_made_smaller(tree: Path, files: Files) -> None:
    files.image(f"mimic/files/p15/p15628804/s58573295/{FIRST}.jpg", (8, 4))
    files.table("mimic/mimic-cxr-2.0.0-metadata.csv.gz", "dicom_id,Rows,Columns", [f"{FIRST},40,20", "other,1,1"])
    study = open_source(address(tree)).study(FIRST)
    assert study.image.shape == (8, 4)
    assert study.regions["cardiac silhouette"] == Box(0.5, 0.5, 0.9, 0.8)


def test_faults_are_named_and_the_rest_goes_on(tree: Path) -> None:
    (tree / f"mimic/files/p19/p19462352/s51900589/{SECOND}.jpg").unlink()
    source = open_source(address(tree))
    assert list(source.ids) == [FIRST]
    boxes, image = source.problems
    assert (boxes.file, boxes.line, boxes.field) == ("bounding_boxes.csv", 3, "x1, x2, y1, y2")
    assert (image.file, image.field) == ("master_sheet.csv", "dicom_id")
    assert SECOND in image.message


def test_a_broken_transcript_is_a_problem_of_its_file(tree: Path) -> None:
    path = tree / "egd" / "audio_segmentation_transcripts" / FIRST / "transcript.json"
    path.write_text('{"full_text": "x", "time_stamped_text": [{"phrase": 1}]}')
    source = open_source(address(tree))
    assert [study.id for study in source] == [SECOND]
    assert source.problems[-1].file == f"audio_segmentation_transcripts/{FIRST}/transcript.json"


def test_what_is_missing_as_a_whole_is_refused(tree: Path) -> None:
    refuses(f"egd:{tree}/egd", "no images of its own; add images=")
    refuses(address(tree, "&gaze=sample"), "did you mean 'samples'")
    (tree / "egd" / "fixations.csv").write_text("DICOM_ID,FPOGD\n")
    refuses(address(tree), r"fixations.csv has no column 'X_ORIGINAL'")
