"""Whose image takes the place of whose."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightlung.probes import Owner, exchanged, exchanged_outside, windows

patients = st.lists(st.one_of(st.none(), st.sampled_from("pqrst")), min_size=1, max_size=7)


def owners_of(names: list[str | None]) -> list[Owner]:
    return [Owner(f"s{number}", patient) for number, patient in enumerate(names)]


def allowed(giver: Owner, taker: Owner) -> bool:
    return giver.study != taker.study and (giver.patient is None or giver.patient != taker.patient)


@settings(deadline=None, max_examples=150)
@given(patients, st.integers(0, 5))
def test_it_is_a_permutation_without_own_patients_wherever_one_exists(names: list[str | None], seed: int) -> None:
    owners = owners_of(names)
    found = exchanged(owners, seed)
    exists = any(
        all(allowed(giver, taker) for giver, taker in zip(order, owners, strict=True))
        for order in itertools.permutations(owners)
    )
    assert (found is not None) == exists
    if found is not None:
        by_id = {owner.study: owner for owner in owners}
        assert sorted(found) == sorted(found.values()) == sorted(by_id)
        assert all(allowed(by_id[giver], by_id[taker]) for taker, giver in found.items())


def test_it_follows_from_seed_and_studies_and_not_from_their_order() -> None:
    owners = owners_of([f"p{number // 2}" for number in range(40)])
    assert exchanged(owners, 3) == exchanged(owners[::-1], 3)
    assert exchanged(owners, 3) != exchanged(owners, 4)


@pytest.mark.parametrize("count", [0, 1, 5, 63, 64, 127, 128, 129, 1000])
def test_windows_cover_every_position_once_and_are_long_enough_for_company(count: int) -> None:
    found = list(windows(count))
    assert [position for window in found for position in window] == list(range(count))
    assert all(len(window) >= min(count, 64) for window in found)
    assert all(len(window) < 128 for window in found)


def test_images_from_beyond_a_window_of_one_patient_are_lent_to_it_each_once_where_there_are_enough() -> None:
    mine, beyond = owners_of(["p"] * 3), [Owner(f"o{number}", f"q{number % 2}") for number in range(10)]
    found = exchanged_outside(mine, beyond, 0) or {}
    assert (sorted(found), sorted(found.values())) == (["s0", "s1", "s2"], ["o0", "o1", "o2"])
    few = exchanged_outside(owners_of(["p"] * 5), [Owner("x", "p")] * 3 + [Owner("o", "q"), Owner("y", "p")] * 9, 0)
    assert few == {f"s{number}": "o" for number in range(5)}  # one of another patient is lent more than once


def test_no_more_of_the_source_is_looked_at_than_needed() -> None:
    beyond = (Owner(f"o{number}", f"q{number}") for number in itertools.count())
    exchanged_outside(owners_of(["p"] * 4), beyond, 0)
    assert next(beyond).study == "o4"


def test_one_patient_alone_has_nobody_to_exchange_with() -> None:
    assert exchanged(owners_of(["p", "p"]), 0) is None
    assert exchanged_outside(owners_of(["p", "p"]), [Owner("o", "p")], 0) is None
    assert exchanged([], 0) is None
