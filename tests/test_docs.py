"""The documentation's examples run, its commands exist, and its links resolve."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import rightlung
from rightlung.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
CARDS = sorted((ROOT / "src" / "rightlung").rglob("*.md"))
MODULES = sorted(
    path
    for path in (ROOT / "src" / "rightlung").rglob("*.py")
    if path.name != "__main__.py" and "migrations" not in path.parts  # which only Alembic can import
)


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands_in(page: Path) -> Iterator[list[str]]:
    """Yield the arguments of every `rightlung` command in the page's shell examples."""
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["rightlung"]:
                yield words[1:]


@pytest.mark.parametrize("page", PAGES + CARDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    for in_brackets, in_quotes in re.findall(r'\]\(([^)]+)\)|src="([^"]+)"', page.read_text(encoding="utf-8")):
        target = in_brackets or in_quotes
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.name} points to {target}"
        if anchor:
            assert anchor in anchors_of(linked), f"{page.name} points to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_in_pages_give_what_they_show(page: Path) -> None:
    assert doctest.testfile(str(page), module_relative=False, encoding="utf-8").failed == 0


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_examples_in_docstrings_give_what_they_show(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    module = __import__(name, fromlist=["_"])
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_a_page_has_valid_arguments(page: Path) -> None:
    for words in commands_in(page):
        command: Any = typer.main.get_command(app)
        left = list(words)
        while hasattr(command, "commands"):  # a group: `rightlung`, `rightlung data`
            if command.invoke_without_command and (not left or left[0].startswith("-")):
                break
            assert left[:1], f"{page.name}: rightlung {shlex.join(words)}"
            assert left[0] in command.commands, f"{page.name}: rightlung {shlex.join(words)}"
            command = command.commands[left.pop(0)]
        command.make_context("rightlung", left)  # raises on an unknown option or a missing argument


def test_the_index_lists_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    board = (ROOT / "docs" / "results" / "leaderboard" / "leaderboard.md").read_text(encoding="utf-8")
    audits = {f"results/leaderboard/{name}" for name in re.findall(r"\]\((audits/[^)#]+)\)", board)}
    assert pages <= linked | audits


def test_the_readmes_examples_run_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [words for words in commands_in(ROOT / "README.md") if words[0] in ("phantom", "ground")]
    assert len(commands) == 3
    for words in commands:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    python = subprocess.run([sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, check=False)
    assert python.returncode == 0, python.stderr
    assert "(256, 256)" in python.stdout
    assert "Box(" in python.stdout
    assert "95 % interval" in python.stdout


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "README.md", ROOT / "docs" / "cli.md"])
def test_pages_for_users_say_that_this_is_no_medical_device(page: Path) -> None:
    assert rightlung.NOT_A_MEDICAL_DEVICE in page.read_text(encoding="utf-8")


def test_every_command_and_no_other_is_documented() -> None:
    from rightlung.cli.commands.sources import data_app
    from rightlung.cli.judgements import judgements_app

    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {f"data {command.name}" for command in data_app.registered_commands}
    commands |= {f"judgements {command.name}" for command in judgements_app.registered_commands}
    commands |= {
        str(group.name)
        for group in app.registered_groups
        if group.typer_instance and group.typer_instance.registered_callback
    }
    table = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `rightlung ((?:(?:data|judgements) )?[a-z-]+)", table, re.MULTILINE))
    assert documented == commands
