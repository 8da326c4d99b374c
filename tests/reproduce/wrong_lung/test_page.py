"""The page of an experiment: every table and figure of the paper, what is missing, pictures and judgements."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rightlung.core import Grounding, Heatmap
from rightlung.judgements import CUSTOM, RATINGS, BlindingKey, write_key
from rightlung.lexicon import swap_sides
from rightlung.pages.content import Figure, Gallery, Page, Table
from rightlung.pages.overlays import draw
from rightlung.predictions import Key
from rightlung.reproduce.examples import Examples, chosen_examples
from rightlung.reproduce.measurements import Measurements
from rightlung.reproduce.models import measure_model
from rightlung.reproduce.papers import find_paper
from rightlung.reproduce.plan import Plan
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.reproduce.variants import Job
from rightlung.reproduce.wrong_lung.page import make_page
from rightlung.results.estimate import BootstrapSettings
from tests.judgements.made_up import write_rows
from tests.reproduce.conftest import Done

FEW = BootstrapSettings(resamples=30, flips=100)
PAPER = find_paper("wrong-lung")


class Faint:
    """Points down one side by chance, with a share of its attention on nothing; never answers about swapped words."""

    def __init__(self, seed: int, never: str = "") -> None:
        self.generator, self.never = np.random.default_rng(seed), never

    def ground(self, images: Sequence[Any], phrases: Sequence[Any]) -> list[Grounding]:
        if any(getattr(phrase, "text", phrase) == self.never for phrase in phrases):
            raise ValueError("not this one")
        return [Grounding(Heatmap(self.generator.random((3, 5)), abstention=0.25)) for _ in images]


def measure(plan: Plan, prepared: PreparedStudies, slug: str, model: object, **said: Any) -> None:
    variants = {one.slug: one for one in PAPER.variants}
    variant = variants.get(slug.partition("-seed")[0], PAPER.variants[0])
    about = Job(variant, int(slug.partition("-seed")[2] or 1)).about() | {"training": None}
    measure_model(plan, prepared, model, about | said | {"slug": slug}, lambda *_: None)


@pytest.fixture(scope="module")
def folder(done: Done, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick experiment with more models, and a folder that is not finished."""
    out = tmp_path_factory.mktemp("page") / "out"
    shutil.copytree(done.plan.out, out)
    plan = replace(done.plan, out=out)
    prepared = PreparedStudies.open(out, plan.protocol)
    first = chosen_examples(prepared)[0]
    measure(plan, prepared, "no-attn", Faint(1, never=swap_sides(first.text)))
    measure(plan, prepared, "sided", Faint(2))
    measure(plan, prepared, "sided-seed2", Faint(3))
    measure(plan, prepared, "own-mine", Faint(4), variant="own-mine", name="mine", group="ours", seed=None)
    (out / "measures" / "half").mkdir()
    missing = {"abnormal": "too few phrases", "own-x": "cannot be loaded"}
    (out / "run.json").write_text(json.dumps({"quick": True, "missing": missing}))
    return out


def read(folder: Path, done: Done, **options: Any) -> Measurements:
    prepared = PreparedStudies.open(folder, done.plan.protocol)
    return Measurements.read(folder, PAPER, prepared, commands=["rightlung <b>"], settings=FEW, **options)


@pytest.fixture(scope="module")
def found(folder: Path, done: Done) -> Measurements:
    return read(folder, done)


@pytest.fixture(scope="module")
def page(found: Measurements) -> Page:
    return make_page(found)


def titles(page: Page, *kinds: type) -> list[str]:
    return [part.title for kind in kinds for part in page.parts(kind)]


FIGURES = ("Figures 2 and 10", "Figures 18 to 24", *(f"Figure {number}" for number in (3, 5, 6, 7, 9, 12, 14, 15)))


@pytest.mark.parametrize("name", [*(f"Table {number}" for number in range(1, 13) if number != 5), *FIGURES])
def test_every_table_and_figure_of_the_paper_is_on_the_page(page: Page, name: str) -> None:
    kinds = (Table,) if name.startswith("Table") else (Figure, Gallery)
    assert any(title.startswith(f"{name}:") for title in titles(page, *kinds))


