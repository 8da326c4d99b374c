"""The variants of FITA: from a plain transformer to KiUT, the rows of FITA's Table 2, and ablations of our own.

All variants of a seed start from the same classifier and see the same images in the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rightlung.core import Study
from rightlung.reproduce.variants import QUICK_POOLS, Job, Variant
from rightlung.training.recipe_file import read_stages

_KIUT, _FITA = "fita-kiut", "fita-small"
_WORDS = "report:losses={report_generation: 1}"
_REFINED = "report:losses={report_generation: 1, image_classification: 1}"
PLAIN = ("report:model.config.rra=false", "report:model.config.connection=last", "report:model.config.graph=false")
STEPS = ("plain", "rra", "u", "kiut", "ifr", "ifr-tfr", "fita")
"""From a plain transformer to FITA, each with one part more (counterpart of Table 1)."""
TABLE_2 = ("kiut", "ifr", "tfr", "ifr-tfr", "fita")
SALIENCY = "saliency"


def _saliency(start: Any, studies: Iterable[Study]) -> object:
    """Return the classifier of a FITA, whose class activation maps are the saliency of its symptoms."""
    return start.classifier


_FULL = Variant("fita", "FITA", "paper", "image refiner, text refiner and contrastive aligner", _FITA)


def _ours(slug: str, name: str, note: str, *changes: str) -> Variant:
    return Variant(slug, name, "ours", note, _FITA, ablation=True, max_seeds=1, changes=changes)


VARIANTS: tuple[Variant, ...] = (
    Variant("plain", "Transformer", "paper", "attention to the last encoder layer, no region relations", _KIUT,
            ablation=True, max_seeds=1, changes=PLAIN),
    Variant("rra", "+ RRA", "paper", "region-relationship-augmented attention", _KIUT, ablation=True,
            max_seeds=1, changes=PLAIN[1:]),
    Variant("u", "+ U-connection", "paper", "the nth decoder layer reads the nth encoder layer from the end", _KIUT,
            ablation=True, max_seeds=1, changes=PLAIN[2:]),
    Variant("kiut", "+ symptom graph (KiUT)", "paper", "the baseline of Table 2", _KIUT),
    Variant("ifr", "KiUT + IFR", "paper", "Table 2 (a), with the classification loss of Eq. 3", _KIUT,
            changes=("report:model.config.ifr=true", _REFINED)),
    Variant("tfr", "KiUT + TFR", "paper", "Table 2 (b)", _FITA, changes=("text:model.config.ifr=false", _WORDS)),
    Variant("ifr-tfr", "KiUT + IFR + TFR", "paper", "Table 2 (c)", _FITA, changes=(_REFINED,)),
    _FULL,
    _ours("absolute", "FITA, |Δ| positions", "region relations as published: blind to left and right",
          "text:model.config.positions=absolute"),
    _ours("no-saliency", "FITA, no saliency", "symptoms attend to patches without a prior",
          "text:model.config.saliency=none"),
    _ours("leaking", "FITA, BERT reads ahead", "the text refiner as the paper words it",
          "text:model.config.text.causal=false"),
    _ours("last", "FITA, last layer", "every decoder layer reads the last encoder layer",
          "text:model.config.connection=last"),
    _ours("parallel", "FITA, parallel", "the nth decoder layer reads the nth encoder layer",
          "text:model.config.connection=parallel"),
    Variant(SALIENCY, "Saliency of FITA's symptoms", "reference", "Figure 3: class activation maps of the classifier",
            _FITA, start=_FULL, max_seeds=1, derive=_saliency),
)  # fmt: skip

_TINY_IMAGE = "{embedding_size: 8, hidden_sizes: [8, 8, 16, 16], depths: [1, 1, 1, 1], layer_type: basic}"
_TINY_BERT = "{hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16}"


def quick_changes(job: Job) -> list[str]:
    """Return recipe changes that make a run take seconds: a tiny model, few studies and steps. It learns nothing."""
    stages = read_stages(job.variant.recipe, job.variant.changes)
    train, validation = (f"phantom?count={QUICK_POOLS[name]}&seed=11" for name in ("train", "validation"))
    changes = [
        "data.image_size=64", "data.mask_grid=8", "data.workers=0", f'data.train[0].source="{train}"',
        f"data.train[0].cached_studies={QUICK_POOLS['train']}", f'data.validation.source="{validation}"',
        f"data.validation.cached_studies={QUICK_POOLS['validation']}", "schedule.steps=2", "schedule.warmup_steps=0",
        "batch_size=8", "precision=32-true", "ema=0", "log_every=1",
        "classifier:model.config.image.size=64", f"classifier:model.config.image.options={_TINY_IMAGE}",
    ]  # fmt: skip
    made = "text" if "text" in stages else "report"
    model = ["dimension=16", "layers=2", "heads=2", "hidden_size=16", "writing={beams: 1, max_words: 10}"]
    if made == "text":
        model += [f"text.options={_TINY_BERT}", "text.triplets_per_batch=8"]
    return [*changes, *(f"{made}:model.config.{change}" for change in model)]
