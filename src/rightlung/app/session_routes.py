"""Routes of people: session, login, accounts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.app.accounts import Caller
from rightlung.app.context import App, Context, Owner, somebody
from rightlung.app.errors import AppError
from rightlung.app.requests import LoginRequest, UserRequest
from rightlung.app.security import COOKIE
from rightlung.app.settings import MODELS, PHRASE_CHARACTERS, PHRASES, SESSION_HOURS, UPLOAD_BYTES

router = APIRouter(prefix="/api/v1", tags=["people"])


@router.get("/session")
def session(request: Request, app: App) -> dict[str, Any]:
    """Who is logged in, the CSRF token, and the limits."""
    return _session(app, somebody(request, app), request.cookies.get(COOKIE, ""))


@router.post("/session/login")
def login(request: Request, given: LoginRequest, response: Response, app: App) -> dict[str, Any]:
    """Log in. Five wrong passwords of a name must wait."""
    if not app.accounts.required:
        raise AppError(409, "conflict", "no login is needed here")
    cookie = app.accounts.login(given.name, given.password, request.client.host if request.client else "unknown")
    response.set_cookie(
        COOKIE, cookie, max_age=SESSION_HOURS * 3600, httponly=True, samesite="strict", secure=app.settings.secure
    )
    return _session(app, app.accounts.caller(cookie, None), cookie)


@router.post("/session/logout", status_code=204)
def logout(request: Request, response: Response, app: App) -> None:
    """Log out."""
    if app.accounts.required:
        app.accounts.logout(request.cookies.get(COOKIE, ""))
        response.delete_cookie(COOKIE)


@router.get("/users")
def users(app: App, who: Owner) -> dict[str, Any]:
    """All accounts."""
    return {"users": app.accounts.listed()}


@router.post("/users", status_code=201)
def add_user(request: UserRequest, app: App, who: Owner) -> dict[str, Any]:
    """Add an account."""
    app.accounts.add(request.name, request.password, request.role)
    return {"name": request.name.strip(), "role": request.role}


@router.delete("/users/{name}", status_code=204)
def remove_user(name: str, app: App, who: Owner) -> None:
    """Remove an account; its answers stay."""
    if not name.isprintable():
        raise AppError(404, "not-found", "there is no user with this name")
    app.accounts.remove(name)


def _session(app: Context, user: Caller | None, cookie: str) -> dict[str, Any]:
    return {
        "version": __version__,
        "login_required": app.accounts.required,
        "user": None if user is None else {"name": user.name, "role": user.role},
        "csrf": app.accounts.csrf(cookie),
        "note": NOT_A_MEDICAL_DEVICE,
        "store": "ok" if app.store.answers() else "unavailable",
        "limits": {
            "upload_bytes": UPLOAD_BYTES,
            "phrase_characters": PHRASE_CHARACTERS,
            "phrases": PHRASES,
            "models": MODELS,
        },
        "defaults": {"model": next(iter(app.shelf.models), None)},
    }
