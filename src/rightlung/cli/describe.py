"""``rightlung describe`` and ``rightlung report``: what a model writes about an image, with the boxes it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.asking.reading import cut, reading_warning
from rightlung.cli.frontal import read_radiograph
from rightlung.cli.output import finish, say
from rightlung.cli.predict import load_model
from rightlung.core import Box, Image, InputError, Query, Report, Sentence
from rightlung.core.checks import check_text
from rightlung.core.files import write_whole
from rightlung.models.base import Describer, Grounder, Reader, Reporter
from rightlung.pages.report import prompt_agrees, report_page, side_agrees, warnings_about

_SHOWN = 10
"""Notes that are printed."""
NO_EVIDENCE = "A sentence can be fluent and wrong: compare it with its boxes. A score is not a probability."
MAY_MISS = "The model may have missed findings: this does not show that there are none."


def describe(
    image: Path,
    prompts: Sequence[str],
    boxes: Sequence[str],
    model_name: str,
    anyway: bool,
    device: str | None,
    json: bool,
) -> None:
    """Print a sentence for each prompt, for each box, or for each prompt in the one box that is given."""
    queries = _queries(prompts, boxes)
    pixels = read_radiograph(image, anyway)
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
            found[place]["boxes"] = [{"box": list(one.box.as_tuple()), "score": one.score} for one in grounding.boxes]
    sentences = [_described(one) for one in found]
    for one, sentence in zip(found, sentences, strict=True):
        one["side_agrees"] = side_agrees(sentence.text, sentence.boxes)
        one["prompt_agrees"] = prompt_agrees(sentence.text, sentence.prompt)
    notes = _notes(model, prompts)

    def tell() -> None:
        for one, sentence in zip(found, sentences, strict=True):
            place = "" if one["box"] is None else f"{' in' if one['prompt'] else ''} box {_corners(one['box'])}"
            whole = "whole image" if one["box"] is None else ""
            best, said = one.get("boxes", [])[:1], one["text"].strip()
            say(f"{cut(one['prompt'] or whole)}{place}: {said or '(no words)'}".strip())
            for box in best:
                say(f"  best box {_corners(box['box'])}, score {box['score']:.2f}")
            for warning in warnings_about(sentence) if said else ():
                say(f"  warning: {warning}")
        _say_end(notes, NO_EVIDENCE)

    result = {"image": str(image), "model": model_name, "answers": found, "notes": notes, "note": NOT_A_MEDICAL_DEVICE}
    finish(json, result, tell)


def _described(answer: dict[str, Any]) -> Sentence:
    """Return an answer as a sentence with the box that was given, or with those that were found."""
    corners = [one["box"] for one in answer.get("boxes", [])] if answer["box"] is None else [answer["box"]]
    return Sentence(answer["text"], tuple(Box(*one) for one in corners), prompt=answer["prompt"])


def report(
    image: Path,
    model_name: str,
    prompts: Path | None,
    findings: str | None,
    regions: str | None,
    html: Path | None,
    anyway: bool,
    device: str | None,
    json: bool,
) -> None:
    """Print the report of an image, each sentence with its score, prompt and boxes."""
    settings: dict[str, Any] = {"findings": findings, "regions": regions}
    settings = {name: use for name, use in settings.items() if use is not None}
    if prompts is not None and settings:
        raise InputError("give --prompts, or --findings and --regions: your own prompts take the place of both sets")
    own = () if prompts is None else tuple(_lines(prompts))
    pixels = read_radiograph(image, anyway)
    model = load_model(model_name, device)
    if not isinstance(model, Reporter):
        raise InputError(f"model {model_name!r} writes no reports; 'rightlung models' lists what each can do")
    written = _written(model, model_name, pixels, settings | ({"prompts": own} if own else {}))
    notes, advice = _notes(model, own), NO_EVIDENCE if written.sentences else MAY_MISS
    sentences = [
        {
            "text": one.text,
            "score": one.score,
            "prompt": one.prompt,
            "boxes": [list(box.as_tuple()) for box in one.boxes],
            "side_agrees": side_agrees(one.text, one.boxes),
            "prompt_agrees": prompt_agrees(one.text, one.prompt),
            "abstention": None if one.heatmap is None else one.heatmap.abstention,
        }
        for one in written.sentences
    ]
    result: dict[str, Any] = {"image": str(image), "model": model_name, "text": written.text, "sentences": sentences}
    result |= {"looked_for": written.sections.get("looked for"), "left_out": written.sections.get("left out")}
    result |= {"html": None if html is None else str(html)}
    result |= {"notes": notes, "note": NOT_A_MEDICAL_DEVICE}
    if html is not None:
        write_whole(html, report_page(pixels, written, image.name, model_name, advice, notes).encode())

    def tell() -> None:
        for number, one in enumerate(written.sentences, start=1):
            say(f"{number}. {one.text}\n   {_details(one)}")
        if not written.sentences:
            say(written.text or "The report is empty.")
        if "looked for" in written.sections:
            say(f"The model was asked for: {written.sections['looked for']}.")
        if "left out" in written.sections:
            say(f"Without a sentence of their own: {written.sections['left out']}.")
        if html is not None:
            say(f"written: {html}")
        _say_end(notes, advice)

    finish(json, result, tell)


def _details(sentence: Sentence) -> str:
    prompt = [] if sentence.prompt is None else [f"asked: {cut(sentence.prompt)}"]
    score = [] if sentence.score is None else [f"score {sentence.score:.2f}"]
    boxes = [f"box {_corners(box.as_tuple())}" for box in sentence.boxes] or ["no box"]
    text = [] if sentence.heatmap is None else [f"{100 * sentence.heatmap.abstention:.0f} % from the words before"]
    details = "; ".join([*prompt, *score, *boxes, *text])
    return "\n   warning: ".join([details, *warnings_about(sentence)])


def _corners(box: Iterable[float]) -> str:
    """Return a box in the way in which ``--box`` takes it."""
    return ",".join(f"{value:.2f}" for value in box)


def _notes(model: object, prompts: Sequence[str]) -> list[str]:
    """Return what the model does not read of each prompt."""
    if not isinstance(model, Reader):
        return []
    found = []
    for prompt in prompts:
        reading = model.reads(prompt)
        if warning := reading_warning(prompt, len(reading.text), reading.known, reading.tokens):
            found.append(f"prompt {cut(prompt)!r}: {warning}")
    return found


def _say_end(notes: Sequence[str], advice: str) -> None:
    for note in notes[:_SHOWN]:
        say(f"note: {note}")
    if len(notes) > _SHOWN:
        say(f"… and {len(notes) - _SHOWN:,} more notes; --json lists them all")
    say(f"\n{advice}\n{NOT_A_MEDICAL_DEVICE}")


def _written(model: Any, name: str, pixels: Image, settings: dict[str, Any]) -> Report:
    if not settings:
        return model.report([pixels])[0]  # type: ignore[no-any-return]
    if not hasattr(model, "report_settings"):
        raise InputError(f"model {name!r} takes no prompts: leave out --prompts, --findings and --regions")
    return model.report([pixels], model.report_settings(**settings))[0]  # type: ignore[no-any-return]


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise InputError(f"{path}: the prompts cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: the prompts cannot be read: this is not a text file in UTF-8") from None
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
    except InputError as error:
        raise InputError(f"--box: {error}") from None
    except (TypeError, ValueError):
        raise InputError(f"--box needs X0,Y0,X1,Y1 in fractions of the image, from 0 to 1; got {text!r}") from None
