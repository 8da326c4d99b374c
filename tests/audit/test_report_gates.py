"""Gates of reports, with reports whose answers are known: of an oracle, of a constant, and with planted faults."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rightlung.audit.report_gates import (
    EXCHANGED,
    MIRRORED,
    dependence_sentence,
    gate_protocol,
    gates_section,
    report_gate_conditions,
    report_gates,
)
from rightlung.audit.report_rows import ReportGate, above
from rightlung.audit.task_audit import audit_tasks
from rightlung.audit.task_measure import gates_of_reports
from rightlung.audit.task_run import TaskRun
from rightlung.audit.tasks import parts_of
from rightlung.lexicon import swap_sides
from rightlung.measuring import Targets, find_protocol, measure
from rightlung.measuring.store import MaskStore
from rightlung.measuring.targets import StudyLabels
from rightlung.models.base import WordSources
from rightlung.predictions import IMAGE_QUERY, Batch, Prediction, open_predictions
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.studies import open_source
from tests.models.fita.tiny import create

SETTINGS = BootstrapSettings(200)
SENTENCES = (
    "Large left pleural effusion.", "Right pneumothorax.", "The heart is enlarged.", "Left lower lobe atelectasis.",
    "Pulmonary edema.", "Right upper lobe consolidation.", "Small right pleural effusion.", "Left rib fracture.",
)  # fmt: skip
COUNT = 64
REFERENCES = {
    f"s{n}": f"{SENTENCES[n % 8]} {SENTENCES[(n // 8) % 8] if (n // 8) % 8 != n % 8 else 'The trachea is midline.'}"
    for n in range(COUNT)
}


def measured(answers: Mapping[str, Mapping[str, str]]) -> pa.Table:
    settings: dict[str, Any] = {"rules": [], "pixels": None, "seed": 0, "subsets": [], "limit": None}
    with MaskStore() as store:
        labels = {study: StudyLabels(f"p{study}", {}, text) for study, text in REFERENCES.items()}
        targets = Targets("made up", settings, store, labels=labels)
        rows = [
            Prediction(study, IMAGE_QUERY, condition, report=text)
            for condition, some in answers.items()
            for study, text in some.items()
        ]
        return measure([Batch.of(rows)], targets, gate_protocol(find_protocol("whole").applied_to(targets)))


def gates_of(answers: Mapping[str, Mapping[str, str]]) -> dict[str, ReportGate]:
    return {one.name: one for one in report_gates(measured(answers), SETTINGS)}


def exchanged() -> dict[str, str]:
    studies = [*REFERENCES]
    return {study: REFERENCES[studies[(n + 29) % COUNT]] for n, study in enumerate(studies)}


def test_an_oracle_depends_on_the_image_and_its_sides_follow() -> None:
    mirrored = {study: swap_sides(text) for study, text in REFERENCES.items()}
    gates = gates_of({"none": REFERENCES, EXCHANGED: exchanged(), MIRRORED: mirrored})
    assert (gates[EXCHANGED].answer, gates["own-image"].answer, gates[MIRRORED].answer) == ("yes", "yes", "yes")
    assert gates[MIRRORED].values["followed"].value == 1.0
    assert gates[MIRRORED].values["kept"].value == 1.0
    assert gates["own-image"].values["macro_mcc_13"].value == pytest.approx(1.0)
    assert gates["diversity"].answer == gates["diversity"].wanted == "yes"
    assert gates["noise-image"].answer == "not asked"
    sentence = dependence_sentence([*gates.values()])
    assert sentence.startswith("The reports depend on the image and are right about it. With another patient's image, ")


def test_a_constant_depends_on_nothing_and_is_collapsed() -> None:
    constant = dict.fromkeys(REFERENCES, "Large left pleural effusion. No pneumothorax.")
    gates = gates_of(dict.fromkeys(("none", EXCHANGED, "noise-image", "mean-image", MIRRORED), constant))
    assert {gates[name].answer for name in (EXCHANGED, "noise-image", "mean-image", MIRRORED, "diversity")} == {"no"}
    assert gates["own-image"].answer == "no"
    assert gates["own-image"].values["macro_mcc_13"].value == pytest.approx(0.0, abs=1e-12)
    assert gates["diversity"].values["most_frequent_generated"].value == 1.0
    assert gates["diversity"].values["bleu_4_of_others_generated"].value == pytest.approx(1.0)
    assert dependence_sentence([*gates.values()]).startswith("The reports do not depend on the image.")
    assert "do not depend on the image" in gates_section([*gates.values()]).paragraphs[0]


def test_reports_that_change_with_the_image_but_are_wrong_about_it_are_told_apart() -> None:
    wrong, studies = exchanged(), [*REFERENCES]
    other = {study: REFERENCES[studies[(n + 13) % COUNT]] for n, study in enumerate(studies)}
    gates = gates_of({"none": wrong, EXCHANGED: other})
    assert gates[EXCHANGED].answer == "yes"
    assert gates["own-image"].answer != "yes"


def test_the_share_that_changes_is_that_of_a_hand_calculation() -> None:
    before = dict.fromkeys(REFERENCES, "Large left pleural effusion. The heart is enlarged.")
    after = dict.fromkeys(REFERENCES, "Right pleural effusion.")
    gates = gates_of({"none": before, "saliency-mirrored": after})
    # Stated: {effusion, left effusion, cardiomegaly}, then {effusion, right effusion}: 3 of 4 differ.
    assert gates["saliency-mirrored"].values["change"].value == pytest.approx(0.75)
    assert gates["saliency-mirrored"].answer == "yes"


def test_planted_faults_are_found_and_clean_reports_are_cleared_if_there_are_enough() -> None:
    faulty = {study: f"{text} Unchanged. No pleural effusion." for study, text in REFERENCES.items()}
    gates = gates_of({"none": faulty})
    assert gates["earlier-study"].answer == "yes"
    assert gates["earlier-study"].values["share"].value == 1.0
    # Sentences 1 and 7 state an effusion; of 8 x 8 reports, 28 have one of them.
    assert gates["contradiction"].values["share"].value == pytest.approx(28 / 64)
    assert gates["contradiction"].answer == "yes"
    clean = gates_of({"none": REFERENCES})
    assert {clean[name].answer for name in ("earlier-study", "contradiction")} == {"no"}
    assert clean["earlier-study"].values["share"].value == 0.0


def test_the_words_that_name_sides_rest_on_the_image_or_on_the_text() -> None:
    table = measured({"none": REFERENCES})
    sources = {
        study: [WordSources("side", 0.1, 0.1, 0.8, 1), WordSources("finding", 0.6, 0.3, 0.1, 2)] for study in REFERENCES
    }
    gates = {one.name: one for one in report_gates(table, SETTINGS, sources)}
    assert (gates["attention-side"].answer, gates["attention-finding"].answer) == ("no", "yes")
    assert gates["attention-side"].values["text"].value == pytest.approx(0.8)


def test_an_answer_needs_the_whole_interval_and_enough_patients() -> None:
    few = "too few patients to tell"
    assert above(Estimate(0.5, 0.1, 0.9, patients=20), 0.05, 0.95) == "yes"
    assert above(Estimate(0.5, 0.01, 0.9, patients=20), 0.05, 0.95) == few
    assert above(Estimate(0.01, 0.0, 0.04, patients=20), 0.05, 0.95) == "no"
    # All signs alike have a p-value of 2 / 2**5 = 0.0625 with five patients, 2 / 2**6 = 0.03125 with six.
    assert [above(Estimate(1.0, 1.0, 1.0, patients=count), 0.05, 0.95) for count in (4, 5, 6)] == [few, few, "yes"]
    assert above(Estimate(1.0, 1.0, 1.0, patients=5), 0.05, 0.9) == "yes"


@pytest.mark.parametrize("count", [5, 6])
def test_the_clearest_reports_of_five_patients_answer_nothing_and_say_why(count: int) -> None:
    own = dict([*REFERENCES.items()][:count])
    other = {study: REFERENCES[f"s{n + 29}"] for n, study in enumerate(own)}
    gates = gates_of(
        {"none": own, EXCHANGED: other, MIRRORED: {study: swap_sides(text) for study, text in own.items()}}
    )
    answers = {gates[name].answer for name in (EXCHANGED, MIRRORED)}
    sentence = dependence_sentence([*gates.values()])
    if count == 6:
        assert answers == {"yes"}
        assert sentence.startswith("The reports depend on the image")
    else:
        assert answers == {gates["own-image"].answer} == {"too few patients to tell"}
        assert sentence.startswith("Too few patients to tell whether the reports depend on the image.")
        assert sentence.endswith("An answer needs 6 patients; there are 5.")


def test_a_model_is_asked_under_every_condition_and_a_file_is_judged_by_those_that_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)  # without METEOR, which takes seconds
    monkeypatch.setattr("rightlung.models.blind.reports.SENTENCES", 10)
    model, source = create(writing={"beams": 1, "max_words": 8}), open_source("phantom?count=6&size=64&seed=7")
    done = audit_tasks(model, source, tmp_path / "a", ["report"], name="tiny", gates=True, settings=SETTINGS, cases=0)
    gates = {one["name"]: one for one in done.result["tasks"]["report"]["gates"]}
    assert {*report_gate_conditions(model)} <= {*gates}
    assert all(one["answer"] != "not asked" for one in gates.values())
    assert {"attention-finding", "sentence-maps"} <= {*gates}
    assert not done.result["tasks"]["report"]["conditions"]  # the conditions of the gates do not fill the main table
    assert "Gates: can the reports be trusted?" in (tmp_path / "a" / "audit.html").read_text()

    run = TaskRun(open_predictions(tmp_path / "a" / "predictions-report"), source, tmp_path, settings=SETTINGS)
    (part,) = parts_of(["report"])
    known = run.known(part, source)
    assert known is not None
    of_file = gates_of_reports(run, known, run.what, done.parts[0].protocol)
    of_reports = [one for name, one in gates.items() if name != "sentence-maps" and "attention" not in name]
    assert [one.as_json() for one in of_file] == of_reports
