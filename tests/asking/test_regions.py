"""A model that must be told an image's regions is told those of the image it is shown."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

import rightlung
from rightlung.asking import Answerer, ask
from rightlung.core import Box, Grounding, Heatmap, Image, InputError, Phrase, Study
from rightlung.models.base import Grounder, RegionGrounder
from rightlung.models.folder import save_model
from rightlung.models.uniter import Uniter
from tests.asking.models import Listed, cells_of, picture, question, rows_of
from tests.cli.conftest import call as call  # the program, run in this process
from tests.models.uniter.tiny import BERT

Call = Callable[..., "subprocess.CompletedProcess[str]"]
ALL = ("none", "swap-sides", "exchange-image")


class Teller:
    """Paints the mean of the image beside the left edge of its first region, and counts what it was told."""

    def __init__(self, most: int = 100) -> None:
        self.most, self.told = most, 0

    def ground_regions(
        self, images: Sequence[Image], phrases: Sequence[Phrase | str], regions: Sequence[Mapping[str, Box]]
    ) -> list[Grounding]:
        if len(phrases) > self.most:
            raise MemoryError("too many")
        self.told += len(regions)
        return [
            Grounding(Heatmap([[float(image.mean()), next(iter(given.values())).x0 if given else 0.0]]))
            for image, given in zip(images, regions, strict=True)
        ]

    def similarity_regions(
        self, images: Sequence[Image], texts: Sequence[str], regions: Sequence[Mapping[str, Box]]
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.array([len(text) if told else np.nan for text, told in zip(texts, regions, strict=True)], np.float32)


class Both(Teller):
    """Needs no regions either."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        return [Grounding(Heatmap([[1.0]])) for _ in images]


def place(number: int) -> Box:
    return Box(number / 1000, 0.0, 1.0, 1.0)


def studies(count: int) -> Listed:
    """Studies whose one region has an edge by the study's number; every fifth has none."""

    def study(number: int) -> Study:
        regions = {"left lung": place(number)} if number % 5 else {}
        phrases = (Phrase(f"Effusion {number} on the left"),)
        return Study(f"s{number}", lambda: picture(number), f"p{number}", phrases=phrases, regions=regions)

    return Listed([study(number) for number in range(count)])


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_the_regions_are_those_of_the_image_that_is_shown(tmp_path: Path, batch_size: int) -> None:
    summary = ask(Teller(), studies(150), tmp_path / "p", ALL, batch_size=batch_size)
    assert summary.complete
    means = {round(float(np.float32(picture(number).mean())), 7): number for number in range(150)}
    exchanged = 0
    for key, row in rows_of(tmp_path / "p").items():
        mean, edge = cells_of(row)[0].tolist()
        shown = means[round(mean, 7)]
        assert edge == pytest.approx(shown / 1000 if shown % 5 else 0.0)
        assert (shown == int(key.study[1:])) == (key.condition != "exchange-image")
        exchanged += key.condition == "exchange-image"
        assert row.similarity_global == (len(row.asked.phrase or "") if shown % 5 else None)
        assert row.similarity_local is None
    assert exchanged == 150


def test_a_partner_from_beyond_the_window_brings_its_own_regions(tmp_path: Path) -> None:
    source = studies(128)
    for number, study in enumerate(source.studies):  # one patient has all of the first window
        object.__setattr__(study, "patient", "same" if number < 64 else f"p{number}")
    ask(Teller(), source, tmp_path / "p", ["exchange-image"], limit=64)
    rows = rows_of(tmp_path / "p")
    assert len(rows) == 64
    for row in rows.values():
        mean, edge = cells_of(row)[0].tolist()
        (shown,) = [number for number in range(64, 128) if abs(picture(number).mean() - mean) < 1e-6]
        assert edge == pytest.approx(shown / 1000 if shown % 5 else 0.0)


def maps_of(model: object, numbers: Sequence[int]) -> list[Heatmap | None]:
    """Ask about images with a region each."""
    images, regions = [picture(number) for number in numbers], [{"lung": place(number)} for number in numbers]
    found = Answerer(model, 8).answers([question("x")] * len(numbers), images, regions)
    return [one["grounding"].heatmap for one in found if isinstance(one, dict)]


def test_halved_batches_keep_images_and_regions_together() -> None:
    model, numbers = Teller(most=3), range(1, 11)
    for number, heatmap in zip(numbers, maps_of(model, numbers), strict=True):
        assert heatmap is not None
        np.testing.assert_allclose(heatmap.values, [[picture(number).mean(), number / 1000]], rtol=1e-6)
    assert model.told == 10


def test_a_model_that_needs_no_regions_is_not_told_them() -> None:
    model = Both()
    assert maps_of(model, [1]) == [Heatmap([[1.0]])]
    assert model.told == 0


def test_regions_that_are_missing_or_too_few_are_refused() -> None:
    with pytest.raises(InputError, match="Teller needs the region boxes of each image"):
        Answerer(Teller()).answers([question("x")], [picture(0)])
    with pytest.raises(InputError, match="expected 2 images and regions; got 2 and 1"):
        Answerer(Teller()).answers([question("x"), question("y")], [picture(0), picture(1)], [{}])


@pytest.fixture
def uniter(tmp_path: Path) -> str:
    config = {
        "image_size": 64, "region_size": 8, "feature_size": 80, "options": BERT, "vocab_size": 300,
        "max_length": 32, "map_size": 16,
    }  # fmt: skip
    texts = [phrase.text for study in rightlung.open_source("phantom?count=6&seed=4") for phrase in study.phrases]
    save_model(Uniter.create(config, texts, 0), tmp_path / "uniter")
    return str(tmp_path / "uniter")


def test_a_uniter_is_audited_on_phantoms_from_end_to_end(call: Call, uniter: str) -> None:
    source = "phantom?count=6&seed=4&size=96"
    result = call("audit", uniter, source, "--out", "audit", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["counts"]["phrases"] > 5
    rows = rows_of(Path("audit/predictions"))
    assert {key.condition for key in rows} == set(ALL)
    model = rightlung.load(uniter)
    assert isinstance(model, RegionGrounder)
    opened = rightlung.open_source(source)
    key = next(key for key in rows if key.condition == "swap-sides")
    study, row = opened.study(key.study), rows[key]
    (expected,) = model.ground_regions([study.image], [row.asked.phrase or ""], [study.regions])
    assert expected.heatmap is not None
    np.testing.assert_allclose(cells_of(row), expected.heatmap.values, rtol=1e-4, atol=1e-7)
    assert row.similarity_global == pytest.approx(
        float(model.similarity_regions([study.image], [row.asked.phrase or ""], [study.regions])[0]), abs=1e-5
    )


def test_a_picture_alone_is_refused_in_one_sentence(call: Call, uniter: str, tmp_path: Path) -> None:
    assert not isinstance(rightlung.load(uniter), Grounder)
    PIL.Image.fromarray(np.full((40, 30), 90, dtype=np.uint8)).save(tmp_path / "one.png")
    result = call("ground", "one.png", "left effusion", "--model", uniter, "--out", "found")
    assert result.returncode == 2
    assert "needs region boxes; use 'rightlung predict'" in result.stderr
    assert "rightlung predict" in result.stderr
