"""Zero-shot classification by prompts of your own: any model that embeds images and texts becomes a classifier.

As in eCLIP (supp. A.4), a class is the mean embedding of its prompts, and an image's score is the dot product with it.
A score depends on its image alone: nothing is standardised over a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core import Image, InputError
from rightlung.core.errors import check_known
from rightlung.lexicon import canonical_finding, finding, positive_prompts, prompt
from rightlung.models.base import Embedder
from rightlung.scoring.retrieval import unit_vectors
from rightlung.scoring.text_retrieval import NORMALISATIONS

Ensemble = Literal["lexicon", "single", "composed"]
ENSEMBLES: tuple[Ensemble, ...] = ("lexicon", "single", "composed")
SEVERITIES = ("", "mild", "moderate", "severe", "subtle", "new", "worsening")


def prompt_ensemble(
    findings: Sequence[str], kind: Ensemble = "lexicon", unlike: Iterable[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Return prompts for each finding.

    ``lexicon``: the positive prompts of the lexicon; ``single``: one for each; ``composed``: severity × finding × side.
    Prompts with the words of a text in ``unlike`` are left out, so that no prompt is a sentence of training reports.
    """
    check_known("ensemble", kind, ENSEMBLES)
    same = NORMALISATIONS["words"]
    known = set(map(same, unlike))
    found: dict[str, tuple[str, ...]] = {}
    for name in findings:
        texts = [text for text in _prompts(name, kind) if same(text) not in known]
        if not texts:
            raise InputError(f"every prompt of the ensemble {kind!r} for {name!r} is among the texts to be unlike")
        found[name] = tuple(texts)
    return found


def _prompts(name: str, kind: Ensemble) -> Sequence[str]:
    if kind == "lexicon":
        return positive_prompts(name)
    normal = finding(name).name == "no finding"
    if kind == "single":
        return [f"a chest x-ray of a patient with {'no finding' if normal else prompt(name)}"]
    if normal:
        return positive_prompts(name)
    sided = [prompt(name), *(prompt(name, side=side) for side in finding(name).sides)]
    return list(dict.fromkeys(f"{severity} {text}".strip() for severity in SEVERITIES for text in sided))


class PromptClassifier:
    """Scores findings by the dot product of an image with the mean embedding of the finding's prompts.

    With ``mean="unit"``, the mean is divided by its length, as `DualEncoder.encode_prompts` does; the paper does not.
    With ``image`` (dimension,), this vector stands for every image: what the prompts alone prefer.
    """

    def __init__(
        self,
        embedder: Any,
        prompts: Mapping[str, Sequence[str]],
        mean: Literal["plain", "unit"] = "plain",
        image: ArrayLike | None = None,
    ) -> None:
        if not isinstance(embedder, Embedder):
            raise InputError(f"prompts need encode_image and encode_text, which a {type(embedder).__name__} lacks")
        check_known("mean", mean, ("plain", "unit"))
        if not prompts or not all(prompts.values()):
            raise InputError("every class needs at least one prompt")
        self.embedder: Any = embedder
        self.findings = tuple(prompts)
        self._place = {canonical_finding(name): place for place, name in enumerate(prompts)}
        vectors = [unit_vectors(embedder.encode_text(list(texts))).mean(axis=0) for texts in prompts.values()]
        self.classes = unit_vectors(vectors) if mean == "unit" else np.array(vectors)
        self.image = None if image is None else unit_vectors([image])[0]

    def knows(self, finding: str) -> bool:
        """Return whether the finding has prompts."""
        return canonical_finding(finding) in self._place

    def classify(
        self, images: Sequence[Image], findings: Sequence[str], boxes: None = None, multiclass: bool = False
    ) -> NDArray[np.float32]:
        """Return scores (images, findings), NaN for a finding without prompts; ``multiclass`` changes nothing."""
        if boxes is not None:
            raise InputError("prompts are compared with whole images, not with boxes")
        if self.image is None:
            vectors = unit_vectors(self.embedder.encode_image(list(images)))
        else:
            vectors = np.repeat(self.image[None], len(images), axis=0)
        scores = (vectors @ self.classes.T).astype(np.float32)
        found = np.full((len(images), len(findings)), np.nan, np.float32)
        for column, name in enumerate(findings):
            if self.knows(name):
                found[:, column] = scores[:, self._place[canonical_finding(name)]]
        return found
