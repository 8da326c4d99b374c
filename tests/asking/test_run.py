"""Asking a model about a source: every row as expected, whatever is bad, interrupted, or too large."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rightlung.asking import GIVE_UP_AFTER, ask
from rightlung.asking.folder import LIST
from rightlung.core import Grounding, Heatmap, Image, InputError, Phrase, Study
from rightlung.explain import BoxRule, boxes_of
from rightlung.models.base import Similarities
from rightlung.models.folder import weights_digest
from rightlung.predictions import Key, open_predictions
from tests.asking.models import Interrupted, Listed, Painter, cells_of, listed, picture, rows_of

ALL = ("none", "swap-sides", "exchange-image")


def test_every_phrase_gets_its_map_boxes_and_similarities_under_every_condition_that_applies(tmp_path: Path) -> None:
    source = listed(7)
    summary = ask(Painter(), source, tmp_path / "p", ALL, model_name="painter")
    rows = rows_of(tmp_path / "p")
    assert summary.rows == summary.written == len(rows)
    assert (summary.complete, summary.studies) == (True, 7)
    expected = set()
    for study in source.studies:
        for index, phrase in enumerate(study.phrases):
            expected |= {Key(study.id, f"phrase:{index}", "none"), Key(study.id, f"phrase:{index}", "exchange-image")}
            if "left" in phrase.text:
                expected.add(Key(study.id, f"phrase:{index}", "swap-sides"))
    assert set(rows) == expected
    assert summary.conditions == {"none": 6, "exchange-image": 6, "swap-sides": 4}
    row = rows[Key("s5", "phrase:0", "swap-sides")]
    assert row.asked.phrase == "Effusion 5 on the right"
    heatmap = Painter.heatmap(picture(5), "Effusion 5 on the right")
    assert row.grounding == Grounding(heatmap, boxes_of(heatmap))
    assert row.similarity_global == pytest.approx(picture(5).mean() + 23)
    assert row.similarity_local == pytest.approx((picture(5).mean() + 23) / 2)
    opened = open_predictions(tmp_path / "p")
    assert (opened.model, opened.source) == ("painter", "list")


def test_an_exchanged_image_is_another_patients_and_the_words_stay(tmp_path: Path) -> None:
    source = listed(12, patients=4)
    ask(Painter(), source, tmp_path / "p", ["exchange-image"])
    maps = {number: Painter.heatmap(picture(number), "x" * 24).values / 24 for number in range(12)}
    shown = []
    for key, row in rows_of(tmp_path / "p").items():
        number, text = int(key.study[1:]), row.asked.phrase or ""
        assert text == source.studies[number].phrases[int(key.query[-1])].text
        values = cells_of(row) / len(text)
        (donor,) = [other for other, expected in maps.items() if np.allclose(values, expected)]
        assert donor % 4 != number % 4
        shown.append((number, donor))
    assert len({number for number, _ in shown}) == len({donor for _, donor in set(shown)})


@pytest.mark.parametrize(("batch_size", "limit"), [(1, None), (3, None), (1000, None), (4, 90)])
def test_rows_depend_neither_on_the_batch_size_nor_on_a_limit_lifted_later(
    tmp_path: Path, batch_size: int, limit: int | None
) -> None:
    ask(Painter(), listed(140, patients=20), tmp_path / "whole", ALL)
    if limit:
        summary = ask(Painter(), listed(140, patients=20), tmp_path / "p", ALL, limit=limit)
        assert summary.studies == limit
        assert {key.study for key in rows_of(tmp_path / "p")} <= {f"s{number}" for number in range(limit)}
    ask(Painter(), listed(140, patients=20), tmp_path / "p", ALL, batch_size=batch_size)
    assert rows_of(tmp_path / "p") == rows_of(tmp_path / "whole")


def test_an_image_is_loaded_once_for_all_its_questions_and_handed_over_as_the_same_array(tmp_path: Path) -> None:
    source, model = listed(9), Painter()
    ask(model, source, tmp_path / "p", ALL, batch_size=100)
    assert sorted(source.loaded) == sorted(set(source.loaded))
    ((images, texts),) = model.calls
    assert len(texts) == 9 + 9 + 6  # none, exchange-image, swap-sides
    assert len(set(images)) <= len(source.loaded)
    changes = [image for image, before in zip(images, [None, *images], strict=False) if image != before]
    assert changes == list(dict.fromkeys(images))


def test_a_second_call_asks_nothing_and_builds_nothing_and_a_further_condition_asks_only_that(tmp_path: Path) -> None:
    first = ask(Painter(), listed(30), tmp_path / "p", ALL)
    source, model = listed(30), Painter()
    second = ask(model, source, tmp_path / "p", ALL)
    assert (model.calls, source.built, source.loaded) == ([], [], [])
    assert (second.rows, second.written, second.studies) == (first.rows, 0, 30)
    ask(Painter(), listed(30), tmp_path / "q", ["none"])
    summary = ask(Painter(), listed(30), tmp_path / "q", ["none", "swap-sides"])
    assert summary.written == summary.conditions["swap-sides"] == 20
    ask(Painter(), listed(30), tmp_path / "other", ["swap-sides", "none"])
    assert rows_of(tmp_path / "q") == rows_of(tmp_path / "other")


def test_rows_taken_away_are_asked_again_although_their_studies_were_finished(tmp_path: Path) -> None:
    ask(Painter(), listed(30), tmp_path / "p")
    whole = rows_of(tmp_path / "p")
    (tmp_path / "p" / "part-00000.parquet").unlink()
    assert (tmp_path / "p" / LIST).exists()
    ask(Painter(), listed(30), tmp_path / "p")
    assert rows_of(tmp_path / "p") == whole


class Choosy(Painter):
    """Raises at some texts."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        if any("7" in str(phrase) for phrase in phrases):
            raise KeyError("seven")
        return super().ground(images, phrases)


