"""Faults planted one at a time into a sound folder: each is found where it is, and nothing else is."""

import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rightlung.core import Box, InputError, Study
from rightlung.core.problem import Problem
from rightlung.studies.check import CheckResult, check_source
from rightlung.studies.checks.issue import CHECKS, Severity
from rightlung.studies.sources import Address, Source, _openers, register_source
from tests.studies.planting import (
    COUNT,
    PLANTED,
    SIZE,
    Planting,
    blank_image,
    damage,
    double_blank,
    noise_image,
    say,
    set_box,
    two_splits,
    write_sound,
    wrong_side_phrase,
)

PAGE = Path(__file__).parents[2] / "docs" / "checks.md"
Change = Callable[[list[float]], list[float]]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "phantom"
    write_sound(folder)
    return folder


@pytest.fixture
def planting(sound: Path, tmp_path: Path) -> Planting:
    return Planting(sound, tmp_path / "planted")


def found(result: CheckResult) -> set[tuple[str, int | None, str | None]]:
    return {(finding.check, finding.place.row, finding.field) for finding in result.findings}


def test_a_sound_folder_has_no_findings(planting: Planting) -> None:
    result = planting.check()
    assert [str(finding) for finding in result.findings] == []
    assert (result.rows, result.studies, result.images, result.total) == (COUNT, COUNT, COUNT, 0)


def test_a_sound_stream_has_no_findings() -> None:
    result = check_source("phantom?count=24&seed=5&size=64")
    assert (result.total, result.studies) == (0, 24)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_where_it_is_and_nothing_else_is(planting: Planting, name: str) -> None:
    plant, check, field = PLANTED[name]
    del planting.rows[16:]
    lungs = [entry["file"] for entry in planting.rows[4]["masks"] if entry["label"] == "right lung"]
    planting.rows[4]["masks"] = []
    planting.right_lung = lungs[0]
    plant(planting)
    result = planting.check()
    assert found(result) == {(check, 5, field)}, [str(finding) for finding in result.findings]
    assert result.total == 1


def test_a_double_blank_is_seen_in_the_message(planting: Planting) -> None:
    double_blank(planting)
    (finding,) = planting.check(images=False).findings
    assert "'hiatal␣␣hernia' (once) means the same as 'hiatal hernia'" in finding.message


def test_a_sound_mask_fits_its_region(planting: Planting) -> None:
    del planting.rows[6:]
    planting.rows[4]["masks"] = [entry for entry in planting.rows[4]["masks"] if entry["label"] == "right lung"]
    assert (len(planting.rows[4]["masks"]), planting.check().total) == (1, 0)


def test_phrases_that_are_no_quotations_are_not_missed_in_the_reports(planting: Planting) -> None:
    for row in planting.rows:
        for phrase in row["phrases"]:
            phrase["text"] = f"{phrase['text']} As seen here."
    assert "phrase-text" not in {f.check for f in planting.check(images=False).findings}


def test_an_image_of_noise_is_found_among_few(planting: Planting) -> None:
    noise_image(planting)
    (issue,) = planting.check(limit=6).findings
    assert (issue.check, issue.severity) == ("odd-image", Severity.ERROR)
    assert issue.message == "the image cannot be a chest radiograph: it is noise (neighbouring pixels are unrelated)"


def test_every_check_is_planted_or_tested_by_name() -> None:
    told = "".join((Path(__file__).parent / name).read_text() for name in ("planting.py", "test_check.py"))
    assert [check for check in CHECKS if f'"{check}"' not in told] == []


def test_all_faults_of_a_row_are_found_not_only_the_first(planting: Planting) -> None:
    row = planting.rows[4]
    row["age"], row["view"], row["masks"] = "old", "LATERAL", []
    row["boxes"] = [{"label": "mass", "box": [0.9, 0.2, 0.8, 0.4]}, {"label": "mass", "box": [0.5, 0.2, 0.5, 0.4]}]
    row["findings"] = {"edema": "maybe"}
    say(planting, {"text": "A mass.", "boxes": [[1, 2, 3]]})
    assert found(planting.check()) == {
        ("label-value", 5, "age"), ("label-value", 5, "view"), ("box-order", 5, "boxes[0].box"),
        ("box-size", 5, "boxes[1].box"), ("label-value", 5, "findings.edema"), ("box-form", 5, "phrases[0].boxes[0]"),
    }  # fmt: skip


