"""The instances that several models have in common, row by row, and checks that they are the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rightlung.core.errors import InputError
from rightlung.measuring import Measure, find_measure
from rightlung.measuring.boxes import FINDING_BOXES
from rightlung.measuring.measures import COLUMN_TYPES
from rightlung.results.estimator import Flags
from rightlung.results.tables import ResultTable

if TYPE_CHECKING:
    import pandas as pd

KEYS = ["study", "query", "target"]
TRUTH = (
    "patient", "phrase", "target_kind", "target_side", "target_area", "finding_label", "reference_text", "box_targets",
)  # fmt: skip
"""Columns that say what is true of an instance, which all results must agree on."""
_WORDS = (*KEYS, "polarity", "condition")
"""Columns of measures that are no statistics."""


class Aligned:
    """The rows of all models about the instances that all of them have, in the same order."""

    def __init__(self, tables: Sequence[ResultTable], condition: str, rule: str | None) -> None:
        self.tables, self.rule, self.protocol = tables, rule, tables[0].protocol
        self.models = tuple(one.model for one in tables)
        self.columns = {name for name in self.protocol.measures for name in find_measure(name).columns}
        frames = [self._frame(one, condition) for one in tables]
        if any("box_targets" in frame for frame in frames):
            frames = _with_silent_answers(frames, tables)
        common = frames[0].index
        for frame in frames[1:]:
            common = common.intersection(frame.index)
        self.own = frames
        self.dropped = {model: len(frame) - len(common) for model, frame in zip(self.models, frames, strict=True)}
        if not len(common):
            listed = "; ".join(
                f"{one.path} (source {one.protocol.source or 'unknown'}) begins with {_named(frame)}"
                for one, frame in zip(tables, frames, strict=True)
            )
            raise InputError(f"the results have no instance in common: {listed}")
        # The order of the first result, because mAP breaks ties by the order of the images.
        place = {study: n for n, study in enumerate(dict.fromkeys(tables[0].table["study"].to_pylist()))}
        common = sorted(common, key=lambda key: (place[key[0]], *key[1:]))
        self.frames = [frame.loc[common].reset_index() for frame in frames]
        for one, frame in zip(tables[1:], self.frames[1:], strict=True):
            _check_truth(tables[0], self.frames[0], one, frame)
        self.patients = self.frames[0]["patient"].to_numpy(dtype=object)

    def _frame(self, one: ResultTable, condition: str) -> pd.DataFrame:
        wanted = {*KEYS, "condition", "findings", *TRUTH, *self.columns}
        table = one.table.select([name for name in one.table.column_names if name in wanted])
        _check_columns(one, table, self.columns)
        rows = table.to_pandas()
        known = dict.fromkeys(rows["condition"].astype(str))
        if condition not in known:
            listed = ", ".join(map(repr, known))
            raise InputError(f"{one.path}: has no answers under the condition {condition!r}; it has: {listed}")
        rows = rows[rows["condition"] == condition]
        if self.rule is not None:
            rows = rows[rows["target"] == self.rule]
        rows = rows.astype(dict.fromkeys(KEYS, "str")).set_index(KEYS)
        if (twice := rows.index.duplicated()).any():
            study, query, target = rows.index[int(twice.argmax())]
            raise InputError(f"{one.path}: {study} {query} occurs twice with target {target}, condition {condition}")
        return rows

    def defined(self, measure: Measure) -> tuple[list[Flags], list[int]]:
        """Return where each model has the columns of a measure, and how often in all of its own rows."""
        return [_defined(one, measure) for one in self.frames], [int(_defined(one, measure).sum()) for one in self.own]

    def has(self, measure: Measure) -> bool:
        """Whether all results have the columns of a measure."""
        return all({*measure.columns} <= {*frame} for frame in self.frames)

    def dropped_notes(self) -> list[str]:
        """Say how many instances of each model were left out."""
        return [
            f"{count:,} of {len(frame):,} instances of {model} are left out: not all results have them"
            for (model, count), frame in zip(self.dropped.items(), self.own, strict=True)
            if count
        ]

    def undefined_note(self, counts: Sequence[int], titles: Sequence[str]) -> str:
        """Say how many instances have no value, and by which measures."""
        told = ", ".join(f"{count:,} in {model}" for count, model in zip(counts, self.models, strict=True) if count)
        return (
            f"instances without a value (NaN) in one result are left out of all: {told} of {len(self.patients):,} "
            f"({', '.join(titles)})"
        )

    def groups(self, used: Flags) -> dict[str, Flags]:
        """Return which instances are about each finding: a phrase counts for each of its findings."""
        frame = self.frames[0]
        if self.protocol.rules:
            told = [set() if one is None else set(one) for one in frame["findings"]] if "findings" in frame else []
        else:
            told = [{name} for name in frame["target"]]
        names = sorted(set().union(*told)) if told else []
        groups = {name: used & np.array([name in one for one in told]) for name in names}
        return {name: flags for name, flags in groups.items() if flags.any()} if len(names) > 1 else {}


def _check_columns(one: ResultTable, table: pa.Table, names: Collection[str]) -> None:
    """Raise an error for a row without a patient, a column of another type, and an infinite score."""
    if table["patient"].null_count:
        row = table["patient"].is_null().to_pylist().index(True)
        raise InputError(f"{one.path}, row {row}, column 'patient': the value is missing")
    for name in (name for name in table.column_names if name in names and name not in _WORDS):
        kind, expected = table.schema.field(name).type, COLUMN_TYPES.get(name, pa.float64())
        number = pa.types.is_floating(expected) and (pa.types.is_floating(kind) or pa.types.is_integer(kind))
        if not number and kind != expected:
            raise InputError(f"{one.path}, column {name!r}: expected values of type {expected}; got {kind}")
        if number and (infinite := np.isinf(table[name].to_numpy())).any():
            row = int(infinite.argmax())
            value = table[name][row].as_py()
            raise InputError(f"{one.path}, row {row}, column {name!r}: expected a finite number or NaN; got {value}")


def _defined(frame: pd.DataFrame, measure: Measure) -> Flags:
    """Return which rows have all columns of a measure: no NaN, and no list or text of statistics missing."""
    statistics = [name for name in measure.columns if name not in _WORDS and name in frame]
    return np.asarray(frame[statistics].notna().all(axis=1).to_numpy(), dtype=bool)


def _named(frame: pd.DataFrame) -> str:
    return "nothing" if not len(frame) else f"{frame.index[0][0]!r} {frame.index[0][1]}"


def _with_silent_answers(frames: Sequence[pd.DataFrame], tables: Sequence[ResultTable]) -> list[pd.DataFrame]:
    """Add rows without boxes where one model found a box of a finding and another, which was asked too, did not.

    Detection writes a row for each finding with a target or a box. The image-blind baselines, which are conditions of
    the same table, answer whatever was asked.
    """
    import pandas as pd

    union = frames[0].index
    for frame in frames[1:]:
        union = union.union(frame.index)
    filled = []
    for frame, one in zip(frames, tables, strict=True):
        asked = {*zip(*(one.table[name].to_pylist() for name in KEYS[:2]), strict=True)}
        failed = {key[:2] for key in frame.index[frame["box_targets"].isna()]}
        known = set(frame.index)
        added = [key for key in union if key not in known and key[:2] in asked and key[:2] not in failed]
        patients = dict(zip(one.table["study"].to_pylist(), one.table["patient"].to_pylist(), strict=True))
        rows = pd.DataFrame(
            {
                "patient": [patients[study] for study, _, _ in added],
                "target_kind": FINDING_BOXES,
                "box_targets": 0.0,
                "box_scores": [np.zeros(0) for _ in added],
                "box_matches": [np.zeros(0, np.int64) for _ in added],
            },
            index=pd.MultiIndex.from_tuples(added, names=KEYS) if added else frame.index[:0],
        )
        filled.append(pd.concat([frame, rows]) if added else frame)
    return filled


def _check_truth(first: ResultTable, one: pd.DataFrame, second: ResultTable, two: pd.DataFrame) -> None:
    """Raise an error where two results disagree on what is true of an instance."""
    for name in (name for name in TRUTH if name in one and name in two):
        there = (one[name].notna() & two[name].notna()).to_numpy()
        unlike = there & (one[name].to_numpy() != two[name].to_numpy())
        if unlike.any():
            row = int(unlike.argmax())
            study, query, target = (one[key].iloc[row] for key in KEYS)
            raise InputError(
                f"{second.path}: {name} of {study} {query}, target {target}, is {two[name].iloc[row]!r}, but "
                f"{one[name].iloc[row]!r} in {first.path}; the results were measured against different truths"
            )
