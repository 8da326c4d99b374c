"""What the words of a phrase reveal about the location: findings, side and zones.

This is all that the image-blind location prior may use. It is read from the text alone, because a source's ``regions``
are the true location: "a rib fracture" with the region "right upper lung zone" would reveal what the words do not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from rightlung.core import Polarity
from rightlung.lexicon.findings import canonical_finding
from rightlung.lexicon.laterality import side_of

NamedSide = Literal["left", "right", "both", "none"]

# Each zone with the whole words that name it, in any case. Codes of lobes (RUL) name a side and a zone.
_ZONE_WORDS: dict[str, str] = {
    "apex": r"apex|apices|apical|bi-?apical",
    "upper": r"[rl]u[lz]|suprahilar|upper[\s-]+(?:lung|lobe|zone|field|hemithora|third|left|right)[a-z]*",
    "mid": r"[rl]mz|lingular?|mid-?(?:lung|zone)s?|mid(?:[\s-]+lobe|(?:dle)?[\s-]+(?:lung|zone|field|third))[a-z]*",
    "middle lobe": r"[rl]ml|middle[\s-]+lobe[a-z]*",  # separate, because only the right lung has one
    "lower": r"[rl]l[lz]|infrahilar|lower[\s-]+(?:lung|lobe|zone|field|hemithora|third|left|right)[a-z]*",
    "base": r"bases?|basilar|basal|bi-?(?:basilar|basal)|subpulmonic",
    "hilum": r"peri-?hilar|para-?hilar|bi-?hilar|hil(?:ar|um|a|i)|central(?!\s+(?:venous|line|catheter))",
    "retrocardiac": r"retro-?cardiac|behind\s+the\s+(?:heart|cardiac)",
    "costophrenic angle": r"costo-?phrenic|cp\s+angles?|sulc(?:us|i)",
    "periphery": r"peripheral(?:ly)?|lateral(?:ly)?|postero-?lateral|chest\s+wall|pleural-based|subpleural",
    "heart": r"heart|cardiac|cardio[a-z]*",
    "mediastinum": r"mediastin[a-z]*|para-?tracheal|aorto-?pulmonary",
    "aorta": r"aorta|aortic",
    "spine": r"spine|spinal|vertebra[a-z]*|scolio[a-z]*|thoracolumbar",
    "trachea": r"trachea[a-z]*|carina|endotracheal|et\s+tube|ett",
    "great veins": r"svc|superior\s+vena\s+cava|cavo-?atrial|brachiocephalic|innominate|subclavian|jugular",
    "right atrium": r"right\s+atri(?:um|al)",
    "ventricle": r"ventric(?:le|ular)s?",
    "diaphragm": r"(?:hemi-?)?diaphragm[a-z]*|sub-?diaphragmatic|subphrenic",
    "abdomen": r"abdom[a-z]*|stomach|gastric|ng\s+tube|naso-?gastric|oro-?gastric|enteric|dobhoff|feeding\s+tube",
    "clavicle": r"clavic[a-z]*",
    "shoulder": r"shoulders?|humer[a-z]*|scapul[a-z]*|axill[a-z]*",
    "neck": r"neck|cervical|supraclavicular",
}
_ZONES = {
    zone: re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE | re.ASCII)
    for zone, words in _ZONE_WORDS.items()
}


class WordKey(NamedTuple):
    """The findings, side and zones that the words name."""

    findings: tuple[str, ...]
    side: NamedSide
    zones: tuple[str, ...]


@lru_cache(maxsize=65_536)
def zones_in(text: str) -> tuple[str, ...]:
    """Return the zones that a text names, in a fixed order.

    >>> zones_in("LLL opacity, and a nodule at the right apex")
    ('apex', 'lower')
    """
    return tuple(zone for zone, words in _ZONES.items() if words.search(text))


@lru_cache(maxsize=65_536)
def side_named(text: str) -> NamedSide:
    """Return the side that a text names, or ``none``."""
    return side_of(text) or "none"


def findings_about(findings: Mapping[str, Polarity | str] | Iterable[str]) -> tuple[str, ...]:
    """Return the canonical names of the findings that a phrase asserts, without negated ones.

    >>> findings_about({"Effusion": "positive", "pneumothorax": "negative"})
    ('pleural effusion',)
    """
    if isinstance(findings, Mapping):
        findings = [name for name, polarity in findings.items() if polarity != Polarity.NEGATIVE]
    return tuple(sorted({canonical_finding(name) for name in findings}))


def word_key(text: str, findings: Mapping[str, Polarity | str] | Iterable[str] = ()) -> WordKey:
    """Return everything that the image-blind prior may know about a phrase.

    >>> word_key("Left lower lobe consolidation", ["Consolidation"])
    WordKey(findings=('consolidation',), side='left', zones=('lower',))
    """
    return WordKey(findings_about(findings), side_named(text), zones_in(text))
