"""Expert streams: added images leave the main batches alone, the curriculum, and maps that stay on their lesions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rightlung.core import Box, Heatmap, InputError, Mask, Phrase, Polarity, Study
from rightlung.core.gaze import gaze_map
from rightlung.models.preprocessing import letterbox
from rightlung.phantom.gaze import SCAN
from rightlung.studies.sources import open_source, parse_address
from rightlung.training.annotations import annotate_study
from rightlung.training.augmentation import Augmentation, apply_params, move_boxes, move_masks, sample_params
from rightlung.training.batches import Batches, Mixture
from rightlung.training.clahe import clahe
from rightlung.training.curves import value_at
from rightlung.training.datasets import CachedDataset, Dataset, LoadedStudies, LoadOptions, SourceDataset
from rightlung.training.expert_maps import KINDS, MapMaker, MapSettings
from rightlung.training.recipe import Data, DataEntry, Recipe
from rightlung.training.recipe_file import read_recipe, read_stages, shipped_recipes
from rightlung.training.setup import check_patients, open_studies
from rightlung.training.targets.base import RaggedTensor, StudyFrame, select_studies
from rightlung.training.targets.expert import ExpertTargets
from tests.training.recipes import final_weights, run, same
from tests.training.test_batches import opened

CPU = torch.device("cpu")
MAIN = DataEntry(source="phantom?count=12&seed=11", cached_studies=12, texts_per_image=2)
ADDED = DataEntry(
    source="phantom?count=6&seed=11", cached_studies=6, added_images=3, expert_map="gaze", probability=0.5
)
CHANGES = "rotation scale shift shear brightness contrast gamma noise blur cutout"
STILL = Augmentation(**dict.fromkeys(CHANGES.split(), 0.0))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def streams() -> list[tuple[DataEntry, Dataset]]:
    data = Data(train=(MAIN, ADDED), image_size=64, mask_grid=16, workers=0)
    return [opened(MAIN, data), opened(ADDED, data)]


def batches(streams: list[tuple[DataEntry, Dataset]], **settings: Any) -> Batches:
    data = Data(train=tuple(entry for entry, _ in streams), image_size=64, mask_grid=16, workers=0)
    return Batches(streams, 4, 7, CPU, Augmentation(mirror="words"), data=data, total_batches=40, **settings)


def test_main_batches_are_the_same_with_and_without_expert_images(streams: list[tuple[DataEntry, Dataset]]) -> None:
    alone, both = batches(streams[:1]), batches(streams)
    every = batches([streams[0], (replace(ADDED, probability=1.0), streams[1][1])])
    sizes = []
    for number in range(8):
        one, other, always = alone.batch_at(number), both.batch_at(number), every.batch_at(number)
        sizes.append(len(other))
        assert len(one) == 4
        assert len(always) == 7
        for found in (other, always):
            assert torch.equal(found.images[:4], one.images)
            assert list(found.texts[:8]) == list(one.texts)
            assert list(found.ids[:4]) == list(one.ids)
            assert found.seed == one.seed
        added = other.targets["expert"]["image_indices"]
        assert added == list(range(4, len(other)))
    assert set(sizes) == {4, 7}


def test_a_resumed_run_draws_the_same_expert_steps(streams: list[tuple[DataEntry, Dataset]]) -> None:
    in_turn = list(batches(streams).iterate(0, 8))
    resumed = list(batches(streams).iterate(5, 8))
    for one, other in zip(in_turn[5:], resumed, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.targets["expert"]["maps"], other.targets["expert"]["maps"])
        assert (list(one.texts), one.seed) == (list(other.texts), other.seed)


def test_processes_add_images_of_their_own(streams: list[tuple[DataEntry, Dataset]]) -> None:
    two = [batches(streams, rank=rank, world_size=2) for rank in range(2)]
    number = next(number for number in range(20) if two[0].mixture.global_counts(number)[1])
    assert two[0].mixture.global_counts(number) == [8, 6]
    ids = [list(one.batch_at(number).ids[4:]) for one in two]
    assert [len(own) for own in ids] == [3, 3]
    assert set(ids[0]).isdisjoint(ids[1])  # six studies, each once


@pytest.mark.parametrize("name", ["eclip-clip-expert", "eclip-gloria-expert", "eclip-swin-t"])
def test_the_curriculum_has_durations_and_not_borders(name: str) -> None:
    curve = read_recipe(name).data.train[1].probability
    places = {0.0: 0.0, 0.1: 0.0, 0.1001: 0.5 * 0.0001 / 0.3, 0.25: 0.25, 0.4: 0.5, 0.6: 0.3, 0.8: 0.1, 1.0: 0.1}
    for place, expected in places.items():
        assert value_at(curve, place) == pytest.approx(expected, abs=1e-9)
    entries = [MAIN, replace(ADDED, probability=curve)]
    mixture = Mixture(entries, 4, (1, "train"), "all", 10_000)
    steps = np.array([mixture.global_counts(number)[1] > 0 for number in range(10_000)])
    assert not steps[:1000].any()
    for begin, end in ((1000, 4000), (4000, 8000), (8000, 10_000)):
        mean = np.mean([value_at(curve, number / 10_000) for number in range(begin, end)])
        assert steps[begin:end].mean() == pytest.approx(mean, abs=0.03)


@pytest.mark.parametrize("name", ["eclip-swin-t", "eclip-vit-s", "eclip-vit-b", "eclip-resnet-50", "eclip-released"])
def test_at_the_papers_scale_gaze_is_of_training_patients_and_validation_of_others(name: str) -> None:
    data = read_recipe(name).data
    for entry in data.train:
        assert parse_address(entry.source).parameters["split"] == "train"
    assert parse_address(data.train[1].source).parameters["splits"] == "mimic"
    assert data.validation is not None
    assert parse_address(data.validation.source).parameters["split"] == "validate"


def test_the_released_curriculum_jumps_to_its_lowest_probability() -> None:
    curve = read_recipe("eclip-released").data.train[1].probability
    assert [value_at(curve, place) for place in (0.0, 0.05, 0.1, 0.4, 0.8)] == pytest.approx([0, 0, 0.05, 0.5, 0.05])


def test_priming_ends_with_the_cold_start() -> None:
    recipe = read_recipe("eclip-clip-expert")
    cold = recipe.schedule.steps // 10
    weights = [recipe.loss_weights(step) for step in (0, cold - 1, cold, recipe.schedule.steps - 1)]
    assert [one["priming"] for one in weights] == pytest.approx([0.1, 0.1, 0.0, 0.0])
    assert [one["contrastive"] for one in weights] == pytest.approx([0.9, 0.9, 1.0, 1.0])


def test_all_small_variants_of_a_host_have_the_same_main_entry_and_schedule() -> None:
    own: dict[str, Recipe] = {}
    for name in shipped_recipes():
        if name.startswith(("eclip-clip", "eclip-gloria")):
            own[name] = next(iter(read_stages(name).values()))
    assert len(own) == 24
    first = own["eclip-clip"]
    for recipe in own.values():
        assert recipe.data.train[0] == first.data.train[0]
        assert (recipe.schedule, recipe.batch_size, recipe.seed) == (first.schedule, first.batch_size, first.seed)
        assert (recipe.augmentation, recipe.ema, recipe.precision) == (first.augmentation, first.ema, first.precision)


# ------------------------------------------------------------------------------------------------------------- maps


def spotted(x: float = 0.3, y: float = 0.6, **changed: Any) -> Study:
    """A wide image with a bright spot, gaze and a mask on it, and a scan of the rest."""
    rows, columns = np.mgrid[0:40, 0:80]
    spot = (rows / 40 - y) ** 2 / 0.01 + (columns / 80 - x) ** 2 / 0.0025 < 1
    path = [(0.8, 0.2, 0.3), (x, y, 1.0), (x, y, 1.0), (0.5, 0.5, 0.3)]
    settings: dict[str, Any] = {
        "id": "s1",
        "load": lambda: np.where(spot, 1.0, 0.1).astype(np.float32),
        "patient": "p1",
        "phrases": (
            Phrase("a nodule in the right lung", (), Mask(spot), findings={"nodule": Polarity.POSITIVE}),
            Phrase("no effusion", findings={"pleural effusion": Polarity.NEGATIVE}),
        ),
        "gaze": gaze_map(path),
        "extra": {"fixations": path, "fixation_subjects": [SCAN[0], "lesion 0", "lesion 0", SCAN[1]]},
    }
    return Study(**(settings | changed))


def maker(study: Study, grid: int = 32, **settings: float) -> MapMaker:
    return MapMaker(study, StudyFrame(64, grid, letterbox(study.image, 64)[1]), MapSettings(**settings))


def place(values: torch.Tensor) -> tuple[float, float]:
    """The middle of the values above half of their maximum, x and y."""
    rows, columns = torch.nonzero(values > 0.5 * values.max(), as_tuple=True)
    return (float(columns.float().mean()) + 0.5) / len(values), (float(rows.float().mean()) + 0.5) / len(values)


# In the letterboxed square, y = 0.6 of the image lies at 0.25 + 0.6 / 2.
@pytest.mark.parametrize("kind", ["sentence-mask", "study-masks", "sentence-gaze", "gaze"])
def test_a_map_lies_on_its_lesion_in_the_letterboxed_square(kind: str) -> None:
    made = maker(spotted()).make(kind)
    assert made.whole is not None
    assert float(made.whole.max()) == 1.0
    assert place(made.whole) == pytest.approx((0.3, 0.55), abs=0.02)
    if kind.startswith("sentence"):
        assert list(made.of_sentences) == ["a nodule in the right lung"]
        assert place(made.of_sentences["a nodule in the right lung"]) == pytest.approx((0.3, 0.55), abs=0.02)


def test_gaze_of_a_sentence_leaves_out_the_scan_and_a_normal_scan_the_lesion() -> None:
    made = maker(spotted())
    lesion, scan = made.make("sentence-gaze").of_sentences["a nodule in the right lung"], made.make("normal-scan").whole
    whole = made.make("gaze").whole
    assert scan is not None
    assert whole is not None
    station = (11, 25)  # y = 0.25 + 0.2 / 2 and x = 0.8 of 32 cells
    spot = (17, 9)
    assert float(lesion[station]) < 0.01 < float(whole[station])
    assert float(scan[spot]) < 0.01 < float(whole[spot])


def test_recorded_gaze_belongs_to_the_phrase_that_is_dictated_meanwhile() -> None:
    path = [(0.3, 0.6, 1.0), (0.8, 0.2, 1.0)]
    extra = {
        "fixations": path, "fixation_starts": [1.0, 5.0],
        "timed_phrases": [("a nodule", 0.5, 2.0), ("no effusion.", 4.0, 6.0)],
    }  # fmt: skip
    made = maker(spotted(extra=extra)).make("sentence-gaze").of_sentences
    assert place(made["a nodule in the right lung"]) == pytest.approx((0.3, 0.55), abs=0.02)
    assert place(made["no effusion"]) == pytest.approx((0.8, 0.35), abs=0.02)


def test_changed_gaze() -> None:
    one = spotted(extra={"fixations": [(0.5, 0.5, 1.5), (0.9, 0.5, 1.0), (0.1, 0.5, 5.0)], "fixation_subjects": None})
    short = maker(one, seconds=2.0).make("gaze-short").whole
    assert short is not None
    assert float(short[:, 25:].max()) > 0.3 > 0.01 > float(short[:, :8].max())  # the third begins after 2.5 seconds
    single = spotted(extra={"fixations": [(0.5, 0.5, 1.0)]})
    moved = maker(single, offset=0.2).make("gaze-offset").whole
    assert moved is not None
    x, y = place(moved)
    assert np.hypot(x - 0.5, 2 * (y - 0.5)) == pytest.approx(0.2, abs=0.04)
    many = spotted(extra={"fixations": [(0.5, 0.5, 1.0)] * 200})
    jittered, still = maker(many, jitter=0.1).make("gaze-jitter").whole, maker(many).make("random").whole
    assert jittered is not None
    assert still is not None
    wide = float((jittered > 0.1).float().mean())
    assert 0.04 < wide < float((still > 0.1).float().mean())
    assert torch.equal(jittered, maker(many, jitter=0.1).make("gaze-jitter").whole)  # type: ignore[arg-type]


def test_boxes_become_gaussians_and_ones_and_noise_say_nothing() -> None:
    boxed = spotted(phrases=(Phrase("mass", (Box(0.2, 0.4, 0.4, 0.8),)),), gaze=None, extra={})
    made = maker(boxed)
    gaussian = made.make("boxes").whole
    assert gaussian is not None
    assert place(gaussian) == pytest.approx((0.3, 0.55), abs=0.02)
    expected = np.exp(-0.5 * ((12.5 / 32 - 0.3) / (0.2 / 4)) ** 2)  # a quarter of the box's side is one deviation
    assert float(gaussian[17, 12]) == pytest.approx(expected, abs=0.05)
    assert torch.equal(made.make("ones").whole, torch.ones(32, 32))  # type: ignore[arg-type]
    noise = made.make("noise").whole
    assert noise is not None
    assert 0.45 < float(noise.mean()) < 0.55
    nothing = maker(spotted(phrases=(), gaze=None)).make("study-masks")
    assert nothing.nothing_to_see
    assert torch.equal(nothing.whole, torch.ones(32, 32))  # type: ignore[arg-type]


def test_the_simulated_reader_says_what_each_fixation_rests_on() -> None:
    for study in open_source("phantom?count=4&seed=2&size=64"):
        subjects = study.extra["fixation_subjects"]
        assert len(subjects) == len(study.extra["fixations"])
        for (x, y, _), subject in zip(study.extra["fixations"], subjects, strict=True):
            if subject.startswith("lesion"):
                mask = study.extra["lesion_masks"][int(subject.split()[1])].pixels
                assert mask[min(63, int(y * 64)), min(63, int(x * 64))]
            else:
                assert subject in (*SCAN, "device")


def cached(*studies: Study, kind: str, size: int = 64, grid: int = 32) -> CachedDataset:
    builder: Any = ExpertTargets().for_entry(replace(ADDED, expert_map=kind))  # type: ignore[arg-type]
    known = [annotate_study(study) for study in studies]
    squares = [letterbox(study.image, size) for study in studies]
    built = [
        builder.build(study, annotations, StudyFrame(size, grid, square[1]))
        for study, (annotations, _), square in zip(studies, known, squares, strict=True)
    ]
    columns: dict[str, Any] = {
        f"expert/{name}": RaggedTensor.of(torch.cat([one[name] for one in built]), [len(one[name]) for one in built])
        for name in (f"{kind}/maps", f"{kind}/matches")
    }
    columns |= {f"expert/{name}": [one[name] for one in built] for name in (f"{kind}/rows", "patient")}
    images = torch.stack([(square * 255).round().to(torch.uint8) for square, _ in squares])
    return CachedDataset(LoadedStudies(images, grid, columns), [annotations for annotations, _ in known])


@pytest.mark.parametrize("kind", ["sentence-mask", "sentence-gaze"])
@pytest.mark.parametrize(
    "augmentation",
    [
        replace(STILL, rotation=40.0),
        replace(STILL, mirror="words", mirror_probability=1.0),
        replace(STILL, crop=0.5),
        replace(STILL, shift=0.2, scale=0.3, shear=0.2, crop=0.3, rotation=20.0, mirror="words"),
    ],
)
def test_a_peak_stays_on_its_lesion(kind: str, augmentation: Augmentation) -> None:
    entry = DataEntry(source="x", added_images=6, expert_map=kind, paired_text="abnormal")  # type: ignore[arg-type]
    main = DataEntry(source="y")
    studies = cached(spotted(), spotted(0.6, 0.3, id="s2"), kind=kind)
    data = Data(train=(main, entry), image_size=64, mask_grid=32, workers=0)
    drawn = Batches([(main, studies), (entry, studies)], 2, 3, CPU, augmentation, data=data)
    checked = 0
    for number in range(2):
        batch = drawn.batch_at(number)
        target = batch.targets["expert"]
        assert target["image_indices"] == [2, 3, 4, 5, 6, 7]
        for image, values, matches in zip(batch.images[2:, 0], target["maps"], target["matches_text"], strict=True):
            bright = image > 0.6
            inside = bright[2:-2, 2:-2].sum() == bright.sum() > 20  # not cut by the border
            if inside and bool(matches):
                assert place(values) == pytest.approx(place(image), abs=0.04)
                checked += 1
    assert checked >= 4


def test_kinds_that_are_cached_together_have_the_maps_of_each_alone(tmp_path: Path) -> None:
    changes = ["data.target_options.expert.kinds=[gaze, random, sentence-mask]", f"data.cache_folder={tmp_path}"]
    source, shown = "phantom?count=12&seed=5", lambda *_: lambda _: None
    for kind in ("gaze", "random", "sentence-mask"):
        added = replace(ADDED, source=source, cached_studies=12, expert_map=kind)
        alone = read_recipe("eclip-clip-expert", ["data.image_size=64", "data.mask_grid=16"])
        together = read_recipe("eclip-clip-expert", ["data.image_size=64", "data.mask_grid=16", *changes])
        found = [open_studies(added, recipe.data, CPU, shown, "data") for recipe in (alone, together)]
        one, other = (next(studies.load([range(12)])).columns[f"expert/{kind}/maps"] for studies in found)
        assert isinstance(one, RaggedTensor)
        assert isinstance(other, RaggedTensor)
        assert torch.equal(one.values, other.values)
        assert one.counts == other.counts
    assert len([folder for folder in tmp_path.iterdir() if folder.is_dir()]) == 1  # shared by the three


def test_another_patients_map_is_of_another_patient_in_the_batch() -> None:
    first, second = spotted(), spotted(0.7, 0.3, id="s2", patient="p2")
    entry = DataEntry(source="x", added_images=4, expert_map="other-patient")
    main = DataEntry(source="y")
    studies = cached(first, second, kind="other-patient")
    data = Data(train=(main, entry), image_size=64, mask_grid=32, workers=0)
    batch = Batches([(main, studies), (entry, studies)], 2, 3, CPU, data=data).batch_at(0)
    for image, values in zip(batch.images[2:, 0], batch.targets["expert"]["maps"], strict=True):
        assert abs(place(image)[0] - place(values)[0]) > 0.3
    lonely = cached(first, replace(second, patient="p1"), kind="other-patient")
    with pytest.raises(InputError, match="two patients in every batch"):
        Batches([(main, lonely), (entry, lonely)], 2, 3, CPU, data=data).batch_at(0)


def test_crops_keep_masks_and_boxes_on_their_place_and_clahe_spreads_grey_values() -> None:
    params = sample_params(
        (3, 1, 64, 64), replace(STILL, crop=0.5), torch.Generator().manual_seed(0), torch.arange(3), 3, CPU
    )
    assert params.crop is not None
    assert bool((params.crop[:, :2].prod(1) >= 0.49).all())
    pixels = torch.zeros(3, 1, 64, 64)
    pixels[:, :, 28:36, 24:32] = 1.0
    seen, masks = apply_params(pixels, params), move_masks(pixels, params)
    boxes = move_boxes(torch.tensor([[24 / 64, 28 / 64, 32 / 64, 36 / 64]]).repeat(3, 1), params, torch.arange(3))
    for image, mask, box in zip(seen, masks, boxes, strict=True):
        middle = ((box[:2] + box[2:]) / 2).tolist()
        assert place(image[0]) == pytest.approx(middle, abs=0.02)
        assert place(mask[0]) == pytest.approx(middle, abs=0.02)
    grey = 0.4 + 0.1 * torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    assert float(clahe(grey).std()) > 2 * float(grey.std())
    levels = (grey * 63).round()
    ranks = (levels.flatten()[:, None] >= levels.flatten()[None]).float().mean(1).view_as(grey)
    torch.testing.assert_close(clahe(grey, tiles=1, limit=100.0), ranks)  # one tile without limit: plain equalisation


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.train[0].expert_map=gaze"], r"data\.train\[0\]\.expert_map needs data\.train\[0\]\.added_images"),
        (["data.train[0].added_images=4"], "needs an entry without added_images"),
        (["data.train[1].share=0.5"], r"data\.train\[1\]\.share has no effect"),
        (["data.train[1].expert_map=gaz"], "gaz"),
        (["data.train[1].expert_map=sentence-gaze", "data.train[1].texts_per_image=2"], "needs one sentence"),
        (["data.targets=[expert]", "data.train[1].expert_map=null"], r"expert needs data\.train\[\.\.\.\]\.expert_map"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused(changes: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_recipe("eclip-clip-expert", changes)


def entries(source: str, **settings: Any) -> str:
    given = ", ".join(f"{name}: {value}" for name, value in settings.items())
    main = '{source: "phantom?count=8&seed=11", cached_studies: 8}'
    return f'data.train=[{main}, {{source: "{source}", added_images: 2, {given}}}]'


@pytest.fixture(scope="module")
def unmapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two images without gaze or boxes, and one whose gaze is zero everywhere."""
    from PIL import Image as Picture

    folder = tmp_path_factory.mktemp("plain")
    rows = []
    for number in range(2):
        Picture.fromarray(np.full((64, 64), 100, dtype=np.uint8)).save(folder / f"{number}.png")
        rows.append(f'{{"id": "r{number}", "file": "{number}.png", "patient": "r{number}", "text": "left effusion."}}')
    (folder / "manifest.jsonl").write_text("\n".join(rows) + "\n")
    yield f"manifest:{folder}"
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gaze", r"data\.train\[1\]\.expert_map: gaze: no study of manifest:.* has a gaze map"),
        ("boxes", r"data\.train\[1\]\.expert_map: boxes: no study of manifest:.* has a phrase with a box"),
        ("gaze-short", "has fixations"),
    ],
)
def test_an_expert_stream_without_maps_is_refused(unmapped: str, kind: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        run(tmp_path, entries(unmapped, expert_map=kind))


def test_an_expert_stream_with_patients_of_the_validation_is_refused(tmp_path: Path) -> None:
    validation = 'data.validation={source: "phantom?count=4&seed=11&start=6", cached_studies: 4}'
    with pytest.raises(InputError, match=r"data\.train\[1\]\.source: .* of the patients of phantom.*start=6"):
        run(tmp_path, entries("phantom?count=8&seed=11", expert_map="ones"), validation)
    check_patients("phantom?count=8&seed=11", "phantom?count=8&seed=12", "experts")
    with pytest.raises(InputError, match=r"experts: .* evaluated on"):
        check_patients("phantom?count=8&seed=11", "phantom?count=2&seed=11", "experts")
    check_patients("phantom?count=8&seed=11", "phantom?count=2&seed=11&start=6", "experts", studies=2)


def test_a_gaze_map_of_zeros_and_a_negative_one_are_refused() -> None:
    with pytest.raises(InputError, match="study 's1': its expert map is zero everywhere"):
        maker(spotted(gaze=Heatmap(np.zeros((4, 4))))).make("gaze")
    for value in (-1.0, np.nan):
        with pytest.raises(InputError, match="finite and non-negative"):
            spotted(gaze=Heatmap(np.full((4, 4), value)))


def test_every_kind_of_map_has_a_line_in_the_documentation() -> None:
    told = (Path(__file__).parents[2] / "docs" / "eclip.md").read_text(encoding="utf-8")
    for kind in KINDS:
        assert f"`{kind}`" in told


def test_a_run_with_expert_steps_can_be_interrupted(tmp_path: Path) -> None:
    expert = entries("phantom?count=6&seed=11", cached_studies=6, expert_map="ones", probability=0.5)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    changes = (expert, "losses={global: 1.0}")
    run(whole, *changes)
    run(parts, *changes)
    for file in (parts / "run" / "checkpoints").glob("*-00000008*"):
        file.unlink()
    for name in ("model", "finished.json"):
        target = parts / "run" / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    run(parts, *changes, resume=True)
    assert same(final_weights(whole / "run"), final_weights(parts / "run"))


def test_studies_read_together_are_those_read_one_by_one() -> None:
    entry = replace(ADDED, expert_map="sentence-mask")
    source = open_source(f"{entry.source}&size=64")
    data = SourceDataset(source, LoadOptions(entry, 64, 16, [ExpertTargets(map="sentence-mask")], CPU, 0))
    (together,) = data.load([range(6)])
    annotated = data.cached(6, lambda _: None)
    for number, one in enumerate(data.load([[number] for number in range(6)])):
        alone, among = annotate_study(source[number]), annotated.annotations(number)
        assert alone[0] == among
        assert torch.equal(one.images[0], together.images[number])
        for name, column in one.columns.items():
            shared = select_studies(together.columns[name], [number])
            if isinstance(column, RaggedTensor):
                assert isinstance(shared, RaggedTensor)
                assert torch.equal(column.concatenated(), shared.concatenated())
            else:
                assert column == shared
