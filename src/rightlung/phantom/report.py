"""Reports: what a radiologist would write about a scene, with each sentence linked to its lesions and devices.

The style of a report (its sections, their order, which absences are stated, length, typing errors) comes from separate
random streams and never depends on the findings; otherwise a model could predict a finding from sentences about
something else. A sentence gives information about the findings in its ``topics`` and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from rightlung.core import Box, Report
from rightlung.core.frozen import FrozenMapping
from rightlung.core.keyed import RandomStream, key_uniform
from rightlung.core.study import Polarity, Sentence
from rightlung.phantom.config import FINDING_ORDER, PhantomConfig
from rightlung.phantom.scene import Lesion, Scene
from rightlung.phantom.words import surroundings
from rightlung.phantom.words.bank import negatives, slip, statements, words
from rightlung.phantom.words.lesions import BARELY, Draft, LesionWriter, Manner, lesion_draft
from rightlung.phantom.words.templates import expand, polish

Section = Literal["findings", "impression"]

_ORDERS = (
    ("devices", "lungs", "pleura", "heart", "bones", "abdomen"),
    ("heart", "lungs", "pleura", "abdomen", "bones", "devices"),
    ("lungs", "pleura", "heart", "bones", "abdomen", "devices"),
    ("devices", "heart", "lungs", "pleura", "bones", "abdomen"),
    ("lungs", "heart", "pleura", "devices", "bones", "abdomen"),
)
# Findings that a sentence may add to another: with the second if it is present, without it if it is absent.
_PARTNERS = {
    "cardiomegaly": "edema",
    "pleural effusion": "pneumothorax",
    "pneumothorax": "pleural effusion",
    "consolidation": "pleural effusion",
    "pneumonia": "pleural effusion",
    "mass": "pleural effusion",
    "rib fracture": "pneumothorax",
}
_PARTNER_SHARE = 0.08
_DEVICE_OMISSION = 0.05
_EVERYDAY = ("ECG leads", "sternal wires")  # no impression mentions these
_BARELY_TOLD = 0.35


@dataclass(frozen=True, slots=True)
class Statement(Draft):
    """One finished sentence of a report and its meaning.

    ``findings`` holds the polarity of each finding in its ``regions``. ``lesions`` and ``devices`` index into the
    scene. ``topics`` are all findings that it gives any hint of: "no acute abnormality" has many.
    """

    section: Section = "findings"


@dataclass(frozen=True, slots=True)
class _Style:
    """The style of one report, sampled without looking at the scene."""

    sections: tuple[Section, ...]
    order: tuple[str, ...]
    lavishness: float
    capitals: bool
    names: Mapping[str, str]


def write_report(scene: Scene, config: PhantomConfig, seed: int) -> list[Statement]:
    """Return the sentences of the scene's report; deterministic."""
    key = (seed, scene.seed, scene.index, "report")
    style = _style(config, RandomStream(*key, "style"))
    manners = {
        finding: _manner(scene, config, RandomStream(*key, "manner", finding), finding, style)
        for finding in {lesion.finding for lesion in scene.lesions}
    }
    made: list[Statement] = []
    for section in style.sections:
        drafts = _SectionWriter(scene, config, (*key, section), style, manners, section).write()
        noise = RandomStream(*key, "noise", section)
        made.extend(_finish(draft, section, config, noise, style) for draft in drafts)
    if not made:
        # No absence was chosen and there is no finding: a report is never empty.
        draft = surroundings.general_sentence(_technique(scene), RandomStream(*key, "technique"), style.names)
        made.append(_finish(draft, style.sections[0], config, RandomStream(*key, "noise"), style))
    return made


