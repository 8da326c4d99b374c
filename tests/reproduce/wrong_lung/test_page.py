from __future__ import annotations

import base64
import html
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import InputError
from rightlung.reproduce.wrong_lung.estimates import Sureness
from rightlung.reproduce.wrong_lung.facts import EXPECTED
from rightlung.reproduce.wrong_lung.markdown import escaped
from rightlung.reproduce.wrong_lung.page import write_page
from rightlung.reproduce.wrong_lung.plan import QUICK_SOURCE
from rightlung.reproduce.wrong_lung.reading import read_results
from tests.pages import Outline
from tests.reproduce.wrong_lung.folders import Row, instance_rows, plain_model, write_instances

HOSTILE = 'mine <script>alert("x")</script> | *bold*'
GIVEN = "a model of somebody's own that is given the boxes"
FEW = Sureness(resamples=60)


def png() -> str:
    content = io.BytesIO()
    PIL.Image.new("RGB", (4, 4), (9, 9, 9)).save(content, format="PNG")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def page_rows() -> list[Row]:
    rows = instance_rows(48)
    rows[3] |= {"one_lung": False, "mdrb": False}
    rows[7] |= {"one_lung": False, "mdrb": False}
    return rows


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rows = tmp_path_factory.mktemp("whole"), page_rows()
    write_instances(
        folder,
        rows,
        without={"swap-sides": 16, "exact-shuffled": 72},
        counts={"studies": 24, "without findings": 1234},
        left_out={"no region boxes": 3, "rows that the source refuses": 5},
    )
    for order, (slug, name) in enumerate(EXPECTED.items()):
        plain_model(
            folder, rows, slug, 0.05 + 0.02 * order, name=name, order=order, comparable=slug != "uniter",
            group="reference" if slug == "prior" else "paper",
        )  # fmt: skip
    plain_model(folder, rows, "mine", 0.2, name=HOSTILE, group="ours", order=99)
    plain_model(folder, rows, "given", 0.45, name=GIVEN, group="ours", order=100, comparable=False)
    write_page(
        folder, [(png(), 'A map of "left" & <right>')], commands=["rightlung reproduce wrong-lung"], sureness=FEW
    )
    return folder


