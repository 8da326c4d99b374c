"""The starter's figures as tables, from the folders that `rightlung audit` wrote, nothing computed twice.

    rightlung audit starter 'phantom?count=2000&seed=13' --out audits/starter-phantom
    rightlung audit starter 'manifest:/data/nih.tar?split=boxes' --out audits/starter-nih
    rightlung audit wrong-lung/runs/sided/model 'phantom?count=2000&seed=13' --out audits/sided-phantom
    python benchmarks/starter.py audits/starter-phantom audits/starter-nih audits/sided-phantom > tables.md

Focal findings are those that fill no space of their own: nodules, masses, granulomas, opacities. Their figures are
means over phrases with intervals from resampled patients, as everywhere.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from rightlung.scoring.statistics import bootstrap, paired_difference

FOCAL = ("nodule", "mass", "calcified granuloma", "consolidation", "pneumonia", "lung opacity")
MEASURES = {"auroc": "AUROC", "average_precision": "AP", "pointing": "pointing"}


def cell(value: dict[str, Any] | None, difference: bool = False) -> str:
    """Return an estimate with its interval, and the verdict on a difference that is not shown."""
    if not value or value.get("estimate") is None:
        return "–"
    sign = "+" if difference else ""
    verdict = f": {value['verdict']}" if difference and not value["shown"] else ""
    return f"{value['estimate']:{sign}.3f} ({value['low']:{sign}.3f} to {value['high']:{sign}.3f}){verdict}"


def row(name: str, of_metrics: dict[str, Any], count: object) -> str:
    """Return one line: for each measure model, prior and difference."""
    cells = [name, str(count)]
    for measure in MEASURES:
        found = of_metrics.get(measure, {})
        cells += [cell(found.get("model")), cell(found.get("prior")), cell(found.get("difference"), difference=True)]
    return "| " + " | ".join(cells) + " |"


def header(first: str) -> str:
    """Return the head of such a table."""
    names = [f"{name}{of}" for name in MEASURES.values() for of in ("", ", prior", ", difference")]
    return f"| {first} | phrases | {' | '.join(names)} |\n| --- | ---: |{' ---: |' * len(names)}"


def focal(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the measures of phrases about a focal finding, and of those whose side only the image tells."""
    measures = (*MEASURES, "peak_on_side")
    columns = ["condition", "patient", "findings", "side_told", *measures, *(f"prior_{name}" for name in measures)]
    table = pq.read_table(folder / "instances.parquet", columns=columns).to_pydict()
    plain = [
        number
        for number, (condition, findings) in enumerate(zip(table["condition"], table["findings"], strict=True))
        if condition == "none" and set(findings) & set(FOCAL)
    ]
    placed = [number for number in plain if _known(table["pointing"][number])]
    untold = [number for number in plain if table["side_told"][number] == "image"]
    untold = [number for number in untold if _known(table["peak_on_side"][number])]
    return _beside(table, placed, MEASURES), _beside(table, untold, ["peak_on_side"])


def asked_otherwise(folder: Path, audit: dict[str, Any]) -> Iterable[str]:
    """Yield how much it abstains when asked otherwise, over phrases whose words name the side of what is there."""
    columns = ["condition", "patient", "abstention", "side_named", "target_side"]
    table = pq.read_table(folder / "instances.parquet", columns=columns).to_pydict()
    sided = [
        number
        for number, (named, on) in enumerate(zip(table["side_named"], table["target_side"], strict=True))
        if named == on in ("left", "right") and _known(table["abstention"][number])
    ]
    if not sided:
        return
    yield "\n| condition, phrases naming a side | phrases | abstention | share above 0.5 | peak on the side now named |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for condition in ("none", *audit["conditions"]):
        rows = [number for number in sided if table["condition"][number] == condition]
        patients = [table["patient"][number] for number in rows]
        values = np.array([table["abstention"][number] for number in rows])
        mean, above = (_plain(bootstrap(of, clusters=patients)) for of in (values, (values > 0.5).astype(float)))
        follows = audit["conditions"].get(condition, {}).get("follows_words")
        yield f"| {condition} | {len(rows)} | {cell(mean)} | {cell(above)} | {cell(follows)} |"


def _known(value: float | None) -> bool:
    return value is not None and bool(np.isfinite(value))


def _beside(table: dict[str, list[Any]], chosen: list[int], measures: Iterable[str]) -> dict[str, Any]:
    """Return model, prior and their difference over the chosen rows."""
    patients = [table["patient"][number] for number in chosen]
    found: dict[str, Any] = {"phrases": len(chosen)}
    for name in measures if chosen else ():
        model, prior = (np.array([table[key][number] for number in chosen]) for key in (name, f"prior_{name}"))
        difference = paired_difference(model, prior, clusters=patients)
        found[name] = {
            "model": _plain(bootstrap(model, clusters=patients)),
            "prior": _plain(bootstrap(prior, clusters=patients)),
            "difference": {**_plain(difference), "shown": difference.shown, "verdict": difference.verdict},
        }
    return found


def _plain(interval: Any) -> dict[str, Any]:
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def lines(folder: Path) -> Iterable[str]:
    """Yield the tables of one audit."""
    audit = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    counts = audit["counts"]
    yield f"\n## {folder.name}\n"
    yield (
        f"{counts['phrases_with_target']} phrases with a target, {counts['phrases']} in all, "
        f"{counts['studies']} studies, {counts['patients']} patients; protocol {audit['protocol']['hash']}.\n"
    )
    yield header("")
    yield row("all", audit["overall"], counts["phrases_with_target"])
    of_focal, untold = focal(folder)
    if of_focal["phrases"]:
        yield row("focal findings", of_focal, of_focal["phrases"])
    for name, condition in audit["conditions"].items():
        compared = condition.get("compared_with_prior", {})
        yield row(name, compared, max((part["model"]["phrases"] for part in compared.values()), default=0))
    yield "\n| the peak is on the finding's side | phrases | model | prior |\n| --- | ---: | ---: | ---: |"
    for name, label in (
        ("named", "side named in the phrase"),
        ("from_image", "side not named, only in the image"),
    ):
        side = audit["sides"].get(name)
        if side:
            yield f"| {label} | {side['model']['phrases']} | {cell(side['model'])} | {cell(side['prior'])} |"
    if untold["phrases"]:
        side = untold["peak_on_side"]
        yield f"| … focal findings only | {untold['phrases']} | {cell(side['model'])} | {cell(side['prior'])} |"
    yield from asked_otherwise(folder, audit)
    for group, label in (("finding", "finding"), ("size", "size of the target")):
        yield "\n" + header(label)
        for entry in audit["groups"][group]:
            if not entry["few"]:
                yield row(entry["name"], entry["metrics"], entry["phrases"])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audits", type=Path, nargs="+", help="folders that rightlung audit wrote")
    for folder in parser.parse_args().audits:
        for line in lines(folder):
            print(line)


if __name__ == "__main__":
    main()
