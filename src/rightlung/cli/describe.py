"""``rightlung describe`` and ``rightlung report``: what a model writes about an image, with the boxes it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.output import finish, say
from rightlung.cli.predict import load_model
from rightlung.core import Box, Image, InputError, Query, Report
from rightlung.core.checks import check_text
from rightlung.core.files import write_whole
from rightlung.models.base import Describer, Grounder, Reporter
from rightlung.studies.images import decode_image
from rightlung.studies.plausibility import IN_COLOUR, why_implausible


def describe(
    image: Path, prompts: Sequence[str], boxes: Sequence[str], model_name: str, device: str | None, json: bool
) -> None:
    """Print a sentence for each prompt, for each box, or for each prompt in the one box that is given."""
    queries = _queries(prompts, boxes)
    pixels = _read(image)
    model = load_model(model_name, device)
    if not isinstance(model, Describer):
        raise InputError(f"model {model_name!r} cannot describe regions; 'rightlung models' lists what each can do")
    texts = model.describe([pixels] * len(queries), queries)
    found: list[dict[str, Any]] = [
        {"prompt": query.phrase, "box": None if query.box is None else list(query.box.as_tuple()), "text": text}
        for query, text in zip(queries, texts, strict=True)
    ]
    asked = [place for place, query in enumerate(queries) if query.box is None and query.phrase is not None]
    if asked and isinstance(model, Grounder):
        groundings = model.ground([pixels] * len(asked), [str(queries[place].phrase) for place in asked])
        for place, grounding in zip(asked, groundings, strict=True):
            found[place]["boxes"] = [[*one.box.as_tuple(), one.score] for one in grounding.boxes]

    def tell() -> None:
        for one in found:
            place = "" if one["box"] is None else f" in the box {', '.join(f'{value:.2f}' for value in one['box'])}"
            say(f"{one['prompt'] or 'region'}{place}: {one['text'] or '(no words)'}")
        say(NOT_A_MEDICAL_DEVICE)

    finish(json, {"image": str(image), "model": model_name, "answers": found, "note": NOT_A_MEDICAL_DEVICE}, tell)


def report(
    image: Path,
    model_name: str,
    prompts: Path | None,
    findings: str,
    regions: str,
    html: Path | None,
    device: str | None,
    json: bool,
) -> None:
    """Print the report of an image, each sentence with its score, prompt and boxes."""
    pixels = _read(image)
    model = load_model(model_name, device)
    if not isinstance(model, Reporter):
        raise InputError(f"model {model_name!r} writes no reports; 'rightlung models' lists what each can do")
    written = _written(model, model_name, pixels, prompts, findings, regions)
    sentences = [
        {
            "text": one.text,
            "score": one.score,
            "prompt": one.prompt,
            "boxes": [list(box.as_tuple()) for box in one.boxes],
        }
        for one in written.sentences
    ]
    result: dict[str, Any] = {"image": str(image), "model": model_name, "text": written.text, "sentences": sentences}
    result |= {"html": None if html is None else str(html), "note": NOT_A_MEDICAL_DEVICE}
    if html is not None:
        from rightlung.pages.report import report_page

        write_whole(html, report_page(pixels, written, f"{image.name}, model {model_name}").encode())

    def tell() -> None:
        for one in written.sentences:
            score = "" if one.score is None else f"{one.score:.2f}  "
            say(f"{score}{one.text}" + (f"  [{one.prompt}]" if one.prompt else ""))
        if not written.sentences:
            say(written.text or "the report is empty")
        if html is not None:
            say(f"written: {html}")
        say(NOT_A_MEDICAL_DEVICE)

    finish(json, result, tell)


def _written(model: Any, name: str, pixels: Image, prompts: Path | None, findings: str, regions: str) -> Report:
    if not hasattr(model, "report_settings"):
        if prompts is not None or (findings, regions) != ("yes", "positive"):
            raise InputError(f"model {name!r} takes no prompts: leave out --prompts, --findings and --regions")
        return model.report([pixels])[0]  # type: ignore[no-any-return]
    own = () if prompts is None else tuple(_lines(prompts))
    return model.report([pixels], model.report_settings(findings=findings, regions=regions, prompts=own))[0]  # type: ignore[no-any-return]


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the prompts cannot be read ({error})") from None
    if not (given := [line for line in lines if line and not line.startswith("#")]):
        raise InputError(f"{path}: the file has no prompts; write one on each line")
    return given


def _queries(prompts: Sequence[str], boxes: Sequence[str]) -> list[Query]:
    texts = [check_text(prompt, "a prompt") for prompt in prompts]
    areas = [_box(text) for text in boxes]
    if texts and areas:
        if len(areas) > 1:
            raise InputError("give one --box with --prompt, or several without")
        return [Query(text, areas[0]) for text in texts]
    return [Query(text) for text in texts] + [Query(box=area) for area in areas] or [Query()]


def _box(text: str) -> Box:
    try:
        return Box(*(float(value) for value in text.split(",")))
    except (TypeError, ValueError, InputError) as error:
        reason = f": {error}" if isinstance(error, InputError) else ""
        raise InputError(
            f"--box needs X0,Y0,X1,Y1 in fractions of the image, from 0 to 1; got {text!r}{reason}"
        ) from None


def _read(path: Path) -> Image:
    found = decode_image(path)
    for note in found.notes:
        say(f"note: {path}: {note}")
    doubt = IN_COLOUR if found.coloured else why_implausible(found.image)
    if doubt is not None:
        raise InputError(f"{path} cannot be a chest radiograph: {doubt}")
    return found.image
