"""``rightlung ground``: where a model sees a phrase, in any image, as pictures and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.asking import Answerer, NoAnswer, Question, load_image
from rightlung.cli.groundings import RESULT, GroundingFolder, file_name
from rightlung.cli.output import finish, say, say_problems
from rightlung.cli.predict import chosen_device
from rightlung.core import Grounding, Image, InputError, Query, Study
from rightlung.core.checks import check_text
from rightlung.core.progress import ProgressBars
from rightlung.explain.peak import peak_of, side_of_peak
from rightlung.lexicon import side_of
from rightlung.models.base import Grounder, Reader, Reading, RegionGrounder
from rightlung.models.fingerprint import weights_digest
from rightlung.pages.overlays import Tile, save_sheet
from rightlung.predictions import Key
from rightlung.studies import Source, build_studies, open_source, read_image
from rightlung.studies.dicom import is_dicom, read_dicom
from rightlung.studies.files import read_regular
from rightlung.studies.sources import source_schemes

ENDINGS = (".png", ".jpg", ".jpeg", ".dcm", ".dicom")
SIDE = 512
"""Pixels of an overlay's longer side."""

_SHOWN = 12
LEAST_KNOWN = 0.5
"""The share of known words below which a person is told that the map says little."""
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """An image and the phrases to find in it. ``identity`` changes when the image does."""

    name: str
    identity: str
    load: Callable[[], Image]
    phrases: Sequence[str]
    source: str | None = None


Pair = tuple[Asked, str, Image]
"""An image, one of its phrases, and the pixels."""


def run(
    image: str,
    phrases: Sequence[str],
    model_name: str,
    out: Path,
    batch_size: int,
    device: str | None,
    force: bool,
    json: bool,
) -> None:
    """Ground what the folder does not hold yet, draw it, and say where it is."""
    import rightlung

    for phrase in phrases:
        check_text(phrase, "a phrase")
    single, count, found = _images(image, phrases, out, force)
    model = rightlung.load(model_name, device=chosen_device(device))
    if isinstance(model, RegionGrounder) and not isinstance(model, Grounder):
        raise InputError(
            f"model {model_name!r} must be told the boxes of an image's regions, which a picture alone does not have; "
            "ask it with 'rightlung predict' or 'rightlung audit' about a source whose studies have regions"
        )
    if not isinstance(model, Grounder):
        raise InputError(f"model {model_name!r} cannot ground phrases")
    name = f"{model_name.rstrip('/')} {weights_digest(model) or ''}".strip()
    answerer = Answerer(SimpleNamespace(ground=model.ground), batch_size)
    with GroundingFolder(out) as folder:
        session = Session(folder, name, model_name, answerer, model if isinstance(model, Reader) else None)
        session.go_through(found(session), count)
    if single and session.problems:
        raise InputError(session.problems[0])
    notes = [*session.notes, *([answerer.note] if answerer.note else [])]
    result = {"folder": str(out), "model": model_name, "groundings": session.entries, "problems": session.problems}
    result |= {"notes": notes, "note": NOT_A_MEDICAL_DEVICE}
    finish(json, result, lambda: _say(session, out, notes), session.problems)


