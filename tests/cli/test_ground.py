"""``rightlung ground`` as a person runs it: overlays, JSON, and going on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.ground import _caption, describe
from rightlung.cli.groundings import GroundingFolder, file_name
from rightlung.core import Box, Grounding, Heatmap, OutputError, ScoredBox
from tests.cli.conftest import Run, found, radiograph

MODEL = "tests.asking.models:Painter"


@pytest.fixture
def radiographs(tmp_path: Path) -> Path:
    """Two pictures: bright at the lower right (the patient's left), and at the upper left."""
    folder = tmp_path / "images"
    folder.mkdir()
    PIL.Image.fromarray(radiograph((1, 1))).save(folder / "one.png")
    PIL.Image.fromarray(radiograph((0, 0))).save(folder / "two.jpg")
    return folder


def ground(call: Run, *arguments: str, code: int = 0, out: str = "found") -> Any:
    return found(call("ground", *arguments, "--model", MODEL, "--out", out, "--json"), code)


def test_an_image_and_phrases_give_boxes_peak_side_and_an_overlay_each(
    call: Run, radiographs: Path, tmp_path: Path
) -> None:
    result = ground(call, str(radiographs / "one.png"), "effusion on the left", "effusion on the right", "normal heart")
    left, right, heart = result["groundings"]
    assert left["peak"] == [0.75, 0.75]
    assert left["abstention"] == 0.25
    assert left["side_of_peak"] == "left"
    assert [entry["side_said"] for entry in (left, right, heart)] == ["left", "right", None]
    assert [entry["side_agrees"] for entry in (left, right, heart)] == [True, False, None]
    (box,) = left["boxes"]
    assert box["box"][0] > 0.4
    assert box["box"][2:] == [1.0, 1.0]
    assert box["score"] == pytest.approx(0.75 * 200 / 255 * len("effusion on the left"), rel=0.01)
    picture = np.asarray(PIL.Image.open(tmp_path / "found" / left["overlay"])).astype(int)
    orange = picture[:540, :, 0] - picture[:540, :, 2] > 100  # above the legend
    assert np.flatnonzero(orange.any(axis=0)).min() > picture.shape[1] / 2 - 60
    written = json.loads((tmp_path / "found" / "groundings.json").read_text())
    assert written["note"] == NOT_A_MEDICAL_DEVICE
    assert written["groundings"] == result["groundings"]


def test_a_folder_goes_on_where_it_was_stopped_and_lists_bad_images(
    call: Run, radiographs: Path, tmp_path: Path
) -> None:
    (radiographs / "bad.png").write_bytes(b"not an image")
    first = ground(call, str(radiographs), "effusion", code=3)
    assert [Path(entry["image"]).name for entry in first["groundings"]] == ["one.png", "two.jpg"]
    assert len(first["problems"]) == 1
    assert "bad.png" in first["problems"][0]
    overlays = {file: file.stat().st_mtime_ns for file in (tmp_path / "found").glob("*.png")}
    assert len(overlays) == 2
    PIL.Image.fromarray(radiograph()).save(radiographs / "bad.png")
    second = ground(call, str(radiographs), "effusion", "nodule")
    assert len(second["groundings"]) == 6
    assert {file: file.stat().st_mtime_ns for file in overlays} == overlays
    assert len(list((tmp_path / "found").glob("*.png"))) == 6


def test_an_image_that_changed_is_grounded_again_and_own_overlays_are_not(call: Run, radiographs: Path) -> None:
    one, two = radiographs / "one.png", radiographs / "two.jpg"
    before = ground(call, str(radiographs), "effusion", out="images/found")["groundings"]
    one.write_bytes(two.read_bytes())
    after = ground(call, str(radiographs), "effusion", out="images/found")["groundings"]
    entries = [{entry["image"]: entry for entry in listed} for listed in (before, after)]
    assert [sorted(listed) for listed in entries] == [[str(one), str(two)]] * 2
    assert entries[0][str(two)] == entries[1][str(two)]
    assert entries[1][str(one)]["peak"] == [0.25, 0.25] != entries[0][str(one)]["peak"]


def test_an_image_behind_a_manifest_that_changed_is_grounded_again(call: Run, manifest: Path) -> None:
    def peaks() -> dict[str, Any]:
        entries = ground(call, f"manifest:{manifest}", "effusion")["groundings"]
        return {entry["image"]: entry["peak"] for entry in entries}

    assert peaks() == {"a": [0.75, 0.75], "b": [0.75, 0.75]}
    PIL.Image.fromarray(radiograph((0, 0))).save(manifest / "a.png")
    assert peaks() == {"a": [0.25, 0.25], "b": [0.75, 0.75]}


def test_a_source_is_asked_its_own_phrases_unless_others_are_given(call: Run, manifest: Path) -> None:
    address = f"manifest:{manifest}"
    own = ground(call, address)["groundings"]
    assert [entry["image"] for entry in own] == ["a", "b", "b"]
    assert (own[2]["phrase"], own[2]["source"]) == ("No effusion.", address)
    assert own[0]["peak"] == [0.75, 0.75]
    given = ground(call, address, "left nodule")["groundings"]
    assert [(entry["image"], entry["phrase"]) for entry in given] == [("a", "left nodule"), ("b", "left nodule")]
    assert ground(call, address, "left nodule")["groundings"] == given


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("Painter", "peak at x 0.75, y 0.75 (patient's left), but the phrase says right; abstention 0.25; 1 box: "),
        ("Doubting", "probably not in the image (abstention 0.75); peak at x 0.75, y 0.75 (patient's left); 1 box: "),
    ],
)
def test_without_json_a_person_reads_where_and_whether_the_words_agree(
    call: Run, radiographs: Path, model: str, said: str
) -> None:
    result = call("ground", str(radiographs / "one.png"), "right effusion", "--model", f"tests.asking.models:{model}")
    assert (result.returncode, result.stdout) == (0, "")
    assert said in result.stderr
    assert "groundings.json: 1 grounding by" in result.stderr
    assert NOT_A_MEDICAL_DEVICE in result.stderr


