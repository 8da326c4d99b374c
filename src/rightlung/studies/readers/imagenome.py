"""Chest ImaGenome: scene graphs of MIMIC-CXR's frontal images, 29 regions with boxes, sentences and their attributes.

``imagenome:/data/chest-imagenome?images=/data/mimic-cxr-jpg`` expects what PhysioNet distributes (credentialed access,
PhysioNet Credentialed Health Data License 1.5.0), https://physionet.org/content/chest-imagenome/1.0.0/ ::

    silver_dataset/scene_graph.zip                      (or unpacked: scene_graph/…_SceneGraph.json)
    silver_dataset/splits/train.csv, valid.csv, test.csv  subject_id, study_id, dicom_id, path, ViewPosition
    silver_dataset/splits/images_to_avoid.csv           images of the gold set's patients: left out, and counted
    gold_dataset/gold_bbox_coordinate_annotations_1000images.csv   image_id, bbox_name, original_x1 … original_y2
    gold_dataset/gold_object_attribute_with_coordinates.txt        tabs: image_id, bbox, sentence, label_name, context
    utils/cxr-record-list_view.csv                      subject_id, study_id, dicom_id, path, ViewPosition

``part=silver`` (made by rules from the reports; the default) or ``part=gold`` (checked by hand; 1,000 images of 500
patients, split ``gold``; the second study of each patient has boxes and no sentences). Comparisons between studies are
not read. What becomes of a graph stands in `rightlung.studies.readers.scene_graph`.

Images, and reports where they are there, come from MIMIC-CXR (``images=``, ``reports=``, see the reader ``mimic``).
Boxes are in pixels of the original image; its size comes from MIMIC's metadata table beside the images, else from each
image's header.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from rightlung.core import InputError, Study
from rightlung.core.errors import unknown_name
from rightlung.core.problem import Problem, ProblemError
from rightlung.studies.building import Building
from rightlung.studies.index import IndexedSource
from rightlung.studies.readers.mimic import METADATA
from rightlung.studies.readers.mimic_files import (
    REPORT_COLUMNS,
    MimicImage,
    MimicReports,
    image_stem,
    needed_files_folder,
    report_record,
)
from rightlung.studies.readers.scene_graph import Graph, Relation, graph_parts, parse_graph
from rightlung.studies.sources import Address
from rightlung.studies.storage import RandomAccessFile
from rightlung.studies.tables import MAX_LISTED, CsvTable, TableRow
from rightlung.studies.trees import find_file, find_optional, read_tree_file, walk_files
from rightlung.studies.zips import StoredMember, members

_ZIP = "silver_dataset/scene_graph.zip"
_FOLDER = "silver_dataset/scene_graph"
_SUFFIX = "_SceneGraph.json"
_SPLITS = "silver_dataset/splits"
_AVOID = f"{_SPLITS}/images_to_avoid.csv"
_GOLD_BOXES = "gold_dataset/gold_bbox_coordinate_annotations_1000images.csv"
_GOLD_ATTRIBUTES = "gold_dataset/gold_object_attribute_with_coordinates.txt"
_RECORDS = "utils/cxr-record-list_view.csv"
_EDGES = ("original_x1", "original_y1", "original_x2", "original_y2")


def open_imagenome(address: Address) -> ImagenomeSource:
    """Open ``imagenome:PATH?images=MIMIC``, PATH the folder of Chest ImaGenome."""
    return ImagenomeSource(address)


class ImagenomeSource(IndexedSource):
    """Images with their scene graphs, in the order of the split tables (silver) or of the boxes (gold)."""

    reader: ClassVar[str] = "imagenome"
    version: ClassVar[int] = 1
    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "images", "reports", "part")
    index_options: ClassVar[tuple[str, ...]] = ("part",)
    split_aliases: ClassVar[Mapping[str, str]] = dict.fromkeys(("val", "validate", "validation"), "valid")
    columns: ClassVar[Mapping[str, Any]] = {
        "patient": "string",
        "exam": "string",
        "view": "string",
        "rows": "int32",
        "columns": "int32",
        "graph_name": "string",
        "graph_offset": "int64",
        "graph_stored": "int64",
        "graph_size": "int64",
        "graph_method": "int8",
        "objects": pa.list_(pa.struct([("name", pa.string()), ("edges", pa.list_(pa.float64()))])),
        "relations": pa.list_(
            pa.struct([
                ("sentence_id", pa.string()), ("sentence", pa.string()), ("region", pa.string()),
                ("category", pa.string()), ("affirmed", pa.bool_()), ("name", pa.string()),
            ])
        ),
        **REPORT_COLUMNS,
    }  # fmt: skip

    def __init__(self, address: Address) -> None:
        part = address.parameters.get("part", "silver")
        if part not in ("silver", "gold"):
            raise unknown_name("part", part, ("silver", "gold"))
        self._gold = part == "gold"
        self._noted: set[str] = set()
        self._images = ""
        super().__init__(address)

    def inputs(self) -> Sequence[Path]:
        """Return the tables and the scene graphs."""
        files = needed_files_folder(self.address, self.root, self.options.get("images"))
        self._images = str(files)
        self._reports = MimicReports.find(self.address, self.options.get("reports"), (files, files.parent))
        self._metadata = find_optional(files.parent, METADATA) or find_optional(files, METADATA)
        shared = [path for path in (self._metadata, find_optional(self.root, _AVOID)) if path is not None]
        shared += self._reports.inputs()
        if self._gold:
            records = find_optional(self.root, _RECORDS)
            found = [find_file(self.root, _GOLD_BOXES), find_file(self.root, _GOLD_ATTRIBUTES)]
            return [*found, *([records] if records is not None else []), *shared]
        self._archive = find_optional(self.root, _ZIP)
        self._graphs = str(find_optional(self.root, _FOLDER) or self.root)
        if self._archive is None and not (self.root / _FOLDER).is_dir():
            raise InputError(f"{self.root} has neither {_ZIP} nor the folder {_FOLDER}")
        self._archive_file = RandomAccessFile(str(self._archive)) if self._archive is not None else None
        splits = [find_optional(self.root, f"{_SPLITS}/{name}.csv") for name in ("train", "valid", "test")]
        tables = [path for path in splits if path is not None]
        if not tables:
            raise InputError(f"{self.root} has no {_SPLITS}/train.csv, valid.csv or test.csv")
        self._split_tables = tables
        return [self._archive or self.root / _FOLDER, *tables, *shared]

    def records(self, building: Building) -> Iterator[Mapping[str, Any]]:
        """Yield one record for each image that has a graph."""
        sizes = self._read_sizes(building)
        reports = self._reports.by_exam()
        for record in self._gold_records(building) if self._gold else self._silver_records(building):
            rows, columns = sizes.get(record["id"], (None, None))
            exam = int(record["exam"]) if record["exam"].isdecimal() else -1
            yield {**record, "rows": rows, "columns": columns, **report_record(reports.get(exam))}

    def _read_sizes(self, building: Building) -> dict[str, tuple[int, int]]:
        if self._metadata is None:
            return {}
        table = CsvTable(self._metadata, ("dicom_id", "Rows", "Columns"), problems=building.problems)

        def parse(row: TableRow) -> tuple[str, tuple[int, int]] | None:
            rows, columns = row.whole("Rows", low=1), row.whole("Columns", low=1)
            return None if rows is None or columns is None else (row.required("dicom_id"), (rows, columns))

        return dict(table.read(parse))

    def _image_records(self, path: Path, building: Building) -> Iterator[dict[str, Any]]:
        """Yield what a table of images says: patient, exam, view."""
        table = CsvTable(path, ("subject_id", "study_id", "dicom_id"), problems=building.problems, root=self.root)

        def parse(row: TableRow) -> dict[str, Any]:
            return {
                "id": row.identifier("dicom_id"),
                "file": row.file,
                "line": row.line,
                "patient": row.identifier("subject_id"),
                "exam": row.identifier("study_id"),
                "view": row.text("ViewPosition") or None,
            }

        yield from table.read(parse)

    def _silver_records(self, building: Building) -> Iterator[dict[str, Any]]:
        graphs = dict(self._find_graphs(building))
        avoid_table = find_optional(self.root, _AVOID)
        avoid = {record["id"] for record in self._image_records(avoid_table, building)} if avoid_table else set()
        for path in self._split_tables:
            for record in self._image_records(path, building):
                graph = graphs.get(record["id"])
                if record["id"] in avoid:
                    building.left_out("patient of the gold set")
                elif graph is None:
                    building.left_out("no scene graph")
                else:
                    yield {**record, **graph, "split": path.name.partition(".")[0]}

    def _find_graphs(self, building: Building) -> Iterator[tuple[str, dict[str, Any]]]:
        if self._archive is not None:
            for member in members(self._archive):
                name = member.name.rpartition("/")[2]
                if name.endswith(_SUFFIX):
                    place = {"graph_offset": member.offset, "graph_stored": member.stored}
                    place |= {"graph_size": member.size, "graph_method": member.method}
                    yield name.removesuffix(_SUFFIX), {"graph_name": member.name, **place}
            return
        for path in walk_files(Path(self._graphs), (_SUFFIX,), building.problems):
            yield path.name.removesuffix(_SUFFIX), {"graph_name": path.relative_to(self._graphs).as_posix()}

    def _gold_records(self, building: Building) -> Iterator[dict[str, Any]]:
        relations: dict[str, list[dict[str, Any]]] = {}
        known: dict[str, dict[str, Any]] = {}
        for image, about, relation in self._read_gold_attributes(building):
            known.setdefault(image, about)
            if relation is not None:
                relations.setdefault(image, []).append(relation)
        boxes = self._read_gold_boxes(building)
        for name in (_AVOID, _RECORDS):  # the latter has all images, and its word counts
            path = find_optional(self.root, name)
            for record in self._image_records(path, building) if path is not None else ():
                if record["id"] in boxes:
                    known[record["id"]] = {"patient": record["patient"], "exam": record["exam"], "view": record["view"]}
        for image, (line, objects) in boxes.items():
            place = {"id": image, "split": "gold", "file": _GOLD_BOXES, "line": line}
            if image not in known or not known[image]["patient"] or not known[image]["exam"]:
                building.problems.append(
                    Problem(_GOLD_BOXES, f"patient and study of {image!r} are not in {_RECORDS}", line, "image_id")
                )
                continue
            yield {**place, **known[image], "objects": objects, "relations": relations.get(image, [])}

    def _read_gold_boxes(self, building: Building) -> dict[str, tuple[int, list[dict[str, Any]]]]:
        table = CsvTable(
            self.root / _GOLD_BOXES, ("image_id", "bbox_name", *_EDGES), problems=building.problems, root=self.root
        )
        boxes: dict[str, tuple[int, list[dict[str, Any]]]] = {}

        def parse(row: TableRow) -> tuple[str, int, dict[str, Any]]:
            edges = [row.required_number(column) for column in _EDGES]
            entry = {"name": row.required("bbox_name").lower(), "edges": edges}
            return row.identifier("image_id").removesuffix(".dcm"), row.line, entry

        for image, line, entry in table.read(parse):
            boxes.setdefault(image, (line, []))[1].append(entry)
        return boxes

    def _read_gold_attributes(self, building: Building) -> Iterator[tuple[str, dict[str, Any], dict[str, Any] | None]]:
        columns = ("image_id", "bbox", "sentence", "label_name", "categoryID", "context")
        path = find_file(self.root, _GOLD_ATTRIBUTES)
        table = CsvTable(path, columns, problems=building.problems, root=self.root, delimiter="\t")

        def parse(row: TableRow) -> tuple[str, dict[str, Any], dict[str, Any] | None]:
            image = row.identifier("image_id").removesuffix(".dcm")
            about = {"patient": row.text("patient_id"), "exam": row.text("study_id")}
            if row.whole("relation") == 0:
                return image, about, None  # proposed by the rules and struck out by hand
            sentence = " ".join(row.required("sentence").split())
            return (
                image,
                about,
                {
                    "sentence_id": row.text("row_id") or sentence,
                    "sentence": sentence,
                    "region": row.required("bbox").lower(),
                    "category": row.required("categoryID"),
                    "affirmed": row.choice("context", ("yes", "no")) != "no",
                    "name": row.required("label_name"),
                },
            )

        yield from table.read(parse)

    def build_study(self, record: dict[str, Any]) -> Study:
        """Make a study of its record: the graph is read now, the image later."""
        study_id, patient, exam = record["id"], record["patient"], record["exam"]
        image = MimicImage(study_id, self._images, image_stem(patient, exam, study_id))
        size = (record["rows"], record["columns"]) if record["rows"] and record["columns"] else image.size()
        place, graph = self._graph(record)
        parts = graph_parts(graph, size)
        self._note_faults(place, graph)
        about = graph.about
        extra = {"scene_graph": parts.scene_graph, "part": "gold" if self._gold else "silver"}
        if parts.other_objects:
            extra["other_objects"] = parts.other_objects
        if about.get("age_decile"):
            extra["age_decile"] = str(about["age_decile"])
        return Study(
            id=study_id,
            load=image,
            patient=patient,
            exam=exam,
            view=record["view"] or about.get("viewpoint"),
            split=record["split"],
            sex=about.get("gender") or None,
            report=self._reports.read(record, patient, exam),
            phrases=parts.phrases,
            regions=parts.regions,
            findings=parts.findings,
            source=self.address,
            extra=extra,
            region_findings=parts.region_findings,
        )

    def _graph(self, record: dict[str, Any]) -> tuple[str, Graph]:
        if self._gold:
            graph = Graph({entry["name"]: tuple(entry["edges"]) for entry in record["objects"]})
            for entry in record["relations"]:
                relation = Relation(**entry)
                graph.relations.append(relation)
                graph.add_sentence(relation.sentence_id, relation.sentence, relation.region)
            return _GOLD_BOXES, graph
        name = record["graph_name"]
        if self._archive_file is not None:
            place = f"{_ZIP}: {name}"
            numbers = [record[f"graph_{part}"] for part in ("offset", "stored", "size", "method")]
            data = StoredMember(self._archive_file, name, *numbers).read(place)
        else:
            place = f"{_FOLDER}/{name}"
            data = read_tree_file(self._graphs, name, f"{self._graphs}/{name}")
        try:
            return place, parse_graph(data)
        except InputError as error:
            raise ProblemError(Problem(place, str(error))) from None

    def _note_faults(self, place: str, graph: Graph) -> None:
        """Put down what is odd in a graph, once for each oddity and never without end: the study itself is good."""
        for fault in graph.faults:
            oddity = str(fault) if fault.field == "bbox_name" else f"{place} {fault.field}"
            if oddity not in self._noted and len(self._noted) < MAX_LISTED:
                self._noted.add(oddity)
                self.problems.append(Problem(place, str(fault), None, fault.field, fault.kind))
