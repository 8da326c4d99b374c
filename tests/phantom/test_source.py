"""The streaming source: as any source is used, from anywhere in it, and its addresses."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rightlung import open_source
from rightlung.core import InputError, Study
from rightlung.phantom.config import FINDING_ORDER
from rightlung.phantom.source import PhantomSource

ADDRESS = "phantom?count=6&seed=7&size=64"


def same(one: Study, other: Study) -> bool:
    """Whether two studies agree in picture, words, targets and truth."""
    names = ("id", "phrases", "findings", "regions", "report", "gaze")
    return np.array_equal(one.image, other.image) and all(getattr(one, n) == getattr(other, n) for n in names)


@pytest.fixture(scope="module")
def looped() -> list[Study]:
    return list(open_source(ADDRESS))


def test_a_loop_yields_the_studies_that_the_ids_promise(looped: list[Study]) -> None:
    source = open_source(ADDRESS)
    assert [study.id for study in looped] == list(source.ids) == [f"phantom-7-{index:06d}" for index in range(6)]
    assert len(source) == 6
    assert source.problems == []
    assert {study.source for study in looped} == {ADDRESS}


def test_position_id_pickle_and_data_loader_give_what_the_loop_gives(looped: list[Study]) -> None:
    source: Any = open_source(ADDRESS)  # a source is a data set to PyTorch by what it can do, not by its class
    assert same(source[4], looped[4])
    assert same(source[-1], looped[5])
    assert same(source.study("phantom-7-000001"), looped[1])
    assert same(pickle.loads(pickle.dumps(source))[2], looped[2])
    batches = list(torch.utils.data.DataLoader(source, batch_size=3, collate_fn=list))
    assert [len(batch) for batch in batches] == [3, 3]
    assert same(batches[1][0], looped[3])


def test_start_goes_on_where_a_shorter_source_ended(looped: list[Study]) -> None:
    rest = open_source("phantom?count=2&seed=7&size=64&start=4")
    assert list(rest.ids) == ["phantom-7-000004", "phantom-7-000005"]
    assert same(rest[0], looped[4])
    with pytest.raises(InputError, match="no study 'phantom-7-000003'"):
        rest.study("phantom-7-000003")


@pytest.mark.parametrize("wrong", ["phantom-8-000001", "phantom-7-1", "phantom-7-000006", "x", "", "phantom-7-²"])
def test_an_id_that_is_not_there_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="has no study"):
        open_source(ADDRESS).study(wrong)


def test_shortcuts_in_an_address_are_planted() -> None:
    source = open_source("phantom?count=2&seed=7&size=64&shortcut=mirrored=1,marker:effusion:0.5")
    assert isinstance(source, PhantomSource)
    assert [str(fault) for fault in source.faults] == ["marker:pleural effusion=0.5", "mirrored=1"]
    assert "mirrored" in source[1].extra["faults"]


def test_a_configuration_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("normal = 1.0\nsize = 64\n[prevalence]\n" + "".join(f'"{name}" = 0.0\n' for name in FINDING_ORDER))
    source = open_source(f"phantom?count=3&seed=1&config={path}")
    assert [study.findings["no finding"] for study in source] == ["positive"] * 3
    assert source[0].image.shape == (64, 64)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("phantom?seed=1", "needs count"),
        ("phantom?count=3", "needs seed"),
        ("phantom", "needs count"),
        ("phantom:/data?count=3&seed=1", "has a path"),
        ("phantom?count=0&seed=1", "count must be an integer of at least 1"),
        ("phantom?count=-5&seed=1", "count must be an integer of at least 1"),
        ("phantom?count=3&seed=-1", "seed must be an integer of at least 0"),
        ("phantom?count=999999999999&seed=1", "count must be at least 1 and end within"),
        ("phantom?count=3&seed=99999999999999999", "seed must be an integer from 0 to"),
        ("phantom?count=3&seed=1&size=7", "size must be an integer from 64"),
        ("phantom?count=3&seed=1&start=-1", "start must be an integer"),
        ("phantom?count=3&seed=1&sise=64", "did you mean 'size'"),
        ("phantom?count=3&seed=1&shortcut=tueb=0.5", "did you mean 'tube'"),
        ("phantom?count=3&seed=1&config=/nowhere.toml", "/nowhere.toml: the configuration cannot be read"),
        ("phanton?count=3&seed=1", "did you mean 'phantom'"),
    ],
)
def test_an_address_that_makes_no_sense_is_refused_in_a_sentence(address: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        open_source(address)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("normal = ", "is not TOML"),
        ("[prevalence]\nnodule = -0.1", "must be between 0 and 1; got -0.1"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_with_its_file(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence) as refused:
        open_source(f"phantom?count=3&seed=1&config={path}")
    assert str(path) in str(refused.value)
