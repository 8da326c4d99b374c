"""Which figures of a result are golden, and how they are compared: by name, so that a page may be laid out anew."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TABLES = (
    "labels", "one-lung-exact", "side-not-named", "side-named", "exchange", "no-attn-scores", "findings-auroc", "t2",
    "t3", "t4", "t6", "t7-auroc", "t7-exact-pointing", "t8", "t10", "t11-10", "t12-10", "changes-regions",
    "changes-exact", "changes-average-precision",
)  # fmt: skip


def of_experiment(results: Mapping[str, Any]) -> dict[str, list[float | None]]:
    """Return estimate, ends and number of phrases of the tables' cells, by table, row and column."""
    return dict(sorted(_cells(results)))


def _cells(results: Mapping[str, Any]) -> Iterator[tuple[str, list[float | None]]]:
    for name in TABLES:
        table = results["tables"][name]
        for row in table["rows"]:
            for heading, cell in zip(table["header"][1:], row[1:], strict=True):
                if isinstance(cell, Mapping) and "estimate" in cell:
                    yield f"{name} | {row[0]} | {heading}", _figure(cell)


def of_audit(result: Mapping[str, Any]) -> dict[str, list[float | None]]:
    """Return every estimate of an audit, by its place."""
    parts = {name: result[name] for name in ("overall", "sides", "groups", "conditions", "abstention")}
    return dict(sorted(_estimates("", parts)))


def _estimates(place: str, value: Any) -> Iterator[tuple[str, list[float | None]]]:
    if isinstance(value, Mapping) and "estimate" in value:
        yield place, _figure(value)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _estimates(f"{place} | {name}" if place else str(name), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _estimates(f"{place} | {inner['name']}", inner)


def _figure(cell: Mapping[str, Any]) -> list[float | None]:
    shown = [cell["estimate"], cell["low"], cell["high"]]
    return [None if one is None or math.isnan(one) else round(one, 5) for one in shown] + [cell["phrases"]]


def differences(
    name: str, found: Mapping[str, list[float | None]], loose: tuple[str, ...] = (), tolerance: float = 2e-5
) -> list[str]:
    """Say which golden figures of a file are gone or different; those whose place names ``loose`` come from training.

    Trained weights may differ in their last bits between machines, and so may the peaks of maps that are nearly flat.
    """
    golden = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    said = [f"{place}: is gone" for place in golden if place not in found]
    for place, values in golden.items():
        most = 0.02 if any(word in place for word in loose) else tolerance
        for old, new in zip(values, found.get(place, values), strict=True):
            if (old is None) != (new is None) or (old is not None and new is not None and abs(old - new) > most):
                said.append(f"{place}: was {values}, is {found[place]}")
                break
    return said


def keep(name: str, found: Mapping[str, list[float | None]]) -> None:
    """Write golden figures down: only for a change that is meant, whose commit lists old and new."""
    text = ",\n".join(
        f"{json.dumps(place, ensure_ascii=False)}: {json.dumps(values)}" for place, values in found.items()
    )
    (FOLDER / f"{name}.json").write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
