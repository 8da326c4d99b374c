"""Check labels: invalid values, unknown names, and contradictions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache

from rightlung.core import Polarity
from rightlung.lexicon import FINDINGS, LABEL_SETS, REGIONS, find
from rightlung.lexicon.findings import broader_findings
from rightlung.studies.checks.issue import HINT, WARNING, Ledger, Tally, visible
from rightlung.studies.checks.targets import Item, LintTarget, region_name

_VIEWS = {
    "pa", "ap", "frontal", "postero-anterior", "antero-posterior", "posteroanterior", "anteroposterior", "ap axial",
    "ap supine", "ap erect", "ap portable", "pa erect", "portable", "pa upright", "ap upright", "pa view", "ap view",
    "ap lordotic", "lordotic", "ap horizontal", "pa horizontal", "unknown", "supine", "erect", "ap semi erect",
}  # fmt: skip
_LATERAL = {"lateral", "ll", "lat", "rl", "left lateral", "right lateral", "lld", "rld", "l", "lateral view"}
_SEXES = {"m", "f", "male", "female", "o", "other", "u", "unknown", "x", "d", "w", "woman", "man"}
_NOTHING = {"nan", "null", "<na>", "nat", "#n/a", "n/a", "na", "none", "-", "?", "undefined"}
_OLDEST = 110
_MOSTLY = 0.8
_BESIDES = "support devices"
"""May be positive together with "no finding", as in CheXpert."""


class LabelChecks:
    """The labels of a source: names are judged at the end, by what most of them are."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._names, self._regions = Tally(), Tally()
        self._reported: set[str] = set()

    def check(self, item: Item) -> None:
        """Check one study."""
        study, place = item.study, item.place
        self._check_values(item)
        for name in study.findings:
            self._names.note(name, place, "findings")
        for target in item.targets:
            for name in target.findings:
                if f"{target.field}.label" not in item.void:
                    self._names.note(name, place, _label_field(target))
            for index, name in enumerate(target.regions):
                where = target.field if target.kind == "region" else f"{target.field}.regions[{index}]"
                if where not in item.void:
                    self._regions.note(name, place, where)
        # One wrong label contradicts many others, so there is one finding per study.
        contradictions = [*_contradictions("findings", study.findings)]
        canonical = {found.name: said for name, said in study.findings.items() if (found := find(name)) is not None}
        for target in item.targets:
            if target.kind == "phrase":
                contradictions += _contradictions(f"{target.field}.findings", target.findings)
            if target.kind == "label" or (target.boxes or target.mask is not None):
                contradictions += _located_contradictions(target, canonical)
        if contradictions:
            where, message = contradictions[0]
            others = [*dict.fromkeys(field for field, _ in contradictions[1:])]
            listed = ", ".join(others[:3] + ["…"] * (len(others) > 3))
            more = f"; and {len(contradictions) - 1} more in this study ({listed})" if others else ""
            self.ledger.add("label-contradiction", place, where, f"{message}{more}")

    def _check_values(self, item: Item) -> None:
        study, place = item.study, item.place
        for where in ("id", "patient", "study", "split", "view", "sex"):
            value = getattr(study, "exam" if where == "study" else where)
            if value is not None and value.strip().casefold() in _NOTHING and where not in item.void:
                self.ledger.add("placeholder", place, where, f"{value!r} is a placeholder; leave the field out")
        view = (study.view or "").strip().casefold().replace("_", " ")
        if view in _LATERAL:
            message = f"view {study.view!r} is lateral; a study must be one frontal image"
            self.ledger.add("label-value", place, "view", message, WARNING)
        elif view and view not in _VIEWS and view not in _NOTHING:
            near = difflib.get_close_matches(view, sorted(_VIEWS), 1, 0.6)
            meant = f"; did you mean {near[0].upper()!r}?" if near else ""
            self.ledger.add("label-value", place, "view", f"unknown view {study.view!r}{meant}", WARNING)
        sex = (study.sex or "").strip().casefold()
        if sex and sex not in _SEXES and sex not in _NOTHING:
            self.ledger.add("label-value", place, "sex", f"sex must be M, F, O or U; got {study.sex!r}", WARNING)
        if study.age is not None and study.age > _OLDEST:
            self.ledger.add("label-value", place, "age", f"implausible age: {study.age:g} years", WARNING)

    def finish(self) -> None:
        """Judge the names: if the lexicon knows most of them, the others are reported."""
        unknown = [name for name in self._names if find(name) is None and region_name(name) is None]
        self._finish_names("finding", self._names, unknown, sorted(FINDINGS))
        unknown = [name for name in self._regions if region_name(name) is None]
        self._finish_names("region", self._regions, unknown, sorted(REGIONS))
        self._finish_spellings()

    def _finish_names(self, kind: str, names: Tally, unknown: list[str], known: list[str]) -> None:
        known_uses = names.total() - sum(names[name] for name in unknown)
        mostly = known_uses >= (_MOSTLY if names.total() >= 50 else 0.5) * names.total()
        for name in unknown:
            plain = name.strip().lower()
            others = [other for other in names if other != name]
            near = difflib.get_close_matches(plain, [*known, *map(str.lower, others)], 1, 0.85)
            frequent = [other for other in others if names[other] >= max(10, 20 * names[name])]
            slip = [other for other in frequent if _ratio(plain, other.lower()) >= 0.9]
            shown = f"{kind} {visible(name)} ({_times(names[name])})"
            if re.search(r"[|;]", name):
                message = f"{shown} looks like several names in one"
            elif plain in _NOTHING:
                self.ledger.add("placeholder", *names.first[name], f"{shown} is a placeholder")
                continue
            elif mostly:
                message = f"unknown {shown}" + (f"; did you mean {near[0]!r}?" if near else "")
            elif slip:
                message = f"{shown} looks like a misspelt {visible(slip[0])}"
            else:
                continue
            self._reported.add(name)
            self.ledger.add("label-name", *names.first[name], message)

    def _finish_spellings(self) -> None:
        by_finding: dict[str, list[str]] = {}
        for name in self._names:
            by_finding.setdefault(found.name if (found := find(name)) else name.strip().casefold(), []).append(name)
        for names in by_finding.values():
            usual = max(names, key=lambda name: self._names[name])
            for name in names:
                # Only other spellings, not other words: a tube of one table may be a device of another.
                alike = _ratio(name.strip().casefold(), usual.strip().casefold()) >= 0.75
                if name != usual and alike and name not in self._reported:
                    one, other = (f"{visible(each)} ({_times(self._names[each])})" for each in (name, usual))
                    message = f"{one} means the same as {other}; a program that compares names treats them as different"
                    self.ledger.add("label-name", *self._names.first[name], message, HINT)


