"""Does training on the phantom help on real radiographs?

Classifiers of the same kind are trained on the phantom alone; on real images alone; on the phantom and then on real
images for as many steps ("pretrained"); and on the phantom and then on both ("mixed"). Each is asked for the eight
findings that NIH ChestX-ray14 has boxes for (Wang et al., CVPR 2017): AUROC on images of other patients, and how often
the peak of its map lies in a radiologist's box, compared with a location prior that never sees the image.

By default a quarter of the patients of the split ``train`` is held out for scoring: tune on those. With ``--final`` the
classifiers learn from all of ``train`` and are scored on ``val``: do that once.

    python benchmarks/phantom_transfer.py --nih nih.tar --out results [--final]

``--quick`` runs everything at a small scale in less than a minute; without ``--nih``, other phantoms take the place of
the real images. ``phantom_or_real.py`` asks what gives the phantom away.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from phantom_and_nih import (  # type: ignore[import-not-found]  # next to this script
    FINDINGS,
    Images,
    Run,
    adapt_statistics,
    canonical,
    load_images,
    location_prior,
    model_config,
    train_classifier,
)

from rightlung.core import Heatmap, Mask, Phrase
from rightlung.models.classifier import Classifier
from rightlung.models.folder import save_model
from rightlung.scoring import localisation, recognition
from rightlung.scoring.statistics import bootstrap, bootstrap_by_counts, paired_difference
from rightlung.training.augmentation import Augmentation

FloatArray = NDArray[np.float64]

PRIOR_GRID = 56


def addresses(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the sources: ``learn`` and ``asked`` share no patient, ``boxes`` has boxes, ``phantom`` has masks."""
    size = f"size={arguments.size}"
    phantom = f"phantom-nih?count={arguments.phantom}&seed={arguments.phantom_seed}&{size}"
    if arguments.nih is None:
        split = {name: f"phantom-nih?count=32&seed={900 + at}&{size}" for at, name in enumerate(("train", "boxes"))}
    else:
        split = {name: f"manifest:{arguments.nih}?split={name}" for name in ("train", "val", "boxes")}
    every = "&every=12" if arguments.quick and arguments.nih is not None else ""
    parts = {part: f"patients:{split['train']}&part={part}{every}" for part in ("learn", "held-out", "all")}
    final = {"learn": parts["all"], "asked": split.get("val", "")}
    tuning = {"learn": parts["learn"], "asked": parts["held-out"]}
    boxes = f"patients:{split['boxes']}{every}" if every else split["boxes"]
    return (final if arguments.final else tuning) | {"all of train": parts["all"], "boxes": boxes, "phantom": phantom}


