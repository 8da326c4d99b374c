"""What annotators drew, as COCO and as a manifest that ``rightlung`` and others can train on."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from rightlung.app.accounts import Caller
from rightlung.app.annotation_routes import served
from rightlung.app.context import App, Context, Owner, find
from rightlung.app.errors import AppError
from rightlung.app.pixels import as_deep_png, mask_png
from rightlung.app.store.tables import Annotation
from rightlung.app.views import mask_of
from rightlung.core import Box, Study
from rightlung.lexicon import prompt

router = APIRouter(prefix="/api/v1/exports", tags=["annotations"])
Author = Annotated[str, Query(max_length=80)]


@router.get("/coco.json")
def coco(app: App, who: Owner, author: Author = "") -> dict[str, Any]:
    """All annotations in COCO's format: boxes in pixels, masks as compressed run lengths."""
    images, rows, categories = [], list[dict[str, Any]](), dict[str, int]()
    for number, (study, drawn) in enumerate(_drawn(app, who, author), 1):
        height, width = study.image.shape
        images.append({"id": number, "file_name": f"{number}.png", "width": width, "height": height, "study": study.id})
        for one in drawn:
            mask = None if one.mask is None else mask_of(one.mask).resized((height, width))
            box = Box(*one.box) if one.box is not None else None if mask is None else mask.box()
            if box is None:
                continue
            x0, y0, x1, y1 = box.to_pixels((height, width))
            rows.append({
                "id": len(rows) + 1, "image_id": number, "iscrowd": 0,
                "category_id": categories.setdefault(one.label, len(categories) + 1),
                "bbox": [x0, y0, x1 - x0, y1 - y0],
                "area": (x1 - x0) * (y1 - y0) if mask is None else int(mask.pixels.sum()),
                "segmentation": [] if mask is None else mask.to_rle(),
                "author": one.author, "text": one.text,
            })  # fmt: skip
    listed = [{"id": number, "name": name} for name, number in categories.items()]
    return {"images": images, "annotations": rows, "categories": listed}


@router.get("/manifest.tar", response_class=Response)
def manifest(app: App, who: Owner, author: Author = "") -> Response:
    """All annotations as a manifest, with images (16-bit PNG) and masks; open it as ``manifest:FILE``."""
    file, lines = io.BytesIO(), []
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number, (study, drawn) in enumerate(_drawn(app, who, author), 1):
            row: dict[str, Any] = {"id": study.id, "file": f"images/{number}.png", "phrases": []}
            row |= {name: getattr(study, name) for name in ("patient", "view", "sex") if getattr(study, name)}
            _put(archive, row["file"], as_deep_png(study.image))
            readers: dict[str, dict[str, list[Any]]] = {}
            for place, one in enumerate(drawn):
                phrase: dict[str, Any] = {"text": one.text or prompt(one.label), "findings": {one.label: "positive"}}
                if one.box is not None:
                    phrase["boxes"] = [one.box]
                if one.mask is not None:
                    phrase["mask"] = f"masks/{number}-{place}.png"
                    _put(archive, phrase["mask"], mask_png(mask_of(one.mask).resized(study.image.shape)))
                row["phrases"].append(phrase)
                box = Box(*one.box) if one.box is not None else None if one.mask is None else mask_of(one.mask).box()
                shape = {"label": one.label, "phrase": place, "box": None if box is None else box.as_tuple()}
                readers.setdefault(one.author, {"boxes": []})["boxes"].append(shape)
            row["readers"] = readers
            lines.append(json.dumps(row, ensure_ascii=False))
        _put(archive, "manifest.jsonl", "".join(f"{line}\n" for line in lines).encode())
    if not lines:
        raise AppError(409, "no-change", "nothing is drawn yet, so there is nothing to export")
    return Response(file.getvalue(), media_type="application/x-tar")


def _drawn(app: Context, who: Caller, author: str) -> Iterator[tuple[Study, list[Annotation]]]:
    """Yield the annotated studies that are served now, with what was drawn."""
    query = served(app).order_by(Annotation.study_key, Annotation.created, Annotation.id)
    with app.store.reading() as session:
        rows = [row for row in session.scalars(query) if author in ("", row.author)]
    for key, drawn in groupby(rows, lambda row: row.study_key):
        with suppress(AppError):  # a kept image of somebody else, or deleted
            yield find(app, key, who.name).study, list(drawn)


def _put(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
