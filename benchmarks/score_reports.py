"""Speed of scoring reports, next to calling pycocoevalcap's scorers one by one, and a check that both agree.

    python benchmarks/score_reports.py [GENERATED REFERENCES] [--count 300] [--command]

Without files, phantom reports are scored against those of other phantoms. Texts are cleaned as R2Gen does; METEOR is
left out where there is no Java. Ours is `measure` under the protocol ``whole`` restricted to the same measures; with
``--command`` it is all that ``rightlung score-reports`` does, next to the scorers for the same texts and protocols.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge

from rightlung.audit.report_files import paired, read_reports
from rightlung.audit.report_scores import WORD_PROTOCOLS, ReportScoring, score_reports
from rightlung.measuring.texts import bleu_columns, cider_columns, meteor_columns, rouge_columns
from rightlung.scoring.language import clean_words, corpus_bleu, token_rule
from rightlung.scoring.meteor import corpus_meteor
from rightlung.studies import open_source


def drawn(folder: Path, count: int) -> list[str]:
    """Write reports of phantoms as generated reports, and those of others as references."""
    reports = [one.report.text for one in open_source(f"phantom?count={2 * count}&seed=7") if one.report is not None]
    files = [folder / name for name in ("generated.csv", "references.csv")]
    for number, file in enumerate(files):
        with file.open("w", newline="") as opened:
            some = reports[number * count : (number + 1) * count]
            csv.writer(opened).writerows([("study", "report"), *((f"s{n}", text) for n, text in enumerate(some))])
    return list(map(str, files))


def reference(answers: list[str], references: list[str], java: bool) -> dict[str, float]:
    """Return the scores of pycocoevalcap, one scorer after another, under the protocol ``whole``."""
    return coco(list(map(clean_words, answers)), list(map(clean_words, references)), java)


def coco(answers: list[list[str]], references: list[list[str]], java: bool) -> dict[str, float]:
    """Return the scores of pycocoevalcap, one scorer after another."""
    said, true = ({n: [" ".join(words)] for n, words in enumerate(texts)} for texts in (answers, references))
    bleu = Bleu(4).compute_score(true, said, verbose=0)[0]
    found = {f"bleu_{n}": value for n, value in enumerate(bleu, start=1)}
    found |= {"rouge_l": Rouge().compute_score(true, said)[0], "cider": Cider().compute_score(true, said)[0]}
    return found | ({"meteor": meteor().compute_score(true, said)[0]} if java else {})


@cache
def meteor() -> Meteor:
    """Return a METEOR, whose Java program takes seconds to start."""
    return Meteor()


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


def whole_command(files: Sequence[str], java: bool) -> tuple[float, float, int]:
    """Return the seconds of the scorers one by one and of ``rightlung score-reports``, and the number of reports.

    Both score the generated reports and each image-blind baseline by all protocols of words; the command also labels
    them, draws the intervals, checks the measures, and writes the page.
    """
    scoring = ReportScoring(paired(*map(read_reports, files)), (files[0], files[1]))
    answers, known = scoring.answers(), {study: one.text for study, one in scoring.reports.references.items()}
    begun = time.perf_counter()
    for part in scoring.parts:
        if part.name in WORD_PROTOCOLS:
            split, (of_answer, of_reference) = token_rule(part.protocol.text), scoring.read_by(part)
            for texts in answers.values():
                pairs = [(of_answer(text), of_reference(known[study])) for study, text in texts.items()]
                coco([split(said) for said, _ in pairs], [split(true) for _, true in pairs], java)
    seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    with TemporaryDirectory() as out:
        score_reports(scoring, out)
    return seconds, time.perf_counter() - begun, len(known)


def main() -> None:
    """Compare values and times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--command", action="store_true")
    given = parser.parse_args()
    java = shutil.which("java") is not None
    without = "" if java else ", without METEOR: no Java"
    with TemporaryDirectory() as folder:
        files = given.files or drawn(Path(folder), given.count)
        if given.command:
            theirs, own, count = whole_command(files, java)
            print(f"{count} reports, four protocols, with the image-blind rows{without}")
            print(f"  seconds: pycocoevalcap's scorers {theirs:.0f}, score-reports {own:.0f}; ratio {own / theirs:.2f}")
            return
        pairs = paired(*map(read_reports, files))
        answers, references = ([one.text for one in some.values()] for some in (pairs.generated, pairs.references))
    values, seconds = [], []
    for function in (reference, ours):
        begun = time.perf_counter()
        values.append(function(answers, references, java))
        seconds.append(time.perf_counter() - begun)
    print(f"{len(answers)} reports{without}")
    for name, value in values[0].items():
        print(f"  {name:8} pycocoevalcap {value:.6f}  ours {values[1][name]:.6f}")
    print(f"  seconds: pycocoevalcap {seconds[0]:.2f}, ours {seconds[1]:.2f}; ratio {seconds[1] / seconds[0]:.2f}")
    assert all(abs(value - values[1][name]) < 1e-6 for name, value in values[0].items())


if __name__ == "__main__":
    main()
