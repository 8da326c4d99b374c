import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from rightlung.core import Box
from rightlung.studies import open_source
from rightlung.studies.rows import KNOWN_FIELDS

PAGE = Path(__file__).parents[2] / "docs" / "sources.md"


def run_block(marked: str, names: dict[str, object]) -> None:
    """Run the page's one Python block in which ``marked`` stands."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if marked in block]
    exec(compile(block, str(PAGE), "exec"), names)


@pytest.fixture(autouse=True)
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_block("manifest.write", {})


def test_the_example_makes_data_that_opens() -> None:
    with tarfile.open("mine.tar", "w") as archive:
        archive.add("mine", arcname=".")
    for address in ("manifest:mine", "manifest:mine.tar?split=val"):
        source = open_source(address)
        assert (len(source), source.problems) == (3, [])
        assert source[0].image.shape == (400, 320)
        assert len(np.unique(source[0].image)) > 256
        assert source[0].phrases[0].boxes == (Box(0.6, 0.2, 0.7, 0.3),)


def test_the_loop_that_survives_bad_images_does(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine/images/p1.png").write_bytes(b"no image")
    with Path("mine/manifest.jsonl").open("a") as manifest:
        manifest.write("broken\n")
    run_block("failed.append", {"source": open_source("manifest:mine")})
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("manifest.jsonl, line 4: ")
    assert second.startswith("study 'p1': image ")


def test_every_field_is_documented() -> None:
    described = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert described >= KNOWN_FIELDS