@pytest.fixture(scope="module")
def page(out: Path) -> str:
    return (out / "page.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    assert found.open == []
    return found


@pytest.fixture(scope="module")
def markdown(out: Path) -> str:
    return (out / "results.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def numbers(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return found


def test_the_page_has_its_sections_in_order(outline: Outline) -> None:
    second = [heading[3:] for heading in outline.headings if heading.startswith("h2")]
    assert outline.headings[0].startswith("h1")
    assert second[:4] == [
        "What was found", "The claims", "How much of the story is its labels", "What the paper does not measure"
    ]  # fmt: skip
    assert second[-1] == "Figure 7: example maps"


def test_the_top_says_what_it_rests_on(page: str, markdown: str) -> None:
    for text in (page, markdown):
        top = text[: text.index("What was found")] if text is markdown else text[: text.index("<main>")]
        for said in (
            "phantom?count=8",
            "abc1234567",
            NOT_A_MEDICAL_DEVICE,
            "no region boxes: 3",
            "rows that the source refuses: 5",
            "reproduce wrong-lung",
            "phrases without a word for a side, so that there is none to swap (Swap Left Right): 16",
            "phrases without an exact mask of their own and another in their report (Shuffle in Report): 72",
        ):
            assert said in top
        assert "exact-shuffled" not in top
        assert "swap-sides" not in top


def test_every_count_of_the_instances_is_on_the_page(page: str, markdown: str, numbers: dict[str, Any]) -> None:
    rows = page_rows()
    outside = sum(not (row["abnormal"] or row["one_lung"] or row["mdrb"]) for row in rows)
    assert outside > 0
    for said, count in (
        ("instances in none of these subsets", outside),
        ("studies whose patient is not known", 0),
        ("instances that name no finding", 1234),
        ("instances in MDRB", sum(row["mdrb"] for row in rows)),
    ):
        assert f"<dt>{said}</dt><dd>{count:,}</dd>" in page
        assert f"- {said}: {count:,}" in markdown
        assert numbers["facts"][said] == f"{count:,}"


@pytest.mark.parametrize(
    ("known", "said", "short"),
    [
        (16, "patients resampled 60 times", "patients"),
        (0, "studies (no patient is known) resampled 60 times", "studies"),
        (8, "patients (studies where the patient is not known) resampled 60 times", "patients and studies"),
    ],
)
def test_what_is_resampled_is_named(tmp_path: Path, known: int, said: str, short: str) -> None:
    rows = instance_rows(16)
    for row in rows[known:]:
        row["patient"] = None
    write_instances(tmp_path, rows)
    plain_model(tmp_path, rows, "retrained", 0.1)
    page, markdown, numbers = (path.read_text(encoding="utf-8") for path in write_page(tmp_path, sureness=FEW)[:3])
    assert said in page
    assert escaped(said) in markdown
    assert json.loads(numbers)["intervals"]["resampled"] == short
    assert f"<dt>studies whose patient is not known</dt><dd>{(16 - known) // 2}</dd>" in page


@pytest.mark.parametrize(
    ("about", "source", "whose"),
    [
        ({"training": {"steps": 4, "quick": True}}, "phantom?count=8", "its models"),
        ({"training": {"steps": 4}}, QUICK_SOURCE, "its models"),
        ({"training": {"steps": 4}}, "phantom?count=8", None),
        ({"training": None}, "phantom?count=8", None),
    ],
)
def test_a_rehearsal_says_so_before_anything_else(
    tmp_path: Path, about: dict[str, Any], source: str, whose: str | None
) -> None:
    rows = instance_rows(8)
    write_instances(tmp_path, rows, source=source)
    plain_model(tmp_path, rows, "retrained", 0.1, **about)
    page, markdown = (path.read_text(encoding="utf-8") for path in write_page(tmp_path, sureness=FEW)[:2])
    if whose is None:
        assert "learned nothing" not in page + markdown
        return
    said = f"A rehearsal (--quick), not a result: {whose}, trained for a few steps"
    assert page.index("<h1>") < page.index(said) < page.index(NOT_A_MEDICAL_DEVICE) < page.index("<dl>")
    assert markdown.splitlines()[2].startswith(f"> **{said}")


def test_of_several_runs_those_of_a_rehearsal_are_named(tmp_path: Path) -> None:
    rows = instance_rows(8)
    write_instances(tmp_path, rows)
    plain_model(tmp_path, rows, "retrained", 0.1, training={"steps": 900, "quick": False})
    plain_model(tmp_path, rows, "no-attn", 0.1, training={"steps": 4, "quick": True})
    assert "not a result: no-attn, trained" in write_page(tmp_path, sureness=FEW)[0].read_text(encoding="utf-8")


def test_why_a_variant_is_missing_is_said(tmp_path: Path) -> None:
    rows = instance_rows(8)
    write_instances(tmp_path, rows)
    plain_model(tmp_path, rows, "retrained", 0.1, training={"steps": 9, "left_out": 7})
    said = {"quick": False, "missing": {"thirty-shot": "too few phrases", "own-x": "cannot be loaded"}}
    (tmp_path / "run.json").write_text(json.dumps(said), encoding="utf-8")
    text = write_page(tmp_path, sureness=FEW)[0].read_text(encoding="utf-8")
    assert f"Not measured: {EXPECTED['thirty-shot']} (too few phrases)." in text
    assert f"Not measured: {EXPECTED['sided']}." in text
    assert "Not measured: own-x (cannot be loaded)." in text
    assert "retrained: 7 studies could not be learned from, or validated on." in text


def test_claims_of_the_released_model_say_who_stands_in(page: str, markdown: str) -> None:
    said = "Said of GLoRIA with its released weights; judged on Retrained."
    assert page.count(said) == 7
    lines = [line for line in markdown.splitlines() if said in line]
    assert len(lines) == 7
    assert sum("section 3" in line for line in lines) == 6


def test_correlations_that_are_told_from_zero_are_marked(page: str, markdown: str, numbers: dict[str, Any]) -> None:
    pairs = {(one["first"], one["second"]): one for one in numbers["figures"]["correlations-no-attn"]}
    table = numbers["tables"]["correlations-table-no-attn"]
    told = [one for one in pairs.values() if one["estimate"] is not None and not one["low"] <= 0 <= one["high"]]
    assert 0 < len(told) < len(pairs)
    for row in table["rows"]:
        for name, cell in zip(table["header"][1:], row[1:], strict=True):
            if cell != "":
                assert cell == {k: v for k, v in pairs[name, row[0]].items() if k not in ("first", "second")}
    begin = markdown.index("Figure 6: correlations", markdown.index("correlations-no-attn.png"))
    shown = markdown[begin : markdown.index("\n\n<details>", begin)]
    assert shown.count("**") == 2 * len(told)
    bold = next(one for one in told if (one["first"], one["second"]) == ("abstention", "abnormal"))
    printed = [f"{bold[name]:.2f}".replace("-", "−") for name in ("estimate", "low", "high")]
    assert f"**{printed[0]}** ({printed[1]} to {printed[2]})" in shown
    assert "Underlined: the interval" in page
    assert "Underlined: the interval" in markdown


def test_only_verdicts_that_turn_are_owed_to_the_labels(page: str, markdown: str, numbers: dict[str, Any]) -> None:
    turned = []
    for claim in numbers["claims"]:
        verdicts = {target: one["verdict"] for target, one in claim["judgements"].items()}
        if sorted(verdicts.values()) == ["does not hold", "holds"]:
            turned.append(f"{claim['claim']} Region boxes: {verdicts['regions']}. Exact masks: {verdicts['exact']}.")
    section = page[page.index('id="labels"') : page.index('id="own"')]
    assert re.findall("<li>(.*?)</li>", section) == [html.escape(sentence) for sentence in turned]
    assert section.count("no difference shown") == section.count("cannot be told") == 0
    assert "How much of the story is its labels" in markdown


def test_labels_are_told_in_figures(out: Path, page: str, markdown: str) -> None:
    from scipy.stats import spearmanr

    results = read_results(out)
    left_out = {"uniter", "mine", "given", "prior"}
    models = [m for m in results.rows if m.slug not in left_out and not m.slug.startswith("sided-without-")]
    assert len(models) == 11
    exact = np.array([results.score(model.slug, "auroc", "exact") for model in models])
    regions = np.where(np.isnan(exact), np.nan, [results.score(model.slug, "auroc") for model in models])
    means = np.nanmean(regions, axis=1), np.nanmean(exact, axis=1)
    said = (
        f"Over 11 variants (comparable ones; no ablations, no models of one's own) AUROC is "
        f"{100 * means[0].mean():.1f} % on average against region boxes and {100 * means[1].mean():.1f} % against "
        f"exact masks, on the same phrases; Spearman's rank correlation of the two orders is "
        f"{spearmanr(*means).statistic:.2f} ("
    )
    assert html.escape(said, quote=False) in html.unescape(page)
    assert said in markdown


def test_without_exact_masks_nothing_is_said_of_labels(tmp_path: Path) -> None:
    rows = instance_rows(16)
    for row in rows:
        row |= {"has_exact": False, "exact_side": "none", "exact_shuffled_differs": None}
    write_instances(tmp_path, rows)
    plain_model(tmp_path, rows, "retrained", 0.1)
    text = write_page(tmp_path, sureness=FEW)[0].read_text(encoding="utf-8")
    assert "How much of the story is its labels" not in text
    assert "No phrase has an exact mask: nothing can be told of exact masks." in text


def test_the_page_needs_nothing_from_elsewhere(page: str, outline: Outline) -> None:
    assert "script" not in outline.tags
    assert "link" not in outline.tags
    sources = [value for _, name, value in outline.attributes if name in ("src", "href")]
    assert all(value.startswith(("#", "data:image/png;base64,")) for value in sources)
    assert "url(" not in page


def test_every_scrolling_part_is_reached_by_keyboard_and_named(outline: Outline, page: str) -> None:
    regions = re.findall(r'<div class="scroll"[^>]*>', page)
    assert len(regions) > 20
    assert all('tabindex="0"' in region and "aria-label" in region for region in regions)
    ids = [value for _, name, value in outline.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    labelled = [value for _, name, value in outline.attributes if name == "aria-labelledby"]
    assert set(labelled) <= set(ids)


def test_a_name_cannot_bring_markup(page: str, markdown: str) -> None:
    assert "<script>" not in page
    assert "mine &lt;script&gt;" in page
    assert "<script>" not in markdown
    assert r"\| \*bold\*" in markdown


def test_markdown_tables_are_whole(markdown: str) -> None:
    lines = markdown.splitlines()
    heads = [place for place, line in enumerate(lines) if re.fullmatch(r"\| (---:?( \| )?)+ ?\|", line)]
    assert len(heads) > 30
    for place in heads:
        columns = len(re.findall(r"(?<!\\)\|", lines[place]))
        row = place - 1
        while row < len(lines) and lines[row].startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", lines[row])) == columns, lines[row]
            row += 1
        assert row > place + 1


def test_the_pictures_of_the_markdown_are_there(out: Path, markdown: str) -> None:
    pictures = re.findall(r"\]\((figures/[^)]+)\)", markdown)
    assert len(set(pictures)) == len(pictures) > 20
    for picture in pictures:
        with PIL.Image.open(out / picture) as opened:
            assert opened.format == "PNG"
    assert "figures/example-1.png" in pictures


def test_the_numbers_file_holds_what_was_measured(out: Path, numbers: dict[str, Any]) -> None:
    results = read_results(out)
    line = next(row for row in numbers["tables"]["t3"]["rows"] if row[0] == EXPECTED["no-attn"])
    assert line[1]["estimate"] == pytest.approx(np.mean(results.score("no-attn", "auroc")))
    assert line[2] == {"paper": pytest.approx(0.57), "table": "3"}
    pair = next(
        found for found in numbers["figures"]["correlations-no-attn"]
        if (found["first"], found["second"]) == ("abstention", "abnormal")
    )  # fmt: skip
    by_hand = np.corrcoef(results.answer("no-attn", "abstention"), results.instances.flags["abnormal"])[0, 1]
    assert pair["estimate"] == pytest.approx(by_hand)
    assert pair["low"] < pair["estimate"] < pair["high"]
    assert len(numbers["models"]) == len(EXPECTED) + 2
    assert numbers["missing"] == []


@pytest.mark.parametrize("name", ["UNITER", GIVEN])
def test_what_is_not_comparable_is_marked_everywhere_and_never_bold(page: str, markdown: str, name: str) -> None:
    assert f"{name} *" in html.unescape(page)
    lines = [line for line in html.unescape(page).split("<tr>") if line.startswith(f'<th scope="row">{name} *')]
    assert len(lines) > 20
    assert all("best" not in line[: line.index("</tr>")] for line in lines)
    assert all("**" not in line for line in markdown.splitlines() if line.startswith(rf"| {name} \*"))
    for text in (html.unescape(page), markdown.replace("\\*", "*")):
        for begin in (found.start() for found in re.finditer(re.escape(name), text)):
            around = text[begin : begin + len(name) + 2]
            assert around.endswith((" *", "'s", " l")), text[begin - 60 : begin + 60]
    assert "it is given the boxes of the regions" in page
    assert 'class="number best"' in page


def test_a_long_name_keeps_its_mark_in_a_figure(page: str) -> None:
    shown = re.findall(r">(a model of somebody[^<]*)</text>", html.unescape(page))
    assert shown
    assert all(label.endswith("… *") for label in shown)


def test_facts_and_gaps_mark_what_is_not_comparable(tmp_path: Path) -> None:
    rows = instance_rows(8)
    write_instances(tmp_path, rows)
    place = plain_model(tmp_path, rows, "uniter", 0.1, comparable=False)
    table = pq.read_table(place / "answers.parquet")
    nulls = pa.nulls(len(table), pa.float32())
    column = table.schema.get_field_index("similarity_local")
    pq.write_table(table.set_column(column, "similarity_local", nulls), place / "answers.parquet")
    text = write_page(tmp_path, sureness=FEW)[0].read_text(encoding="utf-8")
    assert "1: uniter *" in text
    assert "uniter *: gives no local similarity." in text


def test_a_folder_with_little_in_it_gives_a_page_that_says_so(tmp_path: Path) -> None:
    rows = instance_rows(16)
    write_instances(tmp_path, rows)
    files = write_page(tmp_path, sureness=FEW)
    text = files[0].read_text(encoding="utf-8")
    assert [path.name for path in files] == ["page.html", "results.md", "results.json"]
    assert "Table 3:" not in text
    for name in EXPECTED.values():
        assert f"Not measured: {html.escape(name)}." in text
    plain_model(tmp_path, rows, "retrained", 0.1, name="Retrained")
    plain_model(tmp_path, rows, "half", 0.1).joinpath("about.json").unlink()
    text = write_page(tmp_path, sureness=FEW)[0].read_text(encoding="utf-8")
    assert f"Not measured: {EXPECTED['retrained']}." not in text
    assert f"Not measured: {EXPECTED['sided']}." in text
    assert "measures/half: not finished, and left out." in text
    assert "Table 3:" in text


def test_a_model_that_was_asked_less_says_what_is_missing(tmp_path: Path) -> None:
    rows = instance_rows(16)
    write_instances(tmp_path, rows)
    place = plain_model(tmp_path, rows, "retrained", 0.1)
    for name in ("answers", "scores"):
        table = pq.read_table(place / f"{name}.parquet")
        pq.write_table(table.filter(pc.equal(table["condition"], "none")), place / f"{name}.parquet")
    text = write_page(tmp_path, sureness=FEW)[0].read_text(encoding="utf-8")
    assert (
        "retrained: no scores of Swap Left Right against region boxes, Swap Left Right against trimmed region boxes"
    ) in text
    assert "and 9 more." in text
    assert "not measured" in text


def test_the_same_folder_gives_the_same_page(out: Path, page: str) -> None:
    example = (png(), 'A map of "left" & <right>')
    files = write_page(out, [example], commands=["rightlung reproduce wrong-lung"], sureness=FEW)
    assert files[0].read_text(encoding="utf-8") == page


def test_an_example_that_is_no_png_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    write_instances(tmp_path, instance_rows(8))
    for picture in ("https://example.org/a.png", "data:image/png;base64,@@"):
        with pytest.raises(InputError, match="example 1: the picture must be a data URI"):
            write_page(tmp_path, [(picture, "a map")])
    assert not (tmp_path / "page.html").exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"instances\.parquet: there is no such file"):
        write_page(tmp_path / "nowhere")


@pytest.mark.parametrize(("text", "shown"), [("a|b", r"a\|b"), ("<i>\nx", "&lt;i&gt; x"), ("_x_ [1]", r"\_x\_ \[1\]")])
def test_markdown_shows_text_as_it_stands(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_the_page_is_made_without_what_is_not_a_dependency() -> None:
    code = (
        "import sys\n"
        "for name in ('pydantic', 'pydicom', 'fastapi', 'matplotlib', 'faiss', 'pandas'):\n"
        "    sys.modules[name] = None\n"
        "import rightlung.reproduce.wrong_lung.page\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_is_said_how_many_were_trained_once(tmp_path: Path) -> None:
    rows = page_rows()
    write_instances(tmp_path, rows)
    plain_model(tmp_path, rows, "retrained", 0.1, order=1)
    plain_model(tmp_path, rows, "retrained-seed2", 0.1, 2, variant="retrained", seed=2, order=2)
    plain_model(tmp_path, rows, "sided", 0.2, order=3)
    plain_model(tmp_path, rows, "prior", 0.3, seed=None, group="reference", order=9)
    write_page(tmp_path, [], commands=[], sureness=FEW)
    said = "Trained with one seed only: 1 of 2 variants."
    for name in ("page.html", "results.md", "results.json"):
        assert said in (tmp_path / name).read_text(encoding="utf-8")
    plain_model(tmp_path, rows, "sided-seed2", 0.2, 2, variant="sided", seed=2, order=4)
    write_page(tmp_path, [], commands=[], sureness=FEW)
    assert "one seed only" not in (tmp_path / "results.md").read_text(encoding="utf-8")


def test_what_follows_from_the_code_is_not_counted_among_the_papers_claims(numbers: dict[str, Any]) -> None:
    own = [one["name"] for one in numbers["claims"] if one["ours"]]
    paper = [one["name"] for one in numbers["claims"] if not one["ours"] and "regions" in one["judgements"]]
    assert "two-softmaxes" in paper
    assert own
    assert numbers["found"][0].startswith(f"Of the paper's {len(paper) - 1} claims judged against region boxes: ")
