"""The sentences of a report that describe the image: those of its findings and impression.

Indication, comparison and communication are also in the report, but cannot be pointed at.
"""

from __future__ import annotations

from collections.abc import Mapping


def descriptive_sections(sections: Mapping[str, str]) -> list[str]:
    """Return the texts of findings and impression, in this order, whatever the case of their names."""
    from rightlung.lexicon.headings import DESCRIPTIVE_SECTIONS  # imported late: most sources have their own phrases

    by_name = {name.strip().casefold(): text for name, text in sections.items()}
    return [by_name[name] for name in DESCRIPTIVE_SECTIONS if name in by_name]


def descriptive_sentences(text: str | None, sections: Mapping[str, str]) -> list[str]:
    """Return the sentences of findings and impression, from the sections if there are any, else from the text.

    A text is cut at its headings; if that finds neither section, all of it is used.
    """
    from rightlung.lexicon.sections import descriptive_texts
    from rightlung.lexicon.sentences import split_sentences

    told = descriptive_sections(sections)
    if not told and text is not None:
        told = descriptive_texts(text) or [text]
    return [piece for part in told for piece in split_sentences(part) if _is_sentence(piece)]


def _is_sentence(piece: str) -> bool:
    """Whether a piece is a sentence: not a heading, and not a stray full stop left by de-identification."""
    from rightlung.lexicon.headings import section_name

    if piece.endswith(":") and (piece == piece.upper() or section_name(piece) is not None):
        return False
    return any(character.isalpha() for character in piece)
