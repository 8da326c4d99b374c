"""Speed of scoring reports, next to calling pycocoevalcap's scorers one by one, and a check that both agree.

    python benchmarks/score_reports.py [GENERATED REFERENCES] [--count 300]

Without files, phantom reports are scored against those of other phantoms. Texts are cleaned as R2Gen does; METEOR is
left out where there is no Java. Ours is `measure` under the protocol ``whole`` restricted to the same measures.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence

import numpy as np
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge

from rightlung.audit.report_files import paired, read_reports
from rightlung.measuring.texts import bleu_columns, cider_columns, meteor_columns, rouge_columns
from rightlung.scoring.language import clean_words, corpus_bleu, corpus_meteor
from rightlung.studies import open_source


def texts_of(files: Sequence[str], count: int) -> tuple[list[str], list[str]]:
    """Return generated reports and references: of two files, or of phantoms."""
    if files:
        pairs = paired(*map(read_reports, files))
        return [one.text for one in pairs.generated.values()], [one.text for one in pairs.references.values()]
    reports = [one.report.text for one in open_source(f"phantom?count={2 * count}&seed=7") if one.report is not None]
    return reports[:count], reports[count : 2 * count]


def reference(answers: list[str], references: list[str], java: bool) -> dict[str, float]:
    """Return the scores of pycocoevalcap, one scorer after another."""
    said, true = ({n: [" ".join(clean_words(text))] for n, text in enumerate(texts)} for texts in (answers, references))
    bleu = Bleu(4).compute_score(true, said, verbose=0)[0]
    found = {f"bleu_{n}": value for n, value in enumerate(bleu, start=1)}
    found |= {"rouge_l": Rouge().compute_score(true, said)[0], "cider": Cider().compute_score(true, said)[0]}
    return found | ({"meteor": Meteor().compute_score(true, said)[0]} if java else {})


def ours(answers: list[str], references: list[str], java: bool) -> dict[str, float]:
    """Return our scores from the statistics of each text, which the bootstrap resamples."""
    once = np.ones((1, len(answers)))
    counted = {name: np.array(values) for name, values in bleu_columns(answers, references, "whole").items()}
    found = {f"bleu_{n}": float(corpus_bleu(counted, once, n)[0]) for n in range(1, 5)}
    found["rouge_l"] = float(np.mean(rouge_columns(answers, references, "whole")["rouge_l"]))
    found["cider"] = float(np.mean(cider_columns(answers, references, "whole")["cider"]))
    if java:
        columns = {name: np.array(values) for name, values in meteor_columns(answers, references, "whole").items()}
        found["meteor"] = float(corpus_meteor(columns, once)[0])
    return found


def main() -> None:
    """Compare values and times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--count", type=int, default=300)
    given = parser.parse_args()
    answers, references = texts_of(given.files, given.count)
    java = shutil.which("java") is not None
    values, seconds = [], []
    for function in (reference, ours):
        begun = time.perf_counter()
        values.append(function(answers, references, java))
        seconds.append(time.perf_counter() - begun)
    print(f"{len(answers)} reports{'' if java else ', without METEOR: no Java'}")
    for name, value in values[0].items():
        print(f"  {name:8} pycocoevalcap {value:.6f}  ours {values[1][name]:.6f}")
    print(f"  seconds: pycocoevalcap {seconds[0]:.2f}, ours {seconds[1]:.2f}; ratio {seconds[1] / seconds[0]:.2f}")
    assert all(abs(value - values[1][name]) < 1e-6 for name, value in values[0].items())


if __name__ == "__main__":
    main()
