"""A reading room with small phantoms and the shipped models, and a browser (Debian's Chromium) that looks at it.

Screenshots are kept in the folder named by RIGHTLUNG_SCREENSHOTS, else in pytest's temporary folder.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SOURCE = "phantom?count=4&seed=7&size=128"


@dataclass
class Service:
    """A service in a thread of this process; it can be stopped and started again on the same port and store."""

    folder: Path
    accounts: bool = False
    port: int = 0
    _server: Any = None
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> Path:
        return self.folder / "store.sqlite"

    def start(self) -> None:
        import uvicorn

        from rightlung.app.service import create_app
        from rightlung.app.settings import ServeSettings

        if not self.port:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
        settings = ServeSettings(SOURCE, store=f"sqlite:///{self.database}", port=self.port, accounts=self.accounts)
        self._server = uvicorn.Server(uvicorn.Config(create_app(settings), port=self.port, log_level="error"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.url}/healthz", timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise TimeoutError("the service did not start")

    def stop(self) -> None:
        self._server.should_exit = True
        assert self._thread is not None
        self._thread.join(20)


@dataclass
class Visit:
    """A page of the browser, with what it logged and requested."""

    page: Page
    url: str
    shots: Path
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Answers with an error status; a test that expects some clears the list."""

    def open(self, place: str = "") -> Page:
        """Open a place of the reading room, such as ``#/ask``."""
        self.page.goto(f"{self.url}/{place}")
        self.page.wait_for_selector(":is([data-key], .page, dialog):visible")
        return self.page

    def choose(self, number: int = 0) -> None:
        """Choose a study of the list and wait until it is shown."""
        self.page.locator("#studies [data-key]").nth(number).click()
        self.page.locator(f"#studies li:nth-child({number + 1}) [aria-current]").wait_for()

    def shot(self, name: str) -> None:
        self.page.screenshot(path=self.shots / f"{name}.png")

    def watch(self) -> None:
        """Gather errors, and requests to other hosts."""

        def logged(kind: str, text: str) -> None:
            if kind in ("error", "warning") and "Failed to load resource" not in text:  # those are in `refused`
                self.errors.append(text)

        def answered(status: int, url: str) -> None:
            if status >= 400:
                self.refused.append(f"{status} {url}")

        def asked(url: str) -> None:
            if not url.startswith((f"{self.url}/", "data:", f"blob:{self.url}/")):
                self.foreign.append(url)

        self.page.on("console", lambda message: logged(message.type, message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("response", lambda response: answered(response.status, response.url))
        self.page.on("request", lambda request: asked(request.url))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is not installed (apt-get install chromium): the reading room is not tried in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("RIGHTLUNG_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def service(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without accounts, for all tests of a process."""
    running = Service(tmp_path_factory.mktemp("room"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def visit(chromium: Browser, service: Service, screenshots: Path) -> Iterator[Visit]:
    """A fresh visit; afterwards: no error in the console, no refused request, and no request to another host."""
    yield from visiting(chromium, service.url, screenshots)


def visiting(chromium: Browser, url: str, screenshots: Path) -> Iterator[Visit]:
    """Visit an address on a laptop's screen, and check the visit at its end."""
    context = chromium.new_context(viewport={"width": 1366, "height": 768})
    context.set_default_timeout(15_000)
    made = Visit(context.new_page(), url, screenshots)
    made.watch()
    yield made
    context.close()
    assert (made.errors, made.foreign, made.refused) == ([], [], [])
