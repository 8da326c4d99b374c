"""MIMIC-CXR(-JPG), on a tree with the published names and columns.

Files and folders: https://physionet.org/content/mimic-cxr-jpg/2.1.0/ ("Data Description") and
https://physionet.org/content/mimic-cxr/2.1.0/. The tables' columns are as public code that reads them lists them; the
tables themselves are not public.
"""

import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from rightlung import open_source
from rightlung.core import InputError
from tests.studies.conftest import there
from tests.studies.readers.published import NEGATIVE, POSITIVE, UNCERTAIN, Files, refuses

METADATA = (
    "dicom_id,subject_id,study_id,PerformedProcedureStepDescription,ViewPosition,Rows,Columns,StudyDate,StudyTime,"
    "ProcedureCodeSequence_CodeMeaning,ViewCodeSequence_CodeMeaning,PatientOrientationCodeSequence_CodeMeaning"
)
LABELS = (
    "subject_id,study_id,Atelectasis,Cardiomegaly,Consolidation,Edema,Enlarged Cardiomediastinum,Fracture,Lung Lesion,"
    "Lung Opacity,No Finding,Pleural Effusion,Pleural Other,Pneumonia,Pneumothorax,Support Devices"
)
PA, LATERAL = "02aa804e-bde0afdd-112c0b34-7bc16630-4e384014", "174413ec-4ec4c1f7-34ea26b7-c5f994f8-79ef1962"
AP, OTHER = "2a2277a9-b0ded155-c0de8eb9-c124d10e-82c5caab", "e084de3b-be89b11e-20fe3f9f-9c8d8dfe-4cfd202c"
REPORT = """                                 FINAL REPORT
 EXAMINATION:  CHEST (PA AND LAT)

 INDICATION:  ___F with cough.

 FINDINGS:

 There is no pleural effusion.  The cardiomediastinal silhouette is normal.

 IMPRESSION:

 No acute process.
"""


def metadata_row(dicom: str, patient: int, exam: int, view: str, meaning: str = "") -> str:
    procedure = "CHEST (PA AND LAT)"
    return f"{dicom},{patient},{exam},{procedure},{view},6,4,21800506,213014.531,{procedure},{meaning},Erect"


@pytest.fixture
def tree(files: Files) -> Path:
    rows = [
        metadata_row(PA, 10000032, 50414267, "PA", "postero-anterior"),
        metadata_row(LATERAL, 10000032, 50414267, "LATERAL", "lateral"),
        metadata_row(AP, 10000032, 53189527, "", "antero-posterior"),
        metadata_row(OTHER, 10000764, 57375967, "AP"),
        metadata_row("ffff", 10000764, 57375967, "", ""),
        metadata_row("eeee", 10000764, 57375967, "AP LLD"),
    ]
    files.table("mimic-cxr-2.0.0-metadata.csv.gz", METADATA, rows)
    splits = [(PA, 50414267, 10000032, "train"), (AP, 53189527, 10000032, "train")]
    splits.append((OTHER, 57375967, 10000764, "validate"))
    files.table("mimic-cxr-2.0.0-split.csv.gz", "dicom_id,study_id,subject_id,split", splits)
    chexpert = ["10000032,50414267,,,,1.0,,,,-1.0,,0.0,,,,", "10000032,53189527,,,,,,,,,1.0,,,,,"]
    files.table("mimic-cxr-2.0.0-chexpert.csv.gz", LABELS, chexpert)
    files.table("mimic-cxr-2.0.0-negbio.csv", LABELS, ["10000032,50414267,,,,-1.0,,,,,,0.0,,,,"])
    files.image(f"files/p10/p10000032/s50414267/{PA}.jpg", value=51)
    files.image(f"files/p10/p10000764/s57375967/{OTHER}.jpg")
    files.text({"files/p10/p10000032/s50414267.txt": REPORT})
    return files.root


def test_a_study_has_what_the_tables_and_the_report_say(tree: Path) -> None:
    study = open_source(f"mimic:{tree}").study(PA)
    assert (study.patient, study.exam, study.view, study.split) == ("10000032", "50414267", "PA", "train")
    assert study.findings == {"edema": POSITIVE, "lung opacity": UNCERTAIN, "pleural effusion": NEGATIVE}
    assert study.extra["chexpert"] == {"Edema": 1, "Lung Opacity": -1, "Pleural Effusion": 0}
    assert study.extra["negbio"] == {"Edema": -1, "Pleural Effusion": 0}
    assert there(study.report).sections["impression"].split() == ["No", "acute", "process."]
    findings = ["There is no pleural effusion.", "The cardiomediastinal silhouette is normal."]
    assert [phrase.text for phrase in study.phrases] == [*findings, "No acute process."]
    assert study.image.shape == (6, 4)
    np.testing.assert_allclose(study.image, 0.2, atol=0.01)


