"""``rightlung leaderboard``: rank the results of several audits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.options import Json, arg, opt
from rightlung.cli.output import finish, say, say_table

_HEADINGS = {"above_prior": "− prior", "auroc": "AUROC", "miou": "mIoU", "mdice": "mDice"}
SORT_HELP = (
    "Column to sort by: average_precision, above_prior, pointing, auroc, mdice, miou, model or map. The pages of the "
    "other columns are linked."
)


def leaderboard(
    results: Annotated[list[Path], arg("Folders of audits, or their audit.json files.", "RESULT...")],
    out: Annotated[Path, opt("Folder to write to.", "DIR")] = Path("leaderboard"),
    sort: Annotated[str, opt(SORT_HELP, "COLUMN", name="--sort")] = "average_precision",
    json: Json = False,
) -> None:
    """Rank models and kinds of maps by the results of their audits.

    Results with the same source and protocol share a table; resamples, conditions and analysis may differ. Writes
    leaderboard.html, a page for each column to sort by, leaderboard.md and leaderboard.json.
    """
    from rightlung.audit.leaderboard import MEASURES, PRIOR
    from rightlung.audit.leaderboard import leaderboard as write

    data = write(results, out, sort)

    def tell() -> None:
        shown = [*dict.fromkeys(("average_precision", "above_prior", "pointing", *({sort} & {*MEASURES})))]
        header = ["model", "map", *(_HEADINGS.get(name, name.replace("_", " ")) for name in shown)]
        for title in dict.fromkeys(one["table"] for one in data["results"]):
            found = [one for one in data["results"] if one["table"] == title]
            if title in data["priors"]:
                prior = {"model": PRIOR, "map": "image-blind", **data["priors"][title]}
                found.insert(sum(_value(one, sort) >= _value(prior, sort) for one in found), prior)
            rows = [[one["model"], one["map"], *(_brief(one, name) for name in shown)] for one in found]
            say(f"{title}\n")
            say_table(header, rows, words=["map"])
            say()
        for sentence in data["warnings"]:
            say(f"- {sentence}")
        say(f"page: {out / 'leaderboard.html'}\n\n{NOT_A_MEDICAL_DEVICE}")

    finish(json, {**data, "page": str(out / "leaderboard.html"), "note": NOT_A_MEDICAL_DEVICE}, tell)


def _value(row: dict[str, Any], column: str) -> float:
    """Return the number to place a row by; rows without it come last."""
    found = row.get(column)
    return -math.inf if not isinstance(found, dict) or found["estimate"] is None else float(found["estimate"])


def _brief(row: dict[str, Any], column: str) -> str:
    found = row.get(column)
    if found is None or found["estimate"] is None:
        return "–"
    sign = "+" if column == "above_prior" else ""
    text = f"{found['estimate']:{sign}.2f} ({found['low']:{sign}.2f} to {found['high']:{sign}.2f})"
    return text.replace("-", "−")
