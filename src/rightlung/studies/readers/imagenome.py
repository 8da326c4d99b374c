"""The `imagenome` reader: Chest ImaGenome, scene graphs of MIMIC-CXR's frontal images with 29 regions.

The silver part was made by rules from the reports. The gold part was checked by hand: 1,000 images of 500 patients; the
second study of each patient has boxes and no sentences. `rightlung.studies.readers.scene_graph` converts the graphs.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import InputError, Size, Study
from rightlung.core.problem import Problem, ProblemError
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import columns, grouped, origin, present
from rightlung.studies.readers.mimic_files import MEMBER, MimicBasedSource, find_metadata
from rightlung.studies.readers.scene_graph import Graph, Relation, parse_graph, study_fields
from rightlung.studies.sources import Address
from rightlung.studies.storage import RandomAccessFile
from rightlung.studies.tables import MAX_LISTED, TableRow
from rightlung.studies.trees import read_tree_file, walk_files
from rightlung.studies.zips import Member, members, read_member

_ZIP = "silver_dataset/scene_graph.zip"
_FOLDER = "silver_dataset/scene_graph"
_SUFFIX = "_SceneGraph.json"
_SPLITS = "silver_dataset/splits"
_SPLIT_NAMES = ("train", "valid", "test")
_AVOID = f"{_SPLITS}/images_to_avoid.csv"
_GOLD_BOXES = "gold_dataset/gold_bbox_coordinate_annotations_1000images.csv"
_GOLD_ATTRIBUTES = "gold_dataset/gold_object_attribute_with_coordinates.txt"
_RECORDS = "utils/cxr-record-list_view.csv"
_EDGES = ("original_x1", "original_y1", "original_x2", "original_y2")


class ImagenomeSource(MimicBasedSource):
    """Images with their scene graphs, in the order of the split tables (silver) or of the boxes (gold)."""

    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "images", "reports", "part", "splits", "min_regions")
    index_options: ClassVar[tuple[str, ...]] = ("part", "splits", "min_regions")
    columns: ClassVar[Mapping[str, Any]] = columns(
        "graph_name", "objects", "relations", rows="int32", columns="int32", graph=MEMBER, report=MEMBER
    )

    def __init__(self, address: Address) -> None:
        self._min_regions = address.whole_number("min_regions", minimum=1) or 0
        super().__init__(address)

    def _inputs(self) -> Sequence[Path]:
        self._gold = self.option("part", ("silver", "gold")) == "gold"
        self._noted: set[str] = set()
        self.images = files = self.find_images(self.root)
        self._reports = self.find_reports((files, files.parent))
        self._avoid = self.find(_AVOID)
        self._split_table = self.find_split_table()
        shared = present(find_metadata(files), self._avoid, self._split_table, self._reports.archive)
        if self._gold:
            self._gold_tables = self.needed(_GOLD_BOXES), self.needed(_GOLD_ATTRIBUTES)
            self._record_list = self.find(_RECORDS)
            return [*self._gold_tables, *present(self._record_list), *shared]
        archive = self.find(_ZIP)
        self._graphs = self.root / _FOLDER
        if archive is None and not self._graphs.is_dir():
            raise InputError(f"{self.root} has neither {_ZIP} nor the folder {_FOLDER}")
        self._archive = RandomAccessFile(str(archive)) if archive is not None else None
        self._splits = present(*(self.find(f"{_SPLITS}/{name}.csv") for name in _SPLIT_NAMES))
        if not self._splits:
            raise InputError(f"{self.root} has no {_SPLITS}/train.csv, valid.csv or test.csv")
        return [archive or self._graphs, *self._splits, *shared]

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        sizes = self.read_sizes(log)
        reports = self._reports.by_exam()
        for record in self._gold_records(log) if self._gold else self._silver_records(log):
            rows, columns = sizes.get(record["id"], (None, None))
            exam = int(record["exam"]) if record["exam"].isdecimal() else -1
            whole = {**record, "rows": rows, "columns": columns, "report": reports.get(exam)}
            if not self._min_regions or self._has_regions(whole, log):
                yield whole

    def _has_regions(self, record: dict[str, Any], log: BuildLog) -> bool:
        """Whether a record's graph has as many valid boxes of regions as ``min_regions`` asks for."""
        try:
            count = len(study_fields(self._graph(record)[1], self._size(record))["regions"])
        except ProblemError as error:
            log.problems.append(error.problem)
            return False
        except InputError as error:
            log.problems.append(Problem(record["file"], str(error), record["line"], "dicom_id"))
            return False
        if count < self._min_regions:
            log.left_out(f"fewer than {self._min_regions} region boxes")
        return count >= self._min_regions

    def _image_records(self, path: Path | None, log: BuildLog) -> Iterator[dict[str, Any]]:
        """Yield patient, exam and view of each image in a table."""

        def parse(row: TableRow) -> dict[str, Any]:
            return {
                "id": row.identifier("dicom_id"),
                **origin(row),
                "patient": row.identifier("subject_id"),
                "exam": row.identifier("study_id"),
                "view": row.text("ViewPosition") or None,
            }

        return self.read(log, path, ("subject_id", "study_id", "dicom_id"), parse)

    def _silver_records(self, log: BuildLog) -> Iterator[dict[str, Any]]:
        graphs = dict(self._find_graphs(log))
        if self._split_table is not None:
            yield from ({**record, **graphs[record["id"]]} for record in self._mimic_records(log, graphs))
            return
        avoid = {record["id"] for record in self._image_records(self._avoid, log)}
        for path in self._splits:
            for record in self._image_records(path, log):
                graph = graphs.get(record["id"])
                if record["id"] in avoid:
                    log.left_out("patient of the gold set")
                elif graph is None:
                    log.left_out("no scene graph")
                else:
                    yield {**record, **graph, "split": path.name.partition(".")[0]}

    def _mimic_records(self, log: BuildLog, wanted: Container[str]) -> Iterator[dict[str, Any]]:
        """Yield patient, exam and split of the wanted images, from MIMIC's table of splits."""

        def parse(row: TableRow) -> dict[str, Any] | None:
            name = row.identifier("dicom_id")
            if name not in wanted:
                return None
            patient, exam = row.identifier("subject_id"), row.identifier("study_id")
            return {"id": name, **origin(row), "patient": patient, "exam": exam, "split": row.required("split")}

        required = ("dicom_id", "study_id", "subject_id", "split")
        table = self._split_table
        return self.read(log, table, required, parse, root=table.parent if table is not None else self.root)

    def _find_graphs(self, log: BuildLog) -> Iterator[tuple[str, dict[str, Any]]]:
        if self._archive is not None:
            for name, member in members(Path(self._archive.path)):
                if name.endswith(_SUFFIX):
                    yield name.rpartition("/")[2].removesuffix(_SUFFIX), {"graph_name": name, "graph": member}
            return
        for path in walk_files(self._graphs, (_SUFFIX,), log.problems):
            yield path.name.removesuffix(_SUFFIX), {"graph_name": path.relative_to(self._graphs).as_posix()}

    def _gold_records(self, log: BuildLog) -> Iterator[dict[str, Any]]:
        told = grouped(self._read_gold_attributes(log))
        known = {image: rows[0][0] for image, rows in told.items()}
        boxes = grouped(self._read_gold_boxes(log))
        for path in (self._avoid, self._record_list):  # the latter has all images and takes precedence
            for record in self._image_records(path, log):
                if record["id"] in boxes:
                    known[record["id"]] = {name: record[name] for name in ("patient", "exam", "view")}
        splits = {record["id"]: record["split"] for record in self._mimic_records(log, boxes)}
        for image, rows in boxes.items():
            split = "gold" if self._split_table is None else splits.get(image)
            place = {"id": image, "split": split, "file": _GOLD_BOXES, "line": rows[0][0]}
            if image not in known or not known[image]["patient"] or not known[image]["exam"]:
                message = f"patient and study of {image!r} are not in {_RECORDS}"
                log.problems.append(Problem(_GOLD_BOXES, message, rows[0][0], "image_id"))
                continue
            relations = [relation for _, relation in told.get(image, []) if relation is not None]
            objects = {name: edges for _, (name, edges) in rows}
            yield {**place, **known[image], "objects": json.dumps(objects), "relations": json.dumps(relations)}

    def _read_gold_boxes(self, log: BuildLog) -> Iterator[tuple[str, tuple[int, tuple[str, list[float]]]]]:
        def parse(row: TableRow) -> tuple[str, tuple[int, tuple[str, list[float]]]]:
            edges = [row.required_number(column) for column in _EDGES]
            region = row.required("bbox_name").lower(), edges
            return row.identifier("image_id").removesuffix(".dcm"), (row.line, region)

        return self.read(log, self._gold_tables[0], ("image_id", "bbox_name", *_EDGES), parse)

    def _read_gold_attributes(
        self, log: BuildLog
    ) -> Iterator[tuple[str, tuple[dict[str, Any], dict[str, Any] | None]]]:
        """Yield each attribute's image, the image's patient and exam, and the relation, if it holds."""

        def parse(row: TableRow) -> tuple[str, tuple[dict[str, Any], dict[str, Any] | None]]:
            image = row.identifier("image_id").removesuffix(".dcm")
            about = {"patient": row.text("patient_id"), "exam": row.text("study_id")}
            if row.whole("relation") == 0:
                return image, (about, None)  # proposed by the rules and rejected by hand
            sentence = " ".join(row.required("sentence").split())
            relation = {
                "sentence_id": row.text("row_id") or sentence,
                "sentence": sentence,
                "region": row.required("bbox").lower(),
                "category": row.required("categoryID"),
                "affirmed": row.choice("context", ("yes", "no")) != "no",
                "name": row.required("label_name"),
            }
            return image, (about, relation)

        required = ("image_id", "bbox", "sentence", "label_name", "categoryID", "context")
        return self.read(log, self._gold_tables[1], required, parse, delimiter="\t")

    def _build_study(self, record: dict[str, Any]) -> Study:
        place, graph = self._graph(record)
        fields = study_fields(graph, self._size(record))
        self._note_faults(place, graph)
        fields["extra"]["part"] = "gold" if self._gold else "silver"
        view = record.get("view") or graph.about.get("viewpoint")
        return self.as_study(record, view=view, report=self._reports.read(record), **fields)

    def _size(self, record: dict[str, Any]) -> Size:
        """Return height and width of the original image."""
        known = record["rows"] and record["columns"]
        return (record["rows"], record["columns"]) if known else self.image_of(record).size()

    def _graph(self, record: dict[str, Any]) -> tuple[str, Graph]:
        if self._gold:
            graph = Graph({name: tuple(edges) for name, edges in json.loads(record["objects"]).items()})
            for entry in json.loads(record["relations"]):
                relation = Relation(**entry)
                graph.relations.append(relation)
                graph.add_sentence(relation.sentence_id, relation.sentence, relation.region)
            return _GOLD_BOXES, graph
        name = record["graph_name"]
        if self._archive is not None:
            place = f"{_ZIP}: {name}"
            data = read_member(self._archive, Member(*record["graph"]), place)
        else:
            place = f"{_FOLDER}/{name}"
            data = read_tree_file(str(self._graphs), name, f"{self._graphs}/{name}")
        try:
            return place, parse_graph(data)
        except InputError as error:
            raise ProblemError(Problem(place, str(error))) from None

    def _note_faults(self, place: str, graph: Graph) -> None:
        """List the faults of a graph, each kind once and up to a limit; the study itself is usable."""
        for fault in graph.faults:
            oddity = str(fault) if fault.field == "bbox_name" else f"{place} {fault.field}"
            if oddity not in self._noted and len(self._noted) < MAX_LISTED:
                self._noted.add(oddity)
                self.problems.append(Problem(place, str(fault), None, fault.field, fault.kind))
