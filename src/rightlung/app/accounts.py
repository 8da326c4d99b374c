"""Who asks: accounts with argon2 hashes, sessions by cookie, login limits. Without accounts, everyone is local."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError
from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError

from rightlung.app.errors import AppError, not_found
from rightlung.app.settings import SESSION_HOURS
from rightlung.app.store import Store
from rightlung.app.store.tables import NAME, LoginSession, User
from rightlung.core import InputError

ROLES = ("annotator", "owner")
FAILURES, FORGOTTEN_AFTER = 5, 300.0
"""Failed logins of a name or an address until further ones must wait, and seconds until they are forgotten."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A person who uses the service."""

    name: str
    role: str


@dataclass
class Accounts:
    """Accounts and sessions of a store."""

    store: Store
    required: bool
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _failures: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _hasher: PasswordHasher = field(default_factory=PasswordHasher)
    _hashing: threading.Lock = field(default_factory=threading.Lock)  # each hash takes 64 MiB

    def csrf(self, cookie: str) -> str:
        """Return the CSRF token of a session's cookie, or of nobody's."""
        return hmac.new(self._secret, b"csrf " + cookie.encode(), hashlib.sha256).hexdigest()

    def caller(self, cookie: str, annotator: str | None) -> Caller | None:
        """Return who asks, None if nobody is logged in. Without accounts, ``annotator`` is the name."""
        if not self.required:
            name = unquote(annotator or "local").strip()
            if not name or len(name) > NAME or not name.isprintable():
                raise AppError(422, "invalid", f"X-Annotator: expected a name of 1 to {NAME} printable characters")
            return Caller(name, "owner")
        if not cookie:
            return None
        with self.store.reading() as session:
            row = session.execute(
                select(User.name, User.role)
                .join(LoginSession, LoginSession.user_name == User.name)
                .where(LoginSession.token_hash == _digest(cookie), LoginSession.expires >= _in_hours(0))
            ).first()
        return None if row is None else Caller(row.name, row.role)

    def login(self, name: str, password: str, address: str) -> str:
        """Return the cookie of a new session; wrong names and passwords look the same and are limited."""
        keys = [f"name {name}", f"address {address}"]
        with self.store.reading() as session:
            user = session.get(User, name)
        with self._hashing:  # the limit, too: many guesses at once must not pass it together
            self._check_limit(keys)
            try:
                self._hasher.verify(_NOBODY if user is None else user.password_hash, password)
                right = user is not None
            except (VerifyMismatchError, InvalidHashError):
                right = False
            if not right:
                for key in keys:
                    self._failures[key].append(time.monotonic())
                raise AppError(401, "not-logged-in", "the name or the password is wrong")
            self._failures.pop(keys[0], None)
        cookie = secrets.token_urlsafe(32)
        with self.store.writing() as session:
            session.execute(delete(LoginSession).where(LoginSession.expires < _in_hours(0)))
            session.add(LoginSession(token_hash=_digest(cookie), user_name=name, expires=_in_hours(SESSION_HOURS)))
        return cookie

    def _check_limit(self, keys: list[str]) -> None:
        if len(self._failures) > 10_000:
            self._failures.clear()
        for key in keys:
            recent = [at for at in self._failures.get(key, []) if at > time.monotonic() - FORGOTTEN_AFTER]
            most = FAILURES if key.startswith("name") else 10 * FAILURES
            if len(recent) >= most:
                wait = int(recent[-most] + FORGOTTEN_AFTER - time.monotonic()) + 1
                raise AppError(
                    429, "too-many-logins", f"too many failed logins; try again in {wait} seconds", retry_after=wait
                )

    def logout(self, cookie: str) -> None:
        """End a session."""
        with self.store.writing() as session:
            session.execute(delete(LoginSession).where(LoginSession.token_hash == _digest(cookie)))

    def add(self, name: str, password: str, role: str) -> None:
        """Add an account."""
        name = name.strip()
        if not name or len(name) > NAME or not name.isprintable():
            raise InputError(f"a user's name must have 1 to {NAME} printable characters")
        if role not in ROLES:
            raise InputError(f"the role must be {' or '.join(ROLES)}; got {role!r}")
        if len(password) < 10:
            raise InputError("the password must have at least 10 characters")
        user = User(name=name, password_hash=self._hasher.hash(password), role=role)
        try:
            with self.store.writing() as session:
                session.add(user)
        except IntegrityError:
            raise InputError(f"there is a user {name!r} already") from None

    def remove(self, name: str) -> None:
        """Remove an account and its sessions; its answers stay. The last owner cannot be removed."""
        with self.store.writing() as session:
            user = session.get(User, name)
            if user is None:
                raise not_found(f"user {name!r}")
            owners = session.scalar(select(func.count()).select_from(User).where(User.role == "owner")) or 0
            if user.role == "owner" and owners == 1:
                raise AppError(409, "conflict", "the last owner cannot be removed")
            session.execute(delete(LoginSession).where(LoginSession.user_name == name))
            session.delete(user)

    def listed(self) -> list[dict[str, str]]:
        """Return all accounts, without hashes."""
        with self.store.reading() as session:
            users = session.scalars(select(User).order_by(User.name)).all()
        return [{"name": user.name, "role": user.role, "created": user.created} for user in users]


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()


def _in_hours(hours: float) -> str:
    return (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="seconds")


_NOBODY = PasswordHasher().hash(secrets.token_hex(16))
"""Verified for unknown names, so that they take as long as known ones."""
