"""Which sentences of a report tell what is seen on the image: those of its findings and impression.

Why the image was taken, what it was compared with and whom the radiologist telephoned is in the report, too, but cannot
be pointed at.
"""

from __future__ import annotations

from collections.abc import Mapping

TELLING = ("findings", "impression")
_TELLING_HEADINGS = frozenset({
    "finding", "findings", "impression", "impressions", "conclusion", "conclusions", "findings/impression",
    "findings and impression",
})  # fmt: skip
_OTHER_HEADINGS = frozenset({
    "addendum", "clinical history", "clinical information", "comparison", "comparisons", "exam", "examination",
    "history", "indication", "indications", "notification", "reason for exam", "reason for examination",
    "recommendation", "recommendations", "study", "technique", "techniques",
})  # fmt: skip


def telling_sections(sections: Mapping[str, str]) -> list[str]:
    """Return the texts of findings and impression, in this order, however the names are capitalised."""
    by_name = {name.strip().casefold(): text for name, text in sections.items()}
    return [by_name[name] for name in TELLING if name in by_name]


def telling_sentences(text: str | None, sections: Mapping[str, str]) -> list[str]:
    """Return the sentences of findings and impression, from the sections if they have any, else from the text.

    A text with a heading ``FINDINGS:`` or ``IMPRESSION:`` is cut at its headings; one without is taken as a whole.
    """
    from rightlung.lexicon.sentences import split_sentences

    told = telling_sections(sections)
    if told:
        return [piece for part in told for piece in split_sentences(part) if _is_sentence(piece)]
    pieces = split_sentences(text) if text is not None else []
    headed = any(_heading(piece) in _TELLING_HEADINGS for piece in pieces)
    telling, kept = not headed, []
    for piece in pieces:
        heading = _heading(piece)
        # Headings of neither kind ("LUNGS:") divide the findings and do not end them.
        if heading in _TELLING_HEADINGS:
            telling = True
        elif heading in _OTHER_HEADINGS:
            telling = not headed
        elif telling and _is_sentence(piece):
            kept.append(piece)
    return kept


def _heading(piece: str) -> str | None:
    return piece[:-1].strip().casefold() if piece.endswith(":") else None


def _is_sentence(piece: str) -> bool:
    """Whether a piece says anything: not a heading, and not the stray full stop that de-identification leaves."""
    if piece.endswith(":") and piece == piece.upper():
        return False
    return any(character.isalpha() for character in piece)
