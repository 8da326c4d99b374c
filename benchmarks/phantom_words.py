"""The phantom's reports: how many different sentences, and whether words about one finding give another away.

A model of word n-grams guesses each finding from the sentences that are about anything else. Beside it stands what the
findings and devices that those sentences speak of say by themselves, since these do go together (oedema with effusions,
a chest tube with a pneumothorax): the words leak only where they say more than that.

    python benchmarks/phantom_words.py [--studies 50000] [--leak-studies 8000]
"""

from __future__ import annotations

import argparse
import re

import numpy as np
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from rightlung.phantom.config import FINDING_ORDER, default_config
from rightlung.phantom.report import Statement, plain_style, write_report
from rightlung.phantom.sampling import sample_scene
from rightlung.phantom.scene import Scene


def distinct(studies: int, seed: int) -> tuple[int, int]:
    """Return how many sentences, and how many different ones without typos, numbers, punctuation and case."""
    config = plain_style(default_config())
    total, seen = 0, set()
    for index in range(studies):
        for statement in write_report(sample_scene(config, seed, index), config, seed):
            total += 1
            seen.add(" ".join(re.sub(r"[^a-z ]", " ", statement.text.lower()).split()))
    return total, len(seen)


def guess(features: object, labels: list[bool]) -> float:
    """Return the AUROC on the second half of a model fitted on the first."""
    half = len(labels) // 2
    model = LogisticRegression(solver="liblinear", C=0.02).fit(features[:half], labels[:half])  # type: ignore[index]
    return float(roc_auc_score(labels[half:], model.decision_function(features[half:])))  # type: ignore[index]


def leaks(told: list[tuple[Scene, list[Statement]]], finding: str) -> tuple[float, float]:
    """Return how well n-grams, and how well mentions, of everything else guess a finding."""
    texts, mentions, labels = [], [], []
    for scene, statements in told:
        others = [
            statement
            for statement in statements
            if finding not in statement.topics
            and not any(scene.lesions[index].finding == finding for index in statement.lesions)
        ]
        texts.append(" . ".join(statement.text.lower() for statement in others))
        mentioned = {f"{name} {polarity}": 1 for other in others for name, polarity in other.findings.items()}
        mentioned |= {scene.devices[index].kind: 1 for other in others for index in other.devices}
        mentions.append(mentioned)
        labels.append(any(lesion.finding == finding for lesion in scene.lesions))
    grams = CountVectorizer(ngram_range=(1, 2), min_df=5, binary=True, token_pattern=r"[a-z.;]+").fit_transform(texts)
    return guess(grams, labels), guess(DictVectorizer().fit_transform(mentions), labels)


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=50_000)
    parser.add_argument("--leak-studies", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    total, different = distinct(arguments.studies, arguments.seed)
    print(f"{different:,} different sentences among {total:,} in {arguments.studies:,} studies")
    config = default_config()
    scenes = [sample_scene(config, arguments.seed, index) for index in range(arguments.leak_studies)]
    told = [(scene, write_report(scene, config, arguments.seed)) for scene in scenes]
    differences = []
    for finding in FINDING_ORDER:
        words, mentions = leaks(told, finding)
        differences.append(words - mentions)
        print(f"  {finding:<28} words {words:.3f}  mentions {mentions:.3f}  difference {words - mentions:+.3f}")
    print(f"  mean difference {np.mean(differences):+.3f}, largest {max(differences):+.3f}")


if __name__ == "__main__":
    main()
