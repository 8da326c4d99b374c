"""Batches with several texts an image, mirror images beside images, other studies' texts, examples, boxes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch

from rightlung.core import InputError
from rightlung.lexicon import IMAGENOME_REGIONS, sides_in
from rightlung.lexicon.side_changes import mirrored
from rightlung.models.base import TrainingBatch
from rightlung.phantom.config import default_config
from rightlung.phantom.study import make_studies
from rightlung.training.annotations import StudyAnnotations, StudySentence
from rightlung.training.augmentation import Augmentation
from rightlung.training.batches import Batches
from rightlung.training.datasets import CachedDataset, Dataset, LoadedStudies
from rightlung.training.recipe import Data, DataEntry
from rightlung.training.targets.base import RaggedTensor
from tests.training.test_batches import DATA, opened, same

CPU = torch.device("cpu")
ENTRY = DataEntry(source="phantom?count=16&seed=11", cached_studies=16, texts_per_image=3, phrases_per_image=2)
STILL = Augmentation().times(0)
WITH_REGIONS = Data(train=(ENTRY,), targets=("regions",))
OTHER = {"left": "right", "right": "left"}


@pytest.fixture(scope="module")
def studies() -> Dataset:
    return opened(ENTRY)[1]


def drawn(studies: Dataset, entry: DataEntry = ENTRY, size: int = 8, number: int = 0, **more: object) -> TrainingBatch:
    return Batches([(entry, studies)], size, 7, CPU, **more).batch_at(number)  # type: ignore[arg-type]


def texts_by_image(batch: TrainingBatch) -> dict[int, list[str]]:
    found = defaultdict(list)
    for image, text in zip(batch.image_of_text, batch.texts, strict=True):
        found[image].append(text)
    return dict(found)


def made_of(told: list[list[str]], boxes: torch.Tensor | None = None) -> CachedDataset:
    """Studies with these sentences; their images are black on the left and differ on the right."""
    count = len(told)
    images = torch.zeros(count, 8, 8, dtype=torch.uint8)
    images[:, :, 4:] = (torch.arange(count) + 1)[:, None, None].to(torch.uint8)
    texts = [
        StudyAnnotations(f"study-{number}", tuple(StudySentence(text) for text in texts))
        for number, texts in enumerate(told)
    ]
    columns = {}
    if boxes is not None:
        findings = torch.zeros(*boxes.shape[:2], 0)
        columns = {
            f"regions/{name}": RaggedTensor.of(rows, [1] * count)
            for name, rows in (("boxes", boxes), ("findings", findings))
        }
    return CachedDataset(LoadedStudies(images, 4, columns), texts)


def test_every_image_has_as_many_texts_of_its_own_none_twice_before_all_have_come(studies: Dataset) -> None:
    batch = drawn(studies)
    reports = {study.id: [phrase.text for phrase in study.phrases] for study in make_studies(
        default_config(), 11, range(16), 64)}  # fmt: skip
    assert len(batch.texts) == 24
    for image, texts in texts_by_image(batch).items():
        own = reports[batch.ids[image]]
        assert len(texts) == 3
        assert set(texts) <= set(own)
        assert len(set(texts)) == min(3, len(set(own)))


def test_where_there_are_fewer_texts_they_come_again() -> None:
    batch = drawn(made_of([["a", "b"]]), DataEntry(source="x", texts_per_image=5), size=1)
    assert sorted(batch.texts[:2]) == sorted(batch.texts[2:4]) == ["a", "b"]
    assert batch.texts[4] == batch.texts[0]


def test_texts_of_several_entries_belong_to_their_images(studies: Dataset) -> None:
    one = drawn(studies, size=4)
    entries = [(ENTRY, studies), (replace(ENTRY, texts_per_image=1, phrases_per_image=0), studies)]
    both = Batches(entries, 8, 7, CPU).batch_at(0)
    assert list(both.image_of_text) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 6, 7]
    assert list(both.texts[:12]) == list(one.texts)
    for image, texts in texts_by_image(both).items():
        facts = next(studies.annotations(n) for n in range(16) if studies.annotations(n).id == both.ids[image])
        assert set(texts) <= {one.text for one in facts.sentences}


@pytest.mark.parametrize("augmentation", [STILL, None])
def test_the_second_half_of_a_mirrored_batch_are_mirror_images_with_mirrored_words(
    studies: Dataset, augmentation: Augmentation | None
) -> None:
    batch = drawn(studies, replace(ENTRY, mirror_pairs=True), size=16, augmentation=augmentation)
    assert list(batch.ids[:8]) == list(batch.ids[8:])
    assert len(set(batch.ids)) == 8
    texts, turned, sided = texts_by_image(batch), 0, 0
    for image in range(8):
        picture, other = batch.images[image], batch.images[image + 8]
        asked = list(zip(batch.targets["phrases"]["image_indices"], batch.targets["phrases"]["texts"], strict=True))
        phrases = [[text for of, text in asked if of == number] for number in (image, image + 8)]
        if torch.allclose(picture, other, atol=1e-4):  # no words can say what the mirror image shows
            assert texts[image] == texts[image + 8]
            assert all(mirrored(text) is None for text in texts[image]) or any(mirrored(p) is None for p in phrases[0])
            continue
        turned += 1
        torch.testing.assert_close(other, picture.flip(-1), atol=1e-4, rtol=0)
        possible = [found for text in texts[image] if (found := mirrored(text)) is not None]
        assert texts[image + 8] == [possible[number % len(possible)] for number in range(3)]
        assert phrases[1] == [mirrored(phrase) for phrase in phrases[0]]
        sided += any(sides_in(text) for text in texts[image])
    assert turned > 3
    assert sided > 1
    for number, phrase in enumerate(batch.targets["phrases"]["texts"]):  # masks lie on the side that the words name
        mass = batch.targets["phrases"]["masks"][number].sum(0)
        if batch.targets["phrases"]["has_mask"][number] and len(sides_in(phrase)) == 1 and "lung" in phrase:
            assert bool(mass[:8].sum() > mass[8:].sum()) == (sides_in(phrase) == {"right"}), phrase


def test_texts_without_a_mirror_image_are_left_out_and_an_image_with_no_others_stays() -> None:
    entry = DataEntry(source="x", texts_per_image=2, mirror_pairs=True)
    told = [["Left effusion.", "Lingular opacity."], ["Lingular opacity.", "Gastric tube."]]
    batch = drawn(made_of(told), entry, size=4, augmentation=STILL)
    texts = texts_by_image(batch)
    for image, name in enumerate(batch.ids[:2]):
        bright = batch.images[image + 2, 0, 0] > 0.002
        if name == "study-0":
            assert texts[image + 2] == ["Right effusion.", "Right effusion."]
            assert bright.tolist() == [True] * 4 + [False] * 4
        else:
            assert sorted(texts[image + 2]) == sorted(texts[image]) == sorted(told[1])
            assert bright.tolist() == [False] * 4 + [True] * 4


def test_an_odd_number_of_images_has_no_mirror_images(studies: Dataset) -> None:
    entry = replace(ENTRY, mirror_pairs=True)
    with pytest.raises(
        InputError, match=r"data\.train\[0\]\.mirror_pairs needs an even number of images a batch; got 5"
    ):
        Batches([(entry, studies)], 5, 7, CPU)
    with pytest.raises(InputError, match=r"data\.train\[1\]\.mirror_pairs .*; got 3"):
        Batches([(ENTRY, studies), (entry, studies)], 6, 7, CPU)


@pytest.mark.parametrize("masked", [0.0, 0.4])
def test_processes_share_out_a_mirrored_batch_too(studies: Dataset, masked: float) -> None:
    entry = replace(ENTRY, mirror_pairs=True, word_mask_probability=masked)
    alone = drawn(studies, entry, size=8, number=1, augmentation=Augmentation())
    parts = [drawn(studies, entry, 4, 1, augmentation=Augmentation(), rank=rank, world_size=2) for rank in (0, 1)]
    order = [0, 1, 4, 5, 2, 3, 6, 7]  # the first's images, its mirror images, the second's
    assert [name for part in parts for name in part.ids] == [alone.ids[number] for number in order]
    torch.testing.assert_close(torch.cat([part.images for part in parts]), alone.images[order], atol=1e-6, rtol=0)
    texts = texts_by_image(alone)
    assert [text for part in parts for text in part.texts] == [text for number in order for text in texts[number]]
    keys = ("image_indices", "texts", "masks")
    asked = [
        (rank * 4 + int(of), phrase, mask)
        for rank, part in enumerate(parts)
        for of, phrase, mask in zip(*(part.targets["phrases"][key] for key in keys), strict=True)
    ]
    of_alone = zip(*(alone.targets["phrases"][key] for key in keys), strict=True)
    wanted = {(order.index(int(of)), phrase): mask for of, phrase, mask in of_alone}
    assert len(asked) == len(alone.targets["phrases"]["texts"])
    for image, phrase, mask in asked:
        torch.testing.assert_close(mask, wanted[image, phrase], atol=1e-6, rtol=0)


def test_a_text_of_another_study_is_never_the_images_own(studies: Dataset) -> None:
    made = made_of([[f"a{number}", f"b{number}"] for number in range(3)])
    entry = DataEntry(source="x", texts_per_image=2, pairing="random")
    seen = set()
    for number in range(40):
        batch = drawn(made, entry, size=3, number=number)
        for image, texts in texts_by_image(batch).items():
            of = {text[1] for text in texts}
            assert len(of) == 1  # both of one study
            seen.add((batch.ids[image][-1], *of))
    assert seen == {(one, other) for one in "012" for other in "012" if one != other}
    phrases = drawn(studies, replace(ENTRY, pairing="random"))
    for of, phrase in zip(
        phrases.targets["phrases"]["image_indices"], phrases.targets["phrases"]["texts"], strict=True
    ):  # what is asked stays one's own
        facts = next(studies.annotations(n) for n in range(16) if studies.annotations(n).id == phrases.ids[of])
        assert phrase in {one.text for one in facts.sentences}
    with pytest.raises(InputError, match=r"data\.train\[0\]\.pairing 'random' needs at least two studies"):
        drawn(made_of([["a"]]), entry, size=1)


def test_examples_are_asked_the_same_phrase_every_time_and_others_are_not() -> None:
    plain = DataEntry(
        source="phantom?count=12&seed=11",
        cached_studies=12,
        phrases_per_image=1,
        positive_share=1.0,
        other_study_probability=0.3,
    )
    entry = replace(plain, few_shot_studies=4)
    studies = opened(entry)[1]
    assert len(studies) == 4
    asked = defaultdict(set)
    for number in range(12):
        batch = drawn(studies, entry, size=3, number=number)
        for of, phrase, located in zip(
            batch.targets["phrases"]["image_indices"],
            batch.targets["phrases"]["texts"],
            batch.targets["phrases"]["has_mask"],
            strict=True,
        ):
            asked[batch.ids[of]].add((phrase, bool(located)))
    assert len(asked) == 4
    assert all(len(phrases) == 1 for phrases in asked.values())
    changing = defaultdict(set)
    for number in range(12):
        batch = drawn(studies, plain, size=3, number=number)
        for of, phrase in zip(
            batch.targets["phrases"]["image_indices"], batch.targets["phrases"]["texts"], strict=True
        ):
            changing[batch.ids[of]].add(phrase)
    assert max(map(len, changing.values())) > 1


def test_boxes_are_those_of_the_studies_regions_in_their_order(studies: Dataset) -> None:
    batch = drawn(opened(ENTRY, replace(DATA, targets=("regions",)))[1], data=WITH_REGIONS)
    known = {study.id: study for study in make_studies(default_config(), 11, range(16), 64)}
    assert batch.targets["regions"]["boxes"].shape == (8, len(IMAGENOME_REGIONS), 4)
    for name, boxes, boxed in zip(
        batch.ids, batch.targets["regions"]["boxes"], batch.targets["regions"]["present"], strict=True
    ):
        regions = known[name].regions
        assert [region for region, there in zip(IMAGENOME_REGIONS, boxed.tolist(), strict=True) if there] == [
            region for region in IMAGENOME_REGIONS if region in regions
        ]
        for number, region in enumerate(IMAGENOME_REGIONS):
            if region in regions:
                np.testing.assert_allclose(boxes[number].numpy(), regions[region].as_tuple(), atol=1e-5)
    assert set(drawn(studies).targets) == {"phrases"}


@pytest.mark.parametrize("augmentation", [STILL, None])
def test_boxes_are_mirrored_with_the_picture(augmentation: Augmentation | None) -> None:
    boxes = torch.full((2, len(IMAGENOME_REGIONS), 4), torch.nan)
    left, right, heart = (IMAGENOME_REGIONS.index(name) for name in ("left lung", "right lung", "cardiac silhouette"))
    boxes[:, left], boxes[:, heart] = torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([0.5, 0.1, 0.8, 0.4])
    entry = DataEntry(source="x", mirror_pairs=True)
    batch = drawn(made_of([["Left effusion."], ["Gastric tube."]], boxes), entry, size=4, augmentation=augmentation,
                  data=WITH_REGIONS)  # fmt: skip
    for image, name in enumerate(batch.ids):
        turned = image >= 2 and name == "study-0"
        lung = right if turned else left  # its box and its name change sides
        assert batch.targets["regions"]["present"][image].nonzero().flatten().tolist() == sorted([lung, heart])
        wanted = [[0.7, 0.2, 0.9, 0.9], [0.2, 0.1, 0.5, 0.4]] if turned else boxes[0, [left, heart]].tolist()
        np.testing.assert_allclose(batch.targets["regions"]["boxes"][image, [lung, heart]].numpy(), wanted, atol=1e-6)


def test_boxes_that_are_unknown_or_too_narrow_are_not_there_and_others_end_at_the_border() -> None:
    nan = float("nan")
    boxes = torch.full((1, len(IMAGENOME_REGIONS), 4), nan)
    boxes[0, 1:7] = torch.tensor([[0.2, 0.2, 0.205, 0.9], [0.2, 0.5, 0.9, 0.505], [-0.3, 0.1, 0.005, 0.9],
                                  [1.1, 0.1, 1.4, 0.9], [-0.2, 0.3, 0.5, 1.2], [0.2, 0.2, 0.22, 0.22]])  # fmt: skip
    batch = drawn(made_of([["a"]], boxes), DataEntry(source="x"), size=1, data=WITH_REGIONS)
    assert batch.targets["regions"]["present"][0].nonzero().flatten().tolist() == [5, 6]
    np.testing.assert_allclose(batch.targets["regions"]["boxes"][0, 5].numpy(), [0.0, 0.3, 0.5, 1.0], atol=1e-6)
    assert not batch.targets["regions"]["boxes"][0, :5].any()


def test_words_are_hidden_anew_every_time_and_only_in_texts(studies: Dataset) -> None:
    plain = drawn(studies)
    for entry in (replace(ENTRY, word_mask_probability=0.5), replace(ENTRY, entity_mask_probability=0.6)):
        hidden = drawn(studies, entry)
        assert hidden.targets["phrases"]["texts"] == plain.targets["phrases"]["texts"]
        assert same(hidden, drawn(studies, entry))
        changed = sum(one != other for one, other in zip(plain.texts, hidden.texts, strict=True))
        assert changed > 3
        assert sum("[MASK]" in text for text in hidden.texts) == changed
    made = made_of([["Left effusion and a nodule at the right base."]])
    forms = {drawn(made, DataEntry(source="x", word_mask_probability=0.5), 1, number).texts[0] for number in range(12)}
    assert len(forms) > 6
