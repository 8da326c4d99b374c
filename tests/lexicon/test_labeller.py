from __future__ import annotations

import random
from pathlib import Path

import pytest

from rightlung.core import InputError, Phrase, Polarity, Report
from rightlung.lexicon import IMAGENOME_REGIONS, REGIONS, label_set
from rightlung.lexicon.labeller import (
    OBSERVATIONS,
    observations,
    phrases_of,
    read_report,
    read_sentence,
)
from rightlung.lexicon.rules import rules
from rightlung.phantom.config import default_config
from rightlung.phantom.report import Statement, plain_style, write_report
from rightlung.phantom.sampling import sample_scene

CODES = {
    "ec": "Enlarged Cardiomediastinum", "cm": "Cardiomegaly", "op": "Lung Opacity", "le": "Lung Lesion", "ed": "Edema",
    "co": "Consolidation", "pn": "Pneumonia", "at": "Atelectasis", "px": "Pneumothorax", "pe": "Pleural Effusion",
    "po": "Pleural Other", "fx": "Fracture", "sd": "Support Devices",
}  # fmt: skip
MARKS = {"+": "positive", "-": "negative", "?": "uncertain"}


def decoded(codes: str) -> dict[str, str]:
    return {CODES[code[:-1]]: MARKS[code[-1]] for code in codes.split()}


def labelled() -> dict[str, list[tuple[str, dict[str, str]]]]:
    """Read the sentences written by hand, by phenomenon."""
    by_kind: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for line in Path(__file__).with_name("labelled_sentences.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            kind = by_kind.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            text, codes = line.rsplit("|", 1)
            kind.append((text.strip(), decoded(codes)))
    return by_kind


def said(report: str | Report | dict[str, str]) -> dict[str, str]:
    return {name: label for name, label in observations(report).items() if label and name != "No Finding"}


@pytest.mark.parametrize("kind", labelled())
def test_sentences_written_by_hand_are_labelled_as_a_reader_would(kind: str) -> None:
    read = [(text, said({"findings": text}), want) for text, want in labelled()[kind]]
    assert not [one for one in read if one[1] != one[2]]
    assert sum(map(len, labelled().values())) > 300


def test_the_observations_are_chexperts_in_its_order() -> None:
    assert label_set("chexpert-14").labels == OBSERVATIONS
    assert tuple(observations("Clear.")) == OBSERVATIONS


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("The heart is normal. The lungs are clear. No effusion.", "positive"),
        ("Endotracheal tube in place. No pneumothorax.", "positive"),  # devices only
        ("Emphysema. Tortuous aorta.", "positive"),  # CheXpert has no observation for either
        ("The lungs are clear. Small effusion.", None),
        ("The lungs are clear. Possible pneumonia.", None),
        ("The lungs are clear. Old rib fracture.", None),
        ("The lungs are not clear.", None),
        ("Heart size is not normal.", None),
        ("Costophrenic angles are not sharp.", None),
        ("The chest is not normal.", None),
        ("Edema has largely resolved.", None),
    ],
)
def test_no_finding_holds_where_nothing_chexpert_observes_is_present_or_uncertain(text: str, label: str | None) -> None:
    assert observations(text)["No Finding"] == label
    assert observations(text)["Support Devices"] == ("positive" if "tube" in text else None)


@pytest.mark.parametrize("text", ["", "   \n", "INDICATION: Cough."])
def test_nothing_said_gives_no_label_at_all(text: str) -> None:
    assert set(observations(text).values()) == {None}


