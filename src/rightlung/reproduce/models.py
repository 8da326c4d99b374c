"""Ask and measure the models of an experiment: those of the runs, the image-blind baselines, and the user's own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rightlung.asking import Answerer, answers, ask, code_fingerprint
from rightlung.core import InputError
from rightlung.core.files import read_json, write_json
from rightlung.core.progress import Progress
from rightlung.measuring import measure, write_instances
from rightlung.models.base import BlindGrounder, Grounder, RegionGrounder
from rightlung.models.folder import weights_digest
from rightlung.models.registry import load
from rightlung.predictions import Batch, open_predictions
from rightlung.reproduce.examples import keep_examples
from rightlung.reproduce.plan import Plan
from rightlung.reproduce.prepared import PreparedStudies, fit_priors
from rightlung.reproduce.sanity import check_sanity, known_models
from rightlung.reproduce.variants import Job, Variant

BATCH_SIZE = 256
LONGEST_SLUG = 100

Say = Callable[[str], None]


def measure_model(
    plan: Plan, prepared: PreparedStudies, model: object, about: Mapping[str, Any], progress: Progress,
    title: str = "", more: bool = True,
) -> None:  # fmt: skip
    """Ask a model all questions, measure its answers and write ``measures/<slug>``, with ``about.json`` last.

    ``more``: also those that the paper asks besides phrases.
    """
    slug = str(about["slug"])
    folder, conditions = plan.measures(slug), prepared.protocol.conditions

    def tell(done: float, total: float) -> None:
        progress(f"{title or slug}: asking", done, total)

    if plan.paper.prepare_model is not None:
        plan.paper.prepare_model(model)
    batches: Iterable[Batch]
    if not prepared.targets.phrases:  # a source without outlines: what `ask_more` asks is measured
        batches, examples, counts = (), dict[str, Any](), {"errors": 0}
    elif isinstance(model, BlindGrounder):
        batches = answers(model, prepared.source, conditions, batch_size=BATCH_SIZE, boxes=None, progress=tell)
        examples, counts = {}, {"errors": 0}
    else:
        out = plan.predictions(slug)
        summary = ask(
            model, prepared.source, out, conditions, queries=_queries(plan, model), batch_size=BATCH_SIZE,
            boxes=plan.paper.boxes, findings=plan.paper.findings, model_name=slug, progress=tell,
        )  # fmt: skip
        examples = keep_examples(out, prepared, folder)
        batches, counts = open_predictions(out).batches(), {"errors": len(summary.failed), "questions": summary.rows}
    table = measure(batches, prepared.targets, prepared.protocol, device=plan.device)
    (folder / "about.json").unlink(missing_ok=True)  # so that a folder being rewritten does not count as complete
    if plan.paper.ask_more is not None and more:
        plan.paper.ask_more(model, plan.predictions(slug), prepared, folder, progress)
    write_instances(folder / "instances.parquet", table, prepared.protocol, slug)
    measured = {"instances": len(prepared.targets.phrases), "rows": table.num_rows, **counts}
    whole = {"weights": weights_digest(model), **about, "protocol": prepared.protocol.hash, "measured": measured}
    write_json(folder / "about.json", whole | examples)


def measure_rest(plan: Plan, prepared: PreparedStudies, progress: Progress, say: Say) -> dict[str, str]:
    """Measure what needs no model and was left to this call; return the reasons of models for which that failed."""
    failed: dict[str, str] = {}
    for slug in sorted(path.parent.name for path in plan.out.glob("measures/*/about.json")):
        try:
            measure_more(plan, prepared, slug, progress)
        except InputError as error:
            failed[slug] = str(error)
            say(f"{slug}: {error}")
    return failed


def measure_more(plan: Plan, prepared: PreparedStudies, slug: str, progress: Progress) -> None:
    """Measure what the paper asks a model besides phrases, unless that is left to a later call."""
    if plan.paper.measure_more is not None and plan.measure:
        plan.paper.measure_more(prepared, plan.measures(slug), progress)


def _queries(plan: Plan, model: object) -> list[str]:
    known = Answerer(model).queries
    return [name for name in plan.paper.queries if name in known]


def is_measured(folder: Path, prepared: PreparedStudies) -> bool:
    """Return whether a folder has the complete measurements of a model on these studies."""
    mark = folder / "about.json"
    return mark.exists() and read_json(mark).get("protocol") == prepared.protocol.hash


def is_comparable(model: object) -> bool:
    """Return whether a model can be compared with others: not if it must be given the region boxes."""
    return isinstance(model, Grounder | BlindGrounder) or not isinstance(model, RegionGrounder)


def measure_baselines(plan: Plan, prepared: PreparedStudies, progress: Progress, say: Say) -> None:
    """Measure the image-blind priors and, with ``--quick``, the models of the sanity checks."""
    rows = dict(fit_priors(prepared))
    known = plan.quick and bool(prepared.targets.phrases)
    if known:
        rows |= known_models(prepared)
    for order, (slug, (name, note, model)) in enumerate(rows.items()):
        if not is_measured(plan.measures(slug), prepared):
            about = {
                "slug": slug, "variant": slug, "name": name, "group": "reference", "comparable": True, "seed": None,
                "order": 1000 + order, "note": note, "training": None, "weights": None,
            }  # fmt: skip
            measure_model(plan, prepared, model, about, progress, more=False)
    if known:
        for sentence in check_sanity(plan.out, plan.paper, synthetic=plan.source is None):
            say(sentence)


def own_slug(name: str) -> str:
    """Return the slug of a user's model, distinct from all variants."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in name).strip("-").lower()
    return f"own-{plain[-LONGEST_SLUG:]}"