def _style(config: PhantomConfig, stream: RandomStream) -> _Style:
    both: tuple[Section, ...] = ("findings", "impression")
    draw = stream.random()
    only_findings, only_impression = config.report.only_findings, config.report.only_impression
    if draw < only_findings:
        both = ("findings",)
    elif draw < only_findings + only_impression:
        both = ("impression",)
    order = stream.choice(_ORDERS)
    lavishness = stream.uniform(0.4, 1.7)
    capitals = stream.chance(config.report.capitals)
    blot = stream.choice(("XXXX", "___"))
    table = statements()["nowhere"]
    name, date = stream.choice(table["names"]), f"{stream.integer(1, 12)}/{stream.integer(1, 28)}"
    time = f"{stream.integer(7, 22)}:{stream.integer(10, 59)}"
    if stream.chance(config.report.masked):
        name, date, time = blot, blot, blot
    names = {"name": name, "date": date, "time": time}
    names["doctor"] = expand(stream.choice(table["doctors"]), stream, names)
    names["prior"] = expand(stream.choice(words()["frames"]["prior_names"]), stream, names)
    return _Style(both, order, lavishness, capitals, names)


def _manner(scene: Scene, config: PhantomConfig, stream: RandomStream, finding: str, style: _Style) -> Manner:
    # Nobody hedges about a finding that fills half the chest.
    worst = max(lesion.severity for lesion in scene.lesions if lesion.finding == finding)
    hedged = stream.chance(config.report.hedge * (1.4 if worst < 0.45 else 0.9 if worst < 0.7 else 0.2))
    compared = stream.chance(config.report.comparison)
    trend = stream.weighted({"stable": 0.5, "more": 0.18, "less": 0.17, "new": 0.15})
    if words()["findings"][finding].get("chronic", False) or (finding == "rib fracture" and trend != "new"):
        trend = "stable"
    sideless = stream.chance(config.report.sideless)
    return Manner(hedged, trend if compared and scene.prior else "", sideless, style.names)


def _technique(scene: Scene) -> str:
    return "technique_portable" if scene.exposure.portable else "technique_upright"