class Session:
    """One call: what was found, what was there before, what went wrong."""

    def __init__(
        self, folder: GroundingFolder, identity: str, model_name: str, answerer: Answerer, reader: Reader | None
    ) -> None:
        self.folder, self.model_name, self.answerer, self.reader = folder, model_name, answerer, reader
        self.entries: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._identity = identity

    def key(self, identity: str, phrase: str) -> str:
        """Return what tells a grounding from all others."""
        return "\n".join((self._identity, identity, phrase))

    def is_done(self, identity: str, phrases: Sequence[str]) -> bool:
        """Note what an earlier call found of an image if that is all there is to find."""
        found = [self.folder.get(self.key(identity, phrase)) for phrase in dict.fromkeys(phrases)]
        entries = [entry for entry in found if entry is not None]
        if not phrases or len(entries) < len(found):
            return False
        self.entries += entries
        return True

    def go_through(self, images: Iterator[Asked | None], count: int) -> None:
        """Ground all pairs; None stands for an image that is done or cannot be asked about."""
        waiting: list[Pair] = []
        with ProgressBars(say, shown=count > 1) as tell:
            for done, asked in enumerate(images, start=1):
                if asked is not None and not self.is_done(asked.identity, asked.phrases):
                    for pair in self._pairs(asked):
                        waiting.append(pair)
                        if len(waiting) >= self.answerer.batch_size:
                            self._ground(waiting)
                            waiting = []
                tell("grounding images", done, count)
            self._ground(waiting)

    def _pairs(self, asked: Asked) -> Iterator[Pair]:
        pixels: Image | None = None
        for phrase in dict.fromkeys(asked.phrases):
            if (entry := self.folder.get(self.key(asked.identity, phrase))) is not None:
                self.entries.append(entry)
                continue
            if pixels is None:
                try:
                    pixels = load_image(asked.load, asked.name)
                except InputError as error:
                    self.problems.append(str(error))
                    return
            yield asked, phrase, pixels

    def _ground(self, pairs: list[Pair]) -> None:
        questions = [Question(Key(asked.name, phrase), Query(phrase)) for asked, phrase, _ in pairs]
        answers = self.answerer.answers(questions, [pixels for _, _, pixels in pairs])
        for (asked, phrase, pixels), answer in zip(pairs, answers, strict=True):
            if isinstance(answer, NoAnswer):
                self.problems.append(f"{asked.name}, phrase {_cut(phrase)!r}: {answer.reason}")
                continue
            grounding: Grounding = answer["grounding"]
            key = self.key(asked.identity, phrase)
            overlay = file_name(Path(asked.name).stem, phrase, key=key)
            boxes = [scored.box for scored in grounding.boxes]
            caption = phrase.encode("utf-8", "backslashreplace").decode()
            tile = Tile(pixels, caption, grounding.heatmap, predicted=boxes)
            save_sheet([tile], self.folder.folder / overlay, columns=1, side=SIDE)
            reading = None if self.reader is None else self.reader.reads(phrase)
            entry = describe(asked.name, phrase, grounding, reading)
            entry |= {"source": asked.source, "overlay": overlay, "model": self.model_name}
            self.folder.add(key, entry)
            self.entries.append(entry)


def describe(image: str, phrase: str, grounding: Grounding, reading: Reading | None = None) -> dict[str, Any]:
    """Return a grounding as plain values, with the side of its peak and whether the words say the same.

    The words are those that the model has read, where it says so. ``side_agrees`` is null where they name no single
    side or the map has no peak.
    """
    peak = None if grounding.heatmap is None else peak_of(grounding.heatmap)
    side = None if grounding.heatmap is None else side_of_peak(grounding.heatmap)
    said = side_of(phrase if reading is None else reading.text)
    return {
        "image": image,
        "phrase": phrase,
        "boxes": [{"box": list(one.box.as_tuple()), "score": one.score, "label": one.label} for one in grounding.boxes],
        "abstention": grounding.abstention,
        "peak": None if peak is None else list(peak),
        "side_of_peak": side,
        "side_said": said,
        "side_agrees": said == side if said in ("left", "right") and side is not None else None,
        "read_to": None if reading is None else len(reading.text),
        "known_words": None if reading is None else reading.known,
    }


def _images(
    image: str, phrases: Sequence[str], out: Path, force: bool
) -> tuple[bool, int, Callable[[Session], Iterator[Asked | None]]]:
    """Find out what the user means: whether it is a single image, how many there are, and how to go through them."""
    path = Path(image)
    if not _exists(path) and image.partition("?")[0].partition(":")[0] in source_schemes():
        if force:
            raise InputError("--force is for image files and folders; a source's images are read as its reader does")
        source = open_source(image)
        return False, len(source), lambda session: _of_source(source, phrases, session)
    if not phrases:
        raise InputError(f"{image}: say at least one phrase to look for")
    if path.is_dir():
        files = _image_files(path, out)
        return False, len(files), lambda session: (_of_file(file, phrases, force, session) for file in files)
    if not _exists(path):
        schemes = ", ".join(source_schemes())
        raise InputError(f"{image}: there is no such image or folder, nor is it the address of a source ({schemes})")
    return True, 1, lambda session: iter([_of_file(path, phrases, force, session)])


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _image_files(folder: Path, out: Path) -> list[Path]:
    """Return the PNG, JPEG and DICOM files below a folder, but not those that this command writes.

    DICOM files often have no ending, or one that is a number; such files are looked into.
    """
    own = out.resolve()
    files = sorted(
        file
        for file in folder.rglob("*")
        if (file.suffix.lower() in ENDINGS or (not file.suffix[1:].strip("0123456789") and _begins_as_dicom(file)))
        and not file.name.startswith(".")
        and own not in file.resolve().parents
    )
    if not files:
        raise InputError(f"{folder}: the folder holds no PNG or JPEG file, and no DICOM file")
    return files


