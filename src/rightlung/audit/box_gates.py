"""Gates of sentence grounding: do the boxes of a phrase depend on the finding, on the words, and on the side?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from rightlung.audit.gates import (
    RESPONSE,
    Gates,
    have_gates,
    judged,
    members_of,
    reasons_not_asked,
    twin_effects,
    without_answers,
)
from rightlung.measuring import Targets
from rightlung.measuring.boxes import detections_of, match_columns
from rightlung.predictions import Batch
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.gates import GATES, PLAIN
from rightlung.results.measured import Measured
from rightlung.studies import Source


def box_gates(
    table: pa.Table,
    batches: Iterable[Batch],
    targets: Targets,
    settings: BootstrapSettings,
    source: Source,
    left_out: Mapping[str, str] | None = None,
) -> Gates | None:
    """Return the verdicts about the boxes of phrases, from their instances and answers; None if no gate was asked."""
    measured = Measured.of({"model": table}, complete=False)
    if not have_gates(measured.conditions):
        return None
    target, scores = measured.targets[0], scores_at_targets(batches, targets)
    conditions = [name for name in GATES if name in measured.conditions]
    responses = {
        name: np.array([scores.get((*key, name), np.nan) for key in measured.keys]) for name in (PLAIN, *conditions)
    }
    changes = {
        name: np.fmax(abs(responses[name] - responses[PLAIN]), measured.value("model", "moved_mass", target, name))
        for name in conditions
    }
    members = members_of(~np.isnan(responses[PLAIN]), [tuple(names or ()) for names in measured.fact("findings")])
    estimator = measured.estimator(settings)
    return Gates(
        judged(estimator, members, responses, changes),
        "highest score of a box that overlaps the target (IoU of 0.1 or more), 0 without such a box",
        "the larger of two: the absolute difference of that score, and the map change (total variation between the "
        "maps or, without maps, the painted boxes), 0 to 1",
        without_answers(conditions, reasons_not_asked(source) | {**(left_out or {})}),
        twin_effects(estimator, members, {RESPONSE: responses}),
    )


def scores_at_targets(batches: Iterable[Batch], targets: Targets) -> dict[tuple[str, str, str], float]:
    """Return the highest score of a box that overlaps the phrase's target, by study, query and condition."""
    found: dict[tuple[str, str, str], float] = {}
    for batch in batches:
        boxes = batch.column("boxes")
        places = [place for place, some in enumerate(boxes) if some is not None]
        keys = [batch.keys[place] for place in places]
        columns = match_columns(
            [
                detections_of(boxes[place], targets.phrases[key.study, key.query].boxes)
                for place, key in zip(places, keys, strict=True)
            ]
        )
        for key, scores, matches in zip(keys, columns["box_scores"], columns["box_matches"], strict=True):
            hits = (score for score, matched in zip(scores, matches, strict=True) if matched & 1)
            found[key.study, key.query, key.condition] = max(hits, default=0.0)
    return found
