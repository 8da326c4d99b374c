"""Draw docs/results/starter.png from the tables of docs/results/starter-appendix.md.

python benchmarks/starter_figure.py
"""

from __future__ import annotations

import re
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PANELS = {"Starter, 2,000 phantom studies": "2,000 phantoms", "Starter, 432 NIH radiographs": "432 NIH radiographs"}
ROWS = {
    "all": "all phrases", "focal findings": "focal findings", "small": "small targets", "medium": "medium targets",
    "large": "large targets", "exchange-image": "another patient's image",
}  # fmt: skip
POINTING, PRIOR = 8, 9
"""Columns of the tables: pointing of the model and of the prior."""


def pointing(section: str) -> dict[str, list[tuple[float, float, float]]]:
    """Return value and interval of the model's and the prior's pointing for each group of `ROWS`."""
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in ROWS and len(cells) > PRIOR:
            found[cells[0]] = [_numbers(cells[column]) for column in (POINTING, PRIOR)]
    return found


def _numbers(cell: str) -> tuple[float, float, float]:
    value, low, high = (float(number) for number in re.findall(r"\d\.\d+", cell))
    return value, low, high


def main() -> None:
    """Write the figure."""
    from matplotlib.figure import Figure

    sections = (RESULTS / "starter-appendix.md").read_text(encoding="utf-8").split("\n## ")
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, len(PANELS), sharey=True)
    for panel, (heading, title) in zip(axes, PANELS.items(), strict=True):
        found = pointing(next(section for section in sections if section.startswith(heading)))
        for number, (label, colour, marker) in enumerate(
            [("model", "#0b6e99", "o"), ("image-blind prior", "#c2571a", "s")]
        ):
            triples = [found[row][number] for row in ROWS]
            values = [value for value, _, _ in triples]
            errors = [[value - low for value, low, _ in triples], [high - value for value, _, high in triples]]
            heights = [row + (number - 0.5) * 0.28 for row in range(len(ROWS))]
            panel.errorbar(values, heights, xerr=errors, fmt=marker, color=colour, capsize=2, markersize=5, label=label)
        panel.set(title=title, xlim=(-0.02, 1.02), xlabel="pointing, 95 % interval", yticks=range(len(ROWS)))
        panel.set_yticklabels(ROWS.values())
        panel.grid(axis="x", alpha=0.3)
    axes[0].invert_yaxis()
    axes[1].legend(loc="lower right", fontsize="small")
    figure.savefig(RESULTS / "starter.png", dpi=130)


if __name__ == "__main__":
    main()
