"""``rightlung calibrate``: what a model's scores are worth as probabilities, and where to cut them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from rightlung.cli.options import Device, Json, Source, Texts, arg, opt
from rightlung.cli.output import finish, say, say_table

if TYPE_CHECKING:
    from rightlung.models.calibration import Calibration, Measured
    from rightlung.models.finding_calibration import ClassifierCalibration

TASK_HELP = "ground (phrases) or classify (findings; repeatable). Default: what the model can."
NAME_HELP = "Name of this calibration, kept beside those of other names. Default: the kind of source, such as phantom."
MISSING_HELP = "Whether a finding that an image's labels lack is unknown or, if other images have it, negative."
SENSITIVITY_HELP = "Sensitivity that each threshold reaches. Default: largest sensitivity + specificity."
KEEP_HELP = "Share of the patients with a finding who stay above the threshold that excludes it."
ANSWERS_HELP = "Folder to keep the answers of classify in; an interrupted run continues."


def calibrate(
    model: Annotated[str, arg("Name or folder of the model.", "MODEL")],
    source: Source,
    test: Annotated[str, opt("Address of other patients' studies, to measure on.", "SOURCE")] = ...,  # type: ignore[assignment]
    task: Annotated[Texts, opt(TASK_HELP, "TASK")] = None,
    name: Annotated[str | None, opt(NAME_HELP, "NAME")] = None,
    finding: Annotated[Texts, opt("Finding to calibrate beside the model's own (repeatable).", "NAME")] = None,
    missing_labels: Annotated[str, opt(MISSING_HELP, "unknown|negative")] = "unknown",
    sensitivity: Annotated[float | None, opt(SENSITIVITY_HELP, "SHARE")] = None,
    keep: Annotated[float, opt(KEEP_HELP, "SHARE")] = 0.9,
    out: Annotated[Path, opt("File to write; it belongs in the model's folder.", "FILE")] = Path("calibration.json"),
    picture: Annotated[Path | None, opt("PNG file to draw the reliability curve of classify into.", "FILE")] = None,
    answers: Annotated[Path | None, opt(ANSWERS_HELP, "DIR")] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Fit probabilities and thresholds to a model's scores on one source, and measure them on another.

    ground: the probability that a phrase is true. classify: for each finding its probability, a threshold for yes or
    no, and one below which the finding counts as excluded. Use patients whom the model was not trained on.
    """
    from rightlung.asking.calibrating import calibrate as fit
    from rightlung.cli.predict import load_model
    from rightlung.core import InputError
    from rightlung.core.errors import check_known
    from rightlung.core.progress import ProgressBars
    from rightlung.core.settings import plain_settings
    from rightlung.measuring.calibrating import Rules
    from rightlung.models.calibration_file import add_calibration, weights_of
    from rightlung.models.registry import abilities
    from rightlung.studies import open_source

    rules, weights, loaded = Rules(missing_labels, sensitivity, keep), weights_of(model), load_model(model, device)
    for one in task or ():
        check_known("task", one, ("ground", "classify"))
    tasks = [one for one in ("ground", "classify") if one in abilities(loaded) and (task is None or one in task)]
    if weights is None or not tasks:
        able = "grounds phrases or classifies findings" if task is None else f"can {' or '.join(task)}"
        raise InputError(f"{model} is no folder of a model that {able}, so it has no score to calibrate")
    opened, tested = open_source(source), open_source(test)
    found: dict[str, Any] = {}
    with ProgressBars(say) as tell:
        if "ground" in tasks:
            found["ground"] = fit(loaded, opened, tested, tell)
        if "classify" in tasks:
            found["classify"] = _classify(loaded, model, opened, tested, finding or (), rules, answers, tell)
    add_calibration(out, weights, name or source.partition("?")[0].partition(":")[0], found)
    if picture is not None and "classify" in found:
        _draw(found["classify"], picture)

    def tell_all() -> None:
        if "ground" in found:
            _say_ground(found["ground"], out)
        if "classify" in found:
            _say_findings(found["classify"], out)

    finish(json, {part: plain_settings(one) for part, one in found.items()}, tell_all)


