"""Commands about what there is: sources, synthetic studies, models and protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rightlung.cli.options import Json, Source, Texts, arg, opt

data_app = typer.Typer(help="Summarise, draw and check data sources.", no_args_is_help=True)


@data_app.command("show")
def data_show(
    source: Source,
    sheet: Annotated[Path | None, opt("PNG file to draw random studies and boxes into.", "FILE")] = None,
    count: Annotated[int, opt("Number of studies on the sheet.", "N", min=1, max=400)] = 30,
    seed: Annotated[int, opt("Seed of the random choice.", "N", min=0)] = 0,
    json: Json = False,
) -> None:
    """Count the studies, findings and phrases of a source."""
    from rightlung.cli.data import show

    show(source, sheet, count, seed, json)


@data_app.command("check")
def data_check(
    source: Source,
    limit: Annotated[int | None, opt("Check the first N studies only. Default: all.", "N", min=1)] = None,
    images: Annotated[bool, opt("Decode images and masks.", name="--images/--no-images")] = True,
    least: Annotated[str, opt("Lowest severity to list: error, warning or hint.", "SEVERITY")] = "hint",
    json: Json = False,
) -> None:
    """Find errors in a source.

    Checks files, ids, splits, boxes, sides, masks, reports and labels. Exits with 3 if it finds anything.
    """
    from rightlung.cli.data import check

    check(source, limit, images, least, json)


def phantom(
    out: Annotated[Path, arg("Folder to write to. An interrupted run continues.", "OUT")],
    count: Annotated[int, opt("Number of studies.", "N")],
    seed: Annotated[int, opt("Seed: the same seed gives the same studies.", "S")],
    size: Annotated[int | None, opt("Height and width of images. Default: 256.", "PIXELS")] = None,
    dicom: Annotated[bool, opt("Also write DX DICOM files to OUT/dicom.", name="--dicom")] = False,
    shortcut: Annotated[Texts, opt("Shortcut to plant: NAME[:FINDING]=STRENGTH (repeatable).", "FAULT")] = None,
    config: Annotated[Path | None, opt("TOML file with settings; see docs/phantom.md.", "FILE")] = None,
    part: Annotated[str | None, opt("all, train or held-out; see docs/phantom.md. Default: all.", "PART")] = None,
    json: Json = False,
) -> None:
    """Generate synthetic studies with exact masks.

    They are written as a manifest folder, which every command reads as manifest:OUT.
    """
    from rightlung.cli.phantom import run

    run(out, count, seed, size, dicom, shortcut or [], config, part, json)


def models(
    name: Annotated[str | None, arg("Name, folder or module:Class. Default: list all.", "NAME")] = None,
    json: Json = False,
) -> None:
    """List the available models, or describe one."""
    from rightlung.cli.models import describe, list_all

    if name is None:
        list_all(json)
    else:
        describe(name, json)


def protocols(
    name: Annotated[str | None, arg("Name of a protocol. Default: list all.", "NAME")] = None,
    markdown: Annotated[bool, opt("Print all of them as Markdown.", name="--markdown")] = False,
    json: Json = False,
) -> None:
    """List the named protocols, or say what is known of one and what is not.

    A protocol is all that a number depends on besides the model: data, split, target, resizing, thresholds, averaging.
    """
    from rightlung.cli.protocols import describe, list_all

    if name is None:
        list_all(json, markdown)
    else:
        describe(name, json)
