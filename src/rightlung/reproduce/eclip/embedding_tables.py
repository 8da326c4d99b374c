"""Tables of retrieval and geometry of eCLIP's variants, and UMAP figures of their embeddings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from rightlung.core import InputError
from rightlung.core.files import read_json
from rightlung.measuring import find_measure
from rightlung.pages.content import Cell, Column, Figure, Table
from rightlung.reproduce.eclip.blind import blind_retrieval
from rightlung.reproduce.eclip.embeddings import EMBEDDED, EMBEDDINGS, Embedded, group_of
from rightlung.reproduce.eclip.measuring import DIRECTIONS
from rightlung.reproduce.eclip.tables import SETTINGS, EclipTables
from rightlung.reproduce.eclip.variants import METHODS
from rightlung.reproduce.pair_claims import Place

WAYS = dict(zip(DIRECTIONS, ("reports by images", "images by reports"), strict=True))
UMAP_NOTE = "Expert images have the simulated gaze on the same study, which no score uses."


class EmbeddingTables(EclipTables):
    """Makes the tables and figures of embeddings."""

    def retrieval(self) -> Iterator[Table]:
        """Yield the tables of retrieval, one for each direction, and of geometry."""
        rows = {name: self.label(name) for name in self._retrieving()}
        blind = blind_retrieval(self.found.prepared, SETTINGS)
        names = ("recall@1", "recall@5", "recall@10", "median_rank", "recall@10_once")
        for direction, way in WAYS.items():
            columns: dict[Place, str] = {(direction, name): find_measure(name).title for name in names}
            references = {
                label: {(direction, name): one for name, one in found.items()}
                for label, found in blind[direction].items()
            }
            caption = (
                f"Finding {way} among all test studies, in percent; the median rank is a number. Candidates are "
                "distinct reports; images with the same report are all right. The answers that see no image know how "
                "often each report occurs in the test studies."
            )
            yield from self.table(direction, f"Retrieval: {way}", caption, rows, columns, papers="retrieval",
                                  references=references)  # fmt: skip
        yield from self._geometry([*rows])

    def _retrieving(self) -> list[str]:
        wanted = [f"{host}-{method}".strip("-") for host in ("clip", "gloria") for method in (*METHODS, "tied")]
        return self.there([*wanted, "vit-b", "vit-b-expert"])

    def _geometry(self, variants: Sequence[str]) -> Iterator[Table]:
        names = {"gap": "gap", "alignment": "alignment", "uniformity_images": "uniformity, images",
                 "uniformity_texts": "uniformity, texts", "temperature": "temperature"}  # fmt: skip
        lines, chance = [], None
        for variant in variants:
            paths = [path.with_name("geometry.json") for path in self.files.files(variant, DIRECTIONS[0])]
            found = [read_json(path) for path in paths if path.is_file()]
            if found:
                chance = found[0]["chance"]["random"]
                lines.append(
                    [Cell(self.label(variant)), *(_mean_cell([one.get(name) for one in found]) for name in names)]
                )
        if chance is not None:
            lines.append([Cell("random vectors"), *(_mean_cell([chance.get(name)]) for name in names)])
            lines.append([Cell("one constant vector"), *(Cell("0.00") for _ in range(4)), Cell("–")])
            caption = (
                "Distances between unit vectors of images and reports, means over seeds. They move with the "
                "temperature; a smaller gap is no merit by itself."
            )
            header = [Column("model", "text"), *(Column(title) for title in names.values())]
            yield Table("geometry", "Geometry of embeddings", caption, header, lines, [], True)

    def umap(self) -> Iterator[Figure]:
        """Yield the counterpart of Figure 2, if UMAP is installed: studies with one of four labels alone."""
        from rightlung.pages.points import umap_figure

        labels = self.found.prepared.targets.labels
        for name in self._embedded():
            found, expert = Embedded.read(self.found.folder / "measures" / name / EMBEDDINGS)
            groups = {study: group for study in found.studies if (group := group_of(labels[study].findings))}
            kept = [
                place for place, study in enumerate(found.studies) if study in (expert or groups) and study in groups
            ]
            studies = [found.studies[place] for place in kept]
            vectors = {"images": found.images[kept], "reports": found.texts[kept]}
            if expert:
                vectors["expert images"] = np.array([expert[study] for study in studies])
            with suppress(InputError):  # UMAP is not installed, or there are too few studies: see `missing`
                yield umap_figure(f"umap-{name}", f"Figure 2: {self.label(name)}", vectors,
                                  [groups[study] for study in studies], note=UMAP_NOTE)  # fmt: skip

    def _embedded(self) -> list[str]:
        return [name for name in EMBEDDED if (self.found.folder / "measures" / name / EMBEDDINGS).is_file()]


def _mean_cell(values: Sequence[float | None]) -> Cell:
    there = [value for value in values if value is not None and not math.isnan(value)]
    return Cell(f"{sum(there) / len(there):.2f}", value=there) if there else Cell("–")
