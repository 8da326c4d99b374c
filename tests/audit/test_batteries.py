from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rightlung.audit import audit
from rightlung.audit.batteries import BATTERIES, TrialResult, battery_conditions, conditions_of, judge_maps
from rightlung.audit.battery_texts import text_trials
from rightlung.cli.audit import chosen_batteries
from rightlung.core import Grounding, Heatmap, Image, InputError, Phrase, Query
from rightlung.predictions import IMAGE_QUERY, Key, Prediction, PredictionWriter
from rightlung.probes import PROBES, Setting, find_probe
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.measured import Measured
from tests.asking.models import picture
from tests.audit.oracle import Ward

SETTINGS = BootstrapSettings(resamples=200, flips=200)
PATIENTS = 8


def table(columns: Mapping[str, Mapping[str, float]]) -> pa.Table:
    """Return instances of one phrase of each of eight patients, the same values for all, by condition."""
    plain = {"abstention": 0.0, "average_precision": 0.5}
    every: dict[str, Mapping[str, float]] = {"none": {}, **columns}
    rows = [
        {
            "study": f"s{n}", "query": "phrase:0", "condition": condition, "target": "own", "patient": f"p{n}",
            "polarity": "positive", "moved_mass": np.nan, "moved_peak": np.nan, "turned_mass": np.nan,
            "turned_peak": np.nan, "reason": "", **plain, **values,
        }
        for condition, values in every.items()
        for n in range(PATIENTS)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows)


def measured(instances: pa.Table) -> Measured:
    return Measured.of({"model": instances}, complete=False)


def shares(name: str, columns: Mapping[str, Mapping[str, float]]) -> tuple[dict[str, float], list[str]]:
    found = judge_maps([name], measured(table(columns)), [], SETTINGS)
    return {one.condition: one.share.value for one in found.trials}, [one.mark for one in found.verdicts()]


@pytest.mark.parametrize(
    ("battery", "values", "share", "mark"),
    [
        ("negation", {"moved_mass": 0.35}, 1.0, "yes"),
        ("negation", {"moved_mass": 0.25}, 0.0, "no"),  # the yardstick moves by 0.6, so up to 0.3 a map stays
        ("negation", {"moved_mass": 0.0, "abstention": 0.9}, 1.0, "yes"),  # declines
        ("negation", {"abstention": 0.9}, 1.0, "yes"),  # an empty map has no change
        ("severity", {"moved_mass": 0.25}, 1.0, "yes"),
        ("severity", {"moved_mass": 0.35}, 0.0, "no"),
        ("severity", {"moved_mass": 0.25, "abstention": 0.9}, 0.0, "no"),
        ("region-hints", {"average_precision": 0.46}, 1.0, "yes"),
        ("region-hints", {"average_precision": 0.44}, 0.0, "no"),
        ("mirror", {"moved_mass": 0.9, "turned_mass": 0.1}, 1.0, "yes"),
        ("mirror", {"moved_mass": 0.0, "turned_mass": 0.9}, 0.0, "no"),
    ],
)
def test_maps_are_judged_by_their_expectation(battery: str, values: dict[str, float], share: float, mark: str) -> None:
    condition = next(iter(BATTERIES[battery].trials))
    found, marks = shares(battery, {"random-sentence": {"moved_mass": 0.6}, condition: values})
    assert (found, marks) == ({condition: share}, [mark])


def test_following_the_image_is_to_be_nearer_after_turning_back() -> None:
    image, textbook = {"moved_mass": 0.8, "turned_mass": 0.7}, {"moved_mass": 0.1, "turned_mass": 0.7}
    found, marks = shares("orientation", {"rotate-90": image, "rotate-90-unmarked": textbook})
    assert found["rotate-90"] == 1.0
    assert found["rotate-90-unmarked"] == 0.0
    assert np.isnan(found["rotate-180"])
    assert marks == ["no"]  # "unmarked" and the others were not asked
    results = judge_maps(
        ["orientation"], measured(table({"rotate-90": image, "rotate-90-unmarked": textbook})), [], SETTINGS
    )
    assert results.markers["rotate-90"].value == 1.0


def test_a_battery_without_answers_is_not_tested_and_few_patients_are_unclear() -> None:
    assert shares("synonyms", {})[1] == ["not tested"]
    few = table({"synonym": {"moved_mass": 0.0}}).slice(0, 20)
    found = judge_maps(["synonyms"], measured(few.filter(pa.compute.less(few["study"], "s4"))), [], SETTINGS)
    assert [one.mark for one in found.verdicts()] == ["unclear"]


