"""Written studies are the streamed ones, and a killed run ends where an unbroken one does."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rightlung import open_source
from rightlung.core import InputError, OutputError
from rightlung.phantom.config import PhantomConfig, default_config
from rightlung.phantom.faults import parse_faults
from rightlung.phantom.study import MASKS_IN_EXTRA
from rightlung.phantom.write import PhantomJob, write_phantom
from rightlung.studies import read_image
from rightlung.studies.images import read_mask

FAULTS = ("marker=0.9", "wrong-boxes=0.5")
SAME = ("id", "patient", "exam", "view", "split", "age", "sex", "phrases", "regions", "findings", "region_findings")


def job(folder: Path, count: int = 5, seed: int = 7, size: int = 64, *shortcuts: str) -> PhantomJob:
    return PhantomJob(folder, default_config(), count, seed, size, parse_faults(shortcuts))


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phantom") / "out"
    assert write_phantom(job(folder, 5, 7, 64, *FAULTS)) == 5
    return folder


def test_the_folder_reads_as_the_stream_does(written: Path) -> None:
    read = open_source(f"manifest:{written}")
    streamed = open_source("phantom?count=5&seed=7&size=64&shortcut=marker=0.9,wrong-boxes=0.5")
    assert list(read.ids) == list(streamed.ids)
    assert read.problems == []
    for one, other in zip(read, streamed, strict=True):
        assert np.abs(one.image - other.image).max() <= 0.5 / 255 + 1e-6
        for name in SAME:
            assert getattr(one, name) == getattr(other, name), name
        assert one.report is not None
        assert other.report is not None
        assert (one.report.text, one.report.sections) == (other.report.text, other.report.sections)
        for name, value in other.extra.items():
            if name not in MASKS_IN_EXTRA:
                assert one.extra[name] == value, name


def test_masks_of_anatomy_and_lesions_and_the_gaze_map_lie_in_the_folder(written: Path) -> None:
    streamed = open_source("phantom?count=5&seed=7&size=64")
    rows = [json.loads(line) for line in (written / "manifest.jsonl").read_text().splitlines()]
    for row, study in zip(rows, streamed, strict=True):
        stored = [(entry["label"], read_mask(written / entry["file"])) for entry in row["masks"]]
        assert stored[:3] == list(study.extra["anatomy_masks"].items())
        lesions = study.extra["lesion_masks"]
        assert [mask for _, mask in stored[3 : 3 + len(lesions)]] == list(lesions)
        devices = [one.mask for one in study.located_findings if "support devices" in one.findings]
        assert stored[3 + len(lesions) :] == [("support devices", mask) for mask in devices]
        gaze = np.array(row["gaze"]["values"]).reshape(row["gaze"]["grid"]) / row["gaze"]["units"]
        assert study.gaze is not None
        assert np.abs(gaze - study.gaze.values).max() <= 0.5e-5 + 1e-9


def test_pictures_are_grey_png_files_of_eight_bits_and_settings_give_the_configuration_back(written: Path) -> None:
    files = sorted((written / "images").iterdir())
    assert len(files) == 5
    assert all(file.read_bytes()[24:26] == b"\x08\x00" for file in files)  # bit depth 8, greyscale
    assert read_image(files[0]).shape == (64, 64)
    settings = json.loads((written / "phantom.json").read_text())
    assert PhantomConfig.from_mapping(settings["config"]) == default_config()
    assert settings["shortcuts"] == ["marker:pneumonia=0.9", "wrong-boxes=0.5"]
    assert "Synthetic" in settings["note"]


def test_a_second_run_writes_nothing_and_more_are_added_to_the_same(tmp_path: Path) -> None:
    assert write_phantom(job(tmp_path / "a", 2)) == 2
    before = content(tmp_path / "a")
    assert write_phantom(job(tmp_path / "a", 2)) == 0
    assert content(tmp_path / "a") == before
    assert write_phantom(job(tmp_path / "a", 4)) == 2
    write_phantom(job(tmp_path / "b", 4))
    assert content(tmp_path / "a") == content(tmp_path / "b")
    with pytest.raises(InputError, match="already contains 4 studies; --count 2 would remove some"):
        write_phantom(job(tmp_path / "a", 2))
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_studies_of_another_seed_size_or_fault_are_not_mixed_in(written: Path) -> None:
    before = content(written)
    for other, sentence in (
        (job(written, 5, 8, 64, *FAULTS), "another seed 7, not 8"),
        (job(written, 5, 7, 128, *FAULTS), "another size 64, not 128"),
        (job(written, 5, 7, 64), "another shortcuts"),
        (replace(job(written, 5, 7, 64, *FAULTS), config=replace(default_config(), female=0.1)), "another config"),
    ):
        with pytest.raises(InputError, match=sentence):
            write_phantom(other)
    assert content(written) == before


def test_somebody_elses_manifest_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text('{"id": "a", "file": "a.png"}\n')
    with pytest.raises(InputError, match="not a phantom's"):
        write_phantom(job(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.jsonl"]


# Dies at the n-th file that is saved, halfway through it; each child goes on where the one before died.
KILLS = """
import os, signal, sys
from pathlib import Path
import torch
from rightlung.phantom import write
from rightlung.phantom.config import default_config