def _label_field(target: LintTarget) -> str:
    return f"{target.field}.{'label' if target.kind == 'label' else 'findings'}"


def _contradictions(where: str, findings: Mapping[str, Polarity]) -> Iterator[tuple[str, str]]:
    """Yield field and message of labels that contradict each other."""
    by_finding: dict[str, dict[Polarity, str]] = {}
    for name, polarity in findings.items():
        found = find(name)
        by_finding.setdefault(found.name if found else name, {})[polarity] = name
    positive = {name: said[Polarity.POSITIVE] for name, said in by_finding.items() if Polarity.POSITIVE in said}
    for name, yes in positive.items():
        if (no := by_finding[name].get(Polarity.NEGATIVE)) is not None:
            yield where, f"{visible(yes)} is positive, but {visible(no)}, the same finding, is negative"
    others = [given for name, given in positive.items() if not _is_besides(name)]
    if "no finding" in positive and others:
        yield where, f"no finding is positive together with {', '.join(repr(name) for name in others[:3])}"


def _located_contradictions(target: LintTarget, study: Mapping[str, Polarity]) -> Iterator[tuple[str, str]]:
    """Yield boxes and masks of findings that the study (given by canonical findings) says are absent."""
    field = _label_field(target)
    for name, polarity in target.findings.items():
        found = find(name)
        if polarity is not Polarity.POSITIVE or found is None:
            continue
        if study.get(found.name) is Polarity.NEGATIVE:
            yield field, f"{name!r} has a location, but is negative in the study's findings"
        elif study.get("no finding") is Polarity.POSITIVE and not _is_besides(found.name) and target.kind == "label":
            yield field, f"{name!r} has a location, but the study has no finding"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


@cache
def _pathologies() -> frozenset[str]:
    """Return the findings of the data sets that use "No Finding": not scoliosis, not a tortuous aorta."""
    meanings = (labels.findings.values() for labels in LABEL_SETS.values() if labels.no_finding is not None)
    return frozenset().union(*meanings) - {"no finding", "other finding"}


def _is_besides(name: str) -> bool:
    if name not in FINDINGS:
        return True
    wider = {name, *broader_findings(name)}
    return _BESIDES in wider or not wider & _pathologies()


_MEANT = {
    "1": "positive", "1.0": "positive", "0": "negative", "0.0": "negative", "-1": "uncertain", "-1.0": "uncertain",
    "present": "positive", "yes": "positive", "true": "positive", "pos": "positive", "absent": "negative",
    "no": "negative", "false": "negative", "neg": "negative", "maybe": "uncertain", "possible": "uncertain",
}  # fmt: skip
"""The likely meaning of other values used as a polarity."""


def explain_polarity(value: object) -> str:
    """Explain an invalid polarity by its likely meaning."""
    known = "a polarity must be positive, negative or uncertain"
    text = str(value).strip().casefold()
    near = difflib.get_close_matches(text, [*Polarity], 1, 0.6)
    meant = _MEANT.get(text) or (str(near[0]) if near else None)
    if isinstance(value, bool):
        return f"{text} looks like {meant}; {known}"
    if text in _MEANT and not text.isalpha():
        return f"{value!r} looks like CheXpert's {meant}; {known}"
    return f"{value!r} is invalid{f'; did you mean {meant!r}?' if meant else ''}; {known}"
