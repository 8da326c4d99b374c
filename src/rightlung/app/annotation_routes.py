"""Boxes and masks that people draw as new truth: saved once, changed only from the version that was seen."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from rightlung.app.accounts import Caller
from rightlung.app.context import App, Context, Who, find
from rightlung.app.errors import AppError, not_found
from rightlung.app.requests import AnnotationChange, AnnotationRequest, Version
from rightlung.app.store.tables import Annotation, is_id, now

router = APIRouter(prefix="/api/v1/annotations", tags=["annotations"])


@router.get("")
def drawn(app: App, who: Who, study: Annotated[str, Query(max_length=1_000)]) -> dict[str, Any]:
    """The annotations of a study: one's own; an owner sees everyone's."""
    return {"annotations": annotations_of(app, who, find(app, study, who.name).key)}


@router.post("", status_code=201)
def add(request: AnnotationRequest, response: Response, app: App, who: Who) -> dict[str, Any]:
    """Save a box or a mask. The same ``key`` again returns what is saved, with 200."""
    entry = find(app, request.study, who.name)
    if entry.kind in ("upload", "file"):
        raise AppError(409, "conflict", "this image is in memory only; keep it first, then draw")
    source = app.library.source.address if entry.kind == "source" else entry.kind

    def save(session: Session) -> tuple[Annotation, bool]:
        query = select(Annotation).where(Annotation.author == who.name, Annotation.save_key == request.key)
        known = session.scalars(query).first()
        if known is not None:
            return known, True
        row = Annotation(
            source=source,
            study=entry.study.id,
            study_key=entry.key,
            author=who.name,
            save_key=request.key,
            **request.values(),
        )
        session.add(row)
        return row, False

    row, known = app.store.write(save)
    if known:
        response.status_code = 200
    return annotation_json(row)


@router.put("/{annotation}")
def change(annotation: str, request: AnnotationChange, app: App, who: Who) -> dict[str, Any]:
    """Change an annotation, unless somebody changed it since."""
    with app.store.writing() as session:
        row = _mine(session, annotation, who, request.version)
        for name, value in request.values().items():
            setattr(row, name, value)
        row.version, row.updated = row.version + 1, now()
    return annotation_json(row)


@router.delete("/{annotation}", status_code=204)
def remove(annotation: str, version: Version, app: App, who: Who) -> None:
    """Delete an annotation, unless somebody changed it since."""
    with app.store.writing() as session:
        session.delete(_mine(session, annotation, who, version))


def annotations_of(app: Context, who: Caller, key: str) -> list[dict[str, Any]]:
    """Return the annotations of a study that a person may see."""
    query = served(app).where(Annotation.study_key == key).order_by(Annotation.created, Annotation.id)
    with app.store.reading() as session:
        rows = session.scalars(query).all()
    return [annotation_json(row) for row in rows if who.role == "owner" or row.author == who.name]


def served(app: Context) -> Select[Annotation]:
    """Return the query for annotations of what is served now; another source may have a study of the same name."""
    return select(Annotation).where(Annotation.source.in_((app.library.source.address, "kept")))


def annotation_json(row: Annotation) -> dict[str, Any]:
    """Return an annotation as JSON values."""
    names = ("id", "label", "text", "box", "mask", "author", "created", "updated", "version")
    return {"study": row.study_key, **{name: getattr(row, name) for name in names}}


def _mine(session: Session, annotation: str, who: Caller, version: int) -> Annotation:
    row = session.get(Annotation, annotation, with_for_update=True) if is_id(annotation) else None
    if row is None or (row.author != who.name and who.role != "owner"):
        raise not_found("annotation of yours with this id")
    if row.version != version:
        message = "somebody changed this annotation since you opened it"
        raise AppError(409, "conflict", message, current=annotation_json(row))
    return row
