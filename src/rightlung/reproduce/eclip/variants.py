"""The variants of eCLIP: the rows of its Table 1, its ablation, the curves of its Figure 1, and the value of a map.

All variants of a seed see the same main batches and start from the same weights, so that they are paired exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rightlung.reproduce.variants import QUICK_POOLS, Group, Job, Variant
from rightlung.training.recipe_file import read_stages

METHODS = {
    "": ("", "the host alone"),
    "naive": ("+ naive", "expert images at every step, without mixup or curriculum"),
    "naive-plain": ("+ naive, plain", "the annotated studies without their maps at every step"),
    "dacl": ("+ DACL", "two mixtures of images; each is mostly itself"),
    "m3": ("+ m³-mix", "mixed images and texts as hard negatives and as soft targets"),
    "expert": ("+ expert", "eCLIP: simulated gaze on 1,080 studies"),
    "continued": ("continued", "trained for half as long again; the control of the next row"),
    "expert-post": ("+ expert, post-trained", "eCLIP^P: the trained host goes on with expert images"),
}
"""The rows of Table 1, for each host: label and note. The published table has neither of the controls."""
RELEASED = {"dacl-released": ("+ DACL, as released", "mixtures may be mostly another image; twins are negatives")}
ONE_SEED = ("", "dacl", "m3", "expert")
"""The rows of the hosts that have one seed only."""
HOSTS = {"clip": "CLIP, ResNet", "gloria": "GLoRIA, ResNet", "swin": "CLIP, Swin", "vit-s": "CLIP, ViT-S",
         "vit-b": "CLIP, ViT-B"}  # fmt: skip
"""Small encoders of these kinds; the first two have all rows and seeds, the others four rows with one seed."""
ENCODERS = {
    "swin": "{kind: swin, size: 128, pooling: mean, options: {embed_dim: 32, depths: [2, 2, 2], "
    "num_heads: [2, 4, 8], window_size: 4}}",
    "vit-s": "{kind: vit, size: 128, pooling: mean, options: {patch_size: 16, hidden_size: 128, "
    "num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 384}}",
    "vit-b": "{kind: vit, size: 128, pooling: mean, options: {patch_size: 16, hidden_size: 256, "
    "num_hidden_layers: 6, num_attention_heads: 8, intermediate_size: 768}}",
}
ABLATION = {
    "mask": ("⊙Mask, E", "image times map; no mixup, curriculum or priming"),
    "cnn": ("CNN, E", "a small convolutional processor; no mixup, curriculum or priming"),
    "e": ("attention, E", "no mixup, curriculum or priming"),
    "e-m": ("attention, E, M", "with mixup"),
    "e-m-c": ("attention, E, M, C", "with mixup and curriculum"),
}
"""The steps of the ablation; E, M, C and P (expert, mixup, curriculum, priming) together are ``clip-expert``."""
_E = ("data.train[1].probability=1.0", "losses={contrastive: 1.0}")
_M = ("model.config.expert.mixup_alpha=0.0",)
_ABLATED = {
    "mask": (*_E, *_M, "model.config.expert.processor=mask", "optimizer.learning_rate_factors={}"),  # no parameters
    "cnn": (*_E, *_M, "model.config.expert.processor=cnn"),
    "e": (*_E, *_M),
    "e-m": _E,
    "e-m-c": ("losses={contrastive: 1.0}",),
}
MAPS = {
    "sentence-mask": "exact mask of the sentence",
    "study-masks": "masks of all findings",
    "sentence-gaze": "gaze on what the sentence says",
    "gaze": "gaze of the whole study",
    "gaze-jitter": "gaze, jittered",
    "gaze-offset": "gaze, displaced",
    "gaze-short": "gaze, first two seconds",
    "normal-scan": "path over the anatomy only",
    "other-patient": "another patient's gaze",
    "random": "random fixations",
    "ones": "ones",
    "none": "no map",
}
"""The quality ladder, best first. ``gaze`` is ``clip-expert``; with ``none``, the images are added without any map."""
KINDS = [kind for kind in MAPS if kind != "none"]
LADDER = ("sentence-mask", "gaze", "random", "none")
"""The kinds of maps with all seeds; the others have one."""
ANNOTATED = 1080
NUMBERS = (100, ANNOTATED, 10_000)
COUNTED = ("sentence-mask", "gaze", "random")
"""The maps whose number is varied."""
STEPS, ALL_STEPS = (90, 175), 350
"""Of the shorter runs of Figure 1, and of the others."""
SMALL_BATCHES = (
    "schedule={steps: 700, warmup_steps: 70}", "batch_size=128", "ema=0.998", "optimizer.learning_rate=1e-3",
    "checkpoint_every=350", "log_every=50",
)  # fmt: skip
"""The recipes with as many images in twice as many steps, for experiments that were run so; `SMALL_EXPERT_BATCHES`."""
SMALL_EXPERT_BATCHES = "data.train[1].added_images=64"
EFFICIENCY = ("clip", "clip-dacl", "clip-expert")
SHORTCUT, STRENGTH = "marker:pneumonia", 0.9
"""A planted word, present in 95 % of the studies with pneumonia and 5 % of the others."""
TIED = {
    "mask": ("sentence-mask", "exact masks", "+ tied with the exact mask of the sentence"),
    "random": ("random", "random fixations", "control of + tied: random fixations"),
    "ones": ("ones", "ones", "control of + tied: maps of ones"),
}
"""Other maps for + tied: kind, label and note. The last two are controls and have all seeds."""


def _recipe(host: str, method: str) -> tuple[str, tuple[str, ...]]:
    """Return the recipe of a row of Table 1 and its changes."""
    base = "eclip-gloria" if host == "gloria" else "eclip-clip"
    changes = (f"model.config.image={ENCODERS[host]}",) if host in ENCODERS else ()
    return f"{base}-{method}" if method else base, changes


def _table_1() -> Iterator[Variant]:
    for host, title in HOSTS.items():
        whole = host not in ENCODERS
        methods = METHODS | (RELEASED if host == "clip" else {})
        for method, (label, note) in methods.items():
            if (not whole and method not in ONE_SEED) or (host, method) == ("gloria", "naive-plain"):
                continue
            recipe, changes = _recipe(host, method)
            slug, name = f"{host}-{method}".strip("-"), f"{title} {label}".strip()
            seeds = None if whole and method not in RELEASED else 1
            yield Variant(slug, name, "paper", note, recipe, max_seeds=seeds, changes=changes)
        if whole:
            note = "ours: the plain image is drawn to the expert one, and its map to the gaze on what the sentence says"
            yield Variant(f"{host}-tied", f"{title} + tied", "ours", note, _recipe(host, "tied")[0])


def _ours(
    slug: str, name: str, note: str, changes: Sequence[str], recipe: str = "eclip-clip-expert", seeds: int | None = 1
) -> Variant:
    group: Group = "ours"
    return Variant(slug, name, group, note, recipe, ablation=True, max_seeds=seeds, changes=tuple(changes))


def expert_slug(kind: str, number: int = ANNOTATED) -> str:
    """Return the slug of the run with maps of a kind for so many studies."""
    if number == ANNOTATED:
        return "clip-expert" if kind == "gaze" else f"map-{kind}"
    return f"map-{kind}-{number}"


def expert_changes(kind: str, number: int = ANNOTATED) -> list[str]:
    """Return the changes of ``eclip-clip-expert`` for maps of another kind, or for another number of them.

    Nothing else changes: the texts are those of all kinds.
    """
    source = f'data.train[1].source="phantom?count={number}&seed=21"'
    return [f"data.train[1].expert_map={kind}", source, f"data.train[1].cached_studies={number}"]


def _maps() -> Iterator[Variant]:
    for kind, title in MAPS.items():
        if kind != "gaze":
            seeds = None if kind in LADDER else 1
            name, note = f"eCLIP, {title}", "1,080 maps of another kind"
            yield _ours(expert_slug(kind), name, note, expert_changes(kind), seeds=seeds)
    for kind in COUNTED:
        for number in NUMBERS:
            if number != ANNOTATED:
                name, note = f"eCLIP, {MAPS[kind]}, {number:,}", f"{number:,} annotated studies"
                yield _ours(expert_slug(kind, number), name, note, expert_changes(kind, number))


def _tied() -> Iterator[Variant]:
    for slug, (kind, label, note) in TIED.items():
        changes, seeds = [f"data.train[1].expert_map={kind}"], 1 if slug == "mask" else None
        yield _ours(f"tied-{slug}", f"CLIP + tied, {label}", note, changes, "eclip-clip-tied", seeds)


def _shorter() -> Iterator[Variant]:
    for slug in EFFICIENCY:
        for steps in STEPS:
            changes = [f"schedule={{steps: {steps}, warmup_steps: {steps // 10}}}"]
            yield _ours(f"{slug}-{steps}", f"{slug}, {steps} steps", "shorter training", changes, f"eclip-{slug}")


def _shortcuts() -> Iterator[Variant]:
    for slug in ("clip", "clip-expert", "clip-tied"):
        changes = [f'data.train[0].source="phantom?count=16000&seed=21&shortcut={SHORTCUT}={STRENGTH}"']
        if slug != "clip":
            changes.append(f'data.train[1].source="phantom?count=1080&seed=21&shortcut={SHORTCUT}={STRENGTH}"')
        name = {"clip": "CLIP", "clip-expert": "eCLIP", "clip-tied": "eCLIP, tied"}[slug]
        note = "trained with a planted word for pneumonia"
        yield _ours(f"shortcut-{slug}", f"{name}, planted shortcut", note, changes, f"eclip-{slug}")


def _sharing_maps(variant: Variant) -> Variant:
    """Return a variant whose maps of all kinds are cached together, so that they are made once for all variants."""
    *_, (stage, last) = read_stages(variant.recipe, variant.changes).items()
    if not any(entry.expert_map not in (None, "none") for entry in last.data.train):
        return variant
    kinds = KINDS if last.data.train[1].cached_studies == ANNOTATED else COUNTED
    change = f"data.target_options={{expert: {{kinds: [{', '.join(kinds)}]}}}}"
    return replace(variant, changes=(*variant.changes, f"{stage}:{change}" if stage else change))


VARIANTS: tuple[Variant, ...] = tuple(map(_sharing_maps, (
    *_table_1(),
    *(Variant(f"ablation-{slug}", name, "paper", note, "eclip-clip-expert", ablation=True, max_seeds=1,
              changes=_ABLATED[slug])
      for slug, (name, note) in ABLATION.items()),
    *_maps(),
    *_tied(),
    *_shorter(),
    *_shortcuts(),
)))  # fmt: skip


_TINY_IMAGES = {
    "resnet": "{embedding_size: 8, hidden_sizes: [8, 8, 16, 16], depths: [1, 1, 1, 1], layer_type: basic}",
    "swin": "{embed_dim: 8, depths: [1, 1], num_heads: [1, 2], window_size: 2}",
    "vit": "{patch_size: 16, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16}",
}
_TINY_TEXT = "{hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16}"


def quick_changes(job: Job) -> list[str]:
    """Return recipe changes that make a run take seconds: a tiny model, few studies and steps. It learns nothing.

    Expert images are in every step.
    """
    stages = read_stages(job.variant.recipe, job.variant.changes)
    first, *_ = stages
    last = list(stages.values())[-1]
    of_first = f"{first}:" if first else ""  # a later stage has the model of the first
    studies, source = QUICK_POOLS["train"], f"phantom?count={QUICK_POOLS['train']}&seed=11"
    changes = [
        "data.image_size=64", "data.mask_grid=8", "data.workers=0", f'data.train[0].source="{source}"',
        f"data.train[0].cached_studies={studies}", "schedule.steps=2", "schedule.warmup_steps=0", "batch_size=8",
        "precision=32-true", "ema=0", "log_every=1",
    ]  # fmt: skip
    if any(entry.added_images for entry in last.data.train):
        changes += [
            f'data.train[1].source="{source}"', f"data.train[1].cached_studies={studies}",
            "data.train[1].added_images=4", "data.train[1].probability=1.0",
        ]  # fmt: skip
    model = [
        "image.size=64", f"image.options={_TINY_IMAGES[stages[first].model.config['image']['kind']]}", "dimension=16",
        "text.vocab_size=200", "text.summed_layers=1", f"text.options={_TINY_TEXT}",
    ]  # fmt: skip
    return [*changes, *(f"{of_first}model.config.{change}" for change in model)]
