import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightlung.core import Box, Mask, Phrase, Polarity
from rightlung.lexicon import mirror_phrase, side_of, sides_in, swap_sides

PAIRS = [
    ("left lung", "right lung"), ("Right-sided effusion", "Left-sided effusion"),
    ("LEFT LOWER LOBE", "RIGHT LOWER LOBE"), ("a right-to-left shunt", "a left-to-right shunt"),
    ("shifted leftward", "shifted rightward"), ("Rightwards shift", "Leftwards shift"),
    ("RUL nodule, RLL opacity", "LUL nodule, LLL opacity"), ("dextroscoliosis", "levoscoliosis"),
    ("Levocurvature", "Dextrocurvature"), ("mild dextro scoliosis", "mild levo scoliosis"), ("Lt. base", "Rt. base"),
    ("on the right? yes", "on the left? yes"), ("(left)", "(right)"), ("left/right", "right/left"),
    ("left_lung", "right_lung"), ("___right___", "___left___"), ("the right's edge", "the left's edge"),
    ("right>left", "left>right"), ("lEft", "rIght"),
    ("right middle lobe and RML opacity", "left middle lobe and LML opacity"),
    ("R-sided effusion", "L-sided effusion"),
    ("right atrium, left ventricular lead", "left atrium, right ventricular lead"),
]  # fmt: skip
UNCHANGED = [
    "bilateral effusions", "upright view", "Semi-upright", "leftover", "cleft", "bright", "copyright", "lingula",
    "", "L1 fracture", "status post RT", "righteous", "lefty", "rıght", "right2", "éright", "rightſ", "RIGHt", "righT",
    "Dr. Rao",
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_whole_words_are_swapped_with_their_case_in_both_directions(one: str, other: str) -> None:
    assert swap_sides(one) == other
    assert swap_sides(other) == one


@pytest.mark.parametrize("text", UNCHANGED)
def test_what_only_looks_like_a_side_stays(text: str) -> None:
    assert swap_sides(text) == text


PIECES = st.sampled_from(
    ["left", "right", "Left", "RIGHT", "rIgHt", "LEft", "righT", "RUL", "lll", "dextro", "Levoscoliosis", "RT", "lt",
     "Rt", "RML", "L-sided", " atrium", " ventricular", " and ", "/",
     "ward", "-", " ", "_", "ſ", "ı", "İ", "\u0301", "ß", "upright", ".", "\n", "1", "é", "LEFTWARD", "rightMOST"]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=3), max_size=8).map("".join) | st.text())
def test_swapping_and_mirroring_twice_give_the_text_back(text: str) -> None:
    assert swap_sides(swap_sides(text)) == text
    if text.strip():
        assert mirror_phrase(mirror_phrase(Phrase(text))).text == text


@pytest.mark.parametrize("word", ["left", "right", "leftward", "dextroscoliosis", "rul"])
@given(data=st.data())
def test_every_way_to_write_a_side_survives_two_swaps(word: str, data: st.DataObject) -> None:
    cases = data.draw(st.lists(st.booleans(), min_size=len(word), max_size=len(word)))
    text = "".join(letter.upper() if upper else letter for letter, upper in zip(word, cases, strict=True))
    assert swap_sides(swap_sides(text)) == text


@given(st.lists(PIECES, max_size=8).map(" ".join))
def test_swapping_a_text_swaps_the_sides_found_in_it(text: str) -> None:
    # Words in a case that has no partner stay; they are left out here.
    plain = text.lower()
    other = {"left": "right", "right": "left"}
    assert sides_in(swap_sides(plain)) == {other[side] for side in sides_in(plain)}


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("Left pleural effusion", "left"), ("opacity in the RLL", "right"), ("right middle lobe (RML)", "right"),
        ("RML collapse", "right"), ("Bilateral effusions, left larger", "both"), ("bibasilar atelectasis", "both"),
        ("both lungs are clear", "both"), ("both upper lobes", "both"), ("right and left", "both"),
        ("both an effusion and a nodule", None), ("upright radiograph", None), ("cardiomegaly", None),
        ("status post RT", None), ("lingular opacity", "left"), ("opacity in the lingula", "left"), ("LML", "left"),
        ("R-sided port", "right"), ("l-sided effusion", "left"), ("both of the lungs", "both"),
        ("both of these lower lobes", "both"), ("Bi-basilar opacities", "both"), ("bi-apical scarring", "both"),
    ],
)  # fmt: skip
def test_the_side_a_text_names(text: str, side: str | None) -> None:
    assert side_of(text) == side
    expected: list[str] = ["left", "right"] if side == "both" else [side] if side else []
    assert sorted(sides_in(text)) == expected


def test_a_mirrored_phrase_has_mirrored_words_boxes_mask_and_regions() -> None:
    pixels = np.zeros((4, 6), dtype=bool)
    pixels[0, 0] = True
    phrase = Phrase(
        text="Left apical pneumothorax, upright.",
        boxes=(Box(0.5, 0.0, 0.75, 0.25),),
        mask=Mask(pixels),
        regions=("left apical zone", "trachea", "apical zones", "right atrium", "left shoulder", "Left Lower Lobe"),
        findings={"pneumothorax": Polarity.POSITIVE},
    )
    mirrored = mirror_phrase(phrase)
    assert mirrored.text == "Right apical pneumothorax, upright."
    assert mirrored.boxes == (Box(0.25, 0.0, 0.5, 0.25),)
    assert mirrored.regions == (
        "right apical zone", "trachea", "apical zones", "right atrium", "right shoulder", "Right Lower Lobe",
    )  # fmt: skip
    assert mirrored.mask == Mask(pixels[:, ::-1])
    assert mirrored.findings == phrase.findings
    assert mirror_phrase(mirrored) == phrase


@pytest.mark.parametrize(
    ("text", "mirrored"),
    [
        ("Line from the left ends in the right atrium.", "Line from the right ends in the right atrium."),
        ("LEFT ATRIAL enlargement, right effusion", "LEFT ATRIAL enlargement, left effusion"),
        ("leads in the right and left ventricles", "leads in the right and left ventricles"),
        ("effusion on the right and left atrial enlargement", "effusion on the left and left atrial enlargement"),
        ("left/right atrial size", "left/right atrial size"),
        ("the right heart border is obscured", "the left heart border is obscured"),
        ("right ventricular lead, right base", "right ventricular lead, left base"),
    ],
)
def test_heart_chambers_keep_their_names_in_a_mirrored_phrase(text: str, mirrored: str) -> None:
    phrase = mirror_phrase(Phrase(text, regions=("right atrium", "Right Atrium", "right lung")))
    assert phrase.text == mirrored
    assert phrase.regions == ("right atrium", "Right Atrium", "left lung")
    assert mirror_phrase(phrase).text == text
