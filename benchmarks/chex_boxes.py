"""Fine-tune ChEX on the boxes of NIH ChestX-ray14, cross-validated over patients, and write one predictions file.

    python benchmarks/chex_boxes.py /data/nih.tar --out runs/chex-boxes --model runs/chex/detector/model
    rightlung audit runs/chex-boxes/predictions.parquet 'manifest:/data/nih.tar?split=boxes' --task detection \
      --boxes merge --tune cross-validate --out audits/chex-boxes

Each fold of patients is answered by a model (recipe ``chex-boxes``) that has seen the boxes of the other four. Folds
are those in which the audit tunes the scale of boxes. ``--model`` is the model to start from: in docs/results, that of
the stage ``detector`` of ``rightlung train chex-small --out runs/chex``; by default, the shipped `chex`. It needs a
GPU, or an hour.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import rightlung
from rightlung.asking import ask
from rightlung.models.blind.prior import FOLDS, fold_of
from rightlung.predictions.prediction import IMAGE_QUERY

FINDINGS = (
    "atelectasis", "cardiomegaly", "pleural effusion", "infiltration", "mass", "nodule", "pneumonia", "pneumothorax",
)  # fmt: skip


def write_folds(archive: Path, folder: Path) -> None:
    """Extract the images that have boxes, with the fold of their patient as the split."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as files:
        manifest = files.extractfile("manifest.jsonl")
        assert manifest is not None
        rows = [row for row in map(json.loads, manifest) if row["split"] == "boxes"]
        files.extractall(folder, [files.getmember(row["file"]) for row in rows], filter="data")
    for row in rows:
        row["split"] = f"fold-{fold_of(row['patient'], FOLDS)}"
    (folder / "manifest.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def train(archive: Path, folder: Path, model: str, fold: int, changes: list[str]) -> subprocess.Popen[bytes]:
    """Start the training on the boxes of all folds but one."""
    entries = [
        f"{{source: 'manifest:{folder / 'folds'}?split=fold-{other}', share: {0.5 / (FOLDS - 1)}, texts_per_image: 0, "
        "phrases_per_image: 0, missing_labels: negative}"
        for other in range(FOLDS)
        if other != fold
    ]
    entries.append(
        f"{{source: 'manifest:{archive}?split=train', share: 0.5, texts_per_image: 1, words_from: labels, "
        "missing_labels: negative, phrase_masks: none}"
    )
    settings = [f"model.start={model}", f"data.train=[{', '.join(entries)}]", *changes]
    command = [sys.executable, "-m", "rightlung", "train", "chex-boxes", "--out", str(folder / f"fold-{fold}")]
    return subprocess.Popen([*command, "--restart", *(part for one in settings for part in ("--set", one))])


def predict(folder: Path, archive: Path) -> None:
    """Ask each model about its own fold, and join the answers."""
    source = rightlung.open_source(f"manifest:{archive}?split=boxes")
    tables = []
    for fold in range(FOLDS):
        model = rightlung.load(str(folder / f"fold-{fold}" / "model"))
        own = {(study.id, IMAGE_QUERY) for study in source if fold_of(study.patient or "", FOLDS) == fold}
        out = folder / f"predictions-{fold}"
        ask(
            model, source, out, ["none"], queries=["image"], only=own, method="detect", findings=FINDINGS,
            model_name="chex, fine-tuned on boxes", overwrite=True,
        )  # fmt: skip
        tables.append(pa.concat_tables([pq.read_table(part) for part in sorted(out.glob("*.parquet"))]))
    pq.write_table(pa.concat_tables(tables).replace_schema_metadata(tables[0].schema.metadata),
                   folder / "predictions.parquet")  # fmt: skip


def main() -> None:
    """Train five models, and predict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="tar with the NIH images and their manifest")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="chex", help="the model to start from")
    parser.add_argument("--set", action="append", default=[], help="change of the recipe, as for rightlung train")
    parser.add_argument("--at-once", type=int, default=1, help="trainings at the same time")
    given = parser.parse_args()
    write_folds(given.archive, given.out / "folds")
    for first in range(0, FOLDS, given.at_once):
        folds = range(first, min(first + given.at_once, FOLDS))
        running = [train(given.archive, given.out, given.model, fold, given.set) for fold in folds]
        if any(one.wait() for one in running):
            sys.exit("a training failed")
    predict(given.out, given.archive)


if __name__ == "__main__":
    main()
