"""Commands that measure: audits, comparisons, diagnoses, and scores of reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rightlung.cli.options import (
    BootstrapSeed,
    Device,
    Json,
    Level,
    MapKind,
    Overwrite,
    Probes,
    Resamples,
    Texts,
    arg,
    opt,
)
from rightlung.core.errors import InputError

TASK_HELP = (
    "Task to measure (repeatable): grounding, detection, classification, probe, region-classification, "
    "region-description, retrieval or report; TASK:PART for one part. Default: the audit of heatmaps."
)
SELF_TEST_HELP = (
    "Without a model and a source: show that each text metric prefers the identical report and punishes a negated "
    "finding and a wrong side, and list those that do not."
)
BOXES_HELP = (
    "With --task: post-processing of predicted boxes: merge (the boxes of a class become one), nms=IOU or none. "
    "Default: nms=0.25 or, with --tune, the best IoU."
)
TUNE_HELP = (
    "With --task: tune the scale of boxes for each class on another source, or by cross-validation over the patients "
    "of SOURCE. Default: no scaling."
)
TRAIN_HELP = "With --task probe: source that the linear probe learns from; no patient of SOURCE may be in it."
POOL_HELP = (
    "With --task retrieval: source whose reports are candidates, too, and whose other patients' reports give the "
    "frequency prior. Default: the reports of SOURCE alone."
)
PROBE_HELP = "With --task probe: logistic (regression to convergence; the default) or five-epochs (eCLIP's protocol)."
MISSING_HELP = (
    "With --task classification or probe: whether a finding that an image's labels lack is unknown or, if other images "
    "have it, negative. Default: unknown."
)
BATTERY_HELP = (
    "Battery of changes with a known right effect (repeatable): negation, laterality, severity, synonyms, "
    "region-hints, mirror, orientation, contradiction, or all (docs/batteries.md)."
)
GATES_HELP = (
    "Also ask with the finding taken away, a place elsewhere covered, other images and other words, and give a verdict "
    "for each finding (docs/gates.md). With --task report: also with the mirrored image and with parts of the model "
    "changed, and say what the reports depend on."
)
RESAMPLES_HELP = "Number of bootstrap resamples behind each interval. Default: 10000; with --task, 250."
CASES_HELP = "Number of best cases, and of worst cases, to draw. Default: 6; with --task, 4."
JOBS_HELP = "Processes to read and score in. Default: all cores if the audit is large enough to gain from them."
RAY_HELP = (
    "Read and score on a Ray cluster: its address, auto (the one of this machine) or local (start one here). PATH, "
    "SOURCE and DIR must be on disks that all machines share. Needs the extra ray."
)
MEASURE_HELP = "Measure to show first and to compare by finding (repeatable). Default: the main ones of each protocol."
TRAIN_REPORTS_HELP = (
    "Training reports, which the image-blind baselines learn from; under r2gen, rare words of them are <unk>. Default: "
    "baselines learn from the references of other patients, and no word is replaced."
)
WORDS_HELP = "How texts become words: r2gen, whole, uncased or cased (repeatable). Default: all."
REPORT_COLUMN = "Default: report or text, else findings and impression."


def audit(
    what: Annotated[str | None, arg("A predictions file or folder, or a model to ask.", "MODEL|PATH")] = None,
    source: Annotated[str | None, arg("Address of the studies. Default: the one PATH names.", "SOURCE")] = None,
    out: Annotated[Path, opt("Folder to write to.", "DIR")] = Path("audit"),
    self_test: Annotated[bool, opt(SELF_TEST_HELP, name="--self-test")] = False,
    task: Annotated[Texts, opt(TASK_HELP, "TASK")] = None,
    boxes: Annotated[str | None, opt(BOXES_HELP, "RULE")] = None,
    tune: Annotated[str | None, opt(TUNE_HELP, "SOURCE|cross-validate")] = None,
    train: Annotated[str | None, opt(TRAIN_HELP, "SOURCE")] = None,
    pool: Annotated[str | None, opt(POOL_HELP, "SOURCE")] = None,
    probe: Annotated[str | None, opt(PROBE_HELP, "PROTOCOL")] = None,
    missing_labels: Annotated[str | None, opt(MISSING_HELP, "unknown|negative")] = None,
    prior_source: Annotated[str | None, opt("Studies to fit the prior on. Default: SOURCE.", "SOURCE")] = None,
    condition: Probes = None,
    battery: Annotated[Texts, opt(BATTERY_HELP, "NAME")] = None,
    gates: Annotated[bool, opt(GATES_HELP, name="--gates")] = False,
    map: MapKind = None,
    device: Device = None,
    batch_size: Annotated[int, opt("Number of questions to ask the model at once.", "N", min=1)] = 32,
    resamples: Annotated[int | None, opt(RESAMPLES_HELP, "N", min=100)] = None,
    level: Level = 0.95,
    seed: BootstrapSeed = 0,
    cases: Annotated[int | None, opt(CASES_HELP, "N", min=0, max=50)] = None,
    jobs: Annotated[int | None, opt(JOBS_HELP, "N", min=1)] = None,
    ray: Annotated[str | None, opt(RAY_HELP, "ADDRESS")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Score a model's heatmaps against known regions, or the tasks given by --task.

    Compares the model with an image-blind prior and with itself under each probe. Writes a page (audit.html), the
    numbers (audit.json) and one row for each phrase (instances.parquet; with --task, a table for each task).
    """
    from rightlung.cli.audit import Asked, check_options, choose_map, run, run_tasks
    from rightlung.cli.self_test import run_self_test
    from rightlung.results.estimate import BootstrapSettings

    if self_test:
        if what is not None:
            raise InputError("--self-test needs neither a model nor a source: it tests the text metrics")
        run_self_test(json)
        return
    if what is None:
        raise InputError("give a model and a source, or a predictions file; without them there is --self-test")
    given: dict[str, object] = {
        "--boxes": boxes,
        "--tune": tune,
        "--train": train,
        "--pool": pool,
        "--battery": battery,
        "--probe": probe,
    }
    given |= {"--missing-labels": missing_labels, "--prior-source": prior_source, "--jobs": jobs, "--ray": ray}
    check_options(task or [], given)
    settings = BootstrapSettings(resamples or (250 if task else 10_000), level, seed)
    asked = Asked(
        choose_map(what, map), source, out, settings, condition or [], gates, device, batch_size, overwrite, json
    )
    if task:
        run_tasks(
            asked, task, boxes, probe, tune=tune, train=train, pool=pool, missing_labels=missing_labels,
            cases=4 if cases is None else cases,
        )  # fmt: skip
    else:
        run(asked, 6 if cases is None else cases, prior_source, battery or [], jobs, ray)


