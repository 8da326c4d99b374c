import pytest

from rightlung.core.errors import InputError
from rightlung.lexicon import IMAGENOME_REGIONS, PAIRED_REGIONS, REGIONS, ancestors, descendants, mirror_region, region
from rightlung.lexicon.regions import build_regions

# Typed from the papers' tables, not from the data file.
LUNG_PLACES = ["lung", "upper lung zone", "mid lung zone", "lower lung zone", "hilar structures", "apical zone",
               "costophrenic angle", "hemidiaphragm"]  # fmt: skip
MIDLINE = ["trachea", "spine", "aortic arch", "mediastinum", "upper mediastinum", "svc", "cardiac silhouette",
           "cavoatrial junction", "right atrium", "carina", "abdomen"]  # fmt: skip


def test_the_29_regions_are_chest_imagenomes() -> None:
    sided = {f"{side} {place}" for side in ("left", "right") for place in [*LUNG_PLACES, "clavicle"]}
    assert set(IMAGENOME_REGIONS) == sided | set(MIDLINE)
    assert len(IMAGENOME_REGIONS) == 29
    assert IMAGENOME_REGIONS[:8] == tuple(f"right {place}" for place in LUNG_PLACES)
    assert IMAGENOME_REGIONS[8:16] == tuple(f"left {place}" for place in LUNG_PLACES)


def test_chex_adds_five_paired_regions_of_a_right_and_a_left_part() -> None:
    assert PAIRED_REGIONS == ("lungs", "upper lung zones", "middle lung zones", "lower lung zones", "apical zones")
    for name in PAIRED_REGIONS:
        right, left = REGIONS[name].parts
        assert (REGIONS[right].side, REGIONS[left].side) == ("right", "left")
        assert REGIONS[right].mirror == left
        assert REGIONS[name].side == "both"
    assert REGIONS["middle lung zones"].parts == ("right mid lung zone", "left mid lung zone")


@pytest.mark.parametrize("name", [*REGIONS])
def test_mirroring_twice_gives_the_region_back_and_changes_the_side(name: str) -> None:
    mirrored = mirror_region(name)
    assert mirror_region(mirrored) == name
    opposite = {"left": "right", "right": "left", "none": "none", "both": "both"}
    assert REGIONS[mirrored].side == opposite[REGIONS[name].side]
    assert (mirrored == name) == (REGIONS[name].side in ("none", "both"))


@pytest.mark.parametrize("name", [*REGIONS])
def test_parents_and_children_agree_inside_is_the_converse_of_around_and_the_mirror_image_has_mirrored_relatives(
    name: str,
) -> None:
    found = REGIONS[name]
    assert all(REGIONS[child].parent == name for child in found.children)
    if found.parent:
        assert name in REGIONS[found.parent].children
        assert REGIONS[found.mirror].parent == mirror_region(found.parent)
    assert name not in descendants(name)
    assert all(name in ancestors(inside) for inside in descendants(name))
    assert all(name in descendants(around) for around in ancestors(name))


def test_the_apex_lies_in_the_upper_zone_in_the_lung() -> None:
    assert ancestors("left apical zone")[0] == "left upper lung zone"
    assert {"left lung", "lungs", "apical zones", "upper lung zones"} <= set(ancestors("left apical zone"))
    assert "right apical zone" not in descendants("left lung")
    assert "right atrium" in descendants("mediastinum")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("Left Lower Lobe", "left lower lung zone"), ("RUL", "right upper lung zone"),
        ("lingula", "left mid lung zone"), ("Superior  Vena Cava", "svc"), ("left_lung", "left lung"),
        ("lung bases", "lower lung zones"),
    ],
)  # fmt: skip
def test_aliases_are_understood_whatever_the_case(said: str, meant: str) -> None:
    assert region(said).name == meant


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"parent": "elbow"}, r"regions\.toml, table \[regions\.nose\], key 'parent': names 'elbow'"),
        ({"side": "up"}, r"table \[regions\.nose\], key 'side': must be one of left, right, none; got 'up'"),
        ({"colour": "red"}, r"table \[regions\.nose\], key 'colour': is not a key"),
        ({"aliases": "snout"}, r"table \[regions\.nose\], key 'aliases': must be a list of strings"),
        ({"parts": ["nose", "nose"]}, r"key 'parts': repeats an entry"),
    ],
)
def test_a_wrong_data_file_is_an_error_that_names_file_table_and_key(entry: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build_regions({"regions": {"nose": entry}, "paired": {}})
