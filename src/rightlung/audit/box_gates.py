"""Gates of sentence grounding: do the boxes of a phrase depend on the finding, on the words, and on the side?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from rightlung.audit.gates import (
    LOCATION_PRIOR,
    RESPONSE,
    Gates,
    have_gates,
    judged,
    members_of,
    reasons_not_asked,
    twin_effects,
    without_answers,
)
from rightlung.measuring.boxes import INTERSECTIONS, UNIONS
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.estimator import Floats
from rightlung.results.gates import GATES, PLAIN
from rightlung.results.measured import Measured
from rightlung.studies import Source

BLIND = "blind-median"
"""The baseline whose response stands beside the model's: the median box of the same findings and side."""


def box_gates(
    table: pa.Table, settings: BootstrapSettings, source: Source, left_out: Mapping[str, str] | None = None
) -> Gates | None:
    """Return the verdicts about the boxes of phrases, None if no gate was asked."""
    measured = Measured.of({"model": table}, complete=False)
    if not have_gates(measured.conditions):
        return None
    target = measured.targets[0]

    def response(condition: str) -> Floats:
        areas = (
            [measured.value("model", name, target, condition) for name in names] for names in (INTERSECTIONS, UNIONS)
        )
        inside, union = map(np.array, areas)
        found: Floats = np.mean(inside / union, axis=0)
        return found

    conditions = [name for name in GATES if name in measured.conditions]
    responses = {name: response(name) for name in (PLAIN, *conditions)}
    changes = {
        name: np.fmax(abs(responses[name] - responses[PLAIN]), measured.value("model", "moved_mass", target, name))
        for name in conditions
    }
    responses[LOCATION_PRIOR] = response(BLIND)
    members = members_of(~np.isnan(responses[PLAIN]), [tuple(names or ()) for names in measured.fact("findings")])
    estimator = measured.estimator(settings)
    return Gates(
        judged(estimator, members, responses, changes),
        "IoU of the boxes with the target, averaged over box-score thresholds 0.1 to 0.5",
        "the larger of two: the absolute difference of that IoU, and the map change (total variation between the maps "
        "or, without maps, the painted boxes), 0 to 1",
        without_answers(conditions, reasons_not_asked(source) | {**(left_out or {})}),
        twin_effects(estimator, members, {RESPONSE: responses}),
    )
