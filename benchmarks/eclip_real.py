"""eCLIP on real radiographs: retrieval on Open-I; probes, zero-shot and boxes on NIH (docs/results/eclip.md).

    python benchmarks/eclip_real.py --openi /data/openi.tar --nih /data/nih.tar --out runs/eclip-real --at-once 6

- ``retrieval``: CLIP is trained on synthetic studies and on the Open-I pairs of all folds of patients but one, and
  finds the findings texts of that fold among all distinct ones (images among those of the fold). So is the GLoRIA
  `starter`, trained further. The prior correction is fitted on the held-out images of the *other* folds.
- ``val``: the same, trained on the split ``train``, for the split ``val``.
- ``probe``: linear probes and zero-shot AUROC on NIH of models that have seen synthetic studies only.
- ``boxes``: NIH's radiologist boxes as expert maps. Every fold's boxes are held out in turn.

Finished trainings are kept, and skipped in the next call with the same ``--out``, so a call that was cut off goes on.
Texts of Open-I stay in its folder ``data``; no weights that have seen them may be published.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from eclip_real_pairs import RETRIEVERS, retrieval, val  # type: ignore[import-not-found]  # next to this script
from eclip_real_runs import Benchmark, Row, entry  # type: ignore[import-not-found]  # next to this script
from numpy.typing import NDArray
from phantom_and_nih import FINDINGS, load_images  # type: ignore[import-not-found]  # next to this script

import rightlung
from rightlung.core import InputError, Mask
from rightlung.core.files import write_json, write_whole
from rightlung.models.blind.prior import FOLDS, PriorRow, fit_prior
from rightlung.models.probe import ProbeSettings, fit_probe
from rightlung.reproduce.eclip.variants import SMALL_EXPERT_BATCHES
from rightlung.results.estimate import Comparison, Estimate
from rightlung.results.estimator import Estimator
from rightlung.scoring import localisation
from rightlung.scoring.recognition import SortedScores
from rightlung.training.setup import check_patients

Floats = NDArray[np.float64]
PROBED = {"clip": "eclip-clip", "eclip": "eclip-clip-expert"}
BOXED = {"clip": "eclip-clip", "plain": "eclip-clip", "eclip": "eclip-clip-expert", "tied": "eclip-clip-tied"}
"""``plain``: CLIP that sees the boxed images as often as ``tied``, without their boxes."""
CURRICULUM, STAYING = "[[0.1, 0.0], [0.4, 0.5], [0.8, 0.1]]", "[[0.1, 0.0], [0.4, 0.5]]"
SHARES = (0.01, 0.1, 1.0)
MAP_MEASURES = ("pointing", "average_precision")


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
    expert = [f'data.train[1].source="phantom?count={count}&seed=21"', f"data.train[1].cached_studies={count}",
              SMALL_EXPERT_BATCHES]  # fmt: skip
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
    recipe: list[str] = bench.changes(BOXED[model], f"data.train=[{', '.join(entries)}]")
    return recipe


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
    parser.add_argument("--retriever", action="append", choices=RETRIEVERS, help="of retrieval and val; default: both")
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
