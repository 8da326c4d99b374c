"""Reports in the styles of MIMIC-CXR and others, made up for this: one leading blank, centred titles, wrapped lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightlung.lexicon.headings import SECTIONS, section_name
from rightlung.lexicon.sections import find_sections, report_sections, telling_text

SEEN, MEANT = "The lungs are clear. There is no pleural\n effusion.", "No acute disease."


def headed(findings: str, impression: str) -> str:
    """A report with these two headings as they stand, the rest in the usual form."""
    return f"""                                 FINAL REPORT
 INDICATION:  ___ year old woman with cough.

 COMPARISON:  Chest radiograph of ___.

 {findings}{SEEN}

 {impression}{MEANT}
"""


@pytest.mark.parametrize(
    ("findings", "impression"),
    [
        ("FINDINGS:  ", "IMPRESSION:  "), ("FINDINGS: \n\n ", "IMPRESSION: \n\n "), ("FINDINGS:", "IMPRESSION:"),
        ("Findings: ", "Impression: "), ("findings: ", "impression: "), ("FINDINGS \n ", "IMPRESSION \n "),
        ("Findings\n ", "Impression\n "), ("findings\n ", "impression\n "), ("FINDINGS  ", "IMPRESSION  "),
        ("FINDINGS - ", "IMPRESSION - "), ("Findings - ", "Impression – "), ("1. FINDINGS: ", "2. IMPRESSION: "),
        ("II. FINDINGS:\n ", "III. IMPRESSION:\n "), ("A) Findings: ", "B) Impression: "),
        ("**FINDINGS:** ", "**IMPRESSION:** "), ("**Findings**: ", "**Impression**: "),
        ("## Findings\n", "## Impression\n"), ("[FINDINGS]\n", "[IMPRESSION]\n"), ("[FINDINGS] ", "[Impression]: "),
        ("<FINDINGS> ", "<IMPRESSION>"), ("FINDINGS= ", "IMPRESSION = "), ("FINDINGS; ", "Impression; "),
        ("F I N D I N G S: ", "I M P R E S S I O N:\n "), ("Findings: ", "Imp: "), ("FINDINGS: ", "IMP: "),
        ("Findings: ", "Opinion: "), ("Findings: ", "Summary: "), ("=== FINDINGS ===\n", "=== IMPRESSION ===\n"),
        ("__FINDINGS__:\n", "__IMPRESSION__:\n"), ("FINDINGS :  ", "IMPRESSION :  "),
        ("FINDING(S): ", "CONCLUSION(S): "), ("FINDING: ", "CONCLUSION: "), ("FINDNGS: ", "IMPRESSON: "),
        ("FINIDNGS: ", "IMPRRESSION: "), ("CHEST FINDINGS: ", "FINAL IMPRESSION: "),
        ("CHEST, TWO VIEWS: ", "IMPRESSION: "), ("PA AND LATERAL VIEWS OF THE CHEST: ", "IMPRESSION: "),
        ("PORTABLE CHEST RADIOGRAPH: ", "IMPRESSION AND RECOMMENDATIONS: "),
    ],
)  # fmt: skip
def test_headings_of_every_style_are_found(findings: str, impression: str) -> None:
    sections = report_sections(headed(findings, impression))
    assert sections["findings"] == SEEN
    assert sections["impression"] == MEANT
    assert sections["indication"] == "___ year old woman with cough."
    assert sections["comparison"] == "Chest radiograph of ___."
    assert set(sections) == {"findings", "impression", "indication", "comparison"}


@pytest.mark.parametrize(
    "heading",
    ["FINDINGS AND IMPRESSION:", "FINDINGS/IMPRESSION:", "Findings & Impression:", "IMPRESSION AND FINDINGS:",
     "FINDINGS / IMPRESSION", "FINDINGS AND IMPRESSIONS:"],
)  # fmt: skip
def test_findings_and_impression_in_one_are_the_impression(heading: str) -> None:
    text = f" HISTORY:  Fall.\n\n {heading}\n {SEEN}\n"
    assert report_sections(text) == {"history": "Fall.", "impression": SEEN}


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("REASON FOR EXAM", "indication"), ("Reason for examination", "indication"),
        ("CLINICAL INDICATION", "indication"),
        ("CLINICAL HISTORY", "history"), ("Clinical information", "history"), ("PATIENT HISTORY", "history"),
        ("COMPARISONS", "comparison"), ("COMPARISION", "comparison"), ("Reference exam", "comparison"),
        ("TECHNIQUE", "technique"), ("EXAMINATION", "examination"), ("TYPE OF EXAMINATION", "examination"),
        ("RECOMMENDATION(S)", "recommendations"), ("NOTIFICATION", "notification"), ("WETREAD", "wet read"),
        ("FINAL ADDENDUM", "addendum"), ("HISTORY/INDICATION", "history"), ("INDICATON", "indication"),
        ("LUNGS", "organ"), ("LINES AND TUBES", "organ"), ("AP VIEW", "title"), ("DLP", None), ("Lungs", None),
        ("Note", None), ("Chest findings", None), ("", None), ("::", None),
    ],
)  # fmt: skip
def test_headings_mean_their_sections(heading: str, name: str | None) -> None:
    assert section_name(heading) == name
    assert section_name(f" {heading}: ") == name


def test_every_spelling_in_the_table_means_its_section() -> None:
    spellings = [(spelling, name) for name, known in SECTIONS.items() for spelling in known]
    assert len(dict(spellings)) == len(spellings)
    for spelling, name in spellings:
        assert section_name(spelling.upper()) == name


def test_headings_are_found_on_one_line() -> None:
    text = "EXAM: Chest. INDICATION: Cough. COMPARISON: None. FINDINGS: Clear lungs. Impression: Normal."
    assert report_sections(text) == {
        "examination": "Chest.", "indication": "Cough.", "comparison": "None.", "findings": "Clear lungs.",
        "impression": "Normal.",
    }  # fmt: skip
    assert report_sections("<FINDINGS> Clear lungs. [IMPRESSION] Normal. <b>No</b> change.") == {
        "findings": "Clear lungs.",
        "impression": "Normal. <b>No</b> change.",
    }


@pytest.mark.parametrize("heading", ["Impression - ", "IMPRESSION:", "Impression – "])
def test_a_numbered_list_may_follow_its_heading_at_once(heading: str) -> None:
    assert report_sections(f"INDICATION: Cough.\n{heading}1) Normal. 2) Old scar.") == {
        "indication": "Cough.",
        "impression": "1) Normal. 2) Old scar.",
    }


@pytest.mark.parametrize("rule", ["\n______", " ______________", "\n ________________\n"])
def test_a_rule_is_no_part_of_the_addendum_before_it(rule: str) -> None:
    assert report_sections(f"FINDINGS: Clear.\nADDENDUM: A nodule, told to ___.{rule}")["addendum"] == (
        "A nodule, told to ___."
    )


def test_small_words_in_wrapped_text_are_no_headings() -> None:
    text = " FINDINGS:  A nodule with the following\n findings: spiculation and growth. In view of the\n history\n"
    (section,) = find_sections(text)
    assert section.name == "findings"
    assert section.text.endswith("In view of the\n history")


@pytest.mark.parametrize(
    "line", ["Note: rotated.", "Compared to: the film of ___.", "HISTORY of cough is noted.", "Heart size: normal.",
             "PICC line in place", "At 10:30 the tip was low."],
)  # fmt: skip
def test_what_only_looks_like_a_heading_stays_in_the_text(line: str) -> None:
    assert report_sections(f"FINDINGS: Clear lungs.\n{line}\nNo effusion.") == {
        "findings": f"Clear lungs.\n{line}\nNo effusion."
    }


def test_organs_divide_the_findings_and_do_not_end_them() -> None:
    organs = "LUNGS: Clear.\n HEART: Normal.\n LINES AND TUBES: None.\n SCOLIOSIS: Mild."
    assert report_sections(f"FINDINGS:\n {organs}\n IMPRESSION: Normal.") == {
        "findings": organs,
        "impression": "Normal.",
    }
    assert report_sections(f"INDICATION: Cough.\n {organs}") == {"indication": "Cough.", "findings": organs}


def test_a_heading_nobody_knows_is_a_section_of_its_own() -> None:
    text = "ACCESSION CODE: 12\nFINDINGS: Clear.\nDICTATED BY: ___"
    assert report_sections(text) == {"accession code": "12", "findings": "Clear.", "signature": "___"}


def test_titles_head_the_examination_where_findings_have_a_heading() -> None:
    text = " CHEST, PA AND LATERAL:\n\n HISTORY:  Fall.\n\n PORTABLE CHEST: Single view.\n\n FINDINGS:  Clear.\n"
    assert report_sections(text) == {"history": "Fall.", "examination": "Single view.", "findings": "Clear."}


# What the official splitter does where headings are missing: MIT-LCP/mimic-cxr, txt/section_parser.py and
# txt/create_section_files.py (the text after the first empty line of the last section, "last_paragraph").
def test_without_findings_what_follows_the_last_section_tells_them() -> None:
    text = (
        " REASON FOR EXAMINATION:  Line placement.\n \n Portable AP film.\n \n The tip lies low.\n No pneumothorax.\n"
    )
    assert report_sections(text) == {
        "indication": "Line placement.",
        "findings": "Portable AP film.\n \n The tip lies low.\n No pneumothorax.",
    }


def test_the_telephone_call_is_not_the_last_section() -> None:
    text = "INDICATION: Cough.\n\nLungs are clear.\n\nNOTIFICATION: Dr. ___ was told.\n\nAt noon."
    sections = report_sections(text)
    assert (sections["findings"], sections["indication"]) == ("Lungs are clear.", "Cough.")


def test_findings_dictated_into_the_comparison_are_found() -> None:
    told = "The heart is enlarged. No pneumothorax."
    assert report_sections(f"COMPARISON: ___. {told}") == {"comparison": "___.", "findings": told}
    assert report_sections("COMPARISON: Film of ___. CT of ___.") == {"comparison": "Film of ___. CT of ___."}
    assert telling_text("INDICATION: Cough.") == []


def test_a_report_without_headings_is_all_findings_but_its_title() -> None:
    assert report_sections("Lungs clear.\n\nHeart normal.") == {"findings": "Lungs clear.\n\nHeart normal."}
    titled = "   FINAL REPORT\n PA AND LATERAL CHEST ON ___\n \n Lungs clear.\n \n Heart normal."
    assert telling_text(titled) == ["Lungs clear.\n \n Heart normal."]


def test_the_final_report_wins_over_the_wet_read() -> None:
    text = """WET READ: ___ ___ 4:04 PM
  FINDINGS: Perhaps pneumonia.
  IMPRESSION: Pneumonia.
 ______________________________________________________________________________
                                 FINAL REPORT
 FINDINGS:  Lungs are clear.

 IMPRESSION:  Normal.
