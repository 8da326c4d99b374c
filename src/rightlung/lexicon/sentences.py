"""Splitting radiology reports into sentences.

General splitters break at "Dr.", "No. 3" and "a.m.", keep numbered impressions in one piece, and trip over what
de-identification leaves behind (``XXXX`` in Open-I, ``___`` in MIMIC-CXR). The rules here are few and fixed:

- a line that starts with a list marker or a section heading, and an empty line, begin a new piece; other line ends
  are hard wraps and become a space, unless the line stops so short that nobody would have wrapped it there;
- a full stop ends a sentence unless it belongs to an abbreviation, an initial, a number or a de-identification mark
  that the sentence continues after;
- a number with a dot or bracket where a sentence begins is a list marker and is dropped, as are bullets.

Characters are kept as they are, except for list markers and white space at line ends and around sentences.
"""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Never the end of a sentence: a name, a number or a comparison follows.
_OPEN = _words("dr drs mr mrs ms prof st mt vs v e.g eg i.e ie approx fig figs ca cf resp incl esp viz ser lt rt gen")
# The end of a sentence only when no small letter follows.
_CLOSING = _words("a.m p.m am pm etc m.d md d.o ph.d jr sr inc r.n rn p.a hr hrs min mins sec cm mm yr yrs pt pts ft")
# Abbreviations that take a number: "No. 3", "nos. 3 and 4".
_NUMBERED = _words("no nos im ser fig figs vol p pp")
# Words before a number that make it a rank and no list marker: "grade 2. The".
_RANKED = _words(
    "grade stage type level class no rib image series view views number day segment zone t c l than approximately "
    "about of to by x and or"
)
# What a sentence starts with rather than a surname: decides "hepatitis C. The liver" against "T. Smith".
_STARTERS = _words(
    "the there this these those no heart lungs lung cardiac mediastinal mediastinum pleural stable unchanged normal "
    "mild minimal moderate severe small large a an and if in is it its not now otherwise patient please findings "
    "impression interval new comparison bony bones osseous right left bilateral both trachea aorta again also as at on "
    "with without chest clear low persistent recommend suggest compared visualized soft multiple degenerative"
)
# A line that stops on one of these goes on.
_CONTINUES = _words(
    "the a an of and or with to in on for by from at is are was were no not may dr mr mrs ms right left"
)
_MARK = re.compile(r"X{2,}|_{2,}|\[\*\*.*\*\*\]|<[A-Z_]+>")
_SECTIONS = (
    "findings|impressions?|comparisons?|indications?|techniques?|history|clinical history|conclusions?|addendum|"
    "examination|exam|recommendations?|findings/impression|findings and impression|reason for exam(?:ination)?|"
    "notification"
)
_HEADING = re.compile(rf"(?:(?i:{_SECTIONS})|(?=[^\n:]*[A-Z]{{4}})[A-Z][A-Z0-9 ,/&()'-]*):(?=\s|$)")
# A dash without a space is a bullet only before a capital: "-sided" may be wrapped text.
_BULLET = re.compile(r"(?:[-–—*](?:\s+|(?=[A-Z]))|[•·▪●◦‣]\s*)(?![-–—*•\s]*$)")
# These are bullets wherever they stand.
_ITEM = re.compile(r"(?=[•▪●◦‣])")
_NUMBER = re.compile(r"(?:\((\d{1,2})\)|(\d{1,2})(?:[.)](?!\d)))\s*(?=[^\s.,;)])")
_DOTTED = re.compile(r"[a-z]{1,2}(?:\.[a-z]{1,2})+")
_STOP = re.compile(r"[.?!…]+[\"'”’)\]]*")
_INNER_NUMBER = re.compile(r"(?<=\s)(\d{1,2})[.)](?=\s+[A-Z])")
_NARROW = 60
"""Nobody wraps lines to fewer characters than this; a shorter line that ends in no full stop ends all the same."""


def _is_break(line: str, following: str, width: int) -> bool:
    """Whether a line end divides two sentences although no full stop says so."""
    if _HEADING.match(following) or _NUMBER.match(following) or _BULLET.match(following):
        # A number alone may be wrapped text ("measuring\n2. Stable"), but a marker is far more frequent.
        return True
    if line.endswith(":") and _HEADING.fullmatch(line):
        return True
    words = line.split()
    first = following.split(maxsplit=1)[0]
    if not (first[0].isupper() and first[1:2].islower()) or not words:
        return False
    last = words[-1]
    if last[-1] in ",;-(/:" or last.lower().rstrip(".") in _CONTINUES or _MARK.fullmatch(last):
        return False
    return len(line) + len(first) + 3 <= width


def _pieces(text: str) -> list[str]:
    """Divide a text where its lines say so, and join hard-wrapped lines within."""
    if text.isprintable():
        return [text]
    lines = [line.strip() for line in text.splitlines()]
    width = max(_NARROW, max(map(len, lines), default=0))
    pieces: list[str] = []
    current = ""
    for line in lines:
        if not line:
            if current:
                pieces.append(current)
            current = ""
        elif not current:
            current = last = line
        elif _is_break(last, line, width):
            pieces.append(current)
            current = last = line
        else:
            # "right-" and "sided" were one word before they were wrapped.
            wrapped_word = last[-1] == "-" and last[-2:-1].isalpha() and line[0].islower()
            current += line if wrapped_word else f" {line}"
            last = line
    if current:
        pieces.append(current)
    return pieces


