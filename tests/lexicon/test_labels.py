from itertools import permutations

import pytest

from rightlung.core.errors import InputError
from rightlung.lexicon import FINDINGS, LABEL_SETS, finding, label_map, label_set
from rightlung.lexicon.findings import broader_findings
from rightlung.lexicon.labels import build_label_sets, build_overrides

# Published lists, typed from the data sets' own files and papers.
CHEXPERT = """No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,
Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices""".replace("\n", "").split(",")
NIH_BOXED = ["Atelectasis", "Cardiomegaly", "Effusion", "Infiltrate", "Mass", "Nodule", "Pneumonia", "Pneumothorax"]

PAIRS = [*permutations(LABEL_SETS, 2)]


def test_spelling_and_order_are_the_published_ones() -> None:
    assert list(label_set("chexpert-14").labels) == CHEXPERT
    assert list(label_set("nih-8-boxed").labels) == NIH_BOXED
    assert list(label_set("nih-14").labels[:8]) == [name.replace("Infiltrate", "Infiltration") for name in NIH_BOXED]
    assert set(label_set("nih-14").labels[8:]) == {
        "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia",
    }  # fmt: skip
    assert label_set("nih-14").no_finding == "No Finding"  # which it writes but does not count
    assert label_map("chexpert-14", "nih-14").apply("No Finding") is None
    assert set(label_set("ms-cxr-8").labels) < set(CHEXPERT)
    assert set(label_set("vindr-6").labels) == {
        "COPD", "Lung tumor", "Pneumonia", "Tuberculosis", "Other diseases", "No finding",
    }  # fmt: skip
    assert label_set("rsna").labels == ("Lung Opacity", "No Lung Opacity / Not Normal", "Normal")
    assert label_set("siim").labels == ("Pneumothorax",)
    assert {"Nodule/Mass", "ILD", "Other lesion", "Enlarged PA"} < set(label_set("vindr-22").labels)
    assert label_set("imagenome-53").labels == label_set("imagenome-43").labels + label_set("imagenome-10").labels


@pytest.mark.parametrize("pair", PAIRS)
def test_every_map_is_total_stays_inside_the_target_and_says_why_it_approximates(pair: tuple[str, str]) -> None:
    found = label_map(*pair)
    assert tuple(found.table) == label_set(pair[0]).labels
    for label, image in found.table.items():
        assert (image is None) == (found.relations[label] == "none")
        assert found.notes.get(label) or found.relations[label] != "close"
        if image is not None:
            assert image
            assert set(image) <= set(label_set(pair[1]).labels)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_map_is_injective_exactly_when_it_can_be_undone_and_lossless_when_it_also_changes_nothing(
    pair: tuple[str, str],
) -> None:
    found = label_map(*pair)
    back: dict[str, str] = {}
    undone = True
    for label, image in found.table.items():
        if image is None or len(image) > 1 or image[0] in back:
            undone = False
            break
        back[image[0]] = label
    assert found.injective == undone
    assert found.lossy == (not undone or set(found.relations.values()) != {"same"})


def test_which_maps_are_lossless_is_known() -> None:
    named = {pair for pair in PAIRS if not label_map(*pair).lossy and "findings" not in pair}
    assert {("nih-8-boxed", "nih-14"), ("ms-cxr-8", "chexpert-14"), ("imagenome-10", "imagenome-53"),
            ("imagenome-43", "imagenome-53"), ("siim", "chexpert-14")} <= named  # fmt: skip
    widened = label_map("vindr-6", "findings")
    assert widened.injective
    assert widened.lossy
    assert not named & {("nih-14", "nih-8-boxed"), ("nih-14", "chexpert-14"), ("vindr-22", "chexpert-14"),
                        ("imagenome-53", "chexpert-14"), ("chexpert-14", "ms-cxr-8")}  # fmt: skip


@pytest.mark.parametrize("name", [*LABEL_SETS])
def test_a_label_is_the_same_as_itself_even_where_it_only_comes_close_to_its_finding(name: str) -> None:
    assert not label_map(name, name).lossy
    assert all(image == (label,) for label, image in label_map(name, name).table.items())
    assert label_map("imagenome-43", "imagenome-53").relations["enlarged cardiac silhouette"] == "same"


@pytest.mark.parametrize("pair", PAIRS)
def test_a_composed_map_never_says_more_than_the_label_does(pair: tuple[str, str]) -> None:
    source, target = label_set(pair[0]), label_set(pair[1])
    found = label_map(*pair)
    for label, image in found.table.items():
        meaning = source.findings[label]
        meant = [target.findings[reached] for reached in image or ()]
        if found.relations[label] == "same":
            assert meant == [meaning] * len(meant)
        if found.relations[label] == "broader":
            assert set(meant) <= set(broader_findings(meaning))
        if found.relations[label] in ("close", "one of") and meaning not in meant:
            steps = (meaning, *broader_findings(meaning))
            assert label in found.notes or any(set(FINDINGS[step].one_of) == set(meant) for step in steps)


