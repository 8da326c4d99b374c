"""Split radiology reports into sentences, by the fixed rules that ``docs/lexicon.md`` describes.

General splitters break at "Dr.", "No. 3" and "a.m.", keep numbered impressions in one piece, and fail on
de-identification marks (``XXXX`` in Open-I, ``___`` in MIMIC-CXR).
"""

from __future__ import annotations

import re

from rightlung.lexicon.data_files import check_text
from rightlung.lexicon.headings import HEADING as _HEADING


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Never the end of a sentence: a name, a number or a comparison follows.
_OPEN = _words("dr drs mr mrs ms prof st mt vs v e.g eg i.e ie approx fig figs ca cf resp incl esp viz ser lt rt gen")
# The end of a sentence only if no lower-case letter follows.
_CLOSING = _words(
    "a.m p.m am pm etc m.d md d.o ph.d jr sr inc r.n rn p.a hr hrs min mins sec cm mm yr yrs pt pts ft mo mos wk wks "
    "hx dx tx fx sx bx rx post ant lat sup inf med prox dist bilat temp max avg est prev comp exam fib dept s/p w/o"
)
# Abbreviations that take a number: "No. 3", "nos. 3 and 4".
_NUMBERED = _words("no nos im ser fig figs vol p pp")
# Words that make a following number a rank instead of a list marker: "grade 2. The".
_RANKED = _words(
    "grade stage type level class no rib image series view views number day segment zone t c l than approximately "
    "about of to by x and or"
)
# Typical first words of a sentence, as opposed to a surname: decides "hepatitis C. The liver" against "T. Smith".
_STARTERS = _words(
    "the there this these those no heart lungs lung cardiac mediastinal mediastinum pleural stable unchanged normal "
    "mild minimal moderate severe small large a an and if in is it its not now otherwise patient please findings "
    "impression interval new comparison bony bones osseous right left bilateral both trachea aorta again also as at on "
    "with without chest clear low persistent recommend suggest compared visualized soft multiple degenerative"
)
# A line that ends with one of these continues.
_CONTINUES = _words(
    "the a an of and or with to in on for by from at is are was were no not may dr mr mrs ms right left new this these "
    "that which its has have been be there as than into via through near above below between per since"
)
_MARK = re.compile(r"X{2,}|_{2,}|\[\*\*.*\*\*\]|<[A-Z_]+>")
# A dash without a space is a bullet only before an upper-case letter: "-sided" may be wrapped text.
_BULLET = re.compile(r"(?:[-–—*](?:\s+|(?=[A-Z]))|[•·▪●◦‣]\s*)(?![-–—*•\s]*$)")
# Bullets at any position.
_ITEM = re.compile(r"(?=[•▪●◦‣])")
_NUMBER = re.compile(r"(?:\((\d{1,2})\)|(\d{1,2})(?:[.)](?!\d)))\s*(?=[^\s.,;)])")
# Letters and Roman numerals are markers only in order and if there is a second item.
_SECOND_ITEM = re.compile(r"(?:^|\s)\(?(?:b|ii|II)[.)]\s")
_LETTER = re.compile(r"\(?([a-z]|[ivx]{2,4}|[IVX]{1,4})[.)]\s+(?=[^\s.,;)])")
_ROMAN = {
    numeral: value
    for value, numeral in enumerate(["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"], start=1)
}
_DOTTED = re.compile(r"[a-z]{1,2}(?:\.[a-z]{1,2})+")
_INITIAL = re.compile(r"[A-Z]\.(?:[A-Z]\.)*,?")
_STOP = re.compile(r"[.?!…]+[\"'”’)\]]*")
_INNER_NUMBER = re.compile(r"(?<=\s)(\d{1,2})[.)](?=\s+[A-Z])")
_NARROW = 60
"""Lines are never wrapped to fewer characters; a shorter line without a full stop may end a sentence."""


def _is_break(line: str, following: str, width: int) -> bool:
    """Whether a line end separates two sentences without a full stop or a new paragraph."""
    if line.endswith(":") and _HEADING.fullmatch(line):
        return True
    first = following.split(maxsplit=1)[0]
    capitalised = first[0].isupper() and first[1:2].islower()
    acronym = first[:2].isalpha() and first[:2].isupper() and _MARK.match(first) is None
    if not (capitalised or acronym):
        return False
    last = line.rsplit(maxsplit=1)[-1]
    if last[-1] in ",;-(/:" or last.lower().rstrip(".") in _CONTINUES or _MARK.fullmatch(last):
        return False
    return len(line) + len(first) + 3 <= width


