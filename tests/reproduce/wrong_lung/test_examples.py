"""The counterpart of Figure 7: the same few sentences for every model, with boxes, outline, star and No Attn score."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from rightlung.core import Box, Grounding, Heatmap, Image, Phrase
from rightlung.pages.overlays import CAPTION
from rightlung.reproduce.wrong_lung.examples import chosen_examples, draw_examples, example_tile, keep_examples
from rightlung.reproduce.wrong_lung.files import read_json, write_json
from rightlung.reproduce.wrong_lung.instances import Instances, open_instances

ABOUT = {"slug": "x", "name": "X", "order": 1, "seed": None, "comparable": True}


class Choosy:
    """Answers plain texts only, and none about the first example's swapped words; abstains a quarter."""

    def __init__(self, never: str) -> None:
        self.never = never

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        for phrase in phrases:
            if not isinstance(phrase, str) or phrase == self.never:
                raise TypeError(f"not {phrase!r}")
        return [Grounding(Heatmap(np.ones((3, 5)), abstention=0.25)) for _ in images]


class Boxed:
    """Points at all regions that it is shown."""

    def ground_regions(
        self, images: Sequence[Image], phrases: Sequence[Phrase | str], regions: Sequence[Mapping[str, Box]]
    ) -> list[Grounding]:
        assert all(regions)
        return [Grounding(Heatmap(np.ones((2, 2)))) for _ in images]

    def similarity_regions(
        self, images: Sequence[Image], texts: Sequence[str], regions: Sequence[Mapping[str, Box]]
    ) -> NDArray[np.float32]:
        return np.zeros(len(texts), np.float32)


def test_a_question_that_a_model_fails_at_has_no_map_and_the_others_have(prepared: Instances, tmp_path: Path) -> None:
    first = chosen_examples(prepared)[0]
    never = first.asked["swap-sides"].text
    assert keep_examples(Choosy(never), prepared, tmp_path) == {"grid": [3, 5]}
    kept = read_json(tmp_path / "examples.json")["maps"]
    asked = {(one["instance"], one["condition"]) for one in kept}
    everything = {
        (example.number, condition)
        for example in chosen_examples(prepared)
        for condition in ("none", "swap-sides")
        if example.asked[condition].text != never
    }
    assert asked == everything
    assert (first.number, "swap-sides") not in asked
    tile = example_tile(prepared, first, "swap-sides", ABOUT, kept)
    assert tile.heatmap is None
    assert tile.caption == "X, no map"


def test_a_tile_has_the_boxes_of_the_regions_the_exact_outline_and_the_no_attn_score(
    prepared: Instances, tmp_path: Path
) -> None:
    keep_examples(Choosy(""), prepared, tmp_path)
    maps = read_json(tmp_path / "examples.json")["maps"]
    for example in chosen_examples(prepared):
        for condition in ("none", "swap-sides"):
            tile = example_tile(prepared, example, condition, ABOUT, maps)
            regions = prepared.shown[example.image].regions
            assert set(tile.targets) == {regions[name] for name in example.asked["none"].regions if name in regions}
            assert tile.targets
            assert tile.mask is not None
            assert np.array_equal(tile.mask.pixels, prepared.mask(example.targets["exact"]))
            assert tile.caption == "X, 0.25 on nothing"
    silent = [{**kept, "abstention": 0.0} for kept in maps]
    assert example_tile(prepared, chosen_examples(prepared)[0], "none", ABOUT, silent).caption == "X"


def test_a_model_that_is_shown_boxes_is_starred(prepared: Instances, tmp_path: Path) -> None:
    keep_examples(Boxed(), prepared, tmp_path)
    maps = read_json(tmp_path / "examples.json")["maps"]
    about = {**ABOUT, "comparable": False}
    assert example_tile(prepared, chosen_examples(prepared)[0], "none", about, maps).caption == "X *"


@pytest.mark.parametrize(("models", "across", "pairs"), [(6, 6, 1), (7, 6, 2)])
def test_many_models_go_on_below(prepared: Instances, tmp_path: Path, models: int, across: int, pairs: int) -> None:
    for name in ("instances.json", "instances.parquet", "cache"):
        (tmp_path / name).symlink_to(prepared.folder / name)
    instances = open_instances(tmp_path)
    for order in range(models):
        folder = tmp_path / "measures" / str(order)
        keep_examples(Choosy(""), instances, folder)
        write_json(folder / "about.json", {**ABOUT, "slug": str(order), "order": order})
    sheet = PIL.Image.open(io.BytesIO(base64.b64decode(draw_examples(instances)[0][0].partition(",")[2])))
    assert sheet.size == (across * (176 + 2), 2 * pairs * (176 + CAPTION + 2))


@pytest.mark.parametrize("comparable", [True, False])
def test_a_sheet_has_a_column_a_model_and_says_what_is_drawn(
    prepared: Instances, tmp_path: Path, comparable: bool
) -> None:
    for name in ("instances.json", "instances.parquet", "cache"):
        (tmp_path / name).symlink_to(prepared.folder / name)
    instances = open_instances(tmp_path)
    for order, slug in enumerate(("one", "two", "unfinished")):
        folder = tmp_path / "measures" / slug
        keep_examples(Choosy(""), instances, folder)
        about: dict[str, Any] = {**ABOUT, "slug": slug, "order": order, "comparable": comparable or slug != "two"}
        if slug != "unfinished":
            write_json(folder / "about.json", about)
    sheets = draw_examples(instances)
    assert len(sheets) == len(chosen_examples(instances)) > 0
    picture, caption = sheets[0]
    sheet = PIL.Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2])))
    assert sheet.width == 2 * (176 + 2)
    assert chosen_examples(instances)[0].asked["swap-sides"].text in caption
    assert "Boxes are the regions of the sentence" in caption
    assert "A number is the share of attention on nothing" in caption
    assert ("* is shown the true region boxes" in caption) is not comparable
