"""The program ``rightlung`` and its commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.cli.exits import Exit
from rightlung.cli.output import say
from rightlung.core.errors import InputError, OutputError

EPILOG = (
    f"Exit codes: {Exit.DONE:d} done, {Exit.BUG:d} a bug, {Exit.BAD_INPUT:d} bad input, "
    f"{Exit.SOME_LEFT_OUT:d} done but some rows were left out, {Exit.NOT_WRITTEN:d} output could not be written, "
    f"{Exit.INTERRUPTED:d} interrupted.  {NOT_A_MEDICAL_DEVICE}"
)

app = typer.Typer(
    name="rightlung",
    help="Ask a chest X-ray model where it is looking, and find out whether it is the right lung.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
data_app = typer.Typer(help="Look at studies: counts and pictures.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"rightlung {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write to.", metavar="DIR")] = Path("demo-output"),
    count: Annotated[int, typer.Option(min=2, max=1000, help="Test cards to draw.")] = 120,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the test cards.")] = 0,
    json: Json = False,
) -> None:
    """Score four hand-made grounders on test cards."""
    from rightlung.cli.demo import run

    run(out, count, seed, json)


@data_app.command("show")
def data_show(
    source: Annotated[str, typer.Argument(help="Address of the studies, such as manifest:/data/mine.tar?split=val")],
    sheet: Annotated[
        Path | None, typer.Option(help="Draw random studies with their boxes into this PNG.", metavar="FILE")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=400, help="Studies on the sheet.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random choice.")] = 0,
    json: Json = False,
) -> None:
    """Say what a source holds, and draw random studies with their boxes."""
    from rightlung.cli.data import show

    show(source, sheet, count, seed, json)


@app.command()
def phantom(
    out: Annotated[Path, typer.Argument(help="Folder to write to; a run that was stopped goes on.", metavar="OUT")],
    count: Annotated[int, typer.Option(help="Studies to make.", metavar="N")],
    seed: Annotated[int, typer.Option(help="Same seed, same studies.", metavar="S")],
    size: Annotated[int | None, typer.Option(help="Pixels a side; 256 unless the configuration says else.")] = None,
    dicom: Annotated[bool, typer.Option("--dicom", help="Write DX DICOM files, too, under OUT/dicom.")] = False,
    shortcut: Annotated[
        list[str] | None,
        typer.Option(help="Plant a fault: NAME=STRENGTH or NAME:FINDING=STRENGTH. Repeatable.", metavar="FAULT"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with prevalences and all else, see docs/phantom.md.", metavar="FILE")
    ] = None,
    json: Json = False,
) -> None:
    """Make up studies with exactly known truth and write them as a manifest folder."""
    from rightlung.cli.phantom import run

    run(out, count, seed, size, dicom, shortcut or [], config, json)


@app.command()
def predictions(
    path: Annotated[Path, typer.Argument(help="A predictions folder or Parquet file.", metavar="PATH")],
    json: Json = False,
) -> None:
    """Check a predictions file; say what it holds."""
    from rightlung.cli.predictions import check

    check(path, json)


def main() -> None:
    """Run the program: every error that a user can cause becomes one sentence and a documented exit code."""
    sys.exit(_run())


def _run() -> int:
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = Exit.INTERRUPTED
    except (BrokenPipeError, SystemExit):  # the reader of the help went away, which typer turns into an exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = Exit.DONE
    except Exception as error:
        return _explained(error)
    if code == Exit.INTERRUPTED:  # some versions of typer make a code of the interruption, some hand it on
        say("interrupted; what is complete is kept, and the same command goes on from there")
    return int(code) if isinstance(code, int) else Exit.DONE


def _explained(error: Exception) -> int:
    """Say in a sentence what the user can mend, and re-raise what only we can."""
    if isinstance(error, InputError):
        say(f"error: {error}")
        return Exit.BAD_INPUT
    if isinstance(error, OutputError):
        say(f"error: {error}")
        return Exit.NOT_WRITTEN
    show = getattr(error, "show", None)  # a wrong option or command; whose class it is depends on typer's version
    if show is None:
        raise error
    show()
    return Exit.BAD_INPUT