def _paragraphs(text: str, lettered: bool) -> list[list[str]]:
    """Split the lines of a text before headings and list items, and at empty lines."""
    # A number alone may be wrapped text ("measuring\n2. Stable"), but a marker is far more likely.
    starts = (_HEADING, _NUMBER, _BULLET, _LETTER) if lettered else (_HEADING, _NUMBER, _BULLET)
    paragraphs: list[list[str]] = [[]]
    for line in map(str.strip, text.splitlines()):
        if not line or any(start.match(line) for start in starts):
            paragraphs.append([])
        if line:
            paragraphs[-1].append(line)
    return [lines for lines in paragraphs if lines]


def _pieces(text: str, lettered: bool) -> list[str]:
    """Split a text at its structural line ends and join hard-wrapped lines."""
    if text.isprintable():
        return [text]
    pieces: list[str] = []
    for lines in _paragraphs(text, lettered):
        # The paragraph's width, not the text's: a long line elsewhere says nothing about where these were wrapped.
        width = max(_NARROW, max(map(len, lines)))
        current = last = lines[0]
        for line in lines[1:]:
            if _is_break(last, line, width):
                pieces.append(current)
                current = line
            else:
                # Rejoin a word that was wrapped at its hyphen: "right-" and "sided".
                wrapped_word = last[-1] == "-" and last[-2:-1].isalpha() and line[0].islower()
                current += line if wrapped_word else f" {line}"
            last = line
        pieces.append(current)
    return pieces


def _ends(piece: str, start: int, stop: re.Match[str], number: int) -> bool:
    """Whether the stop ends the sentence that began at ``start`` in list item ``number`` (0 outside a list)."""
    end = stop.end()
    mark = stop[0]
    if end == len(piece):
        return True
    following = next(iter(piece[end : end + 24].split(maxsplit=1)), "")
    if not following:
        return True
    first = following[0]
    before = piece[start : stop.start()].rsplit(maxsplit=1)
    token = before[-1].lstrip("([\"'“‘") if before else ""
    if not token:
        # "? pneumonia", ".5 cm": no sentence has started.
        return False
    if not piece[end].isspace():
        return len(mark) == 1 and _ends_without_space(piece, end, token, following, number)
    if mark[0] == "…" or mark.startswith(".."):
        return first.isupper() and _MARK.match(following) is None
    if mark != ".":
        # ".)" or '."': the bracket may close within a sentence.
        return not first.islower() and (mark[0] == "." or before[-1][-1] != "(")
    word = token.lower()
    if word in _OPEN or (word in _NUMBERED and (first.isdigit() or first == "#")):
        return False
    if _DOTTED.fullmatch(word) and token.isupper() and word not in _CLOSING:
        return _starts_sentence(following)
    if word in _CLOSING or _DOTTED.fullmatch(word):
        return not first.islower() and first not in ",;"
    if _MARK.search(token):
        return not first.islower()
    if len(token) == 1 and token.isalpha() and token.isupper():
        return _starts_sentence(following) or _NUMBER.match(piece, end + 1) is not None
    if first.islower() and ((len(token) == 1 and token.isalpha()) or token[-1].isdigit()):
        # "a. fib", "c. difficile"
        return False
    if token in ("1", str(number + 1)) and len(before) > 1 and first.isupper():
        # The next list item after one without a full stop: _add splits before the number.
        return _last_word(before[0]) in _RANKED
    return first not in ",;)"


def _ends_without_space(piece: str, end: int, token: str, following: str, number: int) -> bool:
    """Whether a stop without a space after it ends a sentence."""
    if following[0].isdigit() and token.isalpha():
        # "Clear.2.Stable" starts the next list item; "1.5" and "L4.5" do not.
        item = _NUMBER.match(piece, end)
        return item is not None and int(item[1] or item[2]) == number + 1
    # "clear.No effusion", but neither "1.5", "e.g.the", "www.site" nor "Ph.D".
    return (
        following[0].isupper()
        and following[1:2].isalpha()
        and len(token) > 1
        and token.lower() not in _OPEN
        and token.lower() not in _CLOSING
        and (following[1].islower() or _MARK.match(following) is None)
        and not (token[-1].isupper() and not _MARK.fullmatch(token))
    )


