"""Lay out the page of "That's the Wrong Lung!": the findings first, then claims, tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rightlung.pages.content import Cell, Column, Figure, Page, Section, Table
from rightlung.reproduce.claims import (
    FAILS,
    HOLDS,
    NOT_SHOWN,
    SEED_DEPENDENT,
    TOO_FEW,
    UNKNOWN,
    ClaimView,
    JudgedClaim,
    judge_all,
)
from rightlung.reproduce.examples import Examples
from rightlung.reproduce.measurements import OVER_PATIENTS, Measurements
from rightlung.reproduce.tables import Quantity, TableMaker, stars
from rightlung.reproduce.wrong_lung.claims import RELEASED, claims
from rightlung.reproduce.wrong_lung.extra_tables import extra_tables, labels_compared, labels_decide, labels_table
from rightlung.reproduce.wrong_lung.figures import change_figures, correlation_parts, judgement_figures
from rightlung.reproduce.wrong_lung.paper_tables import (
    change_table,
    localisation_tables,
    map_tables,
    precision_changes,
    selection_tables,
)
from rightlung.reproduce.wrong_lung.pictures import galleries
from rightlung.reproduce.wrong_lung.variants import PERTURBATIONS, SUBSETS, TARGET_TITLES
from rightlung.results.measured import Measured

OTHER_DATA = (
    "The paper's numbers come from other data (MIMIC-CXR with Chest ImaGenome). Compare the direction of effects with "
    "them, not the values."
)
SUBSETS_DEFINED = (
    "The paper scores maps against region boxes only. Subsets: Abnormal, phrases that assert an abnormality; One Lung, "
    "phrases about one lung; MDRB, the most diverse report bounding boxes, from reports whose targets overlap least."
)
SEED_BY_SEED = (
    "A claim is seed-dependent if some seeds support it and others contradict it. If all seeds agree, their verdict "
    "counts; otherwise the verdict of the mean over seeds does. Seeds of two variants are paired by number."
)
_WORDS = {
    HOLDS: ("✓", HOLDS, "hold", "reached"),
    FAILS: ("✗", FAILS, "do not hold", "not reached"),
    SEED_DEPENDENT: ("±", "is seed-dependent", "are seed-dependent", "seed-dependent"),
    NOT_SHOWN: ("≈", "shows no difference", "show no difference", "not shown"),
    TOO_FEW: ("?", "has too few patients to tell", "have too few patients to tell", "too few patients to tell"),
    UNKNOWN: ("?", UNKNOWN, "cannot be judged", "cannot be judged"),
}
"""For each verdict, in the order of the summary: its sign, said of one claim, of several claims, and of an aim."""


def make_page(found: Measurements) -> Page:
    """Estimate everything, judge every claim and return the page."""
    measured, make = found.measured, found.tables
    view = ClaimView(measured, found.estimator, PERTURBATIONS, found.judgements)
    found.judged[:] = judge_all(claims(found.published), view)
    sections = [
        Section("found", "Findings", items=[*_found(found.judged), *_once(measured)]),
        Section(
            "own", "Beyond the paper: exact masks and use of the image", [SUBSETS_DEFINED], parts=[*extra_tables(make)]
        ),
        Section("claims", "Claims of the paper and our aims", [_how_judged(found)], parts=[_claims_table(found)]),
        _labels(make, found.judged),
        *_measured_sections(found),
        Section("missing", "Missing", items=[*found.absent()]),
        Section("commands", "Commands", code="\n".join(found.commands)),
    ]
    source = found.prepared.targets.source
    lead = f"Tables, figures and claims of {found.published.paper}, measured on {source}. {OTHER_DATA}"
    return Page(found.paper.title, lead, sections, found.facts, found.warning)


def _measured_sections(found: Measurements) -> Iterator[Section]:
    measured, make = found.measured, found.tables
    if not measured.models:
        return
    quotes = found.published.quotes
    radiologist = (
        f"The paper's radiologist rated GLoRIA's maps {quotes['recall']} of 5 for recall, {quotes['precision']} for "
        f"precision and {quotes['intuitiveness']} for intuitiveness (section 3.4)."
    )
    perturbed = (
        "Figures 3, 5, 14 and 15. Random BBoxes and Shuffle in Report change the target; the other perturbations "
        "change the phrase or the image."
    )
    changes: list[Table | Figure] = []
    for target in TARGET_TITLES:
        changes += change_figures(make, target)
        changes += [change_table(make, target, subset) for subset in (None, *SUBSETS)]
    figures = " ".join(["Figures 6 and 18 to 24.", *stars(measured.rows)])
    yield Section("seeds", "Effect of the training seed", [OVER_PATIENTS], parts=make.seeds(_seed_quantities(make)))
    for name, title, counterpart, parts in (
        ("localisation", "Localisation", f"Tables 1 to 3, 6, 7, 11 and 12. {radiologist}", localisation_tables(make)),
        ("changes", "Effect of perturbations", perturbed, [*changes, precision_changes(make)]),
        ("selection", "Candidate selection", "Tables 4 and 9.", selection_tables(make)),
        ("maps", "Divergence and entropy of the maps", "Tables 8 and 10.", map_tables(make)),
        ("correlations", "Correlations over instances", figures, correlation_parts(make)),
    ):
        yield Section(name, title, [f"Corresponds to the paper's {counterpart}"], parts=[*parts])
    if found.judgements is not None:
        yield Section(
            "judgements", "Radiologists' judgements", items=found.judgements["summary"],
            parts=[*judgement_figures(found.judgements)],
        )  # fmt: skip
    examples = Examples.read(found.prepared, measured)
    yield Section("examples", "Examples", parts=[one for one in galleries(examples) if one.cases])
    yield Section("training", "Models and training", parts=found.model_tables())


def _seed_quantities(make: TableMaker) -> list[Quantity]:
    """Return the quantities by which seeds are compared."""
    not_named = make.measured.fact("side_named") == "none"
    return [
        Quantity("entropy (nats), All", make.values("grid_entropy"), scale=1.0, digits=3),
        Quantity("AUROC, regions, All", make.values("auroc", "regions"), chance=0.5),
        Quantity("AUROC, exact, All", make.values("auroc", "exact"), chance=0.5),
        Quantity("pointing, exact, One Lung", make.values("pointing", "exact", "one-lung")),
        Quantity(
            "change of AUROC, exact, One Lung, sides swapped", make.changes(PERTURBATIONS[0], "one-lung", "exact"),
            signed=True, chance=0.0,
        ),
        Quantity("peak on the correct side, side not named", make.values("peak_on_side", None, not_named), chance=0.5),
        Quantity("selection, global, All", make.values("selection_global"), chance=0.5),
    ]  # fmt: skip


def _found(judged: Sequence[JudgedClaim]) -> Iterator[str]:
    """Yield how many claims hold, and the result of each of our aims."""
    for target, words in TARGET_TITLES.items():
        paper = [one for one in judged if one.of_paper and target in one.rulings]
        counts = Counter(one.verdict(target) for one in paper)
        each = Counter(one.verdict(target) for one in paper if one.with_each_seed(target))
        listed = ", ".join(
            f"{counts[verdict]} {one if counts[verdict] == 1 else several}"
            + (f" ({each[verdict]} with every seed)" if each and verdict in (HOLDS, FAILS) else "")
            for verdict, (_, one, several, _) in _WORDS.items()
            if counts[verdict]
        )
        if listed:
            yield f"Of the paper's {sum(counts.values())} claims judged against {words}: {listed}."
    for one in judged:
        for target, ruling in one.rulings.items() if one.claim.ours else ():
            sentence = ruling.sentence[:1].upper() + ruling.sentence[1:]
            parts = (
                f"Our aim: {one.claim.text} Result: {_WORDS[one.verdict(target)][3]}.",
                sentence,
                *one.by_seed(target),
            )
            yield " ".join(part for part in parts if part)


def _once(measured: Measured) -> Iterator[str]:
    """Yield how many variants were trained with one seed only."""
    seeds = [len(measured.seeds(row.variant)) for row in measured.rows if row.seed is not None]
    if once := seeds.count(1):
        yield f"{once} of {len(seeds)} variants were trained with a single seed. {OVER_PATIENTS}"


def _how_judged(found: Measurements) -> str:
    tested = sum(
        "p" in one.found.as_json() for judged in found.judged for r in judged.rulings.values() for one in r.evidence
    )
    return (
        "A claim holds if the confidence interval lies on the claimed side, and does not hold if it lies on the other "
        f"side. If it includes both, no difference is shown. {OVER_PATIENTS} {SEED_BY_SEED} {tested:,} comparisons "
        "were tested; each verdict says whether it stays significant after Holm's correction for all of them. "
        + " ".join(stars(found.measured.rows))
    )


def _claims_table(found: Measurements) -> Table:
    rows = []
    for judged in found.judged:
        claim = judged.claim
        stands_in = "" if claim.stands_in == RELEASED and found.measured.model("gloria") else claim.stands_in
        cells = [
            Cell(claim.text, " ".join(part for part in (claim.where, stands_in) if part)),
            Cell(claim.paper or "–"),
        ]
        for target in TARGET_TITLES:
            ruling = judged.rulings.get(target)
            if ruling is None:
                cells.append(Cell("–"))
                continue
            verdict = judged.verdict(target)
            after = [part for part in (ruling.remark, *judged.robustness(target)) if part]
            cells.append(Cell(f"{_WORDS[verdict][0]} {verdict}", strong=True, items=[*ruling.lines, *after]))
        rows.append(cells)
    columns = [Column(title, "text") for title in ("claim", "paper's values", *TARGET_TITLES.values())]
    return Table("claims", "Verdicts", "Verdict and evidence against each kind of target.", columns, rows)


def _labels(make: TableMaker, judged: Sequence[JudgedClaim]) -> Section:
    sentences, decided = labels_compared(make, judged), labels_decide(judged)
    turned = (
        "These claims hold against one kind of target but not against the other:"
        if decided
        else "No claim holds against one kind of target but not against the other."
    )
    parts = [*labels_table(make)]
    paragraphs = (
        [f"The box of a region is larger than the finding in it. {' '.join(sentences)}", turned] if parts else []
    )
    return Section(
        "labels", "Effect of the labels: region boxes or exact masks", paragraphs, decided if parts else [], parts
    )
