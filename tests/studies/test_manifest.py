import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightlung.core import Box, InputError, Phrase, Polarity, Study
from rightlung.studies import Source, open_source
from rightlung.studies.rows import KNOWN_FIELDS
from tests.studies.conftest import A, B, WriteData, encode, there


def opened(path: str, query: str = "") -> Source:
    return open_source(f"manifest:{path}{query}")


def only(path: str) -> Study:
    source = opened(path)
    assert source.problems == []
    (study,) = source
    return study


def refusal(path: str, query: str = "") -> str:
    with pytest.raises(InputError) as caught:
        opened(path, query)
    return str(caught.value)


def test_every_field_arrives(write_data: WriteData) -> None:
    row = {
        **A, "patient": "p1", "study": "e1", "view": "PA", "split": "val", "age": 57, "sex": "F",
        "findings": ["Mass", "Mass", "Effusion"], "text": "Findings: a mass.", "sections": {"findings": "A mass."},
        "regions": {"heart": [0.25, 0.5, 0.75, 1.0], "aorta": None}, "scanner": {"maker": "X"}, "mesh": [1, 2],
    }  # fmt: skip
    path = write_data([row])
    study = only(path)
    assert (study.id, study.patient, study.exam, study.view, study.split) == ("a", "p1", "e1", "PA", "val")
    assert (study.age, study.sex, study.source) == (57.0, "F", f"manifest:{path}")
    assert study.findings == {"Mass": Polarity.POSITIVE, "Effusion": Polarity.POSITIVE}
    assert study.regions == {"heart": Box(0.25, 0.5, 0.75, 1.0)}
    assert study.extra == {"scanner": {"maker": "X"}, "mesh": [1, 2]}
    report = there(study.report)
    assert report.text == "Findings: a mass."
    assert report.sections == {"findings": "A mass."}
    np.testing.assert_array_equal(study.image, np.arange(24, dtype=np.float32).reshape(6, 4) / np.float32(255))


def test_findings_may_say_their_polarity(write_data: WriteData) -> None:
    study = only(write_data([{**A, "findings": {"Mass": "negative", "Edema": "uncertain", "Nodule": None}}]))
    assert study.findings == {"Mass": Polarity.NEGATIVE, "Edema": Polarity.UNCERTAIN}


def test_null_and_blank_are_absent(write_data: WriteData) -> None:
    absent = dict.fromkeys(KNOWN_FIELDS - {"id", "file"})
    study = only(write_data([{**A, **absent, "patient": "", "sex": " "}]))
    assert (study.patient, study.exam, study.view, study.split, study.age, study.sex) == (None,) * 6
    assert (study.report, study.phrases, study.findings, study.regions, study.extra) == (None, (), {}, {}, {})


def test_a_label_becomes_one_phrase_with_all_its_boxes_and_its_masks_united(write_data: WriteData) -> None:
    drawn = (("Zebra Sign", (0.5, 0, 1, 1)), ("Mass", (0, 0, 0.5, 0.5)), ("Zebra Sign", (0, 0.5, 0.5, 1)))
    outlined = (("Mass", "left"), ("Nodule", "left"), ("Mass", "right"))
    boxes = [{"label": label, "box": box} for label, box in drawn]
    masks = [{"label": label, "file": f"masks/{name}.png"} for label, name in outlined]
    zebra, mass, nodule = only(write_data([{**A, "boxes": boxes, "masks": masks}])).phrases
    both = (Box(0.5, 0, 1, 1), Box(0, 0.5, 0.5, 1))
    assert zebra == Phrase("zebra sign", both, findings={"Zebra Sign": Polarity.POSITIVE})
    assert mass.boxes == (Box(0, 0, 0.5, 0.5),)
    assert there(mass.mask).pixels.any(axis=0).tolist() == [True, False, False, True]
    assert there(nodule.mask).area == 0.25
    assert nodule.findings == {"Nodule": Polarity.POSITIVE}
    assert "mass" in mass.text.lower()


def test_sentences_of_findings_and_impression_become_phrases(write_data: WriteData) -> None:
    sections = {"Impression": "No effusion.", "findings": "A mass. Heart is large.", "indication": "Cough."}
    row = {**A, "boxes": [{"label": "Zebra", "box": [0, 0, 1, 1]}], "sections": sections, "text": "Something else."}
    texts = [phrase.text for phrase in only(write_data([row])).phrases]
    assert texts == ["zebra", "A mass.", "Heart is large.", "No effusion."]