def test_a_key_that_occurs_twice_is_reported_with_its_row(planting: Planting) -> None:
    planting.check(images=False)
    path = planting.folder / "manifest.jsonl"
    lines = path.read_text().splitlines()
    lines[4] = lines[4].removesuffix("}") + ', "view": "AP"}'
    path.write_text("\n".join(lines))
    (issue,) = check_source(f"manifest:{planting.folder}", images=False).findings
    assert (issue.check, issue.place.row) == ("row", 5)
    assert issue.message == "key 'view' occurs twice; remove one of the two"


def test_a_misspelt_split_is_told_from_a_split_of_its_own(planting: Planting) -> None:
    patients = [row["patient"] for row in planting.rows]
    lone = planting.row_where(lambda row: patients.count(row["patient"]) == 1 and row["split"] == "train")
    planting.rows[lone]["split"] = "trian"
    assert found(planting.check(images=False)) == {("split-name", lone + 1, "split")}
    planting.rows[lone]["split"] = "boxes"
    assert planting.check(images=False).total == 0


def each_box(planting: Planting, change: Change) -> int:
    """Change every box of the manifest; returns how many there are."""
    count = 0
    for row in planting.rows:
        for entry in row["boxes"]:
            entry["box"], count = change(entry["box"]), count + 1
        for phrase in row["phrases"]:
            phrase["boxes"] = [change(box) for box in phrase["boxes"]]
            count += len(phrase["boxes"])
            phrase["mask"] = None
        row["regions"] = {name: change(box) for name, box in row["regions"].items()}
        count += len(row["regions"])
    return count


def only(result: CheckResult) -> str:
    """Return the sentence on the layout of all boxes."""
    (finding,) = [f for f in result.findings if f.check == "box-layout" and f.place.row is None]
    assert finding.severity is Severity.ERROR
    return finding.message


def test_pixels_throughout_are_told_although_no_row_can_be_read(planting: Planting) -> None:
    count = each_box(planting, lambda box: [round(value * SIZE) for value in box])
    result = planting.check()
    told = [f for f in result.findings if f.check == "box-scale"]
    assert {f.check for f in result.findings} <= {"box-scale", "box-size"}
    assert len(told) > 0.9 * count
    assert all(f"looks like pixels: divide by the image's width {SIZE} and height {SIZE}" in f.message for f in told)


WIDTH_AND_HEIGHT = ("looks like pixels", "x, y, width, height")


@pytest.mark.parametrize(
    ("change", "enlarged", "told"),
    [
        (
            lambda b: [round(v * 1024) for v in b],
            1,
            ("pixels of an image of about 1024 pixels, but this image is 96 x 96",),
        ),
        (lambda b: [SIZE * v for v in (b[0], b[1], b[2] - b[0], b[3] - b[1])], 1, WIDTH_AND_HEIGHT),
        (lambda b: [100 * v for v in b], 3, ("looks like percent: divide by 100",)),
    ],
    ids=["pixels of another size", "pixels as width and height", "percent"],
)
def test_pixels_are_told_from_other_scales(
    planting: Planting, change: Change, enlarged: int, told: tuple[str, ...]
) -> None:
    for row in planting.rows if enlarged > 1 else []:
        grown = np.kron(planting.pixels(row["file"]), np.ones((enlarged, enlarged), np.uint8))
        planting.save_pixels(row["file"], grown)
        row["masks"] = []
    each_box(planting, change)
    messages = [f.message for f in planting.check().findings if f.check == "box-scale"]
    assert messages
    assert all(part in message for message in messages for part in told)


def test_width_and_height_throughout_are_told_also_for_boxes_that_pass(planting: Planting) -> None:
    count = each_box(planting, lambda box: [box[0], box[1], box[2] - box[0], box[3] - box[1]])
    result = planting.check(images=False)
    assert f"all {count:,} boxes look like x, y, width, height" in only(result)
    assert all("x, y, width, height" in f.message for f in result.findings if f.check == "box-order")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda box: [1 - box[2], box[1], 1 - box[0], box[3]], "mirrored left to right"),
        (lambda box: [box[1], box[0], box[3], box[2]], "y0, x0, y1, x1"),
        (lambda box: [box[0], 1 - box[3], box[2], 1 - box[1]], "upside down"),
    ],
    ids=["mirrored", "transposed", "upside down"],
)
def test_the_layout_of_all_boxes_is_judged_by_counts(planting: Planting, change: Change, expected: str) -> None:
    for row in planting.rows:
        row["masks"] = []
    each_box(planting, change)
    result = planting.check(images=False)
    assert expected in only(result)
    assert {f.check for f in result.findings} <= {"box-layout", "box-side", "box-level"}


