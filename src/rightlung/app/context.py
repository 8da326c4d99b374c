"""What routes get: the application's parts, and who asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from rightlung.app.accounts import Accounts, Caller
from rightlung.app.errors import AppError
from rightlung.app.library import Entry, Library
from rightlung.app.models import Shelf
from rightlung.app.security import COOKIE
from rightlung.app.settings import ServeSettings
from rightlung.app.store import Store
from rightlung.app.store.tables import KeptImage, is_id


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
    if who.role != "owner":
        raise AppError(403, "forbidden", "only an owner may do this")
    return who


Owner = Annotated[Caller, Depends(_owner)]


def find(app: Context, key: str, user: str) -> Entry:
    """Return the study of a key, also one that is kept in the store."""
    try:
        return app.library.get(key, user)
    except AppError:
        with app.store.reading() as session:
            kept = session.get(KeptImage, key[2:]) if key.startswith("k.") and is_id(key[2:]) else None
        if kept is None or kept.owner != user:
            raise
    title = f"kept on {kept.created[:10]} {kept.created[11:16]}"
    return app.library.add(key, "kept", kept.png, title, kept.owner)
