"""The variants of ChEX: the model, and the ablations of its Tables 3 and 4."""

from __future__ import annotations

from rightlung.reproduce.variants import QUICK_POOLS, Job, Variant


def _variant(slug: str, name: str, note: str, max_seeds: int | None = 1) -> Variant:
    recipe = "chex-phantom" if slug == "chex" else f"chex-{slug}"
    return Variant(slug, name, "paper", note, recipe, ablation=slug != "chex", max_seeds=max_seeds)


VARIANTS: tuple[Variant, ...] = (
    _variant("chex", "ChEX", "all tokens and targets", max_seeds=None),
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


def quick_changes(job: Job) -> list[str]:
    """Return recipe changes that make a run take seconds: a tiny model, few studies and steps. It learns nothing."""
    tiny = "{hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16}"
    image = (
        "{kind: resnet, size: 64, pyramid_levels: [1], options: {embedding_size: 8, hidden_sizes: [8, 8, 16, 16], "
        "depths: [1, 1, 1, 1], layer_type: basic}}"
    )
    decoder = "{layers: 1, heads: 2, hidden_size: 16}"
    studies = QUICK_POOLS["train"]
    source = f"'phantom?count={studies}&seed=11'"
    train = f"{{source: {source}, cached_studies: {studies}, texts_per_image: 3, phrases_per_image: 3}}"
    return [
        "data.image_size=64", "data.mask_grid=8", "data.workers=0", f"data.train=[{train}]", "schedule={steps: 2}",
        "batch_size=8", "precision=32-true", "ema=0", "log_every=1",
        f"encoders:model.config.image={image}", "encoders:model.config.dimension=16",
        f"encoders:model.config.text={{vocab_size: 200, max_length: 24, summed_layers: 1, options: {tiny}}}",
        f"detector:model.config.detector={decoder}", f"detector:model.config.post_decoder={decoder}",
        "detector:model.config.generator.vocab_size=200", "detector:model.config.generator.max_length=24",
        "detector:model.config.generator.options={n_embd: 16, n_layer: 1, n_head: 2}",
    ]  # fmt: skip
