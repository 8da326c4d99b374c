"""Earlier answers are reused only while the model, its code and the images are the same."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from rightlung import __version__
from rightlung.asking import ask, code_fingerprint
from rightlung.asking.folder import LIST
from rightlung.core import Grounding, Image, InputError, OutputError, Phrase
from rightlung.models.classifier import Classifier
from rightlung.studies import open_source
from tests.asking.models import Painter, listed, rows_of


@pytest.fixture
def fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str | None]:
    """Import a module of the folder anew and fingerprint the class ``Mine`` in it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def of(module: str) -> str | None:
        importlib.invalidate_caches()
        for name in [name for name in sys.modules if name.split(".")[0] in ("mine_alone", "mine_package", "helping")]:
            del sys.modules[name]
        return code_fingerprint(importlib.import_module(module).Mine(), f"{module}:Mine")

    return of


def test_the_fingerprint_follows_the_module_and_what_it_imports_nearby(
    tmp_path: Path, fingerprint: Callable[[str], str | None]
) -> None:
    alone, helper = tmp_path / "mine_alone.py", tmp_path / "helping.py"
    alone.write_text("class Mine:\n    def late(self):\n        from helping import constant\n")
    helper.write_text("constant = 1\n")
    first = fingerprint("mine_alone")
    assert first is not None
    assert fingerprint("mine_alone") == first
    (tmp_path / "unrelated.py").write_text("x = 1\n")
    assert fingerprint("mine_alone") == first
    helper.write_text("constant = 2\n")
    second = fingerprint("mine_alone")
    assert second != first
    alone.write_text(alone.read_text() + "# edited\n")
    assert fingerprint("mine_alone") not in (first, second)

    package = tmp_path / "mine_package"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep" / "__init__.py").write_text("from ..parts import scale\nfrom . import more\nclass Mine: pass\n")
    (package / "deep" / "more.py").write_text("import numpy, rightlung\n")
    (package / "parts.py").write_text("scale = 1\n")
    (package / "other.py").write_text("scale = 1\n")
    first = fingerprint("mine_package.deep")
    (package / "other.py").write_text("scale = 2\n")
    assert fingerprint("mine_package.deep") == first
    for file in (package / "parts.py", package / "deep" / "more.py"):
        file.write_text(file.read_text() + "# edited\n")
        assert fingerprint("mine_package.deep") != first
        first = fingerprint("mine_package.deep")


def test_a_shipped_kind_is_fingerprinted_by_the_version_and_code_without_a_file_not_at_all() -> None:
    assert code_fingerprint(Classifier.__new__(Classifier)) == f"rightlung {__version__}"
    made: dict[str, type] = {}
    exec("class Mine: pass", {"__name__": "of_a_notebook"}, made)
    assert code_fingerprint(made["Mine"]()) is None


def test_answers_of_another_version_are_refused_until_they_are_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rightlung.asking.run.code_fingerprint", lambda *_: "rightlung 0.0.1")
    first = ask(Painter(), listed(9), tmp_path / "p")
    assert (first.reused, first.reused_from) == (0, None)
    second = ask(Painter(), listed(9), tmp_path / "p")
    assert (second.reused, second.written) == (first.rows, 0)
    assert second.reused_from is not None
    assert second.reused_from.endswith("UTC")
    monkeypatch.setattr("rightlung.asking.run.code_fingerprint", lambda *_: "rightlung 0.0.2")
    before = rows_of(tmp_path / "p")
    with pytest.raises(InputError, match=r"code has changed \(rightlung 0\.0\.1, now rightlung 0\.0\.2\).*--overwrite"):
        ask(Painter(), listed(9), tmp_path / "p")
    assert rows_of(tmp_path / "p") == before
    again = ask(Painter(), listed(9), tmp_path / "p", overwrite=True)
    assert (again.reused, again.written, again.rows) == (0, first.rows, first.rows)
    with pytest.raises(InputError, match="another seed"):
        ask(Painter(), listed(9), tmp_path / "p", seed=1)
    ask(Painter(), listed(9), tmp_path / "p", seed=1, overwrite=True)
    ask(Painter(), listed(9), tmp_path / "p", model_name="other", overwrite=True)
    with pytest.raises(InputError, match=r"model 'other', not 'Painter'; choose another folder, or .*--overwrite"):
        ask(Painter(), listed(9), tmp_path / "p")


