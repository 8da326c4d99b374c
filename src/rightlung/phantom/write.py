"""Write synthetic studies as a `manifest` folder that `open_source` reads, and resume an interrupted run.

The files of a batch are written first, then its rows are appended to ``manifest.jsonl.part``; the last step renames
that to ``manifest.jsonl``. An existing manifest is therefore complete, and an interrupted run resumes after the last
complete row. ``phantom.json`` holds the settings; studies with other settings are not mixed in.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.core import InputError, Mask, Study
from rightlung.core.files import folder_lock, not_written, read_json, write_json
from rightlung.core.keyed import key_digest
from rightlung.core.progress import Progress, no_progress
from rightlung.core.settings import plain_settings
from rightlung.phantom.config import PhantomConfig, check_picture_size, read_data
from rightlung.phantom.faults import Fault
from rightlung.phantom.image.anatomy import FIELD
from rightlung.phantom.source import check_range
from rightlung.phantom.study import MASKS_IN_EXTRA, make_studies, study_id

SETTINGS = "phantom.json"
MANIFEST = "manifest.jsonl"
PART = "manifest.jsonl.part"
FOLDERS = ("images", "masks")
SYNTHETIC = f"Synthetic image of a patient who never existed (rightlung phantom). {NOT_A_MEDICAL_DEVICE}"
_BATCH = 16
_GAZE_UNITS = 100_000
_DX_IMAGE = "1.2.840.10008.5.1.4.1.1.1.1"  # Digital X-Ray Image Storage, for presentation


@dataclass(frozen=True)
class PhantomJob:
    """The contents of a folder: studies 0 to ``count - 1`` of a seed."""

    folder: Path
    config: PhantomConfig
    count: int
    seed: int
    size: int
    faults: tuple[Fault, ...] = ()
    dicom: bool = False

    def __post_init__(self) -> None:
        check_range(self.count, self.seed)
        check_picture_size(self.size)

    def settings(self) -> dict[str, Any]:
        """Return everything that determines a study of the folder, without the number of studies."""
        return {
            "made_by": f"rightlung {__version__}",
            "seed": self.seed,
            "part": self.config.part,
            "size": self.size,
            "shortcuts": [str(fault) for fault in self.faults],
            "dicom": self.dicom,
            "config": plain_settings(self.config),
            "note": SYNTHETIC,
        }


def write_phantom(job: PhantomJob, progress: Progress = no_progress) -> int:
    """Write the missing studies and return their number."""
    if job.dicom:
        _pydicom()
    try:
        _claim(job)
        for name in (*FOLDERS, "dicom") if job.dicom else FOLDERS:
            (job.folder / name).mkdir(exist_ok=True)
        with (
            folder_lock(job.folder, InputError(f"{job.folder}: another run is writing to this folder")),
            (job.folder / PART).open("a+b") as rows,
        ):
            there = _resume(job, rows)
            progress("making studies", there, job.count)
            for begin in range(there, job.count, _BATCH):
                indices = range(begin, min(begin + _BATCH, job.count))
                studies = make_studies(job.config, job.seed, indices, job.size, faults=job.faults)
                lines = [json.dumps(_write_study(job, study), separators=(",", ":")) for study in studies]
                rows.write("".join(f"{line}\n" for line in lines).encode())
                rows.flush()
                progress("making studies", indices.stop, job.count)
            os.fsync(rows.fileno())
            (job.folder / PART).replace(job.folder / MANIFEST)
    except OSError as error:
        raise not_written(Path(error.filename or job.folder), error) from error
    return job.count - there


def _claim(job: PhantomJob) -> None:
    """Create the folder, or check that it was made with the same settings."""
    folder, wanted = job.folder, job.settings()
    path = folder / SETTINGS
    if not path.exists():
        if (folder / MANIFEST).exists():
            raise InputError(f"{folder} already contains a {MANIFEST} that is not a phantom's; choose another folder")
        write_json(path, wanted)
        return
    try:
        found = read_json(path)
    except InputError as error:
        raise InputError(f"{error}; remove the folder or choose another") from None
    for name, value in wanted.items():
        if found.get(name) != value:
            had, asked = ("", "") if name == "config" else (f" {found.get(name)!r}", f", not {value!r}")
            raise InputError(
                f"{folder} contains studies with another {name}{had}{asked}; use the same or choose another folder"
            )


def _resume(job: PhantomJob, rows: BinaryIO) -> int:
    """Return the number of complete studies, leaving ``rows`` at the end of the last complete row."""
    finished = job.folder / MANIFEST
    if finished.exists() and rows.seek(0, os.SEEK_END) < finished.stat().st_size:
        # A finished folder is extended: continue from a copy, so that it stays readable meanwhile.
        rows.truncate(0)
        with finished.open("rb") as source:
            shutil.copyfileobj(source, rows)
    rows.seek(0)
    there, end = 0, 0
    for line in rows:
        if not _is_whole(job, line, study_id(job.seed, there, job.config.part)):
            break
        there, end = there + 1, end + len(line)
    if there > job.count:
        if finished.exists():
            (job.folder / PART).unlink()
        raise InputError(f"{job.folder} already contains {there:,} studies; --count {job.count:,} would remove some")
    rows.truncate(end)
    rows.seek(end)
    return there


def _is_whole(job: PhantomJob, line: bytes, expected: str) -> bool:
    """Whether a row is complete, is the expected one, and has its files; rows after the first bad one are redone."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return False
    if not isinstance(row, dict) or row.get("id") != expected:
        return False
    masks = [entry["file"] for entry in row["masks"]]
    masks += [phrase["mask"] for phrase in row["phrases"] if phrase["mask"] is not None]
    dicom = [row["dicom"]] if job.dicom else []
    return all((job.folder / name).exists() for name in (row["file"], *masks, *dicom))


