"""``rightlung ground``: draw where a model sees a phrase in an image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.asking import Answerer, NoAnswer, Question, code_fingerprint, load_image
from rightlung.asking.reading import cut, reading_warning
from rightlung.cli.groundings import RESULT, UNITS, GroundingFolder, file_name
from rightlung.cli.output import finish, say, say_problems
from rightlung.cli.predict import load_model
from rightlung.core import Grounding, Image, InputError, Query, Study
from rightlung.core.checks import check_text
from rightlung.core.plotting import PROBABLY_ABSENT
from rightlung.core.progress import ProgressBars
from rightlung.explain.peak import peak_of, side_of_peak
from rightlung.lexicon import side_of
from rightlung.models.anatomy.frontal import FrontalCheck, check
from rightlung.models.base import Grounder, Reader, Reading, RegionGrounder
from rightlung.models.calibration_file import calibrations_of, ranking_sentence
from rightlung.models.folder import weights_digest
from rightlung.pages.overlays import Tile, save_sheet
from rightlung.predictions import Key
from rightlung.studies import Source, build_studies, open_source
from rightlung.studies.images import decode_image
from rightlung.studies.plausibility import IN_COLOUR, check_plausible, why_implausible
from rightlung.studies.sources import source_schemes

ENDINGS = (".png", ".jpg", ".jpeg", ".dcm", ".dicom")
SIDE = 512
"""Longer side of an overlay in pixels."""

_SHOWN = 12
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


@dataclass(frozen=True, slots=True)
class ImageList:
    """Images to ground: how many, and a function that yields their tasks, None for one that is finished or left out."""

    count: int
    tasks: Callable[[Session], Iterator[ImageTask | None]]
    single: bool = False
    """Whether it is one file, whose problem is the command's."""


def run(
    given: Sequence[str],
    phrases: Sequence[str],
    model_name: str,
    out: Path,
    batch_size: int,
    device: str | None,
    force: bool,
    anyway: bool,
    json: bool,
) -> None:
    """Ground the pairs that the folder does not hold yet, draw them, and print where they are.

    ``given`` are images if ``phrases`` are given separately, else an image and its phrases.
    """
    images, phrases = (given, phrases) if phrases else (given[:1], given[1:])
    for phrase in phrases:
        check_text(phrase, "a phrase")
        if _is(Path.is_file, phrase) or phrase.lower().endswith(ENDINGS):
            several = "for several images, write: rightlung ground IMAGE… --phrase PHRASE"
            raise InputError(f"{phrase!r} is given as a phrase but names a file; {several}")
    lists = [_images(image, phrases, out, force, anyway) for image in dict.fromkeys(images)]
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
        session.go_through(chain.from_iterable(one.tasks(session) for one in lists), sum(one.count for one in lists))
        if len(lists) == 1 and lists[0].single and session.problems:
            raise InputError(session.problems[0])
    notes = [*session.notes, *([answerer.note] if answerer.note else [])]
    if session.reused:
        notes.append(
            f"reused {session.reused:,} grounding{'' if session.reused == 1 else 's'} from {folder.date}: {out}"
        )
    result: dict[str, Any] = {"folder": str(out), "model": model_name, "groundings": session.entries}
    result |= {
        "problems": session.problems,
        "notes": notes,
        "reused": session.reused,
        "units": UNITS,
        "scores": (sentence := ranking_sentence(calibrations_of(model_name), "ground")),
        "note": NOT_A_MEDICAL_DEVICE,
    }
    finish(json, result, lambda: _say(session, out, [*notes, sentence]), session.problems)


class Session:
    """The groundings, problems and notes of one call."""

    def __init__(
        self, folder: GroundingFolder, identity: str, model_name: str, answerer: Answerer, reader: Reader | None
    ) -> None:
        self.folder, self.model_name, self.answerer, self.reader = folder, model_name, answerer, reader
        self.entries: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.doubts: dict[str, str] = {}
        """Why images, by name, cannot be frontal chest radiographs; grounded all the same."""
        self.frontal: dict[str, FrontalCheck] = {}
        """What images, by name, show."""
        self.several = False
        self.reused = 0
        self._identity = identity

    def _key(self, identity: str, phrase: str) -> str:
        return "\n".join((self._identity, identity, phrase))

    def is_done(self, identity: str, phrases: Sequence[str]) -> bool:
        """Whether an earlier call grounded all these phrases; if so, take over its groundings."""
        entries = [self.folder.get(self._key(identity, phrase)) for phrase in dict.fromkeys(phrases)]
        if not entries or None in entries:
            return False
        self.entries += filter(None, entries)
        self.reused += len(entries)
        return True

    def go_through(self, images: Iterator[ImageTask | None], count: int) -> None:
        """Ground all pairs; None stands for an image that is finished or cannot be read."""
        self.several = count > 1
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
                self.reused += 1
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
                self.problems.append(f"{task.name}, phrase {cut(phrase)!r}: {answer.reason}")
                continue
            grounding: Grounding = answer["grounding"]
            key = self._key(task.identity, phrase)
            overlay = file_name(Path(task.name).stem, phrase, key=key)
            reading = None if self.reader is None else self.reader.reads(phrase)
            entry = describe(task.name, phrase, grounding, reading)
            entry |= {"implausible": self.doubts.get(task.name), "source": task.source}
            entry |= {"frontal": None if (seen := self.frontal.get(task.name)) is None else seen.kind}
            entry |= {"overlay": overlay, "model": self.model_name}
            boxes = [scored.box for scored in grounding.boxes]
            tile = Tile(pixels, _caption(entry), grounding.heatmap, predicted=boxes)
            save_sheet([tile], self.folder.folder / overlay, columns=1, side=SIDE)
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