def compare(
    results: Annotated[list[str], arg("Folders of audits or of scored reports, or instances tables.", "RESULT…")],
    out: Annotated[Path, opt("Folder to write to.", "DIR")] = Path("comparison"),
    measure: Annotated[Texts, opt(MEASURE_HELP, "NAME")] = None,
    condition: Annotated[str, opt("Condition under which the answers are compared.", "NAME")] = "none",
    resamples: Resamples = 1000,
    level: Level = 0.95,
    seed: BootstrapSeed = 0,
    json: Json = False,
) -> None:
    """Compare the results of two or more models on the same instances.

    Paired differences with intervals over patients, overall and by finding, with Holm's correction. Results that were
    measured under unlike protocols are refused. Writes compare.html, compare.md and compare.json.
    """
    from rightlung.cli.compare import run
    from rightlung.results.estimate import BootstrapSettings

    run(results, out, measure or [], condition, BootstrapSettings(resamples, level, seed), json)


def diagnose(
    predictions: Annotated[str, arg("Predictions file or folder.", "PREDICTIONS")],
    source: Annotated[str | None, arg("Address of the studies. Default: named by the predictions.", "[SOURCE]")] = None,
    measure: Annotated[str, opt("Measure that was published, such as miou, pointing, map or f1.", "NAME")] = ...,  # type: ignore[assignment]
    published: Annotated[str, opt("The number as printed, such as 0.475 or 47.5.", "NUMBER")] = ...,  # type: ignore[assignment]
    out: Annotated[Path, opt("Folder to write to.", "DIR")] = Path("diagnosis"),
    json: Json = False,
) -> None:
    """Find the conventions under which predictions give a published number.

    Rescores one predictions file under every known convention of the measure: pooled or averaged, strict or inclusive
    thresholds, nearest or bilinear, uncertain labels… Writes diagnosis.html, diagnosis.md and diagnosis.json.
    """
    from rightlung.cli.diagnose import run

    run(predictions, source, measure, published, out, json)


