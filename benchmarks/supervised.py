"""A small training loop for the supervised baseline: data held as tensors on the device, readable from top to bottom.

AdamW with a cosine schedule after a warm-up, binary cross-entropy over the known labels, an exponential moving average
of the weights as the result, bfloat16 on a GPU. Where masks are given, the logit of every position also learns whether
the finding covers it; with pooling by log-sum-exp both say the same thing.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.nn.functional import adaptive_avg_pool2d, binary_cross_entropy_with_logits

from rightlung.models.classifier.network import ResidualNetwork
from rightlung.models.preprocessing import standardise
from rightlung.training.augmentation import Augmentation, ImageChanges, apply_changes, make_changes, move_masks


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Training images with what is known of them, all on one device.

    ``images`` (n, size, size) uint8; ``labels`` (n, k) float, 1, 0 or NaN for unknown; ``masks`` (n, k, rows, cols)
    uint8, the share of each cell that the finding covers in 255ths, or None.
    """

    images: torch.Tensor
    labels: torch.Tensor
    masks: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How to train."""

    steps: int
    batch_size: int = 64
    rate: float = 1e-3
    weight_decay: float = 0.05
    warm_up: float = 0.05
    """Share of the steps over which the learning rate rises."""
    averaging: float = 0.998
    """Decay of the moving average of the weights."""
    mask_weight: float = 1.0
    """Of the loss of positions, where masks are given."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    seed: int = 0
    beside_batch: int = 0
    """Images of the other data that each batch has besides, where other data are given."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The averaged network, and how the training went."""

    network: ResidualNetwork
    steps: int
    seconds: float
    losses: tuple[float, ...]
    """Mean losses of up to twenty stretches of equal length."""


def label_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy over the known labels, (n, k) each; 0 where none is known."""
    known = ~torch.isnan(labels)
    losses = binary_cross_entropy_with_logits(logits.float(), labels.nan_to_num(), reduction="none")
    return (losses * known).sum() / known.sum().clamp_min(1)


def position_loss(position_logits: torch.Tensor, masks: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of every position (n, k, rows, cols) with the share of it that is covered; unknown labels left out.

    Covered and uncovered positions weigh the same within each label of the batch: a nodule covers one in two hundred.
    """
    known = (~torch.isnan(labels))[:, :, None, None].float()
    losses = binary_cross_entropy_with_logits(position_logits.float(), masks, reduction="none") * known
    covered, free = masks * known, (1 - masks) * known
    inside = (losses * covered).sum(dim=(0, 2, 3)) / covered.sum(dim=(0, 2, 3)).clamp_min(1.0)
    outside = (losses * free).sum(dim=(0, 2, 3)) / free.sum(dim=(0, 2, 3)).clamp_min(1.0)
    return (inside + outside).mean() / 2


def train(
    network: ResidualNetwork,
    data: TrainingData,
    settings: TrainingSettings,
    *,
    beside: TrainingData | None = None,
    stop_at: float = math.inf,
    watch: Callable[[int, ResidualNetwork], None] | None = None,
    watch_every: int = 0,
) -> Trained:
    """Train ``network`` in place for a number of steps and return the average of its weights as another network.

    ``beside`` are other data of the same labels, of which every batch gets some, too; either may lack masks.
    ``stop_at`` (a time of `time.monotonic`) ends it early; the step count of the result says so. ``watch`` is shown the
    averaged network every ``watch_every`` steps.
    """
    device = data.images.device
    on_gpu = device.type == "cuda"
    network = network.to(device).train()
    if on_gpu:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the stubs lack it
    averaged = copy.deepcopy(network).eval()
    followers, leaders = _floating(averaged), _floating(network)
    optimiser = torch.optim.AdamW(_groups(network, settings.weight_decay), lr=settings.rate, fused=on_gpu)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, settings))
    generator = torch.Generator(device).manual_seed(settings.seed)
    order = torch.Generator().manual_seed(settings.seed)
    decks = [_Deck(data, settings.batch_size, order)]
    if beside is not None and settings.beside_batch:
        decks.append(_Deck(beside, settings.beside_batch, order))
    losses: list[torch.Tensor] = []
    start = time.monotonic()
    for step in range(settings.steps):
        if time.monotonic() > stop_at:
            break
        squares, labels, masks, located = _together([deck.draw() for deck in decks])
        changes = _draw_changes(squares.shape, settings.augmentation, generator)
        masks = None if masks is None else move_masks(masks, changes)
        images = standardise(apply_changes(squares, changes))
        if on_gpu:
            images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            position_logits = network.position_logits(network.features(images))
            loss = label_loss(network.pool(position_logits), labels)
            if masks is not None and settings.mask_weight > 0:
                grid = (position_logits.shape[2], position_logits.shape[3])
                of_cells = adaptive_avg_pool2d(masks, grid).clamp(0, 1)
                loss = loss + settings.mask_weight * position_loss(position_logits, of_cells, located)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        with torch.no_grad():  # a short memory at first, so that the first weights do not linger
            torch._foreach_lerp_(followers, leaders, 1 - min(settings.averaging, (step + 1) / (step + 10)))
        losses.append(loss.detach())
        if watch is not None and watch_every and (step + 1) % watch_every == 0:
            watch(step + 1, averaged)
    history = torch.stack(losses).float().cpu() if losses else torch.zeros(0)  # waits for the device, too
    seconds = time.monotonic() - start
    stretches = history.chunk(20) if len(history) else ()
    return Trained(averaged, len(losses), seconds, tuple(float(stretch.mean()) for stretch in stretches))


