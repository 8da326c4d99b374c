"""PadChest-GR as BIMCV has it.

Files and fields: https://bimcv.cipf.es/bimcv-projects/padchest-gr/ and arXiv:2411.05085. The values are made up.
"""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rightlung.core import Box
from rightlung.studies import open_source
from tests.studies.conftest import encode
from tests.studies.readers.published import NEGATIVE, POSITIVE, Files, refuses

FIRST, SECOND = "2053668664013634_k6ga29.png", "1358034155049235_fzis7d.png"
REPORTS: list[dict[str, Any]] = [
    {
        "StudyID": "2053668664013634", "ImageID": FIRST, "PreviousImageID": "old.png",
        "findings": [
            {
                "sentence_en": "Bilateral pleural effusion.", "sentence_es": "Derrame pleural bilateral.",
                "abnormal": True, "boxes": [[0.1, 0.6, 0.3, 0.9], [0.7, 0.6, 0.9, 0.9]],
                "extra_boxes": [[0.1, 0.5, 0.3, 0.9]], "labels": ["pleural effusion"],
                "locations": ["loc left lower lobe", "loc pleural"], "progression": "worsening",
            },
            {"sentence_en": "Chronic.", "sentence_es": "Cambios.", "abnormal": True, "labels": ["chronic changes"]},
            {"sentence_en": "No pneumothorax.", "sentence_es": "Sin neumotórax.", "abnormal": False,
             "labels": ["pneumothorax"]},
        ],
    },
    {
        "StudyID": "1358034155049235", "ImageID": SECOND,
        "findings": [{"sentence_en": "No alterations.", "abnormal": False, "labels": ["Normal"]}],
    },
]  # fmt: skip
TABLE = "StudyID,ImageID,PatientID,PatientSex_DICOM,PatientAge,label,label_group,split"


@pytest.fixture
def tree(files: Files) -> Path:
    """Two reports, their table, and 16-bit images."""
    files.json("grounded_reports_20240819.json", REPORTS)
    rows = [
        f"2053668664013634,{FIRST},839860,F,84,pleural effusion,Pleural effusion,train",
        f"2053668664013634,{FIRST},839860,F,84,chronic changes,,train",
        f"1358034155049235,{SECOND},313572,M,,Normal,,validation",
    ]
    files.table("master_table.csv", TABLE, rows)
    for name, value in ((FIRST, 13107), (SECOND, 65535)):
        files.write(f"Padchest_GR_files/PadChest_GR/{name}", encode(np.full((6, 4), value, dtype=np.uint16)))
    return files.root


def test_sentences_have_several_boxes_or_none(tree: Path) -> None:
    source = open_source(f"padchest-gr:{tree}")
    study = pickle.loads(pickle.dumps(source))[0]
    assert (study.id, study.patient, study.exam) == ("2053668664013634_k6ga29", "839860", "2053668664013634")
    assert (study.sex, study.age, study.split) == ("F", 84, "train")
    effusion, chronic, absent = study.phrases
    assert effusion.text == "Bilateral pleural effusion."
    assert effusion.boxes == (Box(0.1, 0.6, 0.3, 0.9), Box(0.7, 0.6, 0.9, 0.9))
    assert effusion.regions == ("left lower lung zone",)
    assert dict(effusion.findings) == {"pleural effusion": POSITIVE}
    assert (chronic.boxes, dict(chronic.findings)) == ((), {})
    assert dict(absent.findings) == {"pneumothorax": NEGATIVE}
    assert study.extra["second_reader"] == [[Box(0.1, 0.5, 0.3, 0.9)], [], []]
    assert study.extra["sentences"][0]["progression"] == "worsening"
    assert study.extra["PreviousImageID"] == "old.png"
    assert dict(study.findings) == {"pleural effusion": POSITIVE, "pneumothorax": NEGATIVE}


def test_sixteen_bits_are_kept(tree: Path) -> None:
    first, second = open_source(f"padchest-gr:{tree}")
    assert first.image.max() == pytest.approx(0.2)
    assert second.image.min() == 1.0


def test_splits_and_languages(tree: Path) -> None:
    (study,) = open_source(f"padchest-gr:{tree}?split=val")
    assert dict(study.findings) == {"no finding": POSITIVE}
    spanish = open_source(f"padchest-gr:{tree}?language=es")
    told = [phrase.text for phrase in spanish[0].phrases]
    assert told == ["Derrame pleural bilateral.", "Cambios.", "Sin neumotórax."]
    assert (spanish[1].phrases, spanish[1].report) == ((), None)
    refuses(f"padchest-gr:{tree}?language=fr", "unknown language")


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        (lambda r: r["findings"][0]["boxes"].append([0.5, 0.5, 1.5, 0.9]), "findings[0].boxes[2]", "leaves the image"),
        (lambda r: r["findings"][0]["boxes"].append([10, 20, 300, 400]), "findings[0].boxes[2]", "leaves the image"),
        (lambda r: r["findings"][0]["extra_boxes"].append("x"), "findings[0].extra_boxes[1]", "must be [x0"),
        (lambda r: r["findings"][1].update(abnormal="yes"), "findings[1].abnormal", "true or false"),
        (lambda r: r["findings"][1].update(boxes=3), "findings[1].boxes", "must be a list"),
        (lambda r: r["findings"].append(7), "findings[3]", "must be an object"),
        (lambda r: r["findings"].append({"abnormal": True}), "findings[3]", "neither sentence_en"),
        (lambda r: r.pop("StudyID"), "StudyID", "is missing"),
        (lambda r: r.update(ImageID="../../x.png"), "ImageID", "there is no image"),
    ],
)
def test_a_bad_report_is_named_and_the_rest_goes_on(
    tree: Path, change: Callable[[dict[str, Any]], object], field: str, says: str
) -> None:
    reports = copy.deepcopy(REPORTS)
    change(reports[0])
    (tree / "grounded_reports_20240819.json").write_text(json.dumps(reports))
    source = open_source(f"padchest-gr:{tree}")
    assert list(source.ids) == ["1358034155049235_fzis7d"]
    (problem,) = source.problems
    assert (problem.file, problem.field) == ("grounded_reports_20240819.json", f"[0].{field}")
    assert says in problem.message


def test_an_image_that_the_table_leaves_out_is_named(tree: Path) -> None:
    table = tree / "master_table.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]))
    (problem,) = open_source(f"padchest-gr:{tree}").problems
    assert "is not in master_table.csv" in problem.message


def test_what_is_missing_as_a_whole_is_refused(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    refuses(f"padchest-gr:{tmp_path_factory.mktemp('empty')}", r"has no grounded_reports_20240819\.json")
    (tree / "grounded_reports_20240819.json").write_text("{}")
    refuses(f"padchest-gr:{tree}", "must contain a list of reports")
    (tree / "Padchest_GR_files").rename(tree / "away")
    refuses(f"padchest-gr:{tree}", "has no folder with images")
    (tree / "grounded_reports_20240819.json").write_text(json.dumps(REPORTS))
    assert len(open_source(f"padchest-gr:{tree}?images={tree}/away/PadChest_GR")) == 2
