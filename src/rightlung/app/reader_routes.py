"""Routes to judge: reader studies, items, prompts, maps, answers, undo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from fastapi import APIRouter
from sqlalchemy import select
from sqlalchemy.orm import Session

from rightlung.app import reader_studies as studies
from rightlung.app.context import App, Context, Owner, Who
from rightlung.app.errors import AppError
from rightlung.app.questions import check_custom_answers
from rightlung.app.reader_studies import ALIASES, answer_json, item_json, items_of
from rightlung.app.requests import AnswerRequest, CustomPromptRequest, PromptRequest, ReaderStudyRequest
from rightlung.app.store.tables import Answer, Item, ReaderStudy
from rightlung.app.views import grid_json, target_json
from rightlung.core import Extent, Heatmap
from rightlung.judgements.judgement import CUSTOM

router = APIRouter(prefix="/api/v1/reader-studies", tags=["judge"])
_GRID = 64
"""Maps are shown on one grid: the models' own grids would tell them apart."""


@router.get("")
def reader_studies(app: App, who: Who) -> dict[str, Any]:
    """The reader studies that a person owns or judges in, the latest first."""
    with app.store.reading() as session:
        rows = session.scalars(select(ReaderStudy).order_by(ReaderStudy.created.desc())).all()
        mine = [row for row in rows if who.role == "owner" or who.name in row.annotators]
        return {"reader_studies": [studies.study_json(app, session, row, who) for row in mine]}


@router.post("", status_code=201)
def create(request: ReaderStudyRequest, app: App, who: Owner) -> dict[str, Any]:
    """Plan a reader study on the source."""
    row = studies.create(app, who, request)
    with app.store.reading() as session:
        return studies.study_json(app, session, row, who)


@router.get("/{reader_study}")
def one(reader_study: str, app: App, who: Who) -> dict[str, Any]:
    """A reader study."""
    with app.store.reading() as session:
        return studies.study_json(app, session, studies.find(session, reader_study, who), who)


@router.delete("/{reader_study}", status_code=204)
def remove(reader_study: str, app: App, who: Owner) -> None:
    """Delete a reader study with all its answers."""
    with app.store.writing() as session:
        session.delete(studies.find(session, reader_study, who))


@router.get("/{reader_study}/items")
def items(reader_study: str, app: App, who: Who) -> dict[str, Any]:
    """My items in my order, and the first that is not done."""
    with app.store.reading() as session:
        studies.find(session, reader_study, who)
        rows = [item_json(item, place) for place, item in enumerate(items_of(session, reader_study, who.name))]
    return {"items": rows, "next": next((row["id"] for row in rows if row["state"] != "done"), None)}


@router.get("/{reader_study}/items/{item}")
def item(reader_study: str, item: str, app: App, who: Who) -> dict[str, Any]:
    """An item with its sentences, and my answers."""
    with app.store.reading() as session:
        found = _opened(app, session, reader_study, item, who)
        return _item(app, session, found)


@router.post("/{reader_study}/items/{item}/prompt")
def prompt(reader_study: str, item: str, request: PromptRequest, app: App, who: Who) -> dict[str, Any]:
    """Choose the sentence, before any map is shown."""
    with _changing(app, reader_study, item, who) as (session, found):
        studies.choose(app, session, found, request)
        return _item(app, session, found)


@router.post("/{reader_study}/items/{item}/custom", status_code=201)
def custom(reader_study: str, item: str, request: CustomPromptRequest, app: App, who: Who) -> dict[str, Any]:
    """Add an item on the same image with a prompt of one's own."""
    with _changing(app, reader_study, item, who) as (session, found):
        added = studies.add_custom(session, found, request.text)
        session.flush()
        return _item(app, session, added)


