"""What the page and the Markdown both say, in their order: the facts, the claims, the tables and the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rightlung import __version__
from rightlung.reproduce.wrong_lung.claims import Judged, judge_all
from rightlung.reproduce.wrong_lung.facts import absent_from, facts_of, warning_of, without_of
from rightlung.reproduce.wrong_lung.figures import Drawing, change_figures, correlation_figures
from rightlung.reproduce.wrong_lung.judging import FAILS, HOLDS, NOT_SHOWN, TURNS, UNKNOWN, Verdict
from rightlung.reproduce.wrong_lung.labels import compare_labels, held_by_labels, turned_by_labels
from rightlung.reproduce.wrong_lung.own_tables import models_table, own_tables, training_table
from rightlung.reproduce.wrong_lung.paper_tables import change_tables, paper_tables
from rightlung.reproduce.wrong_lung.published import published
from rightlung.reproduce.wrong_lung.results import Results
from rightlung.reproduce.wrong_lung.seeds import seeds_figure, seeds_table
from rightlung.reproduce.wrong_lung.tables import NOT_COMPARABLE, Measured, Table

TITLE = "“That’s the Wrong Lung!” again"
VERDICTS = (HOLDS, FAILS, TURNS, NOT_SHOWN, UNKNOWN)
_TARGET_WORDS = {"regions": "region boxes", "exact": "exact masks"}
LEFT_OUT = "Left out, and why:"
WITHOUT = "Not every phrase can be put to every test:"
EXAMPLES = "Figure 7: example maps"
TURNED_VERDICTS = "These claims hold against the one and do not hold against the other:"
SAME_VERDICTS = "No claim holds against the one and does not hold against the other."
OTHER_DATA = (
    "The paper's figures come from other data (MIMIC-CXR with Chest ImaGenome) and are printed so that directions can "
    "be compared; the numbers themselves cannot."
)
OVER_PATIENTS = (
    "Intervals are for each comparison by itself, and over patients: what another seed of training would change is in "
    "none of them."
)
SEED_BY_SEED = (
    "Where a claim holds with one seed and does not with another, it turns on the seed; what all seeds agree on counts "
    "before their means. Seeds of two variants are compared by their number, which is one way to pair them of many."
)


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading, an introduction, and its tables and figures."""

    name: str
    title: str
    introduction: str
    parts: tuple[Table | Drawing, ...]


