"""What holds on every screen: the notice, the keyboard, small windows, login, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.app.browser.conftest import Service, Visit, visiting

FOCUSED = """() => { const one = document.activeElement, style = getComputedStyle(one);
    return [one.outerHTML.slice(0, 80), style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth)]; }"""
NAMELESS = """() => [...document.querySelectorAll("button, select, input:not([hidden]), canvas")]
    .filter((one) => !one.getAttribute("aria-label") && !one.textContent.trim() && !one.labels?.length)
    .map((one) => one.outerHTML)"""
SCREENS = ("look", "ask", "draw", "judge")


@pytest.mark.parametrize(
    ("width", "height"), [(1366, 768), (1920, 1080), (683, 384)], ids=["laptop", "large", "200 % zoom"]
)
def test_screens_fit_the_window_and_say_that_this_is_no_medical_device(visit: Visit, width: int, height: int) -> None:
    visit.page.set_viewport_size({"width": width, "height": height})  # 683 × 384: a 1366 × 768 screen at 200 %
    page = visit.open()
    visit.choose()
    for screen in SCREENS:
        page.keyboard.press(f"Shift+{screen[0].upper()}")
        page.locator(f"body[data-screen={screen}]").wait_for()
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{screen} scrolls sideways"
        for place in ("#panel", "#studies", "#page"):
            cut = page.evaluate(f"(one => one.scrollWidth - one.clientWidth)(document.querySelector('{place}'))")
            assert cut <= 0 or not page.locator(place).is_visible(), f"{place} of {screen} is cut off by {cut} pixels"
        expect(page.locator("footer")).to_be_in_viewport()
        assert "Not a medical device" in page.locator("footer").inner_text()
        visit.shot(f"{screen}-{width}")


def test_a_question_is_asked_with_the_keyboard_alone(visit: Visit) -> None:
    page = visit.open()
    page.locator("#studies li:nth-child(1) [aria-current]").wait_for()  # the first study is open at the start
    page.keyboard.press("j")
    page.locator("#studies li:nth-child(2) [aria-current]").wait_for()
    page.keyboard.press("Shift+A")
    page.locator("#phrase").wait_for()
    page.keyboard.press("q")
    page.keyboard.type("rib fracture?")  # a question mark in a text opens no help
    page.keyboard.press("Enter")
    page.locator(".answer").wait_for()
    assert page.locator("dialog").count() == 0
    assert page.evaluate("document.activeElement.id") == "phrase"
    page.keyboard.press("Escape")
    page.keyboard.press("n")  # negate
    page.locator(".changed").wait_for()
    page.keyboard.press("?")
    assert "True pixels" in page.locator("dialog").inner_text()
    visit.shot("help")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


def test_focus_is_visible_and_controls_have_names(visit: Visit) -> None:
    page = visit.open("#/ask")
    visit.choose()
    page.locator("#phrase").wait_for()
    seen = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        focused, outline = page.evaluate(FOCUSED)
        seen.add(focused)
        assert outline > 0, f"no visible focus: {focused}"
    assert len(seen) > 20  # the focus moves on
    assert page.evaluate(NAMELESS) == []


def test_the_light_theme_and_the_layers_of_the_last_visit(visit: Visit) -> None:
    page = visit.open()
    visit.choose()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Light", exact=True).click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.get_by_label("Colours", exact=True).select_option("viridis")
    page.reload()
    assert page.get_by_label("Colours", exact=True).input_value() == "viridis"


@pytest.fixture
def guarded(chromium: Browser, tmp_path: Path, screenshots: Path) -> Iterator[tuple[Visit, Service]]:
    """A visit to a service with accounts: ann may judge, olga owns."""
    from rightlung.app.accounts import Accounts
    from rightlung.app.store import Store

    service = Service(tmp_path, accounts=True)
    store = Store(f"sqlite:///{service.database}")
    for name, role in (("ann", "annotator"), ("olga", "owner")):
        Accounts(store, True).add(name, f"the password of {name}", role)
    store.close()
    service.start()
    for visit in visiting(chromium, service.url, screenshots):
        yield visit, service
    service.stop()


def log_in(page: Page, name: str, password: str) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_login_and_a_session_that_is_over(guarded: tuple[Visit, Service]) -> None:
    visit, _ = guarded
    page = visit.open()
    visit.shot("login")
    log_in(page, "ann", "not the password")
    expect(page.locator("dialog .error")).not_to_be_empty()
    log_in(page, "ann", "the password of ann")
    visit.choose()
    assert "ann" in page.locator("#user").inner_text()
    page.keyboard.press("Shift+J")
    page.locator(".page h1").wait_for()
    assert page.locator(".create").count() == 0  # only an owner creates studies
    page.keyboard.press("Shift+A")
    page.locator("#phrase").fill("rib fracture")
    page.context.clear_cookies()  # the session is over
    page.locator("#phrase").press("Enter")
    log_in(page, "ann", "the password of ann")
    page.locator(".answer").wait_for()  # what was typed is asked after the login
    assert {line.split()[0] for line in visit.refused} <= {"401", "403"}
    visit.refused.clear()
