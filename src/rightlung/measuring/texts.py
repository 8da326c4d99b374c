"""Measures of generated text: rows, statistics of each text, and clinical efficacy from labels."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.lexicon.labeller import observations
from rightlung.scoring.clinical import (
    GROUPS,
    Average,
    Measure,
    averaged,
    example_f1,
    label_matrix,
    sided_findings,
)
from rightlung.scoring.language import (
    BLEU_COLUMNS,
    bleu_statistics,
    cider,
    greedy_match,
    rouge_l,
    sentence_bleu,
    token_rule,
)
from rightlung.scoring.meteor import meteor_statistics
from rightlung.scoring.text_retrieval import without_case_and_spaces

if TYPE_CHECKING:
    from rightlung.measuring.targets import StudyLabels

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]
Words = list[list[str]]
_LISTS, _APART = (list, np.ndarray), "uncertain {}"
CHEXBERT, VOCABULARY = "RIGHTLUNG_CHEXBERT", "RIGHTLUNG_BERT_VOCABULARY"
"""Environment variables: CheXbert's checkpoint, and the vocabulary of bert-base-uncased that it needs."""
MODEL_MEASURES: Mapping[str, tuple[str, ...]] = {
    "mpnet": ("bertscore_mpnet_8", "s_emb"),
    "chexbert": ("chexbert_cosine",),
}
"""Measures of reports that need another model, by that model."""
FURTHER_MEASURES = ("sentence_bleu_2", *(name for names in MODEL_MEASURES.values() for name in names))
"""Measures that are added to those of a protocol (eCLIP supp. D). They change no other number, nor its hash."""

COPIED_NEAREST, COPIED_EXEMPLARS = "copied_nearest", "copied_exemplars"
"""Measures that are added for reports from an index (`rightlung.audit.index_answers`)."""


def further_measures() -> tuple[str, ...]:
    """Return those of `FURTHER_MEASURES` whose models are here."""
    from rightlung.models.published.mpnet import find_mpnet

    there = {"mpnet": find_mpnet() is not None, "chexbert": CHEXBERT in os.environ}
    missing = {name for model, names in MODEL_MEASURES.items() if not there[model] for name in names}
    return tuple(name for name in FURTHER_MEASURES if name not in missing)


def text_rows(answer: Mapping[str, Any], labels: StudyLabels) -> Iterator[dict[str, Any]]:
    """Yield a row if there is a reference and the model wrote a report or sentences, or failed."""
    text, error = answer["report"], answer["error"]
    if text is None and answer["sentences"] is not None:
        text = " ".join(sentence["text"] for sentence in answer["sentences"])
    if labels.report is not None and (text is not None or error is not None):
        kind = "report" if labels.kind == "image" else f"sentences of a {labels.kind}"
        row = {"target": "report" if labels.kind == "image" else "sentences", "target_kind": kind}
        if error is not None:
            yield row | {"reason": f"no answer: {error}"}
        else:
            yield row | {"reason": "", "answer_text": text, "reference_text": labels.report}


def _words(answers: Sequence[str], references: Sequence[str], rule: str) -> tuple[Words, Words]:
    """Split texts into words; a generated text that is blank has none, where R2Gen's cleaning leaves a full stop."""
    split = token_rule(rule)
    return [split(text) if text.strip() else [] for text in answers], [split(text) for text in references]


def bleu_columns(answers: Sequence[str], references: Sequence[str], rule: str) -> dict[str, list[float]]:
    """Return the columns of BLEU."""
    rows = [bleu_statistics(*pair) for pair in zip(*_words(answers, references, rule), strict=True)]
    return {name: [row[name] for row in rows] for name in BLEU_COLUMNS}


def rouge_columns(answers: Sequence[str], references: Sequence[str], rule: str) -> dict[str, list[float]]:
    """Return the column of ROUGE-L."""
    return {"rouge_l": rouge_l(*_words(answers, references, rule)).tolist()}


def cider_columns(answers: Sequence[str], references: Sequence[str], rule: str) -> dict[str, list[float]]:
    """Return the column of CIDEr."""
    return {"cider": cider(*_words(answers, references, rule)).tolist()}


def meteor_columns(answers: Sequence[str], references: Sequence[str], rule: str) -> dict[str, list[float]]:
    """Return the columns of METEOR."""
    return {name: v.tolist() for name, v in meteor_statistics(*_words(answers, references, rule)).items()}


def sentence_bleu_columns(answers: Sequence[str], references: Sequence[str], rule: str) -> dict[str, list[float]]:
    """Return the column of sentence BLEU-2, whose words are always by the rule ``cased``."""
    pairs = zip(*_words(answers, references, "cased"), strict=True)
    return {"sentence_bleu_2": [sentence_bleu(*pair, order=2) for pair in pairs]}


