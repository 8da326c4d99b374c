"""The variants of "That's the Wrong Lung!" differ from the recipe they are derived from in what they are named for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from rightlung.core.settings import plain_settings, read_settings
from rightlung.models.encoders import ImageEncoder, train_tokenizer
from rightlung.models.gloria import Gloria, GloriaConfig
from rightlung.models.uniter import Uniter
from rightlung.models.uniter.config import UniterConfig
from rightlung.reproduce.wrong_lung.variants import VARIANTS
from rightlung.training.recipe import Recipe, differing_fields
from rightlung.training.recipe_file import read_recipe, shipped_recipes

BASE = "wrong-lung-retrained"
ENTRY = "data.train[0]"


def losses(**weights: float) -> dict[str, Any]:
    return {"losses": weights}


SIDED = {
    "model.config.attention.softmax_over_words": False,
    "model.config.attention.similarity": "cosine",
    "model.config.attention.temperature": 10.0,
    "model.config.attention.learn_temperature": True,
    "model.config.image.position_embeddings": True,
    "model.config.heatmap_from": "sentence",
    "model.config.image.options.depths": [1, 1, 2, 2],
    **losses(**{"sentence": 1.0, "global": 1.0, "hard_negative_ranking": 8.0, "hard_negative_overlap": 4.0}),
    f"{ENTRY}.mirror_pairs": True,
    f"{ENTRY}.paired_text": "abnormal-first",
}
CHANGED: dict[str, dict[str, Any]] = {
    "abnormal": {f"{ENTRY}.paired_text": "abnormal"},
    "clinical-masking": {f"{ENTRY}.entity_mask_probability": 0.5},
    "word-masking": {f"{ENTRY}.word_mask_probability": 0.3},
    "no-attn": {"model.config.attention.no_attention_token": True},
    "rand-sents": {f"{ENTRY}.pairing": "random"},
    "one-softmax": {"model.config.attention.softmax_over_words": False},
    "sided": SIDED,
    "sided-without-mirror": SIDED | {f"{ENTRY}.mirror_pairs": False},
    "sided-abstaining": SIDED
    | {"model.config.attention.no_attention_token": True}
    | losses(
        **{
            "sentence": 1.0,
            "global": 1.0,
            "hard_negative_ranking": 8.0,
            "hard_negative_overlap": 4.0,
            "hard_negative_abstention": 1.0,
        }
    ),
    "sided-without-positions": SIDED | {"model.config.image.position_embeddings": False},
    "sided-without-small-regions": SIDED | {"model.config.image.options.depths": [2, 2, 2, 2]},
    "sided-without-abnormal-first": SIDED | {f"{ENTRY}.paired_text": "sentence"},
    "sided-without-sides": SIDED | losses(**{"sentence": 1.0, "global": 1.0, "hard_negative_overlap": 4.0}),
    "sided-without-apart": SIDED | losses(**{"sentence": 1.0, "global": 1.0, "hard_negative_ranking": 8.0}),
    "sided-without-sentence": SIDED
    | {"model.config.contrastive_hard_negatives": True, "model.config.heatmap_from": "words"}
    | losses(**{"local": 1.0, "global": 1.0}),
}
FEW_SHOT = {
    "model.kind", "model.config", "model.start", "losses", "optimizer.learning_rate", "schedule.steps",
    "schedule.warmup_steps", "schedule.final_learning_rate_factor", "schedule.patience", "batch_size", "ema",
    f"{ENTRY}.source", f"{ENTRY}.cached_studies", f"{ENTRY}.texts_per_image", f"{ENTRY}.phrases_per_image",
    f"{ENTRY}.few_shot_studies",
    f"{ENTRY}.positive_share",
}  # fmt: skip


def differences(one: Recipe, other: Recipe) -> set[str]:
    """The fields that differ; within the model's configuration, with its defaults written out, one by one."""
    found = set(differing_fields(one, other)) - {"model.config"}
    configs = [plain_settings(read_settings(GloriaConfig, recipe.model.config)) for recipe in (one, other)]
    return found | set(_unlike(configs[0], configs[1], "model.config"))


