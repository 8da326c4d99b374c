"""``rightlung ground``: draw where a model sees a phrase in an image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.asking import Answerer, NoAnswer, Question, code_fingerprint, load_image
from rightlung.cli.groundings import RESULT, GroundingFolder, file_name
from rightlung.cli.output import finish, say, say_problems
from rightlung.cli.predict import load_model
from rightlung.core import Grounding, Image, InputError, Query
from rightlung.core.checks import check_text
from rightlung.core.progress import ProgressBars
from rightlung.explain.peak import peak_of, side_of_peak
from rightlung.lexicon import side_of
from rightlung.models.base import Grounder, Reader, Reading, RegionGrounder
from rightlung.models.folder import weights_digest
from rightlung.pages.overlays import Tile, save_sheet
from rightlung.predictions import Key
from rightlung.studies import Source, build_studies, open_source, read_image
from rightlung.studies.dicom import is_dicom, read_dicom
from rightlung.studies.files import read_regular
from rightlung.studies.sources import source_schemes

ENDINGS = (".png", ".jpg", ".jpeg", ".dcm", ".dicom")
SIDE = 512
"""Longer side of an overlay in pixels."""

_SHOWN = 12
LEAST_KNOWN = 0.5
"""Share of known words below which a warning is printed."""
_AT_ONCE = 16
_SIDES = {"left": "patient's left", "right": "patient's right", "both": "midline"}


@dataclass(frozen=True, slots=True)
class ImageTask:
    """An image and the phrases to find in it. ``identity`` changes whenever the image does."""

    name: str
    identity: str
    load: Callable[[], Image]
    phrases: Sequence[str]
    source: str | None = None


Pair = tuple[ImageTask, str, Image]
"""A task, one of its phrases, and the pixels."""


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
    """Ground the pairs that the folder does not hold yet, draw them, and print where they are."""
    for phrase in phrases:
        check_text(phrase, "a phrase")
    single, count, found = _images(image, phrases, out, force)
    model = load_model(model_name, device)
    if isinstance(model, RegionGrounder) and not isinstance(model, Grounder):
        raise InputError(
            f"model {model_name!r} needs region boxes; use 'rightlung predict' with a source that has some"
        )
    if not isinstance(model, Grounder):
        raise InputError(f"model {model_name!r} cannot ground phrases")
    name = f"{model_name.rstrip('/')} {weights_digest(model) or ''} {code_fingerprint(model, model_name) or ''}".strip()
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
    """The groundings, problems and notes of one call."""

    def __init__(
        self, folder: GroundingFolder, identity: str, model_name: str, answerer: Answerer, reader: Reader | None
    ) -> None:
        self.folder, self.model_name, self.answerer, self.reader = folder, model_name, answerer, reader
        self.entries: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._identity = identity

    def _key(self, identity: str, phrase: str) -> str:
        return "\n".join((self._identity, identity, phrase))

    def is_done(self, identity: str, phrases: Sequence[str]) -> bool:
        """Whether an earlier call grounded all these phrases; if so, take over its groundings."""
        entries = [self.folder.get(self._key(identity, phrase)) for phrase in dict.fromkeys(phrases)]
        if not entries or None in entries:
            return False
        self.entries += filter(None, entries)
        return True

    def go_through(self, images: Iterator[ImageTask | None], count: int) -> None:
        """Ground all pairs; None stands for an image that is finished or cannot be read."""
        waiting: list[Pair] = []
        with ProgressBars(say, shown=count > 1) as tell:
            for done, task in enumerate(images, start=1):
                for pair in self._pairs(task) if task is not None else ():
                    waiting.append(pair)
                    if len(waiting) >= self.answerer.batch_size:
                        self._ground(waiting)
                        waiting = []
                tell("grounding images", done, count)
            self._ground(waiting)

    def _pairs(self, task: ImageTask) -> Iterator[Pair]:
        pixels: Image | None = None
        for phrase in dict.fromkeys(task.phrases):
            if (entry := self.folder.get(self._key(task.identity, phrase))) is not None:
                self.entries.append(entry)
                continue
            if pixels is None:
                try:
                    pixels = load_image(task.load, task.name)
                except InputError as error:
                    self.problems.append(str(error))
                    return
            yield task, phrase, pixels

    def _ground(self, pairs: list[Pair]) -> None:
        questions = [Question(Key(task.name, phrase), Query(phrase)) for task, phrase, _ in pairs]
        answers = self.answerer.answers(questions, [pixels for _, _, pixels in pairs])
        for (task, phrase, pixels), answer in zip(pairs, answers, strict=True):
            if isinstance(answer, NoAnswer):
                self.problems.append(f"{task.name}, phrase {_cut(phrase)!r}: {answer.reason}")
                continue
            grounding: Grounding = answer["grounding"]
            key = self._key(task.identity, phrase)
            overlay = file_name(Path(task.name).stem, phrase, key=key)
            boxes = [scored.box for scored in grounding.boxes]
            caption = phrase.encode("utf-8", "backslashreplace").decode()
            tile = Tile(pixels, caption, grounding.heatmap, predicted=boxes)
            save_sheet([tile], self.folder.folder / overlay, columns=1, side=SIDE)
            reading = None if self.reader is None else self.reader.reads(phrase)
            entry = describe(task.name, phrase, grounding, reading)
            entry |= {"source": task.source, "overlay": overlay, "model": self.model_name}
            self.folder.add(key, entry)
            self.entries.append(entry)


def describe(image: str, phrase: str, grounding: Grounding, reading: Reading | None = None) -> dict[str, Any]:
    """Return a grounding as plain values, with the side of its peak and whether the phrase names the same side.

    Only the part of the phrase that the model reads counts. ``side_agrees`` is None if it names no single side or the
    map has no peak.
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
) -> tuple[bool, int, Callable[[Session], Iterator[ImageTask | None]]]:
    """Return whether ``image`` is a single image, how many images there are, and a function that yields their tasks."""
    path = Path(image)
    if not _exists(path) and image.partition("?")[0].partition(":")[0] in source_schemes():
        if force:
            raise InputError("--force applies to image files and folders only; this is a source")
        source = open_source(image)
        return False, len(source), lambda session: _of_source(source, phrases, session)
    if not phrases:
        raise InputError(f"{image}: give at least one phrase to look for")
    if path.is_dir():
        files = _image_files(path, out)
        return False, len(files), lambda session: (_of_file(file, phrases, force, session) for file in files)
    if not _exists(path):
        schemes = ", ".join(source_schemes())
        raise InputError(f"{image}: there is no such image or folder, and no such source (known: {schemes})")
    return True, 1, lambda session: iter([_of_file(path, phrases, force, session)])


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _image_files(folder: Path, out: Path) -> list[Path]:
    """Return the PNG, JPEG and DICOM files below a folder, except those below ``out``.

    DICOM files often have no suffix or a numeric one, so these files are opened to look for the DICOM marker.
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
        raise InputError(f"{folder}: the folder holds no PNG, JPEG or DICOM files")
    return files


def _begins_as_dicom(file: Path) -> bool:
    try:
        if not file.is_file():
            return False
        with file.open("rb") as stream:
            return stream.read(132)[128:] == b"DICM"
    except OSError:
        return False


def _of_file(file: Path, phrases: Sequence[str], force: bool, session: Session) -> ImageTask:
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
        identity = str(file)  # reading it will raise the error
    return ImageTask(str(file), identity, load, phrases)


def _of_source(source: Source, phrases: Sequence[str], session: Session) -> Iterator[ImageTask | None]:
    """Yield a task for each study; with ``phrases`` given, finished studies are not even built."""
    problems: dict[str, str] = {}
    for begin in range(0, len(source), _AT_ONCE):
        positions = range(begin, min(begin + _AT_ONCE, len(source)))
        identities = {
            place: f"{source.address} {source.ids[place]} {source.image_identity(place) or ''}" for place in positions
        }
        todo = [place for place, identity in identities.items() if not session.is_done(identity, phrases)]
        built = build_studies(source, todo, problems)
        for place, identity in identities.items():
            if (study := built.get(place)) is None:
                yield None
                continue
            own = phrases or [phrase.text for phrase in study.phrases]
            yield ImageTask(study.id, identity, study.load, own, source.address)
    session.problems += dict.fromkeys([*map(str, source.problems), *problems.values()])


def _say(session: Session, out: Path, notes: Sequence[str]) -> None:
    for entry in session.entries[:_SHOWN]:
        peak, abstention = entry["peak"], entry["abstention"]
        where = f"peak at x {peak[0]:.2f}, y {peak[1]:.2f} ({_SIDES[entry['side_of_peak']]})" if peak else "no peak"
        say(f"{entry['image']}: {_cut(entry['phrase'])}")
        if abstention >= 0.5:
            where, verdict = f"probably not in the image (abstention {abstention:.2f}); {where}", ""
        else:
            verdict = f", but the phrase says {entry['side_said']}" if entry["side_agrees"] is False else ""
            verdict += f"; abstention {abstention:.2f}"
        say(f"  {where}{verdict}; {_counted(len(entry['boxes']), 'box', 'boxes')}: {entry['overlay']}")
        for warning in _warnings(entry):
            say(f"  {warning}")
    if len(session.entries) > _SHOWN:
        say(f"… and {len(session.entries) - _SHOWN:,} more")
    say(f"{out / RESULT}: {_counted(len(session.entries), 'grounding', 'groundings')} by {session.model_name}")
    for note in notes:
        say(f"note: {note}")
    say_problems(session.problems, "images, studies or phrases were left out")
    say(f"\n{NOT_A_MEDICAL_DEVICE}")


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _warnings(entry: dict[str, Any]) -> Iterator[str]:
    """Yield warnings about a phrase that the model did not read in full or does not know the words of."""
    read, known, length = entry.get("read_to"), entry.get("known_words"), len(entry["phrase"])
    if read is not None and read < length:
        yield f"warning: the model reads only the first {read:,} of the {length:,} characters"
    elif known is not None and known < LEAST_KNOWN:
        yield f"warning: the model knows only {known:.0%} of these words, so the map means little"


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