def test_conditions_of_batteries_are_probes_and_leave_the_rest_of_the_page() -> None:
    assert set(conditions_of(BATTERIES)) <= {*PROBES}
    some = measured(table({"random-sentence": {}, "swap-sides": {}, "opposite": {}, "noise-image": {}}))
    kept = some.without(battery_conditions(["negation"])).conditions
    assert kept == ("none", "noise-image", "random-sentence", "swap-sides")
    assert battery_conditions([]) == []
    assert chosen_batteries(["mirror", "all"])[0] == "mirror"
    with pytest.raises(InputError, match="unknown battery 'negatoin'; did you mean 'negation'"):
        chosen_batteries(["negatoin"])


def test_texts_that_keep_to_the_image_repeat_no_contradiction() -> None:
    phrases = {(f"s{n}", "phrase:0"): (f"p{n // 2}", "Nodule in the left lung.") for n in range(12)}
    texts = {}
    for n in range(12):
        key = Key(f"s{n}", "phrase:0", "none")
        texts[key] = "A nodule."
        texts[key._replace(condition="opposite")] = "No nodule." if n % 2 else "There is a nodule."
        report = Key(f"s{n}", IMAGE_QUERY, "none")
        texts[report] = "Left effusion. Nodule."
        texts[report._replace(condition="contradicting-note")] = "Effusion." if n < 6 else "Left effusion. Nodule."
        texts[report._replace(condition="mirror-both")] = "Right effusion." if n < 3 else "Left effusion."
    found = {
        (one.condition, one.kind): one for one in text_trials(["contradiction", "mirror"], texts, phrases, SETTINGS)
    }
    assert found["opposite", "description"].share.value == 0.5
    echoes = found["opposite", "description"].echoes
    assert echoes is not None
    assert echoes.value == 0.5
    assert found["contradicting-note", "report"].share.value == pytest.approx((6 * 2 / 3 + 6) / 12)  # F1 of 1 of 2
    assert found["mirror-both", "report"].share.value == 3 / 12
    assert ("contradicting-note", "description") not in found


def dots(image: Image, phrase: str) -> Grounding:
    """Point at the brightest pixel of the image."""
    values = np.zeros((8, 8), np.float32)
    row, column = np.unravel_index(int(image.argmax()), image.shape)
    values[row * 8 // image.shape[0], column * 8 // image.shape[1]] = 1
    return Grounding(Heatmap(values))


def textbook(image: Image, phrase: str) -> Grounding:
    """Point at the middle of the named lung."""
    values = np.zeros((8, 8), np.float32)
    values[4, 6 if "left" in phrase else 1] = 1
    return Grounding(Heatmap(values))


@pytest.mark.parametrize(("model", "follows"), [(dots, 1.0), (textbook, 0.0)])
def test_the_page_tells_who_follows_the_image_and_who_the_textbook(
    model: Callable[[Image, str], Grounding], follows: float, tmp_path: Path
) -> None:
    source = Ward()
    with PredictionWriter(tmp_path / "p", source="ward", model=model.__name__) as writer:
        for study in source:
            image = picture(int(study.id[1:]))
            image[3, 9] = 1.0
            for condition in ("none", "mirror-both", "mirror-image", "rotate-90"):
                asked = find_probe(condition).ask(study, study.phrases[0], Setting())
                assert asked is not None
                assert isinstance(asked.phrase, Phrase)
                shown = image if asked.alter is None else asked.alter(image)
                grounding = model(shown, asked.phrase.text)
                writer.write(Prediction(study.id, "phrase:0", condition, Query(asked.phrase.text), grounding))
    done = audit(
        tmp_path / "p", source, tmp_path / "out", settings=SETTINGS, cases=0, batteries=["mirror", "orientation"]
    )
    found = {
        one["condition"]: one for one in json.loads((tmp_path / "out/audit.json").read_text())["batteries"]["trials"]
    }
    assert found["mirror-both"]["share"]["estimate"] == 1.0  # either: the textbook's words are mirrored, too
    assert found["mirror-image"]["share"]["estimate"] == found["rotate-90"]["share"]["estimate"] == follows
    assert "Batteries in numbers" in done.page.read_text()
    assert "mirror-image" not in done.found.conditions


def test_five_answers_as_expected_show_nothing() -> None:
    def state(patients: int) -> str:
        return TrialResult("orientation", "flip", "map", "turns", Estimate(1.0, 1.0, 1.0, patients=patients)).state

    assert [state(5), state(6)] == ["unclear", "yes"]