def test_a_report_without_text_joins_findings_and_impression(write_folder: WriteData) -> None:
    sections = {"impression": "Two.", "findings": "One.", "history": "No."}
    report = there(only(write_folder([{**A, "sections": sections}])).report)
    assert (report.text, dict(report.sections)) == ("One. Two.", sections)


def test_given_phrases_replace_all_others(write_data: WriteData) -> None:
    given_phrases = [
        {"text": "left mass", "boxes": [[0, 0, 0.5, 1]], "mask": "masks/left.png", "regions": ["left lung"],
         "findings": ["Mass"]},
        {"text": "no edema", "findings": {"Edema": "negative"}, "boxes": None},
    ]  # fmt: skip
    row = {**A, "boxes": [{"label": "Zebra", "box": [0, 0, 1, 1]}], "text": "A mass.", "phrases": given_phrases}
    first, second = only(write_data([row])).phrases
    assert (first.text, first.boxes, first.regions) == ("left mass", (Box(0, 0, 0.5, 1),), ("left lung",))
    assert there(first.mask).area == 0.25
    assert first.findings == {"Mass": Polarity.POSITIVE}
    assert second == Phrase("no edema", findings={"Edema": Polarity.NEGATIVE})
    assert only(write_data([{**row, "phrases": []}])).phrases == ()