@pytest.mark.parametrize(
    "phrase", ["x" * 10_000, "Плевральный выпот слева", "左侧胸腔积液", "../../../etc/passwd", "a\nb\x1b[31m"]
)
def test_any_phrase_is_answered_and_none_becomes_a_path(
    call: Run, radiographs: Path, tmp_path: Path, phrase: str
) -> None:
    (entry,) = ground(call, str(radiographs / "one.png"), phrase)["groundings"]
    assert entry["phrase"] == phrase
    files = [file for file in tmp_path.rglob("*.png") if file.parent != radiographs]
    assert files == [tmp_path / "found" / entry["overlay"]]


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """Images that are no radiographs."""
    folder = tmp_path / "strange"
    folder.mkdir()
    down, across = np.mgrid[0:90, 0:120] / 120
    photo = np.stack([np.sin(7 * across), np.cos(5 * down), np.sin(6 * (across + down))], axis=2)
    PIL.Image.fromarray((127 + 90 * photo).astype(np.uint8)).save(folder / "photo.jpg")
    PIL.Image.fromarray(np.zeros((90, 120), np.uint8)).save(folder / "black.png")
    PIL.Image.fromarray(np.full((9, 9), 7, np.uint8)).save(folder / "tiny.png")
    return folder


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("black.png", "it is blank (98 % of its pixels have a brightness from 0.00 to 0.00)"),
        ("photo.jpg", "it is in colour; if it is a radiograph, convert it to greyscale"),
        ("tiny.png", "it has only 9 x 9 pixels"),
    ],
)
def test_what_cannot_be_a_radiograph_is_refused_unless_asked_for_anyway(
    call: Run, strange: Path, name: str, reason: str
) -> None:
    command = ("ground", str(strange / name), "left effusion", "--model", MODEL)
    refused = call(*command)
    assert (refused.returncode, refused.stdout) == (2, "")
    said = f"error: {strange / name} cannot be a chest radiograph: {reason} (--anyway grounds it all the same)"
    assert said in refused.stderr
    (entry,) = found(call(*command, "--anyway", "--json"))["groundings"]
    assert entry["implausible"] == reason
    assert (
        f"warning: this cannot be a chest radiograph, so the map means nothing: {reason}"
        in call(*command, "--anyway").stderr
    )
    assert call(*command).returncode == 2  # what was answered once does not pass for good


def test_in_a_folder_and_in_a_source_such_images_are_problems_and_the_others_are_answered(
    call: Run, strange: Path, manifest: Path
) -> None:
    PIL.Image.fromarray(radiograph()).save(strange / "good.png")
    result = ground(call, str(strange), "effusion", code=3)
    assert [Path(entry["image"]).name for entry in result["groundings"]] == ["good.png"]
    assert [entry["implausible"] for entry in result["groundings"]] == [None]
    assert len(result["problems"]) == 3
    (manifest / "a.png").write_bytes((strange / "black.png").read_bytes())
    (manifest / "b.png").write_bytes((strange / "photo.jpg").read_bytes())
    address = f"manifest:{manifest}"
    blank, coloured = ground(call, address, "effusion", code=3, out="other")["problems"]
    assert blank.startswith("study 'a' cannot be a chest radiograph: it is blank")
    assert coloured.startswith(f"study 'b': image {manifest / 'b.png'} cannot be a chest radiograph: it is in colour")
    predict = ("predict", MODEL, address, "--condition", "none", "--json", "--out")
    nothing = call(*predict, "none")
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert "none of the 3 questions has an answer; first error: study 'a'" in nothing.stderr
    checks = found(call("data", "check", address, "--json"), 3)["checks"]
    assert checks["blank-image"] == checks["odd-image"] == 1
    PIL.Image.fromarray(radiograph()).save(manifest / "b.png")
    (failed,) = found(call(*predict, "p"), 3)["failed"]
    assert failed["study"] == "a"
    assert "cannot be a chest radiograph" in failed["reason"]