@dataclass(frozen=True, slots=True)
class _SectionWriter:
    """Writes one section of a report."""

    scene: Scene
    config: PhantomConfig
    key: tuple[object, ...]
    style: _Style
    manners: Mapping[str, Manner]
    section: Section

    @property
    def detailed(self) -> bool:
        """Whether this section describes everything: the findings, or an impression without them."""
        return self.section == "findings" or len(self.style.sections) == 1

    @property
    def present(self) -> set[str]:
        """The findings of the scene, and whether it has devices."""
        return {lesion.finding for lesion in self.scene.lesions} | (
            {"support devices"} if self.scene.devices else set()
        )

    def write(self) -> list[Draft]:
        """Return the sentences in order."""
        # A block is a list of groups, because advice must follow its finding.
        blocks: dict[str, list[list[Draft]]] = {name: [] for name in ("first", *self.style.order, "global", "last")}
        for finding in FINDING_ORDER:
            if told := self._told(finding):
                blocks[words()["findings"][finding]["block"]].append(self._tell_kind(finding, told))
        self._add_surroundings(blocks)
        stream = RandomStream(*self.key, "order")
        drafts: list[Draft] = []
        for name in self.style.order:
            drafts.extend(_joined([*chain(*stream.shuffled(blocks[name]))], stream, self.config.report.join))
        summary = [*chain(*blocks["global"])]
        if not any(draft.topics for draft in (*drafts, *summary)) and not self.present:
            normal = next(negative for negative in negatives() if "no finding" in negative.negates)
            summary = [surroundings.absence_sentence(normal, RandomStream(*self.key, "fallback"), self.scene.part)]
        leading = stream.chance(0.5) and self.section == "impression"
        middle = [*summary, *drafts] if leading else [*drafts, *summary]
        return [*chain(*blocks["first"]), *middle, *chain(*blocks["last"])]

    def _told(self, finding: str) -> list[tuple[int, Lesion]]:
        """Return the lesions of one kind that this section reports, each sampled independently."""
        stream = RandomStream(*self.key, "told", finding)
        summarised = stream.chance(1.0 if self.detailed else words()["findings"][finding]["weight"])
        told = []
        for index, lesion in _lesions(self.scene, finding):
            share = _BARELY_TOLD if lesion.severity < BARELY else 1.0 - self.config.report.omission
            if stream.chance(share) and summarised:
                told.append((index, lesion))
        return told

    def _tell_kind(self, finding: str, told: Sequence[tuple[int, Lesion]]) -> list[Draft]:
        manner = self.manners[finding]
        stream = RandomStream(*self.key, "tell", finding)
        drafts = LesionWriter(finding, stream, manner, self.section == "impression", self.scene.part).tell(told)
        partner = _PARTNERS.get(finding)
        if partner and stream.chance(_PARTNER_SHARE) and not manner.trend and not manner.hedged and len(drafts) == 1:
            drafts = [self._with_partner(drafts[0], partner, stream)]
        advice = words()["findings"][finding].get("advice")
        if advice and stream.chance(0.35) and self.section == self.style.sections[-1]:
            text = polish(expand(stream.choice(advice), stream, {}))
            drafts.append(Draft(text, topics=frozenset({finding})))
        return drafts

    def _with_partner(self, draft: Draft, partner: str, stream: RandomStream) -> Draft:
        """Return the sentence with "and edema" or "without edema" added, whichever is true.

        The partner keeps its own sentence, so that the wording of one reveals nothing about the other.
        """
        lesions = _lesions(self.scene, partner)
        name = {"edema": "pulmonary edema"}.get(partner, partner)
        if not lesions:
            tail = stream.choice((f"without {name}", f"without evidence of {name}", f"with no {name}"))
            polarity = Polarity.NEGATIVE
        else:
            hedged = self.manners[partner].hedged
            sides = {lesion.side for _, lesion in lesions}
            side = "bilateral" if len(sides) > 1 else next(iter(sides))
            plural = {"pneumothorax": "pneumothoraces"}.get(partner, f"{partner}s") if side == "bilateral" else name
            said = f"{side} {plural}" if side in ("left", "right", "bilateral") else name
            article = "possible " if hedged else "a " if side in ("left", "right") else ""
            tail = f", with {article}{said} also {stream.choice(('seen', 'noted', 'present'))}"
            polarity = Polarity.UNCERTAIN if hedged else Polarity.POSITIVE
        text = polish(f"{draft.text.removesuffix('.')} {tail}")
        return _merged(draft, lesion_draft(tail, lesions, {partner: polarity}), text)

    def _add_surroundings(self, blocks: dict[str, list[list[Draft]]]) -> None:
        """Add absences, devices, technique and sentences without findings to the blocks."""
        scene, key, style, present = self.scene, self.key, self.style, self.present
        stream = RandomStream(*key, "surroundings")
        lavishness = style.lavishness * (1.0 if self.detailed else 0.4)
        chosen = surroundings.choose_negatives(stream, lavishness, not self.detailed)
        for place, negative in enumerate(chosen):
            if surroundings.is_true(negative, present):
                blocks[negative.block].append(
                    [surroundings.absence_sentence(negative, RandomStream(*key, "deny", place), scene.part)]
                )
        # Depends only on what was chosen, not on what was said: an omission must not reveal a finding.
        whole = any("lung opacity" in negative.negates for negative in chosen)
        if self.section == "findings" and stream.chance(0.12) and not whole:
            draft = surroundings.clear_side(scene, RandomStream(*key, "clear"))
            if draft is not None:
                blocks["lungs"].append([draft])
        for index, device in enumerate(scene.devices):
            own = RandomStream(*key, "device", device.kind)
            share = 1.0 - _DEVICE_OMISSION if self.detailed else 0.0 if device.kind in _EVERYDAY else 0.35
            said, compared = own.chance(share), own.chance(0.25) and scene.prior
            if said:
                blocks["devices"].append([surroundings.device_sentence(index, device, own, compared)])
        aorta = surroundings.aorta_sentence(scene, RandomStream(*key, "aorta")) if self.detailed else None
        if aorta is not None:
            blocks["heart"].append([aorta])
        summary = surroundings.choose_global(stream)
        if summary is not None and (self.section == "impression" or stream.chance(0.15)):
            contradicted = aorta is not None and "no finding" in summary.negates
            if surroundings.is_true(summary, present) and not contradicted:
                own = RandomStream(*key, "global")
                blocks["global"].append([surroundings.absence_sentence(summary, own, scene.part)])
        for block, kind, share, applies in (
            ("first", _technique(scene), 0.2 * style.lavishness, self.detailed),
            ("first", "comparison" if scene.prior else "no_comparison", 0.18 * style.lavishness, self.detailed),
            ("first", "rotated", 0.5, self.detailed and abs(scene.exposure.rotation) > 5.0),
            ("first", "habitus", 0.3, self.detailed and scene.body.fat > 0.75),
            ("last", "advice", 0.1, True),
            ("last", "notice", 0.09, True),
            ("last", "ending", 0.08, not self.detailed),
        ):
            if applies and key_uniform(*key, kind) < share:
                blocks[block].append(
                    [surroundings.general_sentence(kind, RandomStream(*key, "nowhere", kind), style.names)]
                )


