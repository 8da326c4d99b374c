import copy
import pickle
import subprocess
import sys

import pytest

from rightlung.core.errors import InputError
from rightlung.lexicon import FINDINGS, LABEL_SETS, REGIONS, find, finding, label_map, label_set
from rightlung.lexicon.findings import broader_findings, build_findings


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("Pulmonary Atelectasis", "atelectasis"), ("Pleural Effusion", "pleural effusion"),
        ("effusions", "pleural effusion"), ("Infiltrate", "infiltration"), ("Opacity", "lung opacity"),
        ("Lung Opacity", "lung opacity"), ("Granuloma", "granuloma"), ("Calcified Granuloma", "calcified granuloma"),
        ("Hernia, Hiatal", "hiatal hernia"), ("Pulmonary Disease, Chronic Obstructive", "copd"),
        ("Pulmonary Edema", "edema"), ("OEDEMA", "edema"), ("pulmonary oedema", "edema"),
        ("Alveolar Haemorrhage", "alveolar hemorrhage"), ("lung tumour", "lung tumor"), ("goitre", "goiter"),
        ("Fractures, Bone", "fracture"), ("Pleural_Thickening", "pleural thickening"),
        ("mass/nodule (not otherwise specified)", "nodule or mass"),
        ("Lung Diseases, Interstitial", "interstitial lung disease"), ("normal", "no finding"),
        ("Pneumothoraces", "pneumothorax"), ("lung cavities", "lung cavity"), ("opacities", "lung opacity"),
        ("masses", "mass"), ("prominent hila", "enlarged hilum"), ("atelectases", "atelectasis"),
        ("granulomata", "granuloma"), ("bullae", "cyst or bulla"), ("hydropneumothoraces", "hydropneumothorax"),
        ("ectatic aorta", "aortic enlargement"), ("aortic ectasia", "aortic enlargement"),
        ("tracheal deviation", "tracheal deviation"),
    ],
)  # fmt: skip
def test_names_of_many_kinds_resolve(said: str, meant: str) -> None:
    assert finding(said).name == meant


@pytest.mark.parametrize(
    "said",
    ["Cardiac Shadow", "Lung", "Markings", "Thickening", "", "s", "left shoe", "no acute abnormality",
     "pulmonary malignancy", "abnormal", "fluid overload"],
)  # fmt: skip
def test_what_is_not_clear_cut_stays_unknown(said: str) -> None:
    assert find(said) is None


def test_every_name_and_synonym_finds_its_own_and_what_one_of_names_is_narrower() -> None:
    for name, found in FINDINGS.items():
        assert finding(name) is found
        assert all(finding(synonym.upper()) is found for synonym in found.synonyms)
        assert all(name in broader_findings(choice) for choice in found.one_of)


def test_broader_findings_follow_chexperts_hierarchy() -> None:
    for name in ("edema", "consolidation", "pneumonia", "atelectasis", "nodule", "mass", "lung lesion"):
        assert "lung opacity" in broader_findings(name)
    assert "consolidation" not in broader_findings("pneumonia")
    assert broader_findings("cardiomegaly") == ("enlarged cardiomediastinum",)
    assert broader_findings("pleural effusion") == ()


def test_findings_have_the_sides_and_the_spread_they_can_have() -> None:
    assert not finding("cardiomegaly").sides
    assert not finding("scoliosis").sides
    assert finding("pneumothorax").sides
    assert finding("edema").spread == "diffuse"
    assert finding("nodule").spread == "focal"
    assert finding("mediastinal shift").sides == finding("tracheal deviation").sides == ("left", "right")
    assert finding("pleural effusion").sides == ("left", "right", "both")
    assert not broader_findings("tracheal deviation")  # it is no mediastinal shift


def test_the_tables_can_be_pickled_and_copied() -> None:
    for table in (FINDINGS, LABEL_SETS, REGIONS):
        assert dict(pickle.loads(pickle.dumps(table))) == dict(table)
        assert dict(copy.deepcopy(table)) == dict(table)
    for value in (FINDINGS["nodule"], REGIONS["lungs"], label_set("nih-14"), label_map("nih-14", "chexpert-14")):
        assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"wart": {"broader": ["skin"]}}, r"findings\.toml, table \[wart\], key 'broader': names 'skin'"),
        ({"wart": {"count": "yes"}}, r"table \[wart\], key 'count': must be true or false; got 'yes'"),
        ({"wart": {"sides": ["up"]}}, r"table \[wart\], key 'sides': names 'up'"),
        ({"wart": {"one_side": "a wart"}}, r"table \[wart\], key 'one_side': must contain {side}"),
        ({"wart": {"regions": ["nose"]}}, r"table \[wart\], key 'regions': names 'nose'"),
        ({"wart": {"broader": ["wen"]}, "wen": {"broader": ["wart"]}}, r"key 'broader': leads back"),
        ({"wart": 3}, r"table \[wart\], key '': must be a table"),
    ],
)
def test_wrong_finding_data_is_an_error_that_names_file_table_and_key(data: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build_findings(data)


def test_importing_the_lexicon_reads_no_findings_and_labelling_brings_no_numpy() -> None:
    program = (
        "import sys, rightlung.lexicon\n"
        "from rightlung.lexicon.data_files import read_data\n"
        "assert read_data.cache_info().currsize == 1\n"
        "from rightlung.lexicon.labeller import observations\n"
        "assert observations('Small effusion.')['Pleural Effusion'] == 'positive'\n"
        "assert not {'numpy', 'torch', 'pandas'} & set(sys.modules), 'heavy import'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
