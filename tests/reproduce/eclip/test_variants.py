"""The variants: their recipes, and what they differ in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rightlung import open_source
from rightlung.models.kinds import class_of
from rightlung.phantom.truth import known_findings
from rightlung.reproduce.eclip.measuring import SELECTIONS
from rightlung.reproduce.eclip.variants import ANNOTATED, MAPS, VARIANTS, expert_slug
from rightlung.reproduce.plan import Plan, recipes_of
from rightlung.reproduce.published import published_in
from rightlung.reproduce.variants import Job, jobs
from rightlung.reproduce.xbench.variants import VARIANTS as XBENCH
from rightlung.training.cache import DiskCache
from rightlung.training.datasets import LoadOptions
from rightlung.training.targets import target_builders
from rightlung.training.weights import build_optimizer

CPU = torch.device("cpu")

KNOWN = {variant.slug: variant for variant in VARIANTS}
PLAN = Plan("eclip", Path("out"))


def test_every_variant_has_a_name_of_its_own_and_a_recipe() -> None:
    assert len(KNOWN) == len(VARIANTS)
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)
    for variant in VARIANTS:
        for quick in (False, True):
            recipes_of(Plan("eclip", Path("out"), quick=quick), Job(variant, 1))


def test_all_variants_of_a_seed_have_the_same_main_stream_and_steps() -> None:
    (host,) = recipes_of(PLAN, Job(KNOWN["clip"], 1)).values()
    for variant in VARIANTS:
        first, *_ = recipes_of(PLAN, Job(variant, 1)).values()
        assert first.seed == host.seed
        assert first.batch_size == host.batch_size
        if not variant.slug.startswith("shortcut-"):
            assert first.data.train[0] == host.data.train[0]
        if not variant.slug.rpartition("-")[2].isdigit() or variant.slug.startswith("map-"):
            assert first.schedule == host.schedule


@pytest.mark.parametrize("kind", MAPS)
def test_a_kind_of_map_changes_the_added_images_only(kind: str) -> None:
    (found,) = recipes_of(PLAN, Job(KNOWN[expert_slug(kind)], 1)).values()
    (gaze,) = recipes_of(PLAN, Job(KNOWN["clip-expert"], 1)).values()
    assert found.data.train[1].expert_map == kind
    assert found.data.train[1].probability == gaze.data.train[1].probability
    assert found.losses == gaze.losses


def test_maps_differ_in_nothing_else() -> None:
    """Not in their texts, for example: then it could be these that help."""
    drawn = []
    for kind in MAPS:
        (recipe,) = recipes_of(PLAN, Job(KNOWN[expert_slug(kind)], 1)).values()
        drawn.append(replace(recipe.data.train[1], expert_map="gaze"))
    assert all(one == drawn[0] for one in drawn)


def test_runs_with_maps_share_one_cache_and_all_share_the_main_one(tmp_path: Path) -> None:
    """Otherwise maps would be made many times."""
    main: set[Path] = set()
    maps: set[Path] = set()
    counted: dict[int | None, set[Path]] = {}
    for variant in VARIANTS:
        *_, recipe = recipes_of(PLAN, Job(variant, 1)).values()
        if variant.slug.startswith("shortcut-"):
            continue
        for entry in recipe.data.train:
            builders = [one.for_entry(entry) for one in target_builders(recipe.data)]
            options = LoadOptions(entry, recipe.data.image_size, recipe.data.mask_grid, builders, CPU, 0)
            folder = DiskCache(tmp_path, open_source(entry.source), entry.cached_studies or 0, options).path
            if not entry.added_images:
                main.add(folder)
            elif entry.expert_map != "none":
                count = entry.cached_studies
                (maps if count == ANNOTATED else counted.setdefault(count, set())).add(folder)
    assert len(main) == 1
    assert len(maps) == 1
    assert {count: len(folders) for count, folders in counted.items()} == {100: 1, 10_000: 1}


def test_three_seeds_are_about_a_hundred_runs() -> None:
    found = [job.slug for job in jobs(VARIANTS, seeds=3)]
    assert (len(VARIANTS), len(found)) == (64, 108)  # docs/eclip.md names both
    assert {"clip-expert-seed3", "gloria-expert-post-seed3", "tied-random-seed3", "map-none-seed3"} <= {*found}
    assert not {"swin-expert-seed2", "map-ones-seed2", "ablation-e-seed2", "shortcut-clip-seed2"} & {*found}


def test_experiments_with_smaller_batches_see_as_many_images() -> None:
    new = recipes_of(PLAN, Job(KNOWN["clip-expert"], 1))[""]
    old = recipes_of(Plan("xbench", Path("out")), Job(next(v for v in XBENCH if v.slug == "eclip"), 1))[""]
    assert (old.schedule.steps, old.batch_size, old.data.train[1].added_images) == (700, 128, 64)
    assert old.schedule.steps * old.batch_size == new.schedule.steps * new.batch_size
    for one, two in zip(old.data.train, new.data.train, strict=True):
        assert old.schedule.steps * one.added_images == new.schedule.steps * two.added_images
        assert one.probability == two.probability
    assert old.ema**2 == pytest.approx(new.ema, abs=1e-5)


def test_a_processor_without_parameters_has_no_learning_rate_of_its_own() -> None:
    """Training refuses a factor that no parameter has."""
    (recipe,) = recipes_of(PLAN, Job(KNOWN["ablation-mask"], 1)).values()
    model = class_of("eclip").create(dict(recipe.model.config), ["no effusion"], 0)
    build_optimizer(dict(model.named_parameters()), recipe.optimizer)


def test_every_step_of_a_quick_run_is_an_expert_step() -> None:
    for variant in VARIANTS:
        *_, recipe = recipes_of(Plan("eclip", Path("out"), quick=True), Job(variant, 1)).values()
        assert all(entry.probability == 1.0 for entry in recipe.data.train)


def test_synthetic_studies_have_all_classes_of_the_selections() -> None:
    """A class without studies would leave out its whole selection."""
    for selection in SELECTIONS.values():
        assert {*selection.classes} <= {*known_findings()}
    assert len(SELECTIONS["12x"].classes) == 12


def test_the_last_step_of_the_ablation_is_eclip() -> None:
    (whole,) = recipes_of(PLAN, Job(KNOWN["clip-expert"], 1)).values()
    (before,) = recipes_of(PLAN, Job(KNOWN["ablation-e-m-c"], 1)).values()
    (first,) = recipes_of(PLAN, Job(KNOWN["ablation-e"], 1)).values()
    assert "priming" in whole.losses
    assert dict(before.losses) == {"contrastive": 1.0}
    assert before.data == whole.data
    assert first.model.config["expert"]["mixup_alpha"] == 0.0
    assert first.data.train[1].probability == 1.0


def test_published_models_are_variants_or_rows_of_the_hosts_with_one_seed() -> None:
    published = published_in("rightlung.reproduce.eclip")
    assert {name.rpartition("-")[0] or name for name in published.models.keys() - KNOWN.keys()} <= {
        f"{host}{method}" for host in ("swin", "vit-s", "vit-b") for method in ("", "-expert")
    }
