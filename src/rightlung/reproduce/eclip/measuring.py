"""What is measured of every model besides its maps: zero-shot classes, retrieval, geometry, probes, a shortcut.

Each becomes a table of instances in the folder of the model. No map of an expert is used: a model sees plain images.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from rightlung.asking import answers
from rightlung.core import InputError
from rightlung.core.files import write_json, write_whole
from rightlung.core.keyed import key_uniform
from rightlung.core.progress import Progress
from rightlung.measuring import Protocol, Targets, find_protocol, measure, prepare_studies, write_instances
from rightlung.measuring.selections import find_selection, select
from rightlung.models.base import Embedder
from rightlung.models.probe import LinearProbe, ProbeSettings, fit_probe
from rightlung.models.zero_shot import PromptClassifier, prompt_ensemble
from rightlung.predictions import Prediction
from rightlung.reproduce.eclip.variants import SHORTCUT, STRENGTH
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.scoring.geometry import geometry
from rightlung.scoring.text_retrieval import TextPool
from rightlung.studies import open_source
from rightlung.studies.sources import Source

FINDINGS = (
    "atelectasis", "cardiomegaly", "consolidation", "edema", "emphysema", "lung opacity", "mass", "nodule",
    "pleural effusion", "pleural thickening", "pneumonia", "pneumothorax",
)  # fmt: skip
"""The findings that every model is asked for."""
SELECTIONS = {
    "5x": replace(find_selection("5x1"), name="5xN", per_class=None),
    "pneumonia": find_selection("pneumonia"),
}
"""Images that show one class alone, as many as the rarest class has: the counterparts of CheXpert 5×200 and RSNA."""
SHARES = (0.01, 0.1, 1.0)
"""Of the patients whose labels a probe learns from."""
PROBED = ("clip", "clip-m3", "clip-expert", "clip-tied", "gloria", "gloria-expert")
EMBEDDED = ("clip", "clip-expert")
"""Runs whose embeddings are kept, for the UMAP."""
BY_CHANCE, PLANTED = "shortcut-by-chance", "shortcut-planted"
SHORTCUT_STUDIES = 600
IMAGES_AT_ONCE = 256


def ask_more(model: object, predictions: Path, prepared: PreparedStudies, folder: Path, progress: Progress) -> None:
    """Measure what needs the model: one table each, in its folder."""
    if not isinstance(model, Embedder):
        return
    folder.mkdir(parents=True, exist_ok=True)
    source, targets, variant = prepared.source, prepared.targets, folder.name.partition("-seed")[0]
    progress(f"{folder.name}: zero-shot", 0, 4)
    _zero_shot(model, source, targets, folder)
    progress(f"{folder.name}: retrieval", 1, 4)
    embedded = _retrieval(model, source, targets, folder)
    if folder.name in EMBEDDED:
        embedded.keep(folder / "embeddings.safetensors")
    if variant in PROBED:
        progress(f"{folder.name}: linear probes", 2, 4)
        _probes(model, embedded, prepared, folder)
    if variant.startswith("shortcut-"):
        progress(f"{folder.name}: shortcut", 3, 4)
        _shortcut(model, folder)


def _write(folder: Path, name: str, rows: Iterable[Any], targets: Targets, protocol: Protocol) -> None:
    applied = protocol.applied_to(targets)
    if (table := measure(rows, targets, applied)).num_rows:
        write_instances(folder / f"{name}.parquet", table, applied, folder.name)


def _classified(model: object, source: Source, findings: Sequence[str] = FINDINGS) -> list[Any]:
    asked = partial(answers, queries=("image",), method="classify", batch_size=IMAGES_AT_ONCE)
    return list(asked(model, source, findings=findings))


def _zero_shot(model: Any, source: Source, targets: Targets, folder: Path) -> None:
    """Classify all images by prompts, and those of the selections."""
    classes = dict.fromkeys((*FINDINGS, "no finding"))
    rows = _classified(PromptClassifier(model, prompt_ensemble([*classes])), source, [*classes])
    _write(folder, "zero-shot", rows, _only(targets, FINDINGS), find_protocol("classification"))
    for name, selection in SELECTIONS.items():
        with suppress(InputError):  # few studies may lack a class
            chosen = replace(targets, labels=select(targets.labels, selection))
            protocol = replace(find_protocol("one-of-classes"), name=f"one-of-classes-{selection.name}")
            _write(folder, name, rows, chosen, protocol)


def _only(targets: Targets, findings: Sequence[str], studies: Iterable[str] | None = None) -> Targets:
    """Return the targets with some findings of some studies."""
    kept = targets.labels if studies is None else {study: targets.labels[study] for study in studies}
    labels = {
        study: replace(one, findings={name: how for name, how in one.findings.items() if name in findings})
        for study, one in kept.items()
    }
    return replace(targets, labels=labels)


@dataclass(frozen=True)
class Embedded:
    """The embeddings (studies, dimension) of images and of their reports."""

    studies: list[str]
    images: NDArray[np.float32] = field(repr=False)
    texts: NDArray[np.float32] = field(repr=False)

    def keep(self, path: Path) -> None:
        """Write them with half precision."""
        half = {"images": self.images.astype(np.float16), "texts": self.texts.astype(np.float16)}
        write_whole(path, lambda part: save_file(half, part, {"studies": json.dumps(self.studies)}))


def _retrieval(model: Any, source: Source, targets: Targets, folder: Path) -> Embedded:
    """Measure retrieval and geometry, and return the embeddings."""
    batches = list(
        answers(model, source, queries=("image", "reports"), method="embed", batch_size=IMAGES_AT_ONCE, boxes=None)
    )
    _write(folder, "retrieval", batches, targets, find_protocol("retrieval"))
    rows: list[Prediction] = [row for batch in batches for row in batch.predictions()]
    images = {row.study: row.image_embedding for row in rows if row.image_embedding is not None}
    texts = {row.study: row.text_embedding for row in rows if row.text_embedding is not None}
    both = [study for study in images if study in texts]
    found = Embedded(
        both,
        np.array([images[study] for study in both], np.float32),
        np.array([texts[study] for study in both], np.float32),
    )
    reports = [str(targets.labels[study].report) for study in both]
    _, first = np.unique(TextPool.of(reports).places(reports), return_index=True)  # distinct reports, see `geometry`
    measured = geometry(found.images[first], found.texts[first], _temperature(model))
    write_json(folder / "geometry.json", measured.as_json())
    return found


def _temperature(model: Any) -> float | None:
    """Return what the model divides cosines by in its loss; a GLoRIA has several such numbers, all constant."""
    scale = getattr(model, "scale", None)
    return None if scale is None else 1 / float(scale.detach() if hasattr(scale, "detach") else scale)


def _probes(model: Any, embedded: Embedded, prepared: PreparedStudies, folder: Path) -> None:
    """Fit probes to the images of half of the patients, with shares of their labels; measure them on the others."""
    targets, studies = _only(prepared.targets, FINDINGS), embedded.studies
    patients = [targets.labels[study].patient for study in studies]
    taught = np.array([key_uniform(0, "probe", patient) < 0.5 for patient in patients])
    truth = np.array([[_label(targets.labels[study].findings.get(name)) for name in FINDINGS] for study in studies])
    measured = _only(targets, FINDINGS, [study for study, learnt in zip(studies, taught, strict=True) if not learnt])
    owners = [patient for patient, learnt in zip(patients, taught, strict=True) if learnt]
    for settings in (*(ProbeSettings(share=share) for share in SHARES), ProbeSettings("five-epochs")):
        with suppress(InputError):  # few studies may show no finding
            weights = fit_probe(embedded.images[taught], truth[taught], owners, FINDINGS, settings)
            rows = _classified(LinearProbe(model, weights), prepared.source)
            name = f"{100 * settings.share:g}" if settings.protocol == "logistic" else settings.protocol
            protocol = replace(find_protocol("classification"), name="probe", resamples=250, labels=settings.sentence())
            _write(folder, f"probe-{name}", rows, measured, protocol)


def _label(polarity: str | None) -> float:
    return {"positive": 1.0, "negative": 0.0}.get(polarity or "", np.nan)


def _shortcut(model: Any, folder: Path) -> None:
    """Score pneumonia where the planted word goes with it, and where it stands in half of all studies, by chance."""
    classifier = PromptClassifier(model, prompt_ensemble(["pneumonia"]))
    protocol = find_protocol("classification")
    for name, strength in ((BY_CHANCE, 0), (PLANTED, STRENGTH)):
        source = open_source(f"phantom?count={SHORTCUT_STUDIES}&seed=19&size=128&shortcut={SHORTCUT}={strength}")
        with TemporaryDirectory() as place:
            kept, targets = prepare_studies(source, Path(place), replace(protocol, rules=("exact",), pixels=32))
            _write(folder, name, _classified(classifier, kept, ["pneumonia"]), _only(targets, ["pneumonia"]), protocol)
