"""Recipes: what they say comes back, and what is wrong with them is named by its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightlung.core import InputError
from rightlung.training.recipe import differing_fields, recipe_text
from rightlung.training.recipe_file import read_recipe, read_stages, shipped_recipes
from tests.training.recipes import small, written


def test_a_recipe_written_out_reads_as_the_same(tmp_path: Path) -> None:
    recipe = small(
        tmp_path, "data.validation={source: 'phantom?count=4&seed=1'}", "optimizer.learning_rate_factors={words: 0.5}"
    )
    again = tmp_path / "again.yaml"
    again.write_text(recipe_text(recipe), encoding="utf-8")
    assert read_recipe(again) == recipe


def test_every_shipped_recipe_can_be_read() -> None:
    for name in shipped_recipes():
        assert all(recipe.schedule.steps > 0 for recipe in read_stages(name).values())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("optimizer.learning_rat=1", "field of optimizer 'learning_rat'; did you mean 'learning_rate'"),
        ("optimizer.learning_rate=fast", "optimizer.learning_rate must be a number; got 'fast'"),
        ("optimizer.learning_rate=-1", r"optimizer.learning_rate must be at least 0; got -1"),
        ("data.train[0].shares=1", r"field of data\.train\[0\] 'shares'; did you mean 'share'"),
        ("data.train[0].share=0", r"data\.train\[0\]\.share must be above 0"),
        (
            "data.train.0.other_study_probability=1.5",
            r"data\.train\[0\]\.other_study_probability must be from 0 to 1; got 1.5",
        ),
        ("data.train[0].prompt_probability=lables", r"data\.train\[0\]\.prompt_probability must be a number"),
        ("data.train[7].share=1", "there are 1 entries"),
        ("data.train=[]", r"data\.train must name at least one"),
        ("schedule.steps=0", r"schedule\.steps must be at least 1"),
        ("schedule.steps=1.5", r"schedule\.steps must be a whole number"),
        ("precision=bf16-mix", "precision 'bf16-mix'; did you mean 'bf16-mixed'"),
        ("losses={}", "losses must give at least one term"),
        ("losses.global=-1", r"losses\.global must be at least 0"),
        ("augmentation={mirror: words, mirror_probability: 2}", "mirror_probability must be from 0 to 1"),
        ("augmentation.mirror_probability=0.5", "augmentation: mirror_probability has no effect with mirror: none"),
        ("augmentation.mirror=pixel", "augmentation.mirror"),
        ("model={}", "model needs kind .* or start"),
        ("data.train[0].words_from=labels", r"data\.train\[0\]\.other_study_probability has no effect with .*labels"),
        ("data.train[0].phrase_masks=none", r"other_study_probability draws phrases with a location, which .* hides"),
        ("data.train[0].texts_per_image=0", r"data\.train\[0\]\.texts_per_image: 0 needs another entry with texts"),
        ("data.train[0].pairing=randoms", r"pairing 'randoms'; did you mean 'random'"),
        (
            "data.train[0].word_mask_probability=1.2",
            r"train\[0\]\.word_mask_probability must be from 0 to 1; got 1.2",
        ),
        ("data.train[0].entity_mask_probability=-1", r"data\.train\[0\]\.entity_mask_probability must be from 0 to 1"),
        ("data.train[0].mirror_pairs=1", r"data\.train\[0\]\.mirror_pairs must be .*; got 1"),
        ("data.train[0].few_shot_studies=0", r"data\.train\[0\]\.few_shot_studies must be at least 1; got 0"),
        ("data.train[0].phrase_masks=false", r"data\.train\[0\]\.phrase_masks must be .*; got False"),
        ("data.train[0].phrase_masks=region", r"masks 'region'; did you mean 'regions'"),
        ("data.validation={source: x, few_shot_studies: 0}", r"data\.validation\.few_shot_studies must be at least 1"),
        ("data.validation={source: x, phrase_masks: boxes}", r"data\.validation\.phrase_masks 'boxes'"),
        ("data.targets=[region]", "unknown target 'region'; did you mean 'regions'"),
        ("data.target_options={label: {}}", "unknown target 'label'; did you mean 'labels'"),
        ("data.targets=[labels]", r"data\.target_options\.labels: findings must name at least one finding"),
        (
            "data={targets: [regions], target_options: {regions: {finding: []}}, train: [{source: x}]}",
            r"field of data\.target_options\.regions 'finding'",
        ),
        ("data.train[0].share=[[0, 1], [0.5]]", r"data\.train\[0\]\.share must be a number or a list of \[fraction"),
        ("data.train[0].share=[[0, 1], [0, 2]]", r"share: the fractions of the run must rise"),
        ("data.train[0].share=[[0, 1], [2, 1]]", r"share: a point's fraction of the run must be from 0 to 1; got 2"),
        ("data.train[0].probability=1.5", r"data\.train\[0\]\.probability must be from 0 to 1; got 1.5"),
        ("data.train[0].probability=[[0, -1]]", r"data\.train\[0\]\.probability must be from 0 to 1; got -1"),
        ("data.sources_per_batch=some", r"data\.sources_per_batch 'some'"),
        ("schedule.patience=3", r"schedule\.patience needs data\.validation"),
        ("data.train[²].share=1", "there are 1 entries, numbered from 0; got '²'"),
        ("seed=" + 5000 * "[", "the value '\\[+\\.\\.\\. is not YAML"),
        ("seed=" + 5000 * "9", "seed: the value '9+... has a value that YAML cannot read"),
        ("seed='" + 5000 * "9" + "'", r"seed must be a whole number; got '9{56}\.\.\.$"),
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
    assert read_recipe(path).optimizer.learning_rate == 0.01
    assert small(tmp_path, "optimizer.learning_rate=2E-3").optimizer.learning_rate == 0.002


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("- a\n- b\n", "must be a table of fields; got list"),
        ("model: {kind: [}\n", "is not YAML"),
        ("seed: 1\nseed: 2\n", "'seed' is given twice"),
        ("!!python/object/apply:os.getcwd []\n", "is not YAML"),
        ("", "must be a table of fields"),
        *(
            (f"model_card: {value}\n", "has a value that YAML cannot read: line 1: .* is no ")
            for value in (
                "2001-13-45",
                "!!int abc",
                "!!float abc",
                "!!bool abc",
                "!!timestamp abc",
                "0b_",
                "0x_",
                5000 * "9",
            )
        ),
        ("model: &a [*a]\n", "more than 100,000 values once its aliases are expanded"),
        (
            "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
            + "".join(f"a{n}: &a{n} [{', '.join(10 * [f'*a{n - 1}'])}]\n" for n in range(1, 10)),
            "more than 100,000 values once its aliases are expanded",
        ),
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
    recipe, other = small(tmp_path), small(tmp_path, "data.train[0].phrases_per_image=1", "seed=4", "losses.global=2")
    assert differing_fields(recipe, other) == ["data.train[0].phrases_per_image", "losses", "seed"]
    assert differing_fields(recipe, small(tmp_path)) == []


def derived(folder: Path, content: str) -> Path:
    written(folder)
    path = folder / "derived.yaml"
    path.write_text(content, encoding="utf-8")
    return path


def test_a_derived_recipe_is_its_base_with_the_changes(tmp_path: Path) -> None:
    path = derived(
        tmp_path, "base: small.yaml\nchanges: ['seed=4', 'data.train[0].texts_per_image=2', 'losses={global: 1}']\n"
    )
    assert read_recipe(path) == small(tmp_path, "seed=4", "data.train[0].texts_per_image=2", "losses={global: 1}")
    assert read_recipe(path, ["seed=5"]).seed == 5  # the command line has the last word
    assert read_recipe(derived(tmp_path, "base: small.yaml\n")) == small(tmp_path)
    again = tmp_path / "again.yaml"
    again.write_text(recipe_text(read_recipe(path)), encoding="utf-8")
    assert read_recipe(again) == read_recipe(path)


def test_a_recipe_can_be_derived_from_a_shipped_one(tmp_path: Path) -> None:
    path = derived(tmp_path, "base: wrong-lung-retrained\nchanges: ['seed=4']\n")
    assert differing_fields(read_recipe("wrong-lung-retrained"), read_recipe(path)) == ["seed"]


def test_a_recipe_can_be_derived_from_a_derived_one(tmp_path: Path) -> None:
    middle = derived(tmp_path, "base: small.yaml\nchanges: ['seed=4', 'data.train[0].texts_per_image=2']\n")
    middle.rename(tmp_path / "middle.yaml")
    path = derived(tmp_path, "base: middle.yaml\nchanges: ['seed=5']\n")
    assert read_recipe(path) == small(tmp_path, "seed=5", "data.train[0].texts_per_image=2")
    (tmp_path / "middle.yaml").write_text("base: derived.yaml\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"middle\.yaml: base derived\.yaml leads back to derived\.yaml"):
        read_recipe(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "base: small.yaml\nseed: 4\n",
            "a recipe with base may only have changes, .*, and without, a list of stages; got 'seed'",
        ),
        ("base: small.yaml\nchanges: {seed: 4}\n", "base must name a recipe, changes be a list of field=value"),
        ("base: small.yaml\nchanges: [1]\n", "base must name a recipe, changes be a list"),
        ("base: [small.yaml]\n", "base must name a recipe"),
        ("base: derived.yaml\n", r"base derived\.yaml leads back to derived\.yaml"),
        ("base: none.yaml\n", r"recipe none\.yaml is not there"),
        ("base: wrong-lung-retrain\n", "unknown recipe 'wrong-lung-retrain'; did you mean 'wrong-lung-retrained'"),
        ('base: "a\\0b"\n', "unknown recipe"),
        ("base: small.yaml\nchanges: [seed]\n", "changes: takes field=value, .*; got 'seed'"),
        (
            "base: small.yaml\nchanges: ['data.train[3].texts_per_image=1']\n",
            r"changes: data\.train\[3\]\.texts_per_image: there are 1 ent",
        ),
        ("base: small.yaml\nchanges: ['sed=4']\n", "unknown field of Recipe 'sed'; did you mean 'seed'"),
    ],
)
def test_what_is_wrong_with_a_derived_recipe_is_said_with_its_file(tmp_path: Path, content: str, said: str) -> None:
    path = derived(tmp_path, content)
    with pytest.raises(InputError, match=said) as caught:
        read_recipe(path)
    assert str(path) in str(caught.value)


def test_patience_must_be_positive(tmp_path: Path) -> None:
    judged = "data.validation={source: 'phantom?count=4&seed=1'}"
    assert small(tmp_path, judged, "schedule.patience=1").schedule.patience == 1
    with pytest.raises(InputError, match=r"schedule\.patience must be at least 1; got 0"):
        small(tmp_path, judged, "schedule.patience=0")


def test_validation_passes_its_fields_on_and_asks_examples_for_their_place(tmp_path: Path) -> None:
    fields = "phrase_masks: regions, few_shot_studies: 3, phrases_per_image: 1, cached_studies: 9"
    given = f"data.validation={{source: x, {fields}}}"
    validation = small(tmp_path, given).data.validation
    assert validation is not None
    entry = validation.entry()
    assert (
        entry.phrase_masks,
        entry.few_shot_studies,
        entry.phrases_per_image,
        entry.cached_studies,
        entry.positive_share,
    ) == ("regions", 3, 1, 9, 1.0)
