"""Who may do what: logins, roles, other sites, headers, and a log without names."""

import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rightlung.app.accounts import FAILURES, Accounts
from rightlung.app.service import create_app
from rightlung.app.settings import UPLOAD_BYTES
from rightlung.app.store import Store
from rightlung.app.store.tables import LoginSession, User
from rightlung.core import InputError
from tests.app.conftest import Client, another, settings_for

PASSWORD = "correct horse battery"


@pytest.fixture
def guarded(tmp_path: Path, serve: Callable[..., Client]) -> Client:
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}")
    for name, role in (("olga", "owner"), ("anna", "annotator")):
        Accounts(store, True).add(name, PASSWORD, role)
    store.close()
    return serve(host="0.0.0.0")


def log_in(client: Client, name: str, password: str = PASSWORD) -> Client:
    response = client.post("/api/v1/session/login", json={"name": name, "password": password})
    assert response.status_code == 200, response.json()
    assert response.json()["user"]["name"] == name
    return client.start()


def test_any_other_host_refuses_to_start_without_an_owner(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rightlung serve users add NAME --role owner"):
        create_app(settings_for(tmp_path, host="0.0.0.0"))


def test_nothing_is_shown_without_login(guarded: Client) -> None:
    assert guarded.get("/api/v1/session").json()["user"] is None
    for path in ("/models", "/studies", "/reader-studies", "/exports/coco.json", "/users", "/studies/s.YQ/image.png"):
        assert guarded.get(f"/api/v1{path}").json()["error"]["code"] == "not-logged-in", path
    log_in(guarded, "anna")
    assert guarded.get("/api/v1/studies").status_code == 200


def test_passwords_are_argon2_hashes_and_cookies_are_not_stored(guarded: Client, tmp_path: Path) -> None:
    log_in(guarded, "anna")
    cookie = guarded.cookies["rightlung_session"]
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}")
    with store.reading() as session:
        assert session.get_one(User, "anna").password_hash.startswith("$argon2id$")
        assert session.query(LoginSession).one().token_hash != cookie
    assert PASSWORD.encode() not in (tmp_path / "store.sqlite").read_bytes()
    store.close()


def test_the_cookie_is_kept_from_scripts_and_other_sites(guarded: Client) -> None:
    sent = guarded.post("/api/v1/session/login", json={"name": "anna", "password": PASSWORD}).headers["set-cookie"]
    assert "httponly" in sent.lower()
    assert "samesite=strict" in sent.lower()


def test_guessing_passwords_is_slowed_down(guarded: Client) -> None:
    for _ in range(FAILURES):
        wrong = guarded.post("/api/v1/session/login", json={"name": "anna", "password": "wrong password"})
        assert wrong.status_code == 401
    refused = guarded.post("/api/v1/session/login", json={"name": "anna", "password": PASSWORD})
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 301
    log_in(guarded, "olga")


def test_many_guesses_at_once_do_not_pass_the_limit_together(guarded: Client) -> None:
    def guess(number: int) -> int:
        body = {"name": "anna", "password": f"wrong password {number}"}
        return guarded.post("/api/v1/session/login", json=body).status_code

    with ThreadPoolExecutor(12) as pool:
        assert sorted(pool.map(guess, range(12))) == [401] * FAILURES + [429] * (12 - FAILURES)


def test_annotators_may_not_do_what_owners_may(guarded: Client) -> None:
    log_in(guarded, "anna")
    body = {"title": "T", "models": ["starter"], "annotators": ["anna"]}
    assert guarded.post("/api/v1/reader-studies", json=body).json()["error"]["code"] == "forbidden"
    for path in ("/users", "/exports/coco.json", "/exports/manifest.tar"):
        assert guarded.get(f"/api/v1{path}").status_code == 403
    owner = log_in(another(guarded), "olga")
    added = {"name": "ben", "password": PASSWORD, "role": "annotator"}
    assert owner.post("/api/v1/users", json=added).status_code == 201
    assert owner.post("/api/v1/users", json=added).status_code == 422
    assert [one["name"] for one in owner.get("/api/v1/users").json()["users"]] == ["anna", "ben", "olga"]
    assert owner.delete("/api/v1/users/olga").json()["error"]["code"] == "conflict"