@dataclass(frozen=True)
class Report:
    """Everything that is written down."""

    warning: str
    """What has to be read before anything else, or nothing."""
    facts: Mapping[str, str]
    left_out: Mapping[str, int]
    without: Mapping[str, int]
    """Phrases that a condition or a target does not apply to."""
    commands: Sequence[str]
    absent: Sequence[str]
    found: Sequence[str]
    judged: Sequence[Judged]
    labels_matter: Sequence[str]
    """Claims that hold on region boxes and do not on exact masks, or the other way round."""
    labels_figures: str
    labels_table: Table | None
    sections: Sequence[Section]
    models: Sequence[Mapping[str, Any]]
    sureness: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return every number, and what it rests on."""
        drawings = [part for section in self.sections for part in section.parts if isinstance(part, Drawing)]
        return {
            "version": __version__,
            "paper": published().paper,
            "warning": self.warning,
            "facts": dict(self.facts),
            "intervals": dict(self.sureness),
            "left_out": dict(self.left_out),
            "without": dict(self.without),
            "commands": list(self.commands),
            "missing": list(self.absent),
            "found": list(self.found),
            "models": [dict(model) for model in self.models],
            "claims": [judged.as_json() for judged in self.judged],
            "tables": {
                part.name: part.as_json()
                for part in (self.labels_table, *(part for section in self.sections for part in section.parts))
                if isinstance(part, Table)
            },
            "figures": {drawing.name: drawing.numbers for drawing in drawings if drawing.numbers is not None},
        }


def make_report(measured: Measured, commands: Sequence[str] = ()) -> Report:
    """Estimate everything."""
    results, sure = measured.results, measured.estimator.sureness
    judged = judge_all(measured)
    about = results.instances.about
    labels_figures, labels_table = compare_labels(measured)
    return Report(
        warning_of(results),
        facts_of(measured),
        {str(reason): int(count) for reason, count in (about.get("left_out") or {}).items()},
        without_of(about),
        [*commands] or [str(command) for command in about.get("commands") or ()],
        absent_from(results),
        [*_found(judged), *_once(results)],
        judged,
        turned_by_labels(judged),
        " ".join(part for part in (labels_figures, held_by_labels(judged)) if part),
        labels_table,
        _sections(measured),
        [_model(model) for model in results.models],
        {
            "resamples": sure.resamples,
            "level": sure.level,
            "seed": sure.seed,
            "resampled": results.instances.resampled,
            "method": "BCa",
        },
    )


def _model(model: Any) -> dict[str, Any]:
    return {**model.about, "errors": model.errors, "undefined": dict(model.left_out)}


def _once(results: Results) -> list[str]:
    """Say how many variants were trained with one seed only."""
    seeds = [len(results.seeds(row.variant)) for row in results.rows if row.seed is not None]
    once = seeds.count(1)
    return [f"Trained with one seed only: {once} of {len(seeds)} variants. {OVER_PATIENTS}"] if once else []


def _found(judged: Sequence[Judged]) -> list[str]:
    """Say how many claims hold, and what became of our aims."""
    said = []
    for target, words in _TARGET_WORDS.items():
        paper = [one for one in judged if one.of_paper and target in one.judgements]
        counts = Counter(one.verdict(target) for one in paper)
        each = Counter(one.verdict(target) for one in paper if one.with_each_seed(target))
        listed = ", ".join(
            f"{counts[verdict]} {words_of(verdict, counts[verdict])}"
            + (f" ({each[verdict]} with each seed by itself)" if each and verdict in (HOLDS, FAILS) else "")
            for verdict in VERDICTS
            if counts[verdict]
        )
        if listed:
            said.append(f"Of the paper's {sum(counts.values())} claims judged against {words}: {listed}.")
    for one in judged:
        if one.claim.ours:
            for target, judgement in one.judgements.items():
                aim = (f"Our aim: {one.claim.text} It {_it(one.verdict(target))}.", _capital(judgement.sentence))
                said.append(" ".join(part for part in (*aim, *_by_seed(one, target)) if part))
    return said


def _it(verdict: Verdict) -> str:
    return "is not shown" if verdict == NOT_SHOWN else verdict


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def words_of(verdict: Verdict, count: int) -> str:
    """Return a verdict as it goes with a count."""
    if count == 1:
        return "shows no difference" if verdict == NOT_SHOWN else verdict
    return {
        HOLDS: "hold",
        FAILS: "do not hold",
        TURNS: "turn on the seed",
        NOT_SHOWN: "show no difference",
        UNKNOWN: "cannot be told",
    }[verdict]


def sureness_words(judged: Judged, target: str) -> str:
    """Say whether a verdict survives the adjustment for all comparisons, and what each seed says by itself."""
    said = []
    if (after := judged.after_holm(target)) is not None:
        said.append("Also after Holm's adjustment." if after else "Not after Holm's adjustment.")
    return " ".join((*said, *_by_seed(judged, target)))


def _by_seed(judged: Judged, target: str) -> list[str]:
    """Say what each seed says by itself, where there are several."""
    seeds = judged.each_seed.get(target, ())
    if not set(seeds) - {UNKNOWN}:
        return []
    said = (
        f"Each of the {len(seeds)} seeds by itself says so"
        if judged.with_each_seed(target)
        else f"Seed by seed: {', '.join(seeds)}"
    )
    means = judged.judgements[target].verdict
    return [f"{said}; their means: {means}." if means != judged.verdict(target) else f"{said}."]


def _sections(measured: Measured) -> list[Section]:
    if not measured.results.models:
        return []
    tables = {table.name: table for table in paper_tables(measured)}
    own = {table.name: table for table in own_tables(measured)}
    seeds = (seeds_figure(measured), seeds_table(measured))
    changes: list[Table | Drawing] = []
    for target in ("regions", "exact"):
        changes += [*change_figures(measured, target), *change_tables(measured, target)]
    models, training = models_table(measured.results), training_table(measured.results)
    quotes = {quote.what: quote.value for quote in published().quotes}
    radiologist = (
        "The paper's radiologist gave GLoRIA's maps "
        f"{quotes['recall']} of 5 for recall, {quotes['precision']} for precision and {quotes['intuitiveness']} for "
        "intuitiveness (section 3.4): no measure here stands for that judgement."
    )
    localisation = [name for name in tables if name not in ("t4", "t8", "t9", "t10")]
    return [
        section
        for section in (
            Section(
                "own", "What the paper does not measure", "Exact masks, and what the image adds.", tuple(own.values())
            ),
            Section("seeds", "What a seed changes", OVER_PATIENTS, tuple(part for part in seeds if part)),
            Section(
                "localisation",
                "Localisation",
                f"The paper's Tables 1 to 3, 6, 7, 11 and 12. {radiologist}",
                tuple(tables[name] for name in localisation),
            ),
            Section(
                "changes",
                "When words, image or target are changed",
                "The paper's Figures 3, 5 and 14. Discs are models; diamonds are references and models that are not "
                "comparable (*). Random BBoxes and Shuffle in Report change the target, the others what is asked.",
                tuple(changes),
            ),
            Section(
                "selection",
                "Selecting the sentence",
                "The paper's Tables 4 and 9.",
                tuple(tables[name] for name in ("t4", "t9")),
            ),
            Section(
                "maps",
                "The maps themselves",
                "The paper's Tables 8 and 10.",
                tuple(tables[name] for name in ("t8", "t10")),
            ),
            Section(
                "correlations",
                "Correlations between instances' values",
                "The paper's Figures 6 and 18 to 24, without the radiologist's judgements."
                + (f" {NOT_COMPARABLE}" if any(not model.comparable for model in measured.results.rows) else ""),
                tuple(correlation_figures(measured)),
            ),
            Section("training", "Models and training", "", tuple(part for part in (models, training) if part)),
        )
        if section.parts
    ]
