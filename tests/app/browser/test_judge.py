"""A reader study from its creation to the exported table, in a real browser; what happens when the store is gone."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from rightlung.core import Mask
from tests.app.browser.conftest import Service, Visit


@pytest.fixture
def service(chromium: Browser, tmp_path: Path) -> Iterator[Service]:
    """A service of its own for each test, which may be stopped."""
    running = Service(tmp_path)
    running.start()
    yield running
    running.stop()


def ask(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def table(service: Service) -> list[dict[str, str]]:
    """The exported table of the only reader study."""
    (study,) = json.loads(ask(f"{service.url}/api/v1/reader-studies"))["reader_studies"]
    return list(csv.DictReader(io.StringIO(ask(f"{service.url}/api/v1/reader-studies/{study['id']}/export.csv"))))


def ratings(service: Service) -> list[str]:
    return ["".join(row[name] for name in ("recall", "precision", "intuitiveness")) for row in table(service)]


def begin(visit: Visit, images: int = 2, truth: bool = True) -> Page:
    """Create a reader study of both models and start it."""
    page = visit.open("#/judge")
    page.locator(".create summary").click()
    page.get_by_label("Title").fill("Pilot")
    page.get_by_label("Images for each reader").fill(str(images))
    page.get_by_label("of these, the same for all").fill("0")
    if truth:
        page.get_by_label("Readers may see the truth").check()
    page.get_by_role("button", name="Create the study").click()
    page.get_by_role("button", name="Start").click()
    page.locator(".sentence").first.wait_for()
    return page


def rate(page: Page, keys: str, then: str, first: str = "recall") -> None:
    """Answer the three questions with the keyboard, save, and wait for what comes next."""
    page.locator(f".questions fieldset.current[data-name={first}]").wait_for()
    for key in keys:
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    page.locator(then).first.wait_for()


MAP_B = ".chips [aria-pressed=true]:text('Map B')"


def test_judging_from_the_first_image_to_the_table(visit: Visit, service: Service) -> None:
    answers: list[str] = []
    visit.page.on("response", lambda got: answers.append(got.text()) if "/items" in got.url else None)
    page = begin(visit)
    visit.shot("judge-choose")
    assert page.locator(".questions").count() == 0  # no map and no question before a sentence is chosen
    assert not any("/maps" in answer for answer in answers)
    page.locator(".sentence").nth(1).click()
    page.locator(".questions").wait_for()
    assert "entirely the wrong part" in page.locator(".scale5 label").first.get_attribute("title")  # type: ignore[operator]
    rate(page, "123", MAP_B)
    visit.shot("judge-questions")
    rate(page, "55", MAP_B)  # one answer is missing: nothing is saved
    assert ratings(service)[:1] == ["123"]
    page.keyboard.press("4")
    page.keyboard.press("Enter")
    page.locator(".sentence").first.wait_for()
    assert sorted(filter(None, ratings(service))) == ["123", "554"]

    page.keyboard.press("z")  # undo: back at the second map, with its answers, and gone from the table
    page.locator(MAP_B).wait_for()
    expect(page.locator(".questions input:checked")).to_have_count(3)
    assert sorted(filter(None, ratings(service))) == ["123"]
    page.locator("[data-name=precision] label").nth(0).click()
    page.keyboard.press("Enter")
    page.locator(".sentence").first.wait_for()
    assert sorted(filter(None, ratings(service))) == ["123", "514"]

    page.reload()  # resume on another day: at the image that is open
    page.locator(".sentence").first.wait_for()
    assert "Image 2 of 2" in page.locator(".pane-title").inner_text()
    page.get_by_label("Prompt of your own").fill("left rib fracture")
    page.get_by_role("button", name="Use my own").click()
    page.locator(".questions").wait_for()
    page.keyboard.press("2")
    page.keyboard.press("2")
    page.locator(".chips button", has_text="Map B").click()
    page.locator(MAP_B).wait_for()
    page.locator(".chips button", has_text="Map A").click()
    expect(page.locator(".questions input:checked")).to_have_count(2)  # what was begun is still there
    rate(page, "2", MAP_B, "intuitiveness")
    rate(page, "333", ".saved:text('Saved.')")
    rows = table(service)
    assert sorted(ratings(service)) == ["123", "222", "333", "514"]
    assert [row["prompt"] for row in rows].count("left rib fracture") == 2
    assert {row["model"] for row in rows} & {"starter", "chex"} == set()
    assert not re.search("starter|chex", " ".join(answers))  # the browser never learns the names while judging
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Stop for now").click()
    page.get_by_role("button", name="Results").click()
    page.locator(".summary", has_text="intuitiveness").wait_for()
    visit.shot("judge-results")


def test_enter_pressed_twice_saves_and_chooses_no_sentence(visit: Visit, service: Service) -> None:
    page = begin(visit)
    page.locator(".sentence").first.click()
    rate(page, "123", MAP_B)
    rate(page, "321", ".sentence")
    page.keyboard.press("Enter")
    page.wait_for_timeout(500)
    assert page.locator(".questions").count() == 0
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(".questions").wait_for()


def test_an_answer_is_kept_while_the_store_is_locked_and_saved_afterwards(visit: Visit, service: Service) -> None:
    page = begin(visit)
    page.locator(".sentence").first.click()
    page.locator(".questions").wait_for()
    lock = sqlite3.connect(service.database, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    rate(page, "451", "#outbox:not([hidden])")
    assert "Not saved yet" in page.locator("#outbox").inner_text()
    visit.shot("judge-store-gone")
    expect(page.locator("#outbox")).to_be_visible()
    page.wait_for_timeout(3500)  # the first attempt is refused meanwhile
    lock.execute("ROLLBACK")
    lock.close()
    expect(page.locator("#outbox")).to_be_hidden(timeout=20_000)
    assert list(filter(None, ratings(service))) == ["451"]
    assert {line.split()[0] for line in visit.refused} <= {"503"}
    visit.refused.clear()


def test_answers_survive_a_stopped_server_and_a_closed_tab(visit: Visit, service: Service) -> None:
    page = begin(visit)
    page.locator(".sentence").first.click()
    page.locator(".questions").wait_for()
    page.wait_for_timeout(300)
    service.stop()
    rate(page, "335", "#outbox:not([hidden])")
    again = page.context.new_page()
    page.close()  # the answer is in the browser's storage
    service.start()
    again.goto(f"{service.url}/")
    again.locator("#studies [data-key]").first.wait_for()
    expect(again.locator("#outbox")).to_be_hidden(timeout=20_000)
    assert list(filter(None, ratings(service))) == ["335"]
    visit.errors.clear()


def test_two_tabs_keep_their_answers_and_the_panel_recovers(visit: Visit, service: Service) -> None:
    page = begin(visit, images=3)
    page.locator(".sentence").first.click()
    page.locator(".questions").wait_for()
    page.wait_for_timeout(300)
    other = page.context.new_page()  # a second tab, with nothing waiting
    other.goto(f"{service.url}/#/look")
    other.locator("#studies [data-key]").first.wait_for()
    service.stop()
    rate(page, "335", MAP_B)
    rate(page, "224", ".warning.failed")  # the next image cannot be opened
    other.evaluate("window.dispatchEvent(new Event('online'))")  # it looks what waits, and has nothing
    kept = page.evaluate("Object.keys(localStorage).filter((name) => name.startsWith('rightlung.outbox'))")
    assert len(kept) == 2
    judged = datetime.now(UTC)
    page.wait_for_timeout(1500)
    service.start()
    page.locator(".sentence").first.wait_for(timeout=20_000)  # without "Try again"
    expect(page.locator("#outbox")).to_be_hidden(timeout=20_000)
    assert sorted(filter(None, ratings(service))) == ["224", "335"]
    assert all(datetime.fromisoformat(row["judged_at"]) <= judged for row in table(service) if row["recall"])
    visit.errors.clear()
    visit.refused.clear()


def test_ask_says_why_models_do_not_answer_about_an_image_that_is_still_to_be_judged(visit: Visit) -> None:
    begin(visit, images=4)
    page = visit.open("#/ask")
    visit.choose()
    page.get_by_label("Phrase").fill("Enlarged heart.")
    page.get_by_role("button", name="Where?").click()
    expect(page.locator("#messages.shown")).to_contain_text("you still have to judge this image in the reader study")
    visit.shot("ask-blinded")
    assert {line.split()[0] for line in visit.refused} == {"409"}
    visit.refused.clear()


def test_an_answer_is_kept_while_the_server_runs_on_an_empty_store(visit: Visit, service: Service) -> None:
    page = begin(visit)
    page.locator(".sentence").first.click()
    page.locator(".questions").wait_for()
    page.wait_for_timeout(300)
    service.stop()
    away = service.folder / "away.sqlite"
    service.database.rename(away)
    rate(page, "335", "#outbox:not([hidden])")
    service.start()  # a new store, where the item is unknown
    expect(page.locator("#outbox")).to_contain_text("another store", timeout=20_000)
    visit.shot("judge-other-store")
    service.stop()
    for name in ("store.sqlite", "store.sqlite-wal", "store.sqlite-shm"):
        (service.folder / name).unlink(missing_ok=True)
    away.rename(service.database)
    service.start()
    expect(page.locator("#outbox")).to_be_hidden(timeout=30_000)
    assert list(filter(None, ratings(service))) == ["335"]
    visit.errors.clear()
    visit.refused.clear()


def test_truth_is_shown_only_if_the_study_allows_it(visit: Visit) -> None:
    page = begin(visit, truth=False)
    page.locator(".sentence").first.click()
    page.locator(".questions").wait_for()
    assert page.get_by_text("Show the truth").count() == 0


def test_boxes_and_masks_are_drawn_as_new_truth(visit: Visit, service: Service) -> None:
    page = visit.open("#/draw")
    visit.choose()
    place = page.locator(".pane canvas").bounding_box()
    assert place is not None
    side = min(place["width"], place["height"])
    left, top = place["x"] + (place["width"] - side) / 2, place["y"] + (place["height"] - side) / 2

    def drag(*points: tuple[float, float]) -> None:
        for number, (x, y) in enumerate(points):
            page.mouse.move(left + x * side, top + y * side, steps=4)
            if number == 0:
                page.mouse.down()
        page.mouse.up()

    def save(label: str) -> None:
        page.get_by_label("Label").fill(label)
        page.get_by_role("button", name="Save", exact=True).click()
        page.locator(".drawn li", has_text=label).get_by_role("button", name="Delete").wait_for()

    page.keyboard.press("b")
    drag((0.25, 0.5), (0.5, 0.75))
    save("nodule")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Polygon").click()
    for x, y in ((0.5, 0.25), (0.75, 0.25), (0.75, 0.5)):
        page.mouse.click(left + x * side, top + y * side)
    page.locator("canvas").first.focus()
    page.keyboard.press("Enter")
    save("triangle")
    page.get_by_role("button", name="Brush").click()
    drag((0.2, 0.2), (0.3, 0.2))
    page.locator("canvas").first.focus()
    page.keyboard.press("Enter")
    save("stripe")
    visit.shot("draw")
    found = json.loads(ask(f"{service.url}/api/v1/annotations?study={page.url.rpartition('/')[2]}"))["annotations"]
    drawn: dict[str, Any] = {one["label"]: one for one in found}
    assert drawn["nodule"]["box"] == pytest.approx([0.25, 0.5, 0.5, 0.75], abs=0.01)
    triangle, stripe = (pixels(drawn[name]["mask"]) for name in ("triangle", "stripe"))
    assert triangle.mean() == pytest.approx(0.25 * 0.25 / 2, abs=0.002)
    assert triangle[40, 90]  # above the diagonal
    assert not triangle[60, 70]  # below it
    rows, columns = stripe.any(axis=1).nonzero()[0], stripe.any(axis=0).nonzero()[0]
    assert rows.mean() / 128 == pytest.approx(0.2, abs=0.01)
    assert columns.mean() / 128 == pytest.approx(0.25, abs=0.01)


def pixels(runs: dict[str, Any]) -> Any:
    """Row-major runs as an array."""
    height, width = runs["size"]
    return Mask.from_runs(runs["runs"], (width, height)).pixels.T
