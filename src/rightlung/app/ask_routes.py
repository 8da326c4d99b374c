"""Routes that ask models: ground, describe, report, classify, regions."""

from __future__ import annotations

import random
import secrets
from collections import OrderedDict
from typing import Any

import numpy as np
from fastapi import APIRouter

from rightlung.app.accounts import Caller
from rightlung.app.context import App, Context, Who, find
from rightlung.app.errors import AppError
from rightlung.app.library import Entry
from rightlung.app.perturbing import perturbed
from rightlung.app.reader_studies import check_judged
from rightlung.app.requests import (
    ClassifyRequest,
    DescribeRequest,
    GroundRequest,
    Perturb,
    RegionsRequest,
    ReportRequest,
    RevealRequest,
)
from rightlung.app.views import box_json, findings_json, grid_json
from rightlung.core import Box, InputError, Query
from rightlung.measuring.changes import moved_mass, moved_peak, on_common_grid
from rightlung.measuring.maps import AnswerMap

router = APIRouter(prefix="/api/v1", tags=["ask"])
_REVEALED: OrderedDict[str, dict[str, str]] = OrderedDict()
_MOST_TOKENS = 1_000


@router.post("/ground")
def ground(request: GroundRequest, app: App, who: Who) -> dict[str, Any]:
    """Where each model sees each phrase, and how that changes under a perturbation."""
    entry = _asked(app, request.study, who)
    names = list(dict.fromkeys(request.models))
    for name in names:
        app.shelf.find(name, "ground")
    aliases, token = {name: name for name in names}, None
    if request.blinded:
        random.SystemRandom().shuffle(names)
        aliases, token = {name: chr(ord("A") + place) for place, name in enumerate(names)}, secrets.token_urlsafe(16)
        _REVEALED[token] = {alias: name for name, alias in aliases.items()}
        while len(_REVEALED) > _MOST_TOKENS:
            _REVEALED.popitem(last=False)
    answers = []
    for text in request.phrases:
        for name in names:
            plain = app.shelf.ground(name, entry, text)
            changed = None if request.perturb is None else _changed(app, name, entry, text, request.perturb, plain)
            if request.blinded:
                plain, changed = _blinded(plain), changed and _blinded(changed)
            answers.append({"phrase": text, "model": aliases[name], "plain": plain, "perturbed": changed})
    return {"study": entry.key, "answers": answers, "reveal": token}


@router.post("/ground/reveal")
def reveal(request: RevealRequest, app: App, who: Who) -> dict[str, Any]:
    """Which models were behind the letters of a blinded answer."""
    if request.token not in _REVEALED:
        raise AppError(404, "not-found", "there is no blinded answer with this token")
    return {"models": _REVEALED[request.token]}


@router.post("/describe")
def describe(request: DescribeRequest, app: App, who: Who) -> dict[str, Any]:
    """A model's sentence for phrases and boxes."""
    entry, answers = _asked(app, request.study, who), []
    for given in request.queries:
        query = Query(given.phrase, None if given.box is None else Box(*given.box))
        answers.append({"query": given.model_dump(), **app.shelf.describe(request.model, entry, query)})
    return {"answers": answers}


@router.post("/report")
def report(request: ReportRequest, app: App, who: Who) -> dict[str, Any]:
    """A model's grounded report."""
    return app.shelf.report(request.model, _asked(app, request.study, who))


@router.post("/classify")
def classify(request: ClassifyRequest, app: App, who: Who) -> dict[str, Any]:
    """A model's scores of findings, in the image or in a box."""
    box = None if request.box is None else Box(*request.box)
    return app.shelf.classify(request.model, _asked(app, request.study, who), Query(box=box))


@router.post("/regions")
def regions(request: RegionsRequest, app: App, who: Who) -> dict[str, Any]:
    """The regions of an image, all or those at a point: the source's, else those that the anatomy model finds."""
    entry = find(app, request.study, who.name)
    try:
        boxes = app.shelf.regions(entry)
    except InputError as error:
        raise AppError(404, "no-regions", str(error)) from None
    found = [
        {"name": name, "box": box_json(box), "findings": findings_json(entry.study.region_findings.get(name, {}))}
        for name, box in boxes.items()
        if request.point is None or (box.x0 <= request.point[0] <= box.x1 and box.y0 <= request.point[1] <= box.y1)
    ]
    return {"regions": found}


def _asked(app: Context, key: str, who: Caller) -> Entry:
    """Return a study that models may answer about openly."""
    entry = find(app, key, who.name)
    if entry.kind == "source":
        check_judged(app, entry.study.id, who)
    return entry


def _blinded(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without what names its model: how long it took, and the name of its score."""
    return answer | {"cached": None, "milliseconds": None, "score": answer["score"] | {"name": "score"}}


def _changed(app: App, name: str, entry: Entry, text: str, wanted: Perturb, plain: dict[str, Any]) -> dict[str, Any]:
    """Return a model's answer under a perturbation, and how much it changed."""
    change = perturbed(entry.study, text, wanted.kind, wanted.text, wanted.finding, plain["peak"])
    answer = app.shelf.ground(name, entry, change.text, change)
    return answer | {
        "kind": wanted.kind,
        "phrase": change.text,
        "image": change.address(entry),
        "covered": None if change.box is None else [round(value, 6) for value in change.box],
        "change": compared(plain, answer),
    }


def compared(plain: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return map change, peak displacement, the difference of the scores and that of the maps."""
    before, after = (on_common_grid(_answer_map(one)) for one in (plain, answer))
    change: dict[str, Any] = {"total_variation": None, "peak_displacement": None, "score": None, "difference": None}
    if before is not None and after is not None:
        change["total_variation"] = round(moved_mass(before, after), 4)
        change["peak_displacement"] = round(moved_peak(before, after), 4)
    first, second = plain["score"]["value"], answer["score"]["value"]
    if first is not None and second is not None:
        change["score"] = round(second - first, 5)
    if plain["map"] and answer["map"]:
        change["difference"] = _difference(plain["map"], answer["map"])
    return change


def _answer_map(answer: dict[str, Any]) -> AnswerMap:
    if answer["map"] is not None:
        return AnswerMap(np.asarray(answer["map"]["values"], dtype=np.float32), tuple(answer["map"]["extent"]))
    return AnswerMap(
        None,
        boxes=[
            {**dict(zip(("x0", "y0", "x1", "y1"), one["box"], strict=True)), "score": one["score"]}
            for one in answer["boxes"]
        ],
    )


def _difference(plain: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any] | None:
    """Return the changed map minus the plain one, both with a mass of one; images of one size have one grid."""
    first, second = (np.asarray(one["values"], dtype=np.float64) for one in (plain, changed))
    if (first.shape, plain["extent"]) != (second.shape, changed["extent"]) or min(first.sum(), second.sum()) <= 0:
        return None
    return grid_json(second / second.sum() - first / first.sum(), plain["extent"])
