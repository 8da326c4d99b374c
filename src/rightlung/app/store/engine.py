"""Open the store: one SQLite file with full durability by default, PostgreSQL by URL, both migrated by Alembic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.orm import Session, sessionmaker

from rightlung.app.errors import AppError, store_gone
from rightlung.core import InputError
from rightlung.core.errors import OutputError

T = TypeVar("T")
MIGRATIONS = Path(__file__).parent / "migrations"
PATIENCE = 3.0
"""Seconds to wait for a locked database or for a connection; then the answer is 503 and the page tries again."""
_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_LOCK = 0x7269676874


class Store:
    """Sessions of the database. A commit that returned is on the disk."""

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise InputError(
                "--store: expected sqlite:///FILE or postgresql://USER@HOST/DATABASE; got another form"
            ) from None
        driver = _DRIVERS.get(parsed.drivername, parsed.drivername)
        if driver not in ("sqlite", "postgresql+psycopg"):
            raise InputError(f"--store: expected sqlite:///FILE or postgresql://…; got {parsed.drivername}://…")
        self.url = parsed.set(drivername=driver)
        self.shown = self.url.render_as_string(hide_password=True)
        """The address without the password."""
        self.engine = _sqlite(self.url.database) if driver == "sqlite" else _postgresql(self.url)
        # Writers of SQLite queue here: its own waiting polls, which is unfair and slow.
        self._writing: Any = threading.Lock() if driver == "sqlite" else nullcontext()
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)
        self._migrate()
        self._file = _file_number(self.url.database) if driver == "sqlite" else None

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Return a session for reading."""
        self._check_file()
        with self._sessions() as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Return a session whose changes are committed at the end; an error undoes them."""
        self._check_file()
        with self._writing, self._sessions.begin() as session:
            if self.engine.dialect.name == "sqlite":
                session.connection(execution_options={"begin": "IMMEDIATE"})
            yield session

    def write(self, work: Callable[[Session], T]) -> T:
        """Do ``work`` in one transaction; if somebody else added the same row meanwhile, once more."""
        try:
            with self.writing() as session:
                return work(session)
        except IntegrityError:
            with self.writing() as session:
                return work(session)

    def answers(self) -> bool:
        """Whether the database answers."""
        try:
            with self.reading() as session:
                session.execute(text("SELECT count(*) FROM reader_studies"))
        except (DBAPIError, AppError):
            return False
        return True

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _check_file(self) -> None:
        """Notice a removed or replaced SQLite file: connections to the old one would save into nothing."""
        if self._file is None:
            return
        found = _file_number(self.url.database)
        if found == self._file:
            return
        self.engine.dispose()
        if found is None:
            raise store_gone()
        self._migrate()
        self._file = found

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        try:
            with self.engine.begin() as connection:
                if self.engine.dialect.name == "postgresql":  # two servers may start at once
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except DBAPIError as error:
            reason = str(error.orig).strip().splitlines()[0] if error.orig else type(error).__name__
            raise OutputError(f"the store {self.shown} cannot be opened: {reason}") from None


def _file_number(database: str | None) -> tuple[int, int] | None:
    try:
        found = Path(str(database)).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _sqlite(database: str | None) -> Engine:
    if not database or database == ":memory:":
        raise InputError("--store: sqlite:/// needs a file, such as sqlite:///answers.sqlite")
    try:
        Path(database).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not Path(database).exists():
            Path(database).touch(mode=0o600)
    except OSError as error:
        raise OutputError(f"{Path(database).parent}: {error.strerror or error}") from None
    engine = create_engine(
        f"sqlite:///{database}",
        connect_args={"timeout": PATIENCE, "check_same_thread": False},
        pool_size=16,
        max_overflow=64,
        pool_timeout=PATIENCE,
    )

    @event.listens_for(engine, "connect")
    def _durable(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin below, as a whole
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql(f"BEGIN {connection.get_execution_options().get('begin', 'DEFERRED')}")

    return engine


def _postgresql(url: Any) -> Engine:
    try:
        return create_engine(
            url, pool_size=16, max_overflow=16, pool_timeout=PATIENCE, pool_pre_ping=True,
            connect_args={"connect_timeout": int(PATIENCE), "options": "-c lock_timeout=3s -c statement_timeout=20s"},
        )  # fmt: skip
    except ModuleNotFoundError:
        raise InputError("--store: PostgreSQL needs the package psycopg: pip install 'psycopg[binary]'") from None