def mpnet_columns(answers: Sequence[str], references: Sequence[str], rule: str) -> dict[str, list[float]]:
    """Return the columns of BERTScore and of the cosine of sentence embeddings, by all-mpnet-base-v2."""
    from rightlung.models.published.mpnet import MISSING, find_mpnet, load_mpnet

    if (folder := find_mpnet()) is None:
        raise InputError(MISSING)
    model, pairs = load_mpnet(folder), list(zip(answers, references, strict=True))
    matched = [greedy_match(*map(model.token_embeddings, pair))[2] for pair in pairs]
    cosines = [float(model.embed(answer) @ model.embed(reference)) for answer, reference in pairs]
    return {"bertscore_mpnet_8": matched, "s_emb": cosines}


def chexbert_columns(answers: Sequence[str], references: Sequence[str], rule: str) -> dict[str, list[float]]:
    """Return the column of the cosine of CheXbert's embeddings."""
    from rightlung.models.published.chexbert import load_chexbert

    missing = [name for name in (CHEXBERT, VOCABULARY) if not os.environ.get(name)]
    if missing:
        what = {CHEXBERT: "chexbert.pth", VOCABULARY: "the vocab.txt of bert-base-uncased"}[missing[0]]
        raise InputError(f"the cosine of CheXbert's embeddings needs {what}: set {missing[0]} to its path")
    model = load_chexbert(os.environ[CHEXBERT], os.environ[VOCABULARY])
    one, other = (torch.nn.functional.normalize(model.embed(texts), dim=1) for texts in (answers, references))
    return {"chexbert_cosine": (one * other).sum(dim=1).tolist()}


@lru_cache(maxsize=1 << 15)
def _labelled(text: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return positive and uncertain observations and (finding, side) pairs; references and constants come often."""
    said = observations(text)
    labels, unsure = (tuple(name for name, one in said.items() if one == what) for what in ("positive", "uncertain"))
    return labels, unsure, sided_findings(text)


def label_columns(answers: Sequence[str], references: Sequence[str], rule: str) -> dict[str, list[Any]]:
    """Return positive observations, uncertain ones, and (finding, side) pairs, of which uncertain ones are negative."""
    found: dict[str, list[Any]] = {}
    for name, texts in (("called", answers), ("true", references)):
        read = [_labelled(text) for text in texts]
        for place, what in enumerate(("labels", "uncertain", "pairs")):
            found[f"{what}_{name}"] = [[*one[place]] for one in read]
    return found


def repeat_columns(answers: Sequence[str], references: Sequence[str], rule: str) -> dict[str, list[float]]:
    """Return, of each generated text, one over how often it occurs, and whether it is the most frequent one."""
    texts = [without_case_and_spaces(text) for text in answers]
    counts = Counter(texts)
    most = max(counts, key=counts.__getitem__, default="")
    return {
        "distinct_share": [1 / counts[text] for text in texts],
        "most_frequent_share": [float(text == most) for text in texts],
    }


Uncertain = Literal["zeros", "ones", "apart"]


def _labels(columns: Columns, which: str, uncertain: Uncertain) -> list[list[str] | None]:
    """Return the labels of each row; uncertain ones are left out, are positive, or are labels of their own."""
    positive = columns[f"labels_{which}"]
    if uncertain == "zeros":
        return list(positive)
    named = "{}" if uncertain == "ones" else _APART
    return [
        None if not isinstance(labels, _LISTS) else [*labels, *map(named.format, unsure)]
        for labels, unsure in zip(positive, columns[f"uncertain_{which}"], strict=True)
    ]


def clinical_matrices(
    columns: Columns, *, group: str, uncertain: Uncertain = "zeros", at_least: int = 0
) -> dict[str, NDArray[Any]]:
    """Return who has which label of a group of observations or, for ``pairs``, which (finding, side) pair.

    ``called`` and ``true`` are (rows, labels), and ``there`` says which rows have labels. With ``at_least``, only
    observations with so many positive references among all rows count.
    """
    if group == "pairs":
        called, true = list(columns["pairs_called"]), list(columns["pairs_true"])
    else:
        called, true = (_labels(columns, which, uncertain) for which in ("called", "true"))
    there = [row for row, labels in enumerate(true) if isinstance(labels, _LISTS)]
    said, known = ([column[row] or () for row in there] for column in (_plain(called), _plain(true)))
    names = GROUPS[group] if group in GROUPS else sorted({name for some in (*said, *known) for name in some})
    if uncertain == "apart":
        names = (*names, *map(_APART.format, names))
    if at_least:
        often = Counter(name for some in known for name in some)
        names = tuple(name for name in names if often[name] >= at_least)
    return {"called": label_matrix(said, names), "true": label_matrix(known, names), "there": np.array(there, np.intp)}


def clinical(
    columns: Columns,
    counts: Floats,
    *,
    average: Average | Literal["example"],
    measure: Measure = "f1",
    absent_as_zero: bool = False,
) -> Floats:
    """Return clinical efficacy from `clinical_matrices`."""
    called, true = columns["called"], columns["true"]
    if not called.size:
        return np.full(len(counts), np.nan)
    drawn = counts[:, columns["there"]]
    if average == "example":
        return example_f1(called, true, drawn, measure)
    return averaged(called, true, drawn, average, measure, absent_as_zero)


def _plain(column: Sequence[Any]) -> list[list[str] | None]:
    """Return lists where pandas has arrays."""
    return [list(labels) if isinstance(labels, _LISTS) else None for labels in column]