def test_boxes_divided_by_too_large_a_size_lie_in_a_corner(planting: Planting) -> None:
    for row in planting.rows:
        row["regions"], row["masks"] = {}, []
    each_box(planting, lambda box: [value * 0.25 for value in box])
    assert "top left quarter" in only(planting.check(images=False))


def test_one_study_whose_regions_are_mirrored_is_told_as_a_whole(planting: Planting) -> None:
    regions = planting.rows[4]["regions"]
    planting.rows[4]["regions"] = {name: [1 - b[2], b[1], 1 - b[0], b[3]] for name, b in regions.items()}
    planting.rows[4]["phrases"], planting.rows[4]["boxes"] = [], []
    result = planting.check()
    (layout,) = [f for f in result.findings if f.check == "box-layout"]
    assert (layout.place.row, layout.field) == (5, "regions")
    assert "mirrored" in layout.message
    assert {f.place.row for f in result.findings} == {5}


def source_wide(result: CheckResult, check: str) -> list[Severity]:
    return [f.severity for f in result.findings if f.check == check and f.place.row is None]


def test_some_mirrored_images_among_many_are_told(planting: Planting) -> None:
    for mirrored in planting.rows[::3]:
        planting.save_pixels(mirrored["file"], planting.pixels(mirrored["file"])[:, ::-1])
    result = planting.check()
    assert source_wide(result, "mirrored-image") == [Severity.WARNING]
    struck = {row for f in result.findings if (row := f.place.row) is not None}
    assert len(struck) >= 5
    assert struck <= set(range(1, COUNT + 1, 3))


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda pixels: pixels[:, ::-1], "mirrored-image"),  # told by the heart's side
        (lambda pixels: 255 - pixels, "inverted-image"),
        (lambda pixels: pixels[::-1, ::-1], "turned-image"),
        (lambda pixels: pixels.T, "turned-image"),
    ],
    ids=["mirrored", "inverted", "upside down", "on its side"],
)
def test_images_the_wrong_way_round_are_told(planting: Planting, change: Callable[[Any], Any], check: str) -> None:
    for row in planting.rows:
        row["masks"] = []
        planting.save_pixels(row["file"], np.ascontiguousarray(change(planting.pixels(row["file"]))))
    result = planting.check()
    assert source_wide(result, check) == [Severity.ERROR]
    assert {f.check for f in result.findings} == {check}


@pytest.mark.parametrize("kind", ["noise", "ramp", "wave"])
def test_nothing_is_said_of_the_sides_of_what_is_no_radiograph(planting: Planting, kind: str) -> None:
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    for number, row in enumerate(planting.rows):
        row["masks"], row["phrases"] = [], []
        picture = {
            "noise": rng.random((SIZE, SIZE)),
            "ramp": x * (number + 1) / COUNT,
            "wave": 0.5 + 0.5 * np.sin(x * 9 + y * 5 + number),
        }[kind]
        planting.save_pixels(row["file"], (picture * 255).astype(np.uint8))
    assert {check for check, _, _ in found(planting.check())} <= {"blank-image", "odd-image"}


def test_patients_are_compared_over_the_whole_file_whatever_the_address_selects(planting: Planting) -> None:
    two_splits(planting)
    for query, options in (("?split=val", {}), ("?split=train&limit=2", {}), ("", {"limit": 1})):
        result = planting.check(query, images=False, **options)
        assert found(result) == {("patient-splits", 5, "patient")}
        assert result.rows == COUNT
        assert result.studies < COUNT


def test_only_the_selected_studies_are_looked_at(planting: Planting) -> None:
    blank_image(planting)
    wrong_side_phrase(planting)
    (planting.folder / planting.rows[30]["file"]).unlink()
    assert planting.check("?limit=4").total == 0
    assert planting.check(limit=4).total == 0
    assert planting.check(limit=5).total == 2
    split = planting.rows[4]["split"]
    other = "train" if split == "val" else "val"
    assert {f.place.row for f in planting.check(f"?split={other}").findings} == {31}


