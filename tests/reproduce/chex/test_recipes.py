"""The ablations learn from what Table 3 ticks, and have the generators of Table 4."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightlung.reproduce.chex.variants import FINDINGS, GENERATORS, TOKENS_AND_TARGETS, VARIANTS
from rightlung.reproduce.plan import Plan, recipe_digest, recipes_of, stage_digests, stage_folders
from rightlung.reproduce.variants import Job, jobs
from rightlung.training.recipe import Recipe
from rightlung.training.recipe_file import read_stages

STAGES = ("encoders", "detector", "post-decoder", "language", "generator")
TICKED = {  # pathology boxes, pathology classes, anatomy boxes, anatomy classes, anatomy sentences, sentences
    "chex": "111111",
    "p-only": "11----",
    "a-only": "--111-",
    "s-only": "-----1",
    "no-p": "--1111",
    "no-a": "11---1",
    "no-s": "11111-",
    "no-box": "-1-111",
    "no-cls": "1-1-11",
    "no-sent": "1111--",
}
AFTERWARDS = ("p-only", "no-sent")
"""Variants whose generator learns from regions and sentences afterwards (the daggers of Table 3)."""
BASELINES = (
    "detr", "classifier", "mil-adpd", "loc-adpd", "clip", "clip-cropped", "retrieval", "reporter", "image-blind",
    "transvg",
)  # fmt: skip
DETECTOR = ("pathology_detection", "pathology_contrastive", "anatomy_detection", "anatomy_contrastive")


def recipe_name(slug: str) -> str:
    return next(variant.recipe for variant in VARIANTS if variant.slug == slug)


def learnt(recipe: Recipe) -> dict[str, float]:
    """Return the losses that count, with their weights."""
    return {name: weight for name, weight in recipe.loss_weights(0).items() if weight}


def job(slug: str, seed: int = 1) -> Job:
    return Job(next(variant for variant in VARIANTS if variant.slug == slug), seed)


@pytest.mark.parametrize("slug", TICKED)
def test_the_detector_and_the_generator_learn_from_what_is_ticked(slug: str) -> None:
    stages, ticks = read_stages(recipe_name(slug)), [tick == "1" for tick in TICKED[slug]]
    assert tuple(stages) == STAGES
    detector, generator = learnt(stages["detector"]), learnt(stages["generator"])
    assert [name in detector for name in DETECTOR] == ticks[:4]
    sentences = {"sentence_contrastive", "global_contrastive"}
    assert sentences & detector.keys() == (sentences if ticks[5] else set())
    afterwards = slug in AFTERWARDS
    assert ("anatomy_generation" in generator) == (ticks[4] or afterwards)
    assert ("sentence_generation" in generator) == (ticks[5] or afterwards)
    weights = read_stages(recipe_name("chex"))
    for stage in ("detector", "post-decoder", "generator"):  # what is left has the weights that it had, and no other
        assert learnt(stages[stage])
        assert learnt(stages[stage]).items() <= learnt(weights[stage]).items()
        assert stages[stage].losses.keys() == weights[stage].losses.keys()


def test_without_boxes_no_stage_uses_a_box_or_mask() -> None:
    stages = read_stages(recipe_name("no-box"))
    assert [*learnt(stages["encoders"])] == ["global"]
    for stage in ("post-decoder", "generator"):
        config = stages[stage].model.config
        assert (config["box_queries"], config["both_queries"]) == (0, 0)


def test_generators_differ_in_what_they_are_named_for() -> None:
    def prefix(slug: str, stage: str) -> object:
        return read_stages(recipe_name(slug))[stage].model.config.get("prefix")

    assert prefix("chex", "detector") == {"length": 5, "hidden_size": 64}
    for slug, changed in (("linear-projection", {"hidden_size": 0}), ("layer-shared", {"shared": True}),
                          ("prefix-1", {"length": 1})):  # fmt: skip
        assert prefix(slug, "generator") == changed
        assert read_stages(recipe_name(slug))["generator"].model.kind == "chex"
    assert tuple(read_stages(recipe_name("no-text-pretraining"))) == tuple(
        name for name in STAGES if name != "language"
    )
    bare = read_stages(recipe_name("no-post-decoder"))
    assert "post-decoder" not in bare
    assert all(
        "post_decoder" not in bare[stage].model.config["trained"] for stage in ("detector", "language", "generator")
    )


def test_every_variant_has_a_place_in_the_tables_and_the_planned_seeds() -> None:
    ablations = {variant.slug for variant in VARIANTS if variant.ablation}
    assert ablations | {"chex"} == {*TOKENS_AND_TARGETS, *GENERATORS}
    assert {variant.slug for variant in VARIANTS} - ablations - {"chex"} == {*BASELINES}
    counted = [one.variant.slug for one in jobs(VARIANTS, seeds=3)]
    three = {variant.slug for variant in VARIANTS if counted.count(variant.slug) == 3}
    assert three == {"chex", "no-box", "a-only", "no-sent"}
    assert len(counted) == 4 * 3 + 11 + len(BASELINES)


def test_runs_that_begin_alike_share_their_first_stages(tmp_path: Path) -> None:
    plan = Plan("chex", tmp_path)
    whole, others = stage_digests(plan, job("chex")), {slug: stage_digests(plan, job(slug)) for slug in TICKED}
    for slug, digests in others.items():
        assert (digests["encoders"] == whole["encoders"]) == (slug != "no-box")
    assert others["no-s"]["detector"] == others["no-sent"]["detector"] != whole["detector"]
    shorter = stage_digests(plan, job("no-text-pretraining"))
    assert [shorter[name] == whole[name] for name in shorter] == [True, True, True, False]
    assert not {*stage_digests(plan, job("chex", 2)).values()} & {*whole.values()}
    folders, recipes = stage_folders(plan, job("no-text-pretraining")), recipes_of(plan, job("no-text-pretraining"))
    assert recipes["generator"].model.start == str(folders["post-decoder"].model)
    assert folders["post-decoder"].path == stage_folders(plan, job("chex"))["post-decoder"].path
    assert folders["generator"].path == tmp_path / "runs" / "no-text-pretraining" / "generator"
    assert recipe_digest(plan, job("chex")) == whole["generator"]
    assert list(stage_digests(plan, job("prefix-1")).values())[:-1] == list(whole.values())[:-1]
    assert stage_digests(plan, job("prefix-1"))["generator"] != whole["generator"]


@pytest.mark.parametrize("slug", BASELINES)
def test_baselines_have_the_data_findings_and_image_encoder_of_chex(slug: str) -> None:
    chex = read_stages(recipe_name("chex"))
    (recipe,) = list(read_stages(recipe_name(slug)).values())[:1]
    encoders, detector = chex["encoders"], chex["detector"]
    assert (recipe.data.image_size, recipe.data.mask_grid) == (encoders.data.image_size, encoders.data.mask_grid)
    ((own,), (other,)) = recipe.data.train, encoders.data.train
    assert (own.source, own.cached_studies) == (other.source, other.cached_studies)
    assert own == other or slug == "transvg"  # which learns from asserted phrases only
    assert {*recipe.data.targets} - {"report"} == {*encoders.data.targets}
    assert (recipe.augmentation, recipe.precision) == (encoders.augmentation, encoders.precision)
    assert {**encoders.model.config["image"]}.items() <= recipe.model.config["image"].items()
    known = {**recipe.model.config}.get("findings", FINDINGS)
    assert tuple(known) == FINDINGS == tuple(detector.model.config["findings"])
    options = {name: value for name, value in recipe.data.target_options.items() if name != "phrases"}
    assert options == dict(encoders.data.target_options)
    assert all(tuple(one["findings"]) == FINDINGS for one in options.values())