class TestReports:
    @pytest.mark.parametrize(
        "report",
        [
            "FINDINGS: Lungs clear. ADDENDUM: There is in fact a left rib fracture.",
            {"findings": "Lungs clear.", "addendum": "There is in fact a left rib fracture."},
            Report("", {"findings": "Lungs clear.", "addendum": "There is in fact a left rib fracture."}),
            "ADDENDUM: INDICATION: Edema.\nFINDINGS: Rib fracture.\n________\nFINAL REPORT\nFINDINGS: Lungs clear.",
        ],
    )
    def test_an_addendum_is_read_without_why_the_image_was_taken(self, report: str | dict[str, str] | Report) -> None:
        assert said(report) == {"Lung Opacity": "negative", "Fracture": "positive"}
        assert observations(report)["No Finding"] is None

    def test_sections_by_name_and_a_report_give_the_same_as_the_text(self) -> None:
        text = "INDICATION: Pneumonia.\nFINDINGS: Small effusion.\nIMPRESSION: No pneumothorax."
        sections = {"Indication": "Pneumonia.", "Findings": "Small effusion.", "IMPRESSION": "No pneumothorax."}
        for report in (sections, Report(text), Report("", sections)):
            assert observations(report) == observations(text)

    @pytest.mark.parametrize(
        ("report", "labels"),
        [
            pytest.param("No effusion. Possible effusion.", "pe?", id="uncertain beats denied"),
            pytest.param("No effusion. Possible effusion. Small effusion.", "pe+", id="present beats uncertain"),
            pytest.param(
                "INDICATION: Pneumonia, effusion.\nHISTORY: Known mass.\nFINDINGS: Clear lungs.\nIMPRESSION: No edema.",
                "op- ed-", id="indication and history are not read"),
            pytest.param("WET READ: Pneumonia.\n________\nFINDINGS: Lungs clear.", "op-", id="nor is a wet read"),
            pytest.param({"findings": None, "impression": "Cardiomegaly."}, "cm+", id="a section may be None"),
            pytest.param(
                "IMPRESSION:\n1. Mild cardiomegaly.\n2. No edema.\n3. Right basilar atelectasis, un-\nchanged.",
                "cm+ ed- at+", id="every sentence counts across lines and lists"),
            pytest.param(
                "FINDINGS:\nLUNGS: Clear.\nHEART: Enlarged.\nPLEURA: No effusion.\nBONES: No acute abnormality.",
                "op- cm+ pe- fx-", id="a state without a subject is said of what stands above it"),
        ],
    )  # fmt: skip
    def test_what_a_report_says(self, report: str | dict[str, str], labels: str) -> None:
        assert said(report) == decoded(labels)

    def test_hierarchy_adds_what_a_finding_is_a_kind_of_and_denies_nothing(self) -> None:
        for flag, expected in ((False, None), (True, "positive")):
            labels = observations("Right lower lobe consolidation. Cardiomegaly.", hierarchy=flag)
            assert labels["Lung Opacity"] == labels["Enlarged Cardiomediastinum"] == expected
        assert observations("No consolidation.", hierarchy=True)["Lung Opacity"] is None

    @pytest.mark.parametrize("report", [3, None, ["No effusion."], {"findings": 7}, {"addendum": 7}])
    def test_what_is_no_report_is_an_error_that_says_so(self, report: object) -> None:
        with pytest.raises(InputError, match="report"):
            observations(report)  # type: ignore[arg-type]


class TestPlaces:
    @pytest.mark.parametrize(
        ("text", "finding", "side", "regions"),
        [
            ("Small left pleural effusion.", "pleural effusion", "left", ("left lung",)),
            ("Pleural effusion on the right.", "pleural effusion", "right", ("right lung",)),
            ("Bibasilar atelectasis.", "atelectasis", "both", ("lower lung zones",)),
            ("Opacity in the right upper lobe.", "lung opacity", "right", ("right upper lung zone",)),
            ("RLL consolidation.", "consolidation", "right", ("right lower lung zone",)),
            ("Left basilar atelectasis.", "atelectasis", "left", ("left lower lung zone",)),
            ("Opacity in the lingula.", "lung opacity", "left", ("left mid lung zone",)),
            ("Biapical pleural thickening.", "pleural thickening", "both", ("apical zones",)),
            ("Opacities in the left base and in the right apex.", "lung opacity", "both",
             ("left lower lung zone", "right apical zone")),
            ("Cardiomegaly.", "cardiomegaly", None, ("cardiac silhouette",)),
            ("The left hemidiaphragm is elevated.", "elevated hemidiaphragm", "left", ("left hemidiaphragm",)),
            ("Blunting of the right costophrenic angle.", "costophrenic angle blunting", "right",
             ("right costophrenic angle",)),
            ("Effusions, left greater than right.", "pleural effusion", "both", ("right lung", "left lung")),
        ],
    )  # fmt: skip
    def test_a_mention_has_its_side_and_regions(
        self, text: str, finding: str, side: str | None, regions: tuple[str, ...]
    ) -> None:
        (mention,) = read_sentence(text).mentions
        assert (mention.finding, mention.side) == (finding, side)
        assert set(mention.regions) == set(regions)

    @pytest.mark.parametrize(
        ("text", "sides"),
        [
            ("Left effusion and right pneumothorax.", ["left", "right"]),
            ("Left effusion and atelectasis.", ["left", "left"]),
            ("Effusion and atelectasis on the left.", ["left", "left"]),
            ("No effusion except a trace on the left.", ["left"]),
            ("Cardiomegaly and left effusion.", [None, "left"]),
        ],
    )
    def test_a_side_belongs_to_each_finding_beside_it_that_can_have_one(
        self, text: str, sides: list[str | None]
    ) -> None:
        mentions = read_sentence(text).mentions
        assert [mention.side for mention in mentions] == sides
        assert {mention.polarity for mention in mentions} == {"positive"}

    def test_each_side_has_its_own_polarity(self) -> None:
        sentence = read_sentence("No right pneumothorax; small left pneumothorax.")
        told = [(mention.side, mention.polarity) for mention in sentence.mentions]
        assert told == [("right", "negative"), ("left", "positive")]
        assert sentence.findings == {"pneumothorax": "positive"}
        assert sentence.side == "both"