def test_one_bad_phrase_or_image_costs_its_rows_and_no_other(tmp_path: Path) -> None:
    def load(number: int) -> Image:
        if number == 4:
            raise OSError("the disk is gone")
        return np.full((2, 2), 9, np.float32) if number == 5 else picture(number)

    summary = ask(Choosy(), listed(12, load), tmp_path / "p", ALL, batch_size=8)
    good = rows_of(tmp_path / "p")
    ask(Painter(), listed(12), tmp_path / "whole", ALL)
    whole = rows_of(tmp_path / "whole")
    assert set(good) == set(whole)
    failed = {failure.key: failure.reason for failure in summary.failed}
    assert not summary.complete
    for key, row in good.items():
        if key.study == "s7" and row.error and "shown instead" not in row.error:
            assert row.error == failed[key] == "KeyError: 'seven'"
        elif key.study in ("s4", "s5") and key.condition != "exchange-image":
            assert row.error == failed[key]
            assert ("OSError: the disk is gone" in row.error) == (key.study == "s4")
        elif row.error:
            assert key.condition == "exchange-image"
            assert "shown instead" in row.error
        else:
            assert row == whole[key]
    again = ask(Choosy(), listed(12, load), tmp_path / "p", ALL)
    assert again.failed == summary.failed


def test_a_study_that_cannot_be_built_is_named_and_the_rest_is_asked(tmp_path: Path) -> None:
    class Broken(Listed):
        def _build(self, position: int) -> Study:
            if position == 2:
                raise InputError("line 3: no image")
            return super()._build(position)

    summary = ask(Painter(), Broken(listed(9).studies), tmp_path / "p", ALL)
    assert summary.problems == ("study 's2': line 3: no image",)
    assert not summary.complete
    assert {key.study for key in rows_of(tmp_path / "p")} == {"s1", "s4", "s5", "s7", "s8"}


