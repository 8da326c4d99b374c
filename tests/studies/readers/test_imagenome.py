"""Chest ImaGenome, on a tree with the published names and columns.

Files: https://physionet.org/content/chest-imagenome/1.0.0/ ("Data Description": scene graph JSON, gold tables, splits).
Keys and columns as public code for them reads them, such as ttanida/rgrg, src/dataset/create_dataset.py.
"""

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rightlung import open_source
from rightlung.core import Box, InputError
from rightlung.probes.registry import synthetic_of
from tests.studies.conftest import there
from tests.studies.readers.published import NEGATIVE, POSITIVE, Files, refuses

A, B, GOLD = "02aa804e-bde0afdd", "2a2277a9-b0ded155", "e084de3b-be89b11e"
SPLIT_HEADER = ",subject_id,study_id,dicom_id,path,ViewPosition"
GOLD_BOXES = (
    "image_id,x1,y1,x2,y2,width,height,bbox_name,annot_id,original_x1,original_x2,original_y1,original_y2,original_width,"
    "original_height,annotator,coord224,coord_original"
)
GOLD_ATTRIBUTES = "patient_id\tstudy_id\timage_id\trow_id\tsentence\tbbox\tcategoryID\tlabel_name\tcontext\trelation"


def bbox(name: str, x1: int, y1: int, x2: int, y2: int) -> dict[str, Any]:
    """An object of a scene graph in a 200 x 100 image (width x height); 224-pixel coordinates are beside the point."""
    small = {"x1": 1, "y1": 2, "x2": 3, "y2": 4}
    edges = {"original_x1": x1, "original_y1": y1, "original_x2": x2, "original_y2": y2}
    return {"object_id": f"{A}_{name}", **small, **edges, "bbox_name": name, "name": name.title()}


def attribute(name: str, *phrases: tuple[str, str, list[str]]) -> dict[str, Any]:
    ids, texts, attributes = zip(*phrases, strict=True)
    lists = {"attributes": attributes, "phrases": texts, "phrase_IDs": ids, "sections": ["finalreport"] * len(phrases)}
    return {name: True, "bbox_name": name, "name": name.title(), **lists, "object_id": f"{A}_{name}"}


EFFUSION = ("50414267|10", "Small right effusion, none on the left.")
TUBE = ("50414267|9", "Endotracheal tube 4 cm above the carina.")


def graph(**changes: Any) -> dict[str, Any]:
    yes, no = "anatomicalfinding|yes|pleural effusion", "anatomicalfinding|no|pleural effusion"
    whole = {
        "image_id": A, "viewpoint": "AP", "patient_id": 10000032, "study_id": 50414267,
        "gender": "F", "age_decile": "50-60", "relationships": [],
        "objects": [
            bbox("right lung", 20, 10, 90, 80),
            bbox("left lung", 110, 10, 180, 80),
            bbox("descending aorta", 90, 20, 120, 90),
            bbox("carina", 95, 20, 105, 30),
        ],
        "attributes": [
            attribute("right lung", (*EFFUSION, ["nlp|yes|abnormal", yes])),
            attribute("left lung", (*EFFUSION, [no, "disease|no|pneumonia"])),
            attribute("carina", (TUBE[0], TUBE[1].replace(" cm", "\n cm"), ["tubesandlines|yes|endotracheal tube"])),
        ],
    }  # fmt: skip
    return {**whole, **changes}


@pytest.fixture
def mimic(files: Files) -> Path:
    rows = [f"{name},10000032,50414267,PA,100,200" for name in (A, B)]
    files.table("mimic/mimic-cxr-2.0.0-metadata.csv.gz", "dicom_id,subject_id,study_id,ViewPosition,Rows,Columns", rows)
    files.image(f"mimic/files/p10/p10000032/s50414267/{A}.jpg", size=(100, 200))
    files.image(f"mimic/files/p11/p11000000/s55000000/{GOLD}.jpg", size=(100, 200))
    return files.root / "mimic"


@pytest.fixture
def silver(mimic: Path, files: Files) -> Path:
    def row(name: str, patient: int = 10000032, exam: int = 50414267) -> str:
        return f"0,{patient},{exam},{name},files/p10/p{patient}/s{exam}/{name}.dcm,AP"

    root = files.root / "cig"
    splits, gold = "cig/silver_dataset/splits", row(GOLD, 11000000, 55000000)
    files.table(f"{splits}/train.csv", SPLIT_HEADER, [row(A), row("missing")])
    files.table(f"{splits}/valid.csv", SPLIT_HEADER, [row(B)])
    files.table(f"{splits}/test.csv", SPLIT_HEADER, [gold])
    files.table(f"{splits}/images_to_avoid.csv", SPLIT_HEADER[1:], [gold[2:]])
    write_graphs(root, {A: graph(), B: graph(image_id=B), GOLD: graph(image_id=GOLD)})
    return root


