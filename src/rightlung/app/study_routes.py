"""Routes to look: session and models, studies, images, uploads."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import func, select
from starlette.concurrency import run_in_threadpool

from rightlung.app.annotation_routes import annotations_of
from rightlung.app.context import App, Who, find
from rightlung.app.errors import AppError, not_found
from rightlung.app.library import Entry
from rightlung.app.perturbing import PARAMETERS, changed_image
from rightlung.app.pixels import as_deep_png, as_png, as_words
from rightlung.app.settings import KEPT_IMAGES
from rightlung.app.store.tables import KeptImage, new_id
from rightlung.app.views import row_of, study_json
from rightlung.core import Image, InputError

router = APIRouter(prefix="/api/v1", tags=["look"])
Page = Annotated[int, Query(ge=0, le=10_000_000)]


@router.get("/models")
def models(app: App, who: Who) -> dict[str, Any]:
    """The models that can be asked."""
    return {"models": [model.as_json() for model in app.shelf.models.values()]}


@router.get("/studies")
def studies(
    app: App,
    who: Who,
    q: Annotated[str, Query(max_length=200)] = "",
    finding: Annotated[str, Query(max_length=200)] = "",
    polarity: Literal["", "positive", "negative", "uncertain"] = "",
    sex: Annotated[str, Query(max_length=20)] = "",
    view: Annotated[str, Query(max_length=20)] = "",
    uploads: bool = True,
    offset: Page = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> dict[str, Any]:
    """The list of studies, one's own images first; ``q`` searches id, report and findings."""
    own = [row_of(entry) for entry in _own(app, who.name)] if uploads else []
    rows = [*own, *list(app.library.index.values())]
    names = sorted({name for row in rows for name in row["findings"]})
    words = q.casefold().split()

    def wanted(row: dict[str, Any]) -> bool:
        if finding and row["findings"].get(finding) not in ([polarity] if polarity else ["positive", "uncertain"]):
            return False
        if (sex and row["sex"] != sex) or (view and row["view"] != view):
            return False
        text = " ".join([row["title"], row["id"], row["report"], *row["findings"]]).casefold() if words else ""
        return all(word in text for word in words)

    found = [row for row in rows if wanted(row)]
    if q and not found and app.library.truncated:
        with contextlib.suppress(AppError):  # a study that is not in the list opens by its id
            found = [row_of(app.library.by_id(q.strip()))]
    return {
        "total": len(found),
        "offset": offset,
        "limit": limit,
        "truncated": app.library.truncated,
        "indexing": app.library.indexing,
        "studies": found[offset : offset + limit],
        "findings": names,
    }


@router.get("/studies/{key}")
def study(key: str, app: App, who: Who) -> dict[str, Any]:
    """Everything that is known about a study."""
    entry = find(app, key, who.name)
    return study_json(entry, annotations_of(app, who, entry.key))


@router.get("/studies/{key}/image.png", response_class=Response)
def image(
    request: Request, key: str, app: App, who: Who, side: Annotated[int | None, Query(ge=16, le=8_192)] = None
) -> Response:
    """The image as 8-bit PNG, or a changed one (``twin`` and ``finding``, ``cover=x,y``, ``target``, ``noise``)."""
    return _cached(request, as_png(_shown(request, find(app, key, who.name)), side), "image/png")


@router.get("/studies/{key}/pixels", response_class=Response)
def pixels(request: Request, key: str, app: App, who: Who) -> Response:
    """The true pixels as little-endian uint16, row by row; X-Width and X-Height give the size."""
    found = _shown(request, find(app, key, who.name))
    response = _cached(request, as_words(found), "application/octet-stream")
    response.headers["X-Height"], response.headers["X-Width"] = (str(side) for side in found.shape)
    return response


@router.post("/uploads", status_code=201)
async def upload(request: Request, app: App, who: Who) -> dict[str, Any]:
    """Open the image whose bytes are the body; it stays in memory."""
    data = await request.body()
    name = "".join(one for one in unquote(request.headers.get("x-file-name", "")) if one.isprintable())[:120]
    try:
        entry = await run_in_threadpool(app.library.upload, data, name or "image", who.name)
    except InputError as error:
        raise AppError(415, "not-an-image", str(error)) from None
    return await run_in_threadpool(study_json, entry, [])


@router.post("/uploads/{key}/keep")
def keep(key: str, app: App, who: Who) -> dict[str, Any]:
    """Store the pixels of an upload, without its header and name."""
    entry = app.library.get(key, who.name)
    if entry.kind != "upload":
        raise not_found("upload of yours with this key", "unknown-study")
    kept = KeptImage(id=new_id(), owner=who.name, png=as_deep_png(entry.study.image))
    with app.store.writing() as session:
        count = select(func.count()).select_from(KeptImage).where(KeptImage.owner == who.name)
        if (session.scalar(count) or 0) >= KEPT_IMAGES:
            raise AppError(409, "conflict", f"{KEPT_IMAGES} images of yours are kept already; delete one first")
        session.add(kept)
    app.library.forget(key, who.name)
    app.shelf.forget(entry)
    return study_json(find(app, f"k.{kept.id}", who.name), [])


@router.delete("/uploads/{key}", status_code=204)
def forget(key: str, app: App, who: Who) -> None:
    """Forget an upload, or delete a kept image."""
    entry = find(app, key, who.name)
    if entry.kind == "kept":
        with app.store.writing() as session:
            session.delete(session.get_one(KeptImage, key[2:]))
    app.library.forget(key, who.name)
    app.shelf.forget(entry)


def _own(app: App, user: str) -> list[Entry]:
    with app.store.reading() as session:
        kept = session.scalars(select(KeptImage.id).where(KeptImage.owner == user).order_by(KeptImage.created)).all()
    for name in kept:
        find(app, f"k.{name}", user)
    return list(app.library.own(user))


def _shown(request: Request, entry: Entry) -> Image:
    return changed_image(entry.study, tuple(one for one in request.query_params.items() if one[0] in PARAMETERS))


def _cached(request: Request, content: bytes, media_type: str) -> Response:
    """Return content that a browser may keep, or 304 if it has it."""
    tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "private, max-age=3600"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)