torch.set_num_threads(1)
write._BATCH = 2
job = write.PhantomJob(Path(sys.argv[1]), default_config(), 6, 7, 64)
found = []
for last in (3, 14, 20, None):
    child = os.fork()
    if child == 0:
        real, saved = Path.write_bytes, [0]
        def save(path, data):
            saved[0] += 1
            if saved[0] == last:
                real(path, data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            real(path, data)
        Path.write_bytes = save
        code = 1
        try:
            write.write_phantom(job)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) == (last is not None), (last, status)
    part = Path(sys.argv[1]) / write.PART
    found.append(part.read_bytes().count(b"\\n") if part.exists() else -1)
print(*found)
"""


def test_a_killed_run_goes_on_and_ends_with_the_same_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path / "killed")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [int(number) for number in done.stdout.split()]
    assert rows == [*sorted(rows[:-1]), -1]
    assert rows[0] == 0
    assert 0 < rows[-2] < 6
    write_phantom(job(tmp_path / "whole", 6))
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_a_full_disk_is_an_output_error_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.suffix == ".png":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return written(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(OutputError, match=r"images/phantom-7-000000\.png: .*No space left"):
            write_phantom(job(tmp_path / "out", 1))
    assert not (tmp_path / "out" / "manifest.jsonl").exists()
    assert write_phantom(job(tmp_path / "out", 1)) == 1


def test_two_runs_do_not_write_into_one_folder_at_once(tmp_path: Path) -> None:
    def second(stage: str, done: float, total: float) -> None:
        with pytest.raises(InputError, match="another run is writing to this folder"):
            write_phantom(job(tmp_path / "out", 1))

    write_phantom(job(tmp_path / "out", 1), second)


def test_without_pydicom_one_sentence_says_so_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(InputError, match="writing DICOM needs pydicom: pip install pydicom"):
        write_phantom(PhantomJob(tmp_path / "out", default_config(), 1, 7, 64, dicom=True))
    assert not (tmp_path / "out").exists()


def test_dicom_files_hold_the_picture_and_say_that_it_is_synthetic(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    for name in ("a", "b"):
        write_phantom(PhantomJob(tmp_path / name, default_config(), 3, 7, 64, dicom=True))
    assert content(tmp_path / "a") == content(tmp_path / "b")
    studies = list(open_source("phantom?count=3&seed=7&size=64"))
    identifiers = set()
    for study in studies:
        data = pydicom.dcmread(tmp_path / "a" / "dicom" / f"{study.id}.dcm")
        assert (data.Modality, data.BodyPartExamined, data.ImageLaterality) == ("DX", "CHEST", "U")
        assert (data.ViewPosition, data.PatientSex, data.PatientID) == (study.view, study.sex, study.patient)
        assert data.PatientAge == f"{int(study.age or 0):03d}Y"
        assert (data.PatientIdentityRemoved, data.PhotometricInterpretation) == ("YES", "MONOCHROME2")
        assert list(data.PatientOrientation) == ["L", "F"]
        assert (data.BitsStored, data.HighBit, data.PixelRepresentation) == (12, 11, 0)
        pixels = np.frombuffer(data.PixelData, dtype="<u2").reshape(data.Rows, data.Columns)
        assert np.abs(pixels / 4095 - study.image).max() <= 0.5 / 4095 + 1e-6
        assert "Not a medical device" in data.ImageComments
        assert 250 < float(data.ImagerPixelSpacing[0]) * data.Columns < 600  # millimetres across the picture
        identifiers.add(data.SOPInstanceUID)
    assert len(identifiers) == 3


def test_a_row_that_is_cut_or_damaged_or_whose_file_is_gone_is_made_anew(tmp_path: Path) -> None:
    folder, manifest, part = tmp_path / "out", tmp_path / "out/manifest.jsonl", tmp_path / "out/manifest.jsonl.part"
    write_phantom(job(folder, 6))
    before = content(folder)
    (folder / "images" / "phantom-7-000003.png").unlink()
    assert write_phantom(job(folder, 6)) == 3
    assert content(folder) == before
    rows = manifest.read_bytes()
    for damaged, made_anew in ((rows + b"garbage\n", 0), (rows[:-100], 1)):
        part.write_bytes(damaged)
        manifest.unlink()
        assert write_phantom(job(folder, 6)) == made_anew
        assert content(folder) == before