def located(locations: object) -> dict[str, Any]:
    return {"phrases": [{"text": "x", "findings": ["mass"], "locations": locations}]}


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"id": None}, "id", "is missing; every row must have it"),
        ({"file": None}, "file", "is missing; every row must have it"),
        ({"id": 7}, "id", "must be a string with at least one character; got 7"),
        ({"id": " "}, "id", "at least one character"),
        ({"id": "x\ny"}, "id", "control characters"),
        ({"file": 3}, "file", "must be a string"),
        ({"file": "/etc/passwd"}, "file", "is an absolute path"),
        ({"file": "C:\\x.png"}, "file", "is an absolute path"),
        ({"file": "images/../../x.png"}, "file", "leads out of the manifest's folder with '..'"),
        ({"file": "images\\..\\x.png"}, "file", "leads out of the manifest's folder with '..'"),
        ({"file": "a\0.png"}, "file", "NUL"),
        ({"file": "./"}, "file", "names a folder"),
        ({"patient": 12}, "patient", "must be a string; got 12"),
        ({"age": "57"}, "age", "must be a number; got '57'"),
        ({"age": 10**400}, "age", "too large"),
        ({"findings": "Mass"}, "findings", "must be a list of names or an object of polarities; got 'Mass'"),
        ({"findings": ["Mass", 3]}, "findings[1]", "must be a string"),
        ({"findings": {"Mass": "positiv"}}, "findings.Mass", "did you mean 'positive'?"),
        ({"boxes": {}}, "boxes", "must be a list; got an object"),
        ({"boxes": [[0, 0, 1, 1]]}, "boxes[0]", "must be an object; got a list"),
        ({"boxes": [{"box": [0, 0, 1, 1]}]}, "boxes[0].label", "is missing"),
        ({"boxes": [{"label": "x"}]}, "boxes[0].box", "a box must be [x0, y0, x1, y1]; got null"),
        ({"boxes": [{"label": "x", "box": [0, 0, 1]}]}, "boxes[0].box", "four numbers"),
        ({"boxes": [{"label": "x", "box": "0011"}]}, "boxes[0].box", "a box must be [x0, y0, x1, y1]"),
        ({"boxes": [{"label": "x", "box": [0, 0, 1, 1]}, {"label": "x", "box": [0.5, 0, 1.5, 1]}]}, "boxes[1].box",
         "leaves the image"),
        ({"boxes": [{"label": "x", "box": [10, 20, 30, 40]}]}, "boxes[0].box", "coordinates are fractions"),
        ({"boxes": [{"label": "x", "box": [0.5, 0, 0.5, 1]}]}, "boxes[0].box", "has no area"),
        ({"boxes": [{"label": "x", "box": [float("nan"), 0, 1, 1]}]}, "boxes[0].box", "must be finite"),
        ({"boxes": [{"label": "x", "box": [0, 0, float("inf"), 1]}]}, "boxes[0].box", "must be finite"),
        ({"boxes": [{"label": "x", "box": [0, 0, True, 1]}]}, "boxes[0].box", "must be a number"),
        ({"boxes": [{"label": "x", "box": [0, 0, 10**400, 1]}]}, "boxes[0].box", "too large"),
        ({"masks": [{"label": "x", "file": "../m.png"}]}, "masks[0].file", "'..'"),
        ({"masks": [{"label": "x"}]}, "masks[0].file", "is missing"),
        ({"phrases": [{"text": "x", "box": [0, 0, 1, 1]}]}, "phrases[0]", "did you mean 'boxes'"),
        ({"boxes": [{"label": "x", "bbox": [0, 0, 1, 1]}]}, "boxes[0]", "did you mean 'box'"),
        ({"age": -3}, "age", "0 to 130"),
        ({"text": ["x"]}, "text", "must be a string; got a list"),
        ({"sections": ["x"]}, "sections", "must be an object; got a list"),
        ({"sections": {"findings": 3}}, "sections.findings", "must be a string; got 3"),
        ({"regions": {"heart": [0, 0, 2, 1]}}, "regions.heart", "leaves the image"),
        ({"phrases": "x"}, "phrases", "must be a list"),
        ({"phrases": [{"text": ""}]}, "phrases[0].text", "at least one character"),
        ({"phrases": [{"text": "x", "boxes": [[0, 0, 1, 1], [0, 0, 9, 1]]}]}, "phrases[0].boxes[1]", "leaves"),
        ({"phrases": [{"text": "x", "mask": "/m.png"}]}, "phrases[0].mask", "absolute"),
        ({"phrases": [{"text": "x", "regions": [""]}]}, "phrases[0].regions[0]", "at least one character"),
        (located(["left lung"]), "phrases[0].locations", "must be an object"),
        (located({"mas": ["left lung"]}), "phrases[0].locations.mas", "did you mean 'mass'"),
        (located({"mass": "left lung"}), "phrases[0].locations.mass", "must be a list"),
        (located({"mass": ["left lung", 3]}), "phrases[0].locations.mass[1]", "must be a string"),
        ({"region_findings": ["left lung"]}, "region_findings", "must be an object"),
        ({"region_findings": {"left lung": {"mass": "maybe"}}}, "region_findings.left lung.mass", "polarity"),
        ({"id": "\ud800"}, None, "surrogate"),
    ],
)  # fmt: skip
def test_a_bad_field_is_named_and_the_rest_goes_on(
    write_folder: WriteData, change: dict[str, Any], field: str | None, reason: str
) -> None:
    source = opened(write_folder([A, {"id": "bad", "file": "images/a.png", **change}, B]))
    assert [study.id for study in source] == ["a", "b"]
    (problem,) = source.problems
    assert (problem.file, problem.line, problem.field) == ("manifest.jsonl", 2, field)
    assert reason in problem.message
    assert "\n" not in str(problem)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": "x", "file": ', "is not JSON: Expecting value at column"),
        (b"[1, 2]", "a row must be a JSON object; got a list"),
        (b"null", "a row must be a JSON object; got null"),
        (b'{"id": "\xff\xfe"}', "is not UTF-8 (byte 9 of the line)"),
        (b"[" * 100_000, "is not readable JSON"),
        (b'{"id": "x", "file": "images/a.png", "patient": "p", "patient": "q"}', "key 'patient' occurs twice; remove"),
        (
            b'{"id": "x", "file": "images/a.png", "findings": {"Mass": "positive", "Mass": null}}',
            "key 'Mass' occurs twice",
        ),
        (b'{"age": ' + b"9" * 5000 + b"}", "is not readable JSON"),
    ],
)
def test_a_line_that_is_no_row_is_named_and_the_rest_goes_on(write_data: WriteData, line: bytes, reason: str) -> None:
    source = opened(write_data([A, line, B]))
    assert list(source.ids) == ["a", "b"]
    (problem,) = source.problems
    assert (problem.line, problem.field) == (2, None)
    assert reason in problem.message


def test_the_first_of_two_rows_with_one_id_is_kept(write_data: WriteData) -> None:
    source = opened(write_data([A, B, {**B, "id": "a", "split": "val"}]))
    assert source.study("a").split is None
    (problem,) = source.problems
    assert str(problem) == "manifest.jsonl, line 3, field id: 'a' was already used on line 1"


def test_every_problem_is_counted(write_folder: WriteData) -> None:
    assert len(opened(write_folder([A, *["broken"] * 700])).problems) == 700


def test_a_file_that_is_not_in_the_archive_is_a_problem_when_opening(write_tar: WriteData) -> None:
    rows = [{**B, "masks": [{"label": "m", "file": "no.png"}]}, {**B, "phrases": [{"text": "t", "mask": "no.png"}]}]
    source = opened(write_tar([A, {"id": "x", "file": "images/none.png"}, *rows]))
    assert list(source.ids) == ["a"]
    assert [problem.field for problem in source.problems] == ["file", "masks[0].file", "phrases[0].mask"]
    assert source.problems[0].message == "file 'images/none.png' is not in the archive"


