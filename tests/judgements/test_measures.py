from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.core import InputError
from rightlung.judgements import BlindingKey, Judgement, analyse, read_measures
from rightlung.results.estimate import BootstrapSettings
from tests.judgements.made_up import text_of, write_about, write_audit, write_experiment


def test_measures_of_an_experiment_are_those_of_the_plain_answers(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "out", 6)
    measures = read_measures([folder])
    table = pq.read_table(folder / "measures" / "plain" / "instances.parquet").to_pylist()
    wanted = {(row["study"], row["query"], row["condition"], row["target"]): row for row in table}
    asked, values = measures.values("plain", [("s3", "phrase:0"), ("s0", "phrase:0"), ("s9", "phrase:0")])
    assert asked.tolist() == [True, True, False]
    assert values["iou@10 (exact)"][0] == wanted["s3", "phrase:0", "none", "exact"]["iou@10"]
    assert values["entropy"][1] == wanted["s0", "phrase:0", "none", "regions"]["grid_entropy"]
    assert math.isnan(values["auroc (exact)"][1])
    assert math.isnan(values["entropy"][2])
    assert (measures.find("gloria retrained"), measures.find("unknown")) == ("plain", None)


def test_a_variant_of_several_seeds_is_each_model_by_itself(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "out", 6, slugs=["plain", "plain-seed2"])
    write_about(folder, "plain", seed=1)
    write_about(folder, "plain-seed2", variant="plain", seed=2)
    measures = read_measures([folder])
    values = pq.read_table(folder / "measures" / "plain" / "instances.parquet").column("abstention")[0].as_py()
    assert measures.values("plain", [("s0", "phrase:0")])[1]["abstention"][0] == values
    assert measures.to_judge() == (["plain"], ["plain-seed2"])


def test_an_audits_phrases_can_be_planned_and_correlated_with(tmp_path: Path) -> None:
    precision = np.linspace(0, 1, 24)
    precision[2::3] = math.nan  # negated phrases have no target
    folder = write_audit(tmp_path / "audit", 24, {"average_precision": precision, "prior_auroc": precision})
    measures = read_measures([folder])
    assert measures.to_judge() == (["known"], [])
    assert measures.named(["KNOWN", "another"]) == ["known", "another"]
    assert len(measures.instances) == 24
    first, negated = measures.instances["s0", "phrase:0"], measures.instances["s1", "phrase:0"]
    assert (first.text, first.patient, first.findings, first.abnormal) == (text_of(0), "p0", ("atelectasis",), True)
    assert not negated.abnormal
    assert read_measures([folder / "instances.parquet"]).instances == measures.instances
    asked, values = measures.values("known", list(measures.instances))
    assert asked.all()
    rows = []
    for (key, one), value in zip(measures.instances.items(), values["average_precision"], strict=True):
        rating = 1 if math.isnan(value) else int(np.clip(1 + 5 * value, 1, 5))
        rows.append(Judgement("ann", *key, one.text, "A7", rating, rating, rating))
    settings = BootstrapSettings(resamples=2000)
    (found,) = analyse(rows, key=BlindingKey({"A7": "known"}), measures=measures, settings=settings)["correlations"]
    assert [row["measure"] for row in found["values"]] == ["average_precision"] * 3
    assert found["values"][0]["pairs"] == 16
    assert found["values"][0]["pearson"]["estimate"] > 0.9


def test_bad_measures_are_named(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "out", 6)
    with pytest.raises(InputError, match="in several of the given folders"):
        read_measures([folder, folder])
    with pytest.raises(InputError, match=r"has no instances\.parquet"):
        read_measures([tmp_path])
    with pytest.raises(InputError, match="the measured model is unknown"):
        read_measures([write_audit(tmp_path / "audit", 6, {}, model="")])
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_measures([folder / "measures" / "plain" / "about.json"])
    audit = write_audit(tmp_path / "known", 6, {})
    table = pq.read_table(audit / "instances.parquet")
    words = table.set_column(table.column_names.index("phrase"), "phrase", [["other words"] * len(table)])
    pq.write_table(words.replace_schema_metadata({"rightlung.model": "b"}), tmp_path / "instances.parquet")
    with pytest.raises(InputError, match="the measures must be of the same source"):
        read_measures([audit, tmp_path])
    (folder / "measures" / "plain" / "about.json").write_text("[")
    with pytest.raises(InputError, match=r"about\.json: cannot be read as JSON"):
        read_measures([folder])
