"""Pools kept on disk come back as they were, and only whole."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from rightlung import open_source
from rightlung.core import InputError, OutputError
from rightlung.phantom.config import default_config
from rightlung.phantom.source import PhantomSource
from rightlung.phantom.write import PhantomJob, write_phantom
from rightlung.training.annotations import StudyAnnotations, StudySentence
from rightlung.training.cache import DiskCache
from rightlung.training.datasets import CachedDataset, LoadOptions, PhantomDataset
from rightlung.training.recipe import DataEntry
from rightlung.training.targets.base import RaggedTensor
from rightlung.training.targets.expert import ExpertTargets
from rightlung.training.targets.phrases import PhraseTargets, union_masks
from rightlung.training.targets.regions import RegionTargets
from tests.training.test_batches import DATA, opened

CPU = torch.device("cpu")
ENTRY = DataEntry(source="phantom?count=6&seed=11", cached_studies=5, phrases_per_image=2)


def place(folder: Path, source: str = ENTRY.source, count: int = 5, size: int = 64, grid: int = 16) -> DiskCache:
    return DiskCache(folder, open_source(source), count, LoadOptions(ENTRY, size, grid, [PhraseTargets()], CPU, 0))


def identical(one: CachedDataset, other: CachedDataset) -> bool:
    columns, others = one.loaded.columns, other.loaded.columns
    for name, column in columns.items():
        if isinstance(column, RaggedTensor):
            assert isinstance(found := others[name], RaggedTensor)
            assert torch.equal(column.concatenated().nan_to_num(-9), found.concatenated().nan_to_num(-9))
            assert list(column.counts) == list(found.counts)
        else:
            assert column == others[name]
    return (
        torch.equal(one.loaded.images, other.loaded.images)
        and columns.keys() == others.keys()
        and [one.annotations(number) for number in range(len(one))]
        == [other.annotations(number) for number in range(len(other))]
        and list(one.problems) == list(other.problems)
        and (one.findings, one.available_targets, one.loaded.grid)
        == (other.findings, other.available_targets, other.loaded.grid)
    )


@pytest.fixture(scope="module")
def cached() -> CachedDataset:
    found = opened(ENTRY)[1]
    assert isinstance(found, CachedDataset)
    return found


def test_a_cache_is_the_same_after_it_was_kept(tmp_path: Path, cached: CachedDataset) -> None:
    known = CachedDataset(
        cached.loaded, [cached.annotations(n) for n in range(5)], cached.available_targets, ["odd \ud800"]
    )
    kept = place(tmp_path / "new" / "folder")
    assert kept.read(CPU) is None
    kept.write(known)
    again = kept.read(CPU)
    assert again is not None
    assert identical(known, again)
    assert [path.name for path in kept.path.parent.iterdir()] == [kept.path.name]


def test_the_second_run_finds_the_cache_and_renders_nothing(
    tmp_path: Path, cached: CachedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = replace(DATA, cache_folder=str(tmp_path))
    first = opened(ENTRY, data)[1]
    monkeypatch.setattr(PhantomDataset, "cached", lambda *_: pytest.fail("filled again"))
    second = opened(replace(ENTRY, texts_per_image=4, mirror_pairs=True), data)[
        1
    ]  # what is asked of the studies does not matter
    assert isinstance(first, CachedDataset)
    assert isinstance(second, CachedDataset)
    assert identical(cached, first)
    assert identical(cached, second)


def test_some_of_a_kept_cache_are_chosen_after_it_was_read(tmp_path: Path) -> None:
    data = replace(DATA, cache_folder=str(tmp_path))
    entry = replace(ENTRY, few_shot_studies=2)
    assert [len(opened(one, data)[1]) for one in (entry, entry, ENTRY)] == [2, 2, 5]
    assert len(list(tmp_path.iterdir())) == 1


def test_whatever_a_cache_is_made_from_makes_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(ENTRY.source)
    places = [
        place(tmp_path),
        place(tmp_path, "phantom?count=6&seed=12"),
        place(tmp_path, "phantom?count=6&seed=11&start=1"),
        place(tmp_path, count=4),
        place(tmp_path, size=96),
        place(tmp_path, grid=8),
        DiskCache(
            tmp_path, source, 5, LoadOptions(replace(ENTRY, phrase_masks="regions"), 64, 16, [PhraseTargets()], CPU, 0)
        ),
        DiskCache(
            tmp_path, source, 5, LoadOptions(replace(ENTRY, phrase_masks="none"), 64, 16, [PhraseTargets()], CPU, 0)
        ),
        DiskCache(tmp_path, source, 5, LoadOptions(ENTRY, 64, 16, [PhraseTargets(), RegionTargets()], CPU, 0)),
        DiskCache(
            tmp_path, source, 5, LoadOptions(ENTRY, 64, 16, [PhraseTargets(), RegionTargets(("edema",))], CPU, 0)
        ),
    ]
    monkeypatch.setattr("rightlung.training.cache.__version__", "99")
    places.append(place(tmp_path))
    assert len({one.path for one in places}) == len(places)


def test_exact_masks_regions_and_neither_do_not_get_into_each_others_way(tmp_path: Path) -> None:
    data = replace(DATA, cache_folder=str(tmp_path))
    for _ in range(2):
        caches = [opened(replace(ENTRY, phrase_masks=kind), data)[1] for kind in ("exact", "regions", "none")]
        targets = [
            sum(len(told.locations) for n in range(5) for told in one.annotations(n).sentences) for one in caches
        ]
        assert targets[2] == 0 < targets[0] < targets[1]
    assert len(list(tmp_path.iterdir())) == 3


def test_of_two_writers_one_is_first_and_both_leave_the_same(tmp_path: Path, cached: CachedDataset) -> None:
    """The other process has kept the pool after this one had looked for it."""
    one, other = place(tmp_path), place(tmp_path)
    assert one.read(CPU) is None
    assert other.read(CPU) is None
    one.write(cached)
    other.write(cached)
    found = one.read(CPU)
    assert found is not None
    assert identical(cached, found)
    assert [path.name for path in tmp_path.iterdir()] == [one.path.name]


def test_what_is_half_written_is_not_read_and_does_not_stand_in_the_way(
    tmp_path: Path, cached: CachedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    kept = place(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("rightlung.training.cache.save_file", killed)
        patch.setattr("rightlung.models.replacing.shutil.rmtree", lambda *_, **__: None)  # as if killed
        with pytest.raises(Killed):
            kept.write(cached)
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".unfinished")
    assert kept.read(CPU) is None
    kept.write(cached)
    assert kept.read(CPU) is not None
    assert [path.name for path in tmp_path.iterdir()] == [kept.path.name]


@pytest.mark.parametrize("damage", ["tensors cut", "no tensors", "facts cut", "no facts", "other facts", "fewer facts"])
def test_a_damaged_cache_is_refused_with_its_folder(tmp_path: Path, cached: CachedDataset, damage: str) -> None:
    kept = place(tmp_path)
    kept.write(cached)
    tensors, facts = kept.path / "tensors.safetensors", kept.path / "studies.json"
    whole = json.loads(facts.read_text())
    if damage == "tensors cut":
        tensors.write_bytes(tensors.read_bytes()[:-100])
    elif damage == "facts cut":
        facts.write_text(facts.read_text()[:-100])
    elif damage == "other facts":
        facts.write_text("[1, 2]")
    elif damage == "fewer facts":
        facts.write_text(json.dumps(whole | {"annotations": whole["annotations"][:-1]}))
    else:
        (tensors if damage == "no tensors" else facts).unlink()
    with pytest.raises(InputError, match=r"the cached studies cannot be read \(.+\); remove the folder") as caught:
        kept.read(CPU)
    assert str(kept.path) in str(caught.value)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, cached: CachedDataset) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"file/\w+: the studies cannot be cached \(File exists\)"):
        place(tmp_path / "file").write(cached)


def test_texts_come_back_from_json_as_they_were() -> None:
    sentences = (
        StudySentence("a", (0, 2), frozenset({"mass", "nodule"}), "left", True, ("left lung",)),
        StudySentence("b", visible=False),
        StudySentence("c", visible=None),
    )
    some = frozenset({"x"}), frozenset({"y", "z"}), frozenset({"w"})
    texts = StudyAnnotations("id", sentences, "a b c", *some, {"mass": (0, 2)}, ("q", "p"))
    assert StudyAnnotations.from_json(json.loads(json.dumps(asdict(texts), default=sorted))) == texts


@pytest.mark.parametrize("address", ["phantom?count=4&seed=11", "manifest"])
def test_every_target_is_cached_as_it_was_built(tmp_path: Path, address: str) -> None:
    if address == "manifest":
        write_phantom(PhantomJob(tmp_path / "studies", default_config(), 4, 4, 64, (), False))
        address = f"manifest:{tmp_path / 'studies'}"
    options = {"labels": {"findings": ["edema"]}, "regions": {"findings": ["pleural effusion"]}}
    targets = ("boxes", "regions", "gaze", "labels", "report")
    data = replace(DATA, targets=targets, target_options=options, cache_folder=str(tmp_path / "cache"))
    first, second = (
        opened(DataEntry(source=address, cached_studies=4, phrases_per_image=2), data)[1] for _ in range(2)
    )
    assert isinstance(first, CachedDataset)
    assert isinstance(second, CachedDataset)
    assert identical(first, second)
    assert {
        "phrases/masks",
        "boxes/boxes",
        "boxes/labels",
        "regions/findings",
        "gaze/maps",
    } <= first.loaded.columns.keys()


def test_some_of_the_studies_keep_their_images_and_masks(cached: CachedDataset) -> None:
    some = cached.select([4, 1])
    assert [some.annotations(number).id for number in range(2)] == [cached.annotations(4).id, cached.annotations(1).id]
    (here,), (there,) = (list(one.load([numbers])) for one, numbers in ((some, [1, 0]), (cached, [1, 4])))
    assert torch.equal(here.images, there.images)
    targets = [
        (place, one.locations) for place, number in enumerate((1, 4)) for one in cached.annotations(number).sentences
    ]
    found, wanted = (union_masks(one.columns["phrases/masks"], targets, 16, CPU) for one in (here, there))
    assert torch.equal(found, wanted)
    assert found.any()
    assert len(some) == 2


def test_what_a_target_adds_does_not_depend_on_who_wrote_the_cache(tmp_path: Path) -> None:
    """Entries without a map share the folder of runs without expert targets, which know nothing of them."""
    for builders in ([], [ExpertTargets()]):
        entry = DataEntry(source="phantom?count=6&seed=11", cached_studies=5, added_images=2, expert_map="none")
        options = LoadOptions(entry, 64, 16, builders, CPU, 0)
        disk = DiskCache(tmp_path, open_source(entry.source), 5, options)
        found = disk.read(CPU)
        if found is None:
            source = open_source(entry.source)
            assert isinstance(source, PhantomSource)
            disk.write(PhantomDataset(source, options).cached(5, lambda _: None))
    assert found is not None
    assert found.available_targets == {"expert"}
