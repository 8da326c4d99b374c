"""The command line ``rightlung``: its commands, and how errors end it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.cli.calibrate import calibrate
from rightlung.cli.commands.asking import classify, describe, ground, index, predict, predictions, regions, report
from rightlung.cli.commands.auditing import audit, compare, demo, diagnose, score_reports
from rightlung.cli.commands.sources import data_app, models, phantom, protocols
from rightlung.cli.judgements import judgements_app
from rightlung.cli.leaderboard import leaderboard
from rightlung.cli.options import Texts, opt
from rightlung.cli.output import Exit, say
from rightlung.cli.reproduce import reproduce
from rightlung.cli.serve import serve_app
from rightlung.cli.train import train
from rightlung.core.errors import InputError, OutputError

EPILOG = (
    f"Exit codes: {Exit.DONE:d} done, {Exit.BUG:d} a bug, {Exit.BAD_INPUT:d} bad input, "
    f"{Exit.SOME_LEFT_OUT:d} done but some rows were left out, {Exit.NOT_WRITTEN:d} output could not be written, "
    f"{Exit.INTERRUPTED:d} interrupted.  {NOT_A_MEDICAL_DEVICE}"
)


class _Commands(typer.core.TyperGroup):
    """Accepts --import before and after the name of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        first: list[str] = []
        while "--import" in args[:end]:
            at = args.index("--import")
            first, args, end = [*first, *args[at : at + 2]], [*args[:at], *args[at + 2 :]], end - 2
        return super().parse_args(ctx, [*first, *args])


app = typer.Typer(
    name="rightlung",
    cls=_Commands,
    help="Ask a chest X-ray model where it is looking, and find out whether it is the right lung.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.add_typer(data_app, name="data")
app.add_typer(judgements_app, name="judgements")
app.add_typer(serve_app, name="serve")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"rightlung {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    modules: Annotated[
        Texts,
        opt("Module with your model classes, to load their folders (repeatable).", "MODULE", "--import"),
    ] = None,
) -> None:
    for module in modules or ():
        from rightlung.models.kinds import register_module

        register_module(module)


COMMANDS: tuple[Callable[..., None], ...] = (
    audit, compare, diagnose, demo, ground, classify, describe, report, index, regions, models, phantom, predict,
    predictions, protocols, score_reports, calibrate, leaderboard, reproduce, train,
)  # fmt: skip
for command in COMMANDS:
    app.command(command.__name__.replace("_", "-"))(command)


def main() -> None:
    """Run the command line. User errors become one sentence and a documented exit code."""
    # By default PyTorch's idle threads spin, which slows a busy machine down many times. Set before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(_run())


def _run() -> int:
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = Exit.INTERRUPTED
    except (BrokenPipeError, SystemExit):  # `rightlung --help | head`, or a shell asks for completions
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = Exit.DONE
    except (InputError, OutputError) as error:
        say(f"error: {error}")
        return Exit.BAD_INPUT if isinstance(error, InputError) else Exit.NOT_WRITTEN
    except Exception as error:
        show = getattr(error, "show", None)  # a wrong option or command; its class depends on typer's version
        if show is None:
            raise
        show()
        return Exit.BAD_INPUT
    # Some versions of typer return a code for an interrupt, others re-raise it. `train` prints its own message.
    if code == Exit.INTERRUPTED and sys.argv[1:2] != ["train"]:
        say("interrupted; finished work is saved, and the same command continues from there")
    return int(code) if isinstance(code, int) else Exit.DONE