def write_graphs(root: Path, graphs: dict[str, Any], zipped: bool = True) -> None:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in graphs.items()}
    if zipped:
        with zipfile.ZipFile(root / "silver_dataset/scene_graph.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in texts.items():
                archive.writestr(f"scene_graph/{name}_SceneGraph.json", text)
        return
    folder = root / "silver_dataset/scene_graph/scene_graph"
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}_SceneGraph.json").write_text(text)


def test_a_silver_graph_becomes_regions_phrases_and_findings(silver: Path, mimic: Path) -> None:
    study = open_source(f"imagenome:{silver}?images={mimic}").study(A)
    assert study.regions == {
        "right lung": Box(0.1, 0.1, 0.45, 0.8),
        "left lung": Box(0.55, 0.1, 0.9, 0.8),
        "carina": Box(0.475, 0.2, 0.525, 0.3),
    }
    tube, effusion = study.phrases  # in the report's order: sentence 9 before sentence 10
    assert (tube.text, tube.regions, tube.findings) == (TUBE[1], ("carina",), {})
    assert effusion.text == EFFUSION[1]
    assert effusion.regions == ("right lung", "left lung")
    assert effusion.boxes == (study.regions["right lung"], study.regions["left lung"])
    told = {"pleural effusion": POSITIVE, "pneumonia": NEGATIVE}
    assert effusion.findings == {"abnormal": POSITIVE, **told}
    assert effusion.locations == {
        "abnormal": ("right lung",),
        "pleural effusion": ("right lung",),  # where it is affirmed; the left lung has none
        "pneumonia": ("left lung",),
    }
    assert study.findings == told  # a study is not abnormal, a place in it is
    assert study.region_findings == {
        "right lung": {"abnormal": POSITIVE, "pleural effusion": POSITIVE},
        "left lung": {"pleural effusion": NEGATIVE, "pneumonia": NEGATIVE},
    }
    assert study.region_sentences == {"carina": (0,), "right lung": (1,), "left lung": (1,)}
    assert (study.patient, study.exam, study.split) == ("10000032", "50414267", "train")
    assert (study.view, study.sex) == ("AP", "F")
    assert study.extra["age_decile"] == "50-60"
    assert study.extra["other_objects"] == {"descending aorta": (0.45, 0.2, 0.6, 0.9)}
    assert study.image.shape == (100, 200)


def test_the_graph_as_published_is_kept_for_each_region(silver: Path, mimic: Path) -> None:
    kept = open_source(f"imagenome:{silver}?images={mimic}").study(A).extra["scene_graph"]
    assert kept["right lung"] == {
        "box": [0.1, 0.1, 0.45, 0.8], "yes": ["pleural effusion"], "no": [], "other": ["nlp|yes|abnormal"],
    }  # fmt: skip
    assert kept["left lung"]["no"] == ["pleural effusion", "pneumonia"]
    assert kept["carina"]["other"] == ["tubesandlines|yes|endotracheal tube"]


def test_figure_10_of_the_wrong_lung_comes_out_of_its_scene_graph(silver: Path, mimic: Path) -> None:
    sentence = ("50414267|3", "Small right pleural effusion is stable.")
    effusion = "anatomicalfinding|yes|pleural effusion"
    marks = ["nlp|yes|abnormal", "anatomicalfinding|yes|lung opacity", effusion, "nlp|no|normal"]
    angle, lung = (
        attribute("right costophrenic angle", (*sentence, marks)),
        attribute("right lung", (*sentence, [effusion])),
    )
    write_graphs(silver, {A: graph(attributes=[angle, lung])})
    said = synthetic_of(open_source(f"imagenome:{silver}?images={mimic}").study(A).phrases[0])
    assert there(said).text == (
        "The right costophrenic angle is abnormal. There is lung opacity in the right costophrenic angle. "
        "There is pleural effusion in the right lung and right costophrenic angle."
    )


def test_graphs_are_read_from_the_archive_or_a_folder_alike(silver: Path, mimic: Path) -> None:
    first = open_source(f"imagenome:{silver}?images={mimic}")
    (silver / "silver_dataset/scene_graph.zip").unlink()
    write_graphs(silver, {A: graph(), B: graph(image_id=B)}, zipped=False)
    second = pickle.loads(pickle.dumps(open_source(f"imagenome:{silver}?images={mimic}")))
    assert list(first.ids) == list(second.ids) == [A, B]
    assert second.study(A).phrases == first.study(A).phrases
    assert list(open_source(f"imagenome:{silver}?images={mimic}&split=val").ids) == [B]