def test_a_missing_image_of_a_folder_is_found_when_it_is_loaded(write_folder: WriteData) -> None:
    source = opened(write_folder([A, {"id": "x", "file": "images/none.png"}]))
    assert source.problems == []
    with pytest.raises(InputError, match=r"study 'x': image .*none\.png does not exist"):
        _ = source.study("x").image


def test_an_image_that_fails_names_study_and_file_and_the_rest_loads(write_data: WriteData) -> None:
    path = write_data([A, {"id": "x", "file": "bad.png"}, B], {"bad.png": b"no image"})
    loaded, failed = [], []
    for study in opened(path):
        try:
            _ = study.image
            loaded.append(study.id)
        except InputError as error:
            failed.append(str(error))
    assert loaded == ["a", "b"]
    (message,) = failed
    assert all(part in message for part in ("study 'x'", path, "bad.png", "not an image"))


def test_a_broken_mask_is_named_when_it_is_used_and_costs_nothing_else(write_data: WriteData) -> None:
    bad = {**A, "id": "x", "masks": [{"label": "m", "file": "masks/left.png"}, {"label": "n", "file": "bad.png"}]}
    source = opened(write_data([A, bad, B], {"bad.png": b"\x89PNG\r\n\x1a\nno"}))
    assert [study.id for study in source] == ["a", "x", "b"]
    assert source.problems == []
    good, broken = source.study("x").phrases[:2]
    assert there(good.mask).area == 0.25
    mask = there(broken.mask)
    with pytest.raises(InputError, match=r"study 'x': mask .*bad\.png.* is truncated"):
        _ = mask.pixels


def test_masks_of_one_label_must_have_one_size(write_data: WriteData) -> None:
    masks = [{"label": "m", "file": "masks/left.png"}, {"label": "m", "file": "other.png"}]
    source = opened(write_data([B, {**A, "masks": masks}], {"other.png": encode(np.ones((2, 2), dtype=bool))}))
    mask = there(source.study("a").phrases[0].mask)
    with pytest.raises(InputError, match=r"study 'a': .*other\.png.*masks differ in size: \(6, 4\) and \(2, 2\)"):
        _ = mask.area


def test_studies_of_one_archive_share_one_descriptor_however_often_they_are_pickled(write_tar: WriteData) -> None:
    source = opened(write_tar([A, B]))
    before = len(list(Path("/proc/self/fd").iterdir()))
    kept = [pickle.loads(pickle.dumps(source.study("a"))) for _ in range(20)]
    assert all(study.image.shape == kept[0].image.shape for study in kept)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def test_links_may_not_lead_out_of_the_folder(write_folder: WriteData, tmp_path: Path) -> None:
    folder = Path(write_folder([A, {"id": "in", "file": "in.png"}, {"id": "out", "file": "out.png"},
                                {"id": "deep", "file": "away/secret.png"}]))  # fmt: skip
    (tmp_path / "secret.png").write_bytes((folder / "images/a.png").read_bytes())
    (folder / "in.png").symlink_to(folder / "images/a.png")
    (folder / "out.png").symlink_to(tmp_path / "secret.png")
    (folder / "away").symlink_to(tmp_path)
    source = opened(str(folder))
    assert [study.id for study in source if study.image.size] == ["a", "in"]
    assert [(problem.line, problem.field) for problem in source.problems] == [(3, "file"), (4, "file")]
    assert "leads out of the manifest's folder" in source.problems[0].message


