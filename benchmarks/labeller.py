"""The rule labeller on real reports: agreement with Open-I's MeSH coding, and speed, beside what one would write first.

    python benchmarks/labeller.py openi.tar [--resamples 2000] [--val]

The file is a folder or tar in the ``manifest`` format whose rows carry ``sections``, ``mesh``, ``split`` and ``study``.
Of its texts nothing is printed. The rules come in three parts (see `rightlung.lexicon.rules`): what is measured on one
half of ``train`` leaves out the part that was tuned on that half; ``val`` is measured with all of them.

Without a file, only the speed is measured, on phantom reports.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightlung.lexicon import REGIONS
from rightlung.lexicon.labeller import (
    OBSERVATIONS,
    clear_sentence_cache,
    observations,
    read_report,
    read_sentence,
)
from rightlung.lexicon.phrase_table import words_of
from rightlung.lexicon.rules import PARTS, Part, rules
from rightlung.phantom.config import default_config
from rightlung.phantom.report import plain_style, write_report
from rightlung.phantom.sampling import sample_scene
from rightlung.scoring.statistics import Interval, bootstrap_by_counts
from rightlung.studies import open_source

FloatArray = NDArray[np.float64]

CODES = {
    "Cardiomegaly": ("cardiomegaly",),
    "Edema": (
        "pulmonary edema",
        "pulmonary congestion",
        "heart failure",
    ),
    "Consolidation": ("consolidation",),
    "Pneumonia": ("pneumonia",),
    "Atelectasis": (
        "pulmonary atelectasis",
        "volume loss",
    ),
    "Pneumothorax": (
        "pneumothorax",
        "hydropneumothorax",
        "hemopneumothorax",
    ),
    "Pleural Effusion": (
        "pleural effusion",
        "hemothorax",
    ),
    "Fracture": ("fractures, bone",),
    "Support Devices": (
        "catheters, indwelling",
        "tube, inserted",
        "implanted medical device",
        "medical device",
        "stents",
    ),
    "Lung Opacity": (
        "airspace disease",
        "infiltrate",
        "lung diseases, interstitial",
        "pulmonary fibrosis",
    ),
    "Lung Lesion": (
        "cavitation",
        "lung neoplasms",
    ),
}
ELSEWHERE = frozenset({
    "abdomen", "aorta", "axilla", "bone and bones", "breast", "clavicle", "heart", "humerus", "liver", "lymph nodes",
    "mediastinum", "neck", "ribs", "scapula", "soft tissue", "spine", "spleen", "sternum", "thoracic vertebrae",
})  # fmt: skip
"""Places outside the lungs. A code without a place is taken to be in them, as in "scattered granulomas"."""


def coded(mesh: Sequence[str]) -> frozenset[str]:
    """Return the observations that a coding says are there."""
    return frozenset(label for code in mesh for label in _labels_of(code))


def _labels_of(code: str) -> Iterator[str]:
    heading, *rest = code.lower().replace("  ", " ").split("/")
    where = set(rest)
    yield from (label for label, headings in CODES.items() if heading in headings)
    if heading in ("hydropneumothorax", "hemopneumothorax"):
        yield "Pleural Effusion"
    if heading == "cardiac shadow" and "enlarged" in where:
        yield "Cardiomegaly"
    if heading == "mediastinum" and where & {"prominent", "enlarged", "widened"}:
        yield "Enlarged Cardiomediastinum"
    if heading in ("nodule", "mass", "granuloma", "calcified granuloma") and not where & ELSEWHERE:
        yield "Lung Lesion"
    if heading in ("opacity", "density") and not where & ELSEWHERE:
        yield "Lung Opacity"
    if heading in ("markings", "lung", "thickening") and "interstitial" in where:
        yield "Lung Opacity"
    if heading == "cicatrix":
        yield "Pleural Other" if "pleura" in where else "Lung Opacity"
    if heading in ("thickening", "calcinosis") and "pleura" in where:
        yield "Pleural Other"


@dataclass(frozen=True)
class Exam:
    """One report with its coding."""

    name: str
    half: str
    sections: Mapping[str, str]
    present: frozenset[str]


def read_exams(path: str) -> list[Exam]:
    """Return every coded exam once, with the half of ``train`` (drawn by its name) or the split it belongs to."""
    exams: dict[str, Exam] = {}
    for study in open_source(f"manifest:{path}"):
        name = study.exam or study.id
        mesh = study.extra.get("mesh", ())
        if name in exams or "No Indexing" in mesh or study.report is None:
            continue
        half = study.split or ""
        if half == "train":
            half = "second" if hashlib.sha256(name.encode()).digest()[0] % 2 else "first"
        present = coded(mesh)
        if not present - {"Support Devices"}:
            present |= {"No Finding"}
        exams[name] = Exam(name, half, study.report.sections, present)
    return list(exams.values())


_NAIVE = {
    "Enlarged Cardiomediastinum": ("mediastinal widening", "widened mediastinum", "mediastinal prominence"),
    "Cardiomegaly": ("cardiomegaly", "enlarged heart", "heart is enlarged", "cardiac enlargement", "enlarged cardiac"),
    "Lung Opacity": ("opacity", "opacities", "opacification", "airspace disease", "infiltrate", "interstitial", "scar"),
    "Lung Lesion": ("nodule", "nodular", "mass", "granuloma", "lesion", "tumor", "carcinoma"),
    "Edema": ("edema", "heart failure", "chf", "congestion"),
    "Consolidation": ("consolidation", "consolidated"),
    "Pneumonia": ("pneumonia", "infection", "infectious"),
    "Atelectasis": ("atelectasis", "atelectatic", "collapse", "volume loss"),
    "Pneumothorax": ("pneumothorax", "pneumothoraces"),
    "Pleural Effusion": ("effusion", "pleural fluid"),
    "Pleural Other": ("pleural thickening", "pleural scar", "pleural plaque"),
    "Fracture": ("fracture",),
    "Support Devices": ("pacemaker", "picc", "catheter", "tube", "line", "stent", "valve", "hardware", "port", "wires"),
}  # fmt: skip
_NAIVE_PATTERNS = {
    label: [re.compile(rf"\b{word}") for word in words] for label, words in _NAIVE.items()
}  # fmt: skip
_NEGATION = re.compile(r"\b(?:no|not|without|negative for|free of|absent|resolved)\b")
_DOUBT = re.compile(
    r"\b(?:possible|possibly|may|might|could|cannot|versus|vs|probable|suspicious|concern\w*|question\w*)\b"
)


def naive(sections: Mapping[str, str]) -> dict[str, str]:
    """What one would write first: a regular expression a word, negated by a cue before it in the sentence."""
    found: dict[str, str] = {}
    strength = {"": 0, "negative": 1, "uncertain": 2, "positive": 3}
    for name in ("findings", "impression"):
        for sentence in re.split(r"(?<=[.?!])\s+|\n+", (sections.get(name) or "").lower()):
            for label, patterns in _NAIVE_PATTERNS.items():
                for pattern in patterns:
                    for match in pattern.finditer(sentence):
                        before = sentence[: match.start()]
                        said = (
                            "negative"
                            if _NEGATION.search(before)
                            else "uncertain"
                            if _DOUBT.search(sentence)
                            else "positive"
                        )
                        if strength[said] > strength[found.get(label, "")]:
                            found[label] = said
    if all(said == "negative" for label, said in found.items() if label != "Support Devices"):
        found["No Finding"] = "positive"
    return found


def keywords(sections: Mapping[str, str], parts: tuple[Part, ...] = PARTS) -> dict[str, str]:
    """The baseline: every word for a finding counts as the finding, whatever is said of it."""
    known = rules(parts)
    found: dict[str, str] = {}
    for sentence in (read.text for read in read_report(sections)):
        for _, _, (kind, finding) in known.phrases.find_all(words_of(sentence)):
            if kind == "mention":
                found.update(dict.fromkeys(known.observations.get(finding, ()), "positive"))
    if not found.keys() - {"Support Devices"}:
        found["No Finding"] = "positive"
    return found


Labels = Callable[[Exam], Mapping[str, str | None]]
STRENGTH = {"negative": 1, "uncertain": 2, "positive": 3}
FIRM, LENIENT = frozenset({"positive"}), frozenset({"positive", "uncertain"})


@dataclass(frozen=True)
class Row:
    """How one observation fares: exams coded with it, exams said to have it, and three scores."""

    coded: int
    said: int
    precision: Interval
    recall: Interval
    f1: Interval


def _ratio(above: FloatArray, below: FloatArray, clusters: Sequence[str], resamples: int) -> Interval:
    def of_counts(counts: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios: FloatArray = (counts @ above) / (counts @ below)
        return ratios

    return bootstrap_by_counts(of_counts, len(above), clusters=clusters, resamples=resamples, method="percentile")


def table(exams: Sequence[Exam], label: Labels, counted: frozenset[str], resamples: int) -> dict[str, Row]:
    """Return the scores of each observation; ``counted`` are the judgements that count as present."""
    given = [label(exam) for exam in exams]
    clusters = [exam.name for exam in exams]
    rows = {}
    for observation in OBSERVATIONS:
        truth = np.array([observation in exam.present for exam in exams], dtype=float)
        said = np.array([labels.get(observation) in counted for labels in given], dtype=float)
        both, either = truth * said, (truth + said) / 2
        scores = [_ratio(both, below, clusters, resamples) for below in (said, truth, either)]
        rows[observation] = Row(int(truth.sum()), int(said.sum()), *scores)
    return rows


def show(title: str, rows: Mapping[str, Row], chosen: Sequence[str]) -> None:
    """Print a table in Markdown."""
    print(f"\n{title}\n")
    print("| observation | coded | said | precision | recall | F1 |\n| --- | --- | --- | --- | --- | --- |")
    for observation in chosen:
        row = rows[observation]
        cells = [f"{one.estimate:.2f} ({one.low:.2f}–{one.high:.2f})" for one in (row.precision, row.recall, row.f1)]
        print(f"| {observation} | {row.coded} | {row.said} | {' | '.join(cells)} |")


def show_errors(exams: Sequence[Exam], label: Labels, chosen: Sequence[str]) -> None:
    """Print how many disagreements there are of each kind that can be told without reading."""
    print("\ntrain, all rules: disagreements by kind\n")
    print("| observation | said, not coded | of these uncertain | coded, not said | no word for it | denied |")
    print("| --- | --- | --- | --- | --- | --- |")
    given = [(exam, label(exam), keywords(exam.sections)) for exam in exams]
    for observation in chosen:
        extra = [
            labels for exam, labels, _ in given if observation not in exam.present and labels[observation] in LENIENT
        ]
        missed = [one for one in given if observation in one[0].present and one[1][observation] not in LENIENT]
        doubted = sum(labels[observation] == "uncertain" for labels in extra)
        wordless = sum(observation not in words for _, _, words in missed)
        denied = sum(labels[observation] == "negative" and observation in words for _, labels, words in missed)
        print(f"| {observation} | {len(extra)} | {doubted} | {len(missed)} | {wordless} | {denied} |")


def measure(path: str, resamples: int, with_val: bool) -> None:
    """Print all tables."""
    exams = read_exams(path)
    train = [exam for exam in exams if exam.half in ("first", "second")]
    val = [exam for exam in exams if exam.half == "val"]
    chosen = [label for label in OBSERVATIONS if sum(label in exam.present for exam in exams) >= 20]
    print(f"{len(train)} coded exams in train, {len(val)} in val")
    left_out = [label for label in OBSERVATIONS if label not in chosen]
    print(f"fewer than 20 coded positives, not measured: {', '.join(left_out)}")

    def fitted(first: tuple[Part, ...], second: tuple[Part, ...]) -> Labels:
        parts = {"first": first, "second": second, "val": PARTS}
        return lambda exam: observations(exam.sections, parts=parts[exam.half])

    def spotted(exam: Exam) -> Mapping[str, str]:
        other: dict[str, tuple[Part, ...]] = {"first": ("base", "second"), "second": ("base", "first"), "val": PARTS}
        return keywords(exam.sections, other[exam.half])

    untuned, shipped = fitted(("base",), ("base",)), fitted(PARTS, PARTS)
    crossed = fitted(("base", "second"), ("base", "first"))
    ways: list[tuple[str, Sequence[Exam], Labels, frozenset[str]]] = []
    for half in ("first", "second"):
        part = [exam for exam in train if exam.half == half]
        ways.append((f"{half} half of train, before any tuning", part, untuned, LENIENT))
        ways.append((f"{half} half of train, tuned on the other", part, crossed, LENIENT))
    ways.append(("train, cross-fitted: uncertain counts as present", train, crossed, LENIENT))
    ways.append(("train, cross-fitted: uncertain counts as absent", train, crossed, FIRM))
    ways.append(("train, all rules (tuned on these reports)", train, shipped, LENIENT))
    if with_val:
        ways.append(("val, all rules: uncertain counts as present", val, shipped, LENIENT))
        ways.append(("val, all rules: uncertain counts as absent", val, shipped, FIRM))
    for name, some in (("train", train), *([("val", val)] if with_val else [])):
        ways.append(
            (f"{name}, a regular expression a word, with negation", some, lambda exam: naive(exam.sections), LENIENT)
        )
        ways.append((f"{name}, keywords without negation", some, spotted, LENIENT))
    for title, some_exams, label, counted in ways:
        show(title, table(some_exams, label, counted, resamples), chosen)
    show_errors(train, shipped, chosen)


def phantom_reports(count: int) -> list[dict[str, str]]:
    """Return the sections of made-up reports."""
    config = default_config()
    reports = []
    for index in range(count):
        sections: dict[str, list[str]] = {}
        for statement in write_report(sample_scene(config, 1, index), config, 1):
            sections.setdefault(statement.section, []).append(statement.text)
        reports.append({name: " ".join(texts) for name, texts in sections.items()})
    return reports


def agreement(count: int) -> None:
    """Print how often a phantom sentence is read as it was meant: by observation and polarity, and by side."""
    print("\nphantom sentences\n\n| | judgements | as meant | sides | as meant |\n| --- | --- | --- | --- | --- |")
    known = rules().observations
    for title, config in (("plain", plain_style(default_config())), ("with slips of the keys", default_config())):
        told = agreed = sides = same = 0
        for index in range(count):
            for statement in write_report(sample_scene(config, 2, index), config, 2):
                read = read_sentence(statement.text)
                findings: dict[str, str] = {}
                for finding, polarity in sorted(read.findings.items(), key=lambda item: STRENGTH[item[1]]):
                    findings.update(dict.fromkeys(known.get(finding, ()), polarity))
                meant = [(label, said) for name, said in statement.findings.items() for label in known.get(name, ())]
                meant = [(label, said) for label, said in meant if label != "No Finding"]
                told += len(meant)
                agreed += sum(findings.get(label) == said for label, said in meant)
                meant_sides = {REGIONS[name].side for name in statement.regions} - {"none"}
                if statement.lesions and len(meant_sides) == 1 and read.side is not None:
                    sides += 1
                    same += read.side in meant_sides
        print(f"| {title} | {told:,} | {agreed / told:.1%} | {sides:,} | {same / sides:.1%} |")


def speed(reports: Sequence[Mapping[str, str]], title: str) -> None:
    """Print reports a second on one core, each way three times in turn, the best of each."""
    as_text = ["\n".join(f"{name.upper()}: {text}" for name, text in report.items() if text) for report in reports]
    ways: dict[str, Callable[[], object]] = {
        "observations, from sections": lambda: [observations(report) for report in reports],
        "observations, from text with headings": lambda: [observations(text) for text in as_text],
        "findings, sides and regions by sentence": lambda: [read_report(report) for report in reports],
        "a regular expression a word, with negation": lambda: [naive(report) for report in reports],
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(3):
        for name, way in ways.items():
            clear_sentence_cache()  # within a pass they recur as they do in the reports, and no more
            start = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - start)
    letters = sum(map(len, as_text)) / len(as_text)
    print(f"\nspeed, {len(reports)} {title}, {letters:.0f} characters each\n\n| | reports/s |\n| --- | --- |")
    for name, seconds in best.items():
        print(f"| {name} | {len(reports) / seconds:,.0f} |")


def main() -> None:
    """Print accuracy and speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?")
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--val", action="store_true", help="measure val, too, on which nothing is to be tuned")
    arguments = parser.parse_args()
    if arguments.path:
        measure(arguments.path, arguments.resamples, arguments.val)
        speed([exam.sections for exam in read_exams(arguments.path)], "real reports")
    speed(phantom_reports(2000), "phantom reports")
    agreement(2000)


if __name__ == "__main__":
    main()
