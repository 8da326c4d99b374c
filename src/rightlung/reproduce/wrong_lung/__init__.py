""" "That's the Wrong Lung!" (McInerney et al., EMNLP 2022): its variants, perturbations, tables, figures and claims."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rightlung.measuring.protocols import find_protocol
from rightlung.reproduce.papers import Paper
from rightlung.reproduce.sanity import SanityCheck
from rightlung.reproduce.wrong_lung.page import make_page
from rightlung.reproduce.wrong_lung.variants import GLORIA, PERTURBATIONS, VARIANTS, quick_changes
from rightlung.results.estimator import Floats
from rightlung.results.measured import Measured


def _sanity_checks(measured: Measured) -> Iterator[SanityCheck]:
    """Yield the values that the oracle, the blind models and the mirrored oracle must have under perturbations."""

    def most(values: Floats) -> float:
        return float(np.abs(values).max())

    by_name = {perturbation.name: perturbation for perturbation in PERTURBATIONS}
    perfect = measured.value("oracle", "auroc", "exact")
    words = "the oracle's lowest AUROC on exact masks is {:.5f}"
    yield SanityCheck(words, perfect, np.min, lambda of: bool(of.min() > 1 - 1e-5))
    for name, perturbation in by_name.items():
        change = measured.change("oracle", perturbation, "auroc", "exact")
        words = f"the oracle changes by {{:+.3f}} under {name}"
        yield SanityCheck(words, change, np.mean, lambda of: bool(of.mean() < -0.01 and of.max() < 1e-5))
    for blind, names in (
        ("text", ("swap-sides", "random-sentence", "synthetic-swapped")),
        ("image", ("exchange-image",)),
    ):
        for name in names:
            change = measured.change(f"blind-to-{blind}", by_name[name], "auroc", "regions")
            words = f"a model blind to the {blind} changes by at most {{:g}} under {name}"
            yield SanityCheck(words, change, most, lambda of: most(of) == 0)
    swapped = measured.change("mirrored", by_name["swap-sides"], "auroc", "exact")
    words = "the mirrored oracle gains {:+.3f} when sides are swapped, on One Lung"
    yield SanityCheck(words, measured.within(swapped, "one-lung"), np.mean, lambda of: bool(of.mean() > 0.1))


PAPER = Paper(
    name="wrong-lung",
    title="“That’s the Wrong Lung!”, reproduced",
    summary='"That\'s the Wrong Lung!" (McInerney et al., EMNLP 2022): do the words steer the map?',
    variants=VARIANTS,
    protocol=find_protocol("wrong-lung"),
    source="phantom?count=600&seed=17",
    quick_source="phantom?count=24&seed=13&size=96",
    quick_changes=quick_changes,
    sanity_checks=_sanity_checks,
    page=make_page,
    released={"released-gloria": GLORIA},
)
