"""Claims about the reports: what is said is true, linked, on the right side, and tells nothing about anything else."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from rightlung.core import Box, Polarity
from rightlung.core.errors import InputError
from rightlung.core.keyed import RandomStream
from rightlung.lexicon import FINDINGS, IMAGENOME_REGIONS, REGIONS, side_of, sides_in
from rightlung.lexicon.findings import broader_findings
from rightlung.phantom.config import FINDING_ORDER, PhantomConfig, default_config
from rightlung.phantom.report import Statement, assemble_report, plain_style, write_report
from rightlung.phantom.sampling import sample_scene
from rightlung.phantom.scene import Scene
from rightlung.phantom.words.bank import finding_vocabulary, slip
from rightlung.phantom.words.templates import expand, polish

COUNT = 3000
Made = list[tuple[Scene, list[Statement]]]


def make(config: PhantomConfig, seed: int, count: int) -> Made:
    scenes = [sample_scene(config, seed, index) for index in range(count)]
    return [(scene, write_report(scene, config, seed)) for scene in scenes]


@pytest.fixture(scope="module")
def made() -> Made:
    return make(plain_style(default_config()), 21, COUNT)


def shown(scene: Scene) -> set[str]:
    """Return every finding that the scene shows, by name and by any broader name."""
    kinds = {lesion.finding for lesion in scene.lesions}
    return kinds.union(*(broader_findings(kind) for kind in kinds))


def test_the_same_study_gets_the_same_report_whatever_came_before(made: Made) -> None:
    config = plain_style(default_config())
    assert write_report(sample_scene(config, 21, 17), config, 21) == made[17][1]
    assert write_report(made[17][0], config, 22) != made[17][1]


def test_every_link_leads_somewhere(made: Made) -> None:
    for scene, statements in made:
        assert statements
        for statement in statements:
            assert statement.section in ("findings", "impression")
            assert set(statement.regions) <= set(IMAGENOME_REGIONS)
            assert set(statement.findings) <= set(FINDINGS)
            assert all(index < len(scene.lesions) for index in statement.lesions)
            assert all(index < len(scene.devices) for index in statement.devices)
            for index in statement.lesions:
                region = scene.lesions[index].region
                assert set(REGIONS[region].parts or (region,)) <= set(statement.regions)


def test_what_is_said_of_one_side_names_that_side_or_none(made: Made) -> None:
    checked = 0
    for scene, statements in made:
        for statement in statements:
            sides = {scene.lesions[index].side for index in statement.lesions}
            # Two sentences run together may say of the other lung that it is clear; their regions tell.
            elsewhere = {REGIONS[name].side for name in statement.regions} - sides - {"none"}
            if len(sides) == 1 and sides <= {"left", "right"} and not elsewhere and not statement.devices:
                assert side_of(statement.text) in (*sides, None), statement.text
                checked += 1
    assert checked > COUNT / 2


def test_both_sides_are_named_where_a_lesion_lies_on_each(made: Made) -> None:
    texts = [
        statement.text
        for scene, statements in made
        for statement in statements
        if {"left", "right"} <= {scene.lesions[index].side for index in statement.lesions}
    ]
    assert len(texts) > 100
    assert sum(side_of(text) == "both" for text in texts) / len(texts) > 0.95


def test_about_a_quarter_of_focal_sentences_leave_the_side_to_the_picture(made: Made) -> None:
    named = [
        bool(sides_in(statement.text))
        for scene, statements in made
        for statement in statements
        if len(statement.lesions) == 1 and scene.lesions[statement.lesions[0]].side in ("left", "right")
    ]
    assert 1.0 - np.mean(named) == pytest.approx(default_config().report.sideless, abs=0.06)


def test_nothing_present_is_denied_and_nothing_absent_is_affirmed(made: Made) -> None:
    for scene, statements in made:
        there = shown(scene)
        for statement in statements:
            sides = {REGIONS[name].side for name in statement.regions}
            for finding, polarity in statement.findings.items():
                if finding == "no finding":
                    assert not scene.lesions
                elif finding == "support devices":
                    assert bool(scene.devices) == (polarity == Polarity.POSITIVE)
                elif finding == "tortuous aorta":
                    assert scene.body.aorta >= 0.7
                elif polarity == Polarity.POSITIVE:
                    assert finding in there, statement
                elif polarity == Polarity.NEGATIVE and sides in ({"left"}, {"right"}):
                    kinds = [lesion.finding for lesion in scene.lesions if lesion.side in (*sides, "both")]
                    assert not any(finding in (kind, *broader_findings(kind)) for kind in kinds), statement
                elif polarity == Polarity.NEGATIVE and len(statement.findings) == 1:
                    assert finding not in there or "; " in statement.text, statement


def test_visible_lesions_are_told_but_for_a_small_share(made: Made) -> None:
    told = []
    for scene, statements in made:
        if any(statement.section == "findings" for statement in statements):
            mentioned = {index for statement in statements for index in statement.lesions}
            told += [index in mentioned for index, lesion in enumerate(scene.lesions) if lesion.severity > 0.2]
    assert 0.94 < np.mean(told) < 1.0


def test_comparisons_are_made_only_where_there_is_an_earlier_picture(made: Made) -> None:
    cue = re.compile(r"\b(unchanged|interval|as before|since|new|stable|redemonstrated|worsen\w+|improv\w+)\b")
    compared = [(scene.prior, s.text.lower()) for scene, told in made for s in told if cue.search(s.text.lower())]
    assert sum(bool(prior) for prior, _ in compared) > 200
    assert not [text for prior, text in compared if not prior and "new consolidation" not in text]


def test_sentences_read_as_sentences_and_a_denial_holds_a_negation_or_calls_something_normal(made: Made) -> None:
    wrong = re.compile(
        r"\b(\w+) \1\b|  | [,.;]|[{}|/]an\b|\ba [aeio]|\ban [bcdfgjkpqtvwz]|\b(?:a|an|the) (?:a|an|the)\b"
        r"|\(|\)|,,|\.\.|, ?\.|^There is no [^;]* is "
    )
    denial = re.compile(
        r"\b(no|not|neither|without|normal|normally|clear|unremarkable|sharp|preserved|intact|midline|central|free|"
        r"negative|nothing|adequate|well|within normal limits)\b"
    )
    for statement in (statement for _, statements in made for statement in statements):
        assert not wrong.search(statement.text), statement.text
        assert statement.text[0].isupper() or statement.text[0].isdigit() or statement.text[0] == "_"
        assert statement.text.endswith((".", "?"))
        if Polarity.NEGATIVE in statement.findings.values():
            assert denial.search(statement.text.lower()), statement.text


def test_each_kind_of_sentence_is_there_and_they_are_many(made: Made) -> None:
    statements = [statement for _, told in made for statement in told]
    polarity = Counter(value for statement in statements for value in statement.findings.values())
    assert min(polarity[value] for value in Polarity) > 100
    nowhere = [s for s in statements if not s.lesions and not s.devices and not s.findings and not s.topics]
    assert 0.03 < len(nowhere) / len(statements) < 0.3
    assert any("above the carina" in statement.text for statement in statements)
    mixed = [s for s in statements if side_of(s.text) == "both" and {"left", "right"} <= set(s.text.lower().split())]
    assert len(mixed) > 50
    # 50,000 studies hold well above 20,000 sentences; so many fewer must hold their share.
    assert len({re.sub(r"[^a-z]+", " ", statement.text.lower()) for statement in statements}) > 7000


def test_noise_changes_neither_links_nor_sides_nor_findings_nor_negations(made: Made) -> None:
    report = replace(default_config().report, typo=1.0, unstopped=0.5, capitals=0.3)
    noisy = make(replace(default_config(), report=report), 21, 500)
    changed = 0
    for (_, plain), (_, dirty) in zip(made, noisy, strict=False):
        for clean, rough in zip(plain, dirty, strict=True):
            assert (clean.findings, clean.lesions, clean.regions) == (rough.findings, rough.lesions, rough.regions)
            assert sides_in(clean.text) == sides_in(rough.text)
            kept = finding_vocabulary().intersection(re.findall(r"[a-z]+", clean.text.lower()))
            assert kept <= set(re.findall(r"[a-z]+", rough.text.lower()))
            changed += clean.text.lower().rstrip(".") != rough.text.lower().rstrip(".")
    assert changed > 500
    text = "Without right pleural effusion, cannot exclude left pneumothorax."
    assert {slip(text, RandomStream(number)) for number in range(200)} == {text}


def test_templates_choose_fill_and_agree() -> None:
    texts = {polish(expand("(a/an {x}|no {x})", RandomStream(n), {"x": "effusion"})) for n in range(50)}
    assert texts == {"An effusion.", "No effusion."}
    with pytest.raises(InputError, match="unclosed bracket"):
        expand("(a|b", RandomStream(0), {})


def test_a_report_holds_every_sentence_in_its_section(made: Made) -> None:
    for _, statements in made[:200]:
        report = assemble_report(statements, [(Box(0, 0, 1, 1),)] * len(statements))
        assert [sentence.text for sentence in report.sentences] == [statement.text for statement in statements]
        for statement in statements:
            assert statement.text in report.sections[statement.section]


def leak(studies: Made, finding: str) -> float:
    """Return the AUROC with which a model of n-grams guesses a finding from the sentences about anything else."""
    texts, labels = [], []
    for scene, statements in studies:
        others = [
            statement.text.lower()
            for statement in statements
            if finding not in statement.topics
            and not any(scene.lesions[index].finding == finding for index in statement.lesions)
        ]
        texts.append(" . ".join(others))
        labels.append(any(lesion.finding == finding for lesion in scene.lesions))
    half = len(texts) // 2
    grams = CountVectorizer(ngram_range=(1, 2), min_df=5, binary=True, token_pattern=r"[a-z.;]+").fit_transform(texts)
    model = LogisticRegression(solver="liblinear", C=0.02).fit(grams[:half], labels[:half])
    return float(roc_auc_score(labels[half:], model.decision_function(grams[half:])))


@pytest.fixture(scope="module")
def independent() -> Made:
    """Return studies whose findings do not go together, so that any guess above chance is a leak of the words."""
    prevalence = dict.fromkeys(FINDING_ORDER, 0.2)
    return make(replace(default_config(), normal=0.0, cooccurrence={}, prevalence=prevalence), 5, 3000)


@pytest.mark.parametrize("finding", ["cardiomegaly", "pleural effusion", "pneumonia", "nodule", "scoliosis"])
def test_no_finding_can_be_guessed_from_sentences_about_others(independent: Made, finding: str) -> None:
    # 1,500 test studies, a fifth with the finding: three standard errors are 0.055.
    assert 0.44 < leak(independent, finding) < 0.56


def test_the_check_finds_a_leak_that_is_there(independent: Made) -> None:
    planted = [
        (scene, [*told, Statement("Please call.", section="impression")] if any(
            lesion.finding == "nodule" for lesion in scene.lesions) and scene.index % 2 else told)
        for scene, told in independent
    ]  # fmt: skip
    assert leak(planted, "nodule") > 0.65
