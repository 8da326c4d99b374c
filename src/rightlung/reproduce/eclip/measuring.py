"""What is measured of every model besides its maps: zero-shot classes, retrieval, geometry, probes, a shortcut.

Each becomes a table of instances in the folder of the model. No map of an expert is used: a model sees plain images.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from rightlung.asking import answers
from rightlung.core import InputError
from rightlung.core.files import write_json
from rightlung.core.keyed import key_uniform
from rightlung.core.progress import Progress
from rightlung.measuring import Protocol, Targets, find_protocol, measure, prepare_studies, write_instances
from rightlung.measuring.selections import Selection, find_selection, select
from rightlung.models.base import Embedder
from rightlung.models.eclip.model import Eclip, EclipGloria
from rightlung.models.probe import LinearProbe, ProbeSettings, fit_probe
from rightlung.models.zero_shot import PromptClassifier, prompt_ensemble
from rightlung.predictions import IMAGE_QUERY, Batch, Prediction
from rightlung.reproduce.eclip.embeddings import EMBEDDED, EMBEDDINGS, Embedded, distinct, embeddings_of, group_of
from rightlung.reproduce.eclip.variants import SHORTCUT, STRENGTH
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.scoring.geometry import geometry
from rightlung.scoring.text_retrieval import IMAGE_TO_TEXT, TEXT_TO_IMAGE
from rightlung.studies import open_source
from rightlung.studies.sources import Source

FINDINGS = (
    "atelectasis", "cardiomegaly", "consolidation", "edema", "emphysema", "lung opacity", "mass", "nodule",
    "pleural effusion", "pleural thickening", "pneumonia", "pneumothorax",
)  # fmt: skip
"""The findings that every model is asked for."""
_FOURTEEN = find_selection("14x1").classes
NOT_SIMULATED = ("infiltration", "fibrosis")
SELECTIONS = {
    "5x": replace(find_selection("5x1"), name="5xN", per_class=None),
    "12x": Selection("12xN", tuple(name for name in _FOURTEEN if name not in NOT_SIMULATED)),
    "pneumonia": find_selection("pneumonia"),
}
"""Images that show one class alone, as many as the rarest class has: counterparts of 5×200, 14×100 and RSNA.

Synthetic studies have 12 of the 14 classes."""
SHARES = (0.01, 0.1, 1.0)
"""Of the patients whose labels a probe learns from."""
PROBED = ("clip", "clip-m3", "clip-expert", "clip-tied", "gloria", "gloria-expert")
WITH_EXPERTS = (Eclip, EclipGloria)
DIRECTIONS = (IMAGE_TO_TEXT, TEXT_TO_IMAGE)
BY_CHANCE, PLANTED = "shortcut-by-chance", "shortcut-planted"
SHORTCUT_STUDIES = 600
IMAGES_AT_ONCE = 256


def ask_more(model: object, predictions: Path, prepared: PreparedStudies, folder: Path, progress: Progress) -> None:
    """Measure what needs the model: one table each, in its folder."""
    if not isinstance(model, Embedder):
        return
    folder.mkdir(parents=True, exist_ok=True)
    source, targets, variant = prepared.source, prepared.targets, folder.name.partition("-seed")[0]
    progress(f"{folder.name}: retrieval", 0, 4)
    embedded = _retrieval(model, source, targets, folder)
    if variant in EMBEDDED:
        chosen = [study for study in embedded.studies if group_of(targets.labels[study].findings)]
        embedded.keep(folder / EMBEDDINGS, _expert_embeddings(model, source, chosen))
    progress(f"{folder.name}: zero-shot", 1, 4)
    _zero_shot(model, embedded, targets, folder)
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


class _Encoded:
    """A model whose images are already encoded; it is asked for them by number."""

    def __init__(self, model: Any, images: NDArray[np.float32]) -> None:
        self.images, self.encode_text = images, model.encode_text

    def encode_image(self, images: Sequence[Any]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.images[list(images)]
        return found


def _classified(classifier: Any, studies: Sequence[str], findings: Sequence[str]) -> list[Batch]:
    """Return the scores of an `_Encoded` model's classifier for all studies."""
    scores = np.asarray(classifier.classify(range(len(studies)), findings), np.float64)
    known = [place for place, name in enumerate(findings) if classifier.knows(name)]
    return _scored(scores[:, known], studies, [findings[place] for place in known])


