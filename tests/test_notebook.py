"""The notebook in ``examples`` runs from top to bottom, and shows what it says."""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch

NOTEBOOK = Path(__file__).parents[1] / "examples" / "ask_and_audit.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: return the value of its last line where that is an expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), str(NOTEBOOK), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch on one thread: several of them slow each other down where tests share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_the_notebook_runs_and_its_audit_is_a_data_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    plt.switch_backend("agg")
    plt.close("all")  # figures that other tests left
    names: dict[str, Any] = {}
    shown = [run("".join(cell["source"]), names) for cell in CELLS if cell["cell_type"] == "code"]
    assert len(plt.get_fignums()) == 4
    plt.close("all")
    assert shown[1]._repr_html_().startswith("<figure><img src=")  # the study
    changes = shown[-2].set_index("measure")
    assert changes.value["average_precision"] < 0 < changes.value["abstention"]
    assert names["instances"].study.nunique() == 20


def test_the_notebook_holds_no_outputs() -> None:
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in CELLS)
