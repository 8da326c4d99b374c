"""Reading checks everything and names the part, the row, the key and the column."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rightlung.core import Box, Extent, Grounding, Heatmap, InputError, Problem, Query, ScoredBox, Sentence
from rightlung.predictions import SCHEMA, Batch, Key, Prediction, PredictionWriter, check_predictions, open_predictions

from .conftest import WriteTable

PLACE = "file.parquet, row 1 (study 'b', query 'phrase:0', condition 'none')"
GOOD_MAP = [0.0, 0.25, 0.5, 1.0]
GOOD_HEATMAP = Heatmap(np.array(GOOD_MAP, np.float32).reshape(2, 2))
NO_MAPS: dict[str, Any] = {"map": None, "map_rows": None, "map_cols": None}


def box(*corners: object, score: object = 0.5) -> dict[str, object]:
    return {**dict(zip(("x0", "y0", "x1", "y1"), corners, strict=True)), "score": score, "label": None}


def of_type(values: list[Any], name: str) -> Any:
    return pa.array(values, SCHEMA.field(name).type)


def sentence(text: object = "Effusion.", score: object = None, boxes: object = None) -> dict[str, object]:
    return {"text": text, "score": score, "prompt": None, "boxes": boxes}


BAD_VALUES: dict[str, tuple[dict[str, Any], str, str]] = {
    "NaN map": ({"map": [GOOD_MAP, [0, math.nan, 1, math.nan]]}, "map",
        "value nan at cell 1 (and 1 more cells) must be finite and non-negative"),
    "infinite map": ({"map": [GOOD_MAP, [0, 0, 0, math.inf]]}, "map", "value inf at cell 3 must be finite"),
    "negative map": ({"map": [GOOD_MAP, [-0.5, 0, 0, 0]]}, "map", "value -0.5 at cell 0 must be finite"),
    "beyond single precision": ({"map": [GOOD_MAP, [1e39, 0, 0, 0]]}, "map", "value inf at cell 0 must be finite"),
    "null in a map": ({"map": [GOOD_MAP, [0, 1, None, 0]]}, "map", "value null at cell 2 must be finite"),
    "too few cells": ({"map": [GOOD_MAP, [0, 1]]}, "map", "2 values, but map_rows × map_cols = 2 × 2 = 4"),
    "rows without cols": ({"map_cols": [2, None]}, "map_cols", "null; a map needs both map_rows and map_cols"),
    "no rows": ({"map_rows": [2, 0]}, "map_rows", "must be at least 1; got 0"),
    "half a row": ({"map_rows": [2.0, 2.5]}, "map_rows", "double cannot be read as int32"),
    "extent upside down": ({"extent": [None, [0.0, 1.0, 1.0, 0.0]]}, "extent",
        "extent (0.0, 1.0, 1.0, 0.0) has no area"),
    "extent of three": ({"extent": [None, [0.0, 0.0, 1.0]]}, "extent", "an extent must have four numbers"),
    "extent of NaN": ({"extent": [None, [0.0, 0.0, 1.0, math.nan]]}, "extent", "extent y1 must be finite; got nan"),
    "abstention": ({"abstention": [0.5, 1.5]}, "abstention", "must lie between 0 and 1; got 1.5"),
    "NaN abstention": ({"abstention": [0.5, math.nan]}, "abstention", "must lie between 0 and 1; got nan"),
    "empty phrase": ({"phrase": ["left", " "]}, "phrase", "empty; write null if no phrase was asked"),
    "asked box": ({"box": [None, [0.5, 0.5, 1.5, 1.0]]}, "box", "leaves the image: x runs from 0.5 to 1.5"),
    "vanishing box": ({"box": [None, [0.0, 0.0, 1e-200, 1e-200]]}, "box", "it is too small for floating point"),
    "asked box of three": ({"box": [None, [0.5, 0.5, 1.0]]}, "box", "a box must have four numbers"),
    "box outside": ({"boxes": of_type([[], [box(0, 0, 1, 1), box(-0.1, 0, 1, 1)]], "boxes")}, "boxes",
        "box 1: box (-0.1, 0.0, 1.0, 1.0) leaves the image"),
    "box without score": ({"boxes": of_type([[], [box(0, 0, 1, 1, score=None)]], "boxes")}, "boxes",
        "box 0: score must be a finite number; got null"),
    "null box": ({"boxes": of_type([[], [None, None]], "boxes")}, "boxes", "box 0: null (and 1 more)"),
    "similarity": ({"similarity_local": [0.5, math.inf]}, "similarity_local", "must be finite; got inf"),
    "silent sentence": ({"sentences": of_type([None, [sentence(), sentence(text="")]], "sentences")}, "sentences",
        "sentence 1: text must have at least one character"),
    "unsure sentence": ({"sentences": of_type([None, [sentence(score=math.nan)]], "sentences")}, "sentences",
        "sentence 0: score must be finite; got nan"),
    "misplaced sentence": ({"sentences": of_type([None, [sentence(boxes=[[0, 0, 1, 1], [0, 0, 2, 1]])]], "sentences")},
        "sentences", "sentence 0: box 1: box (0.0, 0.0, 2.0, 1.0) leaves the image"),
    "finding twice": ({"finding_scores": of_type([None, [{"finding": "edema", "score": 0.5}] * 2], "finding_scores")},
        "finding_scores", "finding 'edema' appears 2 times"),
    "finding without score": ({"finding_scores": of_type([None, [{"finding": "edema"}]], "finding_scores")},
        "finding_scores", "item 0: score must be finite; got nan"),
    "blank report": ({"report": [None, " "]}, "report", "empty; write null if no report was written"),
    "empty embedding": ({"image_embedding": of_type([None, []], "image_embedding")}, "image_embedding",
        "empty; write null if there is no embedding"),
    "infinite embedding": ({"text_embedding": of_type([[1.0], [0.5, math.inf, math.nan]], "text_embedding")},
        "text_embedding", "value 1: must be finite; got inf (and 1 more)"),
    "null in an embedding": ({"image_embedding": of_type([None, [0.5, None]], "image_embedding")}, "image_embedding",
        "value 1: must be finite; got null"),
    "error and answer": ({"error": [None, "broken"]}, "error", "must hold no answer, but map is given"),
    "neither answer nor error": ({"map": [GOOD_MAP, None]}, "error", "null, but the row holds no answer"),
    "abstention without a map": (
        {"map": [GOOD_MAP, None], "similarity_global": [None, 0.5], "abstention": [None, 1.0]}, "abstention",
        "given without a map"),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "column", "message"), BAD_VALUES.values(), ids=list(BAD_VALUES))
def test_a_bad_value_is_named_by_part_row_key_and_column(
    write_table: WriteTable, changed: dict[str, Any], column: str, message: str
) -> None:
    path = write_table(**changed)
    with pytest.raises(InputError) as caught:
        list(open_predictions(path))
    place = PLACE if "cannot be read as" not in message else "file.parquet, row 1"
    assert str(caught.value).startswith(f"{place}, column {column}: ")
    assert message in str(caught.value)
    problems = check_predictions(path)
    assert [(problem.row, problem.column) for problem in problems] == [(1, column)]
    assert str(problems[0]) == str(caught.value)


BAD_KEYS = [
    *((column, value, f"{message}; every row needs a text here")
      for column in ("study", "query", "condition")
      for value, message in ((None, "null"), ("", "empty"), (" ", "empty"))),
    *(("query", f"phrase:{index}", ".* must be 'phrase:' and an index")
      for index in ("", "x", "01", "1\n", "1" * 5000)),
]  # fmt: skip


@pytest.mark.parametrize(("column", "value", "message"), BAD_KEYS)
def test_a_bad_key_is_named(write_table: WriteTable, column: str, value: str | None, message: str) -> None:
    path = write_table(**{column: ["phrase:0", value]})
    with pytest.raises(InputError, match=f"row 1 .*column {column}: {message}") as caught:
        list(open_predictions(path))
    assert len(str(caught.value)) < 400
    assert [(problem.row, problem.column) for problem in check_predictions(path)] == [(1, column)]


BAD_FILES: list[tuple[dict[str, Any], str]] = [
    *(({column: None}, rf"file\.parquet, column {column}: missing; .*the file has: ")
      for column in ("study", "query", "condition", "phrase", "map_rows", "map_cols", "map")),
    (NO_MAPS, ".*no column with answers; at least one of map, boxes, similarity_global"),
    ({"metadata": {"rightlung.predictions": "2"}},
     ".*schema version 2, but this rightlung reads versions up to 1; update"),
    *(({"metadata": {"rightlung.predictions": version}}, ".*must be a positive integer; got")
      for version in ("one", "0", "-1", "1.0", "")),
    ({"metadata": {"rightlung.run": "[1]"}}, r"file\.parquet: the metadata under 'rightlung\.run' must be"),
    *(({"metadata": {key: '{"a": ' + "[" * depth + "]" * depth + "}"}},
       rf"file\.parquet: the metadata under '{key}' must be JSON: ")
      for key in ("rightlung.run", "rightlung.images") for depth in (2000, 100_000)),
    ({"map": ["a", "b"]}, r"file\.parquet, column map: type string cannot be read as list<.*float>"),
    ({"map": [["a"], ["b"]]}, r"file\.parquet, column map: type list<.*string> cannot be read as list<.*float>"),
    ({"study": [1.0, 2.0]}, r"file\.parquet, column study: type double cannot be read as string"),
    ({"map_rows": ["2", "2"]}, r"file\.parquet, column map_rows: type string cannot be read as int32"),
    ({"boxes": [[[0, 0, 1, 1]], []]},
     r"file\.parquet, column boxes: type list<.*list<.*>> cannot be read as list<.*struct<x0: double"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), BAD_FILES)
def test_a_file_with_a_column_or_a_note_that_cannot_be_read_is_refused_at_once(
    write_table: WriteTable, changed: dict[str, Any], message: str
) -> None:
    path = write_table(**changed)
    with pytest.raises(InputError, match=f"^{message}"):
        open_predictions(path)
    if [*changed.values()] == [None]:
        answer = [None] if "map" in changed else []  # without it there is no answer either
        assert [problem.column for problem in check_predictions(path)] == [*changed, *answer]


def test_a_file_without_metadata_is_version_one_of_nobody_and_columns_of_somebody_elses_are_passed_over(
    write_table: WriteTable,
) -> None:
    read = open_predictions(write_table(note=["x", "y"]))
    assert (read.schema_version, read.source, read.model, read.runs) == (1, None, None, ())
    assert len(list(read)) == 2


def test_every_repetition_of_a_key_points_to_the_first_place_across_parts(write_table: WriteTable) -> None:
    folder = write_table("p/one.parquet", study=["a", "a"]).parent
    write_table("p/two.parquet", study=["b", "a"])
    key = "row 1 (study 'a', query 'phrase:0', condition 'none'): duplicate of the key in one.parquet, row 0"
    expected = [f"one.parquet, {key}", f"two.parquet, {key}"]
    assert [str(problem) for problem in check_predictions(folder)] == expected
    write_table("p/one.parquet", study=["a", "c"])
    for read in (list, lambda predictions: list(predictions.keys()), lambda predictions: predictions.conditions):
        with pytest.raises(InputError) as caught:
            read(open_predictions(folder))
        assert str(caught.value) == expected[1]


def test_a_file_of_boxes_or_of_similarities_alone_is_fine(write_table: WriteTable) -> None:
    boxes = write_table(**NO_MAPS, boxes=of_type([[box(0, 0, 0.5, 1)], []], "boxes"))
    assert [row.grounding for row in open_predictions(boxes)] == [
        Grounding(None, (ScoredBox(Box(0, 0, 0.5, 1), 0.5),)), Grounding(),
    ]  # fmt: skip
    similarities = write_table(**NO_MAPS, similarity_global=[0.5, -0.25])
    assert [row.similarity_global for row in open_predictions(similarities)] == [0.5, -0.25]


def test_parts_of_two_models_are_not_one_data_set(write_table: WriteTable) -> None:
    folder = write_table("p/one.parquet", metadata={"rightlung.model": "x"}).parent
    write_table("p/two.parquet", study=["c", "d"], metadata={"rightlung.model": "y"})
    with pytest.raises(InputError, match=r"two\.parquet: names the model 'y', but one\.parquet names 'x'"):
        open_predictions(folder)


def test_all_problems_are_collected_and_each_is_placed(write_table: WriteTable) -> None:
    folder = write_table("p/one.parquet", map=[GOOD_MAP, [math.nan] * 4], abstention=[2.0, 0.0]).parent
    write_table("p/two.parquet", study=["c", None], map_rows=[2.0, 2.5])
    (folder / "three.parquet").write_bytes(b"not parquet")
    problems = check_predictions(folder)
    assert [(problem.file, problem.row, problem.column) for problem in problems] == [
        ("three.parquet", None, None), ("one.parquet", 0, "abstention"), ("one.parquet", 1, "map"),
        ("two.parquet", 1, "map_rows"),
    ]  # fmt: skip
    assert problems[1].key == Key("a", "phrase:0", "none")


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_truncated_part_is_named(write_table: WriteTable, keep: float) -> None:
    path = write_table("p/one.parquet")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(InputError, match=r"^one\.parquet: cannot be read as Parquet"):
        open_predictions(path.parent)


def test_a_flipped_bit_in_our_own_part_is_noticed(tmp_path: Path) -> None:
    with PredictionWriter(tmp_path, source="s", model="m") as writer:
        values = np.random.default_rng(0).random((32, 32), dtype=np.float32)
        writer.write(Prediction("a", "phrase:0", "none", Query("effusion"), Grounding(Heatmap(values))))
    path = tmp_path / "part-00000.parquet"
    columns = map(pq.read_metadata(path).row_group(0).column, range(64))
    column = next(column for column in columns if column.path_in_schema.startswith("map."))
    damaged = bytearray(path.read_bytes())
    damaged[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"^part-00000\.parquet: cannot be read as Parquet"):
        list(open_predictions(tmp_path))
    assert [problem.file for problem in check_predictions(tmp_path)] == ["part-00000.parquet"]


@pytest.mark.parametrize(
    ("checksums", "compression", "least"), [(True, "zstd", 40), (False, "zstd", 30), (False, "none", 20)]
)
def test_any_damaged_bytes_are_refused_in_words_or_change_nothing_that_is_checked(
    tmp_path: Path, checksums: bool, compression: str, least: int
) -> None:
    whole = Box(0, 0, 1, 1)
    with PredictionWriter(tmp_path / "p", source="s", model="m", run={"seed": 1}) as writer:
        for number in range(4):
            values = np.random.default_rng(number).random((7, 7), dtype=np.float32)
            grounding = Grounding(Heatmap(values), (ScoredBox(whole, 0.5, "edema"),))
            answer = grounding, 0.5, 0.5, (Sentence("Clear.", (whole,), 0.5, "lungs"),), {"a": 1}
            writer.write(Prediction(f"s{number}", "phrase:0", "none", Query("x", whole), *answer))
    part = tmp_path / "p" / "part-00000.parquet"
    if not checksums:
        pq.write_table(pq.read_table(part), part, compression=compression)
    good = part.read_bytes()
    chance = random.Random(5)
    damaged_file = tmp_path / "damaged.parquet"
    refused = 0
    for _ in range(80):
        damaged = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        damaged_file.write_bytes(damaged)
        problems = check_predictions(damaged_file)
        if problems:
            refused += 1
            with pytest.raises(InputError, match=r"damaged\.parquet"):
                list(open_predictions(damaged_file))
        else:
            assert len(list(open_predictions(damaged_file))) == 4
    assert refused > least


def test_no_path_and_an_empty_folder_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: there is no such file or folder of predictions"):
        open_predictions(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"the folder holds no predictions \(no complete \*\.parquet part\)"):
        open_predictions(tmp_path)
    (problem,) = check_predictions(tmp_path / "nowhere")
    assert problem == Problem("nowhere", "there is no such file or folder of predictions")


def test_text_that_is_not_utf8_is_named(write_table: WriteTable) -> None:
    with pytest.raises(InputError, match=r"file\.parquet, row 1, column phrase: binary cannot be read as string"):
        list(open_predictions(write_table(phrase=[b"fine", b"\xff"])))
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"fine", b"\xff"]).buffers())
    with pytest.raises(InputError, match=r"file\.parquet, row 1, column study: not a UTF-8 text"):
        list(open_predictions(write_table(study=broken)))


ALIKE = {
    "doubles": pa.array([GOOD_MAP, GOOD_MAP], pa.list_(pa.float64())),
    "large list": pa.array([GOOD_MAP, GOOD_MAP], pa.large_list(pa.float32())),
    "fixed size": pa.array([GOOD_MAP, GOOD_MAP], pa.list_(pa.float32(), 4)),
    "half precision": pa.array([np.array(GOOD_MAP, np.float16)] * 2, pa.list_(pa.float16())),
    "tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), (2, 2)), pa.array([GOOD_MAP, GOOD_MAP], pa.list_(pa.float32(), 4))
    ),
}


@pytest.mark.parametrize("maps", ALIKE.values(), ids=list(ALIKE))
def test_a_map_in_another_type_is_the_same_map(write_table: WriteTable, maps: Any) -> None:
    assert [row.grounding for row in open_predictions(write_table(map=maps))] == [Grounding(GOOD_HEATMAP)] * 2


def test_a_fixed_size_list_with_a_missing_map_keeps_the_others_in_place(write_table: WriteTable) -> None:
    maps = pa.array([None, GOOD_MAP], pa.list_(pa.float32(), 4))
    first, second = open_predictions(write_table(map=maps, error=["no image", None]))
    assert (first.grounding, first.error) == (None, "no image")
    assert second.grounding == Grounding(GOOD_HEATMAP)


def test_strings_in_other_types_and_whole_numbers_are_keys(write_table: WriteTable) -> None:
    read = open_predictions(write_table(
        study=pa.array([17, 18]), query=pa.array(["image", "image"], pa.large_string()),
        condition=pa.array(["none", "swap-sides"]).dictionary_encode(), phrase=pa.nulls(2),
        map_rows=pa.array([2, 2], pa.int64()), map_cols=pa.array([2.0, 2.0]),
    ))  # fmt: skip
    assert list(read.keys()) == [("17", "image", "none"), ("18", "image", "swap-sides")]
    assert [row.asked for row in read] == [Query(), Query()]


def test_pandas_writes_predictions(tmp_path: Path) -> None:
    columns = {
        "study": ["a", "b"], "query": ["phrase:0", "phrase:0"], "condition": pd.Categorical(["none", "none"]),
        "phrase": ["left effusion", "right effusion"], "map": [np.array(GOOD_MAP), None], "map_rows": [2, None],
        "map_cols": [2, None], "boxes": [[box(0, 0, 0.5, 1)], None], "error": [None, "no image"],
    }  # fmt: skip
    pd.DataFrame(columns).to_parquet(tmp_path / "f.parquet")
    first, second = open_predictions(tmp_path / "f.parquet")
    assert first.grounding == Grounding(GOOD_HEATMAP, (ScoredBox(Box(0, 0, 0.5, 1), 0.5),))
    assert second == Prediction("b", "phrase:0", "none", Query("right effusion"), error="no image")


def test_conditions_counts_and_keys_need_no_maps(write_table: WriteTable) -> None:
    read = open_predictions(write_table(study=["a", "a"], condition=["swap-sides", "none"], map=[[math.nan] * 4] * 2))
    assert read.conditions == ("none", "swap-sides")
    assert len(read) == 2
    assert list(read.keys()) == [("a", "phrase:0", "swap-sides"), ("a", "phrase:0", "none")]


def test_batches_give_the_same_as_single_rows_and_no_boxes_found_is_not_none_looked_for(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    heatmaps = Heatmap(rng.random((2, 3)), Extent(0, -1, 1, 2), 0.25), None, Heatmap(rng.random((4, 1))), None, None
    given = [
        Prediction("a", "phrase:0", "none", Query("x"), Grounding(heatmaps[0])),
        Prediction("b", "phrase:0", "none", Query("y"), sentences=(Sentence("Clear.", (Box(0, 0, 1, 1),), 0.5),)),
        Prediction("c", "phrase:0", "none", Query("z"), Grounding(heatmaps[2], [])),
        Prediction("d", "phrase:0", "none", Query("z"), Grounding(boxes=[])),
        Prediction("e", "phrase:0", "none", Query("z"), Grounding(boxes=[ScoredBox(Box(0, 0, 1, 1), 0.5)])),
    ]
    with PredictionWriter(tmp_path, source="s", model="m") as writer:
        for prediction in given:
            writer.write(prediction)
    (batch,) = open_predictions(tmp_path).batches()
    assert list(batch.predictions()) == given
    assert [row.grounding.has_boxes for row in batch.predictions() if row.grounding] == [False, True, True, True]
    assert [values is None for values in batch.maps] == [heatmap is None for heatmap in heatmaps]
    for heatmap, values in zip(heatmaps, batch.maps, strict=True):
        assert heatmap is None or values is None or np.array_equal(heatmap.values, values)
    assert batch.extents.tolist() == [[0, -1, 1, 2], *[[0, 0, 1, 1]] * 4]
    assert np.array_equal(batch.abstentions, [0.25, np.nan, 0.0, 1.0, 0.0], equal_nan=True)


def table_of(maps: np.ndarray[Any, np.dtype[np.float32]]) -> pa.Table:
    count, rows, cols = maps.shape
    alike = {"query": "phrase:0", "condition": "none", "phrase": "x", "map_rows": rows, "map_cols": cols}
    columns: dict[str, Any] = {name: [value] * count for name, value in alike.items()}
    columns["study"] = [f"s{number}" for number in range(count)]
    return pa.table(columns | {"map": pa.FixedSizeListArray.from_arrays(maps.ravel(), rows * cols)})


def test_rows_are_numbered_across_batches_and_row_groups(tmp_path: Path) -> None:
    maps = np.ones((10_000, 2, 2), np.float32)
    maps[9_321, 1, 0] = np.nan
    pq.write_table(table_of(maps), tmp_path / "f.parquet", row_group_size=3_000)
    with pytest.raises(InputError, match=r"row 9321 \(study 's9321', .*column map: value nan at cell 2"):
        list(open_predictions(tmp_path / "f.parquet"))


def test_large_maps_come_in_batches_of_bounded_size_even_from_one_row_group(tmp_path: Path) -> None:
    rows, side = 120, 256
    pq.write_table(table_of(np.zeros((rows, side, side), np.float32)), tmp_path / "f.parquet")
    sizes = [len(batch) for batch in open_predictions(tmp_path / "f.parquet").batches()]
    assert sum(sizes) == rows
    assert max(sizes) * side * side <= 1 << 22


def test_none_of_a_batch_can_be_chosen() -> None:
    batch = Batch.of([Prediction("a", "phrase:0", "none", Query("opacity"), Grounding(GOOD_HEATMAP))])
    assert [len(batch.chosen(indices)) for indices in ([], [0])] == [0, 1]


def test_all_parts_are_one_data_frame_and_are_checked(write_table: WriteTable) -> None:
    folder = write_table("p/one.parquet").parent
    write_table("p/two.parquet", study=["c", "d"], similarity_global=[0.5, None])
    frame = open_predictions(folder).to_pandas()
    assert list(frame.columns) == SCHEMA.names
    assert frame.study.tolist() == ["a", "b", "c", "d"]
    assert frame.similarity_global.isna().tolist() == [True, True, False, True]
    assert frame["map"][0].reshape(2, 2).tolist() == [[0.0, 0.25], [0.5, 1.0]]
    write_table("p/two.parquet", study=["c", "d"], map=[GOOD_MAP, [1.0, -1.0, 0.0, 0.0]])
    with pytest.raises(InputError, match=r"two\.parquet, row 1"):
        open_predictions(folder).to_pandas()