def own_models(plan: Plan) -> dict[str, Variant]:
    """Return the rows of the user's models by name; raise errors about models that cannot be used."""
    found: dict[str, Variant] = {}
    for name in plan.models:
        model = load(name, plan.device)
        if not isinstance(model, Grounder | RegionGrounder | BlindGrounder):
            raise InputError(
                f"--model {name}: {type(model).__name__} does not implement ground, so it cannot be measured"
            )
        own = Variant(own_slug(name), name, "ours", "added with --model", recipe="")
        row = plan.paper.released.get(str(getattr(model, "kind", "")), own)
        if twin := next((other for other, taken in found.items() if taken.slug == row.slug), None):
            raise InputError(
                f"--model {twin} and --model {name} would use the same row, {row.slug}; rename one of them"
            )
        mark = plan.measures(row.slug) / "about.json"
        if mark.exists() and (kept := read_json(mark).get("loaded_from")) != name:
            raise InputError(f"--model {name}: its folder {mark.parent} is used by --model {kept}; rename the model")
        found[name] = row
    return found


def measure_own(
    plan: Plan, prepared: PreparedStudies, own: Mapping[str, Variant], progress: Progress, say: Say
) -> dict[str, str]:
    """Measure the user's models as additional rows; return the reasons of those that failed.

    A model is measured again if its weights or its code changed, or if its weights cannot be compared.
    """
    failed: dict[str, str] = {}
    for name, row in own.items():
        slug, folder, model = row.slug, plan.measures(row.slug), load(name, plan.device)
        identity = {"weights": weights_digest(model), "code": code_fingerprint(model, name)}
        if is_measured(folder, prepared) and identity["weights"] is not None:
            before = read_json(folder / "about.json")
            if all(before.get(part) == value for part, value in identity.items()):
                continue
        say(f"{slug}: measuring")
        (folder / "about.json").unlink(missing_ok=True)
        shutil.rmtree(plan.predictions(slug), ignore_errors=True)
        about = Job(row, seed=1, order=2000 if row.group == "ours" else 0).about() | {
            "comparable": is_comparable(model), "seed": None, "training": None, "loaded_from": name, **identity,
        }  # fmt: skip
        try:
            measure_model(plan, prepared, model, about, progress)
        except InputError as error:
            failed[slug] = str(error)
            say(f"{slug}: {error}")
    return failed