def test_gold_patients_and_images_without_a_graph_are_left_out_and_counted(silver: Path, mimic: Path) -> None:
    source = open_source(f"imagenome:{silver}?images={mimic}")
    assert source.left_out == {"no scene graph": 1, "patient of the gold set": 1}  # type: ignore[attr-defined]
    assert not source.problems


def test_without_the_metadata_the_size_is_taken_from_the_image(silver: Path, mimic: Path) -> None:
    with_table = open_source(f"imagenome:{silver}?images={mimic}").study(A).regions
    (mimic / "mimic-cxr-2.0.0-metadata.csv.gz").unlink()
    source = open_source(f"imagenome:{silver}?images={mimic}")
    assert source.study(A).regions == with_table
    with pytest.raises(InputError, match=rf"study {B!r}: image .*{B}.jpg does not exist"):
        source.study(B)


def test_unknown_regions_and_odd_attributes_are_named_and_the_rest_is_kept(silver: Path, mimic: Path) -> None:
    objects = [bbox("left gill", 1, 1, 9, 9), {"bbox_name": "spine"}, bbox("trachea", 90, 10, 999, 20)]
    attributes = [*graph()["attributes"], attribute("left gill", ("50414267|11", "Left gill clear.", ["nonsense"]))]
    odd = graph(objects=[*graph()["objects"], *objects], attributes=attributes)
    write_graphs(silver, {A: odd, B: odd})
    source = open_source(f"imagenome:{silver}?images={mimic}")
    first, _ = list(source)
    assert list(first.regions) == ["right lung", "left lung", "carina"]
    assert first.extra["other_objects"]["left gill"] == (0.005, 0.01, 0.045, 0.09)
    gill = first.phrases[-1]
    assert (gill.text, gill.regions, gill.boxes) == ("Left gill clear.", (), ())
    told = [str(problem) for problem in source.problems]
    assert sum("'left gill' is not a region of Chest ImaGenome" in line for line in told) == 1  # once, not once a graph
    place = f"silver_dataset/scene_graph.zip: scene_graph/{A}_SceneGraph.json"
    assert f"{place}, field objects[5]: has no bbox_name, or no original_x1 to original_y2" in told
    assert f"{place}, field attributes[3].attributes[0]: must be category|yes|name; got 'nonsense'" in told
    outside = f"{place}, field objects 'trachea': box (90, 10, 999, 20) leaves the image"
    assert any(line.startswith(outside) for line in told)


def test_a_region_that_runs_out_of_the_image_is_cut_off_at_its_edge(silver: Path, mimic: Path) -> None:
    write_graphs(silver, {A: graph(objects=[bbox("abdomen", -20, 60, 180, 120)])})
    source = open_source(f"imagenome:{silver}?images={mimic}")
    assert source.study(A).regions == {"abdomen": Box(0.0, 0.6, 0.9, 1.0)}
    assert not source.problems


def test_a_broken_graph_is_left_out_and_named(silver: Path, mimic: Path) -> None:
    write_graphs(silver, {A: '{"objects": [', B: graph(image_id=B)})
    source = open_source(f"imagenome:{silver}?images={mimic}")
    assert [study.id for study in source] == [B]
    place = f"silver_dataset/scene_graph.zip: scene_graph/{A}_SceneGraph.json"
    assert str(source.problems[0]).startswith(f"{place}: is not JSON")


def test_a_link_in_a_circle_among_the_graphs_is_a_problem_and_no_end(silver: Path, mimic: Path) -> None:
    (silver / "silver_dataset/scene_graph.zip").unlink()
    write_graphs(silver, {A: graph()}, zipped=False)
    (silver / "silver_dataset/scene_graph/scene_graph/again").symlink_to(silver / "silver_dataset/scene_graph")
    source = open_source(f"imagenome:{silver}?images={mimic}")
    assert list(source.ids) == [A]
    assert "again" in str(source.problems[0])


def test_images_must_be_named(silver: Path, mimic: Path) -> None:
    refuses(f"imagenome:{silver}", "add images=/path/to/mimic-cxr-jpg")
    refuses(f"imagenome:{silver}?images={silver}", r"images=.* has neither files/p10 nor p10")
    refuses(f"imagenome:{silver}?images={mimic}&part=glod", r"unknown part 'glod'; did you mean 'gold'\?")


