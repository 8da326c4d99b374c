import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rightlung.core import InputError, Polarity, Study
from rightlung.studies import Address, Source, open_source, parse_address, register_source, sources
from rightlung.studies.sources import absolute_address
from tests.studies.conftest import A, WriteData


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_openers", dict(sources._openers))


def refusal(address: str) -> str:
    with pytest.raises(InputError) as caught:
        open_source(address)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "scheme", "path", "parameters"),
    [
        ("phantom?count=500&seed=7", "phantom", "", {"count": "500", "seed": "7"}),
        ("manifest:/data/mine.tar?split=val&limit=1", "manifest", "/data/mine.tar", {"split": "val", "limit": "1"}),
        ("mimic:/data/mimic-cxr-jpg", "mimic", "/data/mimic-cxr-jpg", {}),
        ("manifest:C:\\data\\mine.tar", "manifest", "C:\\data\\mine.tar", {}),
        ("manifest:/a b/ü%20.tar", "manifest", "/a b/ü%20.tar", {}),
        ("manifest:/what?.tar?", "manifest", "/what?.tar", {}),
        ("manifest:/x?split=a%26b%3D%C3%BC+c", "manifest", "/x", {"split": "a&b=ü+c"}),
        ("phantom", "phantom", "", {}),
    ],
)
def test_an_address_is_taken_apart(text: str, scheme: str, path: str, parameters: dict[str, str]) -> None:
    address = parse_address(text)
    assert (address.scheme, address.path, dict(address.parameters)) == (scheme, path, parameters)
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "an address must be a string such as"),
        ("/data/mine.tar", "did you mean 'manifest:/data/mine.tar'?"),
        ("manifest:/x?limit", "a parameter is name=value; got 'limit'"),
        ("manifest:/x?=3", "a parameter is name=value; got '=3'"),
        ("manifest:/x?limit=1&limit=2", "parameter 'limit' is given twice"),
        ("manifest:/x?split=%ff", "is not UTF-8"),
        ("manifest:/x?spilt=val", "'spilt'; did you mean 'split'? Known: limit, split"),
    ],
)
def test_a_malformed_address_is_explained(text: str, reason: str) -> None:
    assert reason in refusal(text)


def test_an_unknown_scheme_suggests_the_nearest_that_exists() -> None:
    sentence = "unknown kind of source 'manifset'; did you mean 'manifest'? Known: "
    assert refusal("manifset:/x") == sentence + ", ".join(sources.source_schemes())


def test_relative_paths_of_an_address_become_absolute_where_they_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here/mine", "here/a b", "there/mine", "there/a b"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    here, there = tmp_path / "here", tmp_path / "there"
    assert absolute_address("manifest:mine?limit=3") == f"manifest:{here}/mine?limit=3"
    assert absolute_address("manifest:mine", there) == f"manifest:{there}/mine"
    assert absolute_address("manifest:../here/mine", there) == f"manifest:{here}/mine"
    assert absolute_address("mscxr:mine?images=a%20b&split=mine", there) == (
        f"mscxr:{there}/mine?images={there}/a%20b&split=mine"
    )
    for same in ("phantom?count=5&seed=3", "manifest:nowhere", f"manifest:{here}", "list", "manifest:~/mine", ""):
        assert absolute_address(same, there) == same
    (there / "mine").rmdir()
    assert absolute_address("manifest:mine", there) == f"manifest:{here}/mine"  # else the working folder's


def test_an_existing_path_is_told_how_to_become_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"did you mean 'manifest:{tmp_path}'?" in refusal(str(tmp_path))
    assert f"did you mean 'manifest:{tmp_path}?limit=3'?" in refusal(f"{tmp_path}?limit=3")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    assert refusal("data").startswith("data is a path")


@pytest.mark.parametrize("value", ["abc", "", "1.5", "-1", "0", "1_000", "٣", "9" * 5000])
def test_an_ill_typed_value_is_named(write_folder: WriteData, value: str) -> None:
    folder = write_folder([A])
    message = refusal(f"manifest:{folder}?limit={value}")
    assert f"limit must be an integer of at least 1; got {value!r}" in message


