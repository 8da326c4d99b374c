"""Example phrases for the page: each model's answers to them, stored next to its measures.

The answers are a small predictions file, so that pictures need neither the model nor all its predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from rightlung.core import Mask
from rightlung.lexicon import swap_sides
from rightlung.measuring import PhraseTargets
from rightlung.pages.content import Case, Gallery
from rightlung.pages.overlays import Tile, draw, make_sheet
from rightlung.predictions import Key, Prediction, open_predictions
from rightlung.probes.targets import boxes_named
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.results.measured import Measured
from rightlung.results.model import MeasuredModel

COUNT = 3
SHOWN = ("none", "swap-sides")
FILE = "examples.parquet"
_SIDE, _ACROSS = 176, 6
_LONGEST_NAME = 28


def chosen_examples(prepared: PreparedStudies, count: int = COUNT) -> list[PhraseTargets]:
    """Return the first phrases that name a side, with distinct findings and studies; no model affects the choice."""
    found: list[PhraseTargets] = []
    for phrase in prepared.targets.phrases.values():
        seen = {one.findings for one in found}, {one.study for one in found}
        new = phrase.findings and phrase.findings not in seen[0] and phrase.study not in seen[1]
        if new and phrase.findings != ("support devices",) and swap_sides(phrase.text) != phrase.text and phrase.masks:
            found.append(phrase)
        if len(found) == count:
            break
    return found


def keep_examples(predictions: Path, prepared: PreparedStudies, folder: Path) -> dict[str, Any]:
    """Copy a model's answers to the examples to ``folder``; return the grid of its maps for ``about.json``."""
    wanted = {(one.study, one.query) for one in chosen_examples(prepared)}
    table = ds.dataset(sorted(predictions.glob("*.parquet"))).to_table(
        filter=ds.field("study").isin([s for s, _ in wanted])
    )
    pairs = zip(table.column("study").to_pylist(), table.column("query").to_pylist(), strict=True)
    table = table.take(pa.array([place for place, pair in enumerate(pairs) if pair in wanted], pa.int64()))
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / FILE)
    grids = [(row["map_rows"], row["map_cols"]) for row in table.to_pylist() if row["map"] is not None]
    return {"grid": list(grids[0])} if grids else {}


@dataclass(frozen=True)
class Examples:
    """The example phrases and every model's answers to them."""

    prepared: PreparedStudies
    phrases: Sequence[PhraseTargets]
    models: Sequence[MeasuredModel]
    answers: Mapping[str, Mapping[Key, Prediction]]
    """By model: answers by study, query and condition."""

    @classmethod
    def read(cls, prepared: PreparedStudies, measured: Measured) -> Examples:
        """Read the kept answers of an experiment: of each variant's first seed, without ablations."""
        models = [one for one in measured.models if one.seed in (None, 1) and not one.ablation]
        files = {one.slug: Path(one.origin).with_name(FILE) for one in models}
        answers = {
            slug: {one.key: one for one in open_predictions(path)} for slug, path in files.items() if path.is_file()
        }
        shown = [one for one in models if answers.get(one.slug)]
        return cls(prepared, chosen_examples(prepared), shown, answers)

    def text(self, phrase: PhraseTargets, condition: str) -> str | None:
        """Return what is asked of a phrase under a condition, ``None`` where nothing is."""
        for answers in self.answers.values():
            found = answers.get(Key(phrase.study, phrase.query, condition))
            if found is not None:
                return found.asked.phrase
        return None

    def mask(self, phrase: PhraseTargets, rule: str) -> Mask | None:
        """Return a target of a phrase, ``None`` where it has none of this kind."""
        target = phrase.masks.get(rule)
        return None if target is None else Mask(self.prepared.targets.store.read([target.place])[0])

    def tile(self, model: MeasuredModel, phrase: PhraseTargets, condition: str) -> Tile:
        """Return a model's map over the image, with region boxes (also of the lungs) and the exact outline."""
        answer = self.answers[model.slug].get(Key(phrase.study, phrase.query, condition))
        heatmap = None if answer is None or answer.grounding is None else answer.grounding.heatmap
        name = model.name if len(model.name) <= _LONGEST_NAME else f"…{model.name[1 - _LONGEST_NAME :]}"
        caption = name if model.comparable else f"{name} *"
        if heatmap is None:
            caption += ", no map"
        elif any(one.grounding and 0 < one.grounding.abstention < 1 for one in self.answers[model.slug].values()):
            caption += f", No-Attn {heatmap.abstention:.2f}"
        study = self.prepared.source.study(phrase.study)
        boxes = boxes_named(study.regions, phrase.regions)
        return Tile(study.image, caption, heatmap, targets=boxes, mask=self.mask(phrase, "exact"))

    def gallery(self, name: str, title: str) -> Gallery:
        """Return a sheet per phrase: the maps of all models for the phrase and, below, with its sides swapped."""
        cases = []
        for phrase in self.phrases if self.models else ():
            swapped = self.text(phrase, "swap-sides")
            notes = [f"Above: {phrase.text}", f"Below (sides swapped): {swapped}"]
            cases.append(Case(phrase.text, [("", partial(self._sheet, phrase))], notes))
        caption = (
            "Boxes: regions of the original sentence and the lungs around them. Outline: the finding. Each map is "
            "scaled to its own maximum, so a nearly flat map is bright everywhere. No-Attn: share of attention on the "
            "no-attention token. Models of seed 1; * is given the true region boxes. The patient's right (R) is on the "
            "image's left."
        )
        return Gallery(name, title, caption, cases)

    def _sheet(self, phrase: PhraseTargets) -> Any:
        """Return the sheet: a row of models for the phrase, a row with swapped sides, then the next models."""
        import PIL.Image

        pictures = []
        for start in range(0, len(self.models), _ACROSS):
            row = self.models[start : start + _ACROSS]
            for condition in SHOWN:
                drawn = [draw(self.tile(model, phrase, condition), _SIDE) for model in row]
                pictures += [*drawn, *[PIL.Image.new("RGB", drawn[0].size)] * (_ACROSS - len(row))]
        return make_sheet(pictures, min(_ACROSS, len(pictures)))