def test_the_finding_comes_first_and_what_is_missing_and_the_commands_last(page: Page, found: Measurements) -> None:
    names = [section.name for section in page.shown]
    assert names[:4] == ["found", "own", "claims", "labels"]
    assert names[-2:] == ["missing", "commands"]
    assert page.sections[-1].code == "rightlung <b>"
    assert page.warning.startswith("Test run (--quick), not a result: ")
    assert "4 of 5 variants were trained with a single seed." in " ".join(page.sections[0].items)
    assert page.facts["phrases"] == f"{len(found.prepared.targets.phrases)}"


def test_what_is_missing_is_said_with_its_reason(page: Page) -> None:
    (items,) = (section.items for section in page.sections if section.name == "missing")
    assert {
        "Not measured: +Abnormal (too few phrases).", "Not measured: +Word Masking.",
        "Not measured: own-x (cannot be loaded).", "measures/half: unfinished, left out.",
        "own-mine: has no global similarity.",
    } <= {*items}  # fmt: skip
    assert any(item.startswith("no-attn: ") and "no answer" in item for item in items)


def test_what_follows_from_the_code_is_not_counted_among_the_papers_claims(page: Page, found: Measurements) -> None:
    claims = found.as_json()["claims"]
    paper = [one for one in claims if not one["ours"] and "regions" in one["judgements"]]
    assert "two-softmaxes" in [one["name"] for one in paper]
    said = f"Of the paper's {len(paper) - 1} claims judged against region boxes: "
    assert page.sections[0].items[0].startswith(said)


def test_the_numbers_file_holds_what_was_measured(page: Page, found: Measurements) -> None:
    written = json.loads(json.dumps(page.as_json() | found.as_json()))
    row = next(row for row in written["tables"]["t3"]["rows"] if row[0] == "UNITER *")
    assert row[1]["estimate"] == pytest.approx(np.mean(found.measured.value("uniter", "auroc", "regions")))
    assert row[2] == {"paper": pytest.approx(0.8492), "table": "3"}
    assert {one["slug"] for one in written["models"]} >= {"retrained", "sided", "sided-seed2", "own-mine"}
    assert written["source"] == "phantom?count=6&seed=13&size=64"
    assert written["protocol"]["hash"] == page.facts["protocol"]
    named = {f"protocol, {name.replace('_', ' ')}" for name in written["protocol"]}
    assert named <= set(page.facts)


def test_models_and_training_are_described_once_for_each_row_and_run(page: Page) -> None:
    tables = {table.name: table for table in page.parts(Table)}
    models = {row[0].text: [cell.text for cell in row[1:4]] for row in tables["models"].rows}
    assert models["+Sided"][::2] == ["ours", "1, 2"]
    assert models["Location prior"][::2] == ["reference", "–"]
    assert [row[0].text for row in tables["training"].rows] == ["GLoRIA Retrained", "+30-shot Finetuned", "UNITER *"]
    assert "sided-seed1" in json.dumps(tables["seeds"].as_json())


# ------------------------------------------------------------------ pictures


def test_examples_are_the_first_phrases_with_a_side_each_of_another_finding_and_study(
    done: Done, found: Measurements, prepared: PreparedStudies
) -> None:
    chosen = chosen_examples(prepared)
    assert len({one.findings for one in chosen}) == len({one.study for one in chosen}) == len(chosen) == 3
    sided = [one for one in prepared.targets.phrases.values() if one.findings and swap_sides(one.text) != one.text]
    assert chosen[0] == next(one for one in sided if one.findings != ("support devices",))
    places = [sided.index(one) for one in chosen]
    assert places == sorted(places)
    before = PreparedStudies.open(done.plan.out, done.plan.protocol)
    assert chosen_examples(found.prepared) == chosen_examples(before)  # whatever was measured