def _caption(entry: dict[str, Any]) -> str:
    """Return the caption of an overlay: phrase, score, abstention, model, file and warnings."""
    abstention, scores = entry["abstention"], [one["score"] for one in entry["boxes"]]
    score = f"highest box score {max(scores):.3g}" if scores else "no box"
    absent = "probably absent, " if abstention >= PROBABLY_ABSENT else ""
    lines = [
        " ".join(entry["phrase"].split()),
        f"{absent}abstention {abstention:.2f}, {score}",
        f"model {entry['model']}, image {Path(entry['image']).name}",
        *_warnings(entry),
    ]
    return "\n".join(lines).encode("utf-8", "backslashreplace").decode()


def _images(image: str, phrases: Sequence[str], out: Path, force: bool, anyway: bool) -> ImageList:
    """Return the images that an argument names: a file, a folder or a source."""
    path = Path(image)
    if not _is(Path.exists, image) and image.partition("?")[0].partition(":")[0] in source_schemes():
        if force or anyway:
            option = "--force" if force else "--anyway"
            raise InputError(f"{option} applies to image files and folders only; {image} is a source")
        source = open_source(image)
        return ImageList(len(source), lambda session: _of_source(source, phrases, session))
    if not phrases:
        raise InputError(f"{image}: give at least one phrase to look for")
    if not _is(Path.exists, image):
        schemes = ", ".join(source_schemes())
        raise InputError(f"{image}: there is no such image or folder, and no such source (known: {schemes})")
    files = _image_files(path, out) if path.is_dir() else [path]
    return ImageList(
        len(files),
        lambda session: (_of_file(file, phrases, force, anyway, session) for file in files),
        single=not path.is_dir(),
    )


def _is(test: Callable[[Path], bool], text: str) -> bool:
    try:
        return test(Path(text))
    except (OSError, ValueError):  # too long for a path, or with a null character
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


def _of_file(file: Path, phrases: Sequence[str], force: bool, anyway: bool, session: Session) -> ImageTask:
    def load() -> Image:
        found = decode_image(file, force=force)
        session.notes += [f"{file}: {note}" for note in found.notes]
        doubt = IN_COLOUR if found.coloured else why_implausible(found.image)
        sentence = f"{file} cannot be a chest radiograph: {doubt}"
        if doubt is None:
            seen = session.frontal[str(file)] = check(found.image)
            sentence = f"{file}: {seen.sentence}"
            if seen.kind != "frontal" or not session.several:
                say(sentence)
            doubt = seen.sentence if seen.refused else None
        if doubt is not None:
            if not anyway:
                raise InputError(f"{sentence} (--anyway grounds it all the same)")
            session.doubts[str(file)] = doubt
        return found.image

    try:
        status = file.stat()
        options = f"{' forced' if force else ''}{' anyway' if anyway else ''}"
        identity = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}{options}"
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
            yield ImageTask(study.id, identity, partial(_load_study, study), own, source.address)
    session.problems += dict.fromkeys([*map(str, source.problems), *problems.values()])


def _load_study(study: Study) -> Image:
    return check_plausible(study.load(), f"study {study.id!r}")


def _say(session: Session, out: Path, notes: Sequence[str]) -> None:
    for entry in session.entries[:_SHOWN]:
        peak, abstention = entry["peak"], entry["abstention"]
        where = f"peak at x {peak[0]:.2f}, y {peak[1]:.2f} ({_SIDES[entry['side_of_peak']]})" if peak else "no peak"
        say(f"{entry['image']}: {cut(entry['phrase'])}")
        if abstention >= PROBABLY_ABSENT:
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
    """Yield warnings about an image that is no chest radiograph and a phrase that the model cannot read."""
    if entry.get("implausible"):
        yield f"warning: this cannot be a chest radiograph, so the map means nothing: {entry['implausible']}"
    if entry.get("frontal") == "mirrored":
        yield "warning: the image may be mirrored, so the sides of the phrase may be exchanged"
    warning = reading_warning(entry["phrase"], entry.get("read_to"), entry.get("known_words"))
    if warning:
        yield f"warning: {warning}"
