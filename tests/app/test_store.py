"""The store keeps what was called saved: through kill -9, locks, and migrations, on SQLite and PostgreSQL."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from rightlung.app.store import Store
from rightlung.app.store.engine import MIGRATIONS
from rightlung.app.store.tables import Answer, Base
from rightlung.core import InputError
from rightlung.core.errors import OutputError
from tests.app.conftest import SOURCE, Client, new_key
from tests.app.test_reader_studies import create, ratings


def test_the_migrations_make_the_tables_of_the_code(store_url: str) -> None:
    store = Store(store_url)
    Store(store_url).close()  # opening it again changes nothing
    with store.engine.begin() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        left = inspect(connection).get_table_names()
    assert left == ["alembic_version"]
    store.close()


def test_sqlite_is_durable(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}")
    with store.engine.connect() as connection:
        values = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
    assert values == ["wal", 2]  # 2 is FULL
    store.close()


def test_a_store_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database")
    with pytest.raises(OutputError, match="file is not a database"):
        Store(f"sqlite:///{tmp_path / 'text'}")
    with pytest.raises(OutputError, match="cannot be opened") as refused:
        Store("postgresql://me:secret@127.0.0.1:1/none")
    assert "secret" not in str(refused.value)
    for url in ("mysql://x", "sqlite://", "nonsense"):
        with pytest.raises(InputError, match="--store"):
            Store(url)


def test_a_locked_database_is_announced_and_the_answer_is_saved_later(client: Client, tmp_path: Path) -> None:
    study = create(client, annotators=["local"], per_annotator=1, overlap=0)
    at = f"{study}/items/{client.get(f'{study}/items').json()['next']}"
    client.post(f"{at}/prompt", json={"phrase": 0})
    body, lock = ratings(1, 2, 3), sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    refused = client.put(f"{at}/answers/A", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store-unavailable")
    assert refused.headers["Retry-After"] == "2"
    lock.execute("ROLLBACK")
    assert client.put(f"{at}/answers/A", json=body).json()["version"] == 1


def test_a_database_that_is_gone_is_announced(client: Client, tmp_path: Path) -> None:
    study = create(client, annotators=["local"], per_annotator=1, overlap=0)
    at = f"{study}/items/{client.get(f'{study}/items').json()['next']}"
    client.post(f"{at}/prompt", json={"phrase": 0})
    files = list(tmp_path.glob("store.sqlite*"))
    (tmp_path / "away").mkdir()
    for file in files:
        file.rename(tmp_path / "away" / file.name)
    body = ratings(1, 2, 3)
    assert client.put(f"{at}/answers/A", json=body).json()["error"]["code"] == "store-unavailable"
    assert "keep the answer" in client.put(f"{at}/answers/A", json=body).json()["error"]["message"]
    assert "answer and" not in client.get(f"{study}/items").json()["error"]["message"]
    assert client.get("/healthz").status_code == 503
    assert client.get("/api/v1/session").json()["store"] == "unavailable"
    assert client.get("/api/v1/models").status_code == 200
    for file in files:
        if (tmp_path / "away" / file.name).exists():
            (tmp_path / "away" / file.name).rename(file)
    assert client.put(f"{at}/answers/A", json=body).json()["version"] == 1
    assert client.get(at).json()["answers"]["A"]["recall"] == 1


def start(store: Path) -> tuple["subprocess.Popen[str]", str]:
    """Start the service as a process of its own; return it with its address."""
    options = [
        "--store",
        f"sqlite:///{store}",
        "--source",
        SOURCE,
        "--model",
        "starter",
        "--port",
        "0",
        "--threads",
        "1",
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "rightlung", "serve", *options], stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert server.stderr is not None
    for line in server.stderr:
        if "http://" in line:
            return server, line.split()[1]
    raise AssertionError("the service did not start")


def test_saved_answers_survive_kill_9(tmp_path: Path) -> None:
    server, address = start(tmp_path / "store.sqlite")
    saved: dict[tuple[str, str], int] = {}
    with httpx.Client(base_url=f"{address}/api/v1", timeout=60) as client:
        client.headers["X-CSRF-Token"] = client.get("/session").json()["csrf"]
        while client.get("/studies").json()["indexing"]:
            pass
        body = {"title": "T", "models": ["starter"], "annotators": ["local"], "per_annotator": 4, "overlap": 0}
        study = f"/reader-studies/{client.post('/reader-studies', json=body).json()['id']}"
        items = [one["id"] for one in client.get(f"{study}/items").json()["items"]]
        for item in items:
            client.post(f"{study}/items/{item}/prompt", json={"phrase": 0})
        killer = threading.Timer(0.4, server.send_signal, (signal.SIGKILL,))
        killer.start()
        number = 0
        try:
            while True:  # until the server is gone, in the middle of a save
                item = items[number % 4]
                value = ratings(1 + number % 5, 1, 1, version=saved.get((item, "version")), comment=str(number))
                answer = client.put(f"{study}/items/{item}/answers/A", json=value)
                assert answer.status_code == 200, answer.text
                saved[item, "version"], saved[item, "number"] = answer.json()["version"], number
                number += 1
        except httpx.TransportError:
            pass
    assert server.wait(20) == -signal.SIGKILL
    assert server.stderr is not None
    server.stderr.close()
    assert number > 4
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}")
    with store.reading() as session:
        for item in items:
            kept = session.get_one(Answer, (item, session.query(Answer.code).filter_by(item_id=item).scalar()))
            assert int(kept.comment) in (saved[item, "number"], number)  # the last one may be saved, but not answered
    store.close()


def test_the_same_save_from_many_threads_is_one_row(client: Client) -> None:
    key = client.get("/api/v1/studies").json()["studies"][0]["key"]
    body = {"study": key, "label": "nodule", "box": [0.1, 0.1, 0.2, 0.2], "key": new_key()}
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(client.post("/api/v1/annotations", json=body).json()["id"]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert len(set(answers)) == 1