class Failing(Painter):
    """Fails at some texts until it is repaired."""

    def __init__(self, *bad: str) -> None:
        super().__init__()
        self.bad = bad

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        if any(word in str(phrase).split() for phrase in phrases for word in self.bad):
            raise ValueError("not today")
        return super().ground(images, phrases)


def test_a_broken_model_does_not_cost_the_answers_that_it_was_to_overwrite(tmp_path: Path) -> None:
    ask(Failing(), listed(90), tmp_path / "p")
    whole = rows_of(tmp_path / "p")
    with pytest.raises(InputError, match="none of the first 20 questions; first error: ValueError: not today"):
        ask(Failing("Effusion", "Nodule"), listed(90), tmp_path / "p", overwrite=True)
    assert rows_of(tmp_path / "p") == whole


def test_rows_with_an_error_are_asked_again_and_no_others(tmp_path: Path) -> None:
    first = ask(Failing("7", "Nodule"), listed(60), tmp_path / "p", batch_size=4)
    assert {failure.key.query for failure in first.failed} == {"phrase:0", "phrase:1"}
    assert first.reused == 0
    model, source = Failing(), listed(60)
    second = ask(model, source, tmp_path / "p")
    assert sorted(text for _, texts in model.calls for text in texts) == sorted(
        phrase.text for study in source.studies for phrase in study.phrases if {"7", "Nodule"} & {*phrase.text.split()}
    )
    assert set(source.loaded) == {failure.key.study for failure in first.failed}
    assert (second.failed, second.written, second.rows) == ((), len(first.failed), first.rows)
    assert second.reused == first.rows - len(first.failed)
    ask(Failing(), listed(60), tmp_path / "whole")
    assert rows_of(tmp_path / "p") == rows_of(tmp_path / "whole")
    assert (tmp_path / "p" / LIST).exists()
    third, untouched = Failing(), listed(60)
    ask(third, untouched, tmp_path / "p")
    assert (third.calls, untouched.built) == ([], [])


def test_questions_that_always_fail_do_not_make_a_model_that_has_answered_broken(tmp_path: Path) -> None:
    first = ask(Failing("Nodule"), listed(90), tmp_path / "p")
    assert len(first.failed) == 30
    assert sorted(ask(Failing("Nodule"), listed(90), tmp_path / "p").failed) == sorted(first.failed)
    assert len(rows_of(tmp_path / "p")) == first.rows


def test_a_kill_between_removing_failed_rows_and_writing_new_ones_loses_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(Failing("7"), listed(30), tmp_path / "p")
    kept = {key: row for key, row in rows_of(tmp_path / "p").items() if row.error is None}
    real = Path.replace
    written: list[Path] = []

    def replace(self: Path, target: Path) -> Path:
        if written:
            raise KeyboardInterrupt
        written.append(target)
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            ask(Failing(), listed(30), tmp_path / "p")
    assert rows_of(tmp_path / "p").items() >= kept.items()
    assert ask(Failing(), listed(30), tmp_path / "p").complete
    ask(Failing(), listed(30), tmp_path / "whole")
    assert rows_of(tmp_path / "p") == rows_of(tmp_path / "whole")


@pytest.mark.parametrize("count", [3, 12, 18])
def test_fewer_than_twenty_questions_that_all_fail_are_an_error_too(tmp_path: Path, count: int) -> None:
    with pytest.raises(InputError, match=rf"none of the {count} questions .* first error: .*ValueError: not today"):
        ask(Failing("Effusion", "Nodule"), listed(count), tmp_path / "p")


def write_image(file: Path, shade: int) -> None:
    """Write pixels that pass for a radiograph: brighter above, with a gradient across."""
    pixels = np.tile(np.arange(32, dtype=np.uint8), (32, 1))
    pixels[:16] += np.uint8(shade)
    PIL.Image.fromarray(pixels).save(file)


