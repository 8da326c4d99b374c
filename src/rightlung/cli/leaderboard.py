"""``rightlung leaderboard``: rank the results of several audits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.options import Json, arg, opt
from rightlung.cli.output import finish, say, say_table

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

    Results with the same source and protocol share a table. Writes leaderboard.html, a page for each column to sort by,
    leaderboard.md and leaderboard.json.
    """
    from rightlung.audit.leaderboard import leaderboard as write

    data = write(results, out, sort)

    def tell() -> None:
        for source in dict.fromkeys(one["source"] for one in data["results"]):
            rows = [
                [one["model"], one["map"], *(_brief(one.get(name)) for name in ("average_precision", "pointing"))]
                for one in data["results"] if one["source"] == source
            ]  # fmt: skip
            say(f"{source}\n")
            say_table(["model", "map", "average precision", "pointing"], rows, words=["map"])
            say()
        for sentence in data["warnings"]:
            say(f"- {sentence}")
        say(f"page: {out / 'leaderboard.html'}\n\n{NOT_A_MEDICAL_DEVICE}")

    finish(json, {**data, "page": str(out / "leaderboard.html"), "note": NOT_A_MEDICAL_DEVICE}, tell)


def _brief(found: dict[str, float | None] | None) -> str:
    if found is None or found["estimate"] is None:
        return "–"
    return f"{found['estimate']:.2f} ({found['low']:.2f} to {found['high']:.2f})"