def test_without_images_files_are_missed_and_not_decoded(planting: Planting) -> None:
    damage("file", b"no image")(planting)
    (planting.folder / planting.rows[7]["file"]).unlink()
    planting.rows[9]["file"] = planting.rows[8]["file"]
    result = planting.check(images=False)
    assert found(result) == {("missing-image", 8, "file"), ("duplicate-image", 10, "file")}
    assert result.images == 0


def test_findings_below_the_least_severity_are_left_out(planting: Planting) -> None:
    wrong_side_phrase(planting)
    blank_image(planting)
    assert {f.check for f in planting.check(least=Severity.ERROR).findings} == {"blank-image"}
    assert planting.check(least=Severity.WARNING).total == 2


def test_the_same_image_in_two_splits_is_an_error(planting: Planting) -> None:
    other = planting.row_where(lambda row: row["split"] != planting.rows[0]["split"])
    planting.save(planting.rows[other]["file"], (planting.folder / planting.rows[0]["file"]).read_bytes())
    planting.rows[other]["masks"] = []
    (finding,) = [f for f in planting.check().findings if f.check == "duplicate-image"]
    assert finding.severity is Severity.ERROR


def test_an_archive_is_checked_as_its_folder_is(planting: Planting, tmp_path: Path) -> None:
    planting.rows[4]["file"] = "images/none.png"
    set_box([10, 20, 60, 80])(planting)
    folder = planting.check()
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(planting.folder, arcname=".")
    assert found(check_source(f"manifest:{tmp_path / 'a.tar'}")) == found(folder)
    assert ("missing-image", 5, "file") in found(folder)


def test_an_address_that_selects_nothing_is_an_error_of_its_own(planting: Planting) -> None:
    with pytest.raises(InputError, match="has the split 'tset'"):
        planting.check("?split=tset")
    with pytest.raises(InputError, match="limt"):
        planting.check("?limt=3")


class Listed(Source):
    """A source of one's own, as other readers are: studies, and problems of what was left out."""

    def __init__(self, address: Address) -> None:
        super().__init__(str(address))
        image = np.kron(np.random.default_rng(0).random((8, 8)), np.ones((8, 8))).astype(np.float32)
        wrong = {"regions": {"left lung": Box(0.1, 0.2, 0.4, 0.8)}}
        told: list[dict[str, Any]] = [{"patient": "p0", "split": "train"}, {"patient": "p0", "split": "val"}]
        told.append({"patient": "p2", "split": "val", **wrong})
        studies = [Study(f"s{n}", partial(np.roll, image, n), **fields) for n, fields in enumerate(told)]
        self.studies = [one for one in studies if address.parameters.get("split") in (None, one.split)]
        self.problems.append(Problem("boxes.csv", "the box leaves the image: 2000 of 1024", 17, "x_max", "box-range"))

    @property
    def ids(self) -> list[str]:
        return [study.id for study in self.studies]

    def _build(self, position: int) -> Study:
        return self.studies[position]


@pytest.fixture
def listed() -> Iterator[None]:
    register_source("listed-test", Listed)
    yield
    del _openers["listed-test"]


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize("query", ["", "?split=val"])
def test_any_source_is_checked_by_what_it_yields_and_what_it_leaves_out(query: str) -> None:
    result = check_source(f"listed-test{query}")
    told = {(f.check, f.place.study, f.place.row, f.field) for f in result.findings}
    assert told == {
        ("box-range", None, 17, "x_max"), ("patient-splits", "s1", None, "patient"),
        ("box-side", "s2", None, "regions.left lung"),
    }  # fmt: skip
    assert result.rows == 3


def test_every_check_is_documented() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [check for check in CHECKS if f"`{check}`" not in page] == []
    for check, (severity, _) in CHECKS.items():
        assert f"| `{check}` | {severity}" in page, check


def test_findings_are_capped_and_counted(planting: Planting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rightlung.studies.checks.issue.MOST_KEPT", 5)
    for row in planting.rows:
        row["sex"] = "?!"
    result = planting.check(images=False)
    assert (result.total, len(result.findings)) == (COUNT, 5)
    assert result.as_dict()["checks"] == {"label-value": COUNT}
