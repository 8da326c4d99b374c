from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit import Audit, audit
from rightlung.core import Study
from rightlung.measuring.measures import find_measure
from rightlung.results.estimate import BootstrapSettings
from tests.audit.cards import Cards, audited, diagonal_map, true_map, write_answers
from tests.pages import Outline

HOSTILE = 'Opacity <script>alert("x")</script> in the left lower lobe & "more".'
MODEL = "<img src=x onerror=alert(1)>"


class Hostile(Cards):
    """Cards on which one phrase is markup."""

    def _build(self, position: int) -> Study:
        study = super()._build(position)
        return replace(study, phrases=(replace(study.phrases[0], text=HOSTILE), *study.phrases[1:]))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder, source = tmp_path_factory.mktemp("page"), Hostile(16)
    written = write_answers(source, folder / "p", true_map, model=MODEL)
    return audit(written, source, folder / "out", settings=BootstrapSettings(200, level=0.9), cases=3)


@pytest.fixture(scope="module")
def text(done: Audit) -> str:
    return done.page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    assert found.open == []
    return found


def test_the_page_has_its_sections_in_order_and_tables_of_groups_are_folded(text: str, outline: Outline) -> None:
    assert [heading[3:] for heading in outline.headings if heading.startswith("h2")] == [
        "Verdict", "Cases", "Model and prior", "Left and right", "Changed phrase or image", "Groups", "Abstention",
        "Next steps", "Answering and declining", "Appendix: strata and thresholds", "Definitions",
        "Source and settings",
    ]  # fmt: skip
    navigation = text[text.index("<nav") : text.index("</nav>")]
    assert re.findall(r'href="#([^"]+)"', navigation) == [
        "verdict", "cases", "overall", "sides", "conditions", "groups", "abstention", "next", "answering", "strata",
        "definitions", "facts",
    ]  # fmt: skip
    assert outline.tags.count("caption") == outline.tags.count("table") > 10
    folded = re.findall(r'<details id="([^"]+)">', text)
    assert {"finding-auroc", "size-average-precision", "side-pointing", "polarity-auroc", "left-0"} <= set(folded)
    assert {"overall-2", "sides-2", "changes"} <= set(outline.values("id")) - set(folded)
    assert len(text) < 5_000_000


def test_what_came_from_a_file_is_shown_and_never_obeyed(text: str) -> None:
    assert "<script" not in text
    assert "Opacity &lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; in the left lower lobe &amp;" in text
    assert "<h1>Audit of &lt;img src=x onerror=alert(1)&gt;</h1>" in text
    assert "<img src=x" not in text


def test_the_figures_compare_the_model_with_the_prior(text: str) -> None:
    drawn = re.findall(r"<svg (?!class).*?</svg>", text, re.DOTALL)
    first, headline, findings, *appendix = drawn
    for label in ("original", "left and right swapped", "another patient's image", "average precision"):
        assert label in first
        assert label in headline
    assert "AUROC" in headline
    assert "AUROC" not in first
    assert "lung opacity (32)" in findings
    assert all("image-blind prior" in one for one in drawn)
    assert len(appendix) == 6  # risk and coverage, strata, three curves, thresholds; these answers have no boxes
    assert "Mean over phrases with 90 % confidence intervals" in text


def test_the_json_holds_what_the_page_shows_and_no_nan(done: Audit, text: str) -> None:
    written = json.loads((done.folder / "audit.json").read_text(), parse_constant=pytest.fail)
    assert written["summary"] == done.result["summary"]
    assert written["note"] == NOT_A_MEDICAL_DEVICE
    assert text.count(done.result["protocol"]["hash"]) >= 4
    assert len(written["verdict"]) == 4
    for one, sentence in zip(written["verdict"], written["summary"], strict=False):
        assert sentence == f"{one['text']} {one['detail']}"
        assert f"<strong>{one['text']}</strong> {one['detail']}".replace("'", "&#39;") in text


def test_the_first_screen_is_the_verdict_with_one_picture_and_one_figure(text: str) -> None:
    first = text[text.index('class="verdict"') : text.index('id="cases"')]
    assert first.count('class="mark"') == 4
    assert first.count("<img ") == 1
    assert first.count("<svg ") == 1
    assert "<table" not in first
    assert "<figcaption>model&#39;s map</figcaption>" in first
    assert text.index("<table") > text.index('id="cases"')


def test_every_measure_is_explained_on_hovering_and_in_a_list(done: Audit, text: str) -> None:
    named = {
        *done.found.overall,
        *(name for one in done.found.conditions.values() for name in (*one.change, *one.moved)),
    }
    definitions = text[text.index('id="definitions"') :]
    for measure in map(find_measure, named):
        meaning = html.escape(measure.meaning).replace("&#x27;", "&#39;")
        assert f'<abbr title="{meaning}" tabindex="0">{measure.title}</abbr>'.replace("'s side", "&#39;s side") in text
        assert meaning in definitions


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium to lay out the page")
def test_the_verdict_fits_the_first_screen_and_the_page_is_half_as_long(tmp_path: Path) -> None:
    """Without the verdict and with open tables, the page of these cards was 10,347 pixels high."""
    done = audited(tmp_path, Cards(40), true_map, cases=6)
    text = done.page.read_text(encoding="utf-8")
    probe = "<script>document.title = document.querySelector('.verdict').getBoundingClientRect().bottom"
    probe += " + ' ' + document.documentElement.scrollHeight</script>"
    policy = re.compile('<meta http-equiv="Content-Security-Policy"[^>]*>')  # which forbids the script
    (tmp_path / "measured.html").write_text(
        policy.sub("", text).replace("</body>", f"{probe}</body>"), encoding="utf-8"
    )
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--window-size=1366,768",
        f"--user-data-dir={tmp_path}/browser",
    ]
    found = subprocess.run(
        [*command, "--dump-dom", (tmp_path / "measured.html").as_uri()], capture_output=True, text=True, timeout=120
    )
    title = re.search(r"<title>([\d.]+) (\d+)</title>", found.stdout)
    assert title is not None, found.stderr
    assert float(title[1]) <= 768
    assert int(title[2]) <= 10_347 // 2


def test_the_next_steps_can_be_pasted_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s a "folder" of mine'
    done = audited(folder, Cards(5), diagonal_map, ("none",))
    code = re.search(r"<pre tabindex=.0.><code>(.*?)</code>", done.page.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    command = shlex.split(html.unescape(code[1]).splitlines()[1])
    assert command[:2] == ["python", "-c"]
    run = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.count("'average_precision'") == 3