def test_a_folder_that_is_itself_a_link_is_fine(write_folder: WriteData, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(write_folder([A]))
    assert only(str(link)).image.shape == (6, 4)


def test_byte_order_mark_crlf_and_blank_lines_are_tolerated(write_data: WriteData) -> None:
    lines = [b"\xef\xbb\xbf" + json.dumps(A).encode() + b"\r", b"", b"  \r", json.dumps(B).encode() + b"\r", b"x"]
    source = opened(write_data(lines))
    assert [study.id for study in source] == ["a", "b"]
    assert [problem.line for problem in source.problems] == [5]


def test_a_last_line_without_its_end_is_read(write_folder: WriteData) -> None:
    folder = write_folder([A])
    (Path(folder) / "manifest.jsonl").write_text(json.dumps(A) + "\n" + json.dumps(B))
    assert list(opened(folder).ids) == ["a", "b"]


def test_a_line_beyond_the_limit_is_a_problem(write_data: WriteData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rightlung.studies.manifest.MAX_LINE_BYTES", 100)
    source = opened(write_data([A, {**B, "id": "long", "text": "x" * 1000}, B]))
    assert [study.id for study in source] == ["a", "b"]
    (problem,) = source.problems
    assert (problem.line, problem.message) == (2, "the line is longer than the limit of 100 bytes")


def test_split_is_applied_before_limit_and_order_is_kept(write_data: WriteData) -> None:
    rows = [{**A, "id": f"{split}{number}", "split": split} for number in range(3) for split in ("train", "val")]
    path = write_data([*rows, {**A, "id": "none"}])
    assert list(opened(path, "?split=val&limit=2").ids) == ["val0", "val1"]
    assert list(opened(path, "?limit=3").ids) == ["train0", "val0", "train1"]
    assert len(opened(path, "?limit=99")) == 7


def test_an_unknown_split_lists_those_that_exist(write_folder: WriteData) -> None:
    path = write_folder([{**A, "split": "train"}, {**B, "split": "val"}])
    assert refusal(path, "?split=vall") == "unknown split 'vall'; did you mean 'val'? Known: train, val"
    assert "has no splits" in refusal(write_folder([A]), "?split=val")


def test_a_manifest_without_a_usable_row_is_refused(write_data: WriteData) -> None:
    message = refusal(write_data(["broken", {"id": "x"}]))
    assert "no usable row; 2 have problems, the first: manifest.jsonl, line 1: the line is not JSON" in message
    assert refusal(write_data([""])).endswith("manifest.jsonl has no rows")


def test_paths_that_are_no_data_are_explained(write_folder: WriteData, tmp_path: Path) -> None:
    assert refusal(str(tmp_path)) == f"folder {tmp_path} has no manifest.jsonl"
    assert refusal(str(tmp_path / "none.tar")).endswith("none.tar does not exist")
    assert "needs a path" in refusal("")
    folder = write_folder([A])
    assert f"give its folder, {folder}" in refusal(f"{folder}/manifest.jsonl")


fractions = st.floats(0, 1, allow_nan=False)
names = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=12)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    x0, x1 = sorted(draw(st.tuples(fractions, fractions)))
    y0, y1 = sorted(draw(st.tuples(fractions, fractions)))
    return Box.clipped(x0, y0, x1, y1) or Box(0, 0, 1, 1)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(names, st.lists(st.tuples(names, boxes()), max_size=4), min_size=1, max_size=5))
def test_boxes_written_are_boxes_read(studies: dict[str, list[tuple[str, Box]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            {**A, "id": name, "boxes": [{"label": label, "box": box.as_tuple()} for label, box in labelled]}
            for name, labelled in studies.items()
        ]
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (Path(folder) / "manifest.jsonl").write_text("\n".join(lines), encoding="utf-8")
        source = opened(folder, "?")
        assert source.problems == []
        assert list(source.ids) == list(studies)
        for study in source:
            read = {(label, box) for phrase in study.phrases for label in phrase.findings for box in phrase.boxes}
            assert read == set(studies[study.id])
            assert len(study.phrases) == len({label for label, _ in studies[study.id]})


def test_a_gaze_map_is_read_and_a_wrong_one_is_named(write_data: WriteData) -> None:
    good = {"grid": [1, 2], "values": [3, 1], "units": 4}
    rows = [{**A, "gaze": good}, {**B, "gaze": {**good, "grid": [2, 2]}}, {**B, "gaze": {**good, "values": [3, -1]}}]
    source = opened(write_data([*rows, {**B, "gaze": {"gird": [1, 2]}}]))
    (study,) = source
    assert there(study.gaze).values.tolist() == [[0.75, 0.25]]
    assert [problem.line for problem in source.problems] == [2, 3, 4]
    assert "did you mean 'grid'" in str(source.problems[2])


def test_findings_have_their_own_places_and_regions_their_own_findings(write_folder: WriteData) -> None:
    locations = {"consolidation": ["left lung"], "pleural effusion": ["right lung"]}
    phrase = {"text": "Both.", "regions": ["left lung", "right lung"], "findings": [*locations], "locations": locations}
    told = {"left lung": ["consolidation"], "right lung": {"pleural effusion": "positive", "consolidation": "negative"}}
    study = opened(write_folder([{**A, "phrases": [phrase], "region_findings": told}])).study("a")
    assert study.phrases[0].locations == {"consolidation": ("left lung",), "pleural effusion": ("right lung",)}
    assert study.region_findings == {
        "left lung": {"consolidation": Polarity.POSITIVE},
        "right lung": {"pleural effusion": Polarity.POSITIVE, "consolidation": Polarity.NEGATIVE},
    }
    assert "region_findings" not in study.extra