def _unlike(one: Any, other: Any, place: str) -> list[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return [path for name in {*one, *other} for path in _unlike(one.get(name), other.get(name), f"{place}.{name}")]
    return [] if one == other else [place]


def value_at(recipe: Recipe, path: str) -> Any:
    value: Any = plain_settings(recipe)
    if path.startswith("model.config."):
        value, path = (
            plain_settings(read_settings(GloriaConfig, recipe.model.config)),
            path.removeprefix("model.config."),
        )
    for step in path.replace("[0]", ".0").split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_a_variant_differs_from_its_base_in_what_it_is_named_for_and_in_nothing_else(name: str) -> None:
    base, recipe = read_recipe(BASE), read_recipe(f"wrong-lung-{name}")
    wanted = {path: value for path, value in CHANGED[name].items() if value_at(base, path) != value}
    assert differences(base, recipe) == set(wanted)
    for path, value in wanted.items():
        assert value_at(recipe, path) == value, path


def test_few_shots_differ_from_each_other_in_the_targets_alone_and_from_the_base_in_how_they_go_on() -> None:
    names = ("retrained", "thirty-shot", "thirty-shot-exact")
    base, regions, exact = (read_recipe(f"wrong-lung-{name}") for name in names)
    assert differing_fields(regions, exact) == [f"{ENTRY}.phrase_masks", "data.validation.phrase_masks"]
    found = differing_fields(base, exact)
    assert {path for path in found if not path.startswith(("augmentation.", "data.validation."))} == FEW_SHOT
    (entry,), judged = regions.data.train, regions.data.validation
    assert judged is not None
    assert (entry.few_shot_studies, entry.phrases_per_image, entry.phrase_masks) == (30, 1, "regions")
    assert (judged.few_shot_studies, judged.phrases_per_image, judged.phrase_masks, judged.every) == (
        30,
        1,
        "regions",
        1,
    )
    assert entry.source != judged.source  # 30 others
    assert (regions.schedule.steps, regions.schedule.patience) == (500, 25)
    assert dict(regions.losses) == {"attention_in_mask": 1.0}
    settings = plain_settings(regions.augmentation)
    assert all(value == 0 for name, value in settings.items() if not name.startswith(("mirror", "cutout_count")))
    assert regions.augmentation.mirrored_share == 0
    assert (regions.model.kind, regions.model.start) == (None, BASE)


def test_uniter_sees_the_same_studies_as_often_with_one_text_an_image() -> None:
    base, uniter = read_recipe(BASE), read_recipe("wrong-lung-uniter")
    alike = {
        "data.size",
        "data.mask_grid",
        "schedule.steps",
        "batch_size",
        "gradient_accumulation",
        "seed",
        f"{ENTRY}.source",
    }
    alike |= {f"{ENTRY}.cached_studies", "data.validation.source", "data.validation.every", "optimizer.name"}
    assert not alike & set(differing_fields(base, uniter))
    assert uniter.data.train[0].texts_per_image == 1
    assert uniter.data.targets == ("regions",)


@pytest.mark.parametrize(("name", "pixels"), [("sided", 51), ("retrained", 99)])
def test_regions_see_as_many_pixels_as_the_documentation_says(name: str, pixels: int) -> None:
    config = read_settings(GloriaConfig, read_recipe(f"wrong-lung-{name}").model.config)
    encoder = ImageEncoder(config.image, config.dimension).eval()
    picture = torch.rand(1, 1, config.image.size, config.image.size, requires_grad=True)
    levels, _ = encoder._encode(picture)
    levels[config.image.pyramid_levels[0]][0, :, 9, 9].sum().backward()  # type: ignore[no-untyped-call]
    assert picture.grad is not None
    rows = picture.grad[0, 0].any(dim=1).nonzero()
    assert int(rows.max() - rows.min()) + 1 == pixels


def test_every_variant_has_a_recipe_and_every_such_recipe_is_a_variant() -> None:
    shipped = {name for name in shipped_recipes() if name.startswith("wrong-lung-") and not name.endswith("-paper")}
    assert {variant.recipe for variant in VARIANTS} == shipped
    assert {name.removeprefix("wrong-lung-") for name in shipped} == {
        *CHANGED, "retrained", "thirty-shot", "thirty-shot-exact", "uniter",
    }  # fmt: skip


def _size(module: nn.Module) -> int:
    return sum(weights.numel() for weights in module.parameters())


def test_gloria_at_the_papers_scale_is_a_resnet_50_and_a_bert_base_with_19_by_19_regions() -> None:
    given = plain_settings(read_recipe("wrong-lung-retrained-paper").model.config)
    assert given["image"].pop("pretrained") == "microsoft/resnet-50"
    assert given["text"].pop("pretrained") == "emilyalsentzer/Bio_ClinicalBERT"
    given["image"]["options"] = {"num_channels": 3}  # what the two folders say: a ResNet-50 for colours,
    given["text"]["options"] = {"vocab_size": 28_996, "max_position_embeddings": 512}  # and a BERT-base, cased
    with torch.device("meta"):
        model = Gloria(read_settings(GloriaConfig, given), train_tokenizer(["left lung"] * 2))
    assert model.image_encoder.grid == (19, 19)
    # torchvision's resnet50 without its classifier
    assert _size(model.image_encoder.backbone) == 25_557_032 - 2_049_000
    # BERT-base, cased, is 108,310,272; of these 590,592 are the pooling layer, which nothing reads.
    assert _size(model.text_encoder.backbone) == 108_310_272 - 590_592
    assert model.config.attention.softmax_over_words


def test_uniter_at_the_papers_scale_is_a_bert_base_over_regions_of_45_by_45_pixels() -> None:
    recipe = read_recipe("wrong-lung-uniter-paper")
    given = plain_settings(recipe.model.config)
    assert given.pop("pretrained") == "bert-base-cased"
    given["options"] = {"vocab_size": 28_996, "max_position_embeddings": 512}
    with torch.device("meta"):
        model = Uniter(read_settings(UniterConfig, given), train_tokenizer(["left lung"] * 2))
    bert = model.encoder.backbone.config
    assert (bert.num_hidden_layers, bert.num_attention_heads) == (12, 12)
    assert _size(model.encoder.backbone) + _size(model.encoder.token_embedder) == 108_310_272 - 590_592
    assert (model.config.region_size, model.config.feature_size) == (45, 2048)
    assert (recipe.schedule.steps, recipe.gradient_accumulation) == (200_000, 5)
