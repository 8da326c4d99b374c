"""``rightlung phantom``: write made-up studies as a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.output import print_json, say
from rightlung.core.progress import ProgressBars
from rightlung.phantom.config import default_config
from rightlung.phantom.faults import parse_faults
from rightlung.phantom.source import read_config
from rightlung.phantom.write import PhantomJob, write_phantom


def run(
    out: Path,
    count: int,
    seed: int,
    size: int | None,
    dicom: bool,
    shortcuts: Sequence[str],
    config_file: Path | None,
    json: bool,
) -> None:
    """Write what ``out`` does not hold yet of ``count`` studies, and say where they are."""
    config = default_config() if config_file is None else read_config(config_file)
    job = PhantomJob(out, config, count, seed, config.size if size is None else size, parse_faults(shortcuts), dicom)
    with ProgressBars(say) as shown:
        written = write_phantom(job, shown)
    address = f"manifest:{out}"
    if json:
        result = {"folder": str(out), "address": address, "studies": count, "written": written, "seed": seed}
        result |= {"size": job.size, "shortcuts": [str(fault) for fault in job.faults], "dicom": dicom}
        print_json(result | {"note": NOT_A_MEDICAL_DEVICE})
        return
    before = f", {count - written:,} of them there before" if written < count else ""
    say(f"{out}: {count:,} made-up studies of {job.size} pixels{before}")
    if job.faults:
        say(f"  planted: {', '.join(map(str, job.faults))}")
    say(f"  look at them: rightlung data show '{address}' --sheet {out / 'sheet.png'}")
    say(f"  made-up patients: no result on them is a result on people. {NOT_A_MEDICAL_DEVICE}")
