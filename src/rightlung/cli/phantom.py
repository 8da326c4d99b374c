"""``rightlung phantom``: write synthetic studies as a manifest folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.output import finish, say
from rightlung.core.progress import ProgressBars
from rightlung.phantom.faults import parse_faults
from rightlung.phantom.source import open_config
from rightlung.phantom.write import PhantomJob, write_phantom


def run(
    out: Path,
    count: int,
    seed: int,
    size: int | None,
    dicom: bool,
    shortcuts: Sequence[str],
    config_file: Path | None,
    part: str | None,
    json: bool,
) -> None:
    """Write the studies that ``out`` does not hold yet, and print where they are."""
    config = open_config(config_file, part)
    job = PhantomJob(out, config, count, seed, config.size if size is None else size, parse_faults(shortcuts), dicom)
    with ProgressBars(say) as shown:
        written = write_phantom(job, shown)
    address = f"manifest:{out}"
    result = {"folder": str(out), "address": address, "studies": count, "written": written, "seed": seed}
    result |= {"part": config.part, "size": job.size, "shortcuts": [str(fault) for fault in job.faults], "dicom": dicom}

    def tell() -> None:
        before = f", {count - written:,} of them from an earlier run" if written < count else ""
        say(f"{out}: {count:,} synthetic studies of {job.size} pixels{before}")
        if job.faults:
            say(f"  planted shortcuts: {', '.join(map(str, job.faults))}")
        say(f"  to see some: rightlung data show '{address}' --sheet {out / 'sheet.png'}")
        say(f"  Results on synthetic patients say nothing about real ones. {NOT_A_MEDICAL_DEVICE}")

    finish(json, result | {"note": NOT_A_MEDICAL_DEVICE}, tell)