def demo(
    out: Annotated[Path, opt("Folder to write to.", "DIR")] = Path("demo-output"),
    model: Annotated[str, opt("Model to ask: a name, a folder, or module:Class.", "MODEL")] = "starter",
    count: Annotated[int, opt("Number of synthetic studies.", "N", min=2, max=10_000)] = 200,
    seed: Annotated[int, opt("Seed of the studies.", "N", min=0)] = 4242,
    json: Json = False,
) -> None:
    """Run the whole pipeline on synthetic studies.

    Generates phantom studies, asks the model where it sees every sentence of their reports, and audits its answers.
    """
    from rightlung.cli.demo import run

    run(out, model, count, seed, json)


def score_reports(
    generated: Annotated[str, arg("Generated reports: CSV, TSV, JSON lines, Parquet or a source.", "GENERATED")],
    references: Annotated[str, arg("The true reports, likewise.", "REFERENCES")],
    out: Annotated[Path, opt("Folder to write to.", "DIR")] = Path("report-scores"),
    train: Annotated[str | None, opt(TRAIN_REPORTS_HELP, "REPORTS")] = None,
    protocol: Annotated[Texts, opt(WORDS_HELP, "NAME")] = None,
    study: Annotated[
        str | None, opt("Column of the study in GENERATED. Default: id, study or study_id.", "COLUMN")
    ] = None,
    text: Annotated[str | None, opt(f"Column of the report in GENERATED. {REPORT_COLUMN}", "COLUMN")] = None,
    reference_study: Annotated[str | None, opt("Column of the study in REFERENCES.", "COLUMN")] = None,
    reference_text: Annotated[str | None, opt(f"Column of the report in REFERENCES. {REPORT_COLUMN}", "COLUMN")] = None,
    patient: Annotated[
        str | None, opt("Column of the patient in REFERENCES. Default: patient, patient_id or subject_id.", "COLUMN")
    ] = None,
    max_words: Annotated[int, opt("r2gen: words of a report (MIMIC-CXR: 99).", "N", min=1)] = 59,
    min_count: Annotated[int, opt("r2gen: occurrences of a known word in --train (MIMIC-CXR: 10).", "N", min=1)] = 3,
    resamples: Resamples = 1000,
    level: Level = 0.95,
    seed: BootstrapSeed = 0,
    json: Json = False,
) -> None:
    """Score generated reports against references.

    BLEU, METEOR, ROUGE-L and CIDEr by several protocols, clinical efficacy by papers' names, sides, and diversity, next
    to image-blind baselines. Writes scores.html, scores.json and one row for each report (reports.csv).
    """
    from rightlung.audit.report_files import ReportColumns
    from rightlung.cli.score_reports import run
    from rightlung.results.estimate import BootstrapSettings

    columns, others = ReportColumns(study, text), ReportColumns(reference_study, reference_text, patient)
    settings = BootstrapSettings(resamples, level, seed)
    run(generated, references, out, columns, others, train, protocol or [], max_words, min_count, settings, json)
