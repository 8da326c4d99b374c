"""``rightlung describe`` and ``rightlung report`` with a tiny ChEX and with what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from rightlung.models.folder import save_model
from rightlung.phantom.config import default_config
from rightlung.phantom.study import make_studies
from tests.models.chex.tiny import create


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("chex")
    save_model(create(), folder / "model")
    pixels = make_studies(default_config(), 5, [0], 96)[0].image
    PIL.Image.fromarray((pixels * 255).astype("uint8")).save(folder / "<b>.png")
    return str(folder / "<b>.png"), str(folder / "model")


def test_each_prompt_and_each_box_gets_a_sentence(call: Any, files: tuple[str, str]) -> None:
    image, model = files
    done = call("describe", image, "--model", model, "--prompt", "left lung", "--prompt", "heart", "--json")
    answers = json.loads(done.stdout)["answers"]
    assert [one["prompt"] for one in answers] == ["left lung", "heart"]
    assert all(one["text"] and len(one["boxes"]) == 3 for one in answers)
    done = call("describe", image, "--model", model, "--box", "0.1,0.1,0.5,0.9", "--json")
    assert json.loads(done.stdout)["answers"][0]["box"] == [0.1, 0.1, 0.5, 0.9]


def test_a_report_has_a_page_that_escapes_names(call: Any, files: tuple[str, str], tmp_path: Path) -> None:
    image, model = files
    done = call("report", image, "--model", model, "--html", str(tmp_path / "r.html"), "--json")
    written = json.loads(done.stdout)
    page = (tmp_path / "r.html").read_text()
    assert "<title>&lt;b&gt;.png" in page
    assert page.count("<li tabindex") == len(written["sentences"])
    assert page.count("<rect ") == sum(len(one["boxes"]) for one in written["sentences"])
    assert written["note"] in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--box", "0.5,0.2,0.5,0.7"), "has no area"),
        (("--box", "1,2"), "--box needs X0,Y0,X1,Y1"),
        (("--prompt", " "), "a text with at least one character"),
        (("--prompt", "a", "--box", "0,0,1,1", "--box", "0,0,1,0.5"), "one --box with --prompt"),
    ],
)
def test_bad_queries_are_refused(call: Any, files: tuple[str, str], arguments: tuple[str, ...], said: str) -> None:
    done = call("describe", files[0], "--model", files[1], *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_model_without_sentences_is_refused(call: Any, files: tuple[str, str]) -> None:
    done = call("report", files[0], "--model", "starter")
    assert (done.returncode, "writes no reports" in done.stderr) == (2, True)
