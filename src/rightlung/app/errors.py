"""Errors of the service in one form: ``{"error": {"code", "message", "field"}}``, one sentence for people."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from rightlung.core.errors import InputError

log = logging.getLogger("rightlung.app")
STORE_GONE = "the store does not answer; keep the answer and try again"
STORE_UNREAD = "the store does not answer; try again in a moment"
FAULTS = {
    "missing": "is missing",
    "string_too_long": "is longer than {max_length:,} characters",
    "string_too_short": "is shorter than {min_length:,} characters",
    "too_long": "has more than {max_length:,} entries",
    "too_short": "has fewer than {min_length:,} entries",
    "greater_than_equal": "is less than {ge:,}",
    "less_than_equal": "is more than {le:,}",
    "extra_forbidden": "is no field of this request",
}
"""What people read for the types of pydantic's errors."""
FIELDS = {"per_annotator": "number of images for each reader", "overlap": "number of images that all readers judge"}


class AppError(Exception):
    """An answer with an error status; ``more`` goes next to the error, ``headers`` into the response."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        *,
        retry_after: int | None = None,
        **more: Any,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field, self.more = status, code, message, field, more
        self.retry_after = retry_after

    def response(self) -> JSONResponse:
        """Return the JSON response."""
        error = {"code": self.code, "message": self.message, "field": self.field}
        headers = None if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return JSONResponse({"error": error, **self.more}, self.status, headers)


def store_gone(method: str = "") -> AppError:
    """Return the error of a database that is locked or gone; who only reads has no answer to keep."""
    message = STORE_UNREAD if method == "GET" else STORE_GONE
    return AppError(503, "store-unavailable", message, retry_after=2)


def not_found(what: str, code: str = "not-found") -> AppError:
    """Return the error of something that is not there, or not for this user."""
    return AppError(404, code, f"there is no {what}")


def add_handlers(app: FastAPI) -> None:
    """Answer every known error in the common form; `rightlung.app.security` answers the others."""

    @app.exception_handler(AppError)
    def _known(request: Request, error: AppError) -> JSONResponse:
        if error.code == "store-unavailable":
            return store_gone(request.method).response()
        return error.response()

    @app.exception_handler(InputError)
    def _input(request: Request, error: InputError) -> JSONResponse:
        return AppError(422, "invalid", str(error)).response()

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return AppError(400, "bad-json", "the body of the request is not JSON").response()
        place = [part for part in first["loc"] if part not in ("body", "query", "path", "header")]
        return AppError(422, "invalid", fault(place, first), ".".join(map(str, place)) or None).response()

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> JSONResponse:
        codes = {404: "not-found", 405: "not-allowed", 400: "bad-json"}
        response = AppError(error.status_code, codes.get(error.status_code, "invalid"), str(error.detail)).response()
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(SQLAlchemyError)
    def _store(request: Request, error: SQLAlchemyError) -> JSONResponse:
        if isinstance(error, DBAPIError | PoolTimeout):
            log.error("store: %s", type(error).__name__)
            return store_gone(request.method).response()
        raise error


def fault(place: Sequence[str | int], error: Mapping[str, Any]) -> str:
    """Return a sentence for one of pydantic's errors.

    >>> fault(["phrases", 0], {"type": "string_too_long", "ctx": {"max_length": 1000}})
    'the phrase is longer than 1,000 characters'
    """
    names = [part for part in place if isinstance(part, str)]
    if error["type"] not in FAULTS or not names:
        path, message = ".".join(map(str, place)), error["msg"].removeprefix("Value error, ")
        return f"{path}: {message}" if path else str(message)
    name = FIELDS.get(names[-1], names[-1].replace("_", " "))
    if isinstance(place[-1], int):
        name = f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s")
    elif error["type"] in ("too_long", "too_short"):
        name = f"list of {name}"
    return f"the {name} {FAULTS[error['type']].format(**error.get('ctx', {}))}"


def bug(error: Exception) -> AppError:
    """Return the answer to an unknown error, and log where it happened."""
    log.error("bug: %s at %s", type(error).__name__, place_of(error))
    return AppError(500, "bug", "an error in the service; its log has the place")


def place_of(error: BaseException) -> str:
    """Return file and line of an error, without its message, which may hold what a patient's file said."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "rightlung" in frame.filename] or frames
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in own[-4:]) or "unknown place"
