"""Retrieval on Open-I: the parts ``retrieval`` and ``val`` of eclip_real.py."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from eclip_real_runs import Benchmark, Row, entry  # type: ignore[import-not-found]  # next to this script
from numpy.typing import NDArray

import rightlung
from rightlung.results.estimate import Estimate
from rightlung.results.estimator import Estimator
from rightlung.scoring import text_retrieval as retrieving
from rightlung.scoring.text_retrieval import PriorCorrection, Retrieved, TextPool
from rightlung.training.setup import check_patients

Floats = NDArray[np.float64]
RETRIEVERS = ("starter", "clip")
RECALLS = ("recall@1", "recall@5", "recall@10")
BLIND = (retrieving.FREQUENT, retrieving.CHANCE, retrieving.IMAGES_BY_CHANCE)


def retrievers(bench: Benchmark) -> Sequence[str]:
    """Return the models that are trained."""
    return bench.given.retriever or RETRIEVERS


def retrieval_run(bench: Benchmark, model: str, source: str) -> list[str]:
    """Return the recipe of a model that learns from pairs; every batch is synthetic or real, not a mixture."""
    pairs = entry(source, paired_text="report", share=0.8)
    one_source = "data.sources_per_batch=one"
    count = min(4000, bench.given.phantoms)
    train = [f"data.train[0]={pairs}", "data.train[1].share=0.2", f"data.train[1].cached_studies={count}"]
    train += ["data.validation=null", "schedule={steps: 500, warmup_steps: 50}", "losses.global=1.0"]
    recipe, changes = "fine-tune", [*train, "precision=bf16-mixed"]
    if model == "clip":
        both = f"data.train=[{bench.phantoms(share=0.2)}, {pairs}]"
        recipe, changes = "eclip-clip", [both, "model.config.text.max_length=128", "augmentation.mirror=none"]
    command: list[str] = bench.changes(recipe, *changes, one_source)
    return command


class Reports:
    """Images of Open-I and their findings texts, and what every fold's model makes of those that it has not seen."""

    def __init__(self, bench: Benchmark) -> None:
        self.bench = bench
        self.studies = list(rightlung.open_source(f"manifest:{bench.openi / 'all'}?report=findings"))
        self.texts = [study.report.text for study in self.studies if study.report is not None]
        self.patients = [str(study.patient) for study in self.studies]
        self.folds = np.array([bench.fold(patient) for patient in self.patients])
        self.tested = np.array([study.split == "val" for study in self.studies])
        self.pool = TextPool.of(self.texts, name="open-i")
        self._known: dict[str, tuple[Floats, Floats]] = {}

    def some(self, chosen: NDArray[np.bool_]) -> list[str]:
        """Return the texts of some images."""
        return [self.texts[place] for place in np.flatnonzero(chosen)]

    def embedded(self, run: str, chosen: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return the embeddings of some images and of the pool, (n, dimension) each, by one model."""
        if run not in self._known:
            kept = self.bench.out / "embeddings" / f"{run}.npz"
            if not kept.is_file():
                model = self.bench.load(run)
                images = model.encode_image([self.studies[place].image for place in np.flatnonzero(chosen)])
                kept.parent.mkdir(exist_ok=True)
                np.savez_compressed(kept, images=images, pool=model.encode_text(list(self.pool.texts)))
            with np.load(kept) as arrays:
                self._known[run] = arrays["images"], arrays["pool"]
        return self._known[run]

    def correction(self, model: str, folds: Iterable[int], without: NDArray[np.bool_]) -> PriorCorrection:
        """Return the mean of the corrections that fit the held-out images of these folds' models, but for some."""
        found = []
        for fold in folds:
            own = self.folds == fold
            images, pool = self.embedded(f"retrieval-{model}-{fold}", own)
            kept, logs = ~without[own], self.pool.log_frequency(self.some(~own))
            places = self.pool.places(self.some(own & ~without))
            found.append(retrieving.fit_prior(images[kept], pool, places, logs))
        return PriorCorrection(float(np.mean([one.weight for one in found])))

    def score(
        self, run: str, own: NDArray[np.bool_], learnt: NDArray[np.bool_], correction: PriorCorrection
    ) -> dict[str, Retrieved]:
        """Score some images by a model that has learnt from others."""
        images, pool = self.embedded(run, own)
        known, texts = self.some(learnt), self.some(own)
        return retrieving.score(images, texts, self.pool, pool, training_texts=known, correction=correction)


def reports_of(bench: Benchmark) -> Reports:
    """Return the images and texts, which are read once."""
    if "reports" not in bench.shared:
        bench.shared["reports"] = Reports(bench)
    reports: Reports = bench.shared["reports"]
    return reports


def retrieval_rows(
    bench: Benchmark, part: str, model: str, found: Mapping[str, Retrieved], patients: Sequence[str]
) -> Iterator[Row]:
    """Yield recalls and ranks, beside the answer that never sees the image: for all texts, and for those that occur
    once, which cannot be guessed."""
    estimator = Estimator(patients, bench.settings)
    for name, one in found.items():
        bench.columns.update({f"{part}/{model}/{name}/{column}": values for column, values in one.columns.items()})
    for once, which in ((False, ""), (True, ", text occurs once")):
        blind = retrieving.CHANCE if once else retrieving.FREQUENT
        beside = {retrieving.IMAGE_TO_TEXT: blind, retrieving.CORRECTED: blind}
        beside[retrieving.TEXT_TO_IMAGE] = retrieving.IMAGES_BY_CHANCE
        for name in [*beside, *(BLIND if model == retrievers(bench)[0] else ())]:
            own, other, who = found[name], beside.get(name, ""), model if name in beside else "blind"
            for column in RECALLS:
                values = own.column(column, once)
                more = estimator.difference(values, found[other].column(column, once)) if other else None
                yield Row(part, who, f"{name}{which}: {column}", estimator.mean(values), other, more)
            ranks = own.column("rank", once)
            there = ranks[~np.isnan(ranks)]
            middle = Estimate(float(np.median(there)) if len(there) else np.nan, n=len(there))
            yield Row(part, who, f"{name}{which}: median rank of {own.candidates}", middle)


def retrieval(bench: Benchmark) -> Iterator[Row]:
    """Yield what is retrieved out of fold."""
    folds = range(bench.given.folds)
    source = f"manifest:{bench.openi}/fold-{{}}?split=others&report=findings"
    bench.train({f"retrieval-{model}-{fold}": retrieval_run(bench, model, source.format(fold))
                 for model in retrievers(bench) for fold in folds})  # fmt: skip
    reports = reports_of(bench)
    nothing, order = np.zeros(len(reports.studies), bool), np.argsort(reports.folds, kind="stable")
    for model in retrievers(bench):
        scores = []
        for fold in folds:
            own = reports.folds == fold
            fitted = reports.correction(model, [other for other in folds if other != fold], nothing)
            scores.append(reports.score(f"retrieval-{model}-{fold}", own, ~own, fitted))
        joined = {name: joined_queries([one[name] for one in scores]) for name in scores[0]}
        yield from retrieval_rows(bench, "retrieval", model, joined, [reports.patients[place] for place in order])


def joined_queries(found: Sequence[Retrieved]) -> Retrieved:
    """Return the queries of all folds as one."""
    columns = {name: np.concatenate([one.columns[name] for one in found]) for name in found[0].columns}
    return replace(found[0], columns=columns, once=np.concatenate([one.once for one in found]))


def val(bench: Benchmark) -> Iterator[Row]:
    """Yield what models trained on ``train`` retrieve for ``val``; the correction is that of folds, without ``val``."""
    source = f"manifest:{bench.openi}/all?split={{}}&report=findings"
    check_patients(source.format("train"), source.format("val"), "val")
    bench.train({f"val-{model}": retrieval_run(bench, model, source.format("train")) for model in retrievers(bench)})
    reports = reports_of(bench)
    patients = [reports.patients[place] for place in np.flatnonzero(reports.tested)]
    for model in retrievers(bench):
        folds = [one for one in range(bench.given.folds) if bench.folder(f"retrieval-{model}-{one}/model").is_dir()]
        if not folds:
            sys.exit("part val needs the models of part retrieval, which fit the prior correction")
        fitted = reports.correction(model, folds, reports.tested)
        found = reports.score(f"val-{model}", reports.tested, ~reports.tested, fitted)
        yield from retrieval_rows(bench, "val", model, found, patients)
