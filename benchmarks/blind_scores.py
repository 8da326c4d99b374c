"""What answers that never look at the image score by the measures of boxes and texts, on phantoms.

    python benchmarks/blind_scores.py [--fitted 200] [--scored 150]

Boxes: the median box of the same findings and side (for detection: of the finding, with random scores). Report: the
one of 40 fitted reports with the highest BLEU-4 against all fitted reports, for everybody. METEOR needs Java.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from rightlung import open_source
from rightlung.core import Box, Grounding, ScoredBox
from rightlung.measuring import Targets, find_measure, find_protocol, gather_targets, measure
from rightlung.measuring.texts import bleu_columns
from rightlung.predictions import Batch, Prediction
from rightlung.results.aggregates import estimate
from rightlung.results.estimate import BootstrapSettings

Corners = Sequence[Sequence[float]]


def median(corners: Corners) -> Box:
    """Return the box of the median corners."""
    return Box(*np.median(np.array(corners), axis=0).tolist())


def constant_report(reports: Sequence[str]) -> str:
    """Return the one of the first 40 reports with the highest BLEU-4 against all."""

    def bleu(text: str) -> float:
        columns = bleu_columns([text] * len(reports), reports, "whole")
        return find_measure("bleu_4").value({name: np.array(values) for name, values in columns.items()})

    return max(reports[:40], key=bleu)


def blind_answers(fitted: Targets, scored: Targets) -> list[Prediction]:
    """Return the answers to all phrases and about all images."""
    generator = np.random.default_rng(0)
    by_words: Mapping[object, list[Sequence[float]]] = defaultdict(list)
    for phrase in fitted.phrases.values():
        for key in ((phrase.findings, phrase.side_named), "any"):
            by_words[key].extend(phrase.boxes)
    by_finding: Mapping[str, list[Sequence[float]]] = defaultdict(list)
    for labels in fitted.labels.values():
        for finding, corners in labels.boxes.items():
            by_finding[finding].extend(corners)
    report = constant_report([labels.report for labels in fitted.labels.values() if labels.report])
    found = []
    for (study, query), phrase in scored.phrases.items():
        box = median(by_words.get((phrase.findings, phrase.side_named)) or by_words["any"])
        found.append(Prediction(study, query, grounding=Grounding(boxes=[ScoredBox(box, 1.0)])))
    for study in scored.labels:
        boxes = [ScoredBox(median(c), float(generator.random()), name) for name, c in by_finding.items()]
        found.append(Prediction(study, "image", grounding=Grounding(boxes=boxes), report=report))
    return found


def main() -> None:
    """Print the scores with their intervals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fitted", type=int, default=200)
    parser.add_argument("--scored", type=int, default=150)
    options = parser.parse_args()
    fitted = gather_targets(open_source(f"phantom?count={options.fitted}&seed=101"))
    scored = gather_targets(open_source(f"phantom?count={options.scored}&seed=102"))
    answers = Batch.of(blind_answers(fitted, scored))
    settings = BootstrapSettings(resamples=1000)
    for name in ("chex-sg", "chex-od", "whole", "r2gen"):
        protocol = find_protocol(name).applied_to(scored)
        table = measure([answers], scored, protocol)
        for one in protocol.measures:
            found = estimate(table, one, settings=settings)
            print(f"{name:8} {one:16} {found.value:.3f} [{found.low:.3f}, {found.high:.3f}]", found.reason or "")


if __name__ == "__main__":
    main()