def test_a_tile_has_boxes_outline_star_and_the_share_on_nothing_and_no_map_where_there_is_no_answer(
    folder: Path, found: Measurements
) -> None:
    examples = Examples.read(found.prepared, found.measured)
    models = {model.slug: model for model in examples.models}
    assert "sided-seed2" not in models
    first, other = examples.phrases[:2]
    tile = examples.tile(models["no-attn"], other, "none")
    assert tile.caption == '+"No Attn" Token, No-Attn 0.25'
    regions = found.prepared.source.study(other.study).regions
    named = {regions[name] for name in other.regions if name in regions}
    assert set() < named <= {*tile.targets} <= named | {regions["left lung"], regions["right lung"]}
    assert tile.mask is not None
    place = other.masks["exact"].place
    assert np.array_equal(tile.mask.pixels, found.prepared.targets.store.read([place])[0])
    kept = examples.answers["no-attn"][Key(other.study, other.query)].grounding
    assert kept is not None
    assert None is not tile.heatmap == kept.heatmap
    assert examples.tile(models["no-attn"], first, "swap-sides").caption == '+"No Attn" Token, no map'
    assert examples.tile(models["uniter"], first, "none").caption.startswith("UNITER *")
    assert examples.text(first, "swap-sides") == swap_sides(first.text)


def test_pictures_show_every_model_and_every_perturbation(page: Page, found: Measurements) -> None:
    galleries = {gallery.name: gallery for gallery in page.parts(Gallery)}
    (case, *_) = galleries["figure-7"].cases
    sheet = case.pictures[0][1]()
    examples = Examples.read(found.prepared, found.measured)
    assert len(examples.models) == 10  # first seeds, known models and one's own; the priors keep no maps
    width, height = draw(examples.tile(examples.models[0], examples.phrases[0], "none"), 176).size
    assert (sheet.width // width, sheet.height // height) == (6, 2 * 2)  # six across, as asked and below swapped
    labels = [label for label, _ in galleries["figure-2"].cases[0].pictures]
    assert labels == ["region boxes", "Shuffle in Report", "Random BBoxes", "exact mask (ours)"]
    notes = " ".join(galleries["figure-2"].cases[0].notes)
    assert all(f"{name}: " in notes for name in ("Swap Left Right", "Random Sentence", "Synthetic"))
    assert galleries["figure-12"].caption.startswith("25 % of ")


def test_figure_9_paints_the_top_share_of_the_pixels(page: Page) -> None:
    (gallery,) = (gallery for gallery in page.parts(Gallery) if gallery.name == "figure-9")
    (label, paint), *_ = gallery.cases[0].pictures
    assert label == "top 5 % of the pixels"
    pixels = np.asarray(paint()).astype(int)
    coloured = np.abs(pixels[..., 0] - pixels[..., 1]) > 40  # green where it hits, red where it misses
    assert 0.03 < coloured.mean() < 0.12


# ------------------------------------------------------------------ radiologists' judgements


def test_judgements_fill_figures_4_6_13_and_16_and_their_claims(folder: Path, done: Done, tmp_path: Path) -> None:
    prepared = PreparedStudies.open(folder, done.plan.protocol)
    generator = np.random.default_rng(0)
    rows: list[dict[str, Any]] = [
        {"version": 1, "annotator": "ann", "study": one.study, "phrase": one.query, "prompt": one.text, "model": code}
        | {name: kind + int(generator.integers(-1, 2)) for name in RATINGS}
        for one in prepared.targets.phrases.values()
        for code, kind in (("A1", 4), ("B2", 2))
    ]
    rows += [row | {"phrase": CUSTOM, "prompt": "my own words"} for row in rows[:4]]
    table = write_rows(tmp_path / "table.csv", rows)
    key = tmp_path / "key.csv"
    write_key(BlindingKey({"A1": "no-attn", "B2": "retrained"}), key)
    found = read(folder, done, judgements=table, key=key)
    page = make_page(found)
    named = titles(page, Figure)
    for figure in ("Figure 4:", "Figure 6, ratings:", "Figure 13:", "Figure 16:"):
        assert any(title.startswith(figure) for title in named), figure
    (judged,) = (one for one in found.judged if one.claim.name == "judged-no-attn")
    assert judged.verdict("regions") == "too few patients to tell"  # whatever the interval says
    assert all(one.found.low > 0 and one.found.patients < 6 for one in judged.rulings["regions"].evidence)
