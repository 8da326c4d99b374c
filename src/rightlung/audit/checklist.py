"""``checklist.md``, next to every audit: a model card, and the items of CLAIM that the run can fill.

The other items are listed as open. Nothing is guessed: an item is filled only with what the result states.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.core import InputError
from rightlung.models.folder import read_card, read_config
from rightlung.models.maps import MAP_KINDS, split_map
from rightlung.models.registry import SHIPPED, first_line, split_changes
from rightlung.pages.content import Cell, Column, Page, Section, Table
from rightlung.pages.markdown import render_markdown

OPEN = "open"
_LIBRARIES = ("torch", "transformers", "numpy", "scipy")
Result = Mapping[str, Any]
"""The content of ``audit.json``."""


def checklist(result: Result) -> str:
    """Return the model card and the checklist of an audit as Markdown."""
    items = yaml.safe_load(files("rightlung.audit").joinpath("checklist.yaml").read_text(encoding="utf-8"))
    rows, filled = [], 0
    for item in items:
        text = FILLED[item["from"]](result) if "from" in item else ""
        filled += bool(text)
        rows.append([Cell(str(item["item"])), Cell(item["section"]), Cell(item["text"]), Cell(text or OPEN)])
    columns = [Column(title, "text") for title in ("item", "section", "what to report", "from this run")]
    caption = (
        f"{filled} of {len(items)} items are filled from this run; the others are open and yours to write. The items "
        "are in our words: check them against the publication (Tejani et al., 2024). Check the filled ones, too."
    )
    page = Page(
        f"Model card and checklist: {result.get('model') or 'model not named'}",
        f"Written by the audit of {result['source']}, protocol {result['protocol']['hash']}.",
        [
            Section("card", "Model card", items=[*_card(result)]),
            Section("claim", "CLAIM, 2024 update", parts=[Table("claim", "Items", caption, columns, rows)]),
        ],
    )
    return render_markdown(page)


def _card(result: Result) -> Sequence[str]:
    """Return what is known of the model and how it did, a sentence each."""
    return [
        f"Model: {_model(result) or 'not named in the predictions'}.",
        f"Weights and licence: {_availability(result) or OPEN}",
        f"Measured on: {_numbers(result)}",
        f"Performance: {_performance(result) or 'no phrase had a known target.'}",
        *(f"{one['text']} {one['detail']}".strip() for one in result["verdict"]),
        *(text for text in result["summary"] if text.startswith("Subgroups")),
        "Intended use, limitations, ethical considerations: open.",
        NOT_A_MEDICAL_DEVICE,
    ]


def _folder(result: Result) -> Path | None:
    """Return the folder of the model, if it is shipped or lies here; nothing is downloaded."""
    try:
        name, _ = split_changes(str(result.get("model") or ""))
        return next((path for path in (SHIPPED / name, Path(name)) if name and (path / "config.json").is_file()), None)
    except (InputError, OSError, ValueError):
        return None


def _model(result: Result) -> str:
    name, kind = split_map(str(result.get("model") or ""))
    if not name:
        return ""
    folder = _folder(result)
    about = name
    if folder is not None:
        config = read_config(folder)
        about += f", kind {config.kind}: {first_line(read_card(folder))}"
    return f"{about}; {kind} map"


def _availability(result: Result) -> str:
    folder = _folder(result)
    card = "" if folder is None else read_card(folder)
    licence = next((line.replace("*", "").strip(" -#") for line in card.splitlines() if "licen" in line.lower()), "")
    return f"rightlung {__version__} (Apache-2.0). Of the weights: {licence}" if licence else ""


def _missing(result: Result) -> str:
    counts = f"{len(result['problems']):,} studies or questions were left out and are listed in audit.json"
    return f"{counts}. Labels: {result['protocol']['labels']}."


def _reference(result: Result) -> str:
    kinds = ", ".join(result["protocol"]["target_kinds"])
    return f"Targets of the source: {kinds}. Boxes: {result['protocol']['boxes_as_targets']}." if kinds else ""


def _numbers(result: Result) -> str:
    counts = result["counts"]
    return (
        f"{counts['phrases']:,} phrases ({counts['phrases_with_target']:,} with a target) from {counts['studies']:,} "
        f"studies of {counts['patients']:,} patients; left out: {len(result['problems']):,}."
    )


def _persons(result: Result) -> str:
    groups: dict[str, list[str]] = {}
    for one in result.get("subgroups") or ():
        groups.setdefault(one["attribute"].replace("_", " "), []).append(f"{one['name']} {one['patients']:,}")
    findings = ", ".join(f"{one['name']} {one['phrases']:,}" for one in result["groups"]["finding"][:12])
    persons = "; ".join(f"{name}: {', '.join(listed)}" for name, listed in groups.items())
    known = f"Patients with a target by {persons}." if persons else ""
    return f"{known} Phrases by finding: {findings}.".strip() if findings else known


def _performance(result: Result) -> str:
    shown = []
    for name in ("average_precision", "pointing", "auroc"):
        for of, title in (("model", ""), ("difference", ", minus the image-blind prior")):
            one = (result["overall"].get(name) or {}).get(of)
            if one is not None and one["estimate"] is not None:
                ends = [one[end] for end in ("low", "high")]
                interval = "" if None in ends else " ({:.2f} to {:.2f})".format(*ends)
                shown.append(f"{name.replace('_', ' ')}{title} {one['estimate']:.2f}{interval}")
    return f"{'; '.join(shown)}." if shown else ""


def _software(result: Result) -> str:
    found = [f"rightlung {result['version']}", f"Python {platform.python_version()}"]
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found) + "; those of the audit, not of the training."


def _uncertainty(result: Result) -> str:
    protocol = result["protocol"]
    return (
        f"{100 * protocol['level']:g} % BCa bootstrap intervals over patients, {protocol['resamples']:,} resamples; "
        "sign-flip tests, with Holm's correction within tables by group."
    )


def _robustness(result: Result) -> str:
    names = [name for name in result["counts"]["rows_by_condition"] if name != "none"]
    return f"Asked again under {', '.join(names)}." if names else ""


def _explainability(result: Result) -> str:
    kind = split_map(str(result.get("model") or ""))[1]
    return f"Heatmaps ({kind}: {MAP_KINDS.get(kind, 'as named')}), audited against regions and an image-blind prior."


FILLED: dict[str, Callable[[Result], str]] = {
    "source": lambda result: f"{result['source']} (phrase set {result['protocol']['phrase_set']}).",
    "preprocessing": lambda result: f"Maps: {result['protocol']['upsampling']}.",
    "subset": lambda result: "Phrases with an answer in the predictions; scores of those with a known target.",
    "missing": _missing,
    "reference": _reference,
    "disjoint": lambda result: f"Of the image-blind prior: patients, {result['protocol']['prior_folds']} folds.",
    "model": _model,
    "software": _software,
    "metrics": lambda result: ", ".join(result["overall"]),
    "uncertainty": _uncertainty,
    "robustness": _robustness,
    "explainability": _explainability,
    "numbers": _numbers,
    "persons": _persons,
    "performance": _performance,
    "failures": lambda result: "The worst cases, and scores by finding, size and side, are on the page (audit.html).",
    "protocol": lambda result: f"Protocol {result['protocol']['hash']}; all of its fields are in audit.json.",
    "availability": _availability,
}
"""What fills an item; an empty text leaves it open."""