def _write_study(job: PhantomJob, study: Study) -> dict[str, Any]:
    """Write a study's files and return its row."""
    image = f"images/{study.id}.png"
    (job.folder / image).write_bytes(_png((study.image * 255.0).round().astype(np.uint8)))
    if job.dicom:
        (job.folder / "dicom" / f"{study.id}.dcm").write_bytes(_dicom_bytes(study))
    files: dict[bytes, str] = {}

    def stored(mask: Mask) -> str:
        """Write a mask once, however many phrases share it."""
        key = np.packbits(mask.pixels).tobytes()
        if key not in files:
            files[key] = f"masks/{study.id}-{len(files)}.png"
            (job.folder / files[key]).write_bytes(_png(mask.pixels))
        return files[key]

    lesions = study.extra["scene"]["lesions"]
    devices = [one for one in study.located_findings if "support devices" in one.findings]
    labelled = [*study.extra["anatomy_masks"].items()]
    labelled += [(lesion["finding"], mask) for lesion, mask in zip(lesions, study.extra["lesion_masks"], strict=True)]
    labelled += [("support devices", one.mask) for one in devices]
    report = study.report
    return {
        "id": study.id,
        "file": image,
        **({"dicom": f"dicom/{study.id}.dcm"} if job.dicom else {}),
        "patient": study.patient,
        "view": study.view,
        "age": study.age,
        "sex": study.sex,
        "text": report.text if report else None,
        "sections": dict(report.sections) if report else {},
        "findings": dict(study.findings),
        "phrases": [
            {
                "text": phrase.text,
                "boxes": [list(box.as_tuple()) for box in phrase.boxes],
                "mask": stored(phrase.mask) if phrase.mask is not None else None,
                "regions": list(phrase.regions),
                "findings": dict(phrase.findings),
                "locations": {finding: list(regions) for finding, regions in phrase.locations.items()},
            }
            for phrase in study.phrases
        ],
        "regions": {name: list(box.as_tuple()) for name, box in study.regions.items()},
        "region_findings": {name: dict(findings) for name, findings in study.region_findings.items()},
        "boxes": [{"label": lesion["finding"], "box": box} for lesion in lesions for box in lesion["boxes"]],
        "masks": [{"label": label, "file": stored(mask)} for label, mask in labelled],
        **{name: value for name, value in study.extra.items() if name not in MASKS_IN_EXTRA},
        "gaze": _gaze(study),
    }


