"""FITA's text feature refiner (TFR): a BERT that reads the words of a report as they are written.

It is causal from its pre-training on: the state of a word depends on it and on the words before it, so that training
and writing see the same. As the paper words it (the whole report in training, a beginning in inference), the state of a
word would hold the words that come next, which the decoder has to predict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rightlung.models.encoders.pretrained import build_text_model
from rightlung.models.encoders.tokenizer import Tokens
from rightlung.models.fita.config import TextRefinerConfig
from rightlung.models.fita.losses import classification_loss, output_count, report_labels, triplet_loss
from rightlung.models.fita.triplets import Triplet, draw_triplets
from rightlung.models.fita.vocabulary import ReportVocabulary


class TextRefiner(nn.Module):
    """The BERT, and the heads that it is pre-trained with. It reads words of the decoder's vocabulary."""

    pieces: Tensor

    def __init__(self, config: TextRefinerConfig, vocabulary: ReportVocabulary) -> None:
        super().__init__()
        if config.pretrained is not None or config.pieces_per_word == 1:
            pieces = vocabulary.pieces(config.pretrained)
        else:  # a saved model, whose weights hold them
            pieces = torch.zeros(len(vocabulary), config.pieces_per_word, dtype=torch.long)
        self.register_buffer("pieces", pieces)
        self.causal = config.causal
        self.bert: Any
        self.bert, self.options = build_text_model(
            "bert", {**config.options, **({"is_decoder": True} if config.causal else {})}, config.pretrained,
            "text refiner", vocab_size=int(pieces.max()) + 1, max_position_embeddings=vocabulary.max_length,
        )  # fmt: skip
        self.size, self.positions = int(self.bert.config.hidden_size), int(self.bert.config.max_position_embeddings)
        self.classify = nn.Linear(self.size, output_count(config.uncertain))
        self.embed = nn.Linear(self.size, config.embedding_size)

    def forward(self, ids: Tensor, attention_mask: Tensor, cache: Any = None, done: int = 0) -> Tensor:
        """Return the state of each word (n, t, hidden), that of its last piece.

        ``ids`` and ``attention_mask`` (n, done + t) are all words; the first ``done`` are in the cache.
        """
        spelled = self.pieces[ids]
        real = ((spelled >= 0) & attention_mask[..., None]).flatten(1)
        positions = (real.cumsum(1) - 1).clamp(0, self.positions - 1)
        begin, most = done * spelled.shape[2], spelled.shape[2]
        output = self.bert(
            input_ids=spelled.flatten(1).clamp_min(0)[:, begin:], attention_mask=real.long(),
            position_ids=positions[:, begin:], past_key_values=cache, use_cache=cache is not None,
        )  # fmt: skip
        states = output.last_hidden_state.unflatten(1, (-1, most))
        last = (spelled[:, done:] >= 0).sum(-1).clamp_min(1) - 1
        chosen: Tensor = states.take_along_dim(last[..., None, None].expand(-1, -1, -1, self.size), 2)[:, :, 0]
        return chosen

    def whole(self, tokens: Tokens) -> Tensor:
        """Return the state (n, hidden) of the last token of each text, which has seen the whole text."""
        last = tokens.attention_mask.sum(1) - 1
        states: Tensor = self(tokens.ids, tokens.attention_mask)
        return states[torch.arange(len(last), device=last.device), last]

    def embeddings(self, tokens: Tokens) -> Tensor:
        """Return f(x) of texts, (n, e), of unit length.

        The paper's f is a sigmoid of a linear layer, of a width that it does not give; ours is of unit length instead.
        """
        return normalize(self.embed(self.whole(tokens)).float(), dim=-1)


class TextLosses:
    """The losses of stage 1: Eq. 3 on whole reports, Eq. 4 on triplets of their sentences."""

    def __init__(self, config: TextRefinerConfig, vocabulary: ReportVocabulary) -> None:
        self.config, self.vocabulary = config, vocabulary

    def classification(self, refiner: TextRefiner, reports: Sequence[str], device: torch.device) -> Tensor:
        """Return Eq. 3 of reports; 0 if there is none."""
        tokens = self.vocabulary.encode(reports or ["nothing"]).to(device)
        loss = classification_loss(refiner.classify(refiner.whole(tokens)), self._labels(reports, device))
        return loss if reports else 0.0 * loss

    def _labels(self, reports: Sequence[str], device: torch.device) -> Tensor:
        return report_labels(reports or [""]).to(device)

    def triplet(self, refiner: TextRefiner, reports: Sequence[str], seed: int, device: torch.device) -> Tensor:
        """Return Eq. 4 of triplets of reports; 0 if there is none."""
        triplets = draw_triplets(reports, self.config, seed)
        parts = self._embedded(refiner, triplets or [Triplet("nothing", "nothing", "nothing", "", "")], device)
        loss = triplet_loss(*parts, self.config.margin)
        return loss if triplets else 0.0 * loss

    def accuracy(
        self, refiner: TextRefiner, reports: Sequence[str], seed: int, device: torch.device
    ) -> dict[str, float]:
        """Return, by kind of negative, how often the positive is nearer to the anchor than the negative.

        Measure it on studies that the refiner has not learned from.
        """
        triplets = draw_triplets(reports, self.config, seed)
        if not triplets:
            return {}
        anchors, positives, negatives = self._embedded(refiner, triplets, device)
        right = ((anchors - positives) ** 2).sum(-1) < ((anchors - negatives) ** 2).sum(-1)
        kinds = [one.kind for one in triplets]
        return {
            kind: float(right[[place for place, own in enumerate(kinds) if own == kind]].float().mean())
            for kind in dict.fromkeys(kinds)
        }

    def _embedded(
        self, refiner: TextRefiner, triplets: Sequence[Triplet], device: torch.device
    ) -> tuple[Tensor, Tensor, Tensor]:
        texts = [text for one in triplets for text in (one.anchor, one.positive, one.negative)]
        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        found = refiner.embeddings(self.vocabulary.encode(list(rows)).to(device))
        chosen = found[torch.tensor([rows[text] for text in texts], device=device)].view(len(triplets), 3, -1)
        return chosen[:, 0], chosen[:, 1], chosen[:, 2]