def test_a_registered_scheme_opens_and_cannot_be_taken(own_registry: None, write_folder: WriteData) -> None:
    folder = write_folder([A])
    seen: list[Address] = []

    def opener(address: Address) -> Source:
        seen.append(address)
        return open_source(f"manifest:{folder}")

    register_source("mine", opener)
    assert len(open_source("mine:there?colour=red")) == 1
    assert (seen[0].path, dict(seen[0].parameters)) == ("there", {"colour": "red"})
    assert " mine," in refusal("other:x")
    with pytest.raises(InputError, match="already registered"):
        register_source("manifest", opener)
    with pytest.raises(InputError, match="a scheme must consist"):
        register_source("My Source", opener)


def test_positions_and_ids_reach_the_same_studies(write_data: WriteData) -> None:
    rows = [{**A, "id": f"s/{number}", "age": number} for number in range(3)]
    source = open_source(f"manifest:{write_data(rows)}")
    assert len(source) == 3
    assert list(source.ids) == ["s/0", "s/1", "s/2"]
    assert [study.id for study in source] == list(source.ids)
    assert source[-1].age == source.study("s/2").age == source[2].age == 2
    with pytest.raises(IndexError, match="has 3 studies; there is none at position 3"):
        source[3]
    with pytest.raises(TypeError, match="for an id"):
        source["s/0"]  # type: ignore[index]
    with pytest.raises(InputError, match="no study 's/9'; did you mean 's/"):
        source.study("s/9")


def test_importing_and_opening_loads_neither_pillow_nor_torch(write_tar: WriteData) -> None:
    path = write_tar([A])
    program = (
        "import sys; from rightlung.studies import open_source; assert len(open_source(sys.argv[1])) == 1;"
        "print(sorted({'PIL', 'torch', 'rightlung.lexicon'} & set(sys.modules)))"
    )
    root = Path(sources.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program, f"manifest:{path}"],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_a_reader_that_lets_the_cores_own_error_through_loses_that_study_only() -> None:
    class Three(Source):
        ids = ("a", "b", "c")

        def _build(self, position: int) -> Study:
            findings: Any = {"mass": "maybe" if position == 1 else Polarity.POSITIVE}
            return Study(self.ids[position], lambda: np.zeros((1, 1), np.float32), findings=findings)

    source = Three("three")
    for _ in range(2):  # going through it again does not count it again
        assert [study.id for study in source] == ["a", "c"]
        (problem,) = source.problems
        assert "'b'" in str(problem)
        assert "maybe" in str(problem)


def test_any_source_can_be_cut_to_a_share_of_its_patients() -> None:
    whole = [*open_source("phantom?count=60&seed=7&size=64")]
    parts = [open_source(f"phantom?count=60&seed=7&size=64&patients={share}") for share in ("0-80", "80-100")]
    patients = [{study.patient for study in part} for part in parts]
    assert patients[0].isdisjoint(patients[1])
    assert patients[0] | patients[1] == {study.patient for study in whole}
    assert 40 <= len(parts[0]) < 60
    for part in parts:
        assert [*part.patients()] == [study.patient for study in part]
        assert [*part.ids] == [study.id for study in whole if study.patient in set(part.patients())]
        assert part.study(part.ids[-1]).id == part.ids[-1]
    for share in ("80-20", "0-101", "80", "a-b"):
        assert "two percentages" in refusal(f"phantom?count=4&seed=7&patients={share}")


def test_reports_of_any_source_can_be_cut_to_one_section() -> None:
    whole = open_source("phantom?count=4&seed=7&size=64")
    cut = open_source("phantom?count=4&report=findings&seed=7&size=64")
    assert ([*cut.ids], cut.address) == ([*whole.ids], "phantom?count=4&report=findings&seed=7&size=64")
    for one, other in zip(whole, cut, strict=True):
        assert one.report is not None
        findings = one.report.sections.get("findings", "").strip()
        assert (other.report and other.report.text) == (findings or None)
        assert other.phrases == one.phrases
    assert any(study.report and study.report.text for study in cut)
    assert "did you mean 'findings'" in refusal("phantom?report=finding")