def _begins_as_dicom(file: Path) -> bool:
    try:
        if not file.is_file():
            return False
        with file.open("rb") as stream:
            return stream.read(132)[128:] == b"DICM"
    except OSError:
        return False


def _of_file(file: Path, phrases: Sequence[str], force: bool, session: Session) -> Asked:
    def load() -> Image:
        data = read_regular(file, str(file))
        if not is_dicom(data):
            return read_image(data, name=str(file))
        found = read_dicom(data, force=force, name=str(file))
        session.notes += [f"{file}: {note}" for note in found.notes]
        return found.image

    try:
        status = file.stat()
        identity = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}{' forced' if force else ''}"
    except OSError:
        identity = str(file)  # reading it will say what is wrong
    return Asked(str(file), identity, load, phrases)


def _of_source(source: Source, phrases: Sequence[str], session: Session) -> Iterator[Asked | None]:
    """Yield a source's studies; with phrases of the user's own, those that are done are not even built."""
    problems: dict[str, str] = {}
    for begin in range(0, len(source), _AT_ONCE):
        positions = range(begin, min(begin + _AT_ONCE, len(source)))
        identities = {place: f"{source.address} {source.ids[place]}" for place in positions}
        todo = [place for place, identity in identities.items() if not session.is_done(identity, phrases)]
        built = build_studies(source, todo, problems)
        for place, identity in identities.items():
            study: Study | None = built.get(place)
            own = phrases or [phrase.text for phrase in study.phrases] if study is not None else []
            yield None if study is None else Asked(study.id, identity, study.load, own, source.address)
    session.problems += dict.fromkeys([*map(str, source.problems), *problems.values()])


def _say(session: Session, out: Path, notes: Sequence[str]) -> None:
    for entry in session.entries[:_SHOWN]:
        peak = entry["peak"]
        where = f"peak at {peak[0]:.2f}, {peak[1]:.2f} ({entry['side_of_peak']})" if peak else "no peak"
        verdict = {True: "", False: f", but the words say {entry['side_said']}", None: ""}[entry["side_agrees"]]
        say(f"{entry['image']}: {_cut(entry['phrase'])}")
        if entry["abstention"] >= 0.5:
            where, verdict = f"seen nowhere, most likely (abstention {entry['abstention']:.2f}); else {where}", ""
        else:
            verdict += f"; abstention {entry['abstention']:.2f}"
        say(f"  {where}{verdict}; {_counted(len(entry['boxes']), 'box', 'boxes')}: {entry['overlay']}")
        for warning in _warnings(entry):
            say(f"  {warning}")
    if len(session.entries) > _SHOWN:
        say(f"… and {len(session.entries) - _SHOWN:,} more")
    say(f"{out / RESULT}: {_counted(len(session.entries), 'grounding', 'groundings')} of {session.model_name}")
    for note in notes:
        say(f"note: {note}")
    say_problems(session.problems, "images, studies or phrases left out")
    say(f"\n{NOT_A_MEDICAL_DEVICE}")


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _warnings(entry: dict[str, Any]) -> Iterator[str]:
    """Say where a model has not read the words, or cannot have understood them."""
    read, known, length = entry.get("read_to"), entry.get("known_words"), len(entry["phrase"])
    if read is not None and read < length:
        yield f"the model read the first {read:,} of {length:,} characters; the rest had no part in this"
    elif known is not None and known < LEAST_KNOWN:
        yield f"the model knows {known:.0%} of these words: the map says little about them"


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