def _scored(scores: NDArray[Any], studies: Sequence[str], findings: Sequence[str]) -> list[Batch]:
    """Return scores (studies, findings) as answers."""
    rows = zip(studies, scores.tolist(), strict=True)
    return [
        Batch.of(
            [
                Prediction(study, IMAGE_QUERY, finding_scores=dict(zip(findings, row, strict=True)))
                for study, row in rows
            ]
        )
    ]


def _by_prompts(model: Any, embedded: Embedded, findings: Sequence[str]) -> list[Batch]:
    """Return the probability of findings from their positive and negative prompts, as the model's own `classify`."""
    scale = 1 / (_temperature(model) or 1.0)
    return _scored(model.prompt_probabilities(embedded.images, findings, scale), embedded.studies, findings)


def _zero_shot(model: Any, embedded: Embedded, targets: Targets, folder: Path) -> None:
    """Tell for all images which findings are there, and of the selections which class each image shows."""
    rows = _by_prompts(model, embedded, FINDINGS)
    _write(folder, "zero-shot", rows, _only(targets, FINDINGS), find_protocol("classification"))
    classes = [*dict.fromkeys((*FINDINGS, *(name for one in SELECTIONS.values() for name in one.classes)))]
    classifier = PromptClassifier(_Encoded(model, embedded.images), prompt_ensemble(classes))
    rows = _classified(classifier, embedded.studies, classes)
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


def _expert_embeddings(model: Any, source: Source, studies: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    """Return the embeddings of expert images with the studies' own gaze, for a figure; nothing for other models."""
    if not isinstance(model, WITH_EXPERTS):
        return {}
    original = open_source(source.address)  # what is prepared has no gaze
    read = [original.study(study) for study in studies]
    looked = {study.id: (study.image, study.gaze) for study in read if study.gaze is not None}
    vectors = model.encode_image([image for image, _ in looked.values()], maps=[gaze for _, gaze in looked.values()])
    return dict(zip(looked, vectors, strict=True))


def _retrieval(model: Any, source: Source, targets: Targets, folder: Path) -> Embedded:
    """Measure retrieval in both directions and geometry, and return the embeddings."""
    batches = list(
        answers(model, source, queries=("image", "reports"), method="embed", batch_size=IMAGES_AT_ONCE, boxes=None)
    )
    applied = find_protocol("retrieval").applied_to(targets)
    ranks = measure(batches, targets, applied)
    for direction in DIRECTIONS:
        rows = ranks.filter(pc.equal(ranks["target"], direction))
        write_instances(folder / f"{direction}.parquet", rows, applied, folder.name)
    found = embeddings_of(batches)
    first = distinct([str(targets.labels[study].report) for study in found.studies])
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
            rows = _classified(LinearProbe(_Encoded(model, embedded.images), weights), studies, FINDINGS)
            name = f"{100 * settings.share:g}" if settings.protocol == "logistic" else settings.protocol
            protocol = replace(find_protocol("classification"), name="probe", resamples=250, labels=settings.sentence())
            _write(folder, f"probe-{name}", rows, measured, protocol)


def _label(polarity: str | None) -> float:
    return {"positive": 1.0, "negative": 0.0}.get(polarity or "", np.nan)


def _shortcut(model: Any, folder: Path) -> None:
    """Score pneumonia where the planted word goes with it, and where it stands in half of all studies, by chance."""
    protocol = find_protocol("classification")
    for name, strength in ((BY_CHANCE, 0), (PLANTED, STRENGTH)):
        source = open_source(f"phantom?count={SHORTCUT_STUDIES}&seed=19&size=128&shortcut={SHORTCUT}={strength}")
        with TemporaryDirectory() as place:
            kept, targets = prepare_studies(source, Path(place), replace(protocol, rules=("exact",), pixels=32))
            asked = answers(
                model, kept, queries=("image", "reports"), method="embed", batch_size=IMAGES_AT_ONCE, boxes=None
            )
            found = embeddings_of(asked)
            rows = _by_prompts(model, found, ["pneumonia"])
            _write(folder, name, rows, _only(targets, ["pneumonia"]), protocol)
