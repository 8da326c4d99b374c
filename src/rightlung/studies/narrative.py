"""Which sentences of a report tell what is seen on the image: those of its findings and impression.

Why the image was taken, what it was compared with and whom the radiologist telephoned is in the report, too, but cannot
be pointed at. `rightlung.lexicon.sections` knows the headings.
"""

from __future__ import annotations

from collections.abc import Mapping


def telling_sections(sections: Mapping[str, str]) -> list[str]:
    """Return the texts of findings and impression, in this order, however the names are capitalised."""
    from rightlung.lexicon.headings import TELLING  # not before it is needed: most sources have phrases of their own

    by_name = {name.strip().casefold(): text for name, text in sections.items()}
    return [by_name[name] for name in TELLING if name in by_name]


def telling_sentences(text: str | None, sections: Mapping[str, str]) -> list[str]:
    """Return the sentences of findings and impression, from the sections if they have any, else from the text.

    A text is cut at its headings (`rightlung.lexicon.sections`); where that finds nothing told, it is taken as a whole.
    """
    from rightlung.lexicon.sections import telling_text
    from rightlung.lexicon.sentences import split_sentences

    told = telling_sections(sections)
    if not told and text is not None:
        told = telling_text(text) or [text]
    return [piece for part in told for piece in split_sentences(part) if _is_sentence(piece)]


def _is_sentence(piece: str) -> bool:
    """Whether a piece says anything: not a heading, and not the stray full stop that de-identification leaves."""
    from rightlung.lexicon.headings import section_name

    if piece.endswith(":") and (piece == piece.upper() or section_name(piece) is not None):
        return False
    return any(character.isalpha() for character in piece)