def _classify(
    loaded: Any, model: str, source: Any, test: Any, more: Any, rules: Any, answers: Path | None, tell: Any
) -> ClassifierCalibration:
    from rightlung.asking import Answerer, ask
    from rightlung.core.keyed import text_digest
    from rightlung.measuring.calibrating import calibrate_findings, scored
    from rightlung.predictions import open_predictions

    def progress(done: float, total: int) -> None:
        tell("classifying", done, total)

    names = dict.fromkeys([*Answerer(loaded, method="classify").findings, *more])
    with TemporaryDirectory() if answers is None else nullcontext(answers) as folder:
        tables = []
        for one in (source, test):
            out = Path(folder) / text_digest(one.address).hex()[:12]
            ask(loaded, one, out, queries=["image"], method="classify", findings=[*names], batch_size=8,
                model_name=model, progress=progress)  # fmt: skip
            tables.append(scored(one, open_predictions(out).batches(), rules.missing_labels))
    return calibrate_findings(source, tables[0], test, tables[1], rules)


def _say_ground(found: Calibration, out: Path) -> None:
    say(f"{out}: {found.score}, from {found.phrases:,} phrases of {found.patients:,} patients, half of them true")
    names = {"Brier score": found.brier, "blind to the image": found.brier_blind,
             "expected calibration error": found.calibration_error}  # fmt: skip
    rows = [[name, f"{one[0]:.3f}", f"{one[1]:.3f} to {one[2]:.3f}"] for name, one in names.items()]
    say_table([f"{found.test_phrases:,} phrases of {found.test_patients:,} other patients", "", "95 %"], rows)
    bins = [[f"{count:,}", f"{mean:.2f}", f"{true:.2f}"] for count, mean, true in found.bins]
    say_table(["phrases", "mean probability", "true"], bins)


def _say_findings(found: ClassifierCalibration, out: Path) -> None:
    say(f"{out}: {found.data} ({found.patients:,} patients), measured on {found.test_data} ({found.test_patients:,})")
    if found.missing_labels == "negative":
        say("labels that an image lacks were read as negative, which they may not be")
    header = ["finding", "present", "curve", "Brier", "base rate's", "ECE", "base rate's ECE"]
    rows = [[name, f"{one.test_present:,} of {one.test_studies:,}", one.curve.method,
             *map(shown, (one.brier, one.brier_blind, one.calibration_error, one.calibration_error_blind))]
            for name, one in found.findings.items()]  # fmt: skip
    say_table(header, rows)
    say(f"\nthresholds: {found.rule}; {found.keep:.0%} of the patients with a finding are to be kept")
    header = ["finding", "threshold", "sensitivity", "specificity", "excluded below", "kept", "excluded if absent"]
    rows = [[name, f"{one.threshold:.3f}", shown(one.sensitivity, 2), shown(one.specificity, 2),
             "-" if one.keep_threshold is None else f"{one.keep_threshold:.3f}", shown(one.kept, 2),
             shown(one.excluded, 2)]
            for name, one in found.findings.items()]  # fmt: skip
    say_table(header, rows)
    say_table(["all findings: answers", "mean probability", "present"],
              [[f"{count:,}", f"{mean:.2f}", shown(true, 2)] for count, mean, true in found.reliability])  # fmt: skip
    for name, reason in found.left_out.items():
        say(f"  {name} is only a ranking: {reason}")


def shown(one: Measured, digits: int = 3) -> str:
    """Return a number and its interval."""
    return f"{one[0]:.{digits}f} ({one[1]:.{digits}f} to {one[2]:.{digits}f})"


def _draw(found: ClassifierCalibration, picture: Path) -> None:
    from rightlung.core.files import write_whole
    from rightlung.pages.curves import curve_figure
    from rightlung.pages.formats import png
    from rightlung.results.estimate import Estimate

    curve = [(mean, Estimate(*true, n=count)) for count, mean, true in found.reliability]
    axes = ("probability", "share with the finding")
    figure = curve_figure("reliability", "Reliability", "", axes, {"all findings": curve}, diagonal=True)
    write_whole(picture, png(figure.draw()))
