"""Format as at https://github.com/Deepwise-AILab/ChestX-Det-Dataset (README): file_name, syms, boxes, polygons."""

from typing import Any

import numpy as np
import pytest

from rightlung.core import InputError
from rightlung.studies.index import IndexedSource
from tests.studies.conftest import there
from tests.studies.readers.published import NEGATIVE, POSITIVE, Files

TRIANGLE = [[100, 100], [100, 200], [200, 200]]
SQUARE = [[512, 512], [768, 512], [768, 768], [512, 768]]
TRAIN: list[dict[str, Any]] = [
    {"file_name": "36199.png", "syms": [], "boxes": [], "polygons": []},
    {
        "file_name": "36302.png",
        "syms": ["Effusion", "Diffuse Nodule", "Effusion"],
        "boxes": [[100, 100, 200, 200], [0, 0, 1024, 512], [512, 512, 768, 768]],
        "polygons": [TRIANGLE, [[0, 0], [1023, 0], [1023, 511], [0, 511]], SQUARE],
    },
]
TEST = [{"file_name": "40000.png", "syms": ["Fracture"], "boxes": [[0, 0, 512, 256]], "polygons": [SQUARE]}]


def write(files: Files, train: Any = TRAIN, query: str = "") -> IndexedSource:
    files.json("ChestX_Det_train.json", train)
    files.json("ChestX_Det_test.json", TEST)
    for name in ("train_data/36199.png", "train_data/36302.png", "test_data/test/40000.png"):
        files.image(name)
    return files.open("chestx-det", query)


def test_a_finding_is_one_phrase_with_its_boxes_and_outlines(files: Files) -> None:
    source = write(files)
    assert (list(source.ids), source.problems) == (["36199", "36302", "40000"], [])
    effusion, nodules = source.study("36302").phrases
    assert (effusion.text, nodules.text) == ("pleural effusion", "multiple lung nodules")
    first, second = (box.as_tuple() for box in effusion.boxes)
    assert (first, second) == ((100 / 1024, 100 / 1024, 200 / 1024, 200 / 1024), (0.5, 0.5, 0.75, 0.75))
    pixels = there(effusion.mask).pixels
    rows, columns = np.mgrid[:1024, :1024]
    inside = (columns >= 100) & (rows <= 200) & (columns <= rows)  # the triangle with its outline, by its three sides
    inside |= (columns >= 512) & (columns <= 768) & (rows >= 512) & (rows <= 768)
    # What is drawn may differ from the inequalities by a pixel along the slanted side, and nowhere else.
    assert np.abs(columns - rows)[pixels != inside].max(initial=0) <= 1
    assert pixels.sum() == pytest.approx(inside.sum(), rel=0.002)
    assert source[1].image.shape == (6, 4)


def test_what_is_not_named_is_negative(files: Files) -> None:
    normal, marked, _ = write(files)
    assert set(normal.findings.values()) == {NEGATIVE}
    assert len(normal.findings) == 13
    positive = {name for name, polarity in marked.findings.items() if polarity is POSITIVE}
    assert positive == {"pleural effusion", "multiple nodules"}
    assert marked.extra["labels"] == ["Effusion", "Diffuse Nodule"]


def test_the_published_split_is_kept(files: Files) -> None:
    assert list(write(files, query="?split=test").ids) == ["40000"]


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"file_name": "../36302.png"}, "file_name", "must be the name of a file"),
        ({"file_name": "99999.png"}, "file_name", "there is no image 99999.png in train_data"),
        ({"syms": ["Wart", "Mass", "Mass"]}, "syms[0]", "'Wart' is not one of the 13"),
        ({"syms": ["Mass"]}, "syms", "1 syms, 3 boxes and 3 polygons"),
        ({"boxes": [[200, 100, 100, 200]] * 3}, "boxes[0]", "has no area"),
        ({"boxes": [[0, 0, 100, 2000]] * 3}, "boxes[0]", "leaves the image"),
        ({"boxes": [[0, 0, 100]] * 3}, "boxes[0]", "must be [x1, y1, x2, y2]"),
        ({"polygons": [[[0, 0], [1, 1]]] * 3}, "polygons[0]", "at least three points"),
        ({"polygons": [[[0, 0], [1, 1], [9000, 3]]] * 3}, "polygons[0]", "leaves the image"),
        ({"polygons": "none"}, "polygons", "must be a list"),
    ],
)
def test_a_bad_entry_is_named_and_left_out(files: Files, change: dict[str, Any], field: str, message: str) -> None:
    source = write(files, [TRAIN[0], {**TRAIN[1], **change}])
    assert list(source.ids) == ["36199", "40000"]
    (problem,) = source.problems
    assert (problem.file, problem.field) == ("ChestX_Det_train.json", field)
    assert problem.message.startswith("entry 2: ")
    assert message in problem.message


def test_what_cannot_be_read_at_all_is_an_error(files: Files) -> None:
    files.refuses("chestx-det", r"has neither ChestX_Det_train\.json nor ChestX_Det_test\.json")
    with pytest.raises(InputError, match="must contain a list of images; got dict"):
        write(files, {})
    (files.root / "ChestX_Det_train.json").write_text("[{")
    files.refuses("chestx-det", r"ChestX_Det_train\.json is not readable JSON")
