"""Ours beside the code that the authors released, with the same weights and inputs, in float32 and evaluation mode.

The expected numbers were computed with github.com/philip-mueller/chex at commit c3f5d78. Weights and inputs are sines,
so that they do not depend on any library's random numbers. Where that code departs from ours, the test says how.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from rightlung.core.settings import read_settings
from rightlung.models.chex.config import ChexConfig, DecoderConfig
from rightlung.models.chex.contrastive import global_contrast, pathology_contrast, region_contrast, sentence_contrast
from rightlung.models.chex.detector import PromptDetector
from rightlung.models.chex.generator import PostDecoder, SentenceGenerator
from rightlung.models.chex.layers import DecoderLayer
from rightlung.models.chex.matching import box_loss, focal_loss, match_boxes, matching_cost
from rightlung.models.roi import gaussian_weights

SIZE, GRID = 8, (4, 4)
SENTENCES = ["a left effusion", "the heart is", "no mass seen"]
DECODER = DecoderConfig(layers=2, heads=2, hidden_size=4 * SIZE)
CONFIG = ChexConfig(dimension=SIZE, detector=DECODER, post_decoder=DECODER, box_std=1 / math.sqrt(2))


def wave(*shape: int, phase: float = 0.0) -> Tensor:
    """Return numbers between -1 and 1 that look random."""
    return torch.sin(torch.arange(math.prod(shape), dtype=torch.float64) * 1.7 + phase).float().reshape(shape)


def unit_wave(*shape: int, phase: float = 0.0) -> Tensor:
    """Return numbers between 0.1 and 0.9."""
    return 0.5 + 0.4 * wave(*shape, phase=phase)


def filled(module: Any) -> Any:
    """Return a module in evaluation mode, its weights set to waves in the order of their names."""
    with torch.no_grad():
        for number, (name, weight) in enumerate(sorted(module.named_parameters())):
            is_scale = weight.ndim == 1 and not name.endswith("bias")
            weight.copy_(0.4 * wave(*weight.shape, phase=number) + (1.0 if is_scale else 0.0))
    return module.eval()


def some(values: Tensor, count: int = 6) -> list[float]:
    """Return some of the values of a tensor, spread over all of it."""
    flat = values.detach().flatten()
    return flat[:: max(1, len(flat) // count)][:count].tolist()


def make_generator() -> SentenceGenerator:
    generator = {"tokenizer": "words", "min_frequency": 1, "options": {"n_embd": 16, "n_layer": 2, "n_head": 2}}
    given = {"dimension": SIZE, "detector": {"heads": 2}, "post_decoder": {"heads": 2}, "prefix": {"hidden_size": 32}}
    config = read_settings(ChexConfig, given | {"generator": generator})
    tokenizer = config.generator.read_tokenizer(config.generator.tokenizer_file(SENTENCES))
    made: SentenceGenerator = filled(SentenceGenerator(config, tokenizer))
    return made


def close(found: Tensor, expected: list[float], tolerance: float = 1e-5) -> None:
    assert some(found) == pytest.approx(expected, abs=tolerance, rel=tolerance)


@pytest.fixture
def images() -> tuple[Tensor, Tensor]:
    """Patches (n, d, rows, cols) and global embeddings (n, d)."""
    return wave(2, SIZE, *GRID, phase=2), wave(2, SIZE, phase=3)


def test_decoder_layer() -> None:
    """The released layer gets all tokens with a block-diagonal mask; ours, the tokens of each prompt on their own."""
    found = filled(DecoderLayer(SIZE, DECODER))(wave(2, 2, 3, SIZE), wave(2, 5, SIZE, phase=1))
    close(found, [1.1975616, -0.2989316, -2.7602286, 1.2400194, -0.7286707, -1.785138])


def test_prompt_detector(images: tuple[Tensor, Tensor]) -> None:
    """Features are compared after a layer norm, so that the sum over patches in the released code is the mean in ours.

    They agree up to the layer norm's epsilon. The sums of the scores exceed 1 here: the released code divides by at
    least 1, ours always by the sum (Eq. 2). It adds the ViT's position embeddings to the patches in the decoder only
    (zero here); ours adds them in the image encoder. It draws its skip path in evaluation, too, and takes the mean of
    both features there (switched off here).
    """
    model, prompts = filled(PromptDetector(CONFIG)), wave(2, 2, SIZE)
    close(model.decode(prompts, images[0]), [0.1525369, -0.198324, 0.9756011, 0.8394623, 1.1248159, -1.1171688])
    found = model(prompts, images[0])
    close(found.boxes, [0.1807802, 0.1842609, 0.1968401, 0.2160256, 0.2413503, 0.2250727])
    close(found.scores, [0.4265103, 0.4263882, 0.4262963, 0.4269393, 0.4268263, 0.4269545])
    close(found.box_tokens, [-1.6540704, -1.6559913, -1.6574836, -1.6696918, -1.6696115, -1.6695971], 2e-5)
    close(found.tokens, [-1.6550376, 0.5722096, 1.0001451, 0.6992731, 0.5144221, 0.6916395], 2e-5)


def test_gaussian_pooling(images: tuple[Tensor, Tensor]) -> None:
    """The released Gaussian, exp(-(d / width)^2), has a standard deviation of 1 / sqrt(2) widths; the paper's has 1.

    Its features are the sum over patches ("/ H * W" for "/ (H * W)"), ours their mean. Ours treats a box that is
    narrower than a cell as if it were as wide.
    """
    boxes = 0.3 + 0.5 * unit_wave(1, 3, 4)
    weights = gaussian_weights(boxes, GRID, CONFIG.box_std)
    close(weights, [0.02996, 0.4950416, 0.0311229, 0.1961789, 0.0259832, 0.0665108])
    model = filled(PromptDetector(CONFIG))
    total = model.pool(boxes[:, :, None], images[0][:1])[:, :, 0] * weights.sum((-2, -1))[..., None]
    close(total, [-8.1321898, 1.4087023, -8.7684965, 2.5827866, -10.3229504, 3.9888785])
    given = model.at_boxes(0.3 + 0.5 * unit_wave(2, 3, 4), images[0])
    close(given, [-1.6731918, -1.6752446, -1.6753013, -1.6533389, -1.6500597, -1.6575582], 2e-5)


def test_post_decoder(images: tuple[Tensor, Tensor]) -> None:
    """The released code normalises the output by a layer norm that the paper does not have; here, ours is, too.

    With box tokens, it inverts its masks twice: tokens see those of all other regions, too, and only the dropped tokens
    of their own region are hidden. With one region at a time it agrees; ours gives the same with several.
    """
    model, (patches, whole) = filled(PostDecoder(CONFIG)), images
    source = torch.cat([patches.flatten(2).transpose(1, 2), whole[:, None]], dim=1)
    tokens, box_tokens = wave(2, 3, SIZE, phase=4), wave(2, 3, 3, SIZE, phase=5)
    none = torch.zeros(2, 3, dtype=torch.bool)
    by_box = layer_norm(model(tokens, box_tokens, none, source), (SIZE,))
    close(by_box, [-1.4793419, -1.1575823, -0.0484532, 0.3951281, 0.0361124, -0.697767])
    by_text = layer_norm(model(tokens, box_tokens, ~none, source), (SIZE,))
    close(by_text[:, :1], [-0.7756807, 0.1713124, -0.6867081, 1.2964578, 0.2219304, -1.6011951])


def test_costs_of_boxes() -> None:
    """The released cost has 1 - p and 3 (1 - s), which is ours plus 4."""
    half = torch.tensor([1.0, 1.0, 0.5, 0.5])
    boxes, targets = unit_wave(3, 4) * half, unit_wave(2, 4, phase=1) * half
    loss = box_loss(boxes[:, None], targets[None])
    close(loss, [7.949573, 9.9228153, 5.3766651, 7.5982223, 0.7447993, 4.5478153])
    cost = matching_cost(boxes, targets, unit_wave(3, phase=2), unit_wave(3, phase=3))
    close(cost + 4, [9.4165096, 11.3897524, 8.7885075, 11.0100651, 2.914046, 6.717062])


def test_matching() -> None:
    """They agree if there are as many targets as boxes or more.

    With fewer, the released code appends copies of the targets, dearer by the same amount for every box, and solves one
    assignment. The sum is the same whichever box takes the original: with one target, the first box is "matched first",
    not the best. Ours repeats the matching, as the paper says.
    """
    targets, first = match_boxes(unit_wave(3, 4, phase=4)[None])
    assert (targets.tolist(), first.tolist()) == ([[1, 0, 3]], [[True, True, True]])
    one = unit_wave(3, 1)
    targets, first = match_boxes(one[None])
    assert (targets.tolist(), first.tolist()) == (
        [[0, 0, 0]],
        [[False, False, True]],
    )  # released: the first
    assert one[:, 0].tolist() == pytest.approx([0.5, 0.896666, 0.397784], abs=1e-5)


def test_contrastive_losses() -> None:
    """The released global loss is the sum of both directions; ours is CLIP's, their mean.

    The released code draws classes without a label by their frequency (Eq. 7; here all are used), averages pathologies
    by image first, and has all sentences of a batch as negatives, also those of the same wording.
    """
    tokens, positive, negative = wave(2, 3, SIZE), wave(3, SIZE, phase=1), wave(3, SIZE, phase=2)
    labels = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    assert float(pathology_contrast(tokens, positive, negative, labels)) == pytest.approx(5.2731032, rel=1e-5)
    known = wave(2, 3, 3, phase=4) > -0.5
    known[1, 2] = False
    of_regions = torch.where(known, (wave(2, 3, 3, phase=3) > 0).float(), torch.nan)
    found = region_contrast(tokens, positive, negative, of_regions, torch.ones(3, dtype=torch.bool))
    assert float(found) == pytest.approx(2.5706143, rel=1e-5)
    given = torch.tensor([[True, True, True], [True, True, False]])
    prompts = wave(2, 3, SIZE, phase=5)
    found = sentence_contrast(tokens[given], prompts[given], given.nonzero()[:, 0], torch.arange(5))
    assert float(found) == pytest.approx(2.7519343, rel=1e-5)
    found = global_contrast(wave(4, SIZE), wave(4, SIZE, phase=1), torch.eye(4, dtype=torch.bool))
    assert 2 * float(found) == pytest.approx(3.6876121, rel=1e-5)


def test_focal_loss() -> None:
    """The released alpha is that of all classes together; ours, as in the paper, of each class. Here is one class."""
    scores, targets = unit_wave(4, 1, 3), (wave(4, 1, 3, phase=1) > 0.5).float()
    found = focal_loss(scores, targets, torch.ones(4, 1, dtype=torch.bool))
    close(found, [0.1113987, 0.0286591, 0.0211594, 0.0042979, 0.002671, 0.0005838])


def test_prefix_and_language_model() -> None:
    """The first token's position comes after the prefix. The released recipe begins at 0 (its loss: 7.0764623).

    The released loss counts padding, too; these texts have the same length.
    """
    generator, features = make_generator(), wave(3, SIZE)
    keys_values = generator.condition(features).keys_values
    assert keys_values is not None
    close(keys_values, [-1.3234107, -1.9287825, 1.8939993, -0.8418739, -1.2061003, 1.2099946])
    assert generator.loss(features, SENTENCES).item() == pytest.approx(7.1231246, rel=1e-5)
