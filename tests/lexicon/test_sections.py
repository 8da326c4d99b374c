"""Reports in the styles of MIMIC-CXR and others, made up for this: one leading blank, centred titles, wrapped lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightlung.lexicon.headings import SECTIONS, section_name
from rightlung.lexicon.sections import descriptive_texts, find_sections, report_sections

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


@pytest.mark.parametrize(
    "line", ["Note: rotated.", "Compared to: the film of ___.", "HISTORY of cough is noted.", "Heart size: normal.",
             "PICC line in place", "At 10:30 the tip was low."],
)  # fmt: skip
def test_what_only_looks_like_a_heading_stays_in_the_text(line: str) -> None:
    assert report_sections(f"FINDINGS: Clear lungs.\n{line}\nNo effusion.") == {
        "findings": f"Clear lungs.\n{line}\nNo effusion."
    }


ORGANS = "LUNGS: Clear.\n HEART: Normal.\n LINES AND TUBES: None.\n SCOLIOSIS: Mild."
LINE = "_" * 78


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        pytest.param(
            "EXAM: Chest. INDICATION: Cough. COMPARISON: None. FINDINGS: Clear lungs. Impression: Normal.",
            {"examination": "Chest.", "indication": "Cough.", "comparison": "None.", "findings": "Clear lungs.",
             "impression": "Normal."},
            id="headings are found on one line"),
        pytest.param(
            "<FINDINGS> Clear lungs. [IMPRESSION] Normal. <b>No</b> change.",
            {"findings": "Clear lungs.", "impression": "Normal. <b>No</b> change."}, id="headings in brackets"),
        *[pytest.param(
            f"INDICATION: Cough.\n{heading}1) Normal. 2) Old scar.",
            {"indication": "Cough.", "impression": "1) Normal. 2) Old scar."}, id="a list may follow at once")
          for heading in ("Impression - ", "IMPRESSION:", "Impression – ")],
        pytest.param(
            " FINDINGS:  A nodule with the following\n findings: spiculation and growth. In view of the\n history\n",
            {"findings": "A nodule with the following\n findings: spiculation and growth. In view of the\n history"},
            id="small words in wrapped text are no headings"),
        pytest.param(
            f"FINDINGS:\n {ORGANS}\n IMPRESSION: Normal.", {"findings": ORGANS, "impression": "Normal."},
            id="organs divide the findings and do not end them"),
        pytest.param(
            f"INDICATION: Cough.\n {ORGANS}", {"indication": "Cough.", "findings": ORGANS}, id="organs are findings"),
        pytest.param(
            "ACCESSION CODE: 12\nFINDINGS: Clear.\nDICTATED BY: ___",
            {"accession code": "12", "findings": "Clear.", "signature": "___"},
            id="a heading nobody knows is a section of its own"),
        pytest.param(
            " CHEST, PA AND LATERAL:\n\n HISTORY:  Fall.\n\n PORTABLE CHEST: Single view.\n\n FINDINGS:  Clear.\n",
            {"history": "Fall.", "examination": "Single view.", "findings": "Clear."},
            id="titles head the examination where findings have a heading"),
        # What the official splitter does where headings are missing: MIT-LCP/mimic-cxr, txt/section_parser.py and
        # txt/create_section_files.py (the text after the first empty line of the last section, "last_paragraph").
        pytest.param(
            " REASON FOR EXAMINATION:  Line placement.\n \n Portable film.\n \n The tip is low.\n No pneumothorax.\n",
            {"indication": "Line placement.", "findings": "Portable film.\n \n The tip is low.\n No pneumothorax."},
            id="without findings, what follows the last section tells them"),
        pytest.param(
            "INDICATION: Cough.\n\nLungs are clear.\n\nNOTIFICATION: Dr. ___ was told.\n\nAt noon.",
            {"indication": "Cough.", "findings": "Lungs are clear.", "notification": "Dr. ___ was told.\n\nAt noon."},
            id="the telephone call is not the last section"),
        pytest.param(
            "WET READ: ___ ___ 4:04 PM\n  FINDINGS: Perhaps pneumonia.\n  IMPRESSION: Pneumonia.\n "
            f"{LINE}\n                 FINAL REPORT\n FINDINGS:  Lungs are clear.\n\n IMPRESSION:  Normal.\n",
            {"findings": "Lungs are clear.", "impression": "Normal.",
             "wet read": "___ ___ 4:04 PM\n  FINDINGS: Perhaps pneumonia.\n  IMPRESSION: Pneumonia."},
            id="the final report wins over the wet read"),
        pytest.param(
            "WET READ: No change.\n\nINDICATION: Cough.\n\nFINDINGS: Clear.",
            {"wet read": "No change.", "indication": "Cough.", "findings": "Clear."},
            id="a wet read that no rule ends, ends at the report"),
        pytest.param(
            "                FINAL ADDENDUM\n ADDENDUM  The nodule was seen on CT.\n\n IMPRESSION:  Follow up.\n "
            f"{LINE}\n                 FINAL REPORT\n IMPRESSION:  New nodule.\n",
            {"impression": "New nodule.", "addendum": "The nodule was seen on CT.\n\n IMPRESSION:  Follow up."},
            id="an addendum before the report is kept apart"),
        pytest.param(
            "FINDINGS: Clear.\nIMPRESSION: Normal.\n******** ADDENDUM ********\nOn review a nodule.\n\n"
            "IMPRESSION: Nodule.\nADDENDUM: Told to ___.",
            {"findings": "Clear.", "impression": "Normal.",
             "addendum": "On review a nodule.\n\nIMPRESSION: Nodule.\n\nTold to ___."},
            id="addenda after the report are kept apart"),
        *[pytest.param(
            f"FINDINGS: Clear.\nADDENDUM: A nodule, told to ___.{rule}",
            {"findings": "Clear.", "addendum": "A nodule, told to ___."}, id="a rule ends an addendum")
          for rule in ("\n______", " ______________", "\n ________________\n")],
        pytest.param(
            "COMPARISON: ___. The heart is enlarged. No pneumothorax.",
            {"comparison": "___.", "findings": "The heart is enlarged. No pneumothorax."},
            id="findings dictated into the comparison are found"),
        pytest.param(
            "COMPARISON: Film of ___. CT of ___.", {"comparison": "Film of ___. CT of ___."}, id="a comparison alone"),
        pytest.param(
            "Lungs clear.\n\nHeart normal.", {"findings": "Lungs clear.\n\nHeart normal."}, id="without headings"),
        pytest.param(
            "FINDINGS: One.\nIMPRESSION: Two.\nFINDINGS: Three.",
            {"findings": "One.\n\nThree.", "impression": "Two."}, id="sections of one name are joined"),
    ],
)  # fmt: skip
def test_a_report_is_cut_into_its_sections(text: str, sections: dict[str, str]) -> None:
    assert report_sections(text) == sections


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("INDICATION: Cough.", []),
        ("   FINAL REPORT\n PA AND LATERAL CHEST ON ___\n \n Lungs clear.\n \n Heart normal.",
         ["Lungs clear.\n \n Heart normal."]),
        ("WET READ: ___\nIMPRESSION: No pneumonia.", ["No pneumonia."]),  # all there is, is the report
    ],
)  # fmt: skip
def test_the_text_that_tells_findings_is_all_but_titles_and_reasons(text: str, told: list[str]) -> None:
    assert descriptive_texts(text) == told


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


@settings(max_examples=120)
@given(st.lists(PIECES, max_size=16).map(" ".join) | st.text(alphabet=st.characters(codec="utf-8")))
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