@pytest.mark.parametrize(
    ("source", "target", "label", "image", "relation"),
    [
        ("nih-14", "chexpert-14", "Effusion", ("Pleural Effusion",), "same"),
        ("nih-14", "chexpert-14", "Infiltration", ("Lung Opacity",), "broader"),
        ("nih-14", "ms-cxr-8", "Infiltration", ("Lung Opacity",), "broader"),
        ("nih-14", "chexpert-14", "Pleural_Thickening", ("Pleural Other",), "broader"),
        ("nih-14", "chexpert-14", "Hernia", None, "none"),
        ("nih-14", "vindr-22", "Fibrosis", ("Pulmonary fibrosis",), "same"),
        ("nih-14", "vindr-22", "Nodule", ("Nodule/Mass",), "broader"),
        ("vindr-22", "nih-14", "Nodule/Mass", ("Nodule", "Mass"), "one of"),
        ("vindr-22", "chexpert-14", "Rib fracture", ("Fracture",), "broader"),
        ("vindr-22", "chexpert-14", "ILD", ("Lung Opacity",), "broader"),
        ("vindr-22", "chexpert-14", "Other lesion", None, "none"),
        ("vindr-22", "rsna", "Other lesion", None, "none"),
        ("chexpert-14", "nih-14", "Lung Opacity", None, "none"),
        ("chexpert-14", "rsna", "Pneumonia", ("Lung Opacity",), "broader"),
        ("chexpert-14", "rsna", "Atelectasis", None, "none"),
        ("rsna", "chexpert-14", "Lung Opacity", ("Lung Opacity",), "broader"),
        ("imagenome-53", "chexpert-14", "hydropneumothorax", ("Pneumothorax", "Pleural Effusion"), "broader"),
        ("imagenome-53", "chexpert-14", "enlarged cardiac silhouette", ("Cardiomegaly",), "close"),
        ("imagenome-53", "chexpert-14", "vascular congestion", ("Edema",), "close"),
        ("imagenome-53", "nih-14", "copd/emphysema", ("Emphysema",), "close"),
        ("imagenome-53", "nih-14", "multiple masses/nodules", ("Nodule", "Mass"), "one of"),
        ("imagenome-43", "nih-8-boxed", "multiple masses/nodules", ("Nodule", "Mass"), "one of"),
        ("imagenome-43", "vindr-22", "multiple masses/nodules", ("Nodule/Mass",), "broader"),
        ("imagenome-43", "ms-cxr-8", "multiple masses/nodules", ("Lung Opacity",), "broader"),
        ("imagenome-43", "chexpert-14", "linear/patchy atelectasis", ("Atelectasis",), "close"),
        ("nih-8-boxed", "nih-14", "Infiltrate", ("Infiltration",), "same"),
        ("nih-8-boxed", "findings", "Infiltrate", ("infiltration",), "same"),
        ("vindr-6", "chexpert-14", "No finding", ("No Finding",), "close"),
        ("vindr-6", "findings", "No finding", ("no finding",), "close"),
    ],
)
def test_the_medicine_of_the_maps(
    source: str, target: str, label: str, image: tuple[str, ...] | None, relation: str
) -> None:
    found = label_map(source, target)
    assert found.apply(label) == image
    assert found.relations[label] == relation


def test_infiltration_is_not_consolidation() -> None:
    for source, label in [("nih-14", "Infiltration"), ("vindr-22", "Infiltration"), ("imagenome-43", "infiltration")]:
        for target in LABEL_SETS:
            image = label_map(source, target).apply(label) or ()
            assert not any("onsolidation" in name for name in image)


def test_every_label_resolves_to_the_finding_its_set_gives_it_but_for_rsnas_opacity() -> None:
    odd = {
        (name, label)
        for name, found in LABEL_SETS.items()
        for label, meaning in found.findings.items()
        if finding(label).name != meaning
    }
    assert odd == {("rsna", "Lung Opacity")}


def test_wrong_label_data_is_an_error_that_names_file_table_and_key() -> None:
    with pytest.raises(InputError, match=r"label_sets\.toml, table \[mine\.labels\], key 'Wart': means 'wart'"):
        build_label_sets({"mine": {"title": "t", "source": "s", "labels": {"Wart": "wart"}}})
    with pytest.raises(InputError, match=r"label_sets\.toml, table \[mine\], key 'source': is missing"):
        build_label_sets({"mine": {"title": "t", "labels": {"Mass": "mass"}}})
    entry = {"sources": ["siim"], "target": "nih-14", "label": "Wart", "to": ["Mass"], "note": "n"}
    with pytest.raises(InputError, match=r"label_maps\.toml, table \[override 1\], key 'label': 'Wart' is not a label"):
        build_overrides({"override": [entry]}, LABEL_SETS)
