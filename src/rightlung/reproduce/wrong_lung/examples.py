"""Figure 7's counterpart: what every model makes of the same few sentences, as they are and with their sides swapped.

The maps are kept on their own grid beside a model's measures, so that pictures can be drawn without the model.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rightlung.core import Extent, Heatmap, Mask
from rightlung.models.base import Grounder, RegionGrounder
from rightlung.pages.overlays import Tile, draw
from rightlung.probes.targets import boxes_named
from rightlung.reproduce.wrong_lung.files import read_json, write_json
from rightlung.reproduce.wrong_lung.instances import Asked, Instance, Instances

COUNT = 3
CONDITIONS = ("none", "swap-sides")
_SIDE, _ACROSS = 176, 6
_LONGEST = 28


def chosen_examples(instances: Instances, count: int = COUNT) -> list[Instance]:
    """Return the first instances that name a side, one of each finding, of different studies.

    Nothing about any model goes into the choice.
    """
    found: list[Instance] = []
    findings: set[tuple[str, ...]] = set()
    images: set[int] = set()
    for instance in instances:
        asked = instance.asked.get("none")
        if asked is None or "swap-sides" not in instance.asked or not asked.findings:
            continue
        if "exact" not in instance.targets and "regions" not in instance.targets:
            continue
        if asked.findings in findings or asked.findings == ("support devices",) or instance.image in images:
            continue
        found.append(instance)
        findings.add(asked.findings)
        images.add(instance.image)
        if len(found) == count:
            break
    return found


def keep_examples(model: object, instances: Instances, folder: Path) -> dict[str, Any]:
    """Ask a model the examples, keep its maps in ``folder``, and return how large they are, for ``about.json``.

    An example that the model fails at has no map.
    """
    kept: list[dict[str, Any]] = []
    for instance in chosen_examples(instances):
        for condition in CONDITIONS:
            asked = instance.asked[condition]
            heatmap = _heatmap(model, instances, asked)
            if heatmap is None:
                continue
            kept.append({
                "instance": instance.number,
                "condition": condition,
                "values": [[round(float(value), 8) for value in row] for row in heatmap.values],
                "extent": list(heatmap.extent.as_tuple()),
                "abstention": round(float(heatmap.abstention), 6),
            })  # fmt: skip
    write_json(folder / "examples.json", {"maps": kept})
    return {"grid": [len(kept[0]["values"]), len(kept[0]["values"][0])]} if kept else {}


def _heatmap(model: object, instances: Instances, asked: Asked) -> Heatmap | None:
    image = instances.image(asked.image)
    try:
        if isinstance(model, Grounder):
            return model.ground([image], [asked.text])[0].heatmap
        if isinstance(model, RegionGrounder):
            return model.ground_regions([image], [asked.text], [instances.shown[asked.image].regions])[0].heatmap
    except Exception:  # a model may be anybody's; why it fails is told where all questions are asked
        return None
    return None


def draw_examples(instances: Instances) -> list[tuple[str, str]]:
    """Return a sheet for each example as a PNG data URI with its caption.

    It has some models side by side, as asked and with the sides swapped below, then the next models.
    """
    folders = sorted((instances.folder / "measures").glob("*/examples.json"))
    shown = [(read_json(path.parent / "about.json"), read_json(path)) for path in folders if _is_whole(path.parent)]
    shown = [pair for pair in shown if pair[0].get("seed") in (None, 1) and not pair[0].get("ablation")]
    shown.sort(key=lambda pair: (pair[0]["order"], pair[0]["slug"]))
    sheets = []
    for instance in chosen_examples(instances):
        tiles = [
            [example_tile(instances, instance, condition, about, kept["maps"]) for about, kept in part]
            for part in (shown[start : start + _ACROSS] for start in range(0, len(shown), _ACROSS))
            for condition in CONDITIONS
        ]
        if shown:
            sheets.append((_sheet(tiles), _caption(instance, all(about.get("comparable", True) for about, _ in shown))))
    return sheets


def _caption(instance: Instance, all_comparable: bool) -> str:
    above, below = (instance.asked[condition].text for condition in CONDITIONS)
    outlined = " The outline is the finding itself." if "exact" in instance.targets else ""
    starred = "" if all_comparable else " * is shown the true region boxes, so it does not compare."
    return (
        f"In each pair of rows, above: {above} Below, with its sides swapped: {below} Boxes are the regions of the "
        f"sentence as it was written, with those that contain them.{outlined} Each map is drawn relative to its own "
        "highest value, so that a nearly flat one is bright everywhere. A number is the share of attention on nothing. "
        f"Models are of seed 1.{starred}"
    )


def _is_whole(folder: Path) -> bool:
    return (folder / "about.json").is_file()


def example_tile(
    instances: Instances, instance: Instance, condition: str, about: Mapping[str, Any], maps: Sequence[Any]
) -> Tile:
    """Return a model's map of one question over the image, with the boxes and the outline of what was to be found.

    Below stand the model's name, starred where it does not compare, and the share of attention on nothing where it
    ever has any.
    """
    heatmap = None
    for kept in maps:
        if kept["instance"] == instance.number and kept["condition"] == condition:
            values = np.array(kept["values"], dtype=np.float32)
            heatmap = Heatmap(values, Extent(*kept["extent"]), kept["abstention"])
    row = instance.targets.get("exact")
    regions = instances.shown[instance.image].regions
    name = about["name"] if len(about["name"]) <= _LONGEST else f"…{about['name'][1 - _LONGEST :]}"
    name += "" if about.get("comparable", True) else " *"
    if heatmap is None:
        name += ", no map"
    elif any(kept["abstention"] > 0 for kept in maps):
        name += f", {heatmap.abstention:.2f} on nothing"
    return Tile(
        instances.image(instance.asked[condition].image),
        name,
        heatmap,
        targets=boxes_named(regions, instance.asked["none"].regions),
        mask=None if row is None else Mask(instances.mask(row)),
    )


def _sheet(rows: Sequence[Sequence[Tile]]) -> str:
    import PIL.Image

    pictures = [[draw(tile, _SIDE) for tile in row] for row in rows]
    width = max(sum(picture.width + 2 for picture in row) for row in pictures)
    height = sum(max(picture.height for picture in row) + 2 for row in pictures)
    sheet = PIL.Image.new("RGB", (width, height))
    top = 0
    for row in pictures:
        left = 0
        for picture in row:
            sheet.paste(picture, (left, top))
            left += picture.width + 2
        top += max(picture.height for picture in row) + 2
    content = io.BytesIO()
    sheet.save(content, format="PNG")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
