from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import CLIPTextModel, VisionTextDualEncoderModel, ViTModel

from rightlung.core import InputError
from rightlung.models.clip import Clip
from rightlung.models.preprocessing import standardise
from tests.models.clip.tiny import CLIP_TEXT, CONVNEXT, RESNET, SWIN, TEXTS, VIT, batch, create


def cosines(model: Clip, images: Tensor, texts: list[str]) -> Tensor:
    """Cosines (images, texts), one pair at a time."""
    rows = model.image_encoder(images).global_embedding
    columns = [model.embed_texts([text]).global_embedding[0] for text in texts]
    return torch.stack([torch.stack([torch.cosine_similarity(one, other, dim=0) for other in columns]) for one in rows])


def test_the_loss_is_the_mean_of_both_cross_entropies_of_the_scaled_cosines() -> None:
    model, given = create(), batch()
    with torch.no_grad():
        logits = cosines(model, given.images, TEXTS) / 0.07
        loss = model(given)["contrastive"]
    own = torch.arange(8)
    assert float(loss) == pytest.approx(float(cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2, abs=1e-4)


def test_the_same_words_about_another_image_are_ignored_where_the_configuration_says_so() -> None:
    texts = [*TEXTS[:3], TEXTS[0]]
    given = batch(4, texts=texts)
    model = create(duplicate_texts="ignore")
    with torch.no_grad():
        logits = cosines(model, given.images, texts) / 0.07
        kept = logits.clone()
        kept[0, 3] = kept[3, 0] = -math.inf
        own = torch.arange(4)
        for settings, table in (("ignore", kept), ("negative", logits)):
            expected = (cross_entropy(table, own) + cross_entropy(table.T, own)) / 2
            loss = create(duplicate_texts=settings)(given)["contrastive"]
            assert float(loss) == pytest.approx(float(expected), abs=1e-4)


class First(nn.Module):
    """Pools the first token as it is, in place of the layer that `transformers` adds to it."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden[:, 0]


@pytest.mark.parametrize("text", ["bert", "clip_text_model"])
def test_towers_and_loss_are_those_of_transformers_dual_encoder(text: str) -> None:
    model = create(text=CLIP_TEXT) if text == "clip_text_model" else create()
    backbone: Any = model.image_encoder.backbone
    vision: Any = ViTModel(backbone.config, add_pooling_layer=True)
    vision.pooler = First()
    own: Any = model.text_encoder.backbone
    language: Any = type(own)(own.config)
    if text == "clip_text_model":
        own.config.eos_token_id = model.tokenizer.end_id  # where its pooled output stands
        language = CLIPTextModel(own.config)
    else:
        language.pooler = First()
    dual: Any = VisionTextDualEncoderModel(vision_model=vision, text_model=language)
    dual.eval()
    vision.load_state_dict(backbone.state_dict())
    language.load_state_dict(own.state_dict())
    projection: Any = model.image_encoder.patch_projections[0]
    dual.visual_projection, dual.text_projection = nn.Linear(16, 12, bias=False), nn.Linear(16, 12, bias=False)
    dual.visual_projection.weight.data = projection.weight.data[:, :, 0, 0]
    dual.text_projection.weight.data = model.text_encoder.projection.weight.data
    dual.logit_scale.data = torch.tensor(math.log(20.0))
    model.logit_scale.data = torch.tensor(math.log(20.0))
    given, tokens = batch(), model.tokenizer.encode(TEXTS)
    with torch.no_grad():
        expected = dual(
            input_ids=tokens.ids, attention_mask=tokens.attention_mask.long(), pixel_values=standardise(given.images),
            return_loss=True,
        )  # fmt: skip
        step = model.encode_batch(given, None)
        ours = model(given)["contrastive"]
    torch.testing.assert_close(
        torch.nn.functional.normalize(step.images.global_embedding, dim=-1), expected.image_embeds, atol=1e-5, rtol=0
    )
    torch.testing.assert_close(
        torch.nn.functional.normalize(step.texts.global_embedding, dim=-1), expected.text_embeds, atol=1e-5, rtol=0
    )
    assert float(ours) == pytest.approx(float(expected.loss), abs=1e-4)


def test_the_scale_is_clamped_and_can_come_down_again() -> None:
    model, given = create(), batch()
    assert model.scale.item() == pytest.approx(1 / 0.07)
    with torch.no_grad():
        model.logit_scale.fill_(9.0)
    assert model.scale.item() == pytest.approx(100.0, rel=1e-5)
    model.train()(given)["contrastive"].backward()
    assert float(model.logit_scale.detach().exp()) == pytest.approx(100.0, rel=1e-5)
    assert model.logit_scale.grad is not None
    assert float(model.logit_scale.grad) > 0  # an untrained model is too sure at this scale: gradient descent lowers it


@pytest.mark.parametrize(
    "image",
    [
        {"kind": "vit", "options": VIT},
        {"kind": "resnet", "options": RESNET},
        {"kind": "swin", "options": SWIN},
        {"kind": "convnext", "options": CONVNEXT},
        {"kind": "vit", "options": VIT, "pooling": "mean", "position_embeddings": True},
        {"kind": "resnet", "options": RESNET, "pooling": "mean", "pyramid_levels": [0, 2, 3]},
    ],
)
def test_every_parameter_learns_and_a_few_steps_lower_the_loss(image: dict[str, Any]) -> None:
    model, given = create(image={"size": 64, **image}).train(), batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    losses = []
    for _ in range(20):
        loss = model(given)["contrastive"]
        optimizer.zero_grad()
        loss.backward()
        missing = [name for name, weight in model.named_parameters() if weight.grad is None]
        assert missing == []
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.75 * losses[0]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"image": {"size": 64, "options": VIT, "pooling": "separate"}}, r"image\.pooling must be 'shared' or 'mean'"),
        ({"image": {"size": 64, "kind": "resnet", "options": RESNET, "pyramid_levels": [1]}}, "a level of 64 channels"),
        ({"image": {"size": 64, "options": VIT, "position_embeddings": True}}, "no position_embeddings"),
        ({"logit_scale": 200.0}, r"at most max_logit_scale, 100\.0; got 200"),
        ({"losses": ["contrastiv"]}, "did you mean 'contrastive'"),
    ],
)
def test_a_wrong_configuration_names_its_field(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        create(**config)


def test_images_of_another_size_are_refused() -> None:
    given = batch()
    with pytest.raises(InputError, match=r"data\.image_size must equal model\.config\.image\.size, 64 pixels"):
        create()(type(given)(given.images[..., :48, :48], given.texts))
