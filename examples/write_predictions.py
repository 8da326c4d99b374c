"""Write a predictions file without rightlung: two studies, a phrase each, asked as it is and with its side swapped."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

columns: list[str] = ["study", "query", "condition", "phrase", "map", "map_rows", "map_cols"]
rows: list[tuple[object, ...]] = []
for study, phrase in [("s1", "opacity in the left base"), ("s2", "opacity in the left apex")]:
    for condition, asked in [("none", phrase), ("swap-sides", phrase.replace("left", "right"))]:
        heatmap = np.zeros((14, 14), np.float32)  # your model's map of `asked`: the patient's left is the image's right
        heatmap[9 if "base" in asked else 3, 10 if "left" in asked else 3] = 1.0
        rows.append((study, "phrase:0", condition, asked, heatmap.ravel(), 14, 14))

table = pa.table({name: list(values) for name, values in zip(columns, zip(*rows, strict=True), strict=True)})
about = {"rightlung.predictions": "1", "rightlung.source": "manifest:/data/mine", "rightlung.model": "my model"}
pq.write_table(table.replace_schema_metadata(about), sys.argv[1])
