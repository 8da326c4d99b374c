"""``rightlung regions``: outlines of structures and boxes of regions in an image, drawn and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.frontal import read_radiograph
from rightlung.cli.output import finish, say
from rightlung.cli.predict import load_model
from rightlung.core import Image, InputError, Mask, OutputError, ScoredBox
from rightlung.models.anatomy.finding import LEAST_CONFIDENCE
from rightlung.models.base import RegionFinder

SIDE = 640
"""Longer side of a picture in pixels."""


def run(image: Path, model_name: str, out: Path | None, anyway: bool, device: str | None, json: bool) -> None:
    """Print the regions of an image with their confidence, and draw them."""
    pixels = read_radiograph(image, anyway)
    model = load_model(model_name, device)
    if not isinstance(model, RegionFinder):
        raise InputError(f"model {model_name!r} cannot find regions; 'rightlung models' lists what each can do")
    regions = model.regions([pixels])[0]
    structures: dict[str, Mask] = getattr(model, "structures", lambda _: [{}])([pixels])[0]
    if out is not None:
        _draw(pixels, regions, structures, out)
    result: dict[str, Any] = {
        "image": str(image),
        "model": model_name,
        "regions": {name: {"box": one.box.as_tuple(), "confidence": one.score} for name, one in regions.items()},
        "structures": {name: {"area": mask.area, "rle": mask.to_rle()} for name, mask in structures.items()},
        "picture": None if out is None else str(out),
        "note": NOT_A_MEDICAL_DEVICE,
    }

    def tell() -> None:
        for name, one in sorted(regions.items(), key=lambda pair: -pair[1].score):
            corners = ", ".join(f"{value:.2f}" for value in one.box.as_tuple())
            unsure = "  (unsure)" if one.score < LEAST_CONFIDENCE else ""
            say(f"{name:28s} box {corners}  confidence {one.score:.2f}{unsure}")
        for name, mask in structures.items():
            say(f"{name:28s} covers {mask.area:.1%} of the image")
        if out is not None:
            say(f"written: {out}")
        say(f"\n{NOT_A_MEDICAL_DEVICE}")

    finish(json, result, tell)


def _draw(image: Image, regions: Mapping[str, ScoredBox], structures: Mapping[str, Mask], out: Path) -> None:
    """Draw the outlines and, beside them, the numbered boxes that are sure."""
    from rightlung.core.plotting import headed, paint
    from rightlung.pages.overlays import Tile, draw, make_sheet, with_caption

    sure = {name: one for name, one in regions.items() if one.score >= LEAST_CONFIDENCE}
    shown = [mask for name, mask in structures.items() if not name.endswith(" lung")]
    outlines = headed(paint(image, masks=shown, side=SIDE), "structures")
    names = [f"{number} {name} {one.score:.2f}" for number, (name, one) in enumerate(sure.items(), start=1)]
    rows = [" · ".join(names[begin : begin + 4]) for begin in range(0, len(names), 4)]
    labels = [str(number) for number in range(1, len(sure) + 1)]
    boxes = draw(Tile(image, predicted=[one.box for one in sure.values()], labels=labels, title="regions"), SIDE)
    sheet = make_sheet(
        [with_caption(outlines, "the anatomy model's outlines"), with_caption(boxes, "\n".join(rows))], 2
    )
    try:
        sheet.save(out, format="PNG")
    except OSError as error:
        raise OutputError(f"{out}: the picture cannot be written ({error.strerror or error})") from error
