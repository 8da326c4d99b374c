from __future__ import annotations

import math
from itertools import islice

import pytest
from sklearn.metrics import f1_score

from rightlung.audit.self_test import MetricTest, SelfTest, changed_reports, self_test
from rightlung.lexicon.labeller import OBSERVATIONS, observations


@pytest.fixture(scope="module")
def found() -> SelfTest:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("shutil.which", lambda name: None)  # no Java, which takes seconds: METEOR is not computed
        return self_test(12)


def test_only_measures_with_sides_punish_a_wrong_side_and_no_count_of_words_a_negation(
    found: SelfTest,
) -> None:
    assert found.wrong == []
    sided = {one.measure for one in found.metrics if one.computed and one.notices("wrong-side")}
    assert sided == {"sided_f1", "sided_precision", "sided_recall"}
    blind = {one.measure for one in found.blind_to("negated")}
    assert {"bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l"} <= blind
    assert {"micro_f1_13", "sided_f1", "ce_r2gen_micro_f1"}.isdisjoint(blind)
    assert "punish a negated finding; not: bleu_1, bleu_2" in found.sentences()[1]


def test_f1_of_negated_findings_is_that_of_scikit_learn(found: SelfTest) -> None:
    names = OBSERVATIONS[1:]
    texts = [*islice(changed_reports(), 12)]
    true, said = (
        [[observations(one[which])[name] == "positive" for name in names] for one in texts]
        for which in ("none", "negated")
    )
    value = next(one.values["negated"] for one in found.metrics if one.measure == "micro_f1_13")
    assert value == pytest.approx(f1_score(true, said, average="micro"))


def test_an_error_counts_as_noticed_below_nine_tenths_of_the_harmless_change() -> None:
    values = {"none": 1.0, "synonym": 0.8, "negated": 0.71, "wrong-side": 0.73}
    one = MetricTest("rouge_l", values)
    assert one.prefers_identical
    assert (one.notices("negated"), one.notices("wrong-side")) == (True, False)
    assert not MetricTest("rouge_l", values | {"synonym": 1.1}).prefers_identical
    missing = MetricTest("meteor", values | {"negated": math.nan})
    assert SelfTest(1, [missing]).not_computed == ["METEOR was not computed"]
    assert SelfTest(1, [missing]).blind_to("negated") == []