def train_all(run: Run, arguments: argparse.Namespace, sources: dict[str, str]) -> dict[str, list[Classifier]]:
    """Train the classifiers of every seed."""
    models: dict[str, list[Classifier]] = {}
    config = model_config(FINDINGS, arguments.size, arguments.width, arguments.blocks)
    new = {"kind": "classifier", "config": config}
    real = {"source": sources["learn"], "missing_labels": "negative"}
    phantom = {
        "source": sources["phantom"],
        "cached_studies": arguments.phantom,
        "phrases_per_image": 4,
        "prompt_probability": 1.0,
    }
    share = arguments.phantom_share
    mixed = [real | {"share": 1 - share}, phantom | {"share": share}]
    stronger = Augmentation().times(arguments.phantom_augmentation)
    for seed in range(arguments.seeds):
        first = str(run.folder / f"phantom-{seed}" / "model")
        slow = {"optimizer": {"learning_rate": arguments.fine_tuning_rate}}
        arms: dict[str, dict[str, Any]] = {
            "phantom": {
                "model": new, "entries": [phantom], "augmentation": stronger, "batch_size": arguments.phantom_batch,
                "schedule": arguments.phantom_steps,
            },
            "real": {"model": new, "entries": [real]},
            "pretrained": {"model": {"start": first}, "entries": [real], **slow},
            "mixed": {"model": {"start": first}, "entries": mixed, **slow},
        }  # fmt: skip
        for arm, changed in arms.items():
            settings = {"batch_size": arguments.real_batch, "optimizer": {"learning_rate": 1e-3}} | changed
            steps = int(settings.pop("schedule", arguments.real_steps))
            model, facts = train_classifier(
                run.folder / f"{arm}-{seed}", arguments.device, findings=FINDINGS, size=arguments.size,
                schedule={"steps": steps, "warmup_steps": steps // 20}, ema=min(0.998, 1 - 5 / steps), seed=seed,
                workers=arguments.workers, checkpoint_every=steps,
                precision="bf16-mixed" if arguments.device.startswith("cuda") else "32-true", **settings,
            )  # fmt: skip
            if arm == "mixed":  # its batch norms saw both kinds of images, and only real ones are asked for
                model = adapt_statistics(model, load_images(sources["learn"], arguments.size).squares)
            models.setdefault(arm, []).append(model)
            run.note(f"training {arm} {seed}", facts)
            run.log(f"seed {seed}, {arm}: {facts['steps']} steps in {facts['seconds']:.1f} s, loss {facts['loss']:.3f}")
    return models


def mean_by_counts(scores: Sequence[FloatArray], labels: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return the mean AUROC over seeds and labels as a function of counts; scores and labels are (images, labels)."""
    parts = [
        recognition.SortedScores(of_seed[:, column], labels[:, column]).auroc
        for of_seed in scores
        for column in range(labels.shape[1])
        if 0 < labels[:, column].sum() < len(labels)
    ]
    return lambda counts: np.mean([part(counts) for part in parts], axis=0) if parts else np.full(len(counts), np.nan)


def gain_by_counts(
    first: Sequence[FloatArray], second: Sequence[FloatArray], labels: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    """Return the difference of two mean AUROCs on the same resampled images."""
    of_first, of_second = mean_by_counts(first, labels), mean_by_counts(second, labels)
    return lambda counts: of_first(counts) - of_second(counts)


def mean_auroc(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the mean AUROC over the labels that have both classes."""
    return float(mean_by_counts([scores.astype(np.float64)], labels.astype(np.float64))(np.ones((1, len(labels))))[0])


def score_findings(run: Run, models: dict[str, list[Classifier]], asked: Images, name: str, resamples: int) -> None:
    """Score the AUROC of each model per finding and on average, and the differences, by patient-clustered bootstrap."""
    labels = asked.labels
    settings: dict[str, Any] = {"clusters": asked.patients, "resamples": resamples}
    scores = {
        arm: [model.classify(asked.pixels()).astype(np.float64) for model in of_arm] for arm, of_arm in models.items()
    }
    found: dict[str, Any] = {"images": len(asked), "patients": len(set(asked.patients))}
    found["positives"] = dict(zip(FINDINGS, labels.sum(axis=0).astype(int).tolist(), strict=True))
    for arm, of_arm in scores.items():
        of_findings = {
            finding: recognition.interval(of_arm[0][:, column], labels[:, column], **settings)
            if len(of_arm) == 1
            else bootstrap_by_counts(
                mean_by_counts([one[:, [column]] for one in of_arm], labels[:, [column]]), len(labels), **settings
            )
            for column, finding in enumerate(FINDINGS)
        }
        mean = bootstrap_by_counts(mean_by_counts(of_arm, labels), len(labels), **settings)
        by_seed = [mean_auroc(one, labels) for one in of_arm]
        found[arm] = {"mean": mean, "by_seed": by_seed, "findings": of_findings}
        run.log(f"{name}, {arm}: mean AUROC {mean.sentence()}, seeds {', '.join(f'{value:.3f}' for value in by_seed)}")
        run.log("    " + ", ".join(f"{finding} {value.estimate:.3f}" for finding, value in of_findings.items()))
    for arm in sorted({"pretrained", "mixed"} & scores.keys() if "real" in scores else ()):
        gain = bootstrap_by_counts(gain_by_counts(scores[arm], scores["real"], labels), len(labels), **settings)
        found[f"{arm} less real"] = gain
        run.log(f"{name}: {arm} less real {gain.sentence()}")
    run.note(f"AUROC on {name}", found)
    arrays = {f"{arm}_{seed}": one.astype(np.float32) for arm, of in scores.items() for seed, one in enumerate(of)}
    ids = np.array([study.id for study in asked.studies])
    save_arrays(run.folder / f"scores_{name.replace(' ', '_')}.npz", {"ids": ids, "labels": labels} | arrays)


def save_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write the scores of each instance, so that they can be scored again without a model."""
    np.savez_compressed(path, allow_pickle=False, **arrays)


def logit_maps(model: Classifier, squares: NDArray[np.uint8], findings: NDArray[np.str_]) -> NDArray[np.float32]:
    """Return the logits of cells, shifted to a minimum of 0: they have a peak where the positive part is empty."""
    columns = torch.tensor([FINDINGS.index(finding) for finding in findings])
    parts = []
    for batch, chosen in zip(torch.split(torch.from_numpy(squares), 128), torch.split(columns, 128), strict=True):
        with model.eval_mode():
            cells = model.image_encoder.patches(batch[:, None].to(model.device).float() / 255)
        maps = cells[torch.arange(len(chosen)), chosen.to(cells.device)]
        parts.append((maps - maps.amin(dim=(1, 2), keepdim=True)).float().cpu())
    return torch.cat(parts).numpy()


def target(phrase: Phrase, side: int) -> NDArray[np.bool_]:
    """Return the boxes or the mask of a phrase on a square grid."""
    if phrase.boxes:
        return Mask.from_boxes(phrase.boxes, (side, side)).pixels
    assert phrase.mask is not None
    pixels = torch.tensor(phrase.mask.pixels, dtype=torch.float32)[None, None]
    return np.asarray(torch.nn.functional.adaptive_max_pool2d(pixels, side)[0, 0] > 0)


def score_pointing(
    run: Run, models: dict[str, list[Classifier]], boxed: Images, arguments: argparse.Namespace, resamples: int
) -> None:
    """Score how often the peak of each map lies in a box of its finding, and compare with the location prior."""
    side = 224
    pairs = [
        (row, phrase)
        for row, study in enumerate(boxed.studies)
        for phrase in study.phrases
        if (phrase.boxes or phrase.mask) and canonical(list(phrase.findings)) & set(FINDINGS)
    ]
    findings = np.array([next(iter(canonical(list(phrase.findings)))) for _, phrase in pairs])
    patients = boxed.patients[[row for row, _ in pairs]]
    masks = np.stack([target(phrase, side) for _, phrase in pairs])
    coarse = np.stack([target(phrase, PRIOR_GRID) for _, phrase in pairs])
    prior = location_prior(coarse.astype(np.float64), findings, patients)
    metrics = ("pointing", "auroc", "average_precision")

    def scored(heatmaps: Sequence[Heatmap]) -> dict[str, FloatArray]:
        maps = np.stack([heatmap.to_size((side, side), keep_mass=False) for heatmap in heatmaps])
        result = localisation.score(maps, masks, metrics=metrics)
        return {metric: np.asarray(result[metric], dtype=np.float64) for metric in metrics}

    values = {"location prior": scored([Heatmap(one) for one in prior])}
    empty: dict[str, list[float]] = {}
    config = model_config(FINDINGS, arguments.size, arguments.width, arguments.blocks)
    untrained = Classifier.create(config, [], seed=1000).eval().to(torch.device(arguments.device))
    for arm, of_arm in ({"untrained": [untrained]} | models).items():
        of_seeds, of_seeds_signed = [], []
        for model in of_arm:
            groundings = model.ground([boxed.studies[row].image for row, _ in pairs], [phrase for _, phrase in pairs])
            heatmaps = [grounding.heatmap for grounding in groundings if grounding.heatmap is not None]
            of_seeds.append(scored(heatmaps))
            empty.setdefault(arm, []).append(float(np.mean([heatmap.mass == 0 for heatmap in heatmaps])))
            shifted = logit_maps(model, boxed.squares[[row for row, _ in pairs]], findings)
            of_seeds_signed.append(scored([Heatmap(one) for one in shifted]))
        values[arm] = {metric: np.mean([one[metric] for one in of_seeds], axis=0) for metric in metrics}
        signed = {metric: np.mean([one[metric] for one in of_seeds_signed], axis=0) for metric in metrics}
        values[f"{arm}, without ReLU"] = signed
    settings: dict[str, Any] = {"clusters": patients, "resamples": resamples}
    found: dict[str, Any] = {"pairs": len(pairs), "patients": len(set(patients)), "empty_maps": empty}
    for arm, of_metrics in values.items():
        found[arm] = {metric: bootstrap(value, **settings) for metric, value in of_metrics.items()}
        found[arm]["findings"] = {
            finding: float(np.nanmean(of_metrics["pointing"][findings == finding]))
            for finding in FINDINGS
            if (findings == finding).any()
        }
        run.log(f"boxes, {arm}: pointing {found[arm]['pointing'].sentence()}, AUROC {found[arm]['auroc'].estimate:.3f}")
    pairings = [(arm, "location prior") for arm in ("phantom", "pretrained", "real", "mixed")]
    for first, second in (*pairings, ("pretrained", "real"), ("mixed", "real")):
        if first in values and second in values:
            difference = paired_difference(values[first]["pointing"], values[second]["pointing"], **settings)
            found[f"{first} less {second}"] = difference
            run.log(f"boxes, {first} less {second}: {difference.sentence()}")
    run.note("pointing on boxes", found)
    ids = np.array([f"{boxed.studies[row].id} {finding}" for (row, _), finding in zip(pairs, findings, strict=True)])
    save_arrays(run.folder / "pointing.npz", {"ids": ids} | {arm: value["pointing"] for arm, value in values.items()})


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; ``--quick`` makes everything small."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nih", help="manifest folder or archive with the splits train, val and boxes")
    parser.add_argument("--out", required=True, type=Path, help="folder for results.json, log.txt, arrays and models")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--final", action="store_true", help="learn from all of train and score on val")
    parser.add_argument("--quick", action="store_true", help="tiny settings, to check that it runs")
    parser.add_argument("--seeds", type=int, default=2, help="trainings of each classifier")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.set_defaults(blocks=2)
    parser.add_argument("--phantom", type=int, default=20_000, help="phantom images")
    parser.add_argument("--phantom-seed", type=int, default=1)
    parser.add_argument("--phantom-steps", type=int, default=800)
    parser.add_argument("--phantom-batch", type=int, default=256)
    parser.add_argument("--phantom-augmentation", type=float, default=1.0, help="times the usual, on phantom images")
    parser.add_argument("--phantom-share", type=float, default=1 / 3, help="of each batch of the mixed training")
    parser.add_argument("--real-steps", type=int, default=2500)
    parser.add_argument("--real-batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=min(15, (os.cpu_count() or 1) - 1), help="that read studies")
    parser.add_argument("--fine-tuning-rate", type=float, default=3e-4)
    parser.add_argument("--resamples", type=int, default=2_000)
    arguments = parser.parse_args(given)
    if arguments.quick and arguments.final:
        parser.error("--quick is for trying things out, and --final looks at val: not together")
    if arguments.nih is None and not arguments.quick:
        parser.error("--nih is required, except with --quick")
    if arguments.quick:
        small = {"size": 64, "width": 8, "blocks": 1, "phantom": 16, "workers": 0, "seeds": 1, "resamples": 200}
        small |= {"phantom_batch": 8, "real_batch": 12, "phantom_steps": 6, "real_steps": 6}
        for name, value in small.items():
            setattr(arguments, name, value)
    return arguments


def main(given: Sequence[str] | None = None) -> None:
    """Train, score and write the results."""
    arguments = read_arguments(given)
    run = Run(arguments.out)
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(arguments).items()}
    del settings["nih"], settings["out"]
    run.note("settings", settings | {"torch": torch.__version__})
    sources = addresses(arguments)
    learned, asked, boxed = (load_images(sources[name], arguments.size) for name in ("learn", "asked", "boxes"))
    shared = set(learned.patients) & (set(asked.patients) | set(boxed.patients))
    if shared:
        raise SystemExit(f"{len(shared)} patients are in both training and scoring, such as {min(shared)}")
    name = "val" if arguments.final else "held-out train"
    run.log(f"real images: {len(learned)} to learn from, {len(asked)} ({name}) to score, {len(boxed)} with boxes")

    models = train_all(run, arguments, sources)
    # Batch norms adapted to real images, without labels.
    models["phantom, adapted"] = [adapt_statistics(model, learned.squares) for model in models["phantom"]]
    if not arguments.final:  # these saw no real label, so that all of train can be scored
        alone = {arm: models[arm] for arm in ("phantom", "phantom, adapted")}
        everything = load_images(sources["all of train"], arguments.size)
        score_findings(run, alone, everything, "all of train", min(500, arguments.resamples))
    score_findings(run, models, asked, name, arguments.resamples)
    score_pointing(run, models, boxed, arguments, arguments.resamples)
    for model in models["phantom, adapted"][:1]:
        save_model(model, arguments.out / "phantom-adapted")
    run.log("done")


if __name__ == "__main__":
    main()
