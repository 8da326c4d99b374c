from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rightlung.cli import demo_cards
from rightlung.predictions import open_predictions
from rightlung.studies import open_source
from tests.cli.conftest import Run


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cards")
    demo_cards.write_cards(folder, 12, seed=3)
    return folder


def test_the_left_lung_is_on_the_images_right() -> None:
    assert np.argwhere(demo_cards.lung("left"))[:, 1].mean() > demo_cards.SIDE / 2
    assert np.argwhere(demo_cards.lung("right"))[:, 1].mean() < demo_cards.SIDE / 2


def test_a_card_shows_its_spot_where_its_mask_says(cards: Path) -> None:
    for study in open_source(f"manifest:{cards}"):
        for phrase in study.phrases:
            assert phrase.mask is not None
            side = phrase.regions[0].split()[0]
            lung = demo_cards.lung(side)
            assert not (phrase.mask.pixels & ~lung).any()
            assert study.image[phrase.mask.pixels].mean() > study.image[lung & ~phrase.mask.pixels].mean() + 0.05
            assert side in phrase.text


def test_the_same_seed_draws_the_same_cards(cards: Path, tmp_path: Path) -> None:
    demo_cards.write_cards(tmp_path, 12, seed=3)
    for one, other in zip(open_source(f"manifest:{cards}"), open_source(f"manifest:{tmp_path}"), strict=True):
        assert np.array_equal(one.image, other.image)
        assert one.phrases == other.phrases


def test_the_demo_tells_the_four_grounders_apart(run: Run, tmp_path: Path) -> None:
    result = run("demo", "--out", "shown", "--count", "24", "--json")
    assert result.returncode == 0, result.stderr
    grounders = json.loads(result.stdout)["grounders"]
    auroc = {name: scores["auroc"]["estimate"] for name, scores in grounders.items()}
    pointing = {name: scores["pointing"]["estimate"] for name, scores in grounders.items()}
    change = {name: scores["auroc_change_when_sides_are_swapped"] for name, scores in grounders.items()}
    assert auroc["neither"] == 0.5
    assert auroc["reads only"] > 0.9  # painting the named lung already looks good …
    assert pointing["reads only"] < 0.2  # … and points nowhere
    assert pointing["looks and reads"] > 0.95 > 0.9 > pointing["looks only"]
    assert change["looks and reads"]["high"] < -0.4
    assert change["reads only"]["high"] < -0.4
    assert not change["looks only"]["shown"]
    assert not change["neither"]["shown"]
    assert (tmp_path / "shown" / "demo.png").stat().st_size > 10_000


def test_a_second_run_asks_nothing_twice_and_says_the_same(run: Run, tmp_path: Path) -> None:
    first = run("demo", "--out", "again", "--count", "6", "--json")
    parts = sorted((tmp_path / "again" / "predictions").rglob("*.parquet"))
    times = [part.stat().st_mtime_ns for part in parts]
    second = run("demo", "--out", "again", "--count", "6", "--json")
    assert first.stdout == second.stdout
    assert [part.stat().st_mtime_ns for part in parts] == times
    rows = sum(len(open_predictions(part.parent)) for part in parts)
    phrases = sum(len(study.phrases) for study in open_source(f"manifest:{tmp_path / 'again' / 'cards'}"))
    assert rows == phrases * 2 * 4