@pytest.mark.parametrize(
    ("text", "error"),
    [(text, "") for text in ("x" * 10_000, "flibbertigibbet quux", "Плевральный выпот слева", "左侧胸腔积液",
                             "\u202e \ufffd 😀", "<b>&")] + [("half \ud83d", "UTF-8")],
)  # fmt: skip
def test_any_text_gets_a_row_and_one_that_no_file_can_hold_a_row_that_says_so(
    tmp_path: Path, text: str, error: str
) -> None:
    source = Listed([Study("a", lambda: picture(0), phrases=(Phrase(text), Phrase("whole")))])
    ask(Painter(), source, tmp_path / "p")
    row, other = rows_of(tmp_path / "p").values()
    assert (row.asked.phrase == text, row.error is None) == (not error, not error)
    assert error in (row.error or "")
    assert (other.asked.phrase, other.error) == ("whole", None)


class Hungry(Painter):
    """Has memory for so many phrases at a time, and none for some words."""

    def __init__(self, most: int = 99, error: Exception | None = None, never: str = "-") -> None:
        super().__init__()
        self.most, self.error, self.never = most, error or MemoryError(), never

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        if len(phrases) > self.most or any(self.never in str(phrase) for phrase in phrases):
            raise self.error
        return super().ground(images, phrases)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes"),
    ],
)
def test_out_of_memory_halves_the_batch_goes_on_and_says_what_fits(tmp_path: Path, error: Exception) -> None:
    model = Hungry(5, error)
    summary = ask(model, listed(60), tmp_path / "p", batch_size=32)
    assert summary.notes == ("out of memory with a batch size of 32; a batch size of 4 fits",)
    assert summary.complete
    assert max(len(texts) for _, texts in model.calls) == 4
    ask(Painter(), listed(60), tmp_path / "whole")
    assert rows_of(tmp_path / "p") == rows_of(tmp_path / "whole")


def test_one_image_too_large_for_memory_costs_its_own_row_alone_and_if_none_fits_a_sentence_says_so(
    tmp_path: Path,
) -> None:
    summary = ask(Hungry(never="Nodule 8"), listed(60), tmp_path / "p", batch_size=8)
    assert [failure.key for failure in summary.failed] == [Key("s8", "phrase:1", "none")]
    with pytest.raises(InputError, match="out of memory with a single question"):
        ask(Hungry(0), listed(60), tmp_path / "q")


