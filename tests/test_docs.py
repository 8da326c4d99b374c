"""What the documentation says is run, and what it points to is there."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rightlung

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
MODULES = sorted(path for path in (ROOT / "src" / "rightlung").rglob("*.py") if path.name != "__main__.py")


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
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


def test_the_readmes_python_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "95 % interval" in result.stdout


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "README.md", ROOT / "docs" / "cli.md"])
def test_pages_for_users_say_that_this_is_no_medical_device(page: Path) -> None:
    assert rightlung.NOT_A_MEDICAL_DEVICE in page.read_text(encoding="utf-8")


def test_every_command_and_no_other_is_documented() -> None:
    from rightlung.cli.main import app, data_app, judgements_app

    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {f"data {command.name}" for command in data_app.registered_commands}
    commands |= {f"judgements {command.name}" for command in judgements_app.registered_commands}
    table = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `rightlung ((?:(?:data|judgements) )?[a-z]+)", table, re.MULTILINE))
    assert documented == commands