def _draw_changes(size: torch.Size, settings: Augmentation, generator: torch.Generator) -> ImageChanges:
    """Draw changes for images of ``size`` (n, 1, h, w) on the generator's device."""

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.rand(size[0], *shape, generator=generator, device=generator.device) * (high - low) + low

    return make_changes(settings, uniform, lambda: torch.randn(*size, generator=generator, device=generator.device))


def predict(network: ResidualNetwork, images: torch.Tensor, batch_size: int = 256) -> torch.Tensor:
    """Probabilities (n, k) on the CPU for images (n, size, size) uint8, in single precision."""
    network = network.eval()
    parts = []
    with torch.no_grad():
        for batch in torch.split(images, batch_size):
            parts.append(network(standardise(batch[:, None].float() / 255)).float().sigmoid().cpu())
    return torch.cat(parts)


@torch.no_grad()
def adapt_statistics(network: ResidualNetwork, images: torch.Tensor, batch_size: int = 256) -> ResidualNetwork:
    """Return a copy whose batch norms have the statistics of these images (n, size, size) uint8; weights stay.

    Adaptation to another domain without labels (Li et al., *Revisiting Batch Normalization For Practical Domain
    Adaptation*, 2016). Networks without batch norms come back as they are.
    """
    adapted = copy.deepcopy(network)
    norms = [module for module in adapted.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over batches
        norm.train()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0)).to(images.device)
    for chosen in torch.split(order, batch_size):
        adapted.features(standardise(images[chosen][:, None].float() / 255))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return adapted.eval()


def start_at_prevalence(network: ResidualNetwork, labels: torch.Tensor) -> None:
    """Set the classifier's bias to the logits of how frequent the known labels (n, k) are: no steps spent on that."""
    frequency = torch.nanmean(labels.float(), dim=0).nan_to_num(0.5).clamp(0.01, 0.99)
    assert network.classifier.bias is not None
    with torch.no_grad():
        network.classifier.bias.copy_(torch.logit(frequency))


class _Deck:
    """Data dealt in batches, each image once before any comes again."""

    def __init__(self, data: TrainingData, batch_size: int, order: torch.Generator) -> None:
        self.data, self.order = data, order
        self.batch_size = min(batch_size, len(data))
        self.waiting = torch.zeros(0, dtype=torch.long, device=data.images.device)

    def draw(self) -> TrainingData:
        """Return the next batch."""
        if len(self.waiting) < self.batch_size:
            shuffled = torch.randperm(len(self.data), generator=self.order).to(self.waiting.device)
            self.waiting = torch.cat([self.waiting, shuffled])
        chosen, self.waiting = self.waiting[: self.batch_size], self.waiting[self.batch_size :]
        masks = None if self.data.masks is None else self.data.masks[chosen]
        return TrainingData(self.data.images[chosen], self.data.labels[chosen], masks)


def _together(
    batches: list[TrainingData],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Images (n, 1, h, w) in 0–1, labels, masks in 0–1, and the labels that have a mask (NaN for those without)."""
    images = torch.cat([batch.images for batch in batches])[:, None].float() / 255
    labels = torch.cat([batch.labels for batch in batches])
    grid = next((batch.masks.shape[2:] for batch in batches if batch.masks is not None), None)
    if grid is None:
        return images, labels, None, labels
    masks, located = [], []
    for batch in batches:
        empty = torch.zeros(*batch.labels.shape, *grid, device=labels.device)
        masks.append(empty if batch.masks is None else batch.masks.float() / 255)
        located.append(torch.full_like(batch.labels, math.nan) if batch.masks is None else batch.labels)
    return images, labels, torch.cat(masks), torch.cat(located)


def _rate(step: int, settings: TrainingSettings) -> float:
    rising = max(1, round(settings.warm_up * settings.steps))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - rising) / max(1, settings.steps - rising))))


def _groups(network: ResidualNetwork, weight_decay: float) -> list[dict[str, object]]:
    """Norms and biases do not decay."""
    weights = [value for value in network.parameters() if value.ndim > 1]
    others = [value for value in network.parameters() if value.ndim <= 1]
    return [{"params": weights, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def _floating(network: ResidualNetwork) -> list[torch.Tensor]:
    """Weights and running statistics, the tensors themselves; running statistics are averaged like weights."""
    return [value for value in network.state_dict().values() if value.is_floating_point()]
