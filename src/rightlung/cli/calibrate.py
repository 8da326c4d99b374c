"""``rightlung calibrate``: what a model's scores are worth as probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rightlung.cli.options import Device, Json, Source, arg, opt
from rightlung.cli.output import finish, say, say_table


def calibrate(
    model: Annotated[str, arg("Name or folder of the model.", "MODEL")],
    source: Source,
    test: Annotated[str, opt("Address of other studies, to measure on.", "SOURCE")] = ...,  # type: ignore[assignment]
    out: Annotated[Path, opt("File to write; it belongs in the model's folder.", "FILE")] = Path("calibration.json"),
    device: Device = None,
    json: Json = False,
) -> None:
    """Fit the probability that a phrase is true of an image to a model's score (Platt scaling), and measure it.

    Asks about every phrase that asserts findings, and as many of other patients whose findings are absent here.
    """
    from rightlung.asking.calibrating import calibrate as fit
    from rightlung.cli.predict import load_model
    from rightlung.core import InputError
    from rightlung.core.files import write_json
    from rightlung.core.progress import ProgressBars
    from rightlung.models.folder import WEIGHTS_FILE, read_config
    from rightlung.models.registry import abilities, find_folder
    from rightlung.studies import open_source

    folder, loaded = find_folder(model), load_model(model, device)
    if folder is None or "ground" not in abilities(loaded):
        raise InputError(f"{model} is no folder of a model that grounds phrases, so it has no score to calibrate")
    weights = read_config(folder.path, links_within=folder.links_within).files[WEIGHTS_FILE]
    with ProgressBars(say) as tell:
        found = fit(loaded, weights, open_source(source), open_source(test), tell)
    write_json(out, vars(found))

    def tell_all() -> None:
        say(f"{out}: {found.score}, from {found.phrases:,} phrases of {found.patients:,} patients, half of them true")
        names = {"Brier score": found.brier, "blind to the image": found.brier_blind,
                 "expected calibration error": found.calibration_error}  # fmt: skip
        rows = [[name, f"{one[0]:.3f}", f"{one[1]:.3f} to {one[2]:.3f}"] for name, one in names.items()]
        say_table([f"{found.test_phrases:,} phrases of {found.test_patients:,} other patients", "", "95 %"], rows)
        bins = [[f"{count:,}", f"{mean:.2f}", f"{true:.2f}"] for count, mean, true in found.bins]
        say_table(["phrases", "mean probability", "true"], bins)

    finish(json, vars(found), tell_all)
