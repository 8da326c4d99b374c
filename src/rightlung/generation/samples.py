"""A page of random samples: image, snippets, written report and reference (eCLIP supp., Table 2).

The page shows images and texts of the source, so it stays where these may be.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rightlung.core import InputError, Study
from rightlung.core.keyed import RandomStream
from rightlung.generation.index import findings_of, patient_of
from rightlung.generation.reporter import RetrievalReporter
from rightlung.studies import Source

if TYPE_CHECKING:
    from rightlung.pages.content import Case

SIDE = 320


def write_samples(
    reporter: RetrievalReporter,
    source: Source,
    out: str | Path,
    count: int = 7,
    seed: int = 0,
    name: str = "samples.html",
) -> Path:
    """Write a page about ``count`` random studies with findings to a folder; return the file."""
    from rightlung.pages.content import Gallery, Page, Section
    from rightlung.pages.write import write_page

    cases: list[Case] = []
    for position in RandomStream(seed, "samples").shuffled(range(len(source))):
        if len(cases) == count:
            break
        try:
            study = source[position]
            if findings_of(study.report):
                cases.append(_case(reporter, study))
        except InputError as error:
            if "in the index" in str(error):  # all patients may be: that is no problem of one study
                raise
    if not cases:
        raise InputError(f"{source.address}: no study has an image that can be read and a report with findings")
    index, settings = reporter.index, reporter.settings
    gallery = Gallery("samples", "Samples", "Drawn at random, none left out.", cases)
    facts: dict[str, Any] = {
        "source": source.address, "index": index.source, "embedder": index.model, "writer": settings.writer,
        "retrieved": str(settings.count), "language model": settings.language_model or "default", "seed": str(seed),
    }  # fmt: skip
    lead = f"{len(cases)} reports written from the most similar training reports, next to the radiologists' own."
    page = Page("Reports from retrieval", lead, [Section("samples", "Samples", parts=[gallery])], facts)
    write_page(page, out, html=name)
    return Path(out) / name


def _case(reporter: RetrievalReporter, study: Study) -> Case:
    from rightlung.core.plotting import overlay
    from rightlung.pages.content import Case

    (written,) = reporter.write([study.image], [patient_of(study)])
    notes = [f"Written: {written.text}", f"Reference: {findings_of(study.report)}"]
    notes += [f"Snippet {number}: {text}" for number, text in enumerate(written.snippets, start=1)]
    return Case(study.id, [("image", partial(overlay, study.image, side=SIDE))], notes, beside=True)
