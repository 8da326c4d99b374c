"""``rightlung index`` and ``rightlung report --retrieval``: reports written from the most similar training reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.frontal import read_radiograph
from rightlung.cli.output import finish, say, say_problems
from rightlung.cli.predict import load_model
from rightlung.core import InputError, Report
from rightlung.core.files import write_whole
from rightlung.core.progress import ProgressBars
from rightlung.generation.index import build_index
from rightlung.generation.reporter import RetrievalReporter, load_reporter, model_identity
from rightlung.generation.samples import write_samples
from rightlung.models.folder import save_model
from rightlung.pages.report import report_page
from rightlung.studies import open_source

ADVICE = "The text comes from reports of other patients. It can be fluent and wrong about this image."


def make_index(model_name: str, address: str, out: Path, device: str | None, json: bool) -> None:
    """Embed the findings of a source and write the index."""
    source = open_source(address)
    model = load_model(model_name, device)
    with ProgressBars(say) as progress:
        index, problems = build_index(model, model_identity(model_name), source, progress)
    patients = len(set(index.patients))
    card = f"# Reports of {patients:,} patients, embedded by {model_name}\n\nHolds the texts of the reports."
    save_model(RetrievalReporter(model, index), out, card)
    result = {
        "index": str(out), "model": index.model, "weights": index.weights, "source": address,
        "texts": len(index.texts), "distinct": len(set(index.texts)), "patients": patients,
        "problems": problems, "note": NOT_A_MEDICAL_DEVICE,
    }  # fmt: skip

    def tell() -> None:
        say(f"{out}: {len(index.texts):,} findings texts of {patients:,} patients, embedded by {index.model}")
        say("The folder holds the texts of the reports: treat it like them.")
        say_problems(problems, "studies were left out")

    finish(json, result, tell, problems)


def load_index(
    folder: Path,
    writer: str | None = None,
    language_model: str | None = None,
    retrieved: str | None = None,
    device: str | None = None,
) -> RetrievalReporter:
    """Load an index with the options of the command line."""
    count = None if retrieved is None else int(retrieved) if retrieved.isdecimal() else retrieved
    if language_model is not None and writer not in (None, "language-model"):
        raise InputError(f"the writer {writer!r} uses no language model: leave out --language-model")
    reporter = load_reporter(folder, writer=writer, language_model=language_model, retrieved=count)
    return reporter if device is None else reporter.to(device)


def samples_from_index(
    address: str, folder: Path, count: int, html: Path | None, json: bool, **chosen: str | None
) -> None:
    """Write a page of random samples of a source: image, snippets, written report and reference."""
    if html is None:
        raise InputError("--samples needs --html FILE, the page to write")
    source = open_source(address)
    reporter = load_index(folder, **chosen)
    page = write_samples(reporter, source, html.parent, count, name=html.name)
    result = {"source": address, "writer": reporter.settings.writer, "samples": count, "html": str(page)}

    def tell() -> None:
        say(f"{page}: random studies with the reports written for them")
        say(f"The page shows images and texts of the source: treat it like them.\n\n{ADVICE}\n{NOT_A_MEDICAL_DEVICE}")

    finish(json, result | {"note": NOT_A_MEDICAL_DEVICE}, tell)


def report_from_index(
    image: Path, folder: Path, html: Path | None, anyway: bool, json: bool, **chosen: str | None
) -> None:
    """Print the report that is written from the nearest reports of an index, and its snippets."""
    pixels = read_radiograph(image, anyway)
    reporter = load_index(folder, **chosen)
    (written,) = reporter.write([pixels])
    result: dict[str, Any] = {"image": str(image), "index": str(folder), "writer": reporter.settings.writer}
    result |= {"text": written.text, "snippets": list(written.snippets), "nearest": written.nearest}
    result |= {"cosine": written.cosine, "seconds": written.seconds, "html": None if html is None else str(html)}
    if html is not None:
        report = Report(written.text)
        write_whole(html, report_page(pixels, report, image.name, f"{folder} ({result['writer']})", ADVICE).encode())

    def tell() -> None:
        say(written.text or "The report is empty.")
        say("\nWritten from:")
        for number, snippet in enumerate(written.snippets, start=1):
            say(f"  {number}. {snippet}")
        say(f"\n{ADVICE}\n{NOT_A_MEDICAL_DEVICE}")

    finish(json, result | {"note": NOT_A_MEDICAL_DEVICE}, tell)