def test_frontal_images_come_in_the_tables_order_and_others_are_counted(tree: Path) -> None:
    source = open_source(f"mimic:{tree}")
    assert list(source.ids) == [PA, AP, OTHER]
    assert source.left_out == {"lateral view": 1, "view not stated": 1, "view AP LLD": 1}  # type: ignore[attr-defined]
    assert source.study(AP).view == "AP"  # from the code's meaning, where ViewPosition is empty
    assert not source.problems
    assert list(open_source(f"mimic:{tree}?views=AP,unknown").ids) == [AP, OTHER, "ffff"]
    refuses(f"mimic:{tree}?views=lateral", "unknown view 'LATERAL'")


def test_labels_can_come_from_either_labeller_or_the_radiologist(tree: Path, files: Files) -> None:
    assert open_source(f"mimic:{tree}?labels=negbio").study(PA).findings["edema"] is UNCERTAIN
    header = "study_id,Airspace Opacity,Edema"
    files.table("mimic-cxr-2.1.0-test-set-labeled.csv", header, ["50414267,1,0"])
    study = open_source(f"mimic:{tree}?labels=radiologist").study(PA)
    assert study.findings == {"lung opacity": POSITIVE, "edema": NEGATIVE}
    refuses(f"mimic:{tree}?labels=chexbert", r"unknown labels 'chexbert'; did you mean 'chexpert'\?")


def test_the_usual_word_for_a_split_is_understood(tree: Path) -> None:
    assert list(open_source(f"mimic:{tree}?split=val").ids) == [OTHER]
    assert list(open_source(f"mimic:{tree}?split=train&limit=1").ids) == [PA]


