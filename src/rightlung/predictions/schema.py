"""Columns and version of the predictions file, and the conversion of columns written by other tools.

pandas, polars and R write doubles instead of floats, large or fixed-size lists, and dictionary-encoded strings.
Equivalent types are converted; for others the error names both types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rightlung.core import InputError

SCHEMA_VERSION = 1

VERSION_KEY = b"rightlung.predictions"
SOURCE_KEY = b"rightlung.source"
MODEL_KEY = b"rightlung.model"
RUN_KEY = b"rightlung.run"
IMAGES_KEY = b"rightlung.images"

_FLOATS = pa.list_(pa.float64())
_CORNERS = [(corner, pa.float64()) for corner in ("x0", "y0", "x1", "y1")]
_SENTENCE = [("text", pa.string()), ("score", pa.float64()), ("prompt", pa.string()), ("boxes", pa.list_(_FLOATS))]

# Only maps and embeddings, which fill the disk, have single precision.
SCHEMA = pa.schema(
    [
        ("study", pa.string()),
        ("query", pa.string()),
        ("condition", pa.string()),
        ("phrase", pa.string()),
        ("box", _FLOATS),
        ("map", pa.list_(pa.float32())),
        ("map_rows", pa.int32()),
        ("map_cols", pa.int32()),
        ("extent", _FLOATS),
        ("abstention", pa.float64()),
        ("boxes", pa.list_(pa.struct([*_CORNERS, ("score", pa.float64()), ("label", pa.string())]))),
        ("similarity_global", pa.float64()),
        ("similarity_local", pa.float64()),
        ("sentences", pa.list_(pa.struct(_SENTENCE))),
        ("finding_scores", pa.list_(pa.struct([("finding", pa.string()), ("score", pa.float64())]))),
        ("report", pa.string()),
        ("image_embedding", pa.list_(pa.float32())),
        ("text_embedding", pa.list_(pa.float32())),
        ("error", pa.string()),
    ]
)

KEY_COLUMNS = ("study", "query", "condition")
REQUIRED_COLUMNS = (*KEY_COLUMNS, "phrase")
MAP_COLUMNS = ("map", "map_rows", "map_cols")
EMBEDDING_COLUMNS = ("image_embedding", "text_embedding")
ANSWER_COLUMNS = (
    "map", "boxes", "similarity_global", "similarity_local", "sentences", "finding_scores", "report",
    *EMBEDDING_COLUMNS,
)  # fmt: skip


def check_version(written: bytes | None) -> int:
    """Return the schema version of a file; 1 if it names none, as pandas would write it."""
    if written is None:
        return 1
    text = written.decode(errors="replace")
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise InputError(f"the schema version under {VERSION_KEY.decode()!r} must be a positive integer; got {text!r}")
    if int(text) > SCHEMA_VERSION:
        raise InputError(
            f"schema version {int(text)}, but this rightlung reads versions up to {SCHEMA_VERSION}; update it"
        )
    return int(text)


class UnreadableTypeError(InputError):
    """A column that cannot be converted to the schema's type."""


def conform(array: Any, target: pa.DataType) -> Any:
    """Return ``array`` in the type ``target``, or raise `UnreadableTypeError`.

    Struct fields are matched by name: missing ones become null, others are ignored.
    """
    if isinstance(array, pa.ExtensionArray):
        return conform(array.storage, target)
    if array.type == target and not pa.types.is_nested(target):
        try:
            array.validate(full=pa.types.is_string(target))
        except pa.ArrowException as error:
            raise UnreadableTypeError(f"not a UTF-8 text: {error}") from None
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_dictionary(array.type):
        return conform(array.dictionary_decode(), target)
    if not pa.types.is_nested(target):
        return _conform_leaf(array, target)
    if pa.types.is_struct(target) and pa.types.is_struct(array.type):
        given = [field.name for field in array.type]
        children = [
            conform(array.field(field.name), field.type) if field.name in given else pa.nulls(len(array), field.type)
            for field in target
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if pa.types.is_struct(target) or not any(is_kind(array.type) for is_kind in lists):
        raise UnreadableTypeError(f"{array.type} cannot be read as {target}")
    offsets, values = unnest(array)
    values = conform(values, target.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=target, mask=array.is_null())


def unnest(array: Any) -> tuple[Any, Any]:
    """Return the offsets ``(n + 1,)`` of a list array's rows, and all values concatenated (none for null rows)."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), array.flatten()


def _conform_leaf(array: Any, target: pa.DataType) -> Any:
    kind = array.type
    integer, number = pa.types.is_integer(kind), pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if pa.types.is_string(target):
        # Integers are common ids. A float as an id ("7.0") is an error in the table.
        text = (pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary, pa.types.is_large_binary)
        readable = integer or any(is_kind(kind) for is_kind in text)
    elif pa.types.is_integer(target):
        readable = integer or number
    else:
        readable = integer or number or pa.types.is_boolean(kind)
    if not readable:
        raise UnreadableTypeError(f"{kind} cannot be read as {target}")
    try:
        # A cell beyond single precision becomes infinite, which the checks find; fractional rows are errors.
        return pc.cast(array, target, safe=not pa.types.is_floating(target))
    except pa.ArrowException as error:
        raise UnreadableTypeError(f"{kind} cannot be read as {target}: {error}") from None
