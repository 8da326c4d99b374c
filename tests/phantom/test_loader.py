"""The stream gives the studies that `make_studies` gives, in order, whoever makes them."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
from collections.abc import Generator, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.phantom.config import default_config
from rightlung.phantom.loader import PhantomBatch, PhantomLoader, cell_shares
from rightlung.phantom.prepare import prepare
from rightlung.phantom.render import Rendering, paint, render
from rightlung.phantom.report import Statement
from rightlung.phantom.study import _without_specks, make_studies
from tests.phantom.scenes import NORMAL, lesion, varied, with_lesions

SEED, SIZE = 41, 64
BATCHES = [[0, 1, 2, 3, 4], [9, 7], [12]]


@pytest.fixture(scope="module")
def batches() -> list[PhantomBatch]:
    return list(PhantomLoader(default_config(), SEED, SIZE).batches(BATCHES))


def _same(one: Rendering, other: Rendering) -> bool:
    return all(
        torch.equal(a.nan_to_num(-1), b.nan_to_num(-1))
        for name in (field.name for field in fields(Rendering))
        for a, b in zip(getattr(one, name), getattr(other, name), strict=True)
    )


def test_studies_are_those_of_make_studies(batches: list[PhantomBatch]) -> None:
    for indices, batch in zip(BATCHES, batches, strict=True):
        for place, study in enumerate(make_studies(default_config(), SEED, indices, SIZE)):
            assert np.array_equal(batch.rendering.images[place].numpy(), study.image)
            assert [said.text for said in batch.statements[place]] == [phrase.text for phrase in study.phrases]
            masks = _without_specks(batch.rendering.lesion_masks[place].numpy())
            told = [mask.pixels for mask in study.extra["lesion_masks"]]
            assert len(masks) == len(told) == len(batch.scenes[place].lesions)
            assert all(np.array_equal(mask, other) for mask, other in zip(masks, told, strict=True))
            for name, lung in zip(("right lung", "left lung"), batch.rendering.lungs[place].numpy(), strict=True):
                assert np.array_equal(lung, study.extra["anatomy_masks"][name].pixels)


def test_workers_change_nothing_and_keep_the_order(batches: list[PhantomBatch]) -> None:
    made = list(PhantomLoader(default_config(), SEED, SIZE, workers=2).batches(iter(BATCHES)))
    assert [[scene.index for scene in batch.scenes] for batch in made] == BATCHES
    for one, other in zip(made, batches, strict=True):
        assert one.scenes == other.scenes
        assert one.statements == other.statements
        assert _same(one.rendering, other.rendering)


def test_a_failure_in_a_worker_names_the_study_and_ends_the_workers() -> None:
    before = set(multiprocessing.active_children())
    running = PhantomLoader(default_config(), SEED, SIZE, workers=1).batches([[0], [5, None]])  # type: ignore[list-item]
    assert [scene.index for scene in next(running).scenes] == [0]
    with pytest.raises(RuntimeError, match=f"phantom study None of seed {SEED} could not be made"):
        next(running)
    assert not set(multiprocessing.active_children()) - before


@pytest.mark.parametrize("interrupted", [False, True], ids=["closed", "interrupted"])
def test_a_stream_that_is_left_leaves_no_worker_behind(interrupted: bool) -> None:
    before = set(multiprocessing.active_children())
    endless: Iterator[list[int]] = ([index] for index in itertools.count())
    running = PhantomLoader(default_config(), SEED, SIZE, workers=1).batches(endless)
    assert isinstance(running, Generator)
    next(running)
    assert set(multiprocessing.active_children()) - before
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            running.throw(KeyboardInterrupt)
    else:
        running.close()
    assert not set(multiprocessing.active_children()) - before


def test_parts_prepared_apart_are_painted_as_if_together() -> None:
    many = with_lesions(
        *(lesion(finding) for finding in ("pneumonia", "nodule", "rib fracture", "pneumonia", "pleural effusion"))
    )
    scenes = [*varied(4), many, NORMAL, with_lesions(lesion("pneumothorax", "left"), lesion("calcified granuloma"))]
    parts = [pickle.loads(pickle.dumps(prepare(scenes[a:b], SIZE))) for a, b in ((0, 3), (3, 5), (5, 7))]
    assert _same(paint(parts), render(scenes, SIZE))


def _shares_by_hand(mask: NDArray[np.bool_], grid: int) -> NDArray[np.float64]:
    """Cut each pixel into grid x grid pieces, so that no piece lies across a border between cells."""
    fine = np.kron(mask.astype(np.float64), np.ones((grid, grid)))
    size = mask.shape[0]
    shares: NDArray[np.float64] = fine.reshape(grid, size, grid, size).mean(axis=(1, 3))
    return shares


@pytest.mark.parametrize("grid", [1, 7, 8, 64])
def test_cell_shares_are_areas(grid: int) -> None:
    masks = torch.from_numpy(np.random.default_rng(0).random((3, SIZE, SIZE)) < 0.3)
    found = cell_shares(masks, grid).numpy()
    np.testing.assert_allclose(found, [_shares_by_hand(mask, grid) for mask in masks.numpy()], atol=1e-6)


@pytest.mark.parametrize("grid", [0, 65, 7.0, True])
def test_a_grid_that_cannot_be_is_refused(grid: object) -> None:
    with pytest.raises(InputError, match="grid must be an integer from 1 to 64"):
        cell_shares(torch.zeros(1, SIZE, SIZE, dtype=torch.bool), grid)  # type: ignore[arg-type]


def test_statement_masks_are_the_unions_of_their_targets(batches: list[PhantomBatch]) -> None:
    several = 0
    for batch in batches:
        found = batch.statement_masks(8)
        wanted = [
            (study, place)
            for study, statements in enumerate(batch.statements)
            for place, statement in enumerate(statements)
            if statement.lesions or statement.devices
        ]
        assert list(zip(found.studies, found.statements, strict=True)) == wanted
        for (study, place), shares in zip(wanted, found.shares.numpy(), strict=True):
            statement, made = batch.statements[study][place], batch.rendering
            targets = [made.lesion_masks[study][number].numpy() for number in statement.lesions]
            targets += [made.device_masks[study][number].numpy() for number in statement.devices]
            several += len(targets) > 1
            np.testing.assert_allclose(shares, _shares_by_hand(np.any(targets, axis=0), 8), atol=1e-6)
    assert several, "no sentence of these studies points to more than one thing"


def test_lesion_shares_stand_study_by_study(batches: list[PhantomBatch]) -> None:
    batch = batches[0]
    found = batch.lesion_shares(16)
    assert [len(shares) for shares in found] == [len(scene.lesions) for scene in batch.scenes]
    for shares, masks in zip(found, batch.rendering.lesion_masks, strict=True):
        for share, mask in zip(shares.numpy(), masks.numpy(), strict=True):
            np.testing.assert_allclose(share, _shares_by_hand(mask, 16), atol=1e-6)


def test_a_batch_of_normals_has_no_shares() -> None:
    rendering = render([NORMAL], SIZE)
    batch = PhantomBatch([NORMAL], [[Statement("Clear lungs.")]], rendering)
    assert batch.statement_masks(4).shares.shape == (0, 4, 4)
    assert [tuple(shares.shape) for shares in batch.lesion_shares(4)] == [(0, 4, 4)]


@pytest.mark.parametrize(
    ("options", "indices", "named"),
    [
        ({"size": 63}, [[0]], "size"),
        ({"workers": -1}, [[0]], "workers"),
        ({"workers": True}, [[0]], "workers"),
        ({}, [[]], "at least one study"),
        ({}, [[1], []], "at least one study"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], indices: list[list[int]], named: str) -> None:
    with pytest.raises(InputError, match=named):
        list(PhantomLoader(default_config(), SEED, **{"size": SIZE, **options}).batches(indices))
