"""The linear probe of ``--task probe``: fitted on the embeddings of another source's images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rightlung.asking import ask
from rightlung.audit.task_known import Known
from rightlung.audit.tasks import TaskPart
from rightlung.core import InputError
from rightlung.lexicon.findings import canonical_finding
from rightlung.models.probe import LinearProbe, fit_probe
from rightlung.predictions import Predictions, open_predictions
from rightlung.studies import open_source

if TYPE_CHECKING:
    from rightlung.audit.task_run import TaskRun

Floats = NDArray[np.float64]


def fitted_probe(run: TaskRun, part: TaskPart, known: Known) -> LinearProbe:
    """Return a linear probe of the model, fitted on the training source."""
    assert run.train is not None, "checked before"
    source = open_source(run.train) if isinstance(run.train, str) else run.train
    taught = run.known(part, source)
    if taught is None:
        raise InputError(f"{source.address} lacks {part.needs}")
    here, there = ({one.patient for one in some.asked.queries.values()} for some in (known, taught))
    if here & there:
        raise InputError(
            f"patient {min(here & there)!r} is both in {source.address} and in {known.source.address}: a probe "
            "must be measured on other patients than it learns from"
        )
    classes = tuple(name for name in known.asked.classes if name in taught.asked.classes)
    if not classes:
        raise InputError(f"{source.address} and {known.source.address} have no finding in common")
    tell = partial(run.progress, "asking: embeddings of the training images")
    summary = ask(
        run.what, source, run.folder / "embeddings-probe-train", queries=("image",), only=taught.asked.queries,
        method="embed", model_name=run.name, batch_size=run.batch_size, overwrite=run.overwrite, progress=tell,
    )  # fmt: skip
    weights = fit_probe(*labelled_embeddings(open_predictions(summary.folder), taught, classes), run.probing(part))
    among = f"among the labels of {source.address} that it learns from"
    run.problems += [f"{part.title}: {name} has one class only {among}" for name in weights.left_out]
    return LinearProbe(run.what, weights)


def labelled_embeddings(
    predictions: Predictions, known: Known, classes: Sequence[str]
) -> tuple[Floats, Floats, list[str], tuple[str, ...]]:
    """Return embeddings (n, dimension) of images, labels (n, classes; NaN: unknown), patients, and the classes."""
    features, truth, patients = [], [], []
    for one in (one for batch in predictions.batches() for one in batch.predictions()):
        labels = known.asked.queries.get((one.study, one.query))
        if labels is None or one.image_embedding is None:
            continue
        polarities = {canonical_finding(name): polarity for name, polarity in labels.findings.items()}
        features.append(one.image_embedding)
        truth.append([{"positive": 1.0, "negative": 0.0}.get(polarities.get(name, ""), np.nan) for name in classes])
        patients.append(labels.patient)
    return np.array(features, np.float64), np.array(truth), patients, tuple(classes)
