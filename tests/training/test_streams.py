"""Entries whose shares and probabilities change over the run: every batch follows from seed and number alone."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rightlung.core import InputError
from rightlung.training.augmentation import Augmentation
from rightlung.training.batches import Batches, Mixture
from rightlung.training.curves import check_curve, value_at
from rightlung.training.datasets import Dataset
from rightlung.training.recipe import Data, DataEntry
from tests.training.recipes import final_weights, run, same
from tests.training.test_batches import opened
from tests.training.test_batches import same as same_batch

CPU = torch.device("cpu")
RISING, FALLING = [[0, 0.0], [0.5, 1.0]], [[0.0, 1.0], [1.0, 0.25]]
ONE = DataEntry(source="phantom?count=12&seed=11", cached_studies=12, phrases_per_image=2)
OTHER = DataEntry(source="phantom?count=8&seed=12", cached_studies=8, phrases_per_image=1, texts_per_image=1)


def mixture(*entries: DataEntry, size: int = 8, draw: Any = "all", total_batches: int = 100, seed: int = 1) -> Mixture:
    return Mixture(entries, size, (seed, "train"), draw, total_batches)


def entry(**settings: Any) -> DataEntry:
    return DataEntry(source="x", **settings)


def test_a_curve_joins_its_points_by_lines_and_is_constant_outside() -> None:
    curve = [[0.2, 1.0], [0.6, 3.0]]
    assert [value_at(curve, at) for at in (0.0, 0.2, 0.4, 0.6, 1.0)] == pytest.approx([1, 1, 2, 3, 3])
    assert value_at(0.5, 0.9) == 0.5
    for wrong in (True, "1", [], [[0, 1], 2], None):
        with pytest.raises(InputError, match="share must be a number or a list of"):
            check_curve(wrong, "share", 0, 1)


def test_shares_follow_their_curves() -> None:
    both = mixture(entry(share=1.0), entry(share=RISING))
    assert [both.global_counts(number) for number in (0, 25, 50, 99)] == [[8, 0], [5, 3], [4, 4], [4, 4]]
    begin = sum(both.global_counts(number)[1] for number in range(26))
    assert [both.study_positions(number, 1, 0) for number in (0, 1, 26)] == [
        range(0),
        range(0),
        range(begin, begin + 3),
    ]


def test_processes_divide_the_global_batch_evenly() -> None:
    both = mixture(entry(share=1.0), entry(share=RISING), size=5)
    three = Mixture(both.entries, 5, both.key, "all", 100, world_size=3)
    for number in range(100):
        counts = [three.counts(number, rank) for rank in range(3)]
        assert [sum(own) for own in counts] == [5, 5, 5]
        for place in (0, 1):
            found = [one for rank in range(3) for one in three.study_positions(number, place, rank)]
            assert found == list(three.global_study_positions(number, place))
            assert max(own[place] for own in counts) - min(own[place] for own in counts) <= 1


def test_an_entry_takes_part_by_its_probability() -> None:
    both = mixture(entry(), entry(probability=0.25), total_batches=4000)
    counts = Counter(tuple(both.global_counts(number)) for number in range(4000))
    assert set(counts) == {(8, 0), (4, 4)}
    assert counts[4, 4] / 4000 == pytest.approx(0.25, abs=0.03)
    rare = mixture(entry(probability=0.05), entry(probability=0.05))
    assert all(sum(rare.global_counts(number)) == 8 for number in range(100))  # one of them always does
    rising = mixture(entry(), entry(probability=RISING), total_batches=4000)
    late = [rising.global_counts(number)[1] > 0 for number in range(4000)]
    assert not late[0]
    assert sum(late[:2000]) / 2000 == pytest.approx(0.5, abs=0.05)
    assert all(late[2000:])


def test_each_batch_may_come_from_one_entry() -> None:
    one = mixture(entry(share=3), entry(share=FALLING), draw="one", total_batches=4000)
    counts = Counter(tuple(one.global_counts(number)) for number in range(4000))
    assert set(counts) == {(8, 0), (0, 8)}
    expected = sum(share / (3 + share) for share in (value_at(FALLING, n / 4000) for n in range(4000)))
    assert counts[0, 8] == pytest.approx(expected, abs=100)


def test_where_no_entry_is_left_the_run_is_refused() -> None:
    with pytest.raises(InputError, match=r"no entry has a share and a probability above 0 at 0% of the run"):
        mixture(entry(share=RISING))
    with pytest.raises(InputError, match=r"no entry has a share and a probability above 0 at 60% of the run"):
        mixture(entry(probability=[[0, 1], [0.6, 0]]))


def test_mirrored_entries_always_have_an_even_number() -> None:
    both = mixture(entry(mirror_pairs=True), entry(share=RISING), size=10)
    assert all(count % 2 == 0 for number in range(100) for count in both.global_counts(number))
    with pytest.raises(
        InputError, match=r"data\.train\[0\]\.mirror_pairs needs an even number of images a batch; got 9"
    ):
        mixture(entry(mirror_pairs=True), entry(share=RISING), size=9)


SETTINGS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"share": RISING}, "all"),
    ({"probability": 0.7}, {"probability": FALLING}, "all"),
    ({"share": 0.5, "mirror_pairs": True}, {"share": FALLING}, "one"),
]


@pytest.fixture(scope="module")
def studies() -> list[Dataset]:
    return [opened(ONE)[1], opened(OTHER)[1]]


@pytest.mark.parametrize(("one", "other", "draw"), SETTINGS)
def test_a_batch_follows_from_its_number_and_processes_share_it_out(
    studies: list[Dataset], one: dict[str, Any], other: dict[str, Any], draw: Any
) -> None:
    entries = list(zip((replace(ONE, **one), replace(OTHER, **other)), studies, strict=True))
    data = Data(train=tuple(entry for entry, _ in entries), sources_per_batch=draw)

    def batches(size: int, rank: int = 0, world_size: int = 1) -> Batches:
        return Batches(
            entries,
            size,
            5,
            CPU,
            Augmentation(mirror="words", mirror_probability=0.2),
            rank,
            world_size,
            data=data,
            total_batches=12,
        )

    in_turn = list(batches(8).iterate(0, 12))
    assert all(len(batch) == 8 for batch in in_turn)
    assert all(same_batch(batch, again) for batch, again in zip(in_turn[7:], batches(8).iterate(7, 12), strict=True))
    assert same_batch(in_turn[9], batches(8).batch_at(9))
    for number in (2, 9):
        alone = batches(16).batch_at(number)
        parts = [batches(8, rank=rank, world_size=2).batch_at(number) for rank in (0, 1)]
        assert sorted(alone.ids) == sorted(name for part in parts for name in part.ids)
        assert sorted(alone.texts) == sorted(text for part in parts for text in part.texts)
        sums = [float(image.sum()) for part in parts for image in part.images]
        assert sorted(float(image.sum()) for image in alone.images) == pytest.approx(sorted(sums), rel=1e-5)


def test_each_study_of_a_stream_comes_once_before_any_comes_again(studies: list[Dataset]) -> None:
    entries = [(ONE, studies[0]), (replace(OTHER, share=RISING), studies[1])]
    drawn = [name for batch in Batches(entries, 4, 5, CPU, total_batches=12).iterate(0, 12) for name in batch.ids]
    late = [name for name in drawn if name.startswith("phantom-12")]
    assert len(late) > 16
    assert len(set(late[:8])) == len(set(late[8:16])) == 8


def test_a_resumed_run_sees_the_batches_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    source = "source: 'phantom?count=8&seed=12', cached_studies: 8, phrases_per_image: 1"
    other = f"{{{source}, share: [[0, 0.2], [1, 2]], probability: 0.6}}"
    one = "{source: 'phantom?count=16&seed=11', cached_studies: 16, phrases_per_image: 3, share: [[0, 1], [0.5, 0.5]]}"
    changes = [f"data.train=[{one}, {other}]", "schedule={steps: 8}", "checkpoint_every=3"]
    run(tmp_path, *changes, name="whole")
    run(tmp_path, *changes, name="cut")
    for path in (tmp_path / "cut" / "checkpoints").iterdir():
        if "8" in path.name:  # as if it had been killed after the checkpoint of step 6
            path.unlink()
    (tmp_path / "cut" / "finished.json").unlink()
    shutil.rmtree(tmp_path / "cut" / "model")
    run(tmp_path, *changes, resume=True, name="cut")
    assert same(final_weights(tmp_path / "whole"), final_weights(tmp_path / "cut"))
