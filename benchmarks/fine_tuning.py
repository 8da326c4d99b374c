"""What fine-tuning does: a model before and after, on your pairs and on synthetic studies.

    rightlung train fine-tune --out runs/mine --set 'data.train[0].source=SOURCE?split=train' …
    python benchmarks/fine_tuning.py 'SOURCE?split=val' starter runs/mine/model

For every sentence of a report: is its own image more similar to it (global similarity) than the image of another
patient? The share of sentences for which it is (ties count half) has chance 0.5, which is also what a model has that
looks at the sentence alone. For every finding of 300 synthetic studies: does the map's maximum lie on it (pointing)?
Intervals are bootstrap intervals over patients, differences are paired.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

import rightlung
from rightlung.core import Study
from rightlung.models.base import Grounder, Matcher
from rightlung.results.estimator import Estimator
from rightlung.scoring.localisation import score

PHANTOMS = "phantom?count=300&seed=29"
AT_ONCE = 16


def own_image_wins(model: Matcher, studies: list[Study], texts: list[str], of: list[int]) -> NDArray[np.float64]:
    """Return for each text whether its own image is more similar than another patient's: 1, 0 or 0.5."""
    images = [study.image for study in studies]
    patients = [study.patient or study.id for study in studies]
    others = [next(k for k in range(i + 1, i + len(studies)) if patients[k % len(studies)] != patients[i])
              % len(studies) for i in of]  # fmt: skip
    rows = [model.similarity(images[begin : begin + AT_ONCE], texts) for begin in range(0, len(images), AT_ONCE)]
    table = np.concatenate([np.asarray(row.global_similarity) for row in rows])
    places = np.arange(len(texts))
    own, other = table[of, places], table[others, places]
    return np.asarray((own > other) + 0.5 * (own == other), np.float64)


def pointing(model: Grounder, source: str) -> tuple[list[str], NDArray[np.float64]]:
    """Return the patient of each located phrase, and whether the map's maximum lies in its mask."""
    patients, found = [], []
    for study in rightlung.open_source(source):
        phrases = [phrase for phrase in study.phrases if phrase.mask is not None]
        answers = model.ground([study.image] * len(phrases), phrases)
        for phrase, answer in zip(phrases, answers, strict=True):
            assert phrase.mask is not None
            assert answer.heatmap is not None
            mask = phrase.mask.pixels
            found.append(
                score(answer.heatmap.to_size(mask.shape)[None], mask[None], metrics=["pointing"])["pointing"][0]
            )
            patients.append(study.patient or study.id)
    return patients, np.array(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="pairs that neither model has been trained on")
    parser.add_argument("models", nargs=2, help="the model before and after")
    parser.add_argument("--phantoms", default=PHANTOMS)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    studies = list(rightlung.open_source(given.source))
    texts, of = [], []
    for number, study in enumerate(studies):
        for phrase in study.phrases:
            texts.append(phrase.text)
            of.append(number)
    patients = [studies[number].patient or studies[number].id for number in of]
    models = [rightlung.load(name).to(given.device) for name in given.models]
    wins = [own_image_wins(model, studies, texts, of) for model in models]
    pointed = [pointing(model, given.phantoms) for model in models]
    print(f"| | n | {given.models[0]} | {given.models[1]} | difference |\n| --- | ---: | ---: | ---: | ---: |")
    for title, clusters, columns in (
        ("own image more similar", patients, wins),
        ("pointing, synthetic studies", pointed[0][0], [one for _, one in pointed]),
    ):
        estimator = Estimator(clusters)
        before, after = estimator.means(columns)
        change = estimator.difference(columns[1], columns[0])
        cells = [f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})" for one in (before, after)]
        cells.append(f"{change.value:+.3f} ({change.low:+.3f} to {change.high:+.3f})")
        print(f"| {title} | {len(clusters):,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