def test_reports_are_read_from_the_archive_in_place(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = open_source(f"mimic:{tree}").study(PA).report
    (tree / "files/p10/p10000032/s50414267.txt").unlink()
    assert open_source(f"mimic:{tree}").study(PA).report is None
    folder = tmp_path_factory.mktemp("reports")
    with zipfile.ZipFile(folder / "mimic-cxr-reports.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("files/p10/p10000032/s50414267.txt", REPORT)
    for place in (folder, folder / "mimic-cxr-reports.zip"):
        source = open_source(f"mimic:{tree}?reports={place}")
        assert source.study(PA).report == whole
        assert source.study(OTHER).report is None
        assert pickle.loads(pickle.dumps(source)).study(PA).report == whole


def test_a_dicom_tree_is_read_with_the_tables_of_the_other(tree: Path, files: Files) -> None:
    from tests.studies.dicom_files import dicom

    folder = files.root / "mimic-cxr"
    pixels = np.arange(24, dtype=np.uint16).reshape(6, 4) * 100
    window = {"BitsStored": 12, "HighBit": 11, "WindowCenter": 2048, "WindowWidth": 4096}
    for name, view in ((PA, "PA"), (AP, "LL")):
        exam = "50414267" if name == PA else "53189527"
        data = dicom(pixels, ViewPosition=view, **window)
        files.write(f"mimic-cxr/files/p10/p10000032/s{exam}/{name}.dcm", data)
    source = open_source(f"mimic:{folder}?tables={tree}")
    np.testing.assert_allclose(source.study(PA).image, pixels / 4095, atol=1e-6)
    with pytest.raises(InputError, match=r"image .*\.dcm is not read: it is a lateral view"):
        _ = source.study(AP).image  # its header knows better than the table
    refuses(f"mimic:{folder}", r"has neither mimic-cxr-2.0.0-metadata.csv nor cxr-record-list.csv")


def test_the_record_list_stands_in_for_the_metadata(tree: Path, files: Files) -> None:
    (tree / "mimic-cxr-2.0.0-metadata.csv.gz").unlink()
    rows = [(10000032, 50414267, name, f"files/p10/p10000032/s50414267/{name}.dcm") for name in (PA, LATERAL)]
    files.table("cxr-record-list.csv.gz", "subject_id,study_id,dicom_id,path", rows)
    source = open_source(f"mimic:{tree}")
    assert [(study.id, study.view) for study in source] == [(PA, None), (LATERAL, None)]


def test_age_and_sex_come_from_mimic_iv_where_its_table_is_there(tree: Path, files: Files) -> None:
    assert open_source(f"mimic:{tree}").study(PA).age is None
    header = "subject_id,gender,anchor_age,anchor_year,anchor_year_group,dod"
    rows = ["10000032,F,52,2180,2014 - 2016,2180-09-09", "10000764,M,86,2132,2014 - 2016,"]
    files.table("patients.csv.gz", header, rows)
    study = open_source(f"mimic:{tree}").study(PA)
    assert (study.age, study.sex) == (52.0, "F")


def test_a_bad_row_among_many_is_left_out_and_named(tree: Path, files: Files) -> None:
    rows = [metadata_row(f"{n:08x}-aaaa", 10000032, 50414267, "PA") for n in range(5000)]
    rows[1000] = metadata_row("../../../etc/passwd", 10000032, 50414267, "PA")
    rows[2000] = metadata_row("abc", 10000032, 50414267, "PA").replace("10000032", "somebody")
    rows[3000] = 'abc,"10000032,50414267,'
    rows[4000] = rows[0]
    files.table("mimic-cxr-2.0.0-metadata.csv.gz", METADATA, rows, line_end="\r\n")
    source = open_source(f"mimic:{tree}")
    assert len(source) == 4996
    name = "mimic-cxr-2.0.0-metadata.csv.gz"
    assert [str(problem) for problem in source.problems] == [
        f"{name}, line 1002, field dicom_id: must be letters, digits, '-', '_' and '.'; got '../../../etc/passwd'",
        f"{name}, line 2002, field subject_id: must be a number; got 'somebody'",
        f"{name}, line 3002: the row has an unclosed quote",
        f"{name}, line 4002, field id: '00000000-aaaa' is a duplicate",
    ]


def test_a_label_outside_its_set_is_named(tree: Path, files: Files) -> None:
    files.table("mimic-cxr-2.0.0-chexpert.csv.gz", LABELS, ["10000032,50414267,,,,2.0,,,,,,,,,,"])
    source = open_source(f"mimic:{tree}")
    place = "mimic-cxr-2.0.0-chexpert.csv.gz, line 2, field Edema"
    assert str(source.problems[0]) == f"{place}: must be 1, 0, -1 or empty; got '2.0'"
    assert source.study(PA).findings == {}


def test_a_disk_that_goes_away_in_the_middle_is_named_and_stops_nothing(tree: Path) -> None:
    source = open_source(f"mimic:{tree}")
    studies = iter(source)
    first = next(studies)
    shutil.move(tree / "files", tree / "unmounted")
    gone = r"study .*: image .*\.jpg cannot be read: folder .*files no longer exists"
    with pytest.raises(InputError, match=gone):
        _ = first.image
    assert list(studies) == []  # their reports are on that disk, too
    assert [problem.file for problem in source.problems] == [f"study {AP!r}", f"study {OTHER!r}"]
    assert all(f"folder {tree / 'files'} no longer exists" in problem.message for problem in source.problems)
    refuses(f"mimic:{tree}", "has no images: neither files/p10 nor p10")


def test_an_archive_of_reports_that_was_replaced_is_noticed(tree: Path) -> None:
    path = tree / "mimic-cxr-reports.zip"
    for text in (REPORT, REPORT * 2):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("files/p10/p10000032/s50414267.txt", text)
        assert there(open_source(f"mimic:{tree}").study(PA).report).text == text


def test_a_large_tree_is_mapped_the_second_time_and_light_in_a_worker(tree: Path, files: Files) -> None:
    rows = [metadata_row(f"{n:08x}-aaaa", 10000032, 50414267, "PA") for n in range(20_000)]
    files.table("mimic-cxr-2.0.0-metadata.csv.gz", METADATA, rows)
    source = open_source(f"mimic:{tree}")
    assert len(source) == 20_000
    assert len(pickle.dumps(source)) < 5000
    script = (
        "import sys; from rightlung import open_source; "
        "from rightlung.studies.readers.mimic import MimicSource; MimicSource.records = None; "
        f"source = open_source('mimic:{tree}'); print(len(source), source[19_999].id, source.ids[7], "
        "sorted({'pandas', 'torch', 'PIL'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["20000", "00004e1f-aaaa", "00000007-aaaa", "[]"]
