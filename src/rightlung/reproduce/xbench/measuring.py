"""What is measured besides the usual scores of maps: zero-shot findings, and Dice and IoU at every threshold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rightlung.core.progress import Progress
from rightlung.measuring import find_protocol, measure, write_instances
from rightlung.measuring.maps import AnswerMap, to_pixels
from rightlung.predictions import open_predictions
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.reproduce.xbench.variants import FINDINGS
from rightlung.scoring.localisation import score

TARGET = "exact"
THRESHOLDS = tuple(number / 10 for number in range(1, 10))
"""Of maps scaled to 0–1 (minmax)."""
FIXED = 0.5
ZERO_SHOT, AT_THRESHOLDS = "zero-shot.parquet", "thresholds.parquet"
_AT_ONCE = 128


def ask_more(model: object, predictions: Path, prepared: PreparedStudies, folder: Path, progress: Progress) -> None:
    """Measure the answers of a model about findings, and its maps at every threshold."""
    folder.mkdir(parents=True, exist_ok=True)
    opened, targets = open_predictions(predictions), prepared.targets
    kept = {
        study: replace(one, findings={name: how for name, how in one.findings.items() if name in FINDINGS})
        for study, one in targets.labels.items()
    }
    protocol = find_protocol("classification").applied_to(targets)
    table = measure(opened.batches(), replace(targets, labels=kept), protocol)
    write_instances(folder / ZERO_SHOT, table, protocol, folder.name)
    write_instances(folder / AT_THRESHOLDS, threshold_table(predictions, prepared), prepared.protocol, folder.name)


def threshold_table(predictions: Path, prepared: PreparedStudies) -> pa.Table:
    """Return a row for each phrase with a target and a map: Dice and IoU at each of `THRESHOLDS`."""
    phrases, store = prepared.targets.phrases, prepared.targets.store
    rows: list[dict[str, Any]] = []
    for batch in open_predictions(predictions).batches():
        known = [(place, key) for place, key in enumerate(batch.keys)
                 if (key.study, key.query) in phrases and batch.maps[place] is not None]  # fmt: skip
        known = [(place, key) for place, key in known if TARGET in phrases[key.study, key.query].masks]
        for begin in range(0, len(known), _AT_ONCE):
            some = known[begin : begin + _AT_ONCE]
            masks = [phrases[key.study, key.query].masks[TARGET].place for _, key in some]
            answers = [AnswerMap(batch.maps[place], tuple(batch.extents[place].tolist())) for place, _ in some]
            maps, targets = to_pixels(answers, masks[0].size), store.read(masks)
            columns = {"study": [key.study for _, key in some], "query": [key.query for _, key in some]}
            for threshold in THRESHOLDS:
                found = score(maps, targets, metrics=("miou", "mdice"), thresholds=(threshold,))
                columns |= {f"{name[1:]}@{threshold:g}": found[name] for name in ("miou", "mdice")}
            rows.append(columns)
    parts = [pd.DataFrame(columns) for columns in rows] or [pd.DataFrame({"study": [], "query": []})]
    return pa.Table.from_pandas(pd.concat(parts, ignore_index=True), preserve_index=False)


def columns_of(folder: Path, keys: list[tuple[str, str]]) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Return the columns of `threshold_table` of a model for phrases in the order of ``keys``; empty without a file."""
    path = folder / AT_THRESHOLDS
    if not path.is_file():
        return {}
    table = pd.read_parquet(path).set_index(["study", "query"])
    return {name: table[name].reindex(keys).to_numpy(np.float64) for name in table.columns}
