"""Look and Ask in a real browser, compared with the pixels of the source and the maps of the model itself."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import numpy as np
import PIL.Image
import pytest
from playwright.sync_api import expect

import rightlung
from rightlung.core import Study
from tests.app.browser.conftest import SOURCE, Visit


@pytest.fixture(scope="module")
def studies() -> list[Study]:
    return list(rightlung.open_source(SOURCE))


def drawn(visit: Visit) -> Any:
    """What the first canvas shows: (rows, columns, RGB)."""
    visit.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    shown = visit.page.evaluate("() => document.querySelector('.pane canvas').toDataURL()")
    with PIL.Image.open(io.BytesIO(base64.b64decode(shown.split(",")[1]))) as picture:
        return np.asarray(picture.convert("RGB"), dtype=np.float64)


def middle(picture: Any, side: int = 128) -> Any:
    """The pixels at the centre, where an image of ``side`` pixels lies at 1:1."""
    rows, columns = picture.shape[:2]
    top, left = int(rows / 2 - side / 2 + 0.5), int(columns / 2 - side / 2 + 0.5)
    return picture[top : top + side, left : left + side, 0]


def test_true_pixels_are_those_of_the_source_and_invert_inverts_them(visit: Visit, studies: list[Study]) -> None:
    page = visit.open()
    visit.choose(1)
    page.get_by_label("Window preset").select_option("Full")
    page.get_by_role("button", name="True pixels").click()
    expected = np.round(studies[1].image * 255)
    shown = middle(drawn(visit))
    assert np.abs(shown - expected).max() <= 1
    page.keyboard.press("i")
    assert np.abs(middle(drawn(visit)) - (255 - expected)).max() <= 1
    page.keyboard.press("r")
    page.keyboard.press("t")
    low, high = np.percentile(studies[1].image, (1, 99))  # the first window
    windowed = np.clip((studies[1].image - low) / (high - low), 0, 1) * 255
    assert np.abs(middle(drawn(visit)) - windowed).mean() < 2


def test_pan_zoom_and_window_by_drag_and_keys(visit: Visit) -> None:
    page = visit.open()
    visit.choose()
    readout = page.locator("#readout")
    place = page.locator(".pane canvas").bounding_box()
    assert place is not None
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    before = drawn(visit)
    page.mouse.move(x, y)
    page.mouse.wheel(0, -400)
    assert np.abs(drawn(visit) - before).mean() > 1
    zoom = int(re.match(r"\d+", readout.inner_text())[0])  # type: ignore[index]
    page.keyboard.press("-")
    assert int(re.match(r"\d+", readout.inner_text())[0]) == pytest.approx(0.8 * zoom, abs=1)  # type: ignore[index]
    page.keyboard.press("f")
    assert np.array_equal(drawn(visit), before)
    width, level = map(int, re.findall(r"[WL] (\d+)", readout.inner_text()))
    page.mouse.down(button="right")
    page.mouse.move(x + 30, y + 50)
    page.mouse.up(button="right")
    assert list(map(int, re.findall(r"[WL] (\d+)", readout.inner_text()))) == [width + 10, level + 10]
    page.locator(".pane canvas").focus()
    page.keyboard.press("ArrowLeft")
    assert not np.array_equal(drawn(visit), before)
    page.keyboard.press("r")
    assert np.array_equal(drawn(visit), before)


def test_search_and_filters_narrow_the_list(visit: Visit, studies: list[Study]) -> None:
    page = visit.open()
    rows = page.locator("#studies [data-key]")
    expect(rows).to_have_count(4)
    present = [study.id for study in studies if study.findings.get("cardiomegaly") == "positive"]
    assert 0 < len(present) < 4
    page.get_by_label("Finding", exact=True).select_option("cardiomegaly")
    expect(rows).to_have_count(len(present))
    assert [text.split("\n")[0] for text in rows.all_inner_texts()] == present
    page.get_by_label("Finding", exact=True).select_option("")
    page.get_by_label("Search studies").fill(studies[2].id)
    expect(rows).to_have_count(1)
    assert studies[2].id in rows.inner_text()


def test_a_sentence_shows_the_model_s_map_where_the_model_points(visit: Visit, studies: list[Study]) -> None:
    model = rightlung.load("starter")
    study, phrase, grounding = next(
        (study, phrase, found)
        for study in studies
        for phrase in study.phrases
        if (found := model.ground([study.image], [phrase.text])[0]).abstention < 0.3
    )
    page = visit.open("#/ask")
    visit.choose(studies.index(study))
    page.keyboard.press("5")  # boxes and peak off: only the map is left to see
    plain = drawn(visit)
    page.locator("#panel .sentences button", has_text=phrase.text).first.click()
    page.wait_for_selector(".answer")
    change = np.abs(drawn(visit) - plain).sum(axis=2)
    rows, columns = change.shape
    side = min(rows, columns)
    inside = change[(rows - side) // 2 : (rows + side) // 2, (columns - side) // 2 : (columns + side) // 2]
    hot = np.unravel_index(inside.argmax(), inside.shape)
    expected = grounding.heatmap.to_size((side, side))
    assert expected[hot] > 0.6 * expected.max()
    assert "of phrases given this score there" in page.locator(".answer").inner_text()
    visit.shot("ask")


def test_an_abstaining_model_says_so_and_draws_no_box(visit: Visit, studies: list[Study]) -> None:
    model = rightlung.load("starter")
    absent = "large left pneumothorax"
    number = next(i for i, study in enumerate(studies) if model.ground([study.image], [absent])[0].abstention > 0.9)
    page = visit.open("#/ask")
    visit.choose(number)
    before = drawn(visit)
    page.get_by_label("Phrase", exact=True).fill(absent)
    page.keyboard.press("Enter")
    page.wait_for_selector(".answer.absent")
    assert "Probably not in this image" in page.locator(".answer").inner_text()
    assert np.abs(drawn(visit) - before).max() < 0.15 * 255  # no box, no peak; the map is at its faintest
    visit.shot("abstention")


def test_perturbations_show_both_maps_their_difference_and_the_scores(visit: Visit) -> None:
    page = visit.open("#/ask")
    visit.choose()
    page.get_by_label("Phrase", exact=True).fill("left rib fracture")
    page.get_by_role("button", name="Where?").click()
    page.wait_for_selector(".answer")
    for button, shown in {
        "Swap sides": "right rib fracture",
        "Negate": "no ",
        "Cover the peak": "left rib fracture",
    }.items():
        page.get_by_role("button", name=button).click()
        page.locator(".changed em", has_text=re.compile(shown, re.I)).wait_for()
        expect(page.locator(".pane")).to_have_count(3)
        assert "of the map moved" in page.locator(".pane-note").nth(2).inner_text()
    pixels = page.locator(".pane canvas").evaluate_all("(all) => all.map((canvas) => canvas.toDataURL())")
    assert len(set(pixels)) == 3  # before, covered, difference
    page.get_by_role("button", name="Other sentence…").click()
    page.get_by_label("Other sentence", exact=True).fill("normal heart size")
    page.get_by_role("button", name="Show", exact=True).click()
    page.locator(".changed em", has_text="normal heart size").wait_for()
    visit.shot("perturb")
    page.get_by_role("button", name="Back to the plain answer").click()
    expect(page.locator(".pane")).to_have_count(1)


def test_the_twin_without_the_finding(visit: Visit, studies: list[Study]) -> None:
    page = visit.open("#/ask")
    visit.choose(next(index for index, study in enumerate(studies) if any(p.mask for p in study.phrases)))
    twin = page.get_by_role("button", name="Without the finding")
    sentences = page.locator("#panel .sentences button")
    for number in range(sentences.count()):
        sentences.nth(number).click()
        page.locator(f"#panel .sentences li:nth-child({number + 1}) [aria-pressed=true]").wait_for()
        if twin.is_enabled():
            break
    twin.click()
    expect(page.locator(".pane")).to_have_count(3)
    assert "without the finding" in page.locator(".pane-title").nth(1).inner_text()
    visit.shot("twin")


def test_two_models_blinded_until_revealed(visit: Visit) -> None:
    page = visit.open("#/ask")
    visit.choose()
    page.get_by_label("Beside it").select_option("chex")
    page.get_by_label("Blinded").check()
    page.get_by_label("Phrase", exact=True).fill("rib fracture")
    page.keyboard.press("Enter")
    expect(page.locator(".pane")).to_have_count(3)
    titles = page.locator(".pane-title").all_inner_texts()
    assert not re.search("starter|chex", " ".join(titles))
    assert titles[0].startswith("Model A")
    page.get_by_role("button", name="Reveal the models").click()
    page.locator(".answer h3", has_text="chex").wait_for()
    visit.shot("two-models")


def test_report_sentences_and_boxes_point_at_each_other(visit: Visit) -> None:
    page = visit.open("#/ask")
    visit.choose()
    page.get_by_role("button", name="Write a report").click()
    sentence = page.locator(".report button[data-index]")
    sentence.first.wait_for()
    before = drawn(visit)
    sentence.first.hover()
    assert not np.array_equal(drawn(visit), before)  # its box is emphasised
    page.mouse.move(5, 5)
    colour = sentence.first.evaluate("(one) => getComputedStyle(one).borderLeftColor.match(/\\d+/g).map(Number)")
    seen = drawn(visit)
    rows, columns = np.nonzero((np.abs(seen - colour) < 3).all(axis=2))
    place = page.locator(".pane canvas").bounding_box()
    assert place is not None
    assert len(rows)
    page.mouse.click(place["x"] + float(columns.mean()), place["y"] + float(rows.mean()))
    page.locator(".report button[aria-pressed=true]").wait_for()
    visit.shot("report")


def test_a_drawn_box_is_described(visit: Visit) -> None:
    page = visit.open("#/ask")
    visit.choose()
    page.keyboard.press("b")
    drag(visit, (0.4, 0.4), (0.6, 0.7))
    page.get_by_role("button", name="Describe the box").click()
    page.locator(".described li strong").wait_for()
    assert len(page.locator(".described li strong").inner_text()) > 5
    page.get_by_text("Type a box instead").focus()  # the same with the keyboard
    page.keyboard.press("Enter")
    for value in ("10", "20", "10", "60"):
        page.keyboard.press("Tab")
        page.keyboard.press("Control+a")
        page.keyboard.type(value)
    page.keyboard.press("Enter")
    expect(page.locator("#messages.shown")).to_contain_text("Right must be more than left")
    page.get_by_label("Right %").fill("40")
    page.keyboard.press("Enter")
    with page.expect_request("**/describe") as asked:
        page.get_by_role("button", name="Describe the box").click()
    sent = asked.value.post_data_json
    assert sent is not None
    assert sent["queries"][0]["box"] == [0.1, 0.2, 0.4, 0.6]
    page.locator(".described li:nth-child(2)").wait_for()


def drag(visit: Visit, start: tuple[float, float], end: tuple[float, float]) -> None:
    place = visit.page.locator("canvas").first.bounding_box()
    assert place is not None
    for act, (x, y) in (("down", start), ("up", end)):
        visit.page.mouse.move(place["x"] + x * place["width"], place["y"] + y * place["height"], steps=3)
        getattr(visit.page.mouse, act)()


def test_own_images_are_opened_by_drop_and_said_not_to_be_stored(
    visit: Visit, studies: list[Study], tmp_path: Any
) -> None:
    file = tmp_path / "mine.png"
    PIL.Image.fromarray((studies[0].image * 255).astype(np.uint8)).resize((256, 256)).save(file)
    page = visit.open()
    data = page.evaluate_handle(
        "(bytes) => { const all = new DataTransfer();"
        " all.items.add(new File([Uint8Array.from(bytes)], 'mine.png')); return all }",
        list(file.read_bytes()),
    )
    page.dispatch_event("#stage", "drop", {"dataTransfer": data})
    page.locator(".notice", has_text="not stored").wait_for()
    assert "256 × 256" in page.locator("#panel").inner_text()
    noise = tmp_path / "noise.png"
    colours = np.random.default_rng(0).integers(0, 255, (300, 200, 3), dtype=np.uint8)
    PIL.Image.fromarray(colours).save(noise)
    page.set_input_files("input[type=file]", noise)
    page.locator("#panel .warning").first.wait_for()  # announced as not a chest radiograph
    visit.shot("upload-warning")
    page.set_input_files(
        "input[type=file]", {"name": "a.svg", "mimeType": "image/svg+xml", "buffer": b"<svg><script/></svg>"}
    )
    page.locator("#messages.failed").wait_for()
    assert [line.split()[0] for line in visit.refused] == ["415"]
    visit.refused.clear()
