"""How real is the phantom? What a network learns from it, measured on real radiographs.

Networks of the same kind are trained on the phantom alone; on real images alone; on the phantom and then on real images
for as many steps as the second ("pretrained"); and once more so, with some phantom images in every batch of the second
half ("mixed"). Each is asked for the eight findings that NIH ChestX-ray14 has boxes for (Wang et al., CVPR 2017): AUROC
on images of other patients, and how often the peak of its Grad-CAM (Selvaraju et al., ICCV 2017) lies in a
radiologist's box, beside a location prior that never looks at the image.

By default the real figures come from a quarter of the patients of the split ``train``, held out: tune on those. With
``--final`` the networks learn from all of ``train`` and ``val`` is looked at: do that once.

    python benchmarks/phantom_transfer.py --nih nih.tar --out results [--minutes 8] [--final]

Images and labels are those of ``phantom_and_nih.py``; ``phantom_or_real.py`` asks what gives the phantom away.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from phantom_and_nih import (  # type: ignore[import-not-found]  # beside this script
    FINDINGS,
    Real,
    Run,
    canonical,
    folds_of,
    load_real,
    location_prior,
    make_phantom,
    new_network,
)
from supervised import (  # type: ignore[import-not-found]  # beside this script
    TrainingData,
    TrainingSettings,
    adapt_statistics,
    predict,
    start_at_prevalence,
    train,
)

from rightlung.core import Heatmap, Mask
from rightlung.explain import class_activation
from rightlung.models.classifier import Classifier, ResidualNetwork
from rightlung.models.folder import save_model
from rightlung.models.preprocessing import standardise
from rightlung.scoring import localisation, recognition
from rightlung.scoring.statistics import bootstrap, bootstrap_by_counts, paired_difference
from rightlung.training.augmentation import Augmentation

FloatArray = NDArray[np.float64]

PRIOR_GRID = 56

# Shares of the time; training gets what the others leave.
GENERATION, SCORING = 0.14, 0.12


def seconds_per_step(arguments: argparse.Namespace, data: TrainingData, batch_size: int) -> float:
    """Time a few steps, after a few to warm up, with a network that is thrown away."""
    network = new_network(data.labels.shape[1], 0, arguments.width, arguments.blocks)
    train(network, data, TrainingSettings(steps=3, batch_size=batch_size))
    steps = 2 if arguments.quick else 15
    seconds: float = train(network, data, TrainingSettings(steps=steps, batch_size=batch_size)).seconds
    return seconds / steps


@dataclass(frozen=True, slots=True)
class Plan:
    """How many steps each training takes; the same for every seed."""

    phantom: int
    real: int
    seconds_a_seed: float


def make_plan(run: Run, arguments: argparse.Namespace, phantom: TrainingData, real: TrainingData) -> Plan:
    """Turn the wanted numbers of passes into steps, fewer where the time does not allow them."""
    of_phantom = seconds_per_step(arguments, phantom, arguments.phantom_batch)
    of_real = seconds_per_step(arguments, real, arguments.real_batch)
    a_seed = (run.remaining() - SCORING * run.seconds) / arguments.seeds
    # Two trainings on real images, and a third with phantom images besides.
    real_trainings = 2 + (1 + arguments.beside / arguments.real_batch if arguments.beside else 0)
    wanted_phantom = math.ceil(arguments.phantom_passes * len(phantom) / arguments.phantom_batch)
    wanted_real = math.ceil(arguments.epochs * len(real) / arguments.real_batch)
    plan = Plan(
        phantom=max(1, min(wanted_phantom, int(0.35 * a_seed / of_phantom))),
        real=max(1, min(wanted_real, int(0.6 * a_seed / (of_real * real_trainings)))),
        seconds_a_seed=a_seed,
    )
    epochs = plan.real * arguments.real_batch / len(real)
    passes = plan.phantom * arguments.phantom_batch / len(phantom)
    facts = {"phantom_steps": plan.phantom, "phantom_passes": passes, "real_steps": plan.real, "real_epochs": epochs}
    rates = {"phantom": arguments.phantom_batch / of_phantom, "real": arguments.real_batch / of_real}
    run.note("plan", facts | {"images_per_second": rates})
    run.log(
        f"plan: {plan.phantom} phantom steps ({passes:.1f} passes, {rates['phantom']:.0f} images/s), "
        f"{plan.real} real steps ({epochs:.1f} epochs, {rates['real']:.0f} images/s), {arguments.seeds} seed(s)"
    )
    return plan


def train_all(
    run: Run, arguments: argparse.Namespace, phantom: TrainingData, learnt: Real, asked: Real
) -> dict[str, list[ResidualNetwork]]:
    """Train the networks for each seed that there is time for."""
    real = TrainingData(learnt.images, learnt.labels)
    plan = make_plan(run, arguments, phantom, real)
    arms = ["phantom", "real", "pretrained", *(["mixed"] if arguments.beside else [])]
    networks: dict[str, list[ResidualNetwork]] = {arm: [] for arm in arms}
    reserve = run.seconds * SCORING

    def one(name: str, network: ResidualNetwork, data: TrainingData, settings: TrainingSettings,
            beside: TrainingData | None = None) -> ResidualNetwork:  # fmt: skip
        def watch(step: int, averaged: ResidualNetwork) -> None:
            value = mean_auroc(predict(averaged, asked.images).numpy(), asked.labels.cpu().numpy())
            curve.append((step, value))

        # Looking on the way is for tuning; with --final, what is asked is looked at once, at the end.
        curve: list[tuple[int, float]] = []
        looks = 0 if arguments.final else max(1, settings.steps // 5)
        stop_at = time.monotonic() + run.remaining() - reserve
        result = train(network, data, settings, beside=beside, stop_at=stop_at, watch=watch, watch_every=looks)
        way = f", loss {result.losses[0]:.3f} to {result.losses[-1]:.3f}" if result.losses else ""
        looked = f"; held-out mean AUROC {', '.join(f'{value:.3f}' for _, value in curve)}" if curve else ""
        done = f"{result.steps} of {settings.steps} steps in {result.seconds:.1f} s"
        run.log(f"seed {settings.seed}, {name}: {done}{way}{looked}")
        facts = {"steps": result.steps, "planned": settings.steps, "seconds": result.seconds, "losses": result.losses}
        run.note(f"training {name} {settings.seed}", facts | {"curve": curve})
        if result.steps < settings.steps:  # it would not be compared with its like
            run.log(f"seed {settings.seed}, {name}: left out, the time was over")
        elif beside is not None:  # the norms saw both kinds of images; what is asked is one kind
            networks[name].append(adapt_statistics(result.network, learnt.images))
        else:
            networks[name].append(result.network)
        trained: ResidualNetwork = result.network
        return trained

    for seed in range(arguments.seeds):
        if seed and run.remaining() - reserve < 0.9 * plan.seconds_a_seed:
            run.log(f"no time for seed {seed}")
            break
        of_real = TrainingSettings(plan.real, arguments.real_batch, seed=seed)
        of_phantom = replace(
            of_real,
            steps=plan.phantom,
            batch_size=arguments.phantom_batch,
            augmentation=Augmentation().times(arguments.phantom_augmentation),
        )
        after = replace(of_real, rate=arguments.fine_tuning_rate)

        def begun(labels: torch.Tensor, weights: dict[str, Any] | None = None, seed: int = seed) -> ResidualNetwork:
            network: ResidualNetwork = new_network(len(FINDINGS), seed, arguments.width, arguments.blocks)
            if weights is not None:
                network.load_state_dict(weights)
            start_at_prevalence(network, labels)
            return network

        pretrained = one("phantom", begun(phantom.labels), phantom, of_phantom).state_dict()
        one("real", begun(real.labels), real, of_real)
        one("pretrained", begun(real.labels, pretrained), real, after)
        if arguments.beside:
            mixed = replace(after, beside_batch=arguments.beside)
            one("mixed", begun(real.labels, pretrained), real, mixed, phantom)
    return {arm: of_arm for arm, of_arm in networks.items() if of_arm}


def mean_by_counts(scores: Sequence[FloatArray], labels: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """The mean over seeds and labels of AUROC: scores (images, labels) of each seed, labels (images, labels)."""
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
    """The difference of two means of AUROC on the same drawn images: paired."""
    of_first, of_second = mean_by_counts(first, labels), mean_by_counts(second, labels)
    return lambda counts: of_first(counts) - of_second(counts)


def mean_auroc(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """The mean of AUROC over the labels that have both classes."""
    return float(mean_by_counts([scores.astype(np.float64)], labels.astype(np.float64))(np.ones((1, len(labels))))[0])


def score_findings(
    run: Run, networks: dict[str, list[ResidualNetwork]], asked: Real, name: str, resamples: int
) -> None:
    """AUROC of each network for each finding and on average, and the differences, by patient-clustered bootstrap."""
    labels = asked.labels.cpu().numpy().astype(np.float64)
    settings: dict[str, Any] = {"clusters": asked.patients, "resamples": resamples}
    scores = {
        arm: [predict(network, asked.images).numpy().astype(np.float64) for network in of_arm]
        for arm, of_arm in networks.items()
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
    """Keep what each number was made from, so that it can be scored again without a network."""
    np.savez_compressed(path, allow_pickle=False, **arrays)


def activation_maps(network: ResidualNetwork, images: torch.Tensor, findings: NDArray[np.str_]) -> NDArray[np.float32]:
    """Class activation shifted to a minimum of 0: where Grad-CAM's ReLU leaves nothing, this still has a peak."""
    columns = torch.tensor([FINDINGS.index(finding) for finding in findings], device=images.device)
    parts = []
    with torch.no_grad():
        for batch, chosen in zip(torch.split(images, 128), torch.split(columns, 128), strict=True):
            features = network.eval().features(standardise(batch[:, None].float() / 255))
            maps = class_activation(features, network.classifier.weight.flatten(1))
            maps = maps[torch.arange(len(chosen), device=images.device), chosen]
            parts.append((maps - maps.amin(dim=(1, 2), keepdim=True)).float().cpu())
    return torch.cat(parts).numpy()


