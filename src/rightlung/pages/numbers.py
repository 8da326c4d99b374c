"""Format numbers for readers: a true minus sign, no minus before zero, a dash for undefined values."""

from __future__ import annotations

import math

from rightlung.pages.content import FEW, ONLY_INTERVAL, Cell
from rightlung.results.estimate import Comparison, Estimate

NONE = "–"


def number(value: float | None, digits: int = 2, signed: bool = False) -> str:
    """Return a number with a fixed number of decimals.

    >>> number(-0.126), number(-0.001), number(0.5, signed=True), number(None)
    ('−0.13', '0.00', '+0.50', '–')
    """
    if value is None or math.isnan(value):
        return NONE
    rounded = round(value, digits) + 0.0  # turns −0.0 into 0.0
    sign = "+" if signed and rounded else ""
    return f"{rounded:{sign},.{digits}f}".replace("-", "−")


def interval(estimate: Estimate, low: str, high: str) -> str:
    """Return an interval for brackets, with the number of patients if it has few patients or no width.

    >>> interval(Estimate(0.5, 0.2, 0.7, patients=3), "0.2", "0.7")
    '0.2 to 0.7; only 3 patients'
    """
    ends = f"{low} to {high}"
    if estimate.warning:
        return f"{ends}; only {estimate.patients} patients"
    return f"{ends}; {estimate.patients:,} patients" if estimate.patients and low == high.removesuffix(" %") else ends


def span(
    estimate: Estimate | None, digits: int = 2, signed: bool = False, scale: float = 1.0, brief: bool = False
) -> str:
    """Return an estimate with its interval. With ``brief``, for tables, a dagger replaces the remark on few patients.

    >>> span(Estimate(0.5, 0.25, 0.75)), span(Estimate(0.5, 0.25, 0.75, patients=3))
    ('0.50 (0.25 to 0.75)', '0.50 (0.25 to 0.75; only 3 patients)')
    """
    if estimate is None or not estimate.defined:
        return NONE
    value = number(scale * estimate.value, digits, signed)
    if not estimate.has_interval:
        return f"{value} (no interval)"
    low, high = (number(scale * end, digits) for end in (estimate.low, estimate.high))
    return f"{value} ({low} to {high}){_dagger(estimate)}" if brief else f"{value} ({interval(estimate, low, high)})"


def percent(estimate: Estimate | None, digits: int = 0) -> str:
    """Return a share with its interval in percent.

    >>> percent(Estimate(0.5, 0.25, 0.75))
    '50 % (25 to 75 %)'
    """
    if estimate is None or not estimate.defined:
        return NONE
    value, low, high = (number(100 * part, digits) for part in (estimate.value, estimate.low, estimate.high))
    return f"{value} % ({interval(estimate, low, f'{high} %')})" if estimate.has_interval else f"{value} %"


def verdict(comparison: Comparison | None, digits: int = 2, brief: bool = False) -> str:
    """Return the difference with its interval and, unless a difference is shown, the outcome in words.

    With ``brief``, for tables, a mark replaces the reason (`outcome`).
    """
    text = span(comparison, digits, signed=True)
    undecided = comparison is not None and comparison.defined and not comparison.shown
    if comparison is None or not undecided:
        return text
    return f"{text}: {outcome(comparison) if brief else comparison.verdict + why(comparison)}"


def why(comparison: Comparison) -> str:
    """Say why no difference is shown beside an interval that excludes zero; nothing otherwise.

    >>> why(Comparison(0.2, 0.1, 0.3, p=0.02, p_adjusted=0.06))
    ', although the interval excludes zero: with the other comparisons taken into account, p = 0.060'
    """
    if not comparison.only_interval:
        return ""
    p, basis = comparison.p, "the sign-flip test gives"
    if comparison.p_adjusted is not None:
        p, basis = comparison.p_adjusted, "with the other comparisons taken into account,"
    return f", although the interval excludes zero: {basis} p = {p:.3f}"


def outcome(comparison: Comparison | None) -> str:
    """Return the outcome in words for a table, with a mark that the table explains (`Table.footnotes`)."""
    if comparison is None or not comparison.defined:
        return NONE
    return f"{comparison.verdict} {ONLY_INTERVAL}" if comparison.only_interval else comparison.verdict


def _dagger(estimate: Estimate) -> str:
    return f" {FEW}" if estimate.warning else ""


def estimate_cell(
    estimate: Estimate | None, scale: float = 1.0, digits: int = 2, signed: bool = False, strong: bool = False
) -> Cell:
    """Return an estimate as a cell: the value, its interval below, and the unscaled values for the JSON file."""
    if estimate is None:
        return Cell(NONE)
    if not estimate.defined:
        return Cell(NONE, value=estimate.as_json())
    ends = (number(scale * end, digits, signed) for end in (estimate.low, estimate.high))
    detail = " to ".join(ends) + _dagger(estimate) if estimate.has_interval else "no interval"
    return Cell(number(scale * estimate.value, digits, signed), detail, estimate.as_json(), strong)