@pytest.fixture
def gold(silver: Path, files: Files) -> Path:
    def box_row(name: str, x1: float, y1: float, x2: float, y2: float) -> str:
        width, height = x2 - x1, y2 - y1
        edges = f"{x1},{x2},{y1},{y2},{width},{height}"  # the published order: x1, x2, y1, y2
        return f'{GOLD}.dcm,1,2,3,4,2,2,{name},a1,{edges},J,"[1, 2, 3, 4]","[{x1}, {y1}, {x2}, {y2}]"'

    boxes = [box_row("right lung", 20, 10, 90, 80), box_row("left lung", 110.0, 10, 180, 80)]
    files.table("cig/gold_dataset/gold_bbox_coordinate_annotations_1000images.csv", GOLD_BOXES, boxes)

    start = f"11000000\t55000000\t{GOLD}.dcm\t55000000|3\tRight pneumonia, left clear.\t"
    rows = [
        start + "right lung\tdisease\tpneumonia\tyes\t1",
        start + "left lung\tdisease\tpneumonia\tno\t1",
        start + "left lung\tanatomicalfinding\tlung opacity\tyes\t0",
    ]
    files.table("cig/gold_dataset/gold_object_attribute_with_coordinates.txt", GOLD_ATTRIBUTES, rows)
    record = f"11000000,55000000,{GOLD},files/p11/p11000000/s55000000/{GOLD}.dcm,PA"
    files.table("cig/utils/cxr-record-list_view.csv", "subject_id,study_id,dicom_id,path,ViewPosition", [record])
    return silver


def test_gold_tables_become_the_same_nouns(gold: Path, mimic: Path) -> None:
    source = open_source(f"imagenome:{gold}?images={mimic}&part=gold")
    (study,) = source
    assert not source.problems
    assert study.regions == {"right lung": Box(0.1, 0.1, 0.45, 0.8), "left lung": Box(0.55, 0.1, 0.9, 0.8)}
    (phrase,) = study.phrases
    assert (phrase.text, phrase.regions) == ("Right pneumonia, left clear.", ("right lung", "left lung"))
    # What was struck out by hand is not there.
    assert phrase.findings == study.findings == {"pneumonia": POSITIVE}
    assert study.extra["scene_graph"]["left lung"]["no"] == ["pneumonia"]
    assert (study.patient, study.exam, study.view, study.split) == ("11000000", "55000000", "PA", "gold")
    assert study.image.shape == (100, 200)


def test_a_gold_image_whose_patient_is_not_known_is_a_problem(gold: Path, mimic: Path) -> None:
    table = gold / "gold_dataset/gold_bbox_coordinate_annotations_1000images.csv"
    table.write_text(table.read_text() + 'nobody.dcm,1,2,3,4,2,2,spine,a1,1,2,3,4,1,1,J,"[1]","[2]"\n')
    source = open_source(f"imagenome:{gold}?images={mimic}&part=gold")
    assert list(source.ids) == [GOLD]
    assert source.problems[0].line == 4
    assert "patient and study of 'nobody'" in source.problems[0].message


MIMIC_SPLITS = "dicom_id,study_id,subject_id,split"


def test_the_split_of_mimic_replaces_the_data_sets_own(silver: Path, mimic: Path, files: Files) -> None:
    rows = [f"{A},50414267,10000032,test", f"{B},50414267,10000032,validate", f"{GOLD},55000000,11000000,train"]
    files.table("mimic/mimic-cxr-2.0.0-split.csv.gz", MIMIC_SPLITS, [*rows, "lateral,50414267,10000032,test"])
    address = f"imagenome:{silver}?images={mimic}&splits=mimic"
    # The gold patients are not left out: no part of this split is for them.
    assert {study.id: study.split for study in open_source(address)} == {A: "test", B: "validate", GOLD: "train"}
    assert list(open_source(f"{address}&split=val").ids) == [B]
    study = open_source(address).study(A)
    assert (study.patient, study.exam, study.view) == ("10000032", "50414267", "AP")
    assert study.regions == open_source(f"imagenome:{silver}?images={mimic}").study(A).regions
    refuses(f"imagenome:{silver}?images={mimic}&splits=own", "unknown splits 'own'")
    (mimic / "mimic-cxr-2.0.0-split.csv.gz").unlink()
    refuses(address, r"splits=mimic needs mimic-cxr-2\.0\.0-split\.csv\(\.gz\) in .*mimic")


def test_graphs_with_few_regions_are_left_out(silver: Path, mimic: Path) -> None:
    outside = bbox("right lung", 900, 10, 990, 80)  # in no image of 200 x 100
    write_graphs(silver, {A: graph(), B: graph(image_id=B, objects=[outside, *graph()["objects"][1:]])})
    three, four = (f"imagenome:{silver}?images={mimic}&min_regions={count}" for count in (3, 4))
    source = open_source(three)  # the descending aorta is not one of the 29 regions
    assert list(source.ids) == [A]
    assert source.left_out["fewer than 3 region boxes"] == 1  # type: ignore[attr-defined]
    refuses(four, "has no usable study; .*2 skipped .fewer than 4 region boxes")
    refuses(f"imagenome:{silver}?images={mimic}&min_regions=0", "min_regions must be an integer of at least 1")
