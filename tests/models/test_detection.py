"""Boxes of findings and scores of regions from maps: the classifier, CLIP and GLoRIA."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rightlung.core import Box, Extent, InputError
from rightlung.lexicon import negative_prompts, positive_prompts
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.gloria import Gloria
from rightlung.models.roi import box_weights, crop
from tests.models.classifier.tiny import tiny_classifier
from tests.models.clip import tiny

GLORIA: dict[str, Any] = {
    "image": {"kind": "resnet", "size": 64, "pyramid_levels": [-2], "options": tiny.RESNET},
    "text": {"vocab_size": 120, "max_length": 24, "options": tiny.BERT, "summed_layers": 1},
    "dimension": 12,
}


def gloria(regions: str = "pooled", **attention: Any) -> Gloria:
    return Gloria.create(GLORIA | {"attention": attention, "regions": regions}, tiny.TEXTS * 3, 0).eval()


def test_the_weights_of_a_box_are_its_shares_of_the_cells() -> None:
    (weights,) = box_weights([Box(0.25, 0.0, 0.75, 0.25)], [Extent()], (2, 4))
    torch.testing.assert_close(weights, torch.tensor([[0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]]))
    # The upper half of an image of 2:1 is the second quarter of the square that it is padded to.
    (padded,) = box_weights([Box(0, 0, 1, 0.5)], [Extent.letterbox((100, 200))], (4, 1))
    torch.testing.assert_close(padded, torch.tensor([[0.0], [1.0], [0.0], [0.0]]))


def test_a_hand_made_map_of_the_classifier_becomes_a_box_with_the_probability_in_its_score() -> None:
    model = tiny_classifier("nodule", "cardiomegaly", pooling="mean")
    cells = torch.zeros(1, 2, 4, 4)
    cells[0, 0, 1:3, 2] = 8.0
    for layer in model.image_encoder.patch_projections:
        torch.nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    model.image_encoder.patches = lambda images: cells.expand(len(images), -1, -1, -1)  # type: ignore[method-assign]
    (found,) = model.detect([tiny.picture(0, (64, 64))], ["nodule", "cardiomegaly", "scoliosis"])
    (one,) = found  # the map of cardiomegaly is empty, and scoliosis is not known
    assert one.label == "nodule"
    assert one.box.iou(Box(0.5, 0.25, 0.75, 0.75)) > 0.8
    probability = 1 / (1 + np.exp(-1.0))  # the mean of 16 cells, two of which are 8
    assert 0.6 * probability < one.score < probability
    with pytest.raises(InputError, match="scoliosis"):
        model.detect([tiny.picture(0)], ["scoliosis"])


def test_the_classifier_judges_a_box_by_its_cells() -> None:
    cells = torch.arange(32.0).reshape(1, 2, 4, 4) / 10
    weights = box_weights([Box(0.5, 0.0, 1.0, 0.25)], [Extent()], (4, 4))
    mean, sharp = (tiny_classifier("nodule", "mass", pooling=kind).pool(cells, weights) for kind in ("mean", "lse"))
    torch.testing.assert_close(mean, torch.tensor([[0.25, 1.85]]))
    expected = np.log(np.exp(3 * np.array([[0.2, 0.3], [1.8, 1.9]])).mean(axis=1)) / 3
    np.testing.assert_allclose(sharp[0].numpy(), expected, rtol=1e-5)
    model, images = tiny_classifier("nodule", "mass"), [tiny.picture(0), tiny.picture(1)]
    whole = model.classify(images, ["mass"], [Box(0, 0, 1, 1)] * 2)
    assert whole.shape == (2, 1)
    assert not np.allclose(whole, model.classify(images, ["mass"], [Box(0, 0, 0.3, 0.3)] * 2))
    with pytest.raises(InputError, match="one box for each image"):
        model.classify(images, ["mass"], [Box(0, 0, 1, 1)])


def test_a_box_of_clip_surrounds_the_patches_like_the_prompt_and_has_their_cosine() -> None:
    model = tiny.create()
    prompt, other = model.encode_text([positive_prompts("nodule")[0], positive_prompts("edema")[0]])
    like = torch.from_numpy(prompt)
    unlike = torch.from_numpy(other) - like * float(other @ prompt)  # perpendicular to the prompt
    patches = unlike[:, None, None].expand(-1, 4, 4).clone()
    patches[:, 2:, :2] = like[:, None, None]

    def encoder(images: Tensor) -> ImageEmbeddings:
        return ImageEmbeddings(patches.expand(len(images), -1, -1, -1), like.expand(len(images), -1))

    encoder.grid = (4, 4)  # type: ignore[attr-defined]
    del model.image_encoder
    model.__dict__["image_encoder"] = encoder
    (found,) = model.detect([tiny.picture(0, (64, 64))], ["nodule"])
    assert found[0].label == "nodule"
    assert found[0].box.iou(Box(0, 0.5, 0.5, 1)) > 0.8
    assert 0.75 < found[0].score <= 1.0
    inside, outside = (model.encode_regions([tiny.picture(0, (64, 64))], [box])[0]
                       for box in (Box(0, 0.5, 0.5, 1), Box(0.5, 0, 1, 0.5)))  # fmt: skip
    np.testing.assert_allclose(inside, prompt, atol=1e-6)
    assert float(outside @ prompt) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("create", [tiny.create, gloria, lambda: gloria(no_attention_token=True)])
def test_boxes_are_labelled_and_do_not_depend_on_the_other_images(create: Any) -> None:
    model = create()
    images = [tiny.picture(0), tiny.picture(1, (90, 40))]
    together = model.detect(images, ["nodule", "pleural effusion"])
    assert [len(found) > 0 for found in together] == [True, True]
    assert {one.label for found in together for one in found} == {"nodule", "pleural effusion"}
    (alone,) = model.detect(images[1:], ["nodule", "pleural effusion"])
    assert [one.label for one in alone] == [one.label for one in together[1]]
    np.testing.assert_allclose([one.score for one in alone], [one.score for one in together[1]], atol=1e-5)
    assert model.detect([], ["nodule"]) == []
    assert model.detect(images, []) == [[], []]


def test_a_region_is_classified_from_its_patches_or_from_its_crop() -> None:
    images, box = [tiny.picture(0), tiny.picture(1)], Box(0.2, 0.1, 0.7, 0.8)
    kinds: list[dict[str, Any]] = [{}, {}, {"no_attention_token": True}]
    makers: list[Any] = [partial(tiny.create, 0), gloria, gloria]
    for create, options in zip(makers, kinds, strict=True):
        model, cropping = create(**options), create(regions="cropped", **options)
        crops = [crop(one, box) for one in images]
        cropped = cropping.classify(images, ["nodule"], [box, box])
        np.testing.assert_allclose(cropped, model.classify(crops, ["nodule"]), atol=1e-6)
        np.testing.assert_allclose(cropping.encode_regions(images, [box, box]), model.encode_image(crops), atol=1e-6)
        pooled = model.classify(images, ["nodule"], [box, box])
        assert not np.allclose(pooled, cropped, atol=1e-4)
        groups = [positive_prompts("nodule")], [negative_prompts("nodule")]
        positive, negative = (model.encode_prompts(group)[0] for group in groups)
        scale = model.config.global_temperature if isinstance(model, Gloria) else model.scale.item()
        margin = scale * (model.encode_regions(images, [box, box]) @ (positive - negative))
        np.testing.assert_allclose(pooled[:, 0], 1 / (1 + np.exp(-margin)), atol=1e-5)
        with pytest.raises(InputError, match="one box for each image"):
            model.classify(images, ["nodule"], [box])
