"""The data sets' label sets, and maps between any two of them; ``docs/lexicon.md`` describes the relations.

Each label means one canonical finding (``data/label_sets.toml``), and findings know which ones are broader
(``data/findings.toml``). A map is composed from these, label by label, with exceptions in ``data/label_maps.toml``. It
covers all labels and never says more than the source label does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, cast

from rightlung.core.errors import unknown_name
from rightlung.core.frozen import FrozenMapping
from rightlung.lexicon.data_files import DataTable, LazyMapping, bad_data, check_text, read_data
from rightlung.lexicon.findings import FINDINGS, broader_findings

Relation = Literal["same", "close", "broader", "one of", "none"]

CANONICAL = "findings"
"""The name of the label set that the canonical findings form."""

_SETS_FILE = "label_sets.toml"
_MAPS_FILE = "label_maps.toml"


@dataclass(frozen=True, slots=True)
class LabelSet:
    """A data set's labels in published order and spelling, if published, and the finding that each means.

    ``notes`` explains how a label differs from its finding, where it does. ``no_finding`` is what the data set writes
    if it saw none of its labels; it need not be a label itself (NIH's 14 do not count it).
    """

    name: str
    title: str
    labels: tuple[str, ...]
    source: str
    findings: Mapping[str, str]
    notes: Mapping[str, str]
    no_finding: str | None = None


@dataclass(frozen=True, slots=True)
class LabelMap:
    """The target labels for each label of a source set; None if there is no counterpart."""

    source: str
    target: str
    table: Mapping[str, tuple[str, ...] | None]
    relations: Mapping[str, Relation]
    notes: Mapping[str, str]

    @property
    def injective(self) -> bool:
        """Whether target labels identify source labels: each maps to one label, and no two to the same."""
        images = list(self.table.values())
        return all(image is not None and len(image) == 1 for image in images) and len(set(images)) == len(images)

    @property
    def lossy(self) -> bool:
        """Whether information is lost: a label is dropped, merged, left open, widened, or only approximate."""
        return not self.injective or any(relation != "same" for relation in self.relations.values())

    def apply(self, label: str) -> tuple[str, ...] | None:
        """Return the target labels of a source label, or None if it has no counterpart."""
        if check_text(label, f"a label of {self.source}") not in self.table:
            raise unknown_name(f"label of {self.source}", label, self.table)
        return self.table[label]


def build_label_sets(data: Mapping[str, object]) -> Mapping[str, LabelSet]:
    """Build the label sets from their tables; check that every label means an existing finding."""
    sets: dict[str, LabelSet] = {}
    for name, entry in data.items():
        table = DataTable(_SETS_FILE, name, entry)
        meanings: dict[str, str] = {}
        notes: dict[str, str] = {}
        for part in table.texts("includes", sets):
            meanings.update(sets[part].findings)
            notes.update(sets[part].notes)
        labels = table.table("labels")
        for label, meaning in labels.entries.items():
            if isinstance(meaning, dict):
                close = DataTable(_SETS_FILE, f"{name}.labels.{label}", meaning)
                meaning, notes[label] = close.text("finding"), close.text("note")
                close.done()
            if meaning not in FINDINGS:
                bad_data(_SETS_FILE, f"{name}.labels", label, f"means {meaning!r}, which is not a finding")
            meanings[label] = meaning
        if not meanings:
            table.fail("labels", "is missing")
        sets[name] = LabelSet(
            name=name,
            title=table.text("title"),
            labels=tuple(meanings),
            source=table.text("source"),
            findings=FrozenMapping(meanings),
            notes=FrozenMapping(notes),
            no_finding=table.text("no_finding", "") or None,
        )
        table.done()
    identity = {name: name for name in FINDINGS}
    sets[CANONICAL] = LabelSet(
        CANONICAL, "the canonical findings", tuple(identity), "this lexicon", FrozenMapping(identity), FrozenMapping({})
    )
    return FrozenMapping(sets)


LABEL_SETS: Mapping[str, LabelSet] = LazyMapping(
    __name__, "LABEL_SETS", lambda: build_label_sets(read_data(_SETS_FILE))
)
"""Every label set by name; ``findings`` is the canonical set."""


def label_set(name: str) -> LabelSet:
    """Return a label set by name."""
    if check_text(name, "a label set's name") not in LABEL_SETS:
        raise unknown_name("label set", name, LABEL_SETS)
    return LABEL_SETS[name]


class Override(NamedTuple):
    """An exception from the composed map for one label, with the reason."""

    to: tuple[str, ...]
    relation: Relation
    note: str


def build_overrides(data: Mapping[str, Any], sets: Mapping[str, LabelSet]) -> Mapping[tuple[str, str, str], Override]:
    """Build the exceptions by (source, target, label); check that sets and labels exist."""
    overrides = {}
    for number, entry in enumerate(data["override"], start=1):
        table = DataTable(_MAPS_FILE, f"override {number}", entry)
        target = table.text("target")
        if target not in sets:
            table.fail("target", f"names {target!r}, which is not a label set")
        relation = cast(Relation, table.choice("relation", "close", ("close", "one of")))
        override = Override(table.texts("to", sets[target].labels), relation, table.text("note"))
        label = table.text("label")
        for source in table.texts("sources", sets):
            if label not in sets[source].labels:
                table.fail("label", f"{label!r} is not a label of {source}")
            overrides[source, target, label] = override
        table.done()
    return FrozenMapping(overrides)


@cache
def _overrides() -> Mapping[tuple[str, str, str], Override]:
    return build_overrides(read_data(_MAPS_FILE), LABEL_SETS)


def _image(meaning: str, by_finding: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, ...] | None, Relation]:
    """Return the target labels for a finding and their relation to it."""
    if meaning in by_finding:
        return by_finding[meaning], "same"
    reached: list[str] = []
    broader = broader_findings(meaning)
    for step in broader:
        # Only the nearest: labels beyond one already reached are implied by it.
        if step in by_finding and not any(step in broader_findings(nearer) for nearer in reached):
            reached.append(step)
    relation: Relation = "broader" if reached else "one of"
    if not reached:
        choices = (FINDINGS[step].one_of for step in (meaning, *broader))
        reached = next((list(one_of) for one_of in choices if one_of and set(one_of) <= by_finding.keys()), [])
    labels = tuple(label for step in reached for label in by_finding[step])
    return (labels, relation) if labels else (None, "none")


@cache
def _compose(source_name: str, target_name: str) -> LabelMap:
    """Compose the map between two label sets through the canonical findings."""
    source, target = LABEL_SETS[source_name], LABEL_SETS[target_name]
    by_finding: dict[str, tuple[str, ...]] = {}
    for label, meaning in target.findings.items():
        by_finding[meaning] = (*by_finding.get(meaning, ()), label)
    table: dict[str, tuple[str, ...] | None] = {}
    relations: dict[str, Relation] = {}
    notes: dict[str, str] = {}
    for label, meaning in source.findings.items():
        override = _overrides().get((source.name, target.name, label))
        if override is not None:
            table[label], relations[label], notes[label] = override
            continue
        table[label], relations[label] = image, relation = _image(meaning, by_finding)
        # The same label with the same note in two sets means the same in both.
        same = image == (label,) and source.notes.get(label) == target.notes.get(label)
        remarks = [source.notes.get(label), *(target.notes.get(reached) for reached in image or ())]
        if image is not None and any(remarks) and not same:
            notes[label] = "; ".join(dict.fromkeys(remark for remark in remarks if remark))
            relations[label] = "close" if relation in ("same", "broader") else relation
    return LabelMap(source.name, target.name, FrozenMapping(table), FrozenMapping(relations), FrozenMapping(notes))


def label_map(source: str, target: str) -> LabelMap:
    """Return the map from one label set to another; to ``findings`` for the canonical names.

    >>> label_map("nih-14", "chexpert-14").apply("Infiltration")
    ('Lung Opacity',)
    """
    return _compose(label_set(source).name, label_set(target).name)
