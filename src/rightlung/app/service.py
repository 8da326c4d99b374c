"""The application: its parts, routes and static files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.responses import Response
from starlette.types import Scope

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.app import (
    annotation_routes,
    ask_routes,
    exports,
    reader_results,
    reader_routes,
    session_routes,
    study_routes,
)
from rightlung.app.accounts import Accounts
from rightlung.app.context import Context
from rightlung.app.errors import add_handlers
from rightlung.app.library import Library
from rightlung.app.models import Shelf
from rightlung.app.security import Guard
from rightlung.app.settings import ServeSettings
from rightlung.app.store import Store
from rightlung.core import InputError

STATIC = Path(__file__).parent / "static"
THREADS = 80
"""Requests in work at once: more than wait for models, so that saving never waits for them."""


class _Static(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def create_app(settings: ServeSettings) -> FastAPI:
    """Return the application; opening store, source and models may raise an `InputError` that says what is wrong."""
    store = Store(settings.store_url)
    accounts = Accounts(store, settings.login_required)
    if settings.login_required and not any(user["role"] == "owner" for user in accounts.listed()):
        where = "--accounts" if settings.accounts else f"--host {settings.host}"
        option = f" --store {store.shown}" if settings.store else ""
        raise InputError(
            f"{where} needs accounts, and the store {store.shown} has no owner: add one with "
            f"'rightlung serve users add NAME --role owner{option}'"
        )
    shelf = Shelf(settings.models, settings.waiting, settings.threads)
    context = Context(settings, store, accounts, Library(settings.source, settings.images), shelf)

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        context.library.start()
        yield
        context.library.close()
        context.shelf.close()
        context.store.close()

    app = FastAPI(
        title="rightlung", version=__version__, lifespan=running, docs_url=None, redoc_url=None,
        openapi_url="/api/v1/openapi.json", description=f"The API of the reading room. {NOT_A_MEDICAL_DEVICE}",
    )  # fmt: skip
    app.state.context = context
    add_handlers(app)
    for routes in (
        session_routes, study_routes, ask_routes, annotation_routes, reader_routes, reader_results, exports
    ):  # fmt: skip
        app.include_router(routes.router)
    _add_pages(app, context)
    app.add_middleware(Guard, settings=settings, token_of=accounts.csrf)
    return app


def _add_pages(app: FastAPI, context: Context) -> None:
    @app.get("/", include_in_schema=False)
    def index(request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/healthz", tags=["health"])
    def health() -> JSONResponse:
        """Whether the service and its store answer."""
        well = context.store.answers()
        content: dict[str, Any] = {"status": "ok", "store": "ok" if well else "unavailable"}
        return JSONResponse(content, 200 if well else 503)

    app.mount("/static", _Static(directory=STATIC), name="static")
