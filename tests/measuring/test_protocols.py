"""Protocols: every field counts for the hash, but for those that are listed; and what is known of the named ones."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from rightlung.cli.protocols import markdown_of
from rightlung.core import InputError
from rightlung.measuring import PROTOCOLS, Protocol, find_protocol
from rightlung.measuring.named import NAMED_PROTOCOLS, find_named_protocol
from rightlung.measuring.protocols import HASHED_IF_SET, NOT_HASHED, NOT_HASHED_MEASURES

FIELDS = [field.name for field in fields(Protocol)]
PAGE = Path(__file__).parents[2] / "docs" / "protocols.md"


def changed(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, tuple):
        numbers = value and not isinstance(value[-1], str)
        return (*value[:-1], value[-1] * 2) if numbers else (*value, "another")
    if isinstance(value, str):
        return f"{value} and more"
    return 6 if value is None else value + 1


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("protocol", ["audit", "chex-re", "wrong-lung"])
def test_changing_any_field_changes_the_hash_except_where_files_lie(name: str, protocol: str) -> None:
    one = find_protocol(protocol)
    other = replace(one, **{name: changed(getattr(one, name))})
    assert (other.hash == one.hash) == (name in NOT_HASHED)


def test_the_fields_that_do_not_count_are_the_locations_of_files() -> None:
    assert set(NOT_HASHED) == {"source", "prior_source"}


@pytest.mark.parametrize("name", NOT_HASHED_MEASURES)
def test_a_measure_that_is_added_where_its_model_is_installed_does_not_change_the_hash(name: str) -> None:
    one = find_protocol("whole")
    assert replace(one, measures=(*one.measures, name)).hash == one.hash
    assert replace(one, measures=(*one.measures, "pointing")).hash != one.hash


def test_fields_that_came_later_do_not_count_with_the_value_that_they_had_before() -> None:
    one = Protocol("old", ("own",), ("auroc",))
    assert set(one.as_json()) - set(one.hashed) - {"hash"} == {*NOT_HASHED, *HASHED_IF_SET}


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda one: str(one.name))
def test_a_protocol_survives_json_with_its_hash(protocol: Protocol) -> None:
    given = json.loads(json.dumps(protocol.as_json()))
    assert {"hash", *FIELDS} == set(given)
    assert Protocol.from_json(given, "a.parquet") == protocol


def test_a_protocol_with_an_unknown_field_another_hash_or_a_wrong_type_is_refused_in_one_sentence() -> None:
    given = find_protocol("audit").as_json()
    for change, message in (
        ({"smoothing": 3}, "a.parquet: the protocol has the field 'smoothing', which this version .* does not know"),
        ({"level": 0.9}, "a.parquet: the protocol's hash is .{10}, but its fields give .{10}; the file was changed"),
        ({"hash": None}, "a.parquet: the protocol's hash is None"),
        ({"pixels": "many"}, "a.parquet: protocol.pixels must be a whole number; got 'many'"),
    ):
        with pytest.raises(InputError, match=message):
            Protocol.from_json(given | change, "a.parquet")
    with pytest.raises(InputError, match="rules is missing"):
        Protocol.from_json({"name": "mine", "hash": "0"}, "a.parquet")


def test_every_protocol_that_is_measured_is_described_and_the_published_ones_have_sources() -> None:
    assert set(PROTOCOLS) <= set(NAMED_PROTOCOLS)
    named = {"wrong-lung", "chex-sg", "chex-od", "chex-rc", "chex-re", "xbench", "chexlocalize", "medklip-rsna"}
    assert named | {"r2gen", "whole"} <= set(NAMED_PROTOCOLS)
    for one in NAMED_PROTOCOLS.values():
        assert one.data, one.name
        if not one.measured:
            assert one.unknown, one.name
            assert one.sources, one.name
    for name in named:
        assert find_named_protocol(name).sources, name


def test_the_settings_of_a_protocol_are_given_only_if_it_is_measured() -> None:
    assert find_named_protocol("xbench").as_json()["settings"] is None
    assert find_named_protocol("chex-sg").as_json()["settings"]["hash"] == find_protocol("chex-sg").hash


def test_the_page_has_every_protocol_as_the_command_prints_it() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for one in NAMED_PROTOCOLS.values():
        assert markdown_of(one) in page, f"{one.name}: see 'rightlung protocols --markdown'"
