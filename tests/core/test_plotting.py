from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib.colors
import matplotlib.pyplot as plt
import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import Box, Extent, Grounding, Heatmap, Image, InputError, Mask, Phrase, ScoredBox, Study
from rightlung.core.plotting import LARGEST_SIDE, PREDICTED, TARGET

GREY = np.full((40, 20), 0.5, dtype=np.float32)
HOT = Heatmap([[0, 0], [0, 1]])
BOX = Box(0.5, 0.25, 1.0, 0.75)


@pytest.fixture(autouse=True)
def _figures() -> Iterator[None]:
    plt.switch_backend("agg")
    yield
    plt.close("all")


def mask(rows: slice, columns: slice) -> Mask:
    pixels = np.zeros((40, 20), dtype=bool)
    pixels[rows, columns] = True
    return Mask(pixels)


def study(*phrases: Phrase, image: Image = GREY, **known: Any) -> Study:
    return Study("s<1>", lambda: image, phrases=phrases, **known)


def pixels_of(picture: Any, colour: tuple[int, int, int]) -> NDArray[np.intp]:
    return np.argwhere((np.asarray(picture).astype(int) == colour).all(axis=2))


def png_in(html: str) -> PIL.Image.Image:
    (found,) = re.findall(r'<img src="data:image/png;base64,([^"]+)">', html)
    return PIL.Image.open(io.BytesIO(base64.b64decode(found)))


# Axes.


def test_a_grounding_is_drawn_in_pixels_of_its_image_with_its_boxes_and_sides() -> None:
    axes = Grounding(HOT, [ScoredBox(BOX, 0.8, "effusion")]).plot(GREY)
    rectangle: Any = axes.patches[0]
    assert rectangle.get_bbox().bounds == (10, 10, 10, 20)  # x, y, width, height
    assert matplotlib.colors.to_rgb(rectangle.get_edgecolor()) == pytest.approx(np.array(PREDICTED) / 255)
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 20), (40, 0))
    places = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert places["R"] < 0.5 < places["L"]  # the patient's right is on the image's left
    assert places["effusion 0.8"] == 10
    drawn = np.asarray(axes.images[0].get_array()).astype(int)
    warmth = drawn[:, :, 0] - drawn[:, :, 2]
    assert warmth[35, 18] > 50
    assert warmth[5, 2] == 0


def test_plots_go_onto_the_axes_that_are_given_and_else_onto_new_ones() -> None:
    given = plt.subplots()[1]
    assert Grounding(HOT).plot(GREY, ax=given) is given
    assert HOT.plot(GREY, given) is given
    assert study().show(given) is given
    assert len(plt.get_fignums()) == 1
    assert Grounding(HOT).plot(GREY) is not Grounding(HOT).plot(GREY)


def test_the_outline_of_a_target_runs_along_the_edge_of_its_mask_even_at_the_edge_of_the_image() -> None:
    target = Phrase("effusion", mask=mask(slice(30, 40), slice(12, 20)), boxes=(BOX,))
    axes = Grounding(HOT).plot(GREY, target=target)
    (outline,) = axes.collections
    corners = np.asarray(outline.get_paths()[0].vertices)
    assert np.abs(np.array([corners.min(0), corners.max(0)]) - [(12, 30), (20, 40)]).max() <= 0.5
    assert not axes.patches  # the mask says more than the box


def test_an_image_larger_than_a_screen_is_drawn_smaller_in_the_same_coordinates() -> None:
    image = np.zeros((3000, 1500), dtype=np.float32)
    axes = Grounding(boxes=[ScoredBox(BOX, 1.0)]).plot(image)
    assert np.asarray(axes.images[0].get_array()).shape == (LARGEST_SIDE, LARGEST_SIDE // 2, 3)
    rectangle: Any = axes.patches[0]
    assert rectangle.get_bbox().bounds == (750, 750, 750, 1500)


def test_show_names_each_phrase_that_has_a_target_and_gives_equal_targets_one_colour() -> None:
    place = mask(slice(5, 10), slice(5, 10))
    phrases = [
        Phrase("a nodule", mask=place), Phrase("no effusion"), Phrase("the heart", boxes=(BOX,)),
        Phrase("it", mask=place),
    ]  # fmt: skip
    axes = study(*phrases).show()
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a nodule", "the heart", "it"]
    first, second, third = (line.get_color() for line in legend.get_lines())
    assert first == third != second
    assert study(Phrase("no effusion")).show().get_legend() is None


def test_a_mask_that_vanishes_or_is_empty_and_a_thin_box_are_no_errors() -> None:
    empty = Phrase("x", mask=Mask(np.zeros((40, 20), dtype=bool)), boxes=(Box(0.5, 0.5, 0.5001, 0.6),))
    assert len(Grounding(HOT).plot(GREY, target=empty).patches) == 1
    assert len(pixels_of(Grounding(HOT).overlay(GREY, target=empty), TARGET))


@pytest.mark.parametrize("draw", [Grounding(HOT).plot, Grounding(HOT).overlay, HOT.plot])
def test_what_is_no_image_is_refused(draw: Any) -> None:
    with pytest.raises(InputError, match=r"the image to draw on: an image must be float32 .* got uint8"):
        draw(np.zeros((4, 4), dtype=np.uint8))


def test_matplotlib_is_imported_only_to_draw() -> None:
    code = "import sys, rightlung.core.study, rightlung.results.groups; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# Pictures and notebooks.


def test_an_overlay_has_the_size_asked_for_and_boxes_at_their_place() -> None:
    grounding = Grounding(HOT, [ScoredBox(BOX, 0.8)])
    picture = grounding.overlay(GREY, target=Phrase("x", mask=mask(slice(0, 10), slice(0, 10))), side=80)
    strip = picture.height - 80
    assert (picture.width, 0 < strip < 24) == (40, True)
    picture = picture.crop((0, strip, 40, strip + 80))
    rows, columns = pixels_of(picture, PREDICTED).T
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20, 59, 20, 39)
    rows, columns = pixels_of(picture, TARGET).T
    assert (rows.max(), columns.max()) == (19, 19)


def test_a_notebook_shows_a_grounding_without_its_image_in_the_images_shape() -> None:
    heatmap = Heatmap(np.eye(8), Extent.letterbox((200, 100)), abstention=0.25)
    html = Grounding(heatmap, [ScoredBox(BOX, 0.8)])._repr_html_()
    picture = png_in(html)
    assert picture.width == 160  # the padding left and right of the image is not drawn
    assert 320 < picture.height < 344  # with the strip above
    assert (np.asarray(picture)[:, :, 0].astype(int) - np.asarray(picture)[:, :, 2] > 100).any()  # the box, faded
    assert "map 8 × 8, 1 box, abstention 0.25" in html
    assert NOT_A_MEDICAL_DEVICE in html
    assert len(html) < 100_000
    assert png_in(Grounding()._repr_html_()).width == 320


def test_a_notebook_shows_a_study_with_its_targets_and_everything_is_escaped() -> None:
    html = study(Phrase("a <b>nodule</b>", boxes=(BOX,)), patient="p&1", view="PA")._repr_html_()
    assert len(pixels_of(png_in(html), TARGET))
    assert "study s&lt;1&gt;, patient p&amp;1, view PA" in html
    assert "<li>a &lt;b&gt;nodule&lt;/b&gt;</li>" in html


def test_a_notebook_says_why_an_image_cannot_be_read() -> None:
    html = study(image=np.zeros((2, 2, 3), dtype=np.float32))._repr_html_()
    assert "<img" not in html
    assert "an image must be float32 of shape (height, width)" in html
