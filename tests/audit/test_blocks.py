"""Large audits: in blocks, in several processes or on a Ray cluster, and continued after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rightlung
from rightlung.audit import Audit, audit, blocks
from rightlung.audit.blocks import UNFINISHED
from rightlung.core import InputError, OutputError, Study
from rightlung.measuring.workers import Workers, can_be_sent
from rightlung.models.blind import LocationPrior, PriorRow, fit_prior
from rightlung.predictions import open_predictions
from rightlung.predictions.blocks import Blocks
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.estimator import Deferred, Estimator
from rightlung.results.on_disk import TableOnDisk
from tests.audit.cards import QUICK, Cards, diagonal_map, fitted_prior, write_answers

COUNT = 16


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_answers(Cards(COUNT), tmp_path_factory.mktemp("blocks") / "p", diagonal_map, ("none", "swap-sides"))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROWS_PER_BLOCK", 30)


def run(written: Path, out: Path, source: Cards | None = None, **options: Any) -> Audit:
    return audit(written, source or Cards(COUNT), out, settings=QUICK, cases=1, **options)


@pytest.fixture(scope="module")
def once(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Audit:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "ROWS_PER_BLOCK", 30)
        return run(written, tmp_path_factory.mktemp("once") / "out")


def test_blocks_hold_every_row_once_and_all_rows_of_their_studies(written: Path) -> None:
    found = [*Blocks(open_predictions(written), 30)]
    assert len(found) > 2
    keys = [key for block in found for batch in block.batches() for key in batch.keys]
    assert sorted(keys) == sorted(open_predictions(written).keys())
    studies = [{key.study for batch in block.batches() for key in batch.keys} for block in found]
    assert [set(block.wanted) for block in found] == studies
    assert sum(map(len, studies)) == COUNT
    assert all(sum(len(rows) for _, rows in block.rows) >= 30 for block in found[:-1])


def test_blocks_do_not_depend_on_the_order_of_the_rows(written: Path, tmp_path: Path) -> None:
    table = pq.read_table(written)
    order = np.random.default_rng(0).permutation(len(table))
    pq.write_table(table.take(order), tmp_path / "mixed.parquet", row_group_size=7)
    mixed = run(tmp_path / "mixed.parquet", tmp_path / "out").table.to_pandas()
    plain = run(written, tmp_path / "plain").table.to_pandas()
    names = ["study", "query", "condition"]
    for name in ("auroc", "prior_average_precision", "moved_mass"):
        one, other = (frame.sort_values(names)[name].to_numpy() for frame in (mixed, plain))
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_blocks_give_the_numbers_of_one_block(
    written: Path, once: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "ROWS_PER_BLOCK", 10_000)
    whole = run(written, tmp_path / "out")
    assert whole.result["protocol"] == once.result["protocol"]
    assert whole.result["counts"] == once.result["counts"]
    one, other = (done.table.to_pandas().set_index(["study", "query", "condition"]) for done in (whole, once))
    for name in one.select_dtypes("number"):
        np.testing.assert_allclose(one[name], other.loc[one.index, name], rtol=1e-5, atol=1e-6, err_msg=name)
    first, second = (done.result["overall"]["auroc"]["model"] for done in (whole, once))
    assert first["estimate"] == pytest.approx(second["estimate"], rel=1e-9)
    assert (first["low"], first["high"]) == pytest.approx((second["low"], second["high"]), rel=1e-9)


def same_files(done: Audit, once: Audit) -> None:
    assert done.instances.read_bytes() == once.instances.read_bytes()
    assert done.result == once.result
    assert not (done.folder / UNFINISHED).exists()


def test_two_processes_write_the_same_file_as_one(written: Path, once: Audit, tmp_path: Path) -> None:
    same_files(run(written, tmp_path / "out", jobs=2), once)


def test_a_ray_cluster_writes_the_same_file_as_one_process(written: Path, once: Audit, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    same_files(run(written, tmp_path / "out", jobs=2, ray="local"), once)


def test_an_interrupted_audit_continues_with_what_is_left(
    written: Path, once: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(stage: str, done: float, total: float) -> None:
        if stage == "scoring" and done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(written, tmp_path / "out", progress=stop)
    parts = sorted((tmp_path / "out" / UNFINISHED).glob("part-*.parquet"))
    number = len(Blocks(open_predictions(written), 30))
    assert 1 < len(parts) < number
    calls = count_calls(monkeypatch, "_measured")
    gathered = count_calls(monkeypatch, "gather_targets")
    done = run(written, tmp_path / "out")
    assert (len(calls), len(gathered)) == (number - len(parts), 0)
    same_files(done, once)


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[None]:
    real: Callable[..., Any] = getattr(blocks, name)
    calls: list[None] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(None)
        return real(*arguments, **options)

    monkeypatch.setattr(blocks, name, counted)
    return calls


def test_an_interrupted_audit_of_other_settings_or_other_answers_is_not_continued(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(stage: str, done: float, total: float) -> None:
        if stage == "computing intervals":
            raise KeyboardInterrupt

    number = len(Blocks(open_predictions(written), 30))
    with pytest.raises(KeyboardInterrupt):
        run(written, tmp_path / "out", progress=stop)
    measured, gathered = count_calls(monkeypatch, "_measured"), count_calls(monkeypatch, "gather_targets")
    with pytest.raises(KeyboardInterrupt):  # another level: the same targets, other parts
        audit(
            written, Cards(COUNT), tmp_path / "out", settings=BootstrapSettings(resamples=200, level=0.9), progress=stop
        )
    assert (len(measured), len(gathered)) == (number, 0)
    other = write_answers(Cards(COUNT), tmp_path / "other", lambda *_: diagonal_map(*_), ("none", "swap-sides"))
    run(other, tmp_path / "out")
    assert (len(measured), len(gathered)) == (2 * number, number)


KILLED = """
import os, signal, sys
from pathlib import Path
from rightlung.audit import audit, blocks
from tests.audit.cards import QUICK, Cards

