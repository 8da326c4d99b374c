"""The protocol of an audit: conditions asked, limits of gates and batteries, samples of strata; and what follows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rightlung.audit import Audit, audit_tasks, batteries, blocks, coordinates, gates, report_gates, strata
from rightlung.audit import report_text_gates as of_texts
from rightlung.audit.analysis import asked_of
from rightlung.audit.batteries import Battery
from rightlung.audit.compare import compare
from rightlung.audit.leaderboard import leaderboard
from rightlung.measuring import Protocol, curves, find_protocol
from rightlung.results import gates as rules
from rightlung.results.estimate import BootstrapSettings
from tests.audit.cards import QUICK, Cards, audited, diagonal_map, true_map
from tests.audit.oracle import Oracle, Ward

PLAIN = ("none", "swap-sides", "exchange-image")
GATED = (*PLAIN, "noise-image", "nonsense-prompt", "empty-prompt", "random-sentence", "occlude-target", "mean-image")


def protocol(*conditions: str, names: Sequence[str] = (), maps: bool = True) -> Protocol:
    return replace(find_protocol("audit"), **asked_of(conditions, 0.95, names, maps=maps))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return audited(tmp_path_factory.mktemp("plain"), Cards(24), true_map, PLAIN)


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    settings = BootstrapSettings(300)
    return audited(tmp_path_factory.mktemp("gated"), Cards(24), diagonal_map, GATED, settings=settings)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (gates, "RELEVANT", 0.04), (gates, "RELEVANT_FALL", 0.3), (gates, "ELSEWHERE_SHARE", 0.4),
        (rules, "FEW_PATIENTS", 9), (batteries, "SHARE", 0.6), (batteries, "LEAST", 0.06), (batteries, "LOSS", 0.1),
        (batteries, "DECLINES", 0.4), (batteries, "MOST", 0.6), (batteries, "YARDSTICK", "synonym"),
        (strata, "MOST", 200), (strata, "FIXED", 0.45), (strata, "FOLDS", 4), (strata, "BINS", 4),
        (strata, "LEAST_BOXES", 10), (strata, "RESAMPLES", 999), (strata, "MEASURES", ("auroc",)),
        (curves, "THRESHOLDS", (0.5,)), (curves, "RECALLS", (0.5,)), (curves, "TOLERANCES", (0.0,)),
        (curves, "HIT", 0.4), (coordinates, "MOST", 100), (coordinates, "SIDE", 32), (coordinates, "LEAST_GAIN", 0.1),
        (coordinates, "LEAST_PATIENTS", 9), (coordinates, "LEVEL", 0.95),
    ],
)  # fmt: skip
def test_changing_any_setting_of_the_analyses_changes_the_hash(
    module: Any, name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = protocol(*GATED, names=["negation"]).hash
    monkeypatch.setattr(module, name, value)
    assert protocol(*GATED, names=["negation"]).hash != before


@pytest.mark.parametrize(("module", "name"), [(report_gates, "HALF"), (report_gates, "TRACED"), (of_texts, "RARE")])
def test_the_limits_of_gates_of_reports_count_for_reports(
    module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [protocol("none", "mirror-image", maps=maps).hash for maps in (False, True)]
    monkeypatch.setattr(module, name, 0.4)
    after = [protocol("none", "mirror-image", maps=maps).hash for maps in (False, True)]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


def test_conditions_batteries_and_what_is_expected_of_them_change_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    one = protocol("none", "opposite", names=["negation"])
    others = [
        protocol("none", "opposite"), protocol("none", names=["negation"]),
        protocol("none", "opposite", names=["negation", "severity"]),
    ]  # fmt: skip
    expected = {**batteries.BATTERIES, "negation": Battery("Negation", ("", ""), {"opposite": "stay"})}
    monkeypatch.setattr(batteries, "BATTERIES", expected)
    others.append(protocol("none", "opposite", names=["negation"]))
    assert len({one.hash, *(other.hash for other in others)}) == 5
    assert protocol("opposite", "none").hash == protocol("none", "opposite").hash


def test_an_audit_with_gates_says_what_was_asked_and_by_which_limits(plain: Audit, gated: Audit) -> None:
    found = gated.result["protocol"]
    assert found["conditions"] == sorted(GATED)
    limits = {"gates: relevant change = 0.05", "gates: relevant fall = 0.25", "gates: share elsewhere = 0.5"}
    assert limits | {"strata: answers = 300"} <= {*found["analysis"]}
    assert plain.result["protocol"]["conditions"] == sorted(PLAIN)
    assert not limits & {*plain.result["protocol"]["analysis"]}
    assert "relevant fall = 0.25" in gated.page.read_text(encoding="utf-8")
    assert Protocol.from_json(json.loads(json.dumps(found)), "audit.json").conditions == tuple(sorted(GATED))


def test_a_plain_audit_is_compared_and_ranked_with_one_with_gates(plain: Audit, gated: Audit, tmp_path: Path) -> None:
    done = compare([plain.folder, gated.folder], tmp_path / "c", settings=QUICK, measures=["average_precision"])
    ours, theirs = (one.result["overall"]["average_precision"]["model"]["estimate"] for one in (plain, gated))
    assert done.parts[0].of("average_precision")[0].difference.value == pytest.approx(ours - theirs)
    result = json.loads((gated.folder / "audit.json").read_text())
    other = tmp_path / "other"
    other.mkdir()
    (other / "audit.json").write_text(json.dumps(result | {"model": "another"}))
    board = leaderboard([plain.folder, other], tmp_path / "board")
    assert board["warnings"] == []
    assert {one["table"] for one in board["results"]} == {"cards"}
    text = (tmp_path / "board" / "leaderboard.md").read_text(encoding="utf-8")
    assert "which differ in resamples, conditions, analysis only" in text


def test_the_sample_of_the_curves_does_not_depend_on_the_other_conditions(
    plain: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "ROWS_PER_BLOCK", 60)  # several blocks: 5 studies with GATED, 15 with none alone
    for most, sample in ((300, 72), (50, 50)):
        monkeypatch.setattr(strata, "MOST", most)
        monkeypatch.setattr("rightlung.audit.run.DRAWN", most)
        found = []
        for conditions in (("none",), GATED):
            folder = tmp_path / f"{most}-{len(conditions)}"
            folder.mkdir()
            done = audited(folder, Cards(24), diagonal_map, conditions)
            found.append(done.result["strata"])
        assert [one["sample"] for one in found] == [sample] * 2
        assert found[0]["curves"] == found[1]["curves"]
        assert found[0]["thresholds"] == found[1]["thresholds"]
    assert plain.result["strata"]["sample"] == 72


def test_the_protocol_of_a_task_names_the_conditions_and_the_limits_of_its_gates(tmp_path: Path) -> None:
    found = {}
    for name, options in (("plain", {}), ("gates", {"gates": True})):
        given: dict[str, Any] = {"name": "oracle", "settings": QUICK, "cases": 0, **options}
        done = audit_tasks(Oracle(), Ward(12), tmp_path / name, ["classification"], **given)
        found[name] = done.parts[0].protocol
    assert found["plain"].analysis == ()
    assert "none" in found["plain"].conditions
    assert {"noise-image", "occlude-target"} <= {*found["gates"].conditions}
    assert "gates: relevant change = 0.05" in found["gates"].analysis
    done_compared = compare([tmp_path / "plain", tmp_path / "gates"], tmp_path / "c", settings=QUICK)
    assert {one.name for one in done_compared.parts} == {"classification"}