def _gaze(study: Study) -> dict[str, Any] | None:
    """Return the gaze map in row order, in hundred-thousandths of the viewing time."""
    if study.gaze is None:
        return None
    values = (study.gaze.values.astype(np.float64) * _GAZE_UNITS).round().astype(int)
    return {"grid": list(study.gaze.grid), "units": _GAZE_UNITS, "values": values.ravel().tolist()}


def _png(pixels: NDArray[np.uint8] | NDArray[np.bool_]) -> bytes:
    """Return a PNG with 8 bits per pixel, or 1 for a mask; image noise is well above 1/255, so 8 bits suffice."""
    import PIL.Image

    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, format="PNG", compress_level=4)
    return file.getvalue()


def _pydicom() -> Any:
    try:
        return importlib.import_module("pydicom")
    except ImportError:
        raise InputError("writing DICOM needs pydicom: pip install pydicom") from None


def _uid(*key: object) -> str:
    """Return a unique identifier that depends only on ``key`` (a UUID under 2.25)."""
    digest = key_digest(*key, size=16)
    return f"2.25.{int.from_bytes(digest, 'big')}"


def _dicom_bytes(study: Study) -> bytes:
    """Return the image as a DX object of 12 bits; it does not depend on when or where it was written."""
    pydicom = _pydicom()
    exposure = study.extra["scene"]["exposure"]
    height, width = study.image.shape
    spacing = 10.0 * FIELD / exposure["zoom"] / width
    key = (study.id, json.dumps(study.extra["faults"], sort_keys=True), width)
    meta = pydicom.dataset.FileMetaDataset()
    meta.MediaStorageSOPClassUID = _DX_IMAGE
    meta.MediaStorageSOPInstanceUID = _uid(*key, "instance")
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.ImplementationClassUID = _uid("rightlung")
    data = pydicom.dataset.Dataset()
    data.file_meta = meta
    values: dict[str, Any] = {
        **read_data("dicom.toml"),
        "SOPClassUID": _DX_IMAGE,
        "SOPInstanceUID": meta.MediaStorageSOPInstanceUID,
        "StudyInstanceUID": _uid(*key, "study"),
        "SeriesInstanceUID": _uid(*key, "series"),
        "FrameOfReferenceUID": _uid(*key, "frame"),
        "PatientID": study.patient,
        "PatientName": f"PHANTOM^{study.patient}",
        "PatientSex": study.sex,
        "PatientAge": f"{round(study.age or 0):03d}Y",
        "StudyID": study.id,
        "SoftwareVersions": __version__,
        "ViewPosition": study.view,
        "ImageComments": SYNTHETIC,
        "BurnedInAnnotation": "YES" if exposure["marker"] != "none" or exposure["text_box"] else "NO",
        "PositionerType": "NONE" if exposure["portable"] else "COLUMN",
        "ImagerPixelSpacing": [round(spacing, 6), round(spacing, 6)],
        "Rows": height,
        "Columns": width,
    }
    for name, value in values.items():
        setattr(data, name, value)
    view = ("272479007", "Postero-anterior") if study.view == "PA" else ("399348003", "Antero-posterior")
    for name, (code, meaning) in (("AnatomicRegionSequence", ("43799004", "Chest")), ("ViewCodeSequence", view)):
        item = pydicom.dataset.Dataset()
        item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = code, "SCT", meaning
        setattr(data, name, [item])
    data.PixelData = (study.image * 4095.0).round().astype("<u2").tobytes()
    data["PixelData"].VR = "OW"
    file = io.BytesIO()
    pydicom.dcmwrite(file, data, enforce_file_format=True)
    return file.getvalue()
