"""The variants: their recipes, and what they differ in."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightlung.reproduce.eclip.claims import CLAIMS
from rightlung.reproduce.eclip.variants import MAPS, VARIANTS, expert_slug
from rightlung.reproduce.plan import Plan, recipes_of
from rightlung.reproduce.published import published_in
from rightlung.reproduce.variants import Job

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


def test_the_last_step_of_the_ablation_is_eclip() -> None:
    (whole,) = recipes_of(PLAN, Job(KNOWN["clip-expert"], 1)).values()
    (before,) = recipes_of(PLAN, Job(KNOWN["ablation-e-m-c"], 1)).values()
    (first,) = recipes_of(PLAN, Job(KNOWN["ablation-e"], 1)).values()
    assert "priming" in whole.losses
    assert dict(before.losses) == {"contrastive": 1.0}
    assert before.data == whole.data
    assert first.model.config["expert"]["mixup_alpha"] == 0.0
    assert first.data.train[1].probability == 1.0


def test_claims_compare_variants_that_exist() -> None:
    assert {name for claim in CLAIMS for name in (claim.first, claim.second)} <= KNOWN.keys()


def test_published_models_are_variants() -> None:
    published = published_in("rightlung.reproduce.eclip")
    assert published.models.keys() <= KNOWN.keys()
    assert len(published.values) == 96
