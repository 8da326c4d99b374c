"""Read reports by study from a file or a source, and pair generated reports with references.

Files are CSV or TSV (also gzipped), JSON lines and Parquet. Rows that cannot be used are listed with file, place and
field and left out; a generated report that is empty is an answer, and a poor one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from rightlung.core.errors import InputError, unknown_name
from rightlung.core.problem import Problem
from rightlung.studies import open_source
from rightlung.studies.lines import Lines, opened_table
from rightlung.studies.tables import CsvTable

ID_NAMES = ("id", "study", "study_id")
TEXT_NAMES = ("report", "text")
SECTION_NAMES = ("findings", "impression")
PATIENT_NAMES = ("patient", "patient_id", "subject_id")
MOST_WORDS = 10_000
"""The most words of a report: the time of ROUGE-L grows with their square."""
_TABLES = (".csv", ".tsv", ".gz", ".jsonl", ".ndjson", ".parquet")


@dataclass(frozen=True)
class ReportColumns:
    """Names of the columns, where they are not the usual ones."""

    id: str | None = None
    text: str | None = None
    patient: str | None = None


@dataclass(frozen=True)
class WrittenReport:
    """A report of a file, and where it stands."""

    study: str
    text: str
    patient: str | None
    place: Problem
    """A problem without a message: file, line or row, and column."""

    def problem(self, message: str) -> Problem:
        """Return a problem of this row."""
        place = self.place
        return Problem(place.file, message, place.line, row=place.row, column=place.column, key=f"study {self.study!r}")


@dataclass
class ReportFile:
    """The reports of a file by study, and what was left out."""

    name: str
    reports: dict[str, WrittenReport] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


Row = tuple[int, Mapping[str, Any]]


def read_reports(given: str | Path, columns: ReportColumns | None = None) -> ReportFile:
    """Read the reports of a file or of a source, such as ``manifest:/data/mine?split=val``.

    Without a column for the text, findings and impression are joined. A study with two different texts is left out.
    """
    columns, address = columns or ReportColumns(), str(given)
    found = ReportFile(address)
    if not Path(address).exists() and not address.endswith(_TABLES) and (":" in address or "?" in address):
        listed = _of_source(address, columns, found)
    else:
        listed = _of_table(Path(address), columns, found)
    twice: set[str] = set()
    for one in listed:
        earlier = found.reports.get(one.study)
        if earlier is None:
            found.reports[one.study] = one
        elif earlier.text == one.text:
            found.problems.append(one.problem("the same report stands here again; it counts once"))
        else:
            found.problems.append(one.problem("another text than before for the same study; the study is left out"))
            twice.add(one.study)
    for study in twice:
        del found.reports[study]
    if not found.reports:
        first = f"; {found.problems[0]}" if found.problems else ""
        raise InputError(f"{address}: holds no report that can be used{first}")
    return found


def _of_source(address: str, columns: ReportColumns, found: ReportFile) -> Iterator[WrittenReport]:
    if columns != ReportColumns():
        raise InputError(f"{address}: a source has no columns to be named; leave out the options that name them")
    source = open_source(address)
    for study in source:
        text = "" if study.report is None else study.report.text
        yield WrittenReport(study.id, text.strip(), study.patient, Problem(address, ""))
    found.problems += source.problems


def _of_table(path: Path, columns: ReportColumns, found: ReportFile) -> Iterator[WrittenReport]:
    lines = path.suffix != ".parquet"
    names, rows = _rows(path, found.problems)
    study_column = _named(path, names, columns.id, ID_NAMES, "study")
    patient_column = _named(path, names, columns.patient, PATIENT_NAMES, None)
    text_column = _named(path, names, columns.text, TEXT_NAMES, None)
    texts = [name for name in SECTION_NAMES if name in names] if text_column is None else [text_column]
    if not texts or study_column is None:
        listed = ", ".join(names)
        raise InputError(
            f"{path} has no column for the report ({' or '.join(TEXT_NAMES)}, or {' and '.join(SECTION_NAMES)}); it "
            f"has: {listed}. Name the column with an option"
        )
    for number, row in rows:

        def problem(column: str | None, message: str, number: int = number) -> Problem:
            line, place = (number, None) if lines else (None, number)
            return Problem(str(path), message, line, row=place, column=column)

        wrong = next((name for name in (study_column, *texts) if not isinstance(row.get(name), str | int | None)), None)
        study = _text(row.get(study_column))
        text = " ".join(filter(None, (_text(row.get(name)) for name in texts)))
        if wrong is not None:
            found.problems.append(problem(wrong, f"must be a text; got {str(row[wrong])[:40]!r}"))
        elif not study:
            found.problems.append(problem(study_column, "is empty; every row must name its study"))
        elif not _is_unicode(study + text):
            found.problems.append(problem(texts[0], "holds half of a character (an unpaired surrogate)"))
        elif (count := len(text.split())) > MOST_WORDS:
            found.problems.append(problem(texts[0], f"has {count:,} words; the most is {MOST_WORDS:,}"))
        else:
            patient = None if patient_column is None else _text(row.get(patient_column)) or None
            yield WrittenReport(study, text, patient, problem(texts[0], ""))


def _named(path: Path, names: Sequence[str], given: str | None, usual: Sequence[str], what: str | None) -> str | None:
    """Return the column that is given or usual; an error if it is not there and ``what`` it holds is needed."""
    if given is not None:
        if given not in names:
            message = str(unknown_name("column", given, names)).removeprefix("unknown ")
            raise InputError(f"{path} has no {message.replace('Known:', 'It has:')}")
        return given
    found = next((name for name in usual if name in names), None)
    if found is None and what is not None:
        listed = ", ".join(names)
        raise InputError(
            f"{path} has no column {' or '.join(map(repr, usual))} that names the {what}; it has: {listed}"
        )
    return found


def _rows(path: Path, problems: list[Problem]) -> tuple[Sequence[str], Iterable[Row]]:
    """Return the columns of a table and its rows with their line, or in Parquet with their number."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        return _of_parquet(path)
    if name.endswith((".jsonl", ".ndjson")):
        return _of_json_lines(path, problems)
    table = CsvTable(path, problems=problems, delimiter="\t" if name.endswith(".tsv") else ",")
    columns = [column for column in table.columns if column]
    return columns, ((row.line, {column: row.text(column) for column in columns}) for row in table)


