"""From an experiment folder to a page, a Markdown file with figures, and a JSON file with every number.

The page is one HTML file that needs no network, no script and no mouse. A folder in which variants or measures are
still missing gives a page that says so.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit.markup import Markup, element, joined
from rightlung.audit.run import plain
from rightlung.core import InputError
from rightlung.core.files import write_whole
from rightlung.reproduce.wrong_lung.estimates import Estimator, Sureness
from rightlung.reproduce.wrong_lung.figures import Drawing, save_png, sparkline, to_svg
from rightlung.reproduce.wrong_lung.judging import FAILS, HOLDS, NOT_SHOWN, TURNS, UNKNOWN, Judgement
from rightlung.reproduce.wrong_lung.markdown import render_markdown
from rightlung.reproduce.wrong_lung.published import published
from rightlung.reproduce.wrong_lung.reading import read_results
from rightlung.reproduce.wrong_lung.report import (
    EXAMPLES,
    LEFT_OUT,
    OTHER_DATA,
    OVER_PATIENTS,
    SAME_VERDICTS,
    SEED_BY_SEED,
    TITLE,
    TURNED_VERDICTS,
    WITHOUT,
    Report,
    Section,
    make_report,
    sureness_words,
)
from rightlung.reproduce.wrong_lung.tables import NOT_COMPARABLE, Cell, Heading, Measured, Table

_PNG = "data:image/png;base64,"
_SIGNS = {HOLDS: "✓", FAILS: "✗", NOT_SHOWN: "≈", UNKNOWN: "?", TURNS: "±"}
Example = tuple[str, str]
"""A picture as a PNG data URI, and its caption."""


def write_page(
    out: str | Path,
    examples: Sequence[Example] = (),
    *,
    commands: Sequence[str] = (),
    sureness: Sureness | None = None,
) -> list[Path]:
    """Write ``page.html``, ``results.md``, ``results.json`` and ``figures/`` into the experiment folder.

    ``examples`` are prepared pictures (Figure 7: maps of all models, as asked and with the sides swapped), ``commands``
    what was typed to get here. Returns the files.
    """
    folder = Path(out)
    pictures = [_decoded(place, example) for place, example in enumerate(examples, start=1)]
    results = read_results(folder)
    measured = Measured(results, Estimator(results.instances.clusters, sureness))
    report = make_report(measured, commands)
    drawings = [part for section in report.sections for part in section.parts if isinstance(part, Drawing)]
    written = [save_png(drawing, folder / "figures" / f"{drawing.name}.png") for drawing in drawings]
    shown = []
    for place, ((_, caption), content) in enumerate(zip(examples, pictures, strict=True), start=1):
        path = folder / "figures" / f"example-{place}.png"
        write_whole(path, content)
        written.append(path)
        shown.append((f"figures/{path.name}", caption))
    texts = {
        "page.html": render_page(report, examples),
        "results.md": render_markdown(report, shown),
        "results.json": json.dumps(plain(report.as_json()), indent=1, allow_nan=False, ensure_ascii=False),
    }
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    return [*(folder / name for name in texts), *written]


def _decoded(place: int, example: Example) -> bytes:
    picture, _ = example
    try:
        if not picture.startswith(_PNG):
            raise ValueError
        return base64.b64decode(picture[len(_PNG) :], validate=True)
    except (ValueError, binascii.Error):
        raise InputError(f"example {place}: the picture must be a data URI that starts with {_PNG}") from None


def render_page(report: Report, examples: Sequence[Example] = ()) -> str:
    """Return the report as one HTML file."""
    sections = [
        ("found", "What was found", _found(report)),
        ("missing", "What is missing", _listed(report.absent)),
        ("claims", "The claims", _claims(report)),
        ("labels", "How much of the story is its labels", _labels(report)),
        *((section.name, section.title, _section(section)) for section in report.sections),
        ("examples", EXAMPLES, _examples(examples)),
    ]
    shown = [(name, title, content) for name, title, content in sections if content]
    body = [
        element("a", "Skip to what was found", href="#found", class_="skip"),
        element("header", _header(report)),
        element(
            "nav",
            element("ul", [element("li", element("a", title, href=f"#{name}")) for name, title, _ in shown]),
            aria_label="Sections",
        ),
        element(
            "main",
            [
                element("section", element("h2", title, id=name), content, aria_labelledby=name)
                for name, title, content in shown
            ],
        ),
        element("footer", element("p", f"{published().paper}. {NOT_A_MEDICAL_DEVICE}", class_="meta")),
    ]
    sheets = (("rightlung.audit", "style.css"), ("rightlung.reproduce.wrong_lung", "page.css"))
    style = "".join(files(home).joinpath(name).read_text(encoding="utf-8") for home, name in sheets)
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", TITLE),
        element("style", Markup(style)),
    ]
    return "<!doctype html>\n" + element("html", element("head", head), element("body", body), lang="en") + "\n"


def _header(report: Report) -> list[Markup]:
    pairs = [joined(element("dt", name), element("dd", value)) for name, value in report.facts.items()]
    content = [
        element("h1", TITLE),
        *([element("p", report.warning, class_="warning", role="note")] if report.warning else []),
        element("p", NOT_A_MEDICAL_DEVICE, class_="note"),
        element("p", f"The tables and figures of {published().paper}, measured anew. {OTHER_DATA}"),
        element("dl", pairs),
    ]
    for title, counts in ((LEFT_OUT, report.left_out), (WITHOUT, report.without)):
        if counts:
            listed = element("ul", [element("li", f"{reason}: {count:,}") for reason, count in counts.items()])
            content += [element("p", title), listed]
    if report.commands:
        content.append(element("pre", element("code", "\n".join(report.commands))))
    return content


def _listed(sentences: Sequence[str]) -> Markup | None:
    return element("ul", [element("li", sentence) for sentence in sentences]) if sentences else None


def _found(report: Report) -> Markup:
    return element("ul", [element("li", sentence) for sentence in report.found], class_="summary")


def _claims(report: Report) -> list[Markup]:
    tested = sum("p" in one.found for judged in report.judged for j in judged.judgements.values() for one in j.evidence)
    said = (
        "A claim holds where the interval lies on the claimed side, and does not where it lies on the other; where it "
        f"reaches across, no difference is shown. {OVER_PATIENTS} {SEED_BY_SEED} "
        f"{tested:,} comparisons were also tested; whether a verdict survives Holm's adjustment for all of them is "
        "said with it."
    )
    if any(not model.get("comparable", True) for model in report.models):
        said += f" {NOT_COMPARABLE}"
    header = [
        element("th", text, scope="col") for text in ("claim", "the paper's figures", "region boxes", "exact masks")
    ]
    rows = []
    for judged in report.judged:
        cells = []
        for target in ("regions", "exact"):
            judgement = judged.judgements.get(target)
            if judgement is None:
                cells.append(element("td", "–"))
                continue
            verdict = judged.verdict(target)
            cells.append(
                element(
                    "td",
                    element("span", f"{_SIGNS[verdict]} {verdict}", class_="verdict"),
                    _why(judgement, sureness_words(judged, target)),
                )
            )
        rows.append(
            element(
                "tr",
                element(
                    "th",
                    judged.claim.text,
                    [
                        element("span", text, class_="meta")
                        for text in (judged.claim.where, judged.claim.stands_in)
                        if text
                    ],
                    scope="row",
                ),
                element("td", judged.claim.paper or "–", class_="why"),
                cells,
            )
        )
    table = element(
        "table",
        element("caption", element("span", "Judged by their directions."), id="caption-claims"),
        element("thead", element("tr", header)),
        element("tbody", rows),
        class_="claims",
    )
    return [
        element("p", said),
        element("div", table, class_="scroll", role="region", tabindex="0", aria_labelledby="caption-claims"),
    ]


def _why(judgement: Judgement, after: str) -> Markup:
    said = judgement.told
    listed = (
        element("ul", [element("li", text) for text in said])
        if len(said) > 1
        else "".join(f"{text}. " for text in said)
    )
    return element("div", listed, " ".join(part for part in (judgement.remark, after) if part), class_="why")


def _labels(report: Report) -> list[Markup] | None:
    if report.labels_table is None:
        return None
    turned = element("ul", [element("li", sentence) for sentence in report.labels_matter])
    return [
        element("p", f"A region's box is larger than what is seen in it. {report.labels_figures}"),
        element("p", TURNED_VERDICTS if report.labels_matter else SAME_VERDICTS),
        *([turned] if report.labels_matter else []),
        element("h3", report.labels_table.title),
        _table(report.labels_table),
    ]


def _section(section: Section) -> list[Markup]:
    content = [element("p", section.introduction)] if section.introduction else []
    for part in section.parts:
        made = _figure(part) if isinstance(part, Drawing) else _table(part)
        if part.folded:
            content.append(element("details", element("summary", element("h3", part.title)), made))
        else:
            content += [element("h3", part.title), made]
    return content


def _figure(drawing: Drawing) -> Markup:
    scroll = element("div", to_svg(drawing), class_="scroll", role="region", tabindex="0", aria_label=drawing.title)
    return element("figure", scroll, element("figcaption", drawing.described))


def _table(table: Table) -> Markup:
    rows = [
        element(
            "tr",
            [
                _cell(cell, heading, first=place == 0)
                for place, (cell, heading) in enumerate(zip(row, table.header, strict=True))
            ],
        )
        for row in table.rows
    ]
    name = f"caption-{table.name}"
    made = element(
        "table",
        element("caption", element("span", table.caption), id=name),
        element("thead", element("tr", [_heading(heading) for heading in table.header])),
        element("tbody", rows),
    )
    scroll = element("div", made, class_="scroll", role="region", tabindex="0", aria_labelledby=name)
    return joined(scroll, [element("p", note, class_="small") for note in table.notes])


def _heading(heading: Heading) -> Markup:
    return element("th", heading.text, scope="col", class_=heading.kind if heading.kind != "text" else None)


def _cell(cell: Cell, heading: Heading, first: bool) -> Markup:
    if first:
        return element("th", cell.text, scope="row")
    if cell.kind == "curve":
        return element("td", sparkline(cell.value) or "–", element("span", _curve_words(cell.value), class_="span"))
    kind = "paper" if heading.kind == "paper" else "number" if heading.kind == "number" else None
    classes = " ".join(name for name in (kind, "best" if cell.best else None) if name)
    return element(
        "td",
        element("span", cell.text, class_="value"),
        element("span", cell.detail, class_="span") if cell.detail else None,
        class_=classes or None,
    )


def _curve_words(points: Sequence[Sequence[float]]) -> str:
    if len(points) < 2:
        return ""
    return f"{points[0][1]:.3g} to {points[-1][1]:.3g}, lowest {min(loss for _, loss in points):.3g}"


def _examples(examples: Sequence[Example]) -> list[Markup] | None:
    if not examples:
        return None
    note = (
        "The paper's Figure 7, of other sentences: each model's map of the sentence as it stands and with its sides "
        "swapped. The patient's right (R) is on the image's left."
    )
    figures = [
        element(
            "figure",
            element(
                "div",
                element("img", src=picture, alt=caption),
                class_="scroll",
                role="region",
                tabindex="0",
                aria_label=f"Example {place}",
            ),
            element("figcaption", caption),
        )
        for place, (picture, caption) in enumerate(examples, start=1)
    ]
    return [element("p", note, class_="small"), element("div", figures, class_="examples")]
