"""Batches follow from the step and the process, masks belong to their words, and a mirror mirrors both."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rightlung.core import InputError
from rightlung.lexicon import sides_in
from rightlung.models.base import TrainingBatch
from rightlung.phantom.config import default_config
from rightlung.phantom.study import make_studies
from rightlung.phantom.write import PhantomJob, write_phantom
from rightlung.training.augmentation import Augmentation
from rightlung.training.batches import Batches, Mixture, Sampler, prefetched, split_by_shares
from rightlung.training.datasets import Dataset
from rightlung.training.recipe import Data, DataEntry
from rightlung.training.setup import open_studies

CPU = torch.device("cpu")
MIRRORING = Augmentation(mirror="words", mirror_probability=0.3)
ENTRY = DataEntry(
    source="phantom?count=24&seed=11",
    cached_studies=24,
    phrases_per_image=4,
    other_study_probability=0.2,
    swapped_side_probability=0.2,
    prompt_probability=0.2,
)
DATA = Data(train=(ENTRY,), image_size=64, mask_grid=16, workers=0)


def opened(entry: DataEntry, data: Data = DATA) -> tuple[DataEntry, Dataset]:
    def advance(what: str, count: int) -> Callable[[int], None]:
        return lambda done: None

    return entry, open_studies(entry, data, CPU, advance, "data.train[0]")


@pytest.fixture(scope="module")
def pool() -> tuple[DataEntry, Dataset]:
    return opened(ENTRY)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("phantom") / "studies"
    write_phantom(PhantomJob(folder, default_config(), 6, 4, 64, (), False))
    return f"manifest:{folder}"


def same(one: TrainingBatch, other: TrainingBatch) -> bool:
    phrases, others = one.targets["phrases"], other.targets["phrases"]
    return (
        torch.equal(one.images, other.images)
        and all(torch.equal(phrases[name], others[name]) for name in ("has_mask", "masks"))
        and torch.equal(phrases["present"].nan_to_num(9), others["present"].nan_to_num(9))
        and (list(one.texts), list(one.ids)) == (list(other.texts), list(other.ids))
        and all(phrases[name] == others[name] for name in ("texts", "image_indices"))
    )


def test_a_batch_follows_from_its_number_alone(pool: tuple[DataEntry, Dataset]) -> None:
    batches = Batches([pool], 5, 7, CPU, MIRRORING)
    in_turn = list(batches.iterate(0, 4))
    assert same(in_turn[3], Batches([pool], 5, 7, CPU, MIRRORING).batch_at(3))
    assert not same(in_turn[2], in_turn[3])
    assert not same(in_turn[3], Batches([pool], 5, 8, CPU, MIRRORING).batch_at(3))


def test_processes_share_out_the_batch_that_one_would_have(pool: tuple[DataEntry, Dataset], manifest: str) -> None:
    other = opened(DataEntry(source=manifest, phrases_per_image=2, share=0.5, other_study_probability=0.3))
    entries = [pool, other]
    alone = Batches(entries, 12, 1, CPU, MIRRORING).batch_at(2)
    parts = [Batches(entries, 6, 1, CPU, MIRRORING, rank=rank, world_size=2).batch_at(2) for rank in (0, 1)]
    global_ids = [name for part in parts for name in part.ids]
    order = [global_ids.index(name) for name in alone.ids]
    assert len(set(global_ids)) == 12
    images = torch.cat([part.images for part in parts])
    assert torch.equal(alone.images, images[order])
    assert [text for part in parts for text in part.texts] == [alone.texts[order.index(n)] for n in range(12)]
    asked = [
        (part.ids[int(of)], phrase)
        for part in parts
        for of, phrase in zip(part.targets["phrases"]["image_indices"], part.targets["phrases"]["texts"], strict=True)
    ]
    assert sorted(asked) == sorted(
        (alone.ids[int(of)], phrase)
        for of, phrase in zip(alone.targets["phrases"]["image_indices"], alone.targets["phrases"]["texts"], strict=True)
    )


def test_a_pool_and_a_flow_give_the_same_batches(pool: tuple[DataEntry, Dataset]) -> None:
    flow = opened(replace(ENTRY, cached_studies=None))
    assert type(flow[1]) is not type(pool[1])
    assert same(Batches([flow], 5, 7, CPU).batch_at(3), Batches([pool], 5, 7, CPU).batch_at(3))


def test_masks_are_the_lesions_of_their_phrases(pool: tuple[DataEntry, Dataset]) -> None:
    batch = Batches([pool], 24, 7, CPU).batch_at(0)
    studies = {study.id: study for study in make_studies(default_config(), 11, range(24), 64)}
    checked = 0
    for number, phrase in enumerate(batch.targets["phrases"]["texts"]):
        study = studies[batch.ids[int(batch.targets["phrases"]["image_indices"][number])]]
        for known in study.phrases:
            if known.text == phrase and known.mask is not None and bool(batch.targets["phrases"]["has_mask"][number]):
                cells = known.mask.pixels.reshape(16, 4, 16, 4).mean((1, 3))
                found = batch.targets["phrases"]["masks"][number].numpy()
                assert np.abs(found - cells).max() < 0.5  # lesions that overlap, and specks, count a little differently
                assert np.abs(found - cells).mean() < 0.01
                checked += 1
    assert checked > 15


def test_images_are_the_studies_pictures(pool: tuple[DataEntry, Dataset]) -> None:
    batch = Batches([pool], 24, 7, CPU).batch_at(0)
    studies = {study.id: study for study in make_studies(default_config(), 11, range(24), 64)}
    for name, image in zip(batch.ids, batch.images, strict=True):
        np.testing.assert_allclose(image[0].numpy(), studies[name].image, atol=1 / 255)


def test_pixels_are_mirrored_alone_if_the_recipe_says_so(pool: tuple[DataEntry, Dataset]) -> None:
    still = Augmentation().times(0)
    plain = Batches([pool], 24, 7, CPU, still).batch_at(0)
    flipped = Batches([pool], 24, 7, CPU, replace(still, mirror="pixels", mirror_probability=1.0)).batch_at(0)
    torch.testing.assert_close(flipped.images, plain.images.flip(-1), atol=1e-4, rtol=0)
    assert flipped.texts == plain.texts
    assert any(sides_in(text) for text in plain.texts)


def test_an_entry_without_texts_is_mixed_with_others_and_mirrored_as_they_are(pool: tuple[DataEntry, Dataset]) -> None:
    silent = replace(ENTRY, texts_per_image=0, phrases_per_image=0)
    flipping = replace(Augmentation().times(0), mirror="words", mirror_probability=1.0)
    data = Data(train=(ENTRY, silent))
    plain, flipped = (
        Batches([pool, (silent, pool[1])], 12, 7, CPU, settings, data=data).batch_at(0)
        for settings in (Augmentation().times(0), flipping)
    )
    assert list(plain.image_of_text) == list(range(6))
    assert len(plain.texts) == 6
    torch.testing.assert_close(flipped.images[6:], plain.images[6:].flip(-1), atol=1e-4, rtol=0)


def test_a_mirrored_image_has_mirrored_words_and_masks() -> None:
    still = Augmentation().times(0)
    entry = opened(
        DataEntry(source="phantom?count=128&seed=11", cached_studies=128, phrases_per_image=8, positive_share=0.9)
    )
    plain = Batches([entry], 128, 7, CPU, still).batch_at(0)
    flipped = Batches([entry], 128, 7, CPU, replace(still, mirror="words", mirror_probability=1.0)).batch_at(0)
    turned = [not torch.allclose(a, b, atol=1e-3) for a, b in zip(plain.images, flipped.images, strict=True)]
    assert 32 < sum(turned) < 128  # those with a lingula, a middle lobe or a stomach in their words stay
    other = {"left": "right", "right": "left"}
    for image in range(128):
        if turned[image]:
            torch.testing.assert_close(flipped.images[image], plain.images[image].flip(-1), atol=1e-4, rtol=0)
            assert sides_in(flipped.texts[image]) == {other[side] for side in sides_in(plain.texts[image])}
    by_side = 0
    for number, (before, after) in enumerate(
        zip(plain.targets["phrases"]["texts"], flipped.targets["phrases"]["texts"], strict=True)
    ):
        if not turned[int(plain.targets["phrases"]["image_indices"][number])]:
            assert before == after
            continue
        assert sides_in(after) == {other[side] for side in sides_in(before)}
        torch.testing.assert_close(
            flipped.targets["phrases"]["masks"][number],
            plain.targets["phrases"]["masks"][number].flip(-1),
            atol=1e-4,
            rtol=0,
        )
        # In a picture the patient's right is on the left: where words name one side, that is where the mask lies.
        if (
            flipped.targets["phrases"]["has_mask"][number]
            and len(sides_in(after)) == 1
            and re.search("pleural|lung|lobe", after)
        ):
            mass = flipped.targets["phrases"]["masks"][number].sum(0)
            on_the_left = bool(mass[:8].sum() > mass[8:].sum())
            assert on_the_left == (sides_in(after) == {"right"}), after
            by_side += 1
    assert by_side > 15


def test_what_moves_out_of_the_picture_is_neither_there_nor_not(pool: tuple[DataEntry, Dataset]) -> None:
    far = replace(Augmentation().times(0), shift=0.9)
    batch = Batches([pool], 24, 7, CPU, far).batch_at(0)
    gone = batch.targets["phrases"]["present"].isnan()
    assert gone.any()
    assert not batch.targets["phrases"]["has_mask"][gone].any()
    assert (batch.targets["phrases"]["masks"][gone].amax((1, 2)) <= 0.02).all()


def test_each_study_comes_once_before_any_comes_again() -> None:
    deck = Sampler(10, "key")
    assert sorted(deck.indices(0, 10)) == list(range(10))
    assert sorted(deck.indices(10, 20)) == list(range(10))
    assert deck.indices(0, 10) != deck.indices(10, 20)
    assert deck.indices(7, 13) == deck.indices(0, 20)[7:13]
    assert Sampler(3_000_000, "key").indices(5, 8) == [5, 6, 7]


def test_batches_are_divided_by_the_shares() -> None:
    shares = (0.75, 0.2, 0.05)
    assert split_by_shares(100, shares) == [75, 20, 5]
    assert sum(split_by_shares(37, shares)) == 37
    three = [DataEntry(source="x", share=share) for share in shares]
    with pytest.raises(InputError, match=r"data.train\[2\].share: 0.05 of a batch of 4 is less than one image"):
        Mixture(three, 4, ())


def test_other_sources_are_letterboxed_with_their_boxes_and_may_hide_them(manifest: str) -> None:
    entry = DataEntry(source=manifest, phrases_per_image=3)
    batch = Batches([opened(entry)], 6, 1, CPU).batch_at(0)
    assert batch.images.shape == (6, 1, 64, 64)
    assert batch.targets["phrases"]["has_mask"].any()
    hidden = Batches([opened(replace(entry, phrase_masks="none"))], 6, 1, CPU).batch_at(0)
    assert not hidden.targets["phrases"]["has_mask"].any()
    assert float(hidden.targets["phrases"]["masks"].sum()) == 0.0


def test_a_source_read_by_workers_gives_what_a_pool_gives(manifest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = DataEntry(source=manifest, phrases_per_image=3)
    pooled = Batches([opened(entry)], 3, 1, CPU).batch_at(1)
    monkeypatch.setattr("rightlung.training.setup.CACHE_WHOLE_BELOW", 1)
    flow = opened(entry, replace(DATA, workers=1))
    assert same(Batches([flow], 3, 1, CPU).batch_at(1), pooled)


def test_a_pool_leaves_out_pictures_that_cannot_be_read(manifest: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(manifest.removeprefix("manifest:"), tmp_path / "copy"))
    next(iter(sorted((copy / "images").iterdir()))).write_bytes(b"no picture")
    assert len(opened(DataEntry(source=f"manifest:{copy}"))[1]) == 5


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (replace(ENTRY, cached_studies=25), "25 is more than the 24 studies"),
        (replace(ENTRY, source="phantom?count=24&seed=11&size=96"), "says size=96, but data.image_size is 64"),
        (replace(ENTRY, source="fantom?count=4"), "did you mean 'phantom'"),
    ],
)
def test_sources_that_do_not_fit_are_refused(entry: DataEntry, said: str) -> None:
    with pytest.raises(InputError, match=said):
        opened(entry)


def test_pictures_too_small_for_a_phantom_are_refused_by_the_name_of_the_field() -> None:
    for entry in (ENTRY, replace(ENTRY, cached_studies=None)):
        with pytest.raises(InputError, match=r"^data\.image_size: the phantom's size must be .* from 64 to .*; got 32"):
            opened(entry, replace(DATA, image_size=32))


def test_prefetched_batches_are_the_same_and_errors_come_in_their_turn(pool: tuple[DataEntry, Dataset]) -> None:
    batches = Batches([pool], 5, 7, CPU, MIRRORING)
    ahead = list(prefetched(batches.iterate(1, 4)))
    assert len(ahead) == 3
    assert all(same(one, batches.batch_at(number)) for number, one in enumerate(ahead, start=1))

    def failing() -> Iterator[TrainingBatch]:
        yield ahead[0]
        raise InputError("a study cannot be read")

    drawn = prefetched(failing())
    assert same(next(drawn), ahead[0])
    with pytest.raises(InputError, match="cannot be read"):
        next(drawn)
    left = prefetched(batches.iterate(0, 3))
    next(left)
    left.close()  # waits for the thread
