"""The variants of eCLIP: the rows of its Table 1, its ablation, the curves of its Figure 1, and the value of a map.

All variants of a seed see the same main batches and start from the same weights, so that they are paired exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rightlung.reproduce.variants import QUICK_POOLS, Group, Job, Variant

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
HOSTS = {"clip": "CLIP, ResNet", "gloria": "GLoRIA, ResNet", "swin": "CLIP, Swin", "vit-s": "CLIP, ViT-S",
         "vit-b": "CLIP, ViT-B"}  # fmt: skip
"""Small encoders of these kinds; the first two have all seeds, the others one."""
_ENCODERS = {
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
    "mask": (*_E, *_M, "model.config.expert.processor=mask"),
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
ANNOTATED = 1080
NUMBERS = (100, ANNOTATED, 10_000)
COUNTED = ("sentence-mask", "gaze", "random")
"""The maps whose number is varied."""
STEPS = (90, 180, 350)
"""Of the shorter runs of Figure 1; the others have 700."""
EFFICIENCY = ("clip", "clip-dacl", "clip-expert")
SHORTCUT, STRENGTH = "marker:pneumonia", 0.9
"""A planted word, present in 95 % of the studies with pneumonia and 5 % of the others."""


def _recipe(host: str, method: str) -> tuple[str, tuple[str, ...]]:
    """Return the recipe of a row of Table 1 and its changes."""
    base = "eclip-gloria" if host == "gloria" else "eclip-clip"
    changes = (f"model.config.image={_ENCODERS[host]}",) if host in _ENCODERS else ()
    return f"{base}-{method}" if method else base, changes


def _table_1() -> Iterator[Variant]:
    for host, title in HOSTS.items():
        methods = METHODS | (RELEASED if host == "clip" else {})
        for method, (label, note) in methods.items():
            recipe, changes = _recipe(host, method)
            slug, name = f"{host}-{method}".strip("-"), f"{title} {label}".strip()
            yield Variant(slug, name, "paper", note, recipe, max_seeds=1 if changes else None, changes=changes)
        if host in ("clip", "gloria"):
            note = "ours: the plain image is drawn to the expert one, and its map to the gaze on what the sentence says"
            yield Variant(f"{host}-tied", f"{title} + tied", "ours", note, _recipe(host, "tied")[0])


def _ours(slug: str, name: str, note: str, changes: Sequence[str], recipe: str = "eclip-clip-expert") -> Variant:
    group: Group = "ours"
    return Variant(slug, name, group, note, recipe, ablation=True, changes=tuple(changes))


def expert_slug(kind: str, number: int = ANNOTATED) -> str:
    """Return the slug of the run with maps of a kind for so many studies."""
    if number == ANNOTATED:
        return "clip-expert" if kind == "gaze" else f"map-{kind}"
    return f"map-{kind}-{number}"


def expert_changes(kind: str, number: int = ANNOTATED) -> list[str]:
    """Return the changes of ``eclip-clip-expert`` for maps of another kind, or for another number of them."""
    source = f'data.train[1].source="phantom?count={number}&seed=21"'
    sentences = ["data.train[1].paired_text=sentence"] if kind.startswith("sentence-") else []
    return [f"data.train[1].expert_map={kind}", source, f"data.train[1].cached_studies={number}", *sentences]


def _maps() -> Iterator[Variant]:
    for kind, title in MAPS.items():
        if kind != "gaze":
            yield _ours(expert_slug(kind), f"eCLIP, {title}", "1,080 maps of another kind", expert_changes(kind))
    for kind in COUNTED:
        for number in NUMBERS:
            if number != ANNOTATED:
                name, note = f"eCLIP, {MAPS[kind]}, {number:,}", f"{number:,} annotated studies"
                yield _ours(expert_slug(kind, number), name, note, expert_changes(kind, number))


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


VARIANTS: tuple[Variant, ...] = (
    *_table_1(),
    *(Variant(f"ablation-{slug}", name, "paper", note, "eclip-clip-expert", ablation=True, changes=_ABLATED[slug])
      for slug, (name, note) in ABLATION.items()),
    *_maps(),
    _ours("tied-mask", "eCLIP, tied, exact masks", "+ tied with the exact mask of the sentence",
          ["data.train[1].expert_map=sentence-mask"], "eclip-clip-tied"),
    *_shorter(),
    *_shortcuts(),
)  # fmt: skip


def quick_changes(job: Job) -> list[str]:
    """Return recipe changes that make a run take seconds: a tiny model, few studies and steps. It learns nothing."""
    studies = QUICK_POOLS["train"]
    source = f"phantom?count={studies}&seed=11"
    tiny = "{hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16}"
    image = "{embedding_size: 8, hidden_sizes: [8, 8, 16, 16], depths: [1, 1, 1, 1], layer_type: basic}"
    kind = job.variant.changes[0].partition("kind: ")[2][:4] if job.variant.slug.startswith(("swin", "vit")) else ""
    options = {
        "swin": "{embed_dim: 8, depths: [1, 1], num_heads: [1, 2], window_size: 2}",
        "vit,": "{patch_size: 16, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, "
        "intermediate_size: 16}",
    }.get(kind, image)
    added = [
        f'data.train[1].source="{source}"', f"data.train[1].cached_studies={studies}", "data.train[1].added_images=4",
    ]  # fmt: skip
    return [
        "data.image_size=64", "data.mask_grid=8", "data.workers=0", f'data.train[0].source="{source}"',
        f"data.train[0].cached_studies={studies}", "schedule.steps=2", "schedule.warmup_steps=0", "batch_size=8",
        "precision=32-true", "ema=0", "log_every=1", "model.config.image.size=64",
        f"model.config.image.options={options}", "model.config.dimension=16", "model.config.text.vocab_size=200",
        "model.config.text.summed_layers=1", f"model.config.text.options={tiny}", *(added if _has_maps(job) else ()),
    ]  # fmt: skip


def _has_maps(job: Job) -> bool:
    return not job.variant.recipe.endswith(("clip", "gloria", "dacl", "dacl-released", "m3", "continued"))
