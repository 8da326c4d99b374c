"""``rightlung score-reports``: score generated reports from a file."""

from __future__ import annotations

from pathlib import Path

from rightlung.audit.blind import BASELINES
from rightlung.audit.report_files import ReportColumns, paired, read_reports
from rightlung.audit.report_page import CHECKED, check_rows, check_sentence
from rightlung.audit.report_scores import WORD_PROTOCOLS, ReportScores, ReportScoring, score_reports
from rightlung.audit.task_page import range_of, verdict_of
from rightlung.cli.output import finish, say, say_problems, say_table
from rightlung.core.progress import ProgressBars
from rightlung.measuring import find_measure
from rightlung.pages.numbers import number, span
from rightlung.results.estimate import BootstrapSettings


def run(
    generated: str,
    references: str,
    out: Path,
    columns: ReportColumns,
    reference_columns: ReportColumns,
    train: str | None,
    protocols: list[str],
    max_words: int,
    min_count: int,
    settings: BootstrapSettings,
    json: bool,
) -> None:
    """Read, pair and score reports, and print the scores."""
    said, true = read_reports(generated, columns), read_reports(references, reference_columns)
    taught = None if train is None else read_reports(train, reference_columns if _is_table(train) else None)
    with ProgressBars(say) as tell:
        scoring = ReportScoring(
            paired(said, true), (generated, references), protocols or tuple(WORD_PROTOCOLS),
            None if taught is None else taught.reports, max_words, min_count, settings, tell,
        )  # fmt: skip
        done = score_reports(scoring, out)
    result = {**done.result, "page": str(done.page), "rows": str(done.folder / "reports.csv")}
    if taught is not None:
        result["problems"] += [str(problem) for problem in taught.problems]
    finish(json, result, lambda: say_scores(done, result["problems"]), result["problems"])


def _is_table(given: str) -> bool:
    return Path(given).exists()


def say_scores(done: ReportScores, problems: list[str]) -> None:
    """Print each part next to the image-blind baselines, and what the measures do not notice."""
    counts, titles = done.result["counts"], BASELINES["report"]
    say(
        f"{done.result['model']} against {done.result['source']}: {counts['studies']:,} reports; "
        f"{100 * done.parts[0].protocol.level:g} % bootstrap intervals over {counts['clusters']}"
    )
    for one in done.parts:
        say(f"\n{one.part.title} (protocol {one.protocol.hash})\n")
        header = ["measure", "better", "range", "generated", *(name.removeprefix("blind-") for name in one.blind)]
        rows = [
            [
                find_measure(name).title, find_measure(name).better or "neither", range_of(find_measure(name)),
                span(one.measures[name], 3, brief=True),
                *(number(found.measures[name].value, 3) for found in one.blind.values()),
            ]
            for name in one.measures
        ]  # fmt: skip
        say_table(header, rows, ["better"])
        say(f"\n- {verdict_of(one)}")
    named = (f"{name.removeprefix('blind-')}: {title}" for name, title in titles.items())
    say("\nimage-blind baselines: " + "; ".join(named))
    say(f"they learn from {done.result['baselines']['learned_from']}\n\n{check_sentence(done.check)}\n")
    say_table(["measure", *CHECKED], check_rows(done.check))
    for note in done.result["notes"]:
        say(f"- {note}")
    say_problems(problems, "rows were left out")
    say(f"\npage: {done.page}\nrows: {done.folder / 'reports.csv'}\n\n{done.result['note']}")
