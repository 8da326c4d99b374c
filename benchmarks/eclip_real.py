"""eCLIP on real radiographs: retrieval on Open-I; probes, zero-shot and boxes on NIH (docs/results/eclip.md).

    python benchmarks/eclip_real.py --openi /data/openi.tar --nih /data/nih.tar --out runs/eclip-real --at-once 6

- ``retrieval``: CLIP is trained on synthetic studies and on the Open-I pairs of all folds of patients but one, and
  finds the findings texts of that fold among all distinct ones (images among those of the fold). So is the GLoRIA
  `starter`, trained further. The prior correction is fitted on the held-out images of the *other* folds.
- ``val``: the same, trained on the split ``train``, for the split ``val``.
- ``probe``: linear probes and zero-shot AUROC on NIH of models that have seen synthetic studies only.
- ``boxes``: NIH's radiologist boxes as expert maps. Every fold's boxes are held out in turn.

Finished trainings are kept, and skipped in the next call with the same ``--out``. Texts of Open-I stay in its folder
``data``; no weights that have seen them may be published.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from phantom_and_nih import FINDINGS, load_images

import rightlung
from rightlung.core import InputError, Mask
from rightlung.core.files import write_json, write_whole
from rightlung.models.blind.prior import FOLDS, PriorRow, fit_prior, fold_of
from rightlung.models.probe import ProbeSettings, fit_probe
from rightlung.pages.numbers import number, span
from rightlung.reproduce.processes import Task, in_processes
from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.results.estimator import Estimator
from rightlung.scoring import localisation
from rightlung.scoring import text_retrieval as retrieving
from rightlung.scoring.recognition import SortedScores
from rightlung.scoring.text_retrieval import PriorCorrection, Retrieved, TextPool
from rightlung.training.setup import check_patients

Floats = NDArray[np.float64]
RETRIEVERS = ("clip", "starter")
PROBED = {"clip": "eclip-clip", "eclip": "eclip-clip-expert"}
BOXED = {"clip": "eclip-clip", "plain": "eclip-clip", "eclip": "eclip-clip-expert", "tied": "eclip-clip-tied"}
"""``plain``: CLIP that sees the boxed images as often as ``tied``, without their boxes."""
CURRICULUM, STAYING = "[[0.1, 0.0], [0.4, 0.5], [0.8, 0.1]]", "[[0.1, 0.0], [0.4, 0.5]]"
RECALLS = ("recall@1", "recall@5", "recall@10")
BLIND = (retrieving.FREQUENT, retrieving.CHANCE, retrieving.IMAGES_BY_CHANCE)
SHARES = (0.01, 0.1, 1.0)
MAP_MEASURES = ("pointing", "average_precision")


@dataclass(frozen=True)
class Row:
    """One line of the table: a value and, paired, its difference from what stands beside it."""

    part: str
    model: str
    measure: str
    value: Estimate
    beside: str = ""
    difference: Estimate | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the line as JSON values."""
        found = {"part": self.part, "model": self.model, "measure": self.measure, "value": self.value.as_json()}
        return found if self.difference is None else found | {self.beside: self.difference.as_json()}

    def markdown(self) -> str:
        """Return the line of the table."""
        one, more = self.value, ""
        value = span(one, 3, brief=True) if one.has_interval else number(one.value, 3)
        if self.difference is not None:
            more = f"{span(self.difference, 3, signed=True, brief=True)} over {self.beside}"
        return f"| {self.part} | {self.model} | {self.measure} | {one.n} | {value} | {more} |"