def _of_parquet(path: Path) -> tuple[Sequence[str], Iterable[Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read()
    except FileNotFoundError:
        raise InputError(f"{path}: the file does not exist") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet ({error})") from None
    return table.column_names, enumerate(table.to_pylist())


def _of_json_lines(path: Path, problems: list[Problem]) -> tuple[Sequence[str], Iterable[Row]]:
    rows: list[Row] = []
    with opened_table(path) as file:
        lines = Lines(file, path)
        while (taken := lines.take()) is not None:
            line, content, fault = taken
            if fault is None and not content.strip():
                continue
            try:
                row = None if fault else json.loads(content)
            except (ValueError, RecursionError) as error:
                problems.append(Problem(str(path), f"is not JSON ({error})", line))
                continue
            if isinstance(row, dict):
                rows.append((line, row))
            else:
                told = f"the row {fault}" if fault else f"must be an object in braces; got {str(row)[:40]!r}"
                problems.append(Problem(str(path), told, line))
    return [*dict.fromkeys(chain.from_iterable(row for _, row in rows))], rows


def _text(value: Any) -> str:
    """Return a cell as text; null and NaN are empty."""
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value).strip()


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class PairedReports:
    """Generated reports and references of the same studies, in the order of the references."""

    generated: Mapping[str, WrittenReport]
    references: Mapping[str, WrittenReport]
    problems: Sequence[Problem]
    """What was left out."""
    notes: Sequence[str]
    """What was kept and should be known."""

    @property
    def patients(self) -> dict[str, str]:
        """The patient of each study; a study without one is a patient of its own, as in every source."""
        return {study: _patient(one) for study, one in self.references.items()}

    @property
    def knows_patients(self) -> bool:
        """Whether a reference names a patient."""
        return any(one.patient is not None for one in self.references.values())


def _patient(one: WrittenReport) -> str:
    return one.patient or f"study {one.study}"


def patient_of(one: WrittenReport) -> str:
    """Return the patient of a report, who stands for the study if none is named."""
    return _patient(one)


def paired(generated: ReportFile, references: ReportFile) -> PairedReports:
    """Pair reports by study; list what has no counterpart, and empty references."""
    problems = [*generated.problems, *references.problems]
    for study, one in references.reports.items():
        if study not in generated.reports:
            problems.append(one.problem(f"{generated.name} has no report of this study; it is left out"))
        elif not one.text:
            problems.append(one.problem("the reference is empty; the study is left out"))
    for study, one in generated.reports.items():
        if study not in references.reports:
            problems.append(one.problem(f"{references.name} has no reference of this study; it is left out"))
    kept = [study for study, one in references.reports.items() if one.text and study in generated.reports]
    if not kept:
        ours, theirs = (next(iter(file.reports)) for file in (generated, references))
        raise InputError(
            f"{generated.name} and {references.name} have no study in common that has a reference: the first studies "
            f"are {ours!r} and {theirs!r}"
        )
    said = {study: generated.reports[study] for study in kept}
    true = {study: references.reports[study] for study in kept}
    return PairedReports(said, true, problems, [*_notes(said.values())])


def _notes(generated: Iterable[WrittenReport]) -> Iterator[str]:
    from rightlung.lexicon.labeller import read_report

    rows = list(generated)
    empty = [one for one in rows if not one.text]
    short = [one for one in rows if len(one.text.split()) == 1]
    silent = [one for one in rows if one.text and not any(sentence.mentions for sentence in read_report(one.text))]
    for some, what in (
        (empty, "empty; they count with score 0"),
        (short, "one word long"),
        (silent, "without any finding that the labeller knows; they count as No Finding"),
    ):
        if some:
            yield f"{len(some):,} of {len(rows):,} generated reports are {what} (first: study {some[0].study!r})"
