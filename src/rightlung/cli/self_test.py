"""``rightlung audit --self-test``: whether each text metric notices an error in a report."""

from __future__ import annotations

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit.self_test import CHANGES, ERRORS, self_test
from rightlung.cli.output import Exit, finish, say, say_problems, say_table
from rightlung.pages.numbers import number


def run_self_test(json: bool) -> None:
    """Test the text metrics; exit with 1 if one prefers a changed report, with 3 if one could not be computed."""
    found = self_test()

    def tell() -> None:
        say(f"{found.reports} synthetic reports against themselves: {', '.join(CHANGES.values())}\n")
        rows = [
            [one.measure, *(number(one.values[name], 3) for name in CHANGES)]
            + [("yes" if one.notices(error) else "NO") if one.computed else "–" for error in ERRORS]
            for one in found.metrics
        ]
        say_table(["metric", *CHANGES, *(f"punishes {error}" for error in ERRORS)], rows)
        say("\n" + "\n".join(f"- {sentence}" for sentence in found.sentences()))
        say_problems(found.not_computed, "metrics were not computed")
        say(f"\n{NOT_A_MEDICAL_DEVICE}")

    problems = [*found.wrong, *found.not_computed]
    finish(json, found.as_json(), tell, problems, Exit.BUG if found.wrong else Exit.SOME_LEFT_OUT)
