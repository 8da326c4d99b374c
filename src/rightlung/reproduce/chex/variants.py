"""The variants of ChEX: the model, the ablations of its Tables 3 and 4, and the baselines of its Tables 7 to 14."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rightlung.reproduce.chex.baselines import CroppedClip, fit_blind, retrieve_sentences
from rightlung.reproduce.variants import QUICK_POOLS, Job, Variant

FINDINGS = (
    "atelectasis", "cardiomegaly", "consolidation", "edema", "emphysema", "enlarged cardiomediastinum", "fracture",
    "hernia", "lung lesion", "lung opacity", "mass", "nodule", "pleural effusion", "pleural thickening", "pneumonia",
    "pneumothorax", "support devices",
)  # fmt: skip
"""The findings that all models learn and are asked for."""


def _variant(slug: str, name: str, note: str, max_seeds: int | None = 1) -> Variant:
    recipe = "chex-phantom" if slug == "chex" else f"chex-{slug}"
    return Variant(slug, name, "paper", note, recipe, ablation=slug != "chex", max_seeds=max_seeds)


def _baseline(slug: str, name: str, note: str) -> Variant:
    return Variant(slug, name, "paper", note, f"chex-{slug}", max_seeds=1)


def _made(slug: str, name: str, note: str, derive: Callable[..., Any], start: Variant | None = None) -> Variant:
    recipe, group = ("chex-phantom", "reference") if start is None else (start.recipe, "paper")
    return Variant(slug, name, group, note, recipe, start, max_seeds=1, derive=derive)  # type: ignore[arg-type]


_CLIP = _baseline("clip", "CLIP", "contrastive; boxes from similarity maps, pooled patches of regions")
VARIANTS: tuple[Variant, ...] = (
    _variant("chex", "ChEX", "all tokens and targets", max_seeds=None),
    _baseline("detr", "Conditional DETR", "supervised detection, trained on boxes of findings"),
    _baseline("transvg", "TransVG", "supervised grounding, trained on sentences with boxes"),
    _baseline("classifier", "classifier", "weakly supervised; boxes from class activation maps"),
    _baseline("mil-adpd", "MIL-ADPD", "weakly supervised; boxes of regions, findings of images"),
    _baseline("loc-adpd", "Loc-ADPD", "weakly supervised; boxes and findings of regions"),
    _CLIP,
    _made("clip-cropped", "CLIP, cropped", "CLIP on crops of regions", CroppedClip.of, _CLIP),
    _made("retrieval", "CLIP, retrieval", "the nearest sentences of training studies", retrieve_sentences, _CLIP),
    _baseline("reporter", "report generator", "generative; reports without regions"),
    _made(
        "image-blind",
        "image-blind",
        "median boxes, frequencies of findings, frequent texts of training studies",
        fit_blind,
    ),
    _variant("no-box", "no boxes", "no boxes of findings or regions", max_seeds=None),
    _variant("a-only", "anatomy only", "anatomy tokens only", max_seeds=None),
    _variant("no-sent", "no sentences", "detector without sentences; generator trained afterwards", max_seeds=None),
    _variant("p-only", "P-only", "pathology tokens only; generator trained afterwards"),
    _variant("s-only", "S-only", "sentence tokens only"),
    _variant("no-p", "No-P", "no pathology tokens"),
    _variant("no-a", "No-A", "no anatomy tokens"),
    _variant("no-s", "No-S", "no sentence tokens"),
    _variant("no-cls", "No cls", "no labels of findings"),
    _variant("no-post-decoder", "no post decoder", "the generator sees the detector's features"),
    _variant("linear-projection", "linear projection", "of a region to the prefix, instead of an MLP"),
    _variant("layer-shared", "layer-shared projection", "the same prefix for all layers"),
    _variant("prefix-1", "prefix length 1", "one token instead of five"),
    _variant("no-text-pretraining", "no text pretraining", "of the language model"),
)
TOKENS_AND_TARGETS = ("chex", "p-only", "a-only", "s-only", "no-p", "no-a", "no-s", "no-box", "no-cls", "no-sent")
"""The columns of Table 3."""
GENERATORS = ("chex", "no-post-decoder", "linear-projection", "layer-shared", "prefix-1", "no-text-pretraining")
"""The rows of Table 4."""

_IMAGE = (
    "{kind: resnet, size: 64, pyramid_levels: [1], options: {embedding_size: 8, hidden_sizes: [8, 8, 16, 16], "
    "depths: [1, 1, 1, 1], layer_type: basic}}"
)
_TINY = "{hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16}"
_TEXT = f"{{vocab_size: 200, max_length: 24, summed_layers: 1, options: {_TINY}}}"
_DECODER = "{layers: 1, heads: 2, hidden_size: 16}"
_QUICK_MODELS: Mapping[str, tuple[str, ...]] = {
    "chex-clip": (f"image={_IMAGE[:-1]}, pooling: mean}}", "dimension=16", f"text={_TEXT}"),
    "chex-detr": ("options={num_queries: 5, d_model: 16, encoder_layers: 1, decoder_layers: 1, "
        "encoder_attention_heads: 2, decoder_attention_heads: 2, encoder_ffn_dim: 16, decoder_ffn_dim: 16}",),
    "chex-transvg": ("dimension=16", "layers=1", "heads=2", "hidden_size=16", f"text={_TEXT}"),
    "chex-loc-adpd": ("dimension=16", f"detector={_DECODER}"),
    "chex-mil-adpd": ("dimension=16", f"detector={_DECODER}"),
    "chex-reporter": ("text.vocab_size=200", "text.max_length=24", "text.options={n_embd: 16, n_layer: 1, n_head: 2}"),
}  # fmt: skip
"""Changes of model.config, besides the image encoder, that make a baseline tiny."""


def quick_changes(job: Job) -> list[str]:
    """Return recipe changes that make a run take seconds: a tiny model, few studies and steps. It learns nothing."""
    studies = QUICK_POOLS["train"]
    source = f"'phantom?count={studies}&seed=11'"
    train = f"{{source: {source}, cached_studies: {studies}, texts_per_image: 3, phrases_per_image: 3}}"
    general = [
        "data.image_size=64", "data.mask_grid=8", "data.workers=0", f"data.train=[{train}]", "schedule={steps: 2}",
        "batch_size=8", "precision=32-true", "ema=0", "log_every=1",
    ]  # fmt: skip
    if job.variant.recipe in _QUICK_MODELS or job.variant.recipe == "chex-classifier":
        own = (f"image={_IMAGE}", *_QUICK_MODELS.get(job.variant.recipe, ()))
        return general + [f"model.config.{change}" for change in own]
    return [
        *general, f"encoders:model.config.image={_IMAGE}", "encoders:model.config.dimension=16",
        f"encoders:model.config.text={_TEXT}", f"detector:model.config.detector={_DECODER}",
        f"detector:model.config.post_decoder={_DECODER}",
        "detector:model.config.generator.vocab_size=200", "detector:model.config.generator.max_length=24",
        "detector:model.config.generator.options={n_embd: 16, n_layer: 1, n_head: 2}",
    ]  # fmt: skip
