"""Studies and answers as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from rightlung.app.library import Entry, levels_of
from rightlung.app.perturbing import negated
from rightlung.core import Box, Heatmap, Mask, Phrase, ScoredBox, Study
from rightlung.core.plotting import PROBABLY_ABSENT
from rightlung.explain.peak import peak_of, side_of_peak
from rightlung.lexicon import side_of, swap_sides
from rightlung.phantom.twins import CHANGES
from rightlung.probes.rules import midline_of
from rightlung.probes.twins import changed_finding

SIDES = {"left": "patient's left", "right": "patient's right", "both": "midline"}
_SHOWN_REGIONS, _GRID = 5, 96


def box_json(box: Box) -> list[float]:
    """Return the corners of a box."""
    return [round(value, 6) for value in box.as_tuple()]


def boxes_json(boxes: Iterable[Box]) -> list[list[float]]:
    """Return the corners of boxes."""
    return [box_json(box) for box in boxes]


def mask_json(mask: Mask | None) -> dict[str, Any] | None:
    """Return a mask as row-major runs."""
    return None if mask is None else {"size": list(mask.size), "runs": Mask(mask.pixels.T).to_runs()}


def mask_of(value: Mapping[str, Any]) -> Mask:
    """Return the mask of `mask_json`."""
    height, width = value["size"]
    return Mask(Mask.from_runs(value["runs"], (width, height)).pixels.T)


def map_json(heatmap: Heatmap | None) -> dict[str, Any] | None:
    """Return a map on its native grid, with its extent in the image."""
    return None if heatmap is None else grid_json(heatmap.values, heatmap.extent.as_tuple())


def grid_json(values: Any, extent: Sequence[float]) -> dict[str, Any]:
    """Return values on a grid; six digits are more than a screen shows."""
    rows, columns = values.shape
    scale = 10.0 ** (5 - np.floor(np.log10(max(float(np.abs(values).max()), 1e-12))))
    rounded = np.round(np.asarray(values, dtype=np.float64) * scale) / scale
    return {"rows": rows, "cols": columns, "extent": [round(float(value), 6) for value in extent],
            "values": rounded.tolist()}  # fmt: skip


def scored_json(boxes: Iterable[ScoredBox]) -> list[dict[str, Any]]:
    """Return predicted boxes."""
    return [{"box": box_json(one.box), "score": round(one.score, 6), "label": one.label} for one in boxes]


def findings_json(findings: Mapping[str, Any]) -> dict[str, str]:
    """Return findings with their polarity."""
    return {name: str(polarity) for name, polarity in findings.items()}


def row_of(entry: Entry) -> dict[str, Any]:
    """Return a study's row in the list."""
    study = entry.study
    targets = [*study.phrases, *study.located_findings]
    return {
        "key": entry.key,
        "id": study.id if entry.kind == "source" else "",
        "kind": entry.kind,
        "title": entry.title,
        "age": study.age,
        "sex": study.sex,
        "view": study.view,
        "findings": findings_json(study.findings),
        "phrases": len(study.phrases),
        "report": "" if study.report is None else study.report.text[:160],
        "has": {
            "masks": any(one.mask is not None for one in targets),
            "boxes": any(one.boxes for one in targets),
            "regions": bool(study.regions),
            "gaze": study.gaze is not None,
            "twins": study.twins is not None,
        },
    }


def study_json(entry: Entry, annotations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return everything that is known about a study."""
    study, address = entry.study, f"/api/v1/studies/{quote(entry.key, safe='')}"
    height, width = study.image.shape
    report = study.report
    return row_of(entry) | {
        "width": width,
        "height": height,
        "levels": levels_of(study.image),
        "image": f"{address}/image.png",
        "pixels": f"{address}/pixels",
        "report": None if report is None else {"text": report.text, "sections": dict(report.sections)},
        "warnings": list(entry.warnings),
        "phrases": [phrase_json(study, index, phrase) for index, phrase in enumerate(study.phrases)],
        "regions": {name: box_json(box) for name, box in study.regions.items()},
        "region_findings": {name: findings_json(found) for name, found in study.region_findings.items()},
        "located_findings": [target_json(one) for one in study.located_findings],
        "gaze": map_json(study.gaze),
        "twins": {change: [] if study.twins is None else list(study.twins.findings(change)) for change in CHANGES},
        "annotations": list(annotations),
    }


def target_json(phrase: Phrase) -> dict[str, Any]:
    """Return the words and the target of a phrase."""
    return {"text": phrase.text, "boxes": boxes_json(phrase.boxes), "mask": mask_json(phrase.mask)}


def phrase_json(study: Study, index: int, phrase: Phrase) -> dict[str, Any]:
    """Return a phrase with the perturbations that apply to it."""
    twins = [change for change in CHANGES if study.twins is not None and changed_finding(study, phrase, change)]
    return target_json(phrase) | {
        "index": index,
        "query": f"phrase:{index}",
        "regions": list(phrase.regions),
        "findings": findings_json(phrase.findings),
        "side": side_of(phrase.text),
        "can_swap": swap_sides(phrase.text) != phrase.text,
        "negated": negated(phrase.text),
        "twins": twins,
    }


def grounding_json(
    study: Study, text: str, heatmap: Heatmap | None, boxes: Sequence[ScoredBox], abstention: float
) -> dict[str, Any]:
    """Return what an answer says about places."""
    side, said = None if heatmap is None else side_of_peak(heatmap, midline_of(study)), side_of(text)
    if heatmap is None and boxes:
        x = max(boxes, key=lambda one: one.score).box.centre[0]
        side = "left" if x > midline_of(study) else "right"
    agrees = None if side is None or side == "both" or said not in ("left", "right") else side == said
    peak = None if heatmap is None else peak_of(heatmap)
    return {
        "map": map_json(heatmap),
        "boxes": scored_json(boxes),
        "abstention": round(abstention, 4),
        "absent": abstention >= PROBABLY_ABSENT,
        "peak": None if peak is None else [round(value, 4) for value in peak],
        "peak_side": None if side is None else SIDES[side],
        "side_said": said,
        "side_agrees": agrees,
        "regions": [] if heatmap is None else regions_of(study, heatmap),
    }


def regions_of(study: Study, heatmap: Heatmap) -> list[dict[str, Any]]:
    """Return the regions with the largest shares of a map; they overlap, so shares do not add up to one."""
    if not study.regions:
        return []
    pixels = heatmap.to_size((_GRID, _GRID), "area")
    total = float(pixels.sum())
    if total <= 0:
        return []
    shares = {name: float(pixels[box.pixel_slices(pixels.shape)].sum()) / total for name, box in study.regions.items()}
    largest = sorted(shares, key=lambda name: -shares[name])[:_SHOWN_REGIONS]
    return [{"name": name, "share": round(shares[name], 4)} for name in largest if shares[name] >= 0.01]