"""
    sections = report_sections(text)
    assert (sections["findings"], sections["impression"]) == ("Lungs are clear.", "Normal.")
    assert sections["wet read"].startswith("___ ___ 4:04 PM")
    assert sections["wet read"].endswith("IMPRESSION: Pneumonia.")
    assert set(sections) == {"findings", "impression", "wet read"}


def test_a_wet_read_that_no_rule_ends_ends_at_the_report() -> None:
    text = "WET READ: No change.\n\nINDICATION: Cough.\n\nFINDINGS: Clear."
    assert report_sections(text) == {"wet read": "No change.", "indication": "Cough.", "findings": "Clear."}


def test_all_there_is_is_the_report() -> None:
    assert telling_text("WET READ: ___\nIMPRESSION: No pneumonia.") == ["No pneumonia."]


def test_an_addendum_before_the_report_is_kept_apart() -> None:
    text = """                                 FINAL ADDENDUM
 ADDENDUM  The nodule was seen on CT.

 IMPRESSION:  Follow up.
 ______________________________________________________________________________
                                 FINAL REPORT
 IMPRESSION:  New nodule.
"""
    assert report_sections(text) == {
        "impression": "New nodule.",
        "addendum": "The nodule was seen on CT.\n\n IMPRESSION:  Follow up.",
    }


def test_addenda_after_the_report_are_kept_apart() -> None:
    text = (
        "FINDINGS: Clear.\nIMPRESSION: Normal.\n******** ADDENDUM ********\nOn review a nodule.\n\n"
        "IMPRESSION: Nodule.\nADDENDUM: Told to ___."
    )
    sections = report_sections(text)
    assert (sections["findings"], sections["impression"]) == ("Clear.", "Normal.")
    assert sections["addendum"] == "On review a nodule.\n\nIMPRESSION: Nodule.\n\nTold to ___."


def test_sections_of_one_name_are_joined() -> None:
    text = "FINDINGS: One.\nIMPRESSION: Two.\nFINDINGS: Three."
    assert report_sections(text) == {"findings": "One.\n\nThree.", "impression": "Two."}


def test_crlf_reads_as_lf_does() -> None:
    text = headed("FINDINGS:\n\n ", "Impression\n ")
    spaced = {name: " ".join(part.split()) for name, part in report_sections(text).items()}
    crlf = report_sections(text.replace("\n", "\r\n"))
    assert {name: " ".join(part.split()) for name, part in crlf.items()} == spaced


PIECES = st.sampled_from(
    ["FINDINGS:", "Impression", "WET READ:", "ADDENDUM", "FINAL REPORT", "LUNGS:", "COMPARISON:", "Clear lungs.", "\n",
    "\n\n",
     "\r\n", "_" * 20, "___", "findings:", "PORTABLE CHEST:", "CODE RED:", "1.", "No effusion", " ", "\u2028"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=16).map(" ".join))
def test_positions_are_kept_in_order_and_no_text_is_lost(text: str) -> None:
    sections = find_sections(text)
    last = 0
    between = []
    for section in sections:
        assert text[section.start : section.end] == section.text == section.text.strip() != ""
        assert section.start >= last
        between.append(text[last : section.start])
        last = section.end
    # What stands between sections is headings and rules only.
    rest = " ".join([*between, text[last:]])
    assert "lungs." not in rest.replace("LUNGS", "")
    assert "effusion" not in rest


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_any_text_can_be_cut(text: str) -> None:
    for section in find_sections(text):
        assert text[section.start : section.end] == section.text
