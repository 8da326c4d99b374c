"""The service in memory with small phantoms and the shipped models, and PostgreSQL where it is installed."""

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from rightlung.app.library import Library
from rightlung.app.models import Shelf
from rightlung.app.service import create_app
from rightlung.app.settings import ServeSettings

SOURCE = "phantom?count=4&seed=7&size=96"
POSTGRESQL = Path("/usr/lib/postgresql/15/bin")
ADDRESS = "http://127.0.0.1:8800"


class Client(TestClient):
    """A browser: it sends the CSRF token, and says who judges."""

    def start(self, name: str | None = None) -> "Client":
        if name is not None:
            self.headers["X-Annotator"] = name
        self.headers["X-CSRF-Token"] = self.get("/api/v1/session").json()["csrf"]
        return self

    def at(self, path: str) -> str:
        return f"/api/v1{path}"


def settings_for(folder: Path, **changes: Any) -> ServeSettings:
    chosen: dict[str, Any] = {"source": SOURCE, "store": f"sqlite:///{folder / 'store.sqlite'}", "threads": 1}
    return ServeSettings(**chosen | changes)


@pytest.fixture(scope="session")
def loaded() -> Iterator[dict[str, Any]]:
    """Models are loaded and studies rendered once for all tests; each application gets its own queue and store."""
    shelf, library = Shelf(("starter", "chex"), 8, 1), Library(SOURCE)
    library._read_index()
    yield {"shelf": shelf, "library": library}
    shelf.close()


@pytest.fixture
def serve(tmp_path: Path, loaded: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Client]]:
    """Return a function that starts the service with other settings and returns its first client."""
    clients: list[Client] = []

    def shelf(names: Any, waiting: int, threads: int) -> Shelf:
        made = Shelf((), waiting, threads)
        made.models = loaded["shelf"].models
        return made

    def library(address: str, files: Any) -> Library:
        made = Library(address, files)
        made.index, made.instances, made.indexing = loaded["library"].index, loaded["library"].instances, False
        made._open = loaded["library"]._open.copy()
        monkeypatch.setattr(made, "start", lambda: None)
        return made

    def start(**changes: Any) -> Client:
        monkeypatch.setattr("rightlung.app.service.Shelf", shelf)
        monkeypatch.setattr("rightlung.app.service.Library", library)
        client = Client(create_app(settings_for(tmp_path, **changes)), ADDRESS, raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return client.start()

    yield start
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(serve: Callable[..., Client]) -> Client:
    return serve()


def another(client: Client, name: str | None = None) -> Client:
    """Return another browser on the same service."""
    return Client(client.app, ADDRESS, raise_server_exceptions=False).start(name)


def new_key() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def key(client: Client) -> str:
    """The key of the first study."""
    return str(client.get("/api/v1/studies").json()["studies"][0]["key"])


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The address of a PostgreSQL server on a temporary folder, started as an unprivileged user."""
    if not (POSTGRESQL / "initdb").exists():
        pytest.skip("PostgreSQL 15 is not installed: apt-get install postgresql-15")
    folder = Path(tempfile.mkdtemp(prefix="rightlung-pg-"))
    who: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    if who:
        os.chown(folder, 65534, 65534)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **who}
    initdb = [str(POSTGRESQL / "initdb"), "-D", str(folder / "data"), "-U", "rightlung", "-A", "trust", "--no-sync"]
    subprocess.run([*initdb, "-E", "UTF8", "--no-locale"], check=True, **quiet)
    options = ["-k", str(folder), "-c", "listen_addresses=", "-c", "shared_buffers=16MB", "-c", "fsync=off"]
    server = subprocess.Popen([str(POSTGRESQL / "postgres"), "-D", str(folder / "data"), *options], **quiet)
    ready = [str(POSTGRESQL / "pg_isready"), "-h", str(folder), "-q", "-t", "1"]
    for _ in range(60):
        if subprocess.run(ready).returncode == 0:
            break
        try:
            server.wait(0.25)
        except subprocess.TimeoutExpired:
            continue
    yield f"postgresql://rightlung@/postgres?host={folder}"
    server.terminate()
    server.wait(20)
    shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.sqlite'}"
    import psycopg

    server, name = request.getfixturevalue("postgresql"), f"s{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return str(server).replace("/postgres?", f"/{name}?")
