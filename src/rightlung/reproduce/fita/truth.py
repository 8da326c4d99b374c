"""Reports against the truth of the scene, which the reference report may omit or hedge: findings, sides, severity.

Only synthetic studies have a scene. Findings are CheXpert's observations with all that they imply, in the report and in
the scene alike: a consolidation is a lung opacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rightlung.core.files import read_json, write_json
from rightlung.lexicon.findings import broader_findings
from rightlung.lexicon.labeller import observations, read_report
from rightlung.lexicon.labels import label_map
from rightlung.phantom.scene import Scene
from rightlung.phantom.truth import chexpert_labels, lesion_findings
from rightlung.predictions import IMAGE_QUERY
from rightlung.studies import open_source

SEVERITIES: Mapping[str, tuple[float, float]] = {
    "mild": (0, 1 / 3),
    "moderate": (1 / 3, 2 / 3),
    "severe": (2 / 3, 1.01),
}
RATES = (*(f"omitted_{name}" for name in SEVERITIES), "omitted", "hallucinated", "wrong_side")
Truth = Mapping[str, Any]
"""Of a study: ``labels``, ``pairs`` (``left pneumothorax``), and ``lesions``: (labels, sides, severity) each."""


@cache
def _labels_of(finding: str) -> tuple[str, ...]:
    labels = label_map("findings", "chexpert-14")
    return tuple(
        label
        for name in (finding, *broader_findings(finding))
        if labels.relations.get(name) in ("same", "close", "broader")
        for label in labels.apply(name) or ()
    )


def scene_truth(scene: Scene) -> Truth:
    """Return what a scene shows."""
    lesions: list[tuple[list[str], list[str], float]] = []
    for lesion in scene.lesions:
        sides = {"left": ["left"], "right": ["right"], "both": ["left", "right"]}
        labels = sorted({label for name in lesion_findings(lesion) for label in _labels_of(name)})
        lesions.append((labels, sides.get(lesion.side, []), lesion.severity))
    pairs = sorted({f"{side} {label}" for labels, sides, _ in lesions for side in sides for label in labels})
    present = [name for name, there in chexpert_labels(scene).items() if there]
    return {"labels": present, "pairs": pairs, "lesions": lesions}


def scenes_of(address: str, studies: Iterable[str], file: Path) -> dict[str, Truth]:
    """Return what the scenes of studies show, kept in a file; nothing for a source without scenes."""
    if not address.startswith("phantom"):
        return {}
    if not file.is_file():
        source, found = open_source(address), {}
        for study in studies:
            found[study] = scene_truth(source.study(study).twins.scene)  # type: ignore[union-attr]
        write_json(file, found)
    known: dict[str, Truth] = read_json(file)
    return known


def stated(text: str) -> tuple[list[str], list[str]]:
    """Return the observations that a report asserts, with all that they imply, and those with their side.

    >>> stated("Left lower lobe consolidation. No effusion.")
    (['Consolidation', 'Lung Opacity'], ['left Consolidation', 'left Lung Opacity'])
    """
    labels = sorted(name for name, said in observations(text, hierarchy=True).items() if said == "positive")
    pairs = set()
    for mention in (mention for sentence in read_report(text) for mention in sentence.mentions):
        if mention.polarity == "positive" and mention.side is not None:
            sides = ("left", "right") if mention.side == "both" else (mention.side,)
            pairs |= {f"{side} {label}" for side in sides for label in _labels_of(mention.finding)}
    return labels, sorted(pairs)


def truth_table(table: pa.Table, scenes: Mapping[str, Truth]) -> pa.Table:
    """Return a row for each report with its labels and those of its scene, and the rates of `RATES`."""
    rows = []
    for one in table.select(["study", "patient", "answer_text"]).to_pylist():
        scene = scenes.get(one["study"])
        if scene is None or one["answer_text"] is None:
            continue
        labels, pairs = stated(one["answer_text"])
        rows.append(
            {"study": one["study"], "patient": one["patient"], "query": IMAGE_QUERY, "condition": "none",
             "target": "scene", "labels_called": labels, "labels_true": scene["labels"], "uncertain_called": [],
             "uncertain_true": [], "pairs_called": pairs, "pairs_true": scene["pairs"]}
            | rates(labels, pairs, scene)
        )  # fmt: skip
    texts = pa.list_(pa.string())
    made = pa.Table.from_pylist(rows) if rows else pa.table({"study": pa.array([], pa.string())})
    for name in ("uncertain_called", "uncertain_true", "labels_called", "pairs_called", "labels_true", "pairs_true"):
        if name in made.column_names:
            made = made.set_column(made.column_names.index(name), name, made[name].cast(texts))
    return made


def rates(labels: Sequence[str], pairs: Sequence[str], scene: Truth) -> dict[str, float]:
    """Return the shares of lesions that a report omits, by severity, and of its assertions that the scene denies.

    A lesion is omitted if none of its observations is stated; a side is wrong if the scene has the observation on the
    other side only. NaN: there is no such lesion or assertion.
    """
    found = dict.fromkeys(RATES, np.nan)
    missed = [(not {*own} & {*labels}, severity) for own, _, severity in scene["lesions"] if own]
    for name, (low, high) in SEVERITIES.items():
        of_bin = [out for out, severity in missed if low <= severity < high]
        found[f"omitted_{name}"] = float(np.mean(of_bin)) if of_bin else np.nan
    found["omitted"] = float(np.mean([out for out, _ in missed])) if missed else np.nan
    said = [label for label in labels if label not in ("No Finding", "Support Devices")]
    found["hallucinated"] = float(np.mean([label not in scene["labels"] for label in said])) if said else np.nan
    sided = [pair for pair in pairs if pair.partition(" ")[2] in {one.partition(" ")[2] for one in scene["pairs"]}]
    found["wrong_side"] = float(np.mean([pair not in scene["pairs"] for pair in sided])) if sided else np.nan
    return found
