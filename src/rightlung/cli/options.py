"""Options that several commands of the command line share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def arg(help: str, metavar: str) -> Any:
    """Return an argument."""
    return typer.Argument(help=help, metavar=metavar)


def opt(help: str, metavar: str | None = None, name: str | None = None, **limits: Any) -> Any:
    """Return an option; without a ``name``, that of the parameter."""
    return typer.Option(*([name] if name else []), help=help, metavar=metavar, **limits)


Use = Literal["yes", "positive", "no"]
Texts = list[str] | None
Anyway = Annotated[bool, opt("Ask about images that are no upright frontal chest radiographs.", name="--anyway")]
Model = Annotated[str, opt("Name or folder of the model.", "MODEL", name="--model")]
Resamples = Annotated[int, opt("Number of bootstrap resamples behind each interval.", "N", min=100)]
Source = Annotated[
    str, arg("Address of the studies, such as phantom?count=500&seed=7 or manifest:/data/mine.tar.", "SOURCE")
]
PROBES_HELP = "Probe to apply before asking (repeatable). Default: none, swap-sides, exchange-image; with --task, none."
Probes = Annotated[Texts, opt(PROBES_HELP, "PROBE", name="--condition")]
MAP_HELP = (
    "Kind of heatmap: attention, similarity, grad-cam, gradient-attention, rollout or own (as MODEL?map=KIND). "
    "Default: own."
)
MapKind = Annotated[str | None, opt(MAP_HELP, "KIND", name="--map")]
Device = Annotated[str | None, opt("Device, such as cpu or cuda:1. Default: cuda if available, else cpu.", "DEVICE")]
Overwrite = Annotated[bool, opt("Replace earlier answers in the folder.", name="--overwrite")]
Accelerator = Annotated[str, opt("Hardware to train on: auto, cpu, cuda or mps.", "NAME")]
Level = Annotated[float, opt("Confidence level of the intervals.", "LEVEL")]
BootstrapSeed = Annotated[int, opt("Seed of the bootstrap.", "N", name="--seed", min=0)]
Key = Annotated[Path | None, opt("CSV file with the model behind each code.", "KEY", name="--key")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
