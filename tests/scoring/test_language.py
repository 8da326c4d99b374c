"""Scores of texts against pycocoevalcap, hand calculations, and words printed by R2Gen's cleaning."""

from __future__ import annotations

import random
import shutil
from typing import Any

import numpy as np
import pytest

from rightlung.core import InputError
from rightlung.scoring import meteor
from rightlung.scoring.language import (
    BLEU_COLUMNS,
    bleu_statistics,
    cider,
    clean_words,
    copied_share,
    corpus_bleu,
    greedy_match,
    mean_sentence_bleu,
    r2gen_words,
    rouge_l,
    sentence_bleu,
    token_rule,
    vocabulary_of,
)
from rightlung.scoring.meteor import corpus_meteor, meteor_statistics

TRUE = [
    "The heart is normal in size. No pleural effusion or pneumothorax.",
    "Small left pleural effusion with adjacent atelectasis. The heart is enlarged.",
    "No focal consolidation.",
    "There is a stable right upper lobe nodule. Lungs are otherwise clear.",
]
SAID = [
    "Heart size is normal. No effusion.",
    "There is a tiny left effusion and opacities at the left base.",
    "No focal consolidation.",
    "Old fracture.",
]
WORDS = [clean_words(text) for text in SAID], [clean_words(text) for text in TRUE]


def texts(words: list[list[str]], places: Any = range(4)) -> dict[int, list[str]]:
    return {number: [" ".join(words[place])] for number, place in enumerate(places)}


# Printed by clean_report_mimic_cxr and clean_report_iu_xray in modules/tokenizers.py of cuhksz-nlp/R2Gen (5a2e63f).
CLEANED = {
    "1. Heart size normal.. 2. No effusion/pneumothorax; X-ray at T11. Stable. 3. ok":
        "heart size normal . no effusionpneumothorax x-ray at t1stable . ok .",
    "a. b.c d. 1. 2. 3. 4. 5. x": "a . bc d . x .",
    "The 'XXXX' is [clear] {x} (y): z; a<b>=c@d!? 50% ^&*_+ ___ q.": "the xxxx is clear x y z abcd 50 q .",
    "": ".",
}  # fmt: skip


@pytest.mark.parametrize("text", CLEANED)
def test_texts_are_cleaned_as_r2gen_does(text: str) -> None:
    assert " ".join(clean_words(text)) == CLEANED[text]


def test_rare_words_become_unknown_and_long_texts_are_cut_by_the_rule_r2gen_only() -> None:
    vocabulary = vocabulary_of(["No effusion. No edema.", "No effusion."], at_least=2)
    assert vocabulary == {"no", "effusion", "."}
    assert r2gen_words("No edema.", vocabulary) == ["no", "<unk>", "."]
    long = "word " * 100
    assert (len(token_rule("r2gen")(long)), len(token_rule("whole")(long))) == (59, 101)
    with pytest.raises(InputError, match="token rule 'ptb'"):
        token_rule("ptb")


def test_corpus_bleu_is_pycocoevalcaps() -> None:
    bleu = pytest.importorskip("pycocoevalcap.bleu.bleu")
    rows = [bleu_statistics(*pair) for pair in zip(*WORDS, strict=True)]
    columns = {name: np.array([row[name] for row in rows]) for name in BLEU_COLUMNS}
    counts = np.array([[1.0, 1, 1, 1], [2, 1, 1, 0]])
    for row, places in enumerate(([0, 1, 2, 3], [0, 0, 1, 2])):
        expected, _ = bleu.Bleu(4).compute_score(texts(WORDS[1], places), texts(WORDS[0], places), verbose=0)
        found = [corpus_bleu(columns, counts, order)[row] for order in range(1, 5)]
        assert found == pytest.approx(expected, rel=1e-6)


def test_rouge_l_by_hand_and_as_pycocoevalcap_calls_it() -> None:
    rouge = pytest.importorskip("pycocoevalcap.rouge.rouge")
    found = rouge_l(*WORDS)
    # Of 8 and 13 words, "heart is normal . no effusion ." are common.
    precision, recall = 7 / 8, 7 / 13
    assert found[0] == pytest.approx((1 + 1.44) * precision * recall / (recall + 1.44 * precision))
    assert found[2] == 1.0
    assert found.mean() == pytest.approx(rouge.Rouge().compute_score(texts(WORDS[1]), texts(WORDS[0]))[0])


def test_cider_is_pycocoevalcaps_and_rewards_the_reference_most() -> None:
    scorer = pytest.importorskip("pycocoevalcap.cider.cider").Cider()
    found = cider(*WORDS)
    assert found.mean() == pytest.approx(scorer.compute_score(texts(WORDS[1]), texts(WORDS[0]))[0])
    assert found[2] == pytest.approx(10.0)
    assert found[3] == found.min()
    assert cider([], []).shape == (0,)


def test_rouge_l_and_cider_of_many_drawn_texts_are_pycocoevalcaps() -> None:
    rouge = pytest.importorskip("pycocoevalcap.rouge.rouge").Rouge()
    scorer = pytest.importorskip("pycocoevalcap.cider.cider").Cider()
    chance = random.Random(3)
    drawn = [[chance.choice("abcdefgh.") for _ in range(chance.randrange(60))] for _ in range(240)]
    said, true = drawn[:120], [words or ["."] for words in drawn[120:]]
    said[:4] = [[], ["unheard"], true[2], ["a"] * 5000]
    single = [rouge.calc_score([" ".join(one)], [" ".join(other)]) for one, other in zip(said, true, strict=True)]
    assert rouge_l(said, true).tolist() == pytest.approx(single, abs=1e-12)
    _, each = scorer.compute_score(*({n: [" ".join(one)] for n, one in enumerate(some)} for some in (true, said)))
    assert cider(said, true).tolist() == pytest.approx(each.tolist(), abs=1e-12)


