"""The models of the service, and questions to them through `rightlung.asking`."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from rightlung.app.errors import AppError
from rightlung.app.library import Entry
from rightlung.app.perturbing import Perturbed, changed_image, forget_changed
from rightlung.app.queue import ModelQueue
from rightlung.app.scores import findings_json, score_json
from rightlung.app.screening import FINDER
from rightlung.app.views import boxes_json, grounding_json, map_json
from rightlung.asking import Answerer, NoAnswer, Question
from rightlung.asking.reading import reading_warning
from rightlung.core import Box, Image, Query
from rightlung.models import base
from rightlung.models.anatomy.finding import find_regions
from rightlung.models.calibration import Calibration
from rightlung.models.calibration_file import NamedCalibration, calibrations_of
from rightlung.models.folder import read_card
from rightlung.models.registry import abilities, find_folder, first_line, load, split_changes
from rightlung.predictions import Key


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model and what it can do."""

    name: str
    model: Any
    calibrations: Mapping[str, NamedCalibration] = field(default_factory=dict)

    @property
    def calibration(self) -> Calibration | None:
        """The first calibration of answers to phrases."""
        return next((one.ground for one in self.calibrations.values() if one.ground is not None), None)

    @cached_property
    def can(self) -> tuple[str, ...]:
        """Words of `rightlung.models.registry.ABILITIES`."""
        return abilities(self.model)

    def answerer(self, method: str) -> Answerer:
        """Return an answerer that calls one method."""
        if method not in self._answerers:
            made = Answerer(self.model, batch_size=8, method=method)
            made.answered_before = True  # one unreadable image must not stop the service
            self._answerers[method] = made
        return self._answerers[method]

    @cached_property
    def _answerers(self) -> dict[str, Answerer]:
        return {}

    def as_json(self) -> dict[str, Any]:
        """Return the row of the list of models."""
        folder = find_folder(split_changes(self.name)[0])
        card = "" if folder is None else read_card(folder.path, links_within=folder.links_within)
        licence = next((line for line in card.splitlines() if "**Licence.**" in line), "").partition("**Licence.**")[2]
        return {
            "name": self.name,
            "kind": getattr(self.model, "kind", type(self.model).__name__),
            "can": list(self.can),
            "description": first_line(card),
            "licence": licence.strip() or None,
            "shipped": folder is not None and folder.path.parent.name == "shipped",
        }


class Shelf:
    """The models by name. All questions pass through one queue."""

    def __init__(self, names: Sequence[str], waiting: int, threads: int) -> None:
        self.models = {name: ServedModel(name, load(name), calibrations_of(name)) for name in dict.fromkeys(names)}
        self.queue = ModelQueue(waiting)
        torch.set_num_threads(threads)
        threadpool_limits(threads, "blas")  # NumPy's own threads, which would wait busily beside torch's

    def find(self, name: str, ability: str | None = None) -> ServedModel:
        """Return a model that has an ability."""
        found = self.models.get(name)
        if found is None:
            raise AppError(404, "unknown-model", f"there is no model {name!r} here; there are {', '.join(self.models)}")
        if ability is not None and ability not in found.can:
            raise AppError(422, "invalid", f"model {name!r} cannot {ability}; it can {', '.join(found.can)}", "model")
        return found

    def ground(self, name: str, entry: Entry, text: str, change: Perturbed | None = None) -> dict[str, Any]:
        """Return where a model sees a text in the image of a study, or in a changed one."""
        model, parameters = self.find(name, "ground"), () if change is None else change.parameters

        def job() -> dict[str, Any]:
            image = changed_image(entry.study, parameters)
            found = self._answer(model, "ground", entry, Query(text), image)["grounding"]
            answer = grounding_json(entry.study, text, found.heatmap, found.boxes, found.abstention)
            compared, notes = {}, []
            if isinstance(model.model, base.Matcher):
                compared = self._answer(model, "similarity", entry, Query(text), image)
            if isinstance(model.model, base.Reader):
                reading = model.model.reads(text)
                read_to = None if reading.complete else len(reading.text)
                notes = [one for one in [reading_warning(text, read_to, reading.known, reading.tokens)] if one]
            seen = "" if parameters else entry.study.source  # a changed image is of no source
            score = score_json(compared, found, text, seen, model.calibration)
            return answer | {"score": score, "notes": notes}

        return self._timed(("ground", name, entry.key, parameters, text), job)

    def describe(self, name: str, entry: Entry, query: Query) -> dict[str, Any]:
        """Return the sentence of a model for a phrase, a box, or both."""
        model = self.find(name, "describe")

        def job() -> dict[str, Any]:
            sentences = self._answer(model, "describe", entry, query)["sentences"]
            return {"sentence": sentences[0].text if sentences else None, "notes": []}

        return self._timed(("describe", name, entry.key, query), job)

    def report(self, name: str, entry: Entry) -> dict[str, Any]:
        """Return a model's grounded report."""
        model = self.find(name, "report")

        def job() -> dict[str, Any]:
            found = self._answer(model, "report", entry, Query())
            sentences = [
                {"text": one.text, "boxes": boxes_json(one.boxes), "score": one.score, "prompt": one.prompt,
                 "map": map_json(one.heatmap)}
                for one in found.get("sentences", ())
            ]  # fmt: skip
            return {"text": found["report"], "sentences": sentences}

        return self._timed(("report", name, entry.key), job)

    def classify(self, name: str, entry: Entry, query: Query) -> dict[str, Any]:
        """Return the scores of findings in the image or a box, highest first."""
        model = self.find(name, "classify")

        def job() -> dict[str, Any]:
            scores = self._answer(model, "classify", entry, query)["finding_scores"]
            return findings_json(scores, entry.study.source, model.calibrations, query == Query())

        return self._timed(("classify", name, entry.key, query), job)

    def regions(self, entry: Entry) -> Mapping[str, Box]:
        """Return the regions of an image: those of its study, else those that the anatomy model finds."""
        if entry.study.regions:
            return entry.study.regions
        found: Mapping[str, Box] = self.queue.ask(
            ("regions", entry.key), lambda: find_regions(entry.study.image, FINDER, "the image")
        )[0]
        return found

    def _timed(self, key: Hashable, job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        started = time.perf_counter()
        answer, known = self.queue.ask(key, job)
        return {**answer, "cached": known, "milliseconds": round(1e3 * (time.perf_counter() - started), 1)}

    def _answer(
        self, model: ServedModel, method: str, entry: Entry, query: Query, image: Image | None = None
    ) -> dict[str, Any]:
        study = entry.study
        phrase = next((one.without_target() for one in study.phrases if one.text == query.phrase), None)
        question = Question(Key(study.id, "query", "none"), query, phrase, study.patient or study.id)
        shown = study.image if image is None else image
        answer = model.answerer(method).answers([question], [shown], [study.regions])[0]
        if isinstance(answer, NoAnswer):
            raise AppError(422, "invalid", f"model {model.name!r} gave no answer: {answer.reason}")
        return answer

    def forget(self, entry: Entry) -> None:
        """Forget all answers about an image."""
        self.queue.forget(lambda key: entry.key in key)
        forget_changed()

    def close(self) -> None:
        """Stop answering."""
        self.queue.close()
