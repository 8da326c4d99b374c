"""Results of reader studies: the table that ``rightlung judgements analyse`` reads, its key, and its page."""

from __future__ import annotations

import csv
import io
import threading
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import APIRouter, Response
from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.app import reader_studies as studies
from rightlung.app.accounts import Caller
from rightlung.app.context import App, Context, Owner
from rightlung.app.errors import AppError
from rightlung.app.store.tables import Item, ReaderStudy
from rightlung.core.files import plain
from rightlung.judgements import VERSION, BlindingKey, Judgement, analyse, make_page, read_measures
from rightlung.judgements.judgement import COLUMNS, RATINGS
from rightlung.judgements.summary import summary
from rightlung.pages.html import render_html
from rightlung.results.estimate import BootstrapSettings

router = APIRouter(prefix="/api/v1/reader-studies/{reader_study}", tags=["judge"])
PAGE_CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox"
_analysing = threading.Lock()
_analysed: dict[tuple[str, int], dict[str, Any]] = {}


@router.get("/progress")
def progress(reader_study: str, app: App, who: Owner) -> dict[str, Any]:
    """How far each annotator is."""
    with app.store.reading() as session:
        rows = []
        for name in studies.find(session, reader_study, who).annotators:
            items = studies.items_of(session, reader_study, name)
            last = max((answer.saved_at for item in items for answer in item.answers), default=None)
            done = sum(studies.is_done(item) for item in items)
            rows.append({"name": name, "done": done, "total": len(items), "last_saved": last})
        return {"annotators": rows}


@router.get("/export.csv", response_class=Response)
def export_csv(reader_study: str, app: App, who: Owner) -> Response:
    """The answers, as ``rightlung judgements analyse`` reads them."""
    return _csv([list(COLUMNS), *([row[name] for name in COLUMNS] for row in _rows(app, who, reader_study))])


@router.get("/export.parquet", response_class=Response)
def export_parquet(reader_study: str, app: App, who: Owner) -> Response:
    """The same as Parquet."""
    whole = {"version", "order", *RATINGS}
    schema = pa.schema([(name, pa.int64() if name in whole else pa.string()) for name in COLUMNS])
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(_rows(app, who, reader_study), schema), file)
    return Response(file.getvalue(), media_type="application/vnd.apache.parquet")


@router.get("/key.csv", response_class=Response)
def key_csv(reader_study: str, app: App, who: Owner) -> Response:
    """The model behind each code; hide it from annotators."""
    with app.store.reading() as session:
        codes = studies.find(session, reader_study, who).codes
    return _csv([["code", "model"], *([code, codes[code]] for code in sorted(codes))])


@router.get("/questions.csv", response_class=Response)
def questions_csv(reader_study: str, app: App, who: Owner) -> Response:
    """The answers to the study's own questions, one in each row."""
    rows: list[list[Any]] = [["annotator", "study", "phrase", "prompt", "model", "question", "text", "answer", "label"]]
    with app.store.reading() as session:
        row, items = _answered(session, reader_study, who)
        asked = {one["name"]: one for one in row.questions}
        for item in items:
            for answer in item.answers:
                for name, value in sorted(answer.answers.items()):
                    cells = [item.annotator, item.study, item.phrase, item.prompt, answer.code, name]
                    question = asked.get(name, {"text": "", "choices": None})
                    labels = {choice["value"]: choice["label"] for choice in question["choices"] or ()}
                    rows.append([*cells, question["text"], value, labels.get(value, "")])
    return _csv(rows)


@router.get("/results")
def results(reader_study: str, app: App, who: Owner) -> Any:
    """Means with intervals, comparisons, agreement, and correlations with the measures of ``--measures``."""
    return plain(_result(app, who, reader_study))


@router.get("/results.html", response_class=Response)
def results_page(reader_study: str, app: App, who: Owner) -> Response:
    """The same as a page."""
    html = render_html(make_page(_result(app, who, reader_study)))
    return Response(html, media_type="text/html", headers={"Content-Security-Policy": PAGE_CSP})


def _answered(session: Session, reader_study: str, who: Caller) -> tuple[ReaderStudy, list[Item]]:
    row = studies.find(session, reader_study, who)
    query = select(Item).where(Item.reader_study_id == row.id).options(selectinload(Item.answers))
    return row, list(session.scalars(query.order_by(Item.annotator, Item.place, Item.round)))


def _rows(app: Context, who: Caller, reader_study: str) -> list[dict[str, Any]]:
    """Return the answers as rows of the table; ``order`` counts an annotator's maps as they were shown."""
    rows, orders = [], dict[str, int]()
    with app.store.reading() as session:
        for item in _answered(session, reader_study, who)[1]:
            saved = {answer.code: answer for answer in item.answers}
            for code in item.codes:
                order = orders[item.annotator] = orders.get(item.annotator, -1) + 1
                if code in saved:
                    answer = saved[code]
                    row = {"version": VERSION, "annotator": item.annotator, "order": order, "study": item.study}
                    row |= {"phrase": item.phrase, "prompt": item.prompt, "model": code}
                    row |= {name: getattr(answer, name) for name in RATINGS}
                    rows.append(row | {"comment": " ".join(answer.comment.split()), "judged_at": answer.saved_at})
    return rows


def _result(app: Context, who: Caller, reader_study: str) -> dict[str, Any]:
    with app.store.reading() as session:
        row, items = _answered(session, reader_study, who)
        open_items = sum(len(item.codes) - len(item.answers) for item in items)
    rows = _rows(app, who, reader_study)
    if not rows:
        raise AppError(409, "no-change", "nothing is judged yet, so there is nothing to analyse")
    key = (reader_study, hash(repr(rows)))  # not the last time: answers may have waited elsewhere
    with _analysing:
        if key not in _analysed:
            judged = [Judgement(**{name: value for name, value in one.items() if name != "version"}) for one in rows]
            measures = read_measures(app.settings.measures) if app.settings.measures else None
            known = {one.key: one for phrases in app.library.instances.values() for one in phrases}
            found = analyse(
                judged, key=BlindingKey(row.codes), measures=measures, settings=BootstrapSettings(),
                instances=known if row.source == app.library.source.address else None,
            )  # fmt: skip
            about = {"note": NOT_A_MEDICAL_DEVICE, "version": __version__, "table": row.title, "table_version": VERSION}
            result = about | {"open": open_items, "left_out": 0, "problems": [], **found}
            _analysed.clear()
            _analysed[key] = result | {"summary": summary(result)}
        return _analysed[key]


def _csv(rows: list[list[Any]]) -> Response:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8")