@pytest.mark.skipif(shutil.which("java") is None, reason="METEOR needs Java")
def test_corpus_meteor_is_the_jars_also_for_texts_drawn_repeatedly() -> None:
    scorer = pytest.importorskip("pycocoevalcap.meteor.meteor").Meteor()
    columns = meteor_statistics(*WORDS)
    counts = np.array([[1.0, 1, 1, 1], [2, 1, 0, 1], [0, 0, 0, 0], *np.eye(4)])
    found = corpus_meteor(columns, counts)
    expected, single = scorer.compute_score(texts(WORDS[1]), texts(WORDS[0]))
    again, _ = scorer.compute_score(texts(WORDS[1], [0, 0, 1, 3]), texts(WORDS[0], [0, 0, 1, 3]))
    scorer.meteor_p.stdout.close()
    scorer.meteor_p.stderr.close()
    assert found[:3] == pytest.approx([expected, again, np.nan], nan_ok=True)
    assert found[3:] == pytest.approx(single)
    assert found[5] == 1.0


@pytest.mark.skipif(shutil.which("java") is None, reason="METEOR needs Java")
def test_meteor_starts_once_and_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    program = pytest.importorskip("pycocoevalcap.meteor.meteor")
    started: list[Any] = []
    begin = program.Meteor.__init__

    def counted(self: Any) -> None:
        begin(self)
        started.append(self)

    monkeypatch.setattr(program.Meteor, "__init__", counted)
    meteor._stop_meteor()
    monkeypatch.setattr(meteor, "_KNOWN", {})
    first = meteor_statistics(*WORDS)
    meteor._KNOWN.clear()
    second = meteor_statistics(*WORDS)
    assert len(started) == 1
    assert all(np.array_equal(first[name], second[name]) for name in first)
    started[0].meteor_p.kill()
    started[0].meteor_p.wait()
    assert np.array_equal(meteor_statistics(*WORDS)["meteor_chunks"], first["meteor_chunks"])  # known pairs: not asked
    meteor._KNOWN.clear()
    with pytest.raises(InputError, match="METEOR"):
        meteor_statistics(*WORDS)
    assert np.array_equal(meteor_statistics(*WORDS)["meteor_chunks"], first["meteor_chunks"])
    assert len(started) == 2
    monkeypatch.setattr(meteor, "PAIRS_AT_ONCE", 1)
    monkeypatch.setattr(meteor, "usable_cores", lambda: 2)
    meteor._KNOWN.clear()
    several = meteor_statistics(*WORDS)
    assert len(started) == 3
    assert all(np.array_equal(first[name], several[name]) for name in first)
    meteor._stop_meteor()


def test_without_java_meteor_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pycocoevalcap")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match=r"^METEOR needs Java: install a Java runtime"):
        meteor_statistics(*WORDS)


def test_without_pycocoevalcap_scores_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pycocoevalcap.meteor.meteor", None)
    with pytest.raises(InputError, match=r"METEOR needs pycocoevalcap: pip install 'rightlung\[language\]'"):
        meteor_statistics(*WORDS)


def test_sentence_bleu_2_is_that_worked_out_by_hand() -> None:
    """Words 3 of 4 ("the" counts once), pairs 2 of 3; the reference has 6 words."""
    said, true = ["the", "heart", "is", "the"], ["the", "heart", "is", "of", "normal", "size"]
    by_hand = np.exp(1 - 6 / 4) * np.sqrt(3 / 4 * 2 / 3)
    assert sentence_bleu(said, true) == pytest.approx(by_hand)
    assert sentence_bleu(true, true) == 1.0
    assert sentence_bleu(true, true[:4]) == pytest.approx(np.sqrt(4 / 6 * 3 / 5))  # long answers have no penalty
    assert [sentence_bleu(some, true) for some in ([], ["heart"], ["heart", "the"])] == [0, 0, 0]  # no pair matches
    means = mean_sentence_bleu([said, true, []], [true, said, true])
    backwards = np.sqrt(3 / 6 * 2 / 5)
    assert means == pytest.approx([(2 * by_hand + 1) / 3, (2 + backwards) / 3, 0])


def test_the_share_of_copied_words_counts_n_grams_of_any_source() -> None:
    said = ["no", "acute", "bone", "lesion", "is", "seen", "today"]
    sources = [["acute", "bone", "lesion", "is", "seen"], ["no", "effusion"]]
    assert copied_share(said, sources, 4) == 2 / 4
    assert copied_share(said, sources, 1) == 6 / 7
    assert np.isnan(copied_share(said[:3], sources, 4))


def test_bertscore_matches_each_token_with_its_most_similar_one() -> None:
    """Unit vectors at 0 and 90 degrees against one at 60: cosines 1/2 and sin 60."""
    answer, reference = np.array([[2.0, 0.0], [0.0, 5.0]]), np.array([[0.5, np.sqrt(3) / 2]])
    precision, recall = (0.5 + np.sqrt(3) / 2) / 2, np.sqrt(3) / 2
    f1 = 2 * precision * recall / (precision + recall)
    assert greedy_match(answer, reference) == pytest.approx((precision, recall, f1))
    assert greedy_match(reference, answer) == pytest.approx((recall, precision, f1))
    assert np.isnan(greedy_match(answer, np.zeros((0, 2)))).all()
