"""Tables and figure of docs/results/chex.md, from the folders that `rightlung audit --task` wrote.

    T='--task grounding --task detection --task classification --task region-classification --task region-description --task report'
    rightlung audit chex 'phantom?count=200&seed=31' $T --condition none --condition exchange-image --out audits/chex-phantom
    rightlung audit chex 'phantom?count=200&seed=31&part=held-out' $T --condition none --condition exchange-image --out audits/chex-held-out
    rightlung audit chex 'manifest:/data/nih.tar?split=boxes' --task detection --boxes merge --tune cross-validate --out audits/chex-nih
    python benchmarks/chex_boxes.py /data/nih.tar --out runs/chex-boxes --model runs/chex/detector/model
    rightlung audit runs/chex-boxes/predictions.parquet 'manifest:/data/nih.tar?split=boxes' --task detection --boxes merge \
      --tune cross-validate --out audits/chex-boxes
    python benchmarks/chex_results.py audits --figure docs/results/chex.png > tables.md
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rightlung.measuring import find_measure

SHOWN = {
    "grounding": ("box_miou", "sentence_map"), "detection": ("map",), "classification": ("finding_auroc",),
    "region-classification": ("finding_auroc_weighted", "finding_auroc"),
    "region-description": ("micro_f1_14", "sided_f1", "meteor"), "report": ("micro_f1_14", "sided_f1", "meteor"),
}  # fmt: skip
PHANTOMS = {"chex-phantom": "phantoms", "chex-held-out": "held-out wordings and regions"}
REAL = {"chex-nih": "chex, no real box in training", "chex-boxes": "chex, fine-tuned on boxes, cross-validated"}
EXCHANGED = "exchange-image"


def parts(result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """Yield the title, numbers and measures to show of each part of each task."""
    for task, found in result["tasks"].items():
        own = {"": found} if "measures" in found else found
        for one in own.values():
            yield one["title"], one, SHOWN[task]


def best_blind(part: dict[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the value of the best image-blind baseline, and the model's difference from it."""
    known = {base: one for base, one in part["blind"].items() if one["measures"][name].get("estimate") is not None}
    best = max(known, key=lambda base: known[base]["measures"][name]["estimate"])
    return known[best]["measures"][name], known[best]["difference"].get(name, {})


def span(one: dict[str, Any], signed: bool = False, percent: bool = False) -> str:
    """Return an estimate with its interval."""
    if one.get("estimate") is None:
        return "–"
    factor, digits, sign = (100, 1, "+" if signed else "") if percent else (1, 3, "+" if signed else "")
    value, low, high = (factor * one[name] for name in ("estimate", "low", "high"))
    return f"{value:{sign}.{digits}f} ({low:{sign}.{digits}f} to {high:{sign}.{digits}f})"


def rows(
    result: dict[str, Any],
) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Yield title, measure, model, best baseline, difference, and the value with another patient's image."""
    for title, part, names in parts(result):
        for name in names:
            model = part["measures"].get(name, {})
            if model.get("estimate") is not None:
                blind, difference = best_blind(part, name)
                other = part["conditions"].get(EXCHANGED, {}).get("measures", {}).get(name, {})
                yield title, find_measure(name).title, model, blind, difference, other


def draw(folder: Path, path: Path) -> None:
    """Draw the model, the best baseline and another patient's image for the phantoms, and detection on real images."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1])
    found = list(rows(read(folder / "chex-phantom")))
    styles = {
        "model": ("#1f6fb4", "o"),
        "image-blind baseline": ("#888888", "s"),
        "another patient's image": ("#d9822b", "^"),
    }
    for place, (_, _, model, blind, _, other) in enumerate(found):
        for (label, (color, marker)), one in zip(styles.items(), (model, blind, other), strict=True):
            if one.get("estimate") is not None:
                errors = [[one["estimate"] - one["low"]], [one["high"] - one["estimate"]]]
                left.errorbar(
                    one["estimate"], -place, xerr=errors, fmt=marker, color=color, label=None if place else label
                )
    left.set_yticks(
        [-place for place in range(len(found))], [f"{title}: {name}" for title, name, *_ in found], fontsize=8
    )
    left.set(title="200 phantoms", xlim=(0, 1), xlabel="score (higher is better)")
    left.legend(loc="lower right", fontsize=8)
    bars = {"image-blind": ("chex-nih", "blind-random", "#888888"), "chex": ("chex-nih", "model", "#1f6fb4"),
            "chex, fine-tuned on boxes": ("chex-boxes", "model", "#2a9d5c")}  # fmt: skip
    for shift, (label, (name, which, color)) in enumerate(bars.items()):
        by_class = read(folder / name)["tasks"]["detection"]["by_class"]
        classes = sorted(by_class)
        values = [100 * by_class[one][which]["estimate"] for one in classes]
        right.barh([-place - 0.27 * shift for place in range(len(classes))], values, 0.25, color=color, label=label)
    right.set_yticks([-place - 0.27 for place in range(len(classes))], classes, fontsize=8)
    right.set(title="432 NIH radiographs: detection", xlabel="average precision, IoU 0.1–0.7, percent")
    right.legend(loc="lower right", fontsize=8)
    figure.savefig(path, dpi=110)


def read(folder: Path) -> dict[str, Any]:
    """Return the numbers of an audit."""
    found: dict[str, Any] = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Print the tables; draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the four audits")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    head = "| task | measure | model | best image-blind baseline | difference | another patient's image |"
    for name, title in PHANTOMS.items():
        result = read(given.folder / name)
        print(f"\n## {title}: {result['source']}\n\n{head}\n| --- | --- | ---: | ---: | ---: | ---: |")
        for task, measure, model, blind, difference, other in rows(result):
            print(f"| {task} | {measure} | {span(model)} | {span(blind)} | {span(difference, True)} | {span(other)} |")
    print("\n## NIH, percent\n\n| | mAP | without cardiomegaly | protocol |\n| --- | ---: | ---: | --- |")
    for name, title in REAL.items():
        part = read(given.folder / name)["tasks"]["detection"]
        others = part["without_cardiomegaly"]["measures"]
        if name == "chex-nih":
            for base in part["blind"]:
                cells = span(part["blind"][base]["measures"]["map"], percent=True), span(others[base], percent=True)
                print(f"| {base} | {cells[0]} | {cells[1]} | |")
        cells = span(part["measures"]["map"], percent=True), span(others["model"], percent=True)
        print(f"| {title} | {cells[0]} | {cells[1]} | {part['protocol']['hash']} |")
    names = sorted(read(given.folder / "chex-nih")["tasks"]["detection"]["by_class"])
    print(f"\n| average precision, percent | {' | '.join(names)} |\n| --- |{' ---: |' * len(names)}")
    for name, title in REAL.items():
        by_class = read(given.folder / name)["tasks"]["detection"]["by_class"]
        print(f"| {title} | " + " | ".join(f"{100 * by_class[one]['model']['estimate']:.1f}" for one in names) + " |")
    if given.figure:
        draw(given.folder, given.figure)


if __name__ == "__main__":
    main()