blocks.ROWS_PER_BLOCK = 30

def kill(stage, done, total):
    if stage == "scoring" and done > total / 3:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    audit(sys.argv[1], Cards(16), sys.argv[2], settings=QUICK, cases=1, jobs=2, progress=kill)
"""


def test_a_killed_audit_leaves_no_process_and_continues(written: Path, once: Audit, tmp_path: Path) -> None:
    root = Path(str(rightlung.__file__)).parents[2]
    (tmp_path / "killed.py").write_text(KILLED)
    path = os.pathsep.join([str(root / "src"), str(root)])
    killed = subprocess.run(
        [sys.executable, str(tmp_path / "killed.py"), str(written), str(tmp_path / "out")],
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        process_group=0,
    )  # fmt: skip  (capturing waits until every process has closed its output, so none outlives the first)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert any((tmp_path / "out" / UNFINISHED).glob("part-*.parquet"))
    same_files(run(written, tmp_path / "out"), once)


class Unsendable(Cards):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.answer = lambda: 42


class Broken(Cards):
    """A reader with an error of its own, or one that takes its process with it."""

    def __init__(self, count: int, dies: bool) -> None:
        super().__init__(count)
        self.dies = dies

    def _build(self, position: int) -> Study:
        if position == COUNT - 1:
            if self.dies:
                os._exit(1)
            raise OutputError("the disk is gone")
        return super()._build(position)


def test_what_goes_wrong_in_another_process_is_said_in_one_sentence(written: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"^the disk is gone$"):
        run(written, tmp_path / "out", Broken(COUNT, dies=False), jobs=2)
    with pytest.raises(OutputError, match="one of 2 processes ended before its work was done"):
        run(written, tmp_path / "out", Broken(COUNT, dies=True), jobs=2)
    with pytest.raises(InputError, match="source cards cannot be sent to other processes"):
        run(written, tmp_path / "out", Unsendable(COUNT), jobs=2)
    assert not can_be_sent(Unsendable(1))
    with pytest.raises(InputError, match="jobs must be at least 1; got 0"):
        Workers(0)


def test_work_is_handed_out_as_results_are_taken() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = Workers().each(_double, 3, items())
    assert [next(results), next(results)] == [0, 6]
    assert taken == [0, 1]


def _double(shared: int, item: int) -> int:
    return shared * 2 * item


def test_a_prior_learned_in_parts_is_that_of_all_rows() -> None:
    source = Cards(30)
    merged = LocationPrior()
    for part in ([0, 1, 2], [*range(3, 20)], [*range(20, 30)]):
        studies = [source[place] for place in part]
        phrases = [(str(study.patient), phrase) for study in studies for phrase in study.phrases]
        merged.merge(fit_prior(PriorRow(p, one.text, one.findings, one.mask) for p, one in phrases if one.mask))
    whole = fitted_prior(source)
    assert len(merged) == len(whole)
    assert merged.patients == whole.patients
    for phrase in source[0].phrases[:3]:
        for patient in (None, "patient-0", "patient-7"):
            one, other = (prior.map_of(phrase, patient=patient).values for prior in (merged, whole))
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_estimates_do_not_depend_on_how_many_are_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    columns, patients = rng.random((5, 40)), rng.integers(0, 12, 40)

    def estimates(least: int) -> list[Any]:
        monkeypatch.setattr("rightlung.results.estimator.VALUES_AT_ONCE", least)
        deferred = Deferred(Estimator(patients, BootstrapSettings(resamples=200)))
        found: list[Callable[[], Any]] = [deferred.mean(column) for column in columns]
        found += [deferred.difference(column, columns[0]) for column in columns[1:]]
        return [one() for one in found]

    assert estimates(1 << 23) == estimates(100) == estimates(1)


def test_a_table_on_disk_gives_what_the_table_gives(tmp_path: Path) -> None:
    table = pa.table({"a": [*range(10)], "b": [[str(n)] for n in range(10)], "c": np.linspace(0, 1, 10)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    found = TableOnDisk(tmp_path / "t.parquet")
    rows: Sequence[int] = [7, 0, 7, 9]
    assert found.take(np.array(rows)).to_pylist() == table.take(rows).to_pylist()
    assert found.take(np.array([], dtype=np.intp)).to_pylist() == []
    assert found.column("c").to_pylist() == table.column("c").to_pylist()
    assert (len(found), found.column_names, found.schema.names) == (10, ["a", "b", "c"], ["a", "b", "c"])
    assert found.view({"x": "b"}).take(np.array([4])).to_pylist() == [{"x": ["4"]}]
    assert [len(piece) for piece in found.pieces(["a"])] == [3, 3, 3, 1]
    assert found.filter(pa.compute.greater(table["a"], 7)).num_rows == 2  # whatever else a table can do


def test_json_of_an_audit_in_blocks_says_what_it_is(once: Audit) -> None:
    result = json.loads((once.folder / "audit.json").read_text(encoding="utf-8"))
    assert result["counts"]["rows"] == len(once.table)
    assert once.table.schema.metadata[b"rightlung.model"] == b"known"
    assert result["protocol"]["hash"].encode() in once.table.schema.metadata[b"rightlung.protocol"]