def _lesions(scene: Scene, finding: str) -> list[tuple[int, Lesion]]:
    return [pair for pair in enumerate(scene.lesions) if pair[1].finding == finding]


def _joined(drafts: Sequence[Draft], stream: RandomStream, share: float) -> list[Draft]:
    """Return the sentences with some neighbours joined: "The right lung is clear; left basal consolidation."."""
    done: list[Draft] = []
    for draft in drafts:
        if stream.chance(share) and done and _fits(done[-1], draft):
            before, first = done.pop(), draft.text.partition(" ")[0]
            lowered = draft.text if first[1:2].isupper() else draft.text[:1].lower() + draft.text[1:]
            draft = _merged(before, draft, f"{before.text.removesuffix('.')}; {lowered}")
        done.append(draft)
    return done


def _fits(before: Draft, after: Draft) -> bool:
    short = len(before.text) + len(after.text) < 130
    return short and not set(before.findings) & set(after.findings) and ";" not in before.text[:-1]


def _merged(first: Draft, second: Draft, text: str) -> Draft:
    """Return one sentence with the links of two."""
    regions, lesions, devices = (
        tuple(dict.fromkeys((*getattr(first, name), *getattr(second, name))))
        for name in ("regions", "lesions", "devices")
    )
    findings = {**first.findings, **second.findings}
    return Draft(text, regions, findings, lesions, devices, first.topics | second.topics)


def _finish(draft: Draft, section: Section, config: PhantomConfig, stream: RandomStream, style: _Style) -> Statement:
    """Return the statement with noise, which comes last and changes no link."""
    text = draft.text
    slipped, unstopped = stream.chance(config.report.typo), stream.chance(config.report.unstopped)
    if slipped:
        text = slip(text, stream)
    if unstopped:
        text = text.removesuffix(".")
    if style.capitals:
        text = text.upper()
    findings = FrozenMapping(draft.findings)
    return Statement(text, draft.regions, findings, draft.lesions, draft.devices, draft.topics, section)


def assemble_report(made: Sequence[Statement], boxes: Sequence[tuple[Box, ...]]) -> Report:
    """Return the statements as a report with sections and sentences; ``boxes`` are those of each statement."""
    sections: dict[str, str] = {}
    for section in ("findings", "impression"):
        texts = [statement.text for statement in made if statement.section == section]
        # A sentence without its full stop ends its line, as in typed reports.
        pieces = [text + (" " if text.endswith((".", "?")) else "\n") for text in texts]
        if pieces:
            sections[section] = "".join(pieces).strip()
    text = "\n\n".join(f"{name.upper()}:\n{body}" for name, body in sections.items())
    sentences = tuple(Sentence(statement.text, box) for statement, box in zip(made, boxes, strict=True))
    return Report(text, sections, sentences)


def plain_style(config: PhantomConfig) -> PhantomConfig:
    """Return the configuration without typing errors, missing stops or capitals, for counting and comparing."""
    return replace(config, report=replace(config.report, typo=0.0, unstopped=0.0, capitals=0.0))