def test_several_images_are_asked_with_the_option_phrase(call: Run, radiographs: Path) -> None:
    one, two = str(radiographs / "one.png"), str(radiographs / "two.jpg")
    entries = ground(call, one, two, "--phrase", "left effusion", "--phrase", "nodule")["groundings"]
    assert [(entry["image"], entry["phrase"]) for entry in entries] == [
        (one, "left effusion"), (one, "nodule"), (two, "left effusion"), (two, "nodule"),
    ]  # fmt: skip
    (radiographs / "bad.png").write_bytes(b"not an image")
    some = ground(call, one, str(radiographs / "bad.png"), "--phrase", "nodule", code=3)
    assert (len(some["groundings"]), len(some["problems"])) == (1, 1)


@pytest.mark.parametrize(
    "form", [("one.png", "two.jpg", "nodule"), ("one.png", "--phrase", "two.jpg"), ("one.png", "misspelt/two.jpg")]
)
def test_a_phrase_that_names_a_file_is_refused(
    call: Run, radiographs: Path, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    monkeypatch.chdir(radiographs)
    result = call("ground", *form, "--model", MODEL)
    assert result.returncode == 2
    assert "two.jpg' is given as a phrase but names a file" in result.stderr
    assert "rightlung ground IMAGE… --phrase PHRASE" in result.stderr
    assert not (radiographs / "groundings").exists()


def test_the_json_says_what_its_numbers_mean_and_an_overlay_names_all_it_shows(
    call: Run, radiographs: Path, tmp_path: Path
) -> None:
    result = ground(call, str(radiographs / "one.png"), "left effusion")
    written = json.loads((tmp_path / "found" / "groundings.json").read_text())
    assert set(result["units"]) == {"box", "score", "abstention", "peak"}
    assert result["units"] == written["units"]
    assert "not a probability" in result["units"]["score"]
    (entry,) = result["groundings"]
    assert entry["boxes"][0]["score"] == pytest.approx(0.75 * max_of_map(radiographs / "one.png", "left effusion"))
    assert _caption(entry).splitlines() == [
        "left effusion",
        f"abstention 0.25, highest box score {entry['boxes'][0]['score']:.3g}",
        f"model {MODEL}, image one.png",
    ]
    doubted = _caption({**entry, "abstention": 0.8, "boxes": [], "implausible": "it is blank"}).splitlines()
    assert doubted[1] == "probably absent, abstention 0.80, no box"
    assert doubted[3].startswith("warning: this cannot be a chest radiograph")


def max_of_map(image: Path, text: str) -> float:
    pixels = np.asarray(PIL.Image.open(image), dtype=float)[30:, 20:] / 255
    return float(pixels.mean()) * len(text)


def test_an_exif_orientation_is_said_and_applied_to_png(call: Run, radiographs: Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 2
    PIL.Image.fromarray(radiograph((1, 1))).save(radiographs / "one.png", exif=exif)
    result = ground(call, str(radiographs / "one.png"), "effusion")
    assert result["groundings"][0]["peak"] == [0.25, 0.75]
    assert result["notes"] == [f"{radiographs / 'one.png'}: mirrored according to its EXIF orientation (2)"]


def test_a_midline_peak_agrees_with_no_side_and_both_sides_are_not_judged() -> None:
    cells = np.zeros((3, 5))
    cells[1, 2] = 1.0
    grounding = Grounding(Heatmap(cells), [ScoredBox(Box(0.4, 0.3, 0.6, 0.6), 1.0, "nodule")])
    entry = describe("i", "left nodule", grounding)
    assert (entry["side_of_peak"], entry["side_agrees"]) == ("both", False)
    assert entry["boxes"] == [{"box": [0.4, 0.3, 0.6, 0.6], "score": 1.0, "label": "nodule"}]
    assert describe("i", "bilateral nodules", grounding)["side_agrees"] is None


def test_a_name_keeps_what_is_harmless_and_differs_with_the_key() -> None:
    assert file_name("../a/B c", "", key="1").startswith("a-b-c-")
    assert file_name("a", "b", key="1") != file_name("a", "b", key="2")
    assert len(file_name("a" * 500, "b" * 500, key="1")) < 90


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    with GroundingFolder(tmp_path / "found"), pytest.raises(OutputError, match="another run"):
        GroundingFolder(tmp_path / "found").__enter__()


def test_a_journal_cut_off_by_a_kill_loses_that_line_alone(tmp_path: Path) -> None:
    folder = tmp_path / "found"
    with GroundingFolder(folder) as store:
        for name in ("a", "b"):
            (folder / f"{name}.png").write_bytes(b"")
            store.add(name, {"overlay": f"{name}.png"})
    journal = folder / ".groundings.jsonl"
    journal.write_bytes(journal.read_bytes()[:-10])
    with GroundingFolder(folder) as store:
        assert store.get("a") == {"overlay": "a.png"}
        assert store.get("b") is None
        store.add("c", {"overlay": "a.png"})
    with GroundingFolder(folder) as store:
        assert store.get("c") == {"overlay": "a.png"}
