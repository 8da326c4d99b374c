"""``rightlung describe`` and ``rightlung report`` with a tiny ChEX, with the shipped model, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
import torch

from rightlung.core import Box, Report, Sentence
from rightlung.models.chex import Chex
from rightlung.models.folder import save_model
from rightlung.models.registry import load
from rightlung.pages.report import prompt_agrees, side_agrees, warnings_about, wrong_side
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


@pytest.mark.parametrize(("box", "agrees"), [("0.05,0.1,0.45,0.9", False), ("0.55,0.1,0.95,0.9", True)])
def test_an_answer_about_a_box_on_the_other_side_has_a_warning(
    call: Any, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, box: str, agrees: bool
) -> None:
    image, model = files
    monkeypatch.setattr(Chex, "describe", lambda *_: ["A small effusion on the left side."])
    asked = ("describe", image, "--model", model, "--prompt", "pneumothorax", "--box", box)
    (answer,) = json.loads(call(*asked, "--json").stdout)["answers"]
    assert (answer["side_agrees"], answer["prompt_agrees"]) == (agrees, False)
    told = call(*asked).stderr
    assert ("warning: its box lies on the other side" in told) is not agrees
    assert "warning: it is not about what was asked" in told


def test_a_report_has_a_page_that_escapes_names(call: Any, files: tuple[str, str], tmp_path: Path) -> None:
    image, model = files
    done = call("report", image, "--model", model, "--html", str(tmp_path / "r.html"), "--json")
    written = json.loads(done.stdout)
    page = (tmp_path / "r.html").read_text()
    assert "<title>&lt;b&gt;.png" in page
    assert page.count('class="number"') == len(written["sentences"])
    assert page.count("<rect ") == sum(len(one["boxes"]) for one in written["sentences"])
    assert written["note"] in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--box", "0.5,0.2,0.5,0.7"), "has no area"),
        (("--box", "0.5,0.2,0.3,0.7"), "x0 = 0.5 is not below x1 = 0.3"),
        (("--box", "0.5,0.2,1.5,0.7"), "leaves the image"),
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


def test_a_sentence_whose_boxes_lie_on_the_other_side_has_a_warning() -> None:
    right, left, middle = Box(0.1, 0.1, 0.4, 0.9), Box(0.6, 0.1, 0.9, 0.9), Box(0.3, 0.1, 0.6, 0.9)
    assert wrong_side("a right effusion", [left]) == "its box lies on the other side"
    assert wrong_side("a left effusion", [right, right]) == "its boxes lie on the other side"
    for text, boxes in (("a right effusion", [left, right]), ("a left effusion", [middle]), ("an effusion", [left])):
        assert wrong_side(text, boxes) == ""
    assert [side_agrees(text, [left]) for text in ("left", "bilateral effusions", "left and right")] == [
        True,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("text", "prompt", "expected"),
    [
        ("A small left effusion.", "pneumothorax", False),
        ("No evidence of pneumothorax.", "pneumothorax", True),
        ("Consolidation of the left lung.", "lung opacity", True),  # every consolidation is an opacity
        ("A left basal opacity.", "consolidation", True),
        ("A small left pneumothorax.", "right apical zone", False),
        ("A small right pneumothorax.", "right apical zone", True),
        ("A small pneumothorax.", "right apical zone", None),
        ("Small bilateral effusions.", "right apical zone", None),
        ("A small right pneumothorax.", "left pneumothorax", False),
        ("The spine is straight.", "pneumothorax", None),
        ("A small left effusion.", None, None),
    ],
)
def test_a_sentence_about_something_else_than_its_prompt_has_a_warning(
    text: str, prompt: str | None, expected: bool | None
) -> None:
    assert prompt_agrees(text, prompt) is expected
    warned = ["it is not about what was asked"] if expected is False else []
    assert warnings_about(Sentence(text, prompt=prompt)) == warned


def test_both_warnings_of_a_sentence_are_shown(
    call: Any, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rightlung.models.chex import Chex

    written = Report("x", sentences=(Sentence("a left effusion", (Box(0.1, 0.1, 0.4, 0.9),), 0.5, "pneumothorax"),))
    monkeypatch.setattr(Chex, "report", lambda *_: [written])
    done = call("report", image, "--html", "r.html", "--json")
    (sentence,) = json.loads(done.stdout)["sentences"]
    assert (sentence["side_agrees"], sentence["prompt_agrees"]) == (False, False)
    told, page = call("report", image).stderr, (tmp_path / "r.html").read_text()
    for warning in ("it is not about what was asked", "its box lies on the other side"):
        assert f"\n   warning: {warning}\n" in told
        assert f">warning: {warning}<" in page


@pytest.fixture
def image(tmp_path: Path) -> str:
    """A phantom with a right-sided pleural effusion."""
    study = make_studies(default_config(), 1, [3])[0]
    assert study.findings["pleural effusion"] == "positive"
    PIL.Image.fromarray((study.image * 255).astype("uint8")).save(tmp_path / "phantom.png")
    return "phantom.png"


def test_the_shipped_model_is_asked_by_default(call: Any, image: str) -> None:
    done = call("describe", image, "--prompt", "pleural effusion", "--json")
    answer = json.loads(done.stdout)
    assert answer["model"] == "chex"
    (found,) = answer["answers"]
    assert "effusion" in found["text"]
    scores = [one["score"] for one in found["boxes"]]
    assert scores == sorted(scores, reverse=True)
    assert found["boxes"][0]["box"][2] < 0.5  # the patient's right is on the image's left


def test_the_report_in_words_has_what_its_json_has(call: Any, image: str) -> None:
    written = json.loads(call("report", image, "--json").stdout)
    told = call("report", image).stderr
    for number, one in enumerate(written["sentences"], start=1):
        boxes = "; ".join("box " + ",".join(f"{value:.2f}" for value in box) for box in one["boxes"])
        assert f"{number}. {one['text']}\n   asked: {one['prompt']}; score {one['score']:.2f}; {boxes}\n" in told
        assert one["side_agrees"] is side_agrees(one["text"], [Box(*box) for box in one["boxes"]])
    assert written["text"] == " ".join(one["text"] for one in written["sentences"]) != ""
    assert told.endswith(f"{written['note']}\n")


def test_a_report_without_sentences_says_what_was_asked(
    call: Any, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rightlung.models.chex import reports

    monkeypatch.setattr(
        reports, "shows_finding", lambda model, prompts, *_: torch.zeros(1, len(prompts), dtype=torch.bool)
    )
    arguments = ("report", image, "--findings", "positive", "--html", str(tmp_path / "r.html"))
    written = json.loads(call(*arguments, "--json").stdout)
    assert written["text"].startswith("No finding: there is no evidence of enlarged cardiomediastinum, cardiomegaly")
    assert "other pleural abnormality" not in written["text"]  # the model has not learned it
    assert written["looked_for"].startswith("enlarged cardiomediastinum, cardiomegaly")
    assert written["looked_for"].endswith("mediastinum, cardiac silhouette, abdomen")
    told, page = call(*arguments).stderr, (tmp_path / "r.html").read_text()
    for shown in (told, page):
        assert written["text"] in shown
        assert f"The model was asked for: {written['looked_for']}." in shown
        assert "The model may have missed findings" in shown


def test_prompts_that_are_not_read_are_noted(call: Any, image: str, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("\n\n# a comment\n  heart \n\n" + "left lung " * 1000 + "\nxyzzy qwertz\n")
    written = json.loads(call("report", image, "--prompts", "prompts.txt", "--json").stdout)
    assert {one["prompt"] for one in written["sentences"]} <= {"heart", ("left lung " * 1000).strip(), "xyzzy qwertz"}
    long, unknown = written["notes"]
    assert ": it was cut to 63 tokens: the model reads only the first " in long
    assert "of the 9,999 characters" in long
    assert unknown == "prompt 'xyzzy qwertz': the model knows only 0% of these words, so its answer means little"
    told = call("describe", image, "--prompt", "left lung " * 1000).stderr
    assert "of the 10,000 characters" in told
    assert len(told) < 1000


@pytest.mark.parametrize(("text", "said"), [
    ("xyzzy " * 1600, "it was cut to 63 tokens: the model reads only the first "),
    ("pleural" * 1400, "knows only 0% of these words, 9,800 characters that it reads as 1 token, so"),
])  # fmt: skip
def test_long_prompts_of_unknown_words_are_said_to_be_long(call: Any, image: str, text: str, said: str) -> None:
    (note,) = json.loads(call("describe", image, "--prompt", text, "--json").stdout)["notes"]
    assert said in note
    assert "the model knows only 0% of these words" in note


def test_a_report_says_how_many_prompts_gave_no_sentence_of_their_own(call: Any, image: str, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("\n".join(["pleural effusion"] * 500))
    written = json.loads(call("report", image, "--prompts", "prompts.txt", "--json").stdout)
    said = "499 of 500 prompts: 499 gave a sentence that says the same as one with a higher score"
    assert (len(written["sentences"]), written["left_out"]) == (1, said)
    told = call("report", image, "--prompts", "prompts.txt", "--html", "report.html").stderr
    assert f"Without a sentence of their own: {said}.\n" in told
    assert f"Without a sentence of their own: {said}." in Path("report.html").read_text()


def test_the_page_notes_prompts_that_are_not_read(call: Any, image: str) -> None:
    Path("prompts.txt").write_text("xyzzy qwertz")
    call("report", image, "--prompts", "prompts.txt", "--html", "report.html")
    page = Path("report.html").read_text()
    assert "Note: prompt &#39;xyzzy qwertz&#39;: the model knows only 0% of these words" in page


def test_five_hundred_prompts_are_answered_at_once(call: Any, image: str) -> None:
    prompts = [part for number in range(500) for part in ("--prompt", f"nodule of {number} mm")]
    answers = json.loads(call("describe", image, *prompts, "--json").stdout)["answers"]
    assert [one["prompt"] for one in answers] == prompts[1::2]
    assert all(one["text"] for one in answers)


@pytest.mark.parametrize(("content", "said"), [(b"", "has no prompts"), (b"\n \n", "has no prompts"),
                                               (b"\xff\xfe", "not a text file"), (None, "No such file")])  # fmt: skip
def test_bad_files_of_prompts_are_refused(
    call: Any, image: str, tmp_path: Path, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "prompts.txt").write_bytes(content)
    done = call("report", image, "--prompts", "prompts.txt")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert said in done.stderr


@pytest.mark.parametrize("option", ["--findings", "--regions"])
def test_own_prompts_and_a_choice_of_sets_are_refused_together(
    call: Any, image: str, tmp_path: Path, option: str
) -> None:
    (tmp_path / "prompts.txt").write_text("heart\n")
    done = call("report", image, "--prompts", "prompts.txt", option, "positive")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "give --prompts, or --findings and --regions" in done.stderr


def test_the_command_line_and_python_have_the_same_default(call: Any, image: str, tmp_path: Path) -> None:
    (report,) = load("chex").report(str(tmp_path / image))
    written = json.loads(call("report", image, "--json").stdout)
    assert [one["text"] for one in written["sentences"]] == [one.text for one in report.sentences]
    everything = json.loads(call("report", image, "--findings", "yes", "--json").stdout)["sentences"]
    assert len(everything) > len(report.sentences) > 0  # the paper's choice keeps what is less likely than not, too


def test_a_report_generator_without_prompts_needs_no_options(
    call: Any, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rightlung.cli import describe

    class Writer:
        def report(self, images: Any) -> list[Report]:
            return [Report("The lungs are clear.") for _ in images]

    monkeypatch.setattr(describe, "load_model", lambda *_: Writer())
    assert json.loads(call("report", files[0], "--json").stdout)["text"] == "The lungs are clear."
    done = call("report", files[0], "--findings", "positive")
    assert (done.returncode, "takes no prompts" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", ["describe", "report"])
def test_a_black_image_is_refused(call: Any, tmp_path: Path, command: str) -> None:
    PIL.Image.new("L", (256, 256)).save(tmp_path / "black.png")
    done = call(command, "black.png")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "it is blank" in done.stderr
