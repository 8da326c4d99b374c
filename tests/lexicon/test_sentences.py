import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightlung.lexicon import split_sentences

# Texts with the marker "|" at the end of each sentence, after a line that says so.
KEPT = Path(__file__).with_name("divided_sentences.txt").read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("text", KEPT)
def test_sentences_are_divided_where_a_reader_would(text: str) -> None:
    assert split_sentences(text.replace("|", "")) == [part.strip() for part in text.split("|")]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("1. No pneumothorax. 2. Stable cardiomegaly.", ["No pneumothorax.", "Stable cardiomegaly."]),
        ("1. No pneumothorax 2. Stable cardiomegaly", ["No pneumothorax", "Stable cardiomegaly"]),
        ("1) Clear lungs. 2) Normal heart.", ["Clear lungs.", "Normal heart."]),
        ("(1) Clear lungs. (2) Normal heart.", ["Clear lungs.", "Normal heart."]),
        ("1.Clear lungs.2.Normal heart.", ["Clear lungs.", "Normal heart."]),
        ("1. Grade 2. The rest is clear. 2. Stable.", ["Grade 2.", "The rest is clear.", "Stable."]),
        ("Chest 1. Clear lungs. 2. Normal heart.", ["Chest", "Clear lungs.", "Normal heart."]),
        ("1. Nodule of 1.5 cm.\n2. Old scar.\n10. Done.", ["Nodule of 1.5 cm.", "Old scar.", "Done."]),
        ("1. Nodule\n   at the base\n2. Old scar", ["Nodule at the base", "Old scar"]),
        ("- Clear lungs\n- Normal heart", ["Clear lungs", "Normal heart"]),
        ("• Clear lungs. • Normal heart.", ["Clear lungs.", "Normal heart."]),
        ("* Clear lungs\n* Normal heart\n\n- Done", ["Clear lungs", "Normal heart", "Done"]),
        ("-No edema\n-No mass", ["No edema", "No mass"]),
        ("•no edema •no mass", ["no edema", "no mass"]),
        ("a large left\n-sided effusion", ["a large left -sided effusion"]),
        ("a. Clear lungs. b. Normal heart.", ["Clear lungs.", "Normal heart."]),
        ("a) Clear lungs\nb) normal heart\nc) Scar", ["Clear lungs", "normal heart", "Scar"]),
        ("I. Clear lungs. II. Normal heart. III. Scar.", ["Clear lungs.", "Normal heart.", "Scar."]),
        ("I. Clear\nII. Normal\nIII. Scar\nIV. Nodule\nV. Mass", ["Clear", "Normal", "Scar", "Nodule", "Mass"]),
        ("(i) Clear. (ii) Normal.", ["Clear.", "Normal."]),
        ("1. Nodules:\n a. in the apex\n b. in the base\n2. Scar.",
         ["Nodules:", "in the apex", "in the base", "Scar."]),
        ("a. Clear. b. Seen by V. Smith.", ["Clear.", "Seen by V. Smith."]),
        ("2 views. 3 cm mass.", ["2 views.", "3 cm mass."]),
        ("1.5 cm nodule. 2 images.", ["1.5 cm nodule.", "2 images."]),
        # Lines, headings and strays.
        ("FINDINGS: All clear.\nIMPRESSION: Normal.", ["FINDINGS:", "All clear.", "IMPRESSION:", "Normal."]),
        ("Impression:\n1. Normal.", ["Impression:", "Normal."]),
        ("PA AND LATERAL CHEST:\nClear.", ["PA AND LATERAL CHEST:", "Clear."]),
        ("The lungs are clear and there is no\n effusion or pneumothorax. The heart\n is normal.",
         ["The lungs are clear and there is no effusion or pneumothorax.", "The heart is normal."]),
        ("As compared to the previous radiograph of today, the tip of the right-sided\nPICC line lies in the SVC, as "
         "told to Dr.\nMiller. Stable.",
         ["As compared to the previous radiograph of today, the tip of the right-sided PICC line lies in the SVC, as "
          "told to Dr. Miller.", "Stable."]),
        ("No pneumothorax\nStable cardiomegaly", ["No pneumothorax", "Stable cardiomegaly"]),
        ("One paragraph without an end\n\nand the next", ["One paragraph without an end", "and the next"]),
        ("A large right-\nsided effusion - old -\nis seen.", ["A large right-sided effusion - old - is seen."]),
        ("Clear lungs.\r\n\r\nNormal heart.", ["Clear lungs.", "Normal heart."]),
        ("Clear lungs. . Normal heart. .", ["Clear lungs.", "Normal heart."]),
        ("NG tube in place\nETT 4 cm above carina", ["NG tube in place", "ETT 4 cm above carina"]),
        ("Compared to the film of\nXXXX, stable", ["Compared to the film of XXXX, stable"]),
        ("", []),
        (" \n\t ", []),
    ],
)  # fmt: skip
def test_list_markers_and_lines_divide_and_markers_are_dropped(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


WRAPPED = (
    "There is a right internal jugular sheath with an indwelling\n"
    "Swan-Ganz catheter, the tip of which projects over the main\n"
    "pulmonary artery."
)


@pytest.mark.parametrize("between", ["\n\n", "\n", "\nFINDINGS:\n", "\n1. "])
def test_a_long_line_elsewhere_does_not_tell_how_a_paragraph_was_wrapped(between: str) -> None:
    after = WRAPPED if between != "\n" else f"FINDINGS: {WRAPPED}"
    long = "INDICATION: Fever and cough for two weeks in a patient with earlier films of the chest, all clear."
    assert split_sentences(long + between + after)[-1] == WRAPPED.replace("\n", " ")


# What may be dropped: list markers, bullets, and full stops that stood alone.
MARKERS = re.compile(r"(?:\(?(?:\d{1,2}|[a-z]|[ivx]{2,4}|[IVX]{1,4})[.)]|[-–—•*·▪●◦‣.…])*")
WORDS = st.sampled_from(
    ["Clear", "lungs.", "No", "Dr.", "XXXX.", "___", "1.", "2.", "2)", "(3)", "-", "•", "*", "1.5", "cm.", "a.m.",
     "...", "?", "FINDINGS:", "Heart:", "\n", "\n\n", "T.", "Smith", "(see", "above.)", ".", "clear.No", "12",
     "…", ".2.Old", "\u2028", "\x85", "a.", "b.", "I.", "II.", "(b)", "mo.", "ETT"]
)  # fmt: skip


@settings(max_examples=120)
@given(st.lists(WORDS, max_size=14).map(" ".join) | st.text(alphabet=st.characters(codec="utf-8")))
def test_only_white_space_and_list_markers_are_lost(text: str) -> None:
    rest = "".join(text.split())
    for sentence in split_sentences(text):
        solid = "".join(sentence.split())
        assert solid
        assert sentence == sentence.strip()
        # What stands between two sentences is list markers: try every place where the sentence occurs.
        places = [match.start() for match in re.finditer(f"(?={re.escape(solid)})", rest)]
        cut = next((place for place in places if MARKERS.fullmatch(rest, 0, place)), None)
        assert cut is not None, (text, sentence)
        rest = rest[cut + len(solid) :]
    assert MARKERS.fullmatch(rest), (text, rest)


@given(
    st.lists(st.sampled_from(["The lungs are clear.", "No effusion or edema.", "Heart size is normal."]), max_size=6)
)
def test_plain_sentences_come_back_as_they_went_in(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences
    assert split_sentences("\n".join(sentences)) == sentences
    assert split_sentences("".join(f"{i}. {s}\n" for i, s in enumerate(sentences, 1))) == sentences
