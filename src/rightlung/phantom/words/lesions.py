"""Sentences about lesions: noun phrases with grade and place, in frames that state, compare or hedge.

The words for a side always come from the lesion. A configured share of the sentences about focal lesions names no side,
so that only the image shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rightlung.core.keyed import RandomStream
from rightlung.core.study import Polarity
from rightlung.lexicon import REGIONS
from rightlung.phantom.config import Part
from rightlung.phantom.scene import Lesion
from rightlung.phantom.words.bank import finding_words, words
from rightlung.phantom.words.places import Spot, spot
from rightlung.phantom.words.templates import expand, phrase, polish, slots_of

GRADE_LIMITS = (0.22, 0.45, 0.7)
BARELY = 0.12
_ADVERBS = ("minimally|slightly|mildly", "mildly|slightly", "moderately", "markedly|severely")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh")
_MEANINGS = {"infection": "pneumonia"}
_BOTH_AT = {
    "upper": "in both upper lobes", "mid": "in both mid lungs", "lower": "at both bases", "apical": "at both apices",
}  # fmt: skip
_BOTH_AS = {
    "upper": "bilateral upper lobe", "mid": "bilateral mid lung", "lower": "bibasilar", "apical": "biapical",
    "lung": "bilateral",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Draft:
    """A sentence before noise: its text and links; ``topics`` are the findings that it gives information about."""

    text: str
    regions: tuple[str, ...] = ()
    findings: Mapping[str, Polarity] = field(default_factory=dict)
    lesions: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Manner:
    """How one kind of lesion is described throughout a report, so that findings and impression agree."""

    hedged: bool
    trend: str  # "" without comparison
    sideless: bool
    dates: Mapping[str, str]  # the words for the earlier study


def bucket(severity: float) -> int:
    """Return the grade, 0 (slight) to 3 (severe)."""
    return sum(severity >= limit for limit in GRADE_LIMITS)


def lesion_regions(lesions: Sequence[Lesion]) -> tuple[str, ...]:
    """Return the Chest ImaGenome regions of lesions, paired ones as their two halves."""
    found: dict[str, None] = {}
    for lesion in lesions:
        for name in REGIONS[lesion.region].parts or (lesion.region,):
            found[name] = None
        if lesion.finding == "pleural effusion":
            found[f"{lesion.side} costophrenic angle"] = None
    return tuple(found)


def lesion_draft(text: str, lesions: Sequence[tuple[int, Lesion]], findings: Mapping[str, Polarity]) -> Draft:
    """Return a sentence about lesions, given with their indices in the scene."""
    regions = lesion_regions([lesion for _, lesion in lesions])
    return Draft(text, regions, findings, tuple(index for index, _ in lesions), topics=frozenset(findings))


def measure(lesion: Lesion) -> str:
    """Return the size in words, always the same for one lesion."""
    if lesion.size < 1.0 or (lesion.size < 3.0 and lesion.seed % 2):
        return f"{max(round(lesion.size * 10), 1)} mm"
    if lesion.seed % 3 == 0:
        return f"{lesion.size:.1f} x {lesion.size * (0.7 + 0.25 * (lesion.seed % 7) / 7):.1f} cm"
    return f"{lesion.size:.1f} cm"


def grade(lesion: Lesion, stream: RandomStream) -> str:
    """Return an adjective for the severity, or an empty string."""
    chosen = stream.choice(words()["findings"][lesion.finding]["grades"][bucket(lesion.severity)].split("|"))
    return str(chosen).replace("{measure}", measure(lesion))


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


class LesionWriter:
    """Writes the sentences about one kind of lesion in one section of a report."""

    def __init__(self, finding: str, stream: RandomStream, manner: Manner, brief: bool, part: Part) -> None:
        self.finding = finding
        self.stream = stream
        self.manner = manner
        self.brief = brief
        self.entry = finding_words(finding, part)
        self.frames: dict[str, list[str]] = words()["frames"]

    def tell(self, lesions: Sequence[tuple[int, Lesion]]) -> list[Draft]:
        """Return one or more sentences that together describe these lesions."""
        if self.finding == "rib fracture":
            return [self._ribs(lesions)]
        if len(lesions) > 1 and self.stream.chance(0.75):
            return [self._several(lesions)]
        if len(lesions) > 1:
            # Described one by one without sides, they could not be distinguished.
            self.manner = replace(self.manner, sideless=False)
        return [self._one(index, lesion) for index, lesion in lesions]

    def _names(self, lesion: Lesion) -> list[list[str]]:
        """Return the nouns with their plurals that fit the lesion's form and, where that matters, a hedge."""
        by_form: list[list[str]] = self.entry.get(f"nouns_{lesion.form}", self.entry["nouns"])
        by_hedge: list[list[str]] = self.entry.get("nouns_hedged", by_form)
        return by_hedge if self.manner.hedged else by_form

    # -- one lesion

    def _one(self, index: int, lesion: Lesion) -> Draft:
        stream = self.stream
        place = Spot("", "", "")
        if self.entry["where"] != "none":
            place = spot(lesion, stream, self.manner.sideless)
        slots = self._slots(lesion, place, *stream.choice(self._names(lesion)))
        if not self.manner.hedged:
            return self._draft(self._report(lesion, slots), [(index, lesion)])
        text, findings = self._hedge(lesion, slots)
        return lesion_draft(polish(text), [(index, lesion)], findings)

    def _draft(self, text: str, lesions: Sequence[tuple[int, Lesion]]) -> Draft:
        polarity = Polarity.UNCERTAIN if self.manner.hedged else Polarity.POSITIVE
        return lesion_draft(polish(text), lesions, {self.finding: polarity})

    def _verbs(self, many: bool) -> dict[str, str]:
        return {
            "is": "are" if many else "is",
            "has": "have" if many else "has",
            "seen": self.stream.choice(self.frames["seen"]),
            "shows": expand(self.stream.choice(self.frames["shows"]), self.stream, {}),
        }

    def _slots(self, lesion: Lesion, place: Spot, noun: str, plural: str) -> dict[str, str]:
        stream = self.stream
        many = noun == plural
        graded = grade(lesion, stream)
        if place.before.endswith("lung"):
            noun = noun.removeprefix("lung ")
        if graded and graded in noun:
            graded = ""
        article = "a/an" if plural and not many else ""
        before = bool(place.before) and (self.brief or stream.chance(0.5))
        bare = _join(graded, place.before, noun) if before else _join(graded, noun, place.after)
        return {
            "np": _join(article, bare),
            "np_bare": bare,
            "np_there": _join(article, graded, noun),
            **self._verbs(many),
            "at": place.after,
            "at_first": place.after,
            "as": place.before,
            "zone_side": place.zone,
            "side": "" if self.manner.sideless else lesion.side,
            "grade": graded,
            "a_grade": _join("a/an", graded),
            "gradely": stream.choice(_ADVERBS[bucket(lesion.severity)].split("|")),
            "measure": measure(lesion),
            **self._trend_slots(),
        }

    def _trend_slots(self) -> dict[str, str]:
        if not self.manner.trend:
            return {}
        table = words()["trends"][self.manner.trend]
        prior = expand(self.stream.choice(self.frames["prior_names"]), self.stream, self.manner.dates)
        return {
            f"trend_{part}": expand(self.stream.choice(table[part]), self.stream, {"prior": prior})
            for part in ("adjective", "verb", "tail")
        }

    def _fitting(self, templates: Sequence[str], slots: Mapping[str, str]) -> list[str]:
        """Return the templates whose slots can all be filled: no {side} in a sentence that must not name one."""
        needed = ("side", "at", "as", "zone_side", "at_first")
        return [
            text
            for text in templates
            if all(slots[name] for name in needed if name in slots_of(text))
            and ("at_first" not in slots_of(text) or slots["at_first"].startswith(("in the", "at the", "within")))
        ]

    def _sentences(self, lesion: Lesion) -> list[str]:
        entry = self.entry
        name = f"sentences_{lesion.form}"
        if name not in entry and lesion.finding == "pleural effusion":
            name = "sentences_large" if lesion.region.endswith("zone") else "sentences_small"
            return [] if lesion.form == "loculated" else list(entry[name])
        texts: list[str] = entry.get(name, entry["sentences"])
        return [text for text in texts if "{as}" not in text] if lesion.form == "spiculated" else texts

    def _report(self, lesion: Lesion, slots: Mapping[str, str]) -> str:
        stream = self.stream
        whole = self._fitting(self._sentences(lesion), slots)
        only = self.entry.get("only_sentences", False)
        if whole and (only or stream.chance(0.25 if self.brief else 0.45)):
            text = expand(stream.choice(whole), stream, slots)
            if self.manner.trend:
                text = f"{text}, {slots['trend_tail']}"
            return text
        if self.manner.trend:
            return expand(stream.choice(self.frames["compared"]), stream, slots)
        frames = ["{np}", "{np_bare}", "{np_bare}"] if self.brief else self._fitting(self.frames["plain"], slots)
        text = expand(stream.choice(frames), stream, slots)
        tails = self.entry.get(f"tails_{lesion.region.split()[0]}", self.entry["tails"])
        return text + str(stream.choice(tails))

    def _hedge(self, lesion: Lesion, slots: Mapping[str, str]) -> tuple[str, dict[str, Polarity]]:
        stream = self.stream
        uncertain = {self.finding: Polarity.UNCERTAIN}
        choices = self.entry.get("differentials")
        if choices and stream.chance(0.5):
            return self._differential(lesion, slots, stream.choice(choices).split("|"))
        large = lesion.finding == "pleural effusion" and lesion.region.endswith("zone")
        whole = self._fitting(self.entry["hedges_large" if large else "hedges"], slots)
        if whole and (self.entry.get("only_sentences", False) or stream.chance(0.5)):
            text = expand(stream.choice(whole), stream, slots)
            if self.entry.get("hedge_opacity", False):
                uncertain["lung opacity"] = Polarity.POSITIVE
            return text, uncertain
        frames = self._fitting(self.frames["hedge"], slots)
        return expand(stream.choice(frames), stream, slots), uncertain

    def _differential(
        self, lesion: Lesion, slots: Mapping[str, str], causes: Sequence[str]
    ) -> tuple[str, dict[str, Polarity]]:
        """Return a sentence with a certain opacity and uncertain causes."""
        stream = self.stream
        named = "lung opacity" if self.finding == "pneumonia" else self.finding
        findings = {named: Polarity.POSITIVE}
        for cause in causes:
            findings.setdefault(_MEANINGS.get(cause, cause), Polarity.UNCERTAIN)
        noun = stream.choice(("opacity", "airspace opacity", "patchy opacity", "opacification"))
        seen = slots["np"] if self.finding != "pneumonia" else _join(noun, slots["at"])
        listed = stream.choice((" or ", " versus ", " and/or ")).join(stream.shuffled(causes))
        frame = stream.choice(
            (
                "{seen}, which (may|could|might) (represent|reflect|be due to) {causes}",
                "{seen}, possibly {causes}",
                "{seen}, (potentially|perhaps) (representing|reflecting|due to) {causes}",
                "{seen}, differential includes {causes}",
                "{seen}, {causes} (is not excluded|cannot be excluded|is possible)",
            )
        )
        return expand(frame, stream, {"seen": seen, "causes": listed}), findings

    # -- several lesions of a kind

    def _several(self, lesions: Sequence[tuple[int, Lesion]]) -> Draft:
        stream = self.stream
        items = [lesion for _, lesion in lesions]
        sides = {lesion.side for lesion in items}
        zones = {lesion.region.split()[1] for lesion in items}
        forms = {lesion.form for lesion in items}
        pairs = self._names(items[0]) if len(forms) == 1 else self.entry["nouns"]
        noun, plural = stream.choice(pairs)
        plural = plural or noun
        paired = len(items) == 2 and sides == {"left", "right"} and len(forms) == 1
        if paired and self.entry["where"] == "space":
            core = self._both_sides(items, plural)
        elif paired and len(zones) == 1 and stream.chance(0.7):
            zone = next(iter(zones))
            lobar = "lobar" in forms
            if lobar or zone not in _BOTH_AT or stream.chance(0.6):
                core = _join(self._shared_grade(items), _BOTH_AS[zone].replace("bibasilar", "bilateral lower lobe")
                             if lobar else _BOTH_AS[zone], plural)  # fmt: skip
            else:
                core = _join(self._shared_grade(items), plural, _BOTH_AT[zone])
        elif len(items) > 2 and self.finding in ("nodule", "calcified granuloma", "lung opacity"):
            largest = max(items, key=lambda lesion: lesion.size)
            core = _join(stream.choice(("multiple", "several", "scattered")), plural)
            if sides == {"left", "right"}:
                core = _join(core, stream.choice(("in both lungs", "bilaterally", "throughout both lungs")))
            elif not self.manner.sideless:
                core = _join(core, f"in the {items[0].side} lung")
            if self.finding != "lung opacity" and not self.manner.sideless:
                core += f", the largest measuring {measure(largest)} {spot(largest, stream, False).after}"
        else:
            core = self._listed(items, plural)
        slots = {"np": core, "np_bare": core, **self._verbs(plural != noun), **self._trend_slots()}
        if self.manner.hedged:
            frames = self.frames["hedge"]
        elif self.manner.trend:
            frames = self.frames["compared"]
        elif self.brief or "largest" in core:
            frames = ["{np}"]
        else:
            frames = [text for text in self.frames["plain"] if slots_of(text) <= set(slots)]
        if "largest" in core:
            frames = [text for text in frames if text.endswith(("{np}", "{np_bare}"))]
        return self._draft(expand(stream.choice(frames), stream, slots), lesions)

    def _shared_grade(self, items: Sequence[Lesion]) -> str:
        buckets = {bucket(lesion.severity) for lesion in items}
        shared = grade(items[0], self.stream) if len(buckets) == 1 else ""
        return "" if any(letter.isdigit() for letter in shared) else shared

    def _both_sides(self, items: Sequence[Lesion], plural: str) -> str:
        """Return the words for a left and a right lesion of one kind, such as effusions."""
        stream = self.stream
        first, second = stream.shuffled(items)
        more, less = sorted(items, key=lambda lesion: -lesion.severity)
        styles = [f"{grade(first, stream)} {first.side} and {grade(second, stream)} {second.side} {plural}"]
        shared = self._shared_grade(items)
        if more.severity - less.severity > 0.08:
            than = stream.choice(("greater than", "larger than", "more than"))
            styles.append(_join(shared, f"bilateral {plural}, {more.side} {than} {less.side}"))
            styles.append(f"{grade(more, stream)} {more.side} and smaller {less.side} {plural}")
        if shared:
            styles += [_join(shared, f"bilateral {plural}"), _join("bilateral", shared, plural)]
            styles.append(_join(shared, plural, stream.choice(("bilaterally", "on both sides"))))
        return phrase(stream.choice(styles))

    def _listed(self, items: Sequence[Lesion], plural: str) -> str:
        """Return "opacities in the left base and in the right upper lobe", with all sides named or none."""
        stream = self.stream
        named = len({lesion.side for lesion in items}) > 1
        sideless = self.manner.sideless and not named
        places = list(dict.fromkeys(spot(lesion, stream, sideless, listed=True).after for lesion in items))
        last = f" and {places[-1]}" if len(places) > 1 else places[-1]
        return _join(self._shared_grade(items), plural, ", ".join(places[:-1]) + last)

    # -- ribs

    def _ribs(self, lesions: Sequence[tuple[int, Lesion]]) -> Draft:
        stream = self.stream
        items = [lesion for _, lesion in lesions]
        side = "" if self.manner.sideless else items[0].side
        numbers = sorted(int(lesion.form.removeprefix("rib ")) for lesion in items)
        spoken = [_ORDINALS[number - 1] for number in numbers]
        many = len(numbers) > 1
        listed = spoken[0] if not many else f"{', '.join(spoken[:-1])} and {spoken[-1]}"
        if many and stream.chance(0.5):
            listed = f"{spoken[0]} {'and' if len(spoken) == 2 else 'through'} {spoken[-1]}"
        aspect = stream.choice(("", "", "lateral", "posterolateral", "anterolateral"))
        worst = max(items, key=lambda lesion: lesion.severity)
        graded = grade(worst, stream)
        slots = {
            "grade": graded,
            "a_grade": _join("a/an", graded),
            "side": side,
            "ribs": _join(side, aspect, listed, "ribs" if many else "rib"),
            "rib_noun": _join(side, aspect, listed, "rib"),
            "rib_numbers": listed,
        }
        ending = "_plural" if many else ""
        uncertain = self.manner.hedged
        texts = self.entry[("hedges" if uncertain else "sentences") + ending]
        text = expand(stream.choice(texts), stream, slots)
        if self.manner.trend and not uncertain:
            text += f", {self._trend_slots()['trend_tail']}"
        return self._draft(text, lesions)
