import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from rightlung.core import InputError, Study
from rightlung.studies import Source, open_source

WriteData = Callable[..., str]
A = {"id": "a", "file": "images/a.png"}
B = {"id": "b", "file": "images/b.png"}


def opened(path: str) -> Source:
    return open_source(f"manifest:{path}")


def _image_sum(study: Study) -> float:
    return float(study.image.sum())


def _sum_at(source: Source, position: int) -> float:
    return _image_sum(source[position])


def test_a_source_is_shared_by_threads_and_processes(write_data: WriteData) -> None:
    source = opened(write_data([A, B]))
    expected = [_image_sum(study) for study in source]
    assert expected[0] != expected[1]
    positions = [0, 1] * 20
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(_sum_at, [source] * 40, positions)) == expected * 20
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        assert list(processes.map(_sum_at, [source] * 4, positions[:4])) == expected * 2


def test_a_pickled_study_is_small_and_still_loads(write_tar: WriteData) -> None:
    rows = [{**A, "id": str(number)} for number in range(2000)]
    data = pickle.dumps(opened(write_tar(rows))[0])
    assert len(data) < 2000
    assert pickle.loads(data).image.shape == (6, 4)


def test_a_file_replaced_since_opening_is_noticed(write_data: WriteData) -> None:
    data = pickle.dumps(opened(write_data([A, B])))
    write_data([B, {**A, "patient": "p"}])
    with pytest.raises(InputError, match="has changed since it was opened"):
        pickle.loads(data)[0]