def score_pointing(
    run: Run, networks: dict[str, list[ResidualNetwork]], boxed: Real, arguments: argparse.Namespace, resamples: int
) -> None:
    """How often the peak of each map lies in a box of the finding asked for, beside the location prior."""
    side = 224
    pairs = [
        (row, phrase)
        for row, study in enumerate(boxed.studies)
        for phrase in study.phrases
        if phrase.boxes and canonical(list(phrase.findings)) & set(FINDINGS)
    ]
    findings = np.array([next(iter(canonical(list(phrase.findings)))) for _, phrase in pairs])
    patients = boxed.patients[[row for row, _ in pairs]]
    masks = np.stack([Mask.from_boxes(phrase.boxes, (side, side)).pixels for _, phrase in pairs])
    coarse = np.stack([Mask.from_boxes(phrase.boxes, (PRIOR_GRID, PRIOR_GRID)).pixels for _, phrase in pairs])
    prior = location_prior(coarse.astype(np.float64), findings, patients)
    metrics = ("pointing", "auroc", "average_precision")

    def scored(heatmaps: Sequence[Heatmap]) -> dict[str, FloatArray]:
        maps = np.stack([heatmap.to_size((side, side), keep_mass=False) for heatmap in heatmaps])
        result = localisation.score(maps, masks, metrics=metrics)
        return {metric: np.asarray(result[metric], dtype=np.float64) for metric in metrics}

    values = {"location prior": scored([Heatmap(one) for one in prior])}
    empty: dict[str, list[float]] = {}
    start = new_network(len(FINDINGS), 1000, arguments.width, arguments.blocks).to(boxed.images.device)
    for arm, of_arm in ({"untrained": [start]} | networks).items():
        of_seeds, of_seeds_signed = [], []
        for network in of_arm:
            model = Classifier(network, FINDINGS, size=arguments.size, device=boxed.images.device)
            images = [boxed.studies[row].image for row, _ in pairs]
            groundings = model.ground(images, [phrase for _, phrase in pairs])
            heatmaps = [grounding.heatmap for grounding in groundings if grounding.heatmap is not None]
            of_seeds.append(scored(heatmaps))
            empty.setdefault(arm, []).append(float(np.mean([heatmap.mass == 0 for heatmap in heatmaps])))
            shifted = activation_maps(network, boxed.images[[row for row, _ in pairs]], findings)
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
    parser.add_argument("--nih", required=True, help="manifest folder or archive with the splits train, val and boxes")
    parser.add_argument("--out", required=True, type=Path, help="folder for results.json, log.txt, arrays and pictures")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop by itself within this time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--final", action="store_true", help="learn from all of train and look at val")
    parser.add_argument("--quick", action="store_true", help="tiny settings, to see that it runs")
    parser.add_argument("--keep-models", action="store_true", help="write the networks of the first seed")
    parser.add_argument("--seeds", type=int, default=2, help="trainings of each network, as far as time allows")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.set_defaults(blocks=2)
    parser.add_argument("--phantom", type=int, default=60_000, help="phantom images to make at most")
    parser.add_argument("--phantom-config", type=Path, help="TOML that replaces parts of the phantom's defaults")
    parser.add_argument("--phantom-seed", type=int, default=1)
    parser.add_argument("--phantom-passes", type=float, default=6.0, help="passes over them at most")
    parser.add_argument("--phantom-batch", type=int, default=256)
    parser.add_argument("--render-batch", type=int, default=256)
    parser.add_argument("--workers", type=int, default=min(8, (os.cpu_count() or 1) - 1), help="that draw scenes")
    parser.add_argument("--phantom-augmentation", type=float, default=1.0, help="times the usual, on phantom images")
    parser.add_argument("--epochs", type=float, default=40.0, help="passes over the real images at most")
    parser.add_argument("--beside", type=int, default=32, help="phantom images in each batch of the mixed training")
    parser.add_argument("--real-batch", type=int, default=64)
    parser.add_argument("--fine-tuning-rate", type=float, default=3e-4)
    parser.add_argument("--resamples", type=int, default=2_000)
    arguments = parser.parse_args(given)
    if arguments.quick and arguments.final:
        parser.error("--quick is for trying things out, and --final looks at val: not together")
    if arguments.quick:
        small = {"minutes": 0.9, "size": 64, "width": 8, "blocks": 1, "phantom": 96, "render_batch": 16, "workers": 0}
        small |= {"phantom_batch": 16, "real_batch": 16, "beside": 8, "epochs": 1.0, "phantom_passes": 1.0}
        for name, value in (small | {"resamples": 200}).items():
            setattr(arguments, name, value)
    return arguments


