"""What routes get: the application's parts, and who asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from rightlung.app.accounts import Accounts, Caller
from rightlung.app.errors import AppError
from rightlung.app.library import Library
from rightlung.app.models import Shelf
from rightlung.app.security import COOKIE
from rightlung.app.settings import ServeSettings
from rightlung.app.store import Store


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of the service."""

    settings: ServeSettings
    store: Store
    accounts: Accounts
    library: Library
    shelf: Shelf


def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


App = Annotated[Context, Depends(_context)]


def somebody(request: Request, app: App) -> Caller | None:
    """Return who asks, None if nobody is logged in."""
    return app.accounts.caller(request.cookies.get(COOKIE, ""), request.headers.get("x-annotator"))


def _caller(request: Request, app: App) -> Caller:
    caller = somebody(request, app)
    if caller is None:
        raise AppError(401, "not-logged-in", "log in first; the session may have expired")
    return caller


Who = Annotated[Caller, Depends(_caller)]


def _owner(who: Who) -> Caller:
    who.check_owner()
    return who


Owner = Annotated[Caller, Depends(_owner)]
