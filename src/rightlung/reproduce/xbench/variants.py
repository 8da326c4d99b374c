"""The models of XBench's counterpart, and their maps: shipped models, small ones trained here, and controls.

The general-domain control is the same CLIP with the same recipe, trained on drawn scenes with captions (`shapes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from rightlung.core import Study
from rightlung.models.maps import use_map
from rightlung.models.registry import load
from rightlung.models.untrained import untrained
from rightlung.reproduce.eclip.variants import ENCODERS, SMALL_BATCHES, SMALL_EXPERT_BATCHES
from rightlung.reproduce.eclip.variants import quick_changes as tiny
from rightlung.reproduce.variants import QUICK_POOLS, Job, Variant

FINDINGS = (
    "atelectasis", "cardiomegaly", "consolidation", "edema", "emphysema", "lung opacity", "mass", "nodule",
    "pleural effusion", "pneumothorax",
)  # fmt: skip
"""The findings that every model is asked for."""
DIFFUSE = ("edema", "emphysema", "fibrosis", "infiltration", "interstitial lung disease")
"""Findings that have no sharp border; the others are focal."""
SHAPES = 'data.train[0]={source: "shapes?count=16000&seed=21", cached_studies: 8000, texts_per_image: 2}'
CHEST, GENERAL, UNTRAINED = "clip", "clip-general", "clip-untrained"
"""The pair of claim 2, and what neither has learned."""


def _trained(slug: str, name: str, note: str, recipe: str, *changes: str) -> Variant:
    return Variant(slug, name, "paper", note, recipe, changes=(*SMALL_BATCHES, *changes))


def _shipped(name: str, start: Any, studies: Iterable[Study]) -> object:
    return load(name)


def _mapped(kind: str, start: Any, studies: Iterable[Study]) -> object:
    use_map(start, kind)
    return start


def _untrained(start: Any, studies: Iterable[Study]) -> object:
    return untrained(start)


def _made(slug: str, name: str, note: str, derive: Callable[..., object], start: Variant | None) -> Variant:
    """Return a variant that is not trained; one without a start never reads the recipe's studies."""
    recipe = "eclip-clip" if start is None else start.recipe
    seeds = 1 if start is None else None
    changes = SMALL_BATCHES if start is None else start.changes
    return Variant(slug, name, "paper", note, recipe, start, max_seeds=seeds, derive=derive, changes=changes)


_CLIP = _trained(CHEST, "CLIP, ResNet", "similarity; trained on chest phantoms", "eclip-clip")
_TRAINED: dict[Variant, tuple[str, ...]] = {
    _CLIP: ("grad-cam",),
    _trained(GENERAL, "CLIP, ResNet, general", "similarity; trained on drawn scenes", "eclip-clip", SHAPES):
        ("grad-cam",),
    _trained("clip-vit", "CLIP, ViT", "similarity", "eclip-clip", f"model.config.image={ENCODERS['vit-s']}"):
        ("grad-cam", "gradient-attention", "rollout"),
    _trained("gloria", "GLoRIA", "attention of words", "eclip-gloria"):
        ("similarity", "grad-cam", "gradient-attention"),
    _trained("eclip", "eCLIP", "similarity; learned from simulated gaze", "eclip-clip-expert", SMALL_EXPERT_BATCHES):
        ("grad-cam",),
}  # fmt: skip
"""The models trained here, with the kinds of maps besides their own."""
_SHIPPED = {
    "starter": ("starter", "attention of the sentence", ("similarity", "grad-cam", "gradient-attention")),
    "chex": ("chex", "boxes of the detector", ("similarity", "grad-cam")),
}


def _all() -> Iterator[Variant]:
    for slug, (name, note, kinds) in _SHIPPED.items():
        yield _made(slug, name, f"{note}; shipped", partial(_shipped, name), None)
        for kind in kinds:
            address = f"{name}?map={kind}"
            yield _made(f"{slug}-{kind}", f"{name}, {kind}", kind, partial(_shipped, address), None)
    for variant, kinds in _TRAINED.items():
        yield variant
        for kind in kinds:
            yield _made(f"{variant.slug}-{kind}", f"{variant.name}, {kind}", kind, partial(_mapped, kind), variant)
    yield _made(UNTRAINED, "CLIP, ResNet, untrained", "similarity; random weights", _untrained, _CLIP)


VARIANTS: tuple[Variant, ...] = tuple(_all())
OWN = (*_SHIPPED, *(variant.slug for variant in _TRAINED), UNTRAINED)
"""One row for each model: with its own maps."""


def quick_changes(job: Job) -> list[str]:
    """Return recipe changes that make a run take seconds; it learns nothing."""
    changes = tiny(job)
    if job.variant.slug.startswith(GENERAL):
        return [one.replace("phantom?", "shapes?") if "source" in one else one for one in changes]
    return changes


__all__ = ["CHEST", "DIFFUSE", "FINDINGS", "GENERAL", "OWN", "QUICK_POOLS", "UNTRAINED", "VARIANTS", "quick_changes"]