@dataclass(frozen=True)
class Benchmark:
    """The settings of a call, and the data that its parts share."""

    given: argparse.Namespace
    columns: dict[str, Any] = field(default_factory=dict)  # values of every query and phrase, by name

    @property
    def out(self) -> Path:
        """The folder of everything."""
        return Path(self.given.out)

    @cached_property
    def settings(self) -> BootstrapSettings:
        """Those of all intervals."""
        return BootstrapSettings(self.given.resamples)

    @cached_property
    def openi(self) -> Path:
        """The folder of Open-I, with its folds."""
        return written_folds(self.given.openi, self.out / "data" / "openi", self.given.folds, self.given.limit)

    @cached_property
    def nih(self) -> Path:
        """The folder of NIH, with folds of the images with boxes."""
        return written_folds(self.given.nih, self.out / "data" / "nih", self.given.folds, self.given.limit)

    @cached_property
    def reports(self) -> Reports:
        """Open-I's images and texts, with what has been embedded."""
        return Reports(self)

    def fold(self, patient: str) -> int:
        """Return the fold of a patient."""
        return fold_of(patient, self.given.folds)

    def folder(self, run: str) -> Path:
        """Return the folder of a training."""
        return self.out / "runs" / run

    def load(self, run: str) -> Any:
        """Return a trained model on the device."""
        return rightlung.load(str(self.folder(run) / "model")).to(self.given.device)

    def phantoms(self, **fields: object) -> str:
        """Return the entry of the recipes' synthetic studies, with further fields."""
        count = self.given.phantoms
        source = f"phantom?count={2 * count}&seed=21"
        return entry(source, cached_studies=count, paired_text="abnormal-first", texts_per_image=2, **fields)

    def changes(self, recipe: str, *changes: str) -> list[str]:
        """Return a recipe with the changes that all have, those of the run, and those of the command line."""
        given, shared = self.given, [f"data.cache_folder={self.out / 'cache'}", f"seed={self.given.seed}"]
        if recipe != "fine-tune":
            shared += [f"data.image_size={given.pixels}", f"model.config.image.size={given.pixels}"]
        steps = [] if given.steps is None else [f"schedule={{steps: {given.steps}, warmup_steps: {given.steps // 10}}}"]
        return [recipe, *(part for one in (*shared, *changes, *steps, *given.set) for part in ("--set", one))]

    def train(self, runs: Mapping[str, list[str]]) -> None:
        """Train what is not trained yet."""
        command = [sys.executable, "-m", "rightlung", "train"]
        tasks = [
            Task(name, name, [*command, *arguments, "--out", str(self.folder(name)), "--restart"])
            for name, arguments in runs.items()
            if not (self.folder(name) / "finished.json").is_file()
        ]
        threads = max(1, (os.cpu_count() or 1) // self.given.at_once)
        failed = in_processes(tasks, self.given.at_once, self.out / "logs", threads=threads, say=print)
        if failed:
            sys.exit(f"{len(failed)} trainings failed, the first: {next(iter(failed.items()))}")


def entry(source: object, **fields: object) -> str:
    """Return an entry of ``data.train``."""
    return f'{{source: "{source}", {", ".join(f"{name}: {value}" for name, value in fields.items())}}}'


def written_folds(archive: Path, folder: Path, folds: int, limit: int | None) -> Path:
    """Extract an archive to ``all``, and link its images to ``fold-K`` with the splits ``own`` and ``others``.

    Where some have boxes, only these are in folds, with the boxed findings as their only ones. ``limit`` keeps the
    first rows of each split.
    """
    if (folder / "done").is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as files:
        members = {one.name: one for one in files}
        manifest = files.extractfile(members["manifest.jsonl"])
        assert manifest is not None
        by_split: dict[str, list[dict[str, Any]]] = {}
        for row in map(json.loads, manifest):
            by_split.setdefault(row["split"], []).append(row)
        rows = [row for some in by_split.values() for row in some[:limit]]
        files.extractall(folder / "all", [members[row["file"]] for row in rows], filter="data")
    crossed = [row | {"findings": sorted({box["label"] for box in row["boxes"]})} for row in rows if row.get("boxes")]
    for fold in range(folds):
        place = folder / f"fold-{fold}"
        shutil.copytree(folder / "all", place, copy_function=os.link)
        split = [row | {"split": "own" if fold_of(row["patient"], folds) == fold else "others"}
                 for row in crossed or rows]  # fmt: skip
        write_manifest(place, split)
    write_manifest(folder / "all", rows)
    (folder / "done").touch()
    return folder


def write_manifest(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows of a manifest."""
    (folder / "manifest.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


# ------------------------------------------------------------------ retrieval on Open-I


def retrieval_run(bench: Benchmark, model: str, source: str) -> list[str]:
    """Return the recipe of a model that learns from pairs; every batch is synthetic or real, not a mixture."""
    pairs = entry(source, paired_text="report", share=0.8)
    one_source = "data.sources_per_batch=one"
    if model == "clip":
        train = f"data.train=[{bench.phantoms(share=0.2)}, {pairs}]"
        return bench.changes("eclip-clip", train, one_source, "model.config.text.max_length=128",
                             "augmentation.mirror=none")  # fmt: skip
    count = min(4000, bench.given.phantoms)
    train = [f"data.train[0]={pairs}", "data.train[1].share=0.2", f"data.train[1].cached_studies={count}"]
    train += ["data.validation=null", "schedule={steps: 500, warmup_steps: 50}"]
    return bench.changes("fine-tune", *train, one_source, "losses.global=1.0", "precision=bf16-mixed")


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
            model = self.bench.load(run)
            images = model.encode_image([self.studies[place].image for place in np.flatnonzero(chosen)])
            self._known[run] = images, model.encode_text(list(self.pool.texts))
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
        return PriorCorrection(*(float(np.mean([getattr(one, name) for one in found])) for name in ("scale", "weight")))

    def score(
        self, run: str, own: NDArray[np.bool_], learnt: NDArray[np.bool_], correction: PriorCorrection
    ) -> dict[str, Retrieved]:
        """Score some images by a model that has learnt from others."""
        images, pool = self.embedded(run, own)
        known, texts = self.some(learnt), self.some(own)
        return retrieving.score(images, texts, self.pool, pool, training_texts=known, correction=correction)


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
        for name in [*beside, *(BLIND if model == RETRIEVERS[0] else ())]:
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
                 for model in RETRIEVERS for fold in folds})  # fmt: skip
    reports = bench.reports
    nothing, order = np.zeros(len(reports.studies), bool), np.argsort(reports.folds, kind="stable")
    for model in RETRIEVERS:
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
    bench.train({f"val-{model}": retrieval_run(bench, model, source.format("train")) for model in RETRIEVERS})
    reports = bench.reports
    patients = [reports.patients[place] for place in np.flatnonzero(reports.tested)]
    for model in RETRIEVERS:
        folds = [one for one in range(bench.given.folds) if bench.folder(f"retrieval-{model}-{one}/model").is_dir()]
        if not folds:
            sys.exit("part val needs the models of part retrieval, which fit the prior correction")
        fitted = reports.correction(model, folds, reports.tested)
        found = reports.score(f"val-{model}", reports.tested, ~reports.tested, fitted)
        yield from retrieval_rows(bench, "val", model, found, patients)


# ------------------------------------------------------------------ findings and boxes on NIH


def auroc(
    bench: Benchmark, labels: Floats, patients: Sequence[str] | NDArray[np.str_], *tables: Sequence[Floats]
) -> Estimate:
    """Return the mean AUROC over findings and over several models' scores, (images, findings) each; of two such lists,
    the paired difference."""
    first, second = (
        [SortedScores(table[:, place], labels[:, place]) for table in some for place in range(labels.shape[1])]
        for some in (tables[0], tables[1] if len(tables) > 1 else ())
    )

    def statistic(counts: Floats) -> Floats:
        means = [np.nanmean([one.auroc(counts) for one in some], axis=0) for some in (first, second) if some]
        return np.asarray(means[0] - means[1] if len(means) > 1 else means[0])

    estimator = Estimator(patients, bench.settings)
    return estimator.aggregate(statistic, np.ones(len(labels), bool), method="percentile")


def auroc_rows(
    bench: Benchmark, part: str, what: str, tables: Mapping[str, Sequence[Floats]], images: Any
) -> Iterator[Row]:
    """Yield mean AUROC of every model beside the first one, and that of single findings."""
    first = next(iter(tables))
    for name, scores in tables.items():
        beside = () if name == first else (auroc(bench, images.labels, images.patients, scores, tables[first]),)
        value = auroc(bench, images.labels, images.patients, scores)
        yield Row(part, name, f"{what}: mean AUROC", value, first, *beside)
        for place, finding in enumerate(FINDINGS):
            column = [table[:, [place]] for table in scores]
            one = auroc(bench, images.labels[:, [place]], images.patients, column)
            yield Row(part, name, f"{what}: {finding} ({images.labels[:, place].sum():.0f} positive)", one)


def probe(bench: Benchmark) -> Iterator[Row]:
    """Yield linear probes of ``train`` on ``val``, and zero-shot AUROC. A missing label counts as negative."""
    given = dict(one.split("=", 1) for one in bench.given.model)
    count = bench.given.annotated
    train = f"data.train[0]={bench.phantoms()}"
    expert = [f'data.train[1].source="phantom?count={count}&seed=21"', f"data.train[1].cached_studies={count}"]
    runs = {name: bench.changes(recipe, train, *(expert if name != "clip" else ()))
            for name, recipe in PROBED.items() if name not in given}  # fmt: skip
    bench.train({f"probe-{name}": arguments for name, arguments in runs.items()})
    taught, tested = (load_images(f"manifest:{bench.nih}/all?split={one}", bench.given.pixels)
                      for one in ("train", "val"))  # fmt: skip
    probes: dict[float, dict[str, list[Floats]]] = {share: {} for share in SHARES}
    zero_shot: dict[str, list[Floats]] = {}
    for name in [*runs, *given]:
        model = rightlung.load(given[name]).to(bench.given.device) if name in given else bench.load(f"probe-{name}")
        learnt, seen = (np.asarray(model.encode_image(one.pixels())) for one in (taught, tested))
        zero_shot[name] = [np.asarray(model.prompt_probabilities(seen, FINDINGS, 1.0), np.float64)]
        for share in SHARES:
            logits = np.zeros((len(seen), len(FINDINGS)))  # a finding that no label shows: chance
            with suppress(InputError):  # few patients may show none
                weights = fit_probe(learnt, taught.labels, list(taught.patients), FINDINGS, ProbeSettings(share=share))
                logits[:, [FINDINGS.index(one) for one in weights.findings]] = seen @ weights.weight.T + weights.bias
            probes[share][name] = [logits]
    yield from auroc_rows(bench, "probe", "zero-shot", zero_shot, tested)
    for share, tables in probes.items():
        yield from auroc_rows(bench, "probe", f"probe, {100 * share:g} % of patients", tables, tested)


def boxed_run(bench: Benchmark, model: str, fold: int) -> list[str]:
    """Return the recipe of a model that sees synthetic studies, NIH's labels as prompts and, but for ``clip``, the
    boxed images of the other folds."""
    labels = {"words_from": "labels", "missing_labels": "negative", "phrase_masks": "none"}
    entries = [bench.phantoms(share=0.5), entry(f"manifest:{bench.nih}/all?split=train", share=0.5, **labels)]
    if model != "clip":
        source, curve = f"manifest:{bench.nih}/fold-{fold}?split=others", CURRICULUM if model == "eclip" else STAYING
        for other in (f"manifest:{bench.nih}/all?split=val", f"manifest:{bench.nih}/fold-{fold}?split=own"):
            check_patients(source, other, "boxes")
        kind = "none" if model == "plain" else "boxes"
        entries.append(entry(source, **labels, added_images=64, expert_map=kind, probability=curve))
    return bench.changes(BOXED[model], f"data.train=[{', '.join(entries)}]")


def boxes(bench: Benchmark) -> Iterator[Row]:
    """Yield pointing and average precision on held-out boxes beside the location prior, and zero-shot on ``val``."""
    folds = range(bench.given.folds)
    bench.train({f"boxes-{model}-{fold}": boxed_run(bench, model, fold) for model in BOXED for fold in folds})
    studies = list(rightlung.open_source(f"manifest:{bench.nih}/all?split=boxes"))
    asked = [(study, str(study.patient), phrase) for study in studies for phrase in study.phrases if phrase.boxes]
    rows = (PriorRow(patient, phrase.text, phrase.findings, phrase.boxes) for _, patient, phrase in asked)
    prior = fit_prior(rows, folds=bench.given.folds)
    tested = load_images(f"manifest:{bench.nih}/all?split=val", bench.given.pixels)
    maps = {"location prior": [prior.map_of(phrase, patient=patient) for _, patient, phrase in asked]}
    zero_shot: dict[str, list[Floats]] = {}
    for name in BOXED:
        answers: dict[int, Any] = {}
        for fold in folds:
            model = bench.load(f"boxes-{name}-{fold}")
            own = [place for place, (_, patient, _) in enumerate(asked) if bench.fold(patient) == fold]
            found = model.ground([asked[place][0].image for place in own], [asked[place][2] for place in own])
            answers |= {place: one.heatmap for place, one in zip(own, found, strict=True)}
            seen = model.encode_image(tested.pixels())
            zero_shot.setdefault(name, []).append(model.prompt_probabilities(seen, FINDINGS, 1.0).astype(np.float64))
        maps[name] = [answers[place] for place in range(len(asked))]
    masks = [Mask.from_boxes(phrase.boxes, study.image.shape).pixels for study, _, phrase in asked]
    values = {
        name: [localisation.score(one.to_size(mask.shape)[None], mask[None], metrics=MAP_MEASURES, workers=1)
               for one, mask in zip(found, masks, strict=True)]
        for name, found in maps.items()
    }  # fmt: skip
    estimator = Estimator([patient for _, patient, _ in asked], bench.settings)
    for measure in MAP_MEASURES:
        columns = {name: np.array([one[measure][0] for one in found]) for name, found in values.items()}
        bench.columns.update({f"boxes/{name}/{measure}": column for name, column in columns.items()})
        yield Row("boxes", "location prior", measure, estimator.mean(columns["location prior"]))
        pairs = [(name, "location prior") for name in BOXED]
        pairs += [("eclip", "clip"), ("tied", "clip"), ("tied", "plain"), ("tied", "eclip")]
        for name, beside in pairs:
            more: Comparison = estimator.difference(columns[name], columns[beside])
            yield Row("boxes", name, measure, estimator.mean(columns[name]), beside, more)
    yield from auroc_rows(bench, "boxes", "zero-shot, mean of folds", zero_shot, tested)


PARTS: dict[str, Callable[[Benchmark], Iterator[Row]]] = {
    "retrieval": retrieval, "val": val, "probe": probe, "boxes": boxes,
}  # fmt: skip


def main() -> None:
    """Train and measure each part, and write its table (JSON, Markdown) and single values to ``parts``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--openi", type=Path, help="tar with the Open-I images and their manifest")
    parser.add_argument("--nih", type=Path, help="tar with the NIH images and their manifest")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="a part (repeatable); default: all")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=FOLDER",
                        help="for probe: a trained model instead of clip or eclip, or besides them")  # fmt: skip
    parser.add_argument("--at-once", type=int, default=1, help="trainings at the same time")
    parser.add_argument("--steps", type=int, help="default: those of the recipes")
    parser.add_argument("--set", action="append", default=[], help="change of all recipes, as for rightlung train")
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--pixels", type=int, default=128, help="image size of all models but starter")
    parser.add_argument("--phantoms", type=int, default=8000, help="synthetic studies that are kept")
    parser.add_argument("--annotated", type=int, default=1080, help="synthetic studies with gaze")
    parser.add_argument("--limit", type=int, help="use the first images of each split only, to try it out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--resamples", type=int, default=2000)
    bench = Benchmark(parser.parse_args())
    for part in bench.given.only or PARTS:
        if getattr(bench.given, archive := "openi" if part in ("retrieval", "val") else "nih") is None:
            parser.error(f"part {part} needs --{archive}")
    for part in bench.given.only or PARTS:
        bench.columns.clear()
        rows = list(PARTS[part](bench))
        write_json(bench.out / "parts" / f"{part}.json", [row.as_json() for row in rows])
        head = "| part | model | measure | n | value | difference |\n| --- | --- | --- | ---: | --- | --- |\n"
        table = head + "".join(f"{row.markdown()}\n" for row in rows)
        write_whole(bench.out / "parts" / f"{part}.md", table)
        np.savez_compressed(bench.out / "parts" / f"{part}.npz", **bench.columns)
        print(table, flush=True)


if __name__ == "__main__":
    main()
