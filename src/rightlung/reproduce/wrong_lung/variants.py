"""The variants of "That's the Wrong Lung!" and ours, its perturbations and its subsets (sections 3.1, 3.2)."""

from __future__ import annotations

from rightlung.reproduce.variants import QUICK_FEW_SHOTS, QUICK_POOLS, Job, Variant
from rightlung.results.measured import Perturbation

SUBSETS = ("all", "abnormal", "one-lung", "mdrb")
SUBSET_TITLES = {"all": "All", "abnormal": "Abnormal", "one-lung": "One Lung", "mdrb": "MDRB"}
TARGET_TITLES = {"regions": "region boxes", "exact": "exact masks"}

PERTURBATIONS = (
    Perturbation("swap-sides", "Swap Left Right", "one-lung", condition="swap-sides"),
    Perturbation("shuffle", "Shuffle in Report", "mdrb", target="shuffled"),
    Perturbation("random-sentence", "Random Sentences", "abnormal", condition="random-sentence"),
    Perturbation("random-boxes", "Random BBoxes", "abnormal", target="random"),
    Perturbation(
        "synthetic-swapped", "Synth w/ Swapped Conditions", "abnormal", condition="synthetic-swapped", plain="synthetic"
    ),
    Perturbation("exchange-image", "another patient's image (ours)", "abnormal", condition="exchange-image"),
)
"""The paper's five, and ours. Swapped conditions are compared with the synthetic sentence they are made from."""


def _variant(slug: str, name: str, group: str, note: str, **more: object) -> Variant:
    recipe = "wrong-lung-" + slug.removeprefix("retrained-")
    return Variant(slug, name, group, note, recipe, **more)  # type: ignore[arg-type]  # checked by the tests


def _ablation(slug: str, name: str, note: str = "an ablation") -> Variant:
    return _variant(f"sided-without-{slug}", name, "ours", note, ablation=True)


GLORIA = Variant("gloria", "GLoRIA (released weights)", "paper", "as published by its authors", recipe="")
RETRAINED = _variant("retrained", "GLoRIA Retrained", "paper", "two softmaxes, as in the released code")
VARIANTS: tuple[Variant, ...] = (
    RETRAINED,
    _variant("retrained-one-softmax", "Retrained, one softmax", "paper", "the paper's Eq. 1"),
    _variant("word-masking", "+Word Masking", "paper", "30 % of the words masked"),
    _variant("clinical-masking", "+Clinical Masking", "paper", "50 % of the clinical entities masked (lexicon)"),
    _variant("no-attn", '+"No Attn" Token', "paper", "has a no-attention token"),
    _variant("abnormal", "+Abnormal", "paper", "abnormal sentences only", picks=True),
    _variant("thirty-shot", "+30-shot Finetuned", "paper", "attention trained on 30 region boxes", start=RETRAINED),
    _variant("thirty-shot-exact", "+30-shot, exact masks", "ours", "the same with exact masks", start=RETRAINED),
    _variant("rand-sents", "+Rand Sents", "paper", "sentences of other studies: nothing to learn"),
    _variant("uniter", "UNITER", "paper", "given the true region boxes", comparable=False),
    _variant("sided", "+Sided", "ours", "matches a sentence with its best region; uses mirror images"),
    _variant("sided-abstaining", "+Sided, abstaining", "ours", "with a no-attention token, trained to use it"),
    _ablation("mirror", "+Sided without mirror images"),
    _ablation("sides", "+Sided without exchanged sides"),
    _ablation("apart", "+Sided without maps apart"),
    _ablation("positions", "+Sided without positions"),
    _ablation("small-regions", "+Sided without small regions"),
    _ablation("abnormal-first", "+Sided without abnormal first"),
    _ablation("sentence", "+Sided, word by word", "GLoRIA's local loss instead"),
)


def quick_changes(job: Job) -> list[str]:
    """Return recipe changes that make a run take a second: a tiny model, few studies and steps. It learns nothing."""
    shared = ["data.image_size=64", "data.mask_grid=16", "data.workers=0"]
    if job.variant.start is not None:
        places = (("data.train[0]", 21), ("data.validation", 22))
        pools = [
            change
            for place, seed in places
            for change in (
                f"{place}.source=phantom?count={QUICK_FEW_SHOTS}&seed={seed}",
                f"{place}.cached_studies={QUICK_FEW_SHOTS}",
                f"{place}.few_shot_studies=8",
            )
        ]  # fmt: skip
        return [*shared, "schedule={steps: 4, patience: 3}", "batch_size=8", *pools]
    tiny = "{hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 32}"
    model = [
        "model.config.image_size=64", f"model.config.options={tiny}", "model.config.vocab_size=300",
    ] if job.variant.slug == "uniter" else [
        "model.config.image.size=64", f"model.config.text.options={tiny}", "model.config.text.vocab_size=300",
        "model.config.image.options={embedding_size: 8, hidden_sizes: [8, 8, 16, 16], depths: [1, 1, 1, 1], "
        "layer_type: basic}", "model.config.dimension=16",
    ]  # fmt: skip
    train, validation = QUICK_POOLS["train"], QUICK_POOLS["validation"]
    return [
        *model, *shared, "schedule.steps=4", "schedule.warmup_steps=1", "batch_size=16",
        f"data.train[0].source=phantom?count={train}&seed=11", f"data.train[0].cached_studies={train}",
        f"data.validation.source=phantom?count={validation}&seed=12", f"data.validation.cached_studies={validation}",
        "data.validation.every=2", "data.validation.grounded_phrases=8",
    ]  # fmt: skip
