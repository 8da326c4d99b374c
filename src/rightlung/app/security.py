"""Checks before any route and headers after it: host names, cross-site requests, CSRF, sizes, a log without names.

A browser on another site can send requests to a service on loopback. They are refused by the ``Host`` header (DNS
rebinding), ``Sec-Fetch-Site`` and ``Origin`` (other sites), and a token that only pages of this origin can read.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rightlung.app.errors import AppError, bug
from rightlung.app.settings import BODY_BYTES, UPLOAD_BYTES, ServeSettings

log = logging.getLogger("rightlung.app")
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "font-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
UPLOADS = "/api/v1/uploads"
COOKIE = "rightlung_session"


class Guard:
    """ASGI middleware around the application. ``token_of`` gives the CSRF token of a session cookie."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, token_of: Callable[[str], str]) -> None:
        self.app, self.settings, self.token_of = app, settings, token_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/api"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, _Limited(receive, scope), send_safely)
        except Exception as error:  # whatever it says may name a patient, so it must not reach the server's own log
            refused = error if isinstance(error, AppError) else bug(error)
            if not status:
                await refused.response()(scope, receive, send_safely)
        finally:
            # The route, not the path: keys of studies may name patients.
            route = getattr(scope.get("route"), "path", "-")
            log.info("%s %s %d %.0f ms", scope["method"], route, status, 1e3 * (time.perf_counter() - started))

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if _without_port(host) not in self.settings.host_names:
            raise AppError(403, "bad-host", "this host name is not served here; --name adds one")
        if headers.get("sec-fetch-site", "none") in ("cross-site", "same-site") and scope["path"] != "/":
            raise AppError(403, "cross-site", "requests of other sites are refused")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > _most_bytes(scope):
            raise _too_large(scope)
        if scope["method"] in SAFE:
            return
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host:
            raise AppError(403, "cross-site", "requests of other sites are refused")
        expected = self.token_of(HTTPConnection(scope).cookies.get(COOKIE, ""))
        if not hmac.compare_digest(headers.get("x-csrf-token", "").encode(), expected.encode()):
            raise AppError(403, "csrf", "the header X-CSRF-Token is missing or old; GET /api/v1/session has the token")


class _Limited:
    """Receives a body up to its limit, also one that does not say how long it is."""

    def __init__(self, receive: Receive, scope: Scope) -> None:
        self.receive, self.scope, self.seen = receive, scope, 0

    async def __call__(self) -> Message:
        message = await self.receive()
        self.seen += len(message.get("body", b""))
        if self.seen > _most_bytes(self.scope):
            raise _too_large(self.scope)
        return message


def _most_bytes(scope: Scope) -> int:
    return UPLOAD_BYTES if scope["path"].rstrip("/") == UPLOADS else BODY_BYTES


def _too_large(scope: Scope) -> AppError:
    return AppError(413, "too-large", f"the request is larger than {_most_bytes(scope):,} bytes")


def _without_port(host: str) -> str:
    return host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