def write_manifest(folder: Path, shades: Sequence[int]) -> None:
    folder.mkdir(exist_ok=True)
    rows = []
    for number, shade in enumerate(shades):
        write_image(folder / f"{number}.png", shade)
        rows.append(
            f'{{"id": "s{number}", "patient": "p{number}", "file": "{number}.png", "phrases": [{{"text": "x"}}]}}'
        )
    (folder / "manifest.jsonl").write_text("\n".join(rows))


def packed(folder: Path) -> Path:
    archive = folder.with_suffix(".tar")
    with tarfile.open(archive, "w") as tar:
        tar.add(folder, arcname=".")
    return archive


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_answers_about_images_that_have_changed_are_refused_until_they_are_overwritten(
    tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "mine"
    write_manifest(folder, [100, 120, 140])
    address = f"manifest:{folder if kind == 'folder' else packed(folder)}"
    ask(Painter(), address, tmp_path / "p", ["none", "exchange-image"])
    before = rows_of(tmp_path / "p")
    assert ask(Painter(), address, tmp_path / "p", ["none", "exchange-image"]).written == 0

    write_image(folder / "1.png", 220)
    if kind == "tar":
        packed(folder)
    changed = "1 of 3 studies have changed (first: study 's1')" if kind == "folder" else "3 of 3 studies have changed"
    with pytest.raises(InputError) as caught:
        ask(Painter(), address, tmp_path / "p", ["none", "exchange-image"])
    assert str(tmp_path / "p") in str(caught.value)
    assert changed in str(caught.value)
    assert "--overwrite" in str(caught.value)
    assert rows_of(tmp_path / "p") == before
    ask(Painter(), address, tmp_path / "p", ["none", "exchange-image"], overwrite=True)
    ask(Painter(), address, tmp_path / "fresh", ["none", "exchange-image"])
    assert rows_of(tmp_path / "p") == rows_of(tmp_path / "fresh") != before


def test_an_image_that_could_not_be_read_is_asked_about_once_it_is_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    write_manifest(folder, [100, 120, 140])
    good = (folder / "1.png").read_bytes()
    (folder / "1.png").write_bytes(b"no image")
    conditions = ["none", "exchange-image"]
    first = ask(Painter(), f"manifest:{folder}", tmp_path / "p", conditions)
    assert len(first.failed) == 2
    (folder / "1.png").write_bytes(good)
    second = ask(Painter(), f"manifest:{folder}", tmp_path / "p", conditions)
    assert (second.failed, second.written, second.reused) == ((), 2, 4)
    ask(Painter(), f"manifest:{folder}", tmp_path / "fresh", conditions)
    assert rows_of(tmp_path / "p") == rows_of(tmp_path / "fresh")


def test_a_full_disk_while_failed_rows_are_replaced_leaves_each_question_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(Failing("7"), listed(30), tmp_path / "p")
    real, calls = Path.write_bytes, [0]

    def write_bytes(self: Path, data: bytes) -> int:
        calls[0] += 1
        if calls[0] == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_bytes)
        with pytest.raises(OutputError, match="No space left on device"):
            ask(Failing(), listed(30), tmp_path / "p")
    assert calls[0] > 1  # the end of the run has written what was waiting
    ask(Failing(), listed(30), tmp_path / "p")
    ask(Failing(), listed(30), tmp_path / "whole")
    assert rows_of(tmp_path / "p") == rows_of(tmp_path / "whole")


def test_an_image_rewritten_with_the_same_size_is_noticed_by_its_time(tmp_path: Path) -> None:
    write_manifest(tmp_path / "mine", [100, 120])
    source = open_source(f"manifest:{tmp_path / 'mine'}")
    before = source.image_identity(0)
    assert before == open_source(f"manifest:{tmp_path / 'mine'}").image_identity(0)
    file = tmp_path / "mine" / "0.png"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1000))
    assert before != source.image_identity(0)
    file.unlink()
    assert source.image_identity(0) is None