@router.get("/{reader_study}/items/{item}/maps")
def maps(reader_study: str, item: str, app: App, who: Who) -> dict[str, Any]:
    """The maps of the chosen sentence by alias."""
    with app.store.reading() as session:
        found = _opened(app, session, reader_study, item, who)
        text, models = found.prompt, [found.reader_study.codes[code] for code in found.codes]
        entry = app.library.by_id(found.study)
    if text is None:
        raise AppError(409, "not-chosen", "choose the sentence before any map is shown")
    shown = {}
    for alias, name in zip(ALIASES, models, strict=False):
        try:
            answer = app.shelf.ground(name, entry, text)
        except AppError as error:
            message = error.message.replace(repr(name), alias)  # the error of a model must not name it
            raise AppError(error.status, error.code, message, retry_after=error.retry_after) from None
        # Next to a map, boxes would tell models apart.
        boxes = [] if answer["map"] else [one["box"] for one in answer["boxes"]]
        shown[alias] = {"map": _resampled(answer["map"]), "boxes": boxes, "absent": answer["absent"]}
    return {"maps": shown}


@router.put("/{reader_study}/items/{item}/answers/{alias}")
def answer(reader_study: str, item: str, alias: str, request: AnswerRequest, app: App, who: Who) -> dict[str, Any]:
    """Save the ratings of one map. When the response arrives, they are on the disk."""

    def save(session: Session) -> Answer:
        found = studies.find_item(session, reader_study, item, who, change=True)
        custom = check_custom_answers(request, found.reader_study.questions)
        return studies.save(session, found, alias, request, custom)

    return answer_json(app.store.write(save))


@router.post("/{reader_study}/undo")
def undo(reader_study: str, app: App, who: Who) -> dict[str, Any]:
    """Remove my latest answer."""
    with app.store.writing() as session:
        studies.find(session, reader_study, who)
        found, alias, removed = studies.undo(session, reader_study, who)
        return {"item": found.id, "alias": alias, "answer": removed}


@contextmanager
def _changing(app: Context, reader_study: str, item: str, who: Who) -> Iterator[tuple[Session, Item]]:
    """Return an item to change. Its image is loaded before, because other people wait during a change."""
    with app.store.reading() as session:
        app.library.by_id(_opened(app, session, reader_study, item, who).study)
    with app.store.writing() as session:
        yield session, studies.find_item(session, reader_study, item, who, change=True)


def _opened(app: Context, session: Session, reader_study: str, item: str, who: Who) -> Item:
    """Return an item of the person whose study and models are served."""
    found = studies.find_item(session, reader_study, item, who)
    row = found.reader_study
    if row.source != app.library.source.address:
        raise AppError(409, "conflict", "this reader study is about another source; start the service with that one")
    if missing := sorted(set(row.codes.values()) - set(app.shelf.models)):
        raise AppError(409, "conflict", f"{len(missing)} of this reader study's models are not served; add --model")
    return found


def _item(app: Context, session: Session, found: Item) -> dict[str, Any]:
    ordered = items_of(session, found.reader_study_id, found.annotator)
    row = item_json(found, [one.id for one in ordered].index(found.id))
    phrases = app.library.by_id(found.study).study.phrases
    saved = {one.code: answer_json(one) for one in found.answers}
    aliases = {} if found.prompt is None else dict(zip(ALIASES, found.codes, strict=False))
    truth = None
    if found.reader_study.settings["show_truth"] and aliases and found.phrase != CUSTOM:
        truth = target_json(phrases[int(found.phrase.partition(":")[2])])
    return row | {
        "sentences": [{"index": index, "text": phrase.text} for index, phrase in enumerate(phrases)],
        "aliases": list(aliases),
        "answers": {alias: saved.get(code) for alias, code in aliases.items()},
        "custom_prompts": found.reader_study.settings["custom_prompts"],
        "show_truth": found.reader_study.settings["show_truth"],
        "truth": truth,
    }


def _resampled(shown: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a map on the common grid of the whole image; its maximum is one, because scales tell models apart."""
    if shown is None:
        return None
    heatmap = Heatmap(np.asarray(shown["values"], dtype=np.float32), Extent(*shown["extent"]))
    values = heatmap.to_size((_GRID, _GRID), keep_mass=False)
    return grid_json(values / (values.max() or 1.0), (0.0, 0.0, 1.0, 1.0))
