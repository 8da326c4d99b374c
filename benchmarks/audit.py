"""How long scoring takes: 10,000 phrases of a predictions file, beside a plain loop over scikit-learn, in one run.

``python benchmarks/audit.py [PHRASES]``. Studies of ten phrases each with a mask of 256 x 256 pixels, maps of 16 x 16;
the audit scores every map and the prior's with all measures, the loop the map alone with AUROC and average precision.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from rightlung.audit import audit
from rightlung.core import Grounding, Heatmap, Mask, Phrase, Polarity, Query, Study
from rightlung.predictions import Prediction, PredictionWriter, open_predictions, phrase_query
from rightlung.studies import Source

SIDE, GRID, PHRASES_A_STUDY, LOOPED = 256, 16, 10, 200
FINDINGS = ("nodule", "mass", "pleural effusion", "pneumothorax", "consolidation", "edema")


class Discs(Source):
    """Studies whose phrases point at discs, made when asked for."""

    def __init__(self, count: int) -> None:
        super().__init__(f"discs of {count} studies")
        self._ids = [f"study-{number}" for number in range(count)]

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all studies."""
        return self._ids

    def _position(self, study_id: str) -> int | None:
        return int(study_id.rpartition("-")[2])

    def _build(self, position: int) -> Study:
        rng = np.random.default_rng(position)
        phrases = []
        rows, columns = np.ogrid[0:SIDE, 0:SIDE]
        for _ in range(PHRASES_A_STUDY):
            (x, y), radius = rng.integers(30, SIDE - 30, 2), rng.integers(5, 30)
            side, finding = "left" if x > SIDE / 2 else "right", str(rng.choice(FINDINGS))
            mask = Mask((rows - y) ** 2 + (columns - x) ** 2 <= radius**2)
            phrases.append(Phrase(f"{side} {finding}", mask=mask, findings={finding: Polarity.POSITIVE}))
        blank = np.zeros((8, 8), dtype=np.float32)
        return Study(f"study-{position}", lambda: blank, patient=f"p{position}", phrases=tuple(phrases))


def main() -> None:
    """Write predictions, audit them, loop over some of them, and print what each took."""
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    source, rng = Discs(max(2, asked // PHRASES_A_STUDY)), np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions"
        with PredictionWriter(path, source=source.address, model="noise") as writer:
            for study in source:
                for index, phrase in enumerate(study.phrases):
                    grounding = Grounding(Heatmap(rng.random((GRID, GRID), dtype=np.float32)))
                    writer.write(
                        Prediction(study.id, phrase_query(index), asked=Query(phrase.text), grounding=grounding)
                    )
        before = _megabytes()
        begun = {"start": time.perf_counter()}
        ended: dict[str, float] = {}

        def tell(stage: str, done: float, total: float) -> None:
            begun.setdefault(stage, time.perf_counter())
            ended[stage] = time.perf_counter()

        audit(path, source, Path(folder) / "out", cases=0, progress=tell)
        total = time.perf_counter() - begun["start"]
        phrases = len(source) * PHRASES_A_STUDY
        scoring = ended["scoring the prior"] - ended["reading studies"]
        print(f"{phrases:,} phrases, masks of {SIDE} x {SIDE}, maps of {GRID} x {GRID}, with the prior beside each")
        print(f"  making and reading targets  {ended['reading studies'] - begun['start']:8.1f} s (the source's time)")
        print(f"  scoring, all measures       {scoring:8.1f} s   {phrases / scoring:10,.0f} phrases/s")
        print(f"  everything, page included   {total:8.1f} s   {phrases / total:10,.0f} phrases/s")
        print(f"  peak memory                 {_megabytes():8.0f} MB, of which {before:.0f} MB before")
        _loop(path, source)


def _loop(path: Path, source: Discs) -> None:
    started, done = time.perf_counter(), 0
    for prediction in open_predictions(path):
        study = source.study(prediction.study)
        mask = study.phrases[int(prediction.query.removeprefix("phrase:"))].mask
        if mask is None or prediction.grounding is None or prediction.grounding.heatmap is None:
            continue
        pixels = prediction.grounding.heatmap.to_size(mask.size).ravel()
        roc_auc_score(mask.pixels.ravel(), pixels)
        average_precision_score(mask.pixels.ravel(), pixels)
        done += 1
        if done == LOOPED:
            break
    seconds = time.perf_counter() - started
    print(f"  scikit-learn, a plain loop over {done}: AUROC and AP of the map alone, {done / seconds:.0f} phrases/s")


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
