"""How long an audit takes and how much memory: 10,000 phrases of a predictions file, beside a loop over scikit-learn.

``python benchmarks/audit.py [PHRASES] [--jobs N]``. Studies of ten phrases each with a mask of 256 x 256 pixels, maps
of 16 x 16; the audit scores every map and the prior's with all measures, the loop the map alone with AUROC and
average precision. ``--growth`` audits a quarter of the phrases first, in a process of its own, and compares memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from rightlung.audit import audit
from rightlung.core import Grounding, Heatmap, Mask, Phrase, Polarity, Query, Study
from rightlung.predictions import Prediction, PredictionWriter, open_predictions, phrase_query
from rightlung.scoring.threads import usable_cores
from rightlung.studies import Source

SIDE, GRID, PHRASES_A_STUDY, LOOPED = 256, 16, 10, 200
EARLIER = 56.6
"""Seconds that the same audit of 10,000 phrases took on two cores before it was sped up."""
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


class PeakMemory(threading.Thread):
    """Watches the memory of all processes of this group, in megabytes; shared pages count in each."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = self.before = self._now()

    def run(self) -> None:
        """Look ten times a second."""
        while True:
            self.peak = max(self.peak, self._now())
            time.sleep(0.1)

    def _now(self) -> float:
        pages = 0
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(process.name)) == os.getpgrp():
                    pages += int((process / "statm").read_text().split()[1])
            except OSError:
                continue  # it has ended
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Write predictions, audit them, loop over some of them, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phrases", type=int, nargs="?", default=10_000)
    parser.add_argument("--jobs", type=int, help="processes (default: all that pay)")
    parser.add_argument("--growth", action="store_true", help="compare memory with a quarter of the phrases")
    options = parser.parse_args()
    if options.growth:
        growth(options.phrases, options.jobs)
        return
    source, rng = Discs(max(2, options.phrases // PHRASES_A_STUDY)), np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions"
        with PredictionWriter(path, source=source.address, model="noise") as writer:
            for study in source:
                for index, phrase in enumerate(study.phrases):
                    grounding = Grounding(Heatmap(rng.random((GRID, GRID), dtype=np.float32)))
                    writer.write(
                        Prediction(study.id, phrase_query(index), asked=Query(phrase.text), grounding=grounding)
                    )
        memory = PeakMemory()
        memory.start()
        start = time.perf_counter()
        ended: dict[str, float] = {}

        def tell(stage: str, done: float, total: float) -> None:
            ended[stage] = time.perf_counter()

        audit(path, source, Path(folder) / "out", cases=0, jobs=options.jobs, progress=tell)
        total, processor = time.perf_counter() - start, sum(os.times()[:4])
        phrases = len(source) * PHRASES_A_STUDY
        scoring = ended["scoring"] - ended["reading studies"]
        print(f"{phrases:,} phrases, masks of {SIDE} x {SIDE}, maps of {GRID} x {GRID}, with the prior beside each")
        print(f"  cores                       {usable_cores():8}     {options.jobs or 'all that pay'} processes")
        print(f"  making and reading targets  {ended['reading studies'] - start:8.1f} s (the source's time)")
        print(f"  scoring, all measures       {scoring:8.1f} s   {phrases / scoring:10,.0f} phrases/s")
        print(f"  everything, page included   {total:8.1f} s   {phrases / total:10,.0f} phrases/s")
        if phrases == 10_000:
            print(f"  of the {EARLIER} s before         {total / EARLIER:8.2f}")
        print(f"  processor time, this process{processor:8.1f} s (with what is imported and the predictions written)")
        print(f"  peak memory                 {memory.peak:8.0f} MB, of which {memory.before:.0f} MB before")
        print(json.dumps({"phrases": phrases, "seconds": total, "megabytes": memory.peak}), file=sys.stderr)
        _loop(path, source)


def growth(phrases: int, jobs: int | None) -> None:
    """Audit a quarter of the phrases and all of them, and print the memory of both."""
    found = []
    for count in (phrases // 4, phrases):
        command = [sys.executable, __file__, str(count), *([] if jobs is None else ["--jobs", str(jobs)])]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True, process_group=0)
        found.append(json.loads(done.stderr.splitlines()[-1]))
    few, many = (one["megabytes"] for one in found)
    share = 1000 * (many - few) / (found[1]["phrases"] - found[0]["phrases"])
    print(f"{few:.0f} MB and {many:.0f} MB: {share:+.2f} MB for each 1,000 further phrases")


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


if __name__ == "__main__":
    main()
