"""The rows beside a model's: learned from the training reports, one image per exam, and never the patient's own."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from sklearn.metrics import f1_score

from rightlung.reproduce.fita import PROTOCOL
from rightlung.reproduce.fita import blind_rows as rows
from rightlung.reproduce.fita.blind_rows import BlindRows, Known
from rightlung.reproduce.plan import Plan, training_source
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.results.estimate import BootstrapSettings
from rightlung.scoring.clinical import GROUPS, label_matrix
from rightlung.training.recipe_file import read_stages

NORMAL, LEFT, RIGHT = "The lungs are clear.", "Left pleural effusion.", "Right pleural effusion. The heart is enlarged."


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)  # without METEOR, which takes seconds
    monkeypatch.setattr("rightlung.models.blind.reports.SENTENCES", 5)


def manifest(folder: Path) -> str:
    """Write five test images of four exams and three training images, whose upper or lower half is bright."""
    studies = [
        ("a/0", "a", "val", NORMAL, [], 0), ("a/1", "a", "val", NORMAL, [], 1), ("b", "b", "val", LEFT, ["E/left"], 1),
        ("c", "c", "val", RIGHT, ["E/right"], 1), ("d", "d", "val", LEFT, ["E/left"], 0),
        ("t1", "t1", "train", NORMAL, [], 0), ("t2", "t2", "train", RIGHT, ["E/right"], 1),
        ("t3", "t3", "train", NORMAL, [], 0),
    ]  # fmt: skip
    listed = []
    (folder / "images").mkdir(parents=True)
    for number, (name, exam, split, report, mesh, lower) in enumerate(studies):
        pixels = np.zeros((64, 64), np.uint8)
        pixels[32 * lower : 32 * lower + 32] = 200
        PIL.Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
        listed.append({"id": name, "study": exam, "patient": f"p{exam}", "split": split, "text": report, "mesh": mesh,
                       "file": f"images/{number}.png"})  # fmt: skip
    (folder / "manifest.jsonl").write_text("\n".join(map(json.dumps, listed)) + "\n")
    return f"manifest:{folder}?split="


def test_rows_learn_from_the_training_reports_and_count_an_exam_once(tmp_path: Path) -> None:
    address = manifest(tmp_path / "data")
    prepared = PreparedStudies.make(f"{address}val", tmp_path, PROTOCOL)
    found = BlindRows(prepared, tmp_path, f"{address}train", BootstrapSettings(resamples=5))
    assert found.learned_from == f"3 training reports ({address}train)"
    kept = json.loads((tmp_path / "studies" / rows.KEPT).read_text())["reports"]
    assert {*kept["blind-frequent"].values()} == {NORMAL}
    assert [*kept["blind-frequent"]] == ["a/0", "b", "c", "d"]  # not the second image of an exam
    assert kept[rows.NEIGHBOUR] == {"a/0": NORMAL, "b": RIGHT, "c": RIGHT, "d": NORMAL}
    # No training report has an effusion alone; codes share "E" with those of the effusion on the other side.
    assert kept[rows.SAME_FINDINGS] == {"a/0": NORMAL, "c": RIGHT}
    assert kept[rows.SAME_CODES] == {"a/0": NORMAL, "b": RIGHT, "c": RIGHT, "d": RIGHT}
    sided = found.estimate(rows.SAME_CODES, "clinical", "sided_f1")
    assert sided is not None
    assert sided.n == 4
    assert sided.value == pytest.approx(2 / 6)  # three pairs said, three true, one of them right
    again = BlindRows(prepared, tmp_path, f"{address}train", BootstrapSettings(resamples=5))
    assert again.learned_from == found.learned_from


def test_without_training_reports_rows_learn_from_other_patients_and_say_why(tmp_path: Path) -> None:
    address = manifest(tmp_path / "data")
    prepared = PreparedStudies.make(f"{address}val", tmp_path, PROTOCOL)
    settings = BootstrapSettings(resamples=5)
    found = BlindRows(prepared, tmp_path, f"manifest:{tmp_path}/none.tar?split=train", settings)
    assert "reports of other patients among the test studies" in found.learned_from
    assert "none.tar" in found.learned_from
    assert not (tmp_path / "studies" / rows.KEPT).exists()  # it may be there the next time
    assert "not known" in BlindRows(prepared, tmp_path, None, settings).learned_from
    kept = json.loads((tmp_path / "studies" / rows.KEPT).read_text())["reports"]
    assert kept[rows.SAME_FINDINGS] == {"b": LEFT, "d": LEFT}  # each other's: nobody answers for himself
    assert kept[rows.NEIGHBOUR]["a/0"] == LEFT


def test_the_neighbour_is_another_patients_image() -> None:
    images = np.eye(3)
    known = [Known(f"s{n}", f"p{n}", f"report {n}", None, image) for n, image in enumerate(images)]
    asked = [Known("x", "p0", "", None, images[0] + 0.5 * images[2])]
    assert rows._by_pixels(asked, known) == {"x": "report 2"}


def test_the_stated_findings_have_the_best_micro_f1_of_all_constants() -> None:
    texts = [LEFT] * 6 + ["Cardiomegaly."] * 5 + ["Small left pneumothorax."] * 2 + [NORMAL] * 3
    known = [Known(f"s{n}", f"p{n}", text, None, np.zeros(4)) for n, text in enumerate(texts)]
    (stated,) = {*rows._by_frequency([Known("x", "other", "", None, np.zeros(4))], known).values()}
    names = [name for name in GROUPS["13"] if name != "Support Devices"]
    true = label_matrix([one.findings for one in known], names)
    f1 = {
        some: f1_score(true, np.tile([float(name in some) for name in names], (len(known), 1)), average="micro")
        for count in (1, 2, 3) for some in combinations(("Pleural Effusion", "Cardiomegaly", "Pneumothorax"), count)
    }  # fmt: skip
    assert max(f1, key=f1.__getitem__) == ("Pleural Effusion", "Cardiomegaly")
    assert stated == "Pleural effusion. Cardiomegaly."


def test_the_page_knows_the_training_source() -> None:
    recipe = read_stages("fita-small")["report"]
    assert training_source(Plan("fita", Path("out"))) == recipe.data.train[0].source
    quick = training_source(Plan("fita", Path("out"), quick=True))
    assert quick is not None
    assert quick.endswith("&seed=11")
    assert training_source(Plan("fita", Path("out"), source="manifest:a", train="manifest:b")) == "manifest:b"
    assert training_source(Plan("fita", Path("out"), source="manifest:a", only=("none",))) is None
