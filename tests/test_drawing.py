from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageDraw
import pytest

from rightlung.core import Box, Heatmap, Mask, OutputError
from rightlung.drawing import PREDICTED, TARGET, Tile, draw, save_sheet

GREY = np.full((40, 20), 0.5, dtype=np.float32)


def pixels_of(tile: Tile, colour: tuple[int, int, int]) -> np.ndarray:
    picture = np.asarray(draw(tile, 80)).astype(int)
    return np.argwhere((picture == colour).all(axis=2))


def test_boxes_are_drawn_where_they_are_in_the_letterboxed_image() -> None:
    rows, columns = pixels_of(Tile(GREY, targets=[Box(0.5, 0.25, 1.0, 0.75)]), TARGET).T
    assert (rows.min(), rows.max()) == (20, 59)
    assert (columns.min(), columns.max()) == (40, 59)  # the image is 40 wide, in the middle of 80


def test_every_picture_says_which_side_is_the_patients_right() -> None:
    """R stands on the image's left and L on its right: the two corners differ, and each is the letter's own shape."""
    picture = np.asarray(draw(Tile(np.zeros((40, 40), dtype=np.float32)), 80)).max(axis=2) > 128
    left, right = picture[:14, :12], picture[:14, -12:]
    letters = {}
    for letter in "RL":
        canvas = PIL.Image.new("L", (12, 14))
        PIL.ImageDraw.Draw(canvas).text((3, 1), letter, fill=235)
        letters[letter] = (np.asarray(canvas) > 128).sum()
    assert left.sum() == letters["R"]
    assert right.sum() == letters["L"]
    assert letters["R"] != letters["L"]


def test_predicted_boxes_have_their_own_colour() -> None:
    assert len(pixels_of(Tile(GREY, predicted=[Box(0.1, 0.1, 0.9, 0.9)]), PREDICTED))


def test_the_outline_follows_the_masks_edge_only() -> None:
    mask = np.zeros((40, 20), dtype=bool)
    mask[10:20, 5:15] = True
    rows, columns = pixels_of(Tile(GREY, mask=Mask(mask)), TARGET).T
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20, 39, 30, 49)
    assert len(rows) == 4 * 19


def test_a_hot_corner_of_the_map_reddens_that_corner_of_the_picture() -> None:
    picture = np.asarray(draw(Tile(GREY, heatmap=Heatmap([[0, 0], [0, 1]])), 80)).astype(int)
    warmth = picture[:, :, 0] - picture[:, :, 2]
    assert warmth[75, 58] > 50
    assert warmth[20, 22] == 0


def test_a_map_fades_with_the_abstention_and_never_quite() -> None:
    def warmth(abstention: float) -> int:
        heatmap = Heatmap([[0, 0], [0, 1]], abstention=abstention)
        pixel = np.asarray(draw(Tile(GREY, heatmap=heatmap), 80)).astype(int)[75, 58]
        return int(pixel[0] - pixel[2])

    assert warmth(0.5) == pytest.approx(warmth(0.0) / 2, abs=2)
    assert 0 < warmth(1.0) == warmth(0.9) < warmth(0.5)


def test_a_map_without_mass_leaves_the_picture_grey() -> None:
    picture = np.asarray(draw(Tile(GREY, heatmap=Heatmap([[0.0]])), 80)).astype(int)
    assert (picture[20:, :, 0] == picture[20:, :, 2]).all()


def test_a_sheet_holds_all_tiles_in_rows(tmp_path: Path) -> None:
    path = save_sheet([Tile(GREY, "one")] * 5, tmp_path / "new" / "sheet.png", columns=2, side=80)
    with PIL.Image.open(path) as picture:
        assert picture.size == (2 * 84 + 4, 3 * (80 + 30 + 4) + 4 + 16)


def test_a_sheet_that_cannot_be_written_names_its_path() -> None:
    with pytest.raises(OutputError, match=r"/dev/null/sheet\.png"):
        save_sheet([Tile(GREY)], "/dev/null/sheet.png")
