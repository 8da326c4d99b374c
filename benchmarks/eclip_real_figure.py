"""Draw docs/results/eclip-real.png from the tables that eclip_real.py has written.

python benchmarks/eclip_real_figure.py runs/eclip-real/parts docs/results/eclip-real.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MODELS = {"location prior": "location prior (image-blind)", "clip": "CLIP", "plain": "CLIP + images, without boxes",
          "eclip": "eCLIP", "tied": "+ tied (ours)"}  # fmt: skip
PANELS = {
    "pointing": ("Where the model looks\n484 boxes of unseen patients", "pointing, 95 % interval", (0, 0.6)),
    "zero-shot, mean of folds: mean AUROC": (
        "Whether it recognises\n8 findings, 761 images of val", "zero-shot AUROC, 95 % interval", (0.38, 0.68),
    ),
}  # fmt: skip


def estimates(rows: list[dict[str, Any]], measure: str) -> dict[str, tuple[float, float, float]]:
    """Return value and interval of each model."""
    found = {row["model"]: row["value"] for row in rows if row["measure"] == measure}
    return {name: (one["estimate"], one["low"], one["high"]) for name, one in found.items()}


def main(parts: Path, picture: Path) -> None:
    """Write the figure."""
    from matplotlib.figure import Figure

    rows = json.loads((parts / "boxes.json").read_text(encoding="utf-8"))
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    panels = figure.subplots(1, len(PANELS), sharey=True)
    for panel, (measure, (title, label, limits)) in zip(panels, PANELS.items(), strict=True):
        for place, name in enumerate(MODELS):
            if (one := estimates(rows, measure).get(name)) is not None:
                value, low, high = one
                colour = "#c2571a" if name == "location prior" else "#0b6e99"
                panel.errorbar([value], [place], xerr=[[value - low], [high - value]], fmt="o", color=colour, capsize=3)
        if "AUROC" in measure:
            panel.axvline(0.5, color="grey", linestyle=":", linewidth=1)
            panel.text(0.503, 0.1, "chance", color="grey", fontsize="small")
        panel.set(title=title, xlabel=label, xlim=limits, yticks=range(len(MODELS)))
        panel.set_yticklabels(MODELS.values())
        panel.grid(axis="x", alpha=0.3)
    figure.axes[0].invert_yaxis()
    figure.savefig(picture, dpi=100)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