class Broken:
    """Never answers."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        self.asked.append(len(phrases))
        raise TypeError("no such thing")


class Undefined:
    """Has answers that no file can hold."""

    def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
        return Similarities(np.full((len(images), len(texts)), np.nan, np.float32))


@pytest.mark.parametrize("batch_size", [1, 32, 1000])
@pytest.mark.parametrize("kind", [Broken, Undefined])
def test_a_model_that_never_answers_is_given_up_and_leaves_no_rows(
    tmp_path: Path, batch_size: int, kind: type[Broken | Undefined]
) -> None:
    model = kind()
    said = "TypeError: no such thing" if isinstance(model, Broken) else "similarity_global must be finite; got nan"
    with pytest.raises(InputError, match=f"none of the first 20 questions.*{said}"):
        ask(model, listed(300), tmp_path / "p", batch_size=batch_size)
    assert isinstance(model, Undefined) or model.asked.count(1) == GIVE_UP_AFTER == 20
    assert not list((tmp_path / "p").glob("*.parquet"))


def test_a_matcher_alone_gives_similarities_and_a_grounders_own_boxes_are_kept(tmp_path: Path) -> None:
    class Comparer:
        def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
            return Similarities(Painter().similarity(images, texts).global_similarity)

    class Boxer:
        def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
            return [Grounding(Heatmap(np.ones((2, 2))), []) for _ in images]

    ask(Comparer(), listed(3), tmp_path / "similar")
    (row, *_) = rows_of(tmp_path / "similar").values()
    assert row.similarity_global == pytest.approx(picture(1).mean() + len("Effusion 1 on the left"))
    assert (row.grounding, row.similarity_local) == (None, None)
    ask(Boxer(), listed(3), tmp_path / "boxes")
    assert {row.grounding for row in rows_of(tmp_path / "boxes").values()} == {Grounding(Heatmap(np.ones((2, 2))), [])}


def test_the_rule_for_boxes_can_be_chosen(tmp_path: Path) -> None:
    rule = BoxRule(0.0, smallest_area=0.0, size=(4, 4), mode="nearest")
    ask(Painter(), listed(3), tmp_path / "p", boxes=rule)
    for row in rows_of(tmp_path / "p").values():
        assert row.grounding is not None
        assert [scored.box.area for scored in row.grounding.boxes] == [1.0]


ONE = {"source": listed(5, patients=1)}
NONE_OF = "object implements none of the model protocols: ground, similarity, classify, detect, describe, report"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**ONE, "conditions": ALL}, "images of two patients, but list has one"),
        ({**ONE, "conditions": ["random-sentence"]}, "needs sentences of two patients, but list has one"),
        ({"conditions": ["swap-side"]}, "did you mean 'swap-sides'"),
        ({"conditions": []}, "at least one name"),
        ({"model": object()}, NONE_OF),
        ({"batch_size": 0}, "batch size"),
        ({"limit": 0}, "limit"),
        ({"source": listed(1)}, "none of the 1 studies of list has a phrase"),
        ({"seed": 2}, r"another seed \(1, now 2\)"),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    ask(Painter(), listed(5), tmp_path / "p", seed=1)
    out = tmp_path / ("p" if "seed" in options else "new")
    with pytest.raises(InputError, match=message):
        ask(**{"model": Painter(), "source": listed(5), "out": out, **options})


def test_answers_of_a_retrained_model_are_not_mixed_with_those_of_its_earlier_self(tmp_path: Path) -> None:
    class Net(torch.nn.Linear, Painter):
        def __init__(self, seed: int) -> None:
            Painter.__init__(self)
            calls = self.calls
            torch.manual_seed(seed)
            torch.nn.Linear.__init__(self, 2, 2)
            self.calls = calls

    assert weights_digest(Net(0)) == weights_digest(Net(0)) != weights_digest(Net(1))
    assert weights_digest(Painter()) is None
    ask(Net(0), listed(5), tmp_path / "p")
    ask(Net(0), listed(5), tmp_path / "p")
    with pytest.raises(InputError, match="with other weights"):
        ask(Net(1), listed(5), tmp_path / "p")


def test_weights_behind_the_attributes_of_a_class_count_too() -> None:
    def wrapped(**attributes: object) -> str | None:
        return weights_digest(SimpleNamespace(name="mine", cache=[], **attributes))

    assert wrapped() is None
    for one, other in [
        (torch.zeros(2), torch.ones(2)),
        (np.zeros(2), np.ones(2)),
        (torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)),
    ]:
        assert None is not wrapped(net=one) == wrapped(net=one) != wrapped(net=other)
        assert wrapped(net=one, more=other) != wrapped(net=other, more=one)


def test_progress_grows_to_the_number_of_studies(tmp_path: Path) -> None:
    seen: list[tuple[float, int]] = []
    ask(Painter(), listed(150), tmp_path / "p", batch_size=8, progress=lambda *at: seen.append(at))
    assert len(seen) > 10
    assert seen == sorted(seen)
    assert seen[-1] == (150, 150)


def test_interrupts_keep_what_is_done_and_going_on_ends_where_one_run_would_have(tmp_path: Path) -> None:
    source = partial(listed, 200, patients=50)
    ask(Painter(), source(), tmp_path / "whole", ALL)
    whole = rows_of(tmp_path / "whole")
    asked, grown = 0, [0]
    for call in (1, 9, 30, 2):
        model = Interrupted(call)
        with pytest.raises(KeyboardInterrupt):
            ask(model, source(), tmp_path / "p", ALL, batch_size=4, model_name="Painter")
        kept = rows_of(tmp_path / "p") if call > 1 else {}
        assert kept.items() <= whole.items()
        asked += sum(len(texts) for _, texts in model.calls)
        grown.append(len(kept))
    assert grown == [0, 0, 8 * 4, (8 + 29) * 4, (8 + 29 + 1) * 4]  # all that was answered, and nothing twice
    last = Painter()
    ask(last, source(), tmp_path / "p", ALL)
    assert rows_of(tmp_path / "p") == whole
    assert asked + sum(len(texts) for _, texts in last.calls) == len(whole)