def _ends(piece: str, start: int, stop: re.Match[str], number: int) -> bool:
    """Whether the stop ends the sentence that began at ``start``, in item ``number`` of a list (0 outside one)."""
    end = stop.end()
    mark = stop[0]
    if end == len(piece):
        return True
    spaced = piece[end].isspace()
    after = piece[end : end + 24].split(maxsplit=1)
    if not after:
        return True
    following = after[0]
    first = following[0]
    before = piece[start : stop.start()].rsplit(maxsplit=1)
    token = before[-1].lstrip("([\"'“‘") if before else ""
    if not token:
        # "? pneumonia", ".5 cm": no sentence has begun.
        return False
    if not spaced:
        if mark[-1] in ")]\"'”’" or len(mark) > 1:
            return False
        if first.isdigit() and token.isalpha():
            # "Clear.2.Stable": the next item of a list. "1.5" and "L4.5" are none.
            item = _NUMBER.match(piece, end)
            return item is not None and int(item[1] or item[2]) == number + 1
        # "clear.No effusion", but neither "1.5", "e.g.the", "www.site" nor "Ph.D".
        word = token.lower()
        return (
            first.isupper()
            and following[1:2].isalpha()
            and len(token) > 1
            and word not in _OPEN
            and word not in _CLOSING
            and (following[1].islower() or _MARK.match(following) is None)
            and not (token[-1].isupper() and not _MARK.fullmatch(token))
        )
    if mark[0] == "…" or mark.startswith(".."):
        return first.isupper() and _MARK.match(following) is None
    if mark[0] in "?!":
        return not first.islower() and before[-1][-1] != "("
    if mark != "." and mark[0] == ".":
        # ".)" or '."': the bracket may close in the middle of a sentence.
        return not first.islower()
    word = token.lower()
    if word in _NUMBERED and (first.isdigit() or first == "#"):
        return False
    if word in _OPEN:
        return False
    if word in _CLOSING or _DOTTED.fullmatch(word):
        return not first.islower() and first not in ",;"
    if _MARK.search(token):
        return not first.islower()
    if len(token) == 1 and token.isalpha() and token.isupper():
        return following.rstrip(".,:;").lower() in _STARTERS or _NUMBER.match(piece, end + 1) is not None
    if token[-1].isdigit():
        if first.islower():
            return False
        if token in ("1", str(number + 1)) and len(before) > 1 and first.isupper():
            # The next item of a list, after one without a full stop: divided before the number, by _add.
            return _last_word(before[0]) in _RANKED
    return first not in ",;)"


def _last_word(text: str) -> str:
    return text.rsplit(maxsplit=1)[-1].lower().strip("(.,")


def _is_stray(piece: str, end: int, stop: re.Match[str]) -> bool:
    """Whether a full stop stands alone after the sentence that ended at ``end``: "Clear. ." but not ".5 cm"."""
    return (
        end > 0
        and stop[0][0] in ".…"
        and not piece[end : stop.start()].strip()
        and not piece[stop.end() : stop.end() + 1].strip()
    )


def _split_piece(piece: str, out: list[str]) -> None:
    start, number = _skip_markers(piece, 0)
    end = 0
    heading = _HEADING.match(piece, start)
    if heading:
        out.append(heading[0])
        end = heading.end()
        start, number = _skip_markers(piece, end)
    for stop in _STOP.finditer(piece, start):
        if stop.start() < start:
            continue
        if _is_stray(piece, end, stop):
            # It goes to the sentence before, so that it makes none of its own.
            out[-1] += stop[0]
        elif _ends(piece, start, stop, number):
            number = _add(piece, start, stop.end(), number, out)
        else:
            continue
        end = stop.end()
        start, found = _skip_markers(piece, end)
        number = found or number
    if start < len(piece):
        _add(piece, start, len(piece), number, out)


def _skip_markers(piece: str, position: int) -> tuple[int, int]:
    """Return where the sentence after white space and list markers begins, and the last number among the markers."""
    number = 0
    while True:
        while position < len(piece) and piece[position].isspace():
            position += 1
        marker = _NUMBER.match(piece, position) or _BULLET.match(piece, position)
        if marker is None:
            return position, number
        if marker.re is _NUMBER:
            number = int(marker[1] or marker[2])
        position = marker.end()


def _add(piece: str, start: int, end: int, number: int, out: list[str]) -> int:
    """Add a sentence, divided once more where the next number of the list stands in it without a full stop before."""
    for inner in _INNER_NUMBER.finditer(piece, start, end):
        before = piece[start : inner.start()].strip()
        if int(inner[1]) in (1, number + 1) and before and _last_word(before) not in _RANKED:
            out.append(before)
            number = int(inner[1])
            start = _skip_markers(piece, inner.end())[0]
    sentence = piece[start:end].strip()
    if sentence:
        out.append(sentence)
    return number


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a report, headings such as ``FINDINGS:`` as pieces of their own.

    >>> split_sentences("1. No pneumothorax. 2. Nodule of 1.5 cm, seen by Dr. XXXX.")
    ['No pneumothorax.', 'Nodule of 1.5 cm, seen by Dr. XXXX.']
    """
    out: list[str] = []
    for piece in _pieces(text):
        for item in (piece,) if piece.isascii() else _ITEM.split(piece):
            _split_piece(item, out)
    return out
