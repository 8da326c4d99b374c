from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit import Audit, audit
from rightlung.core import Study
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
        "Findings", "Best and worst cases", "Compared with the image-blind prior", "Left and right",
        "Effect of changing the phrase or the image", "Results by group", "Abstention", "Next steps",
        "Source and settings",
    ]  # fmt: skip
    navigation = text[text.index("<nav") : text.index("</nav>")]
    assert re.findall(r'href="#([^"]+)"', navigation) == [
        "summary", "cases", "overall", "sides", "conditions", "groups", "abstention", "next", "facts",
    ]  # fmt: skip
    assert outline.tags.count("caption") == outline.tags.count("table") > 10
    folded = re.findall(r'<details id="([^"]+)">', text)
    assert {"finding-auroc", "size-average-precision", "side-pointing", "polarity-auroc", "left-0"} <= set(folded)
    assert "finding-average-precision" in set(outline.values("id")) - set(folded)  # the first of the section is open
    assert len(text) < 5_000_000


def test_what_came_from_a_file_is_shown_and_never_obeyed(text: str) -> None:
    assert "<script" not in text
    assert "Opacity &lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; in the left lower lobe &amp;" in text
    assert "<h1>Audit of &lt;img src=x onerror=alert(1)&gt;</h1>" in text
    assert "<img src=x" not in text


def test_the_figures_compare_the_model_with_the_prior(text: str) -> None:
    drawn = re.findall(r"<svg (?!class).*?</svg>", text, re.DOTALL)
    headline, findings = drawn
    for label in ("original", "left and right swapped in the phrase", "another patient's image", "AUROC"):
        assert label in headline
    assert "lung opacity (32)" in findings
    assert all("image-blind prior" in one for one in drawn)
    assert "Mean over phrases with 90 % confidence intervals" in text


def test_the_json_holds_what_the_page_shows_and_no_nan(done: Audit, text: str) -> None:
    written = json.loads((done.folder / "audit.json").read_text(), parse_constant=pytest.fail)
    assert written["summary"] == done.result["summary"]
    assert written["note"] == NOT_A_MEDICAL_DEVICE
    assert text.count(done.result["protocol"]["hash"]) >= 4
    for sentence in written["summary"]:
        assert sentence.replace("'", "&#39;") in text


def test_the_next_steps_can_be_pasted_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s a "folder" of mine'
    done = audited(folder, Cards(5), diagonal_map, ("none",))
    code = re.search(r"<pre tabindex=.0.><code>(.*?)</code>", done.page.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    command = shlex.split(html.unescape(code[1]).splitlines()[1])
    assert command[:2] == ["python", "-c"]
    run = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.count("'average_precision'") == 3