def _starts_sentence(word: str) -> bool:
    """Whether a word after an initial starts a sentence: "The", but neither "Smith", "and" nor another initial."""
    return word[0].isupper() and _INITIAL.fullmatch(word) is None and word.rstrip(".,:;").lower() in _STARTERS


def _last_word(text: str) -> str:
    return text.rsplit(maxsplit=1)[-1].lower().strip("(.,")


def _is_stray(piece: str, end: int, stop: re.Match[str]) -> bool:
    """Whether a full stop stands alone after the sentence that ended at ``end``: "Clear. ." but not ".5 cm"."""
    around = piece[end : stop.start()] + piece[stop.end() : stop.end() + 1]
    return end > 0 and stop[0][0] in ".…" and not around.strip()


def _split_piece(piece: str, out: list[str], before: int, lettered: bool) -> int:
    """Append the sentences of a piece to ``out``; take and return the last number of a list that spans pieces."""
    start, number = _skip_markers(piece, 0, before if lettered else 0, lettered)
    end = 0
    heading = _HEADING.match(piece, start)
    if heading:
        out.append(heading[0])
        end = heading.end()
        start, number = _skip_markers(piece, end, 0, lettered)
    for stop in _STOP.finditer(piece, start):
        if stop.start() < start:
            continue
        if _is_stray(piece, end, stop):
            if stop[0].strip(".…"):
                # It closes a bracket of the previous sentence.
                out[-1] += stop[0]
        elif _ends(piece, start, stop, number):
            number = _add(piece, start, stop.end(), number, out)
        else:
            continue
        end = stop.end()
        start, number = _skip_markers(piece, end, number, lettered)
    if start < len(piece):
        number = _add(piece, start, len(piece), number, out)
    return number


def _skip_markers(piece: str, position: int, number: int, lettered: bool) -> tuple[int, int]:
    """Return where the sentence after white space and list markers begins, and the last number of the list."""
    while True:
        while position < len(piece) and piece[position].isspace():
            position += 1
        if marker := _NUMBER.match(piece, position):
            number = int(marker[1] or marker[2])
        elif lettered and (marker := _LETTER.match(piece, position)):
            place = _place_in_list(marker[1], number)
            if place is None:
                return position, number
            number = place
        elif not (marker := _BULLET.match(piece, position)):
            return position, number
        position = marker.end()


def _place_in_list(marker: str, number: int) -> int | None:
    """Return the position that a letter or Roman numeral marks after item ``number``: the next, the first, or None."""
    values = [_ROMAN.get(marker.lower())]
    if len(marker) == 1 and marker.islower():
        values.append(ord(marker) - ord("a") + 1)
    return next((value for value in (number + 1, 1) if value in values), None)


def _add(piece: str, start: int, end: int, number: int, out: list[str]) -> int:
    """Append a sentence; split it before the next list number if no full stop precedes that."""
    for inner in _INNER_NUMBER.finditer(piece, start, end):
        before = piece[start : inner.start()].strip()
        if int(inner[1]) in (1, number + 1) and before and _last_word(before) not in _RANKED:
            out.append(before)
            number = int(inner[1])
            start = _skip_markers(piece, inner.end(), number, False)[0]
    sentence = piece[start:end].strip()
    if sentence:
        out.append(sentence)
    return number


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a report; headings such as ``FINDINGS:`` are separate entries.

    >>> split_sentences("1. No pneumothorax. 2. Nodule of 1.5 cm, seen by Dr. XXXX.")
    ['No pneumothorax.', 'Nodule of 1.5 cm, seen by Dr. XXXX.']
    """
    out: list[str] = []
    number = 0
    lettered = _SECOND_ITEM.search(check_text(text, "the text to split into sentences")) is not None
    for piece in _pieces(text, lettered):
        for item in (piece,) if piece.isascii() else _ITEM.split(piece):
            number = _split_piece(item, out, number, lettered)
    return out