def main(given: Sequence[str] | None = None) -> None:
    """Run all steps."""
    arguments = read_arguments(given)
    changes: dict[str, Any] = {}
    if arguments.phantom_config is not None:
        changes = tomllib.loads(arguments.phantom_config.read_text("utf-8"))
    run = Run(arguments.out, arguments.minutes)
    device = torch.device(arguments.device)
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(arguments).items()}
    del settings["nih"], settings["out"]
    run.note("settings", settings | {"torch": torch.__version__})
    torch.backends.cudnn.benchmark = True
    if arguments.quick:
        torch.set_num_threads(1)  # tiny tensors gain nothing from more, and lose much on a busy machine

    every = 12 if arguments.quick else 1
    real = load_real(arguments.nih, "train", arguments.size, device, every)
    boxed = load_real(arguments.nih, "boxes", arguments.size, device, every)
    held_out = folds_of(real.patients, 4) == 0
    if arguments.final:
        learnt, asked, name = real, load_real(arguments.nih, "val", arguments.size, device, every), "val"
    else:
        learnt, asked, name = real.chosen(~held_out), real.chosen(held_out), "held-out train"
    shared = set(learnt.patients) & (set(asked.patients) | set(boxed.patients))
    if shared:
        raise SystemExit(f"{len(shared)} patients are both learnt from and asked about, such as {min(shared)}")
    run.log(f"real images: {len(learnt)} to learn from, {len(asked)} ({name}) to ask about, {len(boxed)} with boxes")

    phantom = make_phantom(
        run, GENERATION * run.seconds, arguments.phantom, arguments.size, device, arguments.phantom_seed,
        arguments.render_batch, arguments.workers, changes,
    )  # fmt: skip
    networks = train_all(run, arguments, phantom, learnt, asked)
    # The phantom's networks once more, with the norms' statistics from real images: no label is used for that.
    if "phantom" in networks:
        networks["phantom, adapted"] = [adapt_statistics(network, learnt.images) for network in networks["phantom"]]
    if not arguments.final:  # no real label was learnt: all of train can be asked about
        alone: dict[str, list[ResidualNetwork]] = {}
        alone |= {arm: networks[arm] for arm in ("phantom", "phantom, adapted") if arm in networks}
        score_findings(run, alone, real, "all of train", min(500, arguments.resamples))
    score_findings(run, networks, asked, name, arguments.resamples)
    score_pointing(run, networks, boxed, arguments, arguments.resamples)
    if arguments.keep_models:
        for arm, of_arm in networks.items():
            save_model(Classifier(of_arm[0], FINDINGS, size=arguments.size, device=device), arguments.out / arm)
    run.log("done")


if __name__ == "__main__":
    main()
