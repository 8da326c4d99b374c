"""The tasks of an audit: what is asked of a model, by which protocol it is measured, and what a source needs for it.

They are those of ChEX (Table 1, supp. D.4 and E.2). Regions are asked about in two ways where a source knows both: by
the boxes of its anatomical regions (as Chest ImaGenome has them), and by those of its findings (as MS-CXR has them).
Anatomical regions can also be asked about by name (Table 5).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rightlung.core.errors import InputError, check_known
from rightlung.lexicon import REGIONS
from rightlung.lexicon.findings import canonical_finding
from rightlung.measuring import Protocol, Targets, find_protocol
from rightlung.measuring.selections import find_selection, missing_as_negative, select
from rightlung.measuring.targets import StudyLabels
from rightlung.models.probe import HEADS
from rightlung.predictions import IMAGE_QUERY
from rightlung.predictions.prediction import PHRASE_QUERY, REPORT_QUERY, box_query, region_name_query
from rightlung.scoring.text_retrieval import IMAGE_TO_TEXT, TEXT_TO_IMAGE

CARDIOMEGALY, SELECTED, PROBE = "cardiomegaly", "classification", "probe"
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")
TOP_CLASSES: Mapping[str, int] = {"vindr": 15}
"""Sources of which only the most frequent classes are detected, by scheme (E.2)."""


@dataclass(frozen=True)
class TaskPart:
    """One way to do a task: its name in results, what is asked through which method, and how that is measured."""

    task: str
    name: str
    title: str
    method: str
    query: str
    protocol: Protocol
    main: tuple[str, ...]
    """The measures to show first, and to compare with the image-blind baselines."""
    needs: str
    """What a source needs."""
    by_class: str | None = None
    """The measure to give for each finding."""
    on_demand: bool = False
    """Whether the part is measured only if it is named."""
    multiclass: bool = False
    """Whether exactly one class is present, which a model may use."""
    selection: str | None = None
    """Name of the selection of images (`rightlung.measuring.selections`) that is measured."""
    findings: tuple[str, ...] = ()
    """The findings that are asked for, if not all of the source."""
    share: float = 1.0
    """Share of the training patients whose labels a linear probe learns from."""

    @property
    def slug(self) -> str:
        """The name of the part in files."""
        name = self.name.replace(":", "-").replace("%", "-percent")
        return self.task if name == self.task else f"{self.task}-{name}"

    @property
    def asked_method(self) -> str:
        """The name of the method in `rightlung.asking`."""
        return f"{self.method}-multiclass" if self.multiclass else self.method

    @property
    def queries(self) -> tuple[str, ...]:
        """What is asked: retrieval embeds images and reports, whichever of them are to be found."""
        return ("image", "reports") if self.method == "embed" else (self.query,)

    @property
    def boxes(self) -> bool:
        """Whether predicted boxes are measured."""
        return self.method in ("ground", "detect")

    @property
    def has_gates(self) -> bool:
        """Whether gates apply: to regions asked about by name they do not, as no probe knows a finding in the name."""
        return self.boxes or self.method == "report" or (self.method == "classify" and self.query != "region-names")


_RC, _RE = find_protocol("chex-rc"), find_protocol("chex-re")
_ONE_OF = (
    "multiclass: each box shows the findings of its phrase and no others; scores are the softmax over all findings "
    "where the model has it"
)
_RETRIEVAL, _RECALLS = find_protocol("retrieval"), ("recall@1", "recall@5", "recall@10")
_LABELS = "a finding that some images have and others are known not to have"
_AUROCS = ("finding_auroc_weighted", "finding_auroc")
_F1 = ("meteor", "micro_f1_14", "macro_f1_14", "sided_f1")
_PARTS = (
    TaskPart("grounding", "grounding", "Sentence grounding", "ground", "phrases", find_protocol("chex-sg"),
         ("box_miou", "sentence_map"), "phrases with boxes or a mask"),
    TaskPart("detection", "detection", "Detection of findings", "detect", "image", find_protocol("chex-od"), ("map",),
         "boxes of findings", "map"),
    TaskPart("classification", "classification", "Classification of images", "classify", "image",
         find_protocol("classification"), ("finding_auroc",), _LABELS, "finding_auroc"),
    TaskPart(PROBE, PROBE, "Linear probe", "classify", "image",
         replace(find_protocol("classification"), name=PROBE, resamples=250), ("finding_auroc",), _LABELS,
         "finding_auroc"),
    TaskPart("region-classification", "regions", "Classification of anatomical regions", "classify", "regions", _RC,
         _AUROCS, "region boxes with findings present and absent", "finding_auroc"),
    TaskPart("region-classification", "finding-boxes", "Classification of the boxes of findings", "classify", "boxes",
         replace(_RC, queries=("box",), labels=_ONE_OF), _AUROCS[::-1], "boxes of at least two findings",
         "finding_auroc", multiclass=True),
    TaskPart("region-classification", "finding-boxes-binary", "Classification of the boxes of findings, one by one",
         "classify", "boxes", replace(_RC, queries=("box",)), _AUROCS[::-1], "boxes of at least two findings",
         "finding_auroc", on_demand=True),
    TaskPart("region-classification", "regions-by-name", "Classification of anatomical regions by name",
         "classify", "region-names", replace(_RC, queries=("region-name",)), _AUROCS,
         "region boxes with findings present and absent", "finding_auroc", on_demand=True),
    TaskPart("region-description", "regions", "Description of anatomical regions", "describe", "regions", _RE, _F1,
         "region boxes with sentences"),
    TaskPart("region-description", "finding-boxes", "Description of the boxes of phrases", "describe", "boxes",
         replace(_RE, queries=("box",)), _F1, "phrases with boxes or a mask"),
    TaskPart("region-description", "regions-by-name", "Description of anatomical regions by name", "describe",
         "region-names", replace(_RE, queries=("region-name",)), _F1, "region boxes with sentences", on_demand=True),
    TaskPart("retrieval", IMAGE_TO_TEXT, "Retrieval of the report of an image", "embed", "image",
         replace(_RETRIEVAL, name=f"retrieval-{IMAGE_TO_TEXT}"), _RECALLS,
         "reports of at least two studies"),
    TaskPart("retrieval", TEXT_TO_IMAGE, "Retrieval of the image of a report", "embed", "reports",
         replace(_RETRIEVAL, name=f"retrieval-{TEXT_TO_IMAGE}"), _RECALLS,
         "reports of at least two studies"),
    TaskPart("report", "report", "Report generation", "report", "image", find_protocol("whole"),
         ("meteor", "micro_f1_14", "macro_f1_14", "example_f1_14", "micro_f1_5", "macro_f1_5", "sided_f1"),
         "reports"),
)  # fmt: skip
MAIN: Mapping[str, tuple[str, ...]] = {part.protocol.name: part.main for part in reversed(_PARTS)}
"""The measures to show first, by the name of the protocol."""
TASKS = tuple(dict.fromkeys(part.task for part in _PARTS))
ALIASES = {"region-explanation": "region-description"}


def parts_of(tasks: Sequence[str]) -> list[TaskPart]:
    """Return the parts of tasks, in the order of `TASKS`: those of a task, or the one that ``TASK:PART`` names."""
    named = {f"{part.task}:{part.name}" for part in _PARTS if part.name != part.task}
    wanted, selected = set(), []
    for given in dict.fromkeys(tasks):
        task, colon, part = given.partition(":")
        if task in (SELECTED, PROBE) and colon:
            selected.append(_of_selection(part) if task == SELECTED else _of_probe(part))
            continue
        name = f"{ALIASES.get(task, task)}{colon}{part}"
        check_known("task", name, (*TASKS, *named) if colon else (*TASKS, *ALIASES))
        wanted.add(name)
    found = (
        part for part in _PARTS if f"{part.task}:{part.name}" in wanted or (part.task in wanted and not part.on_demand)
    )
    return [*found, *selected]


def _of_selection(name: str) -> TaskPart:
    """Return the part that classifies images which show one of k classes."""
    classes = find_selection(name).classes
    title = f"Classification of images with one of {len(classes)} classes ({name})"
    protocol = replace(find_protocol("one-of-classes"), name=f"one-of-classes-{name}")
    return TaskPart(SELECTED, name, title, "classify", "image", protocol, ("class_accuracy", "class_macro_f1"),
        "findings", "finding_auroc", multiclass=True, selection=name)  # fmt: skip


def _of_probe(name: str) -> TaskPart:
    """Return the probe of a head of `HEADS`, of a share of the labels (``10%``), or of both (``cxr-8:10%``)."""
    (part,) = parts_of([PROBE])
    for one in name.split(":"):
        if share := _PERCENT.fullmatch(one):
            part = replace(part, share=float(share[1]) / 100)
        else:
            check_known("head or share of a linear probe", one, (*HEADS, "1%", "10%"))
            part = replace(part, findings=HEADS[one])
    if not 0 < part.share <= 1:
        raise InputError(f"task {PROBE}:{name}: the share of the labels must be above 0 and at most 100 %")
    return replace(part, name=name, title=f"{part.title}, {name.replace(':', ', ')}")


def labelled(part: TaskPart, targets: Targets, missing_labels: str = "unknown") -> Targets:
    """Return the targets with the labels that a part is measured with.

    With ``missing_labels="negative"``, a finding that a study lacks is absent if other studies of the source have it.
    """
    check_known("choice of missing_labels", missing_labels, ("unknown", "negative"))
    if part.method != "classify" or part.query != "image":
        return targets
    labels = targets.labels
    if missing_labels == "negative" and any(one.findings for one in labels.values()):
        labels = missing_as_negative(labels | {s: StudyLabels(who, {}) for s, who in targets.unlabelled.items()})
    if part.selection is not None:
        if not any(one.findings for one in labels.values()):
            raise InputError(f"task {part.task}:{part.name}: {targets.source} has no findings")
        labels = select(labels, find_selection(part.selection))
    return replace(targets, labels=labels)


@dataclass(frozen=True)
class TaskAnswers:
    """What a source has for a part: the queries that have a target, by study and name, and the classes."""

    queries: Mapping[tuple[str, str], StudyLabels]
    classes: tuple[str, ...] = ()


def asked_of(part: TaskPart, targets: Targets, scheme: str = "") -> TaskAnswers | None:
    """Return what a source has for a part, None if it lacks the targets."""
    if part.method == "embed":
        told = {study: one for study, one in targets.labels.items() if one.report}
        both = {(study, name): one for study, one in told.items() for name in (IMAGE_QUERY, REPORT_QUERY)}
        return TaskAnswers(both) if len(told) > 1 else None
    if part.query == "image":
        labels = {(study, IMAGE_QUERY): one for study, one in targets.labels.items()}
    elif part.query == "regions":
        labels = dict(targets.region_labels)
    elif part.query == "region-names":
        regions = ((study, query.partition(":")[2], one) for (study, query), one in targets.region_labels.items())
        labels = {(study, region_name_query(name)): one for study, name, one in regions if name in REGIONS}
    else:
        labels = _of_phrases(targets, part.query == "boxes")
    if part.method in ("describe", "report"):
        labels = {key: one for key, one in labels.items() if one.report}
        return TaskAnswers(labels) if labels else None
    if part.method == "detect":
        boxes = Counter(name for one in labels.values() for name in one.boxes)
        names = tuple(sorted(name for name, _ in boxes.most_common(TOP_CLASSES.get(scheme))))
        return TaskAnswers(labels, names) if names else None
    if part.method == "classify":
        classes = _classes(labels.values(), exclusive=part.query == "boxes")
        labels = {key: one for key, one in labels.items() if one.findings}
        if part.findings:
            asked = {*map(canonical_finding, part.findings)}
            classes = tuple(name for name in classes if name in asked)
        return TaskAnswers(labels, classes) if classes else None
    return TaskAnswers(labels) if labels else None


def _of_phrases(targets: Targets, each_box: bool) -> dict[tuple[str, str], StudyLabels]:
    """Return the labels of phrases that have boxes, or of each of their boxes."""
    found: dict[tuple[str, str], StudyLabels] = {}
    for (study, query), phrase in targets.phrases.items():
        index = PHRASE_QUERY.fullmatch(query)
        one = StudyLabels(phrase.patient, dict.fromkeys(phrase.findings, "positive"), phrase.text, kind="phrase")
        if index is not None and phrase.boxes:
            places = range(len(phrase.boxes))
            names = [box_query(int(index[1]), place) for place in places] if each_box else [query]
            found |= {(study, name): one for name in names}
    return found


def _classes(labels: Iterable[StudyLabels], exclusive: bool) -> tuple[str, ...]:
    """Return the findings that are present in some and absent in others; with ``exclusive``, all that differ."""
    seen: dict[str, set[str]] = {}
    for one in labels:
        for name, polarity in one.findings.items():
            seen.setdefault(canonical_finding(name), set()).add(polarity)
    if exclusive:
        return tuple(sorted(seen)) if len(seen) > 1 else ()
    return tuple(sorted(name for name, found in seen.items() if {"positive", "negative"} <= found))


def with_classes(targets: Targets, classes: Sequence[str]) -> None:
    """Give every image the boxes of these classes and of no others, so that each class of each image is a row."""
    for study, one in targets.labels.items():
        targets.labels[study] = replace(one, boxes={name: one.boxes.get(name, ()) for name in classes})
