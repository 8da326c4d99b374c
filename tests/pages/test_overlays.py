from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from rightlung.core import Box, Heatmap, Mask, OutputError
from rightlung.core.plotting import PREDICTED, TARGET, font
from rightlung.pages.overlays import CAPTION, LEGEND, Tile, _wrapped, draw, save_sheet

GREY = np.full((40, 20), 0.5, dtype=np.float32)


def pixels_of(tile: Tile, colour: tuple[int, int, int]) -> np.ndarray:
    picture = np.asarray(draw(tile, 80)).astype(int)[-80:]  # below the strip with the letters
    return np.argwhere((picture == colour).all(axis=2))


def test_boxes_are_drawn_where_they_are_in_the_letterboxed_image() -> None:
    rows, columns = pixels_of(Tile(GREY, targets=[Box(0.5, 0.25, 1.0, 0.75)]), TARGET).T
    assert (rows.min(), rows.max()) == (20, 59)
    assert (columns.min(), columns.max()) == (40, 59)  # the image is 40 wide, in the middle of 80
    assert len(pixels_of(Tile(GREY, predicted=[Box(0.1, 0.1, 0.9, 0.9)]), PREDICTED))


def test_every_picture_says_which_side_is_the_patients_right_above_the_image() -> None:
    """R stands on the image's left and L on its right: R is filled at its top right, L has nothing there."""
    picture = np.asarray(draw(Tile(np.zeros((40, 40), dtype=np.float32)), 80)).max(axis=2) > 128
    assert not picture[-80:].any()  # what is burnt into the image's corners stays visible
    left, right = picture[:-80, :20], picture[:-80, -20:]
    for corner, closed in ((left, True), (right, False)):
        rows, columns = np.nonzero(corner)
        letter = corner[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert letter.shape[0] >= 8
        assert letter[:, 0].all()  # both have an upright on their left
        assert letter[: letter.shape[0] // 2, letter.shape[1] // 2 :].any() == closed
    assert not picture[:, 20:-20].any()


def test_the_outline_follows_the_masks_edge_only() -> None:
    mask = np.zeros((40, 20), dtype=bool)
    mask[10:20, 5:15] = True
    rows, columns = pixels_of(Tile(GREY, mask=Mask(mask)), TARGET).T
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20, 39, 30, 49)
    assert len(rows) == 4 * 19


def test_a_hot_corner_of_the_map_reddens_that_corner_and_fades_with_the_abstention() -> None:
    def warmth(heatmap: Heatmap) -> Any:
        picture = np.asarray(draw(Tile(GREY, heatmap=heatmap), 80)).astype(int)[-80:]
        return picture[:, :, 0] - picture[:, :, 2]

    hot = warmth(Heatmap([[0, 0], [0, 1]]))
    assert hot[75, 58] > 50
    assert hot[20, 22] == 0
    half, most, all_of_it = (warmth(Heatmap([[0, 0], [0, 1]], abstention=a))[75, 58] for a in (0.5, 0.9, 1.0))
    assert half == pytest.approx(hot[75, 58] / 2, abs=2)
    assert 0 < all_of_it == most < half
    assert not warmth(Heatmap([[0.0]]))[20:].any()  # a map without mass leaves the picture grey


@pytest.mark.parametrize(("abstention", "opacity"), [(0.0, 1.0), (0.4, 0.6), (0.7, 0.35), (1.0, 0.35)])
def test_a_predicted_box_fades_with_the_abstention_and_is_dashed_if_probably_absent(
    abstention: float, opacity: float
) -> None:
    box = Box(0.0, 0.25, 1.0, 0.75)
    tile = Tile(np.zeros((40, 40), dtype=np.float32), heatmap=Heatmap([[0.0]], abstention=abstention), predicted=[box])
    edge = np.asarray(draw(tile, 80)).astype(int)[-80:][20]  # the upper edge of the box
    drawn = (edge > 0).any(axis=1)
    assert np.abs(edge[drawn] - opacity * np.array(PREDICTED)).max() <= 2
    assert drawn.all() == (abstention < 0.5)
    assert drawn.mean() > 0.3


def test_titles_stand_between_the_letters_and_a_legend_explains_what_is_drawn(tmp_path: Path) -> None:
    def height(*tiles: Tile) -> int:
        with PIL.Image.open(save_sheet(tiles, tmp_path / "sheet.png", columns=2, side=224)) as picture:
            return picture.height

    plain, titled = (np.asarray(draw(Tile(GREY, title=title))).max(axis=2) > 128 for title in ("", "prior"))
    changed = np.argwhere(plain != titled)
    assert changed[:, 0].max() < len(plain) - 224  # above the image
    assert 80 < changed[:, 1].min() < 112 < changed[:, 1].max() < 144
    box = Box(0.1, 0.1, 0.9, 0.9)
    without = height(Tile(GREY))
    assert height(Tile(GREY, targets=[box])) == without + 15
    every = Tile(GREY, heatmap=Heatmap([[0, 1]]), targets=[box], predicted=[box])
    assert every.legend == set(LEGEND)
    assert height(every) > without + 15


def test_a_sheet_holds_all_tiles_in_rows_and_the_whole_notice(tmp_path: Path) -> None:
    path = save_sheet([Tile(GREY, "one")] * 5, tmp_path / "new" / "sheet.png", columns=2, side=80)
    with PIL.Image.open(path) as picture:
        assert picture.width == 2 * 84 + 4
        tile = draw(Tile(GREY, "one"), 80)
        assert tile.height > 80 + CAPTION
        foot = np.asarray(picture.convert("L"))[3 * (tile.height + 4) + 4 :]
    written = np.flatnonzero((foot > 128).any(axis=1))
    assert np.count_nonzero(np.diff(written) > 1) >= 2  # too long for one line, it takes several
    assert not (foot[:, -2:] > 128).any()  # none of which is cut off


def test_a_long_caption_takes_two_lines_and_ends_with_an_ellipsis() -> None:
    face = font()
    lines = _wrapped("AP 0.99 and " * 20, 120, most=2)
    assert len(lines) == 2
    assert lines[1].endswith("…")
    assert all(face.getlength(line) <= 120 for line in lines)
    assert " ".join(_wrapped("AP 0.99 and more", 60)) == "AP 0.99 and more"


def test_a_sheet_that_cannot_be_written_names_its_path() -> None:
    with pytest.raises(OutputError, match=r"/dev/null/sheet\.png"):
        save_sheet([Tile(GREY)], "/dev/null/sheet.png")


@pytest.mark.parametrize(("top", "rows"), [(0.5, (20, 40)), (0.05, (4, 30))])
def test_a_label_stands_above_its_box_or_inside_if_there_is_no_room(top: float, rows: tuple[int, int]) -> None:
    box = Box(0.25, top, 0.75, 0.9)
    square = np.zeros((40, 40), dtype=np.float32)
    plain, labelled = (
        {tuple(one) for one in pixels_of(Tile(square, predicted=[box], labels=labels), PREDICTED)}
        for labels in ((), ("1",))
    )
    added = np.array(sorted(labelled - plain))
    assert len(added)
    assert ((added[:, 0] >= rows[0]) & (added[:, 0] < rows[1])).all()  # the boxes begin in rows 40 and 4 of 80
    assert ((added[:, 1] >= 20) & (added[:, 1] < 40)).all()  # between the left edge and the middle
    with pytest.raises(ValueError, match="argument"):
        draw(Tile(square, predicted=[box], labels=["1", "2"]), 80)