def test_a_session_ends_by_logout_time_and_removal(guarded: Client, tmp_path: Path) -> None:
    anna, olga = log_in(another(guarded), "anna"), log_in(another(guarded), "olga")
    assert olga.delete("/api/v1/users/anna").status_code == 204
    assert anna.get("/api/v1/models").json()["error"]["code"] == "not-logged-in"
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}")
    with store.writing() as session:
        session.query(LoginSession).update({"expires": "2020-01-01T00:00:00+00:00"})
    assert olga.get("/api/v1/models").status_code == 401
    again = log_in(another(guarded), "olga")
    assert again.post("/api/v1/session/logout").status_code == 204
    assert again.get("/api/v1/models").status_code == 401
    store.close()


def test_a_change_needs_the_token_of_this_session(client: Client, guarded: Client) -> None:
    for app in (client, guarded):
        for token in (None, b"", b"0" * 64, "ä".encode()):
            headers = {} if token is None else {b"X-CSRF-Token": token}
            bare = Client(app.app, str(app.base_url))
            refused = bare.post("/api/v1/ground", json={}, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "csrf")
    anonymous = another(guarded).headers["X-CSRF-Token"]
    assert log_in(guarded, "anna").headers["X-CSRF-Token"] != anonymous


@pytest.mark.parametrize(("headers", "code"), [
    ({"Host": "attacker.example"}, "bad-host"), ({"Host": "127.0.0.1.attacker.example:8800"}, "bad-host"),
    ({"Sec-Fetch-Site": "cross-site"}, "cross-site"), ({"Sec-Fetch-Site": "same-site"}, "cross-site"),
    ({"Origin": "https://attacker.example"}, "cross-site"), ({"Origin": "null"}, "cross-site"),
])  # fmt: skip
def test_other_sites_cannot_use_a_local_service(client: Client, headers: dict[str, str], code: str) -> None:
    body = {"study": "s.YQ", "phrases": ["x"], "models": ["starter"]}
    refused = client.post("/api/v1/ground", json=body, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, code)
    if "Origin" not in headers:
        assert client.get("/api/v1/session", headers=headers).status_code == 403
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("path", ["/", "/api/v1/session", "/api/v1/nothing", "/static/nothing.js", "/static/style.css"])
def test_every_answer_has_the_security_headers(client: Client, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_file_names_are_never_paths(client: Client) -> None:
    for path in (
        "/static/../settings.py",
        "/static/%2e%2e/settings.py",
        "/static/..%2fsettings.py",
        "/static//etc/passwd",
    ):
        assert client.get(path).status_code == 404


def test_two_gigabytes_are_refused_before_they_are_read(client: Client) -> None:
    refused = client.post("/api/v1/uploads", content=iter([]), headers={"Content-Length": str(2 << 30)})
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "too-large")
    chunks = (b"\0" * (1 << 20) for _ in range(UPLOAD_BYTES // (1 << 20) + 1))  # says nothing of its size
    assert client.post("/api/v1/uploads", content=chunks).status_code == 413
    assert client.post("/api/v1/ground", content=b" " * (5 << 20)).status_code == 413


def test_the_log_names_routes_and_no_studies(client: Client, key: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client.get(f"/api/v1/studies/{key}")
    client.get("/api/v1/studies", params={"q": "Mrs Example"})
    client.post("/api/v1/uploads", content=b"no image", headers={"X-File-Name": "Example%20Anna.dcm"})
    client.get("/api/v1/studies/s.TXJz/Mrs-Example")
    own = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("rightlung"))
    assert re.search(r"GET /api/v1/studies/\{key\} 200 \d+ ms", own)
    assert "Example" not in own
    assert key not in own


def test_an_error_of_the_service_is_a_sentence_and_its_message_stays_out_of_the_log(
    client: Client, key: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("Mrs Example")

    monkeypatch.setattr("rightlung.app.study_routes.study_json", broken)
    response = client.get(f"/api/v1/studies/{key}")
    assert (response.status_code, response.json()["error"]["code"]) == (500, "bug")
    assert "Content-Security-Policy" in response.headers
    assert re.search(r"bug: RuntimeError at .*study_routes.py:\d+", caplog.text)
    assert "Example" not in caplog.text
