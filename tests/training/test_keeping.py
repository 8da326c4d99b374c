"""Pools kept on disk come back as they were, and only whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rightlung import open_source
from rightlung.core import InputError, OutputError
from rightlung.training import preparing
from rightlung.training.facts import Facts, ToldText, facts_from_plain, plain_facts
from rightlung.training.keeping import KeptPool
from rightlung.training.pools import PhantomFlow, Pool
from rightlung.training.recipe import DataEntry
from tests.training.test_batches import DATA, opened

CPU = torch.device("cpu")
ENTRY = DataEntry(source="phantom?count=6&seed=11", pool=5, phrases=2)


def place(folder: Path, source: str = ENTRY.source, count: int = 5, size: int = 64, grid: int = 16) -> KeptPool:
    return KeptPool(folder, open_source(source), count, size, grid, "exact")


def identical(one: Pool, other: Pool) -> bool:
    return (
        torch.equal(one.images, other.images)
        and torch.equal(one.shares, other.shares)
        and torch.equal(one.boxes.nan_to_num(-9), other.boxes.nan_to_num(-9))
        and list(one.first) == list(other.first)
        and [one.facts(number) for number in range(len(one))] == [other.facts(number) for number in range(len(other))]
        and list(one.problems) == list(other.problems)
        and one.universe == other.universe
    )


@pytest.fixture(scope="module")
def pool() -> Pool:
    found = opened(ENTRY)[1]
    assert isinstance(found, Pool)
    return found


def test_a_pool_is_the_same_after_it_was_kept(tmp_path: Path, pool: Pool) -> None:
    known = Pool(pool.images, pool.shares, pool.first, pool.boxes, [pool.facts(n) for n in range(5)], ["odd \ud800"])
    kept = place(tmp_path / "new" / "folder")
    assert kept.read(CPU) is None
    kept.write(known)
    again = kept.read(CPU)
    assert again is not None
    assert identical(known, again)
    assert [path.name for path in kept.path.parent.iterdir()] == [kept.path.name]


def test_the_second_run_finds_the_pool_and_paints_nothing(
    tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = replace(DATA, keep=str(tmp_path))
    first = opened(ENTRY, data)[1]
    monkeypatch.setattr(PhantomFlow, "pool", lambda *_: pytest.fail("filled again"))
    second = opened(replace(ENTRY, texts=4, mirrored=True), data)[1]  # what is asked of the studies does not matter
    assert isinstance(first, Pool)
    assert isinstance(second, Pool)
    assert identical(pool, first)
    assert identical(pool, second)


def test_some_of_a_kept_pool_are_chosen_after_it_was_read(tmp_path: Path) -> None:
    data = replace(DATA, keep=str(tmp_path))
    entry = replace(ENTRY, examples=2)
    assert [len(opened(one, data)[1]) for one in (entry, entry, ENTRY)] == [2, 2, 5]
    assert len(list(tmp_path.iterdir())) == 1


def test_whatever_a_pool_is_made_from_makes_another_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(ENTRY.source)
    places = [
        place(tmp_path),
        place(tmp_path, "phantom?count=6&seed=12"),
        place(tmp_path, "phantom?count=6&seed=11&start=1"),
        place(tmp_path, count=4),
        place(tmp_path, size=96),
        place(tmp_path, grid=8),
        KeptPool(tmp_path, source, 5, 64, 16, "regions"),
        KeptPool(tmp_path, source, 5, 64, 16, "none"),
    ]
    monkeypatch.setattr("rightlung.training.keeping.__version__", "99")
    places.append(place(tmp_path))
    assert len({one.path for one in places}) == len(places)


def test_exact_masks_regions_and_neither_do_not_get_into_each_others_way(tmp_path: Path) -> None:
    data = replace(DATA, keep=str(tmp_path))
    for _ in range(2):
        pools = [opened(replace(ENTRY, targets=kind), data)[1] for kind in ("exact", "regions", "none")]
        targets = [sum(len(told.targets) for n in range(5) for told in one.facts(n).told) for one in pools]
        assert targets[2] == 0 < targets[0] < targets[1]
    assert len(list(tmp_path.iterdir())) == 3


def test_of_two_writers_one_is_first_and_both_leave_the_same(tmp_path: Path, pool: Pool) -> None:
    """The other process has kept the pool after this one had looked for it."""
    one, other = place(tmp_path), place(tmp_path)
    assert one.read(CPU) is None
    assert other.read(CPU) is None
    one.write(pool)
    other.write(pool)
    found = one.read(CPU)
    assert found is not None
    assert identical(pool, found)
    assert [path.name for path in tmp_path.iterdir()] == [one.path.name]


def test_what_is_half_written_is_not_read_and_does_not_stand_in_the_way(
    tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    kept = place(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("rightlung.training.keeping.plain_facts", killed)
        patch.setattr("rightlung.models.replacing.shutil.rmtree", lambda *_, **__: None)  # as if killed
        with pytest.raises(Killed):
            kept.write(pool)
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".unfinished")
    assert kept.read(CPU) is None
    kept.write(pool)
    assert kept.read(CPU) is not None
    assert [path.name for path in tmp_path.iterdir()] == [kept.path.name]


@pytest.mark.parametrize("damage", ["tensors cut", "no tensors", "facts cut", "no facts", "other facts", "fewer facts"])
def test_a_damaged_pool_is_refused_with_its_folder(tmp_path: Path, pool: Pool, damage: str) -> None:
    kept = place(tmp_path)
    kept.write(pool)
    tensors, facts = kept.path / "pictures.safetensors", kept.path / "facts.json"
    whole = json.loads(facts.read_text())
    if damage == "tensors cut":
        tensors.write_bytes(tensors.read_bytes()[:-100])
    elif damage == "facts cut":
        facts.write_text(facts.read_text()[:-100])
    elif damage == "other facts":
        facts.write_text("[1, 2]")
    elif damage == "fewer facts":
        facts.write_text(json.dumps(whole | {"facts": whole["facts"][:-1]}))
    else:
        (tensors if damage == "no tensors" else facts).unlink()
    with pytest.raises(InputError, match=r"the pool that was kept here cannot be read \(.+\); remove it") as caught:
        kept.read(CPU)
    assert str(kept.path) in str(caught.value)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, pool: Pool) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"file/\w+: the pool cannot be kept \(File exists\)"):
        place(tmp_path / "file").write(pool)


def test_facts_come_back_from_json_as_they_were() -> None:
    told = (
        ToldText("a", (0, 2), frozenset({"mass", "nodule"}), "left", True),
        ToldText("b", seen=False),
        ToldText("c", seen=None),
    )
    facts = Facts("id", told, "a b c", frozenset({"x"}), frozenset({"y", "z"}), {"mass": (0, 2)}, ("q", "p"))
    assert facts_from_plain(json.loads(json.dumps(facts, default=plain_facts))) == facts


def test_some_studies_of_a_pool_keep_their_pictures_masks_and_boxes(pool: Pool) -> None:
    some = pool.only([4, 1])
    assert [some.facts(number).id for number in range(2)] == [pool.facts(4).id, pool.facts(1).id]
    (here,), (there,) = (list(one.deal([numbers])) for one, numbers in ((some, [1, 0]), (pool, [1, 4])))
    assert torch.equal(here.images, there.images)
    assert torch.equal(here.boxes.nan_to_num(-9), there.boxes.nan_to_num(-9))
    placed = [(place, told.targets) for place, number in enumerate((1, 4)) for told in pool.facts(number).told]
    assert torch.equal(here.take(placed), there.take(placed))
    assert here.take(placed).any()
    assert preparing.lengths([(ENTRY, some)]) == [2]
