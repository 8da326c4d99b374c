"""Recipes: what they say comes back, and what is wrong with them is named by its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightlung.core import InputError
from rightlung.training.recipe import differing_fields, read_recipe, recipe_text, shipped_recipes
from tests.training.recipes import small, written


def test_a_recipe_written_out_reads_as_the_same(tmp_path: Path) -> None:
    recipe = small(tmp_path, "data.validation={source: 'phantom?count=4&seed=1'}", "optimiser.rates={words: 0.5}")
    again = tmp_path / "again.yaml"
    again.write_text(recipe_text(recipe), encoding="utf-8")
    assert read_recipe(again) == recipe


def test_every_shipped_recipe_can_be_read() -> None:
    for name in shipped_recipes():
        assert read_recipe(name).schedule.steps > 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("optimiser.rat=1", "field of optimiser 'rat'; did you mean 'rate'"),
        ("optimiser.rate=fast", "optimiser.rate must be a number; got 'fast'"),
        ("optimiser.rate=-1", r"optimiser\.rate must be at least 0; got -1"),
        ("data.train[0].shares=1", r"field of data\.train\[0\] 'shares'; did you mean 'share'"),
        ("data.train[0].share=0", r"data\.train\[0\]\.share must be above 0"),
        ("data.train.0.foreign=1.5", r"data\.train\[0\]\.foreign must be from 0 to 1; got 1.5"),
        ("data.train[0].prompts=lables", r"data\.train\[0\].*prompts must be a share from 0 to 1 or 'labels'"),
        ("data.train[7].share=1", "there are 1 entries"),
        ("data.train=[]", r"data\.train must name at least one"),
        ("schedule.steps=0", r"schedule\.steps must be at least 1"),
        ("schedule.steps=1.5", r"schedule\.steps must be a whole number"),
        ("precision=bf16-mix", "precision 'bf16-mix'; did you mean 'bf16-mixed'"),
        ("losses={}", "losses must give at least one term"),
        ("losses.global=-1", r"losses\.global must be at least 0"),
        ("augmentation.mirror=2", r"augmentation\.mirror must be from 0 to 1"),
        ("model.start=starter", "either kind .* or start"),
        ("seed", "field=value"),
        ("seed.sub=1", "seed has no fields"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(tmp_path: Path, change: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        small(tmp_path, change)


def test_numbers_may_be_written_as_people_do(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(written(tmp_path).read_text().replace("rate: 0.01", "rate: 1e-2"), encoding="utf-8")
    assert read_recipe(path).optimiser.rate == 0.01
    assert small(tmp_path, "optimiser.rate=2E-3").optimiser.rate == 0.002


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("- a\n- b\n", "must be a table of fields; got list"),
        ("model: {kind: [}\n", "is not YAML"),
        ("seed: 1\nseed: 2\n", "'seed' is given twice"),
        ("!!python/object/apply:os.getcwd []\n", "is not YAML"),
        ("", "must be a table of fields"),
    ],
)
def test_what_is_no_recipe_is_refused_with_the_file_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=said) as caught:
        read_recipe(path)
    assert str(path) in str(caught.value)


def test_a_recipe_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml is not there"):
        read_recipe(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="unknown recipe 'stater'"):
        read_recipe("stater")


def test_the_fields_in_which_two_recipes_differ_are_named(tmp_path: Path) -> None:
    recipe, other = small(tmp_path), small(tmp_path, "data.train[0].phrases=1", "seed=4", "losses.global=2")
    assert differing_fields(recipe, other) == ["data.train[0].phrases", "losses", "seed"]
    assert differing_fields(recipe, small(tmp_path)) == []