class TestPhrases:
    def test_every_sentence_of_findings_and_impression_becomes_a_phrase(self) -> None:
        phrases = phrases_of("INDICATION: Cough.\nFINDINGS: Small left effusion. PA view.\nIMPRESSION: No edema.")
        assert phrases == (
            Phrase("Small left effusion.", regions=("left lung",), findings={"pleural effusion": Polarity.POSITIVE}),
            Phrase("PA view."),
            Phrase("No edema.", findings={"edema": Polarity.NEGATIVE}),
        )

    def test_headings_are_no_phrases(self) -> None:
        read = read_report("FINDINGS:\nLUNGS: Clear.\nHEART: Normal size.")
        assert [sentence.text for sentence in read] == ["Clear.", "Normal size."]

    def test_regions_are_names_of_the_lexicon(self) -> None:
        for index in range(40):
            for statement in phantom_statements(index, 11):
                assert set(read_sentence(statement.text).regions) <= set(REGIONS)
        assert set(IMAGENOME_REGIONS) <= set(REGIONS)


def phantom_statements(index: int, seed: int) -> list[Statement]:
    config = plain_style(default_config())
    return write_report(sample_scene(config, seed, index), config, seed)


def to_observations(findings: dict[str, str]) -> dict[str, str]:
    strength = {"negative": 1, "uncertain": 2, "positive": 3}
    found: dict[str, str] = {}
    for name, polarity in findings.items():
        for label in rules().observations.get(name, ()):
            if label != "No Finding" and strength[polarity] > strength.get(found.get(label, ""), 0):
                found[label] = polarity
    return found


@pytest.mark.parametrize("seed", [21, 22])
def test_phantom_sentences_are_read_as_they_were_meant(seed: int) -> None:
    """The phantom writes from templates of its own and knows what each sentence says: over 98 in 100 must agree."""
    told = agreed = sides = same_side = 0
    for index in range(250):
        for statement in phantom_statements(index, seed):
            meant = to_observations({name: str(polarity) for name, polarity in statement.findings.items()})
            sentence = read_sentence(statement.text)
            read = to_observations(dict(sentence.findings))
            told += len(meant)
            agreed += sum(read.get(label) == polarity for label, polarity in meant.items())
            meant_sides = {REGIONS[name].side for name in statement.regions} - {"none"}
            if statement.lesions and len(meant_sides) == 1 and sentence.side is not None:
                sides += 1
                same_side += sentence.side in meant_sides
    assert told > 1000
    assert agreed / told > 0.98
    assert sides > 100
    assert same_side / sides > 0.98


def test_any_order_of_the_words_of_the_rules_can_be_read() -> None:
    generator = random.Random(5)
    words = [*rules().phrases.first, *rules().places.first, "left", "xxxx", "", "é", "ſ", "3.5"]
    for _ in range(3000):
        text = " ".join(generator.choices(words, k=generator.randrange(1, 25)))
        sentence = read_sentence(text)
        labels = {name: polarity for name, polarity in observations({"findings": text}).items() if polarity}
        assert set(labels.values()) <= {"positive", "negative", "uncertain"}
        assert set(sentence.regions) <= set(REGIONS)
        phrases_of(text)


def test_a_text_without_a_full_stop_is_read_up_to_a_bound() -> None:
    start = "No effusion, "
    assert observations(start * 20_000)["Pleural Effusion"] == "negative"
    assert observations("Left lung and " * 20_000 + "effusion")["Pleural Effusion"] is None


def test_reading_two_reports_does_not_mix_them() -> None:
    first = read_report("Possible pneumonia")
    assert read_report("No pneumonia") != first
    assert read_report("Possible pneumonia") == first
