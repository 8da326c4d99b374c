"""Matching predicted boxes with target boxes, and the losses of matched boxes (ChEX, supp. D.2, Eq. 4 and 5)."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import binary_cross_entropy

from rightlung.models.boxes import generalized_iou, to_corners

L1_WEIGHT, GIOU_WEIGHT = 5.0, 2.0
"""Weights of the two terms of the box loss (Eq. 4)."""
MAX_ORDERS = 1000
"""Assignments are tried in all orders up to so many."""


def box_loss(boxes: Tensor, others: Tensor) -> Tensor:
    """Return 5 L1 + 2 (1 - gIoU) of boxes (..., 4) with others, given by centre and size (Eq. 4).

    The paper prints gIoU as if it were a loss; it is larger for better boxes.
    """
    l1 = (boxes - others).abs().sum(-1)
    return L1_WEIGHT * l1 + GIOU_WEIGHT * (1 - generalized_iou(to_corners(boxes), to_corners(others)))


def matching_cost(boxes: Tensor, targets: Tensor, probabilities: Tensor, scores: Tensor) -> Tensor:
    """Return the cost (..., m, t) of matching m predicted boxes with t targets (Eq. 5).

    The class probability and three times the box score, both (..., m), are subtracted: a box that is believed should be
    matched. The paper adds them to a cost that is minimised.
    """
    cost = box_loss(boxes[..., :, None, :], targets[..., None, :, :])
    return cost - (probabilities + 3 * scores)[..., None]


def match_boxes(costs: Tensor) -> tuple[Tensor, Tensor]:
    """Match every one of m predicted boxes with a target, for k prompts at once, by the costs (k, m, t) of the pairs.

    Hungarian matching is repeated with the boxes that are left over, and with all targets, until none is left. Return
    the target (k, m) of each box, and whether it was matched in the first round. (The released code solves a single
    assignment with copies of the targets, in which the box that counts as matched first is arbitrary.)
    """
    count, boxes, targets = costs.shape
    target = torch.zeros(count, boxes, dtype=torch.long, device=costs.device)
    first = torch.zeros(count, boxes, dtype=torch.bool, device=costs.device)
    left = torch.arange(boxes, device=costs.device).expand(count, -1)
    while left.shape[1]:
        rows, columns = assign(costs.gather(1, left[..., None].expand(-1, -1, targets)))
        target.scatter_(1, left.gather(1, rows), columns)
        if left.shape[1] == boxes:
            first.scatter_(1, left.gather(1, rows), True)
        taken = torch.zeros_like(left).scatter_(1, rows, 1)
        left = left.gather(1, taken.argsort(dim=1, stable=True)[:, : left.shape[1] - rows.shape[1]])
    return target, first


def assign(costs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows and columns (k, min(r, c)) of the assignments of lowest cost, for costs (k, r, c).

    Few rows and columns, as of the boxes of a prompt, are tried in all orders on the device; many are left to SciPy.
    """
    count, rows, columns = costs.shape
    pairs = min(rows, columns)
    fixed = torch.arange(pairs, device=costs.device)
    if math.perm(max(rows, columns), pairs) <= MAX_ORDERS:
        orders = torch.tensor(list(permutations(range(max(rows, columns)), pairs)), device=costs.device)
        listed = costs[:, orders, fixed] if rows >= columns else costs[:, fixed, orders]
        best = orders[listed.sum(-1).argmin(1)]
        return (best, fixed.expand(count, -1)) if rows >= columns else (fixed.expand(count, -1), best)
    found = np.array([linear_sum_assignment(one) for one in costs.detach().cpu().numpy()])
    return tuple(torch.from_numpy(found).to(costs.device).unbind(1))  # type: ignore[return-value]


def focal_loss(scores: Tensor, targets: Tensor, known: Tensor, gamma: float = 2.0) -> Tensor:
    """Return the focal loss (n, q, m) of scores in 0 to 1, with an alpha for each prompt (Lin et al., 2017).

    Alpha is the share of the positives' weight if positives and negatives of a prompt weigh inversely to their
    frequency in the batch, both counted once more than they occur. ``known`` (n, q) bool are those to count.
    """
    total = known.sum(0) * targets.shape[2]
    positives = (targets * known[..., None]).sum((0, 2))
    of_positive, of_negative = (total + 1) / (positives + 1), (total + 1) / (total - positives + 1)
    alpha = (of_positive / (of_positive + of_negative))[None, :, None]
    scores = scores.float().clamp(1e-6, 1 - 1e-6)
    with torch.autocast(scores.device.type, enabled=False):
        entropy = binary_cross_entropy(scores, targets.float(), reduction="none")
    of_truth = torch.where(targets.bool(), scores, 1 - scores)
    return torch.where(targets.bool(), alpha, 1 - alpha) * (1 - of_truth) ** gamma * entropy
