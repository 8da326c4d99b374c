"""How long a MIMIC-CXR-sized tree takes to open: the first time, when it is indexed, and every time after.

    python benchmarks/sources.py                 # 377,110 images of 227,835 studies, as in MIMIC-CXR-JPG 2.1.0
    python benchmarks/sources.py --images 20000

Tables and the archive of reports are written with made-up numbers in the published columns; there are no images. Each
stage runs in a process of its own, so that peak memory is its own. Beside it: what a user would do instead, reading
and joining the same tables with pandas.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

IMAGES, STUDIES = 377_110, 227_835
LABELS = (
    "Atelectasis,Cardiomegaly,Consolidation,Edema,Enlarged Cardiomediastinum,Fracture,Lung Lesion,Lung Opacity,"
    "No Finding,Pleural Effusion,Pleural Other,Pneumonia,Pneumothorax,Support Devices"
)
REPORT = "FINAL REPORT\n INDICATION: Cough.\n\n FINDINGS: Clear lungs. There is no effusion.\n\n IMPRESSION: Normal.\n"


def write_tree(root: Path, images: int) -> None:
    """Write tables and reports for so many images."""
    rng = random.Random(7)
    studies = max(1, images * STUDIES // IMAGES)
    exams = [(10_000_000 + number * 1_000_000 // studies * 9, 50_000_000 + number) for number in range(studies)]
    metadata, split, labels = [], [], []
    for number in range(images):
        patient, exam = exams[number % studies]
        dicom = "-".join(f"{rng.getrandbits(32):08x}" for _ in range(5))
        view = rng.choice(["AP", "PA", "LATERAL", "AP"])
        metadata.append(
            f"{dicom},{patient},{exam},CHEST (PA AND LAT),{view},3056,2544,21800506,213014.531,CHEST (PA AND LAT),"
            "postero-anterior,Erect\n"
        )
        split.append(f"{dicom},{exam},{patient},{rng.choice(['train'] * 30 + ['validate', 'test'])}\n")
    for patient, exam in exams:
        labels.append(f"{patient},{exam}," + ",".join(rng.choices(["", "", "", "1.0", "0.0", "-1.0"], k=14)) + "\n")
    header = (
        "dicom_id,subject_id,study_id,PerformedProcedureStepDescription,ViewPosition,Rows,Columns,StudyDate,StudyTime,"
        "ProcedureCodeSequence_CodeMeaning,ViewCodeSequence_CodeMeaning,PatientOrientationCodeSequence_CodeMeaning\n"
    )
    tables = {
        "metadata": header + "".join(metadata),
        "split": "dicom_id,study_id,subject_id,split\n" + "".join(split),
        "chexpert": f"subject_id,study_id,{LABELS}\n" + "".join(labels),
        "negbio": f"subject_id,study_id,{LABELS}\n" + "".join(labels),
    }
    for name, text in tables.items():
        (root / f"mimic-cxr-2.0.0-{name}.csv.gz").write_bytes(gzip.compress(text.encode(), 1))
    with zipfile.ZipFile(root / "mimic-cxr-reports.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for patient, exam in exams:
            archive.writestr(f"files/p{str(patient)[:2]}/p{patient}/s{exam}.txt", REPORT)
    (root / "files" / "p10").mkdir(parents=True)


def peak_mb() -> float:
    """Peak memory of this program so far. (``getrusage`` would count that of the process it was forked from.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def stage(name: str, root: Path) -> dict[str, float]:
    """Run one stage in this process and say how long it took and how much memory it needed."""
    from rightlung import open_source
    from rightlung.studies.index import IndexedSource

    before = peak_mb()
    start, start_cpu = time.perf_counter(), time.process_time()
    if name == "pandas":
        import pandas as pd

        tables = {
            kind: pd.read_csv(root / f"mimic-cxr-2.0.0-{kind}.csv.gz") for kind in ("metadata", "split", "chexpert")
        }
        joined = (
            tables["metadata"]
            .merge(tables["split"][["dicom_id", "split"]], on="dicom_id")
            .merge(tables["chexpert"], on="study_id")
        )
        count = int(joined.ViewPosition.isin(["AP", "PA"]).sum())
    else:
        source = open_source(f"mimic:{root}")
        assert isinstance(source, IndexedSource)
        count = len(source)
        if name == "one study by id":
            source.study(source.ids[count // 2])
        elif name == "2,000 studies with reports":
            for position in range(0, count, max(1, count // 2000)):
                _ = source[position]
    seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    return {"seconds": seconds, "cpu": cpu, "added_mb": peak_mb() - before, "count": count}


def main() -> None:
    """Write the tree, then time the stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        print(json.dumps(stage(options.stage, options.root)))
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "mimic-cxr-jpg"
        root.mkdir()
        write_tree(root, options.images)
        environment = {**os.environ, "RIGHTLUNG_CACHE": str(Path(folder) / "cache")}
        print(f"{options.images:,} images")
        for name in ("first opening", "second opening", "one study by id", "2,000 studies with reports", "pandas"):
            command = [sys.executable, __file__, "--stage", name, "--root", str(root)]
            run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            result = json.loads(run.stdout)
            figures = f"{result['seconds']:7.2f} s  {result['cpu']:7.2f} s CPU  {result['added_mb']:6.0f} MB more"
            print(f"  {name:28} {figures}   {result['count']:,} frontal")
        size = sum(path.stat().st_size for path in (Path(folder) / "cache").rglob("*") if path.is_file())
        print(f"  the index has {size / 2**20:.0f} MB")


if __name__ == "__main__":
    main()
