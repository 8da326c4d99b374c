"""The symptom graph, the saliency of symptoms, and what the image refiner does with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rightlung.explain.gradcam import grad_cam
from rightlung.models.classifier import Classifier
from rightlung.models.fita.config import SYMPTOMS
from rightlung.models.fita.symptoms import GraphAttention, normalised
from tests.models.clip.tiny import RESNET
from tests.models.fita.tiny import REPORTS, TEXT_STAGE, batch, create, pictures


def test_graph_attention_equals_its_formula() -> None:
    layer = GraphAttention(4, 2)
    nodes, edges = torch.randn(1, 3, 4), torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 1]], dtype=torch.bool)
    found = layer(nodes, edges)[0].detach().numpy()
    projected = (nodes[0] @ layer.project.weight.T).detach().numpy()
    for head in range(2):
        own = projected[:, 2 * head : 2 * head + 2]
        to, of = (own @ part[head].detach().numpy() for part in (layer.receiving, layer.sending))
        for node in range(3):
            scores = to[node] + of
            scores = np.where(scores > 0, scores, 0.2 * scores)
            weights = np.where(edges[node], np.exp(scores), 0)
            expected = (weights / weights.sum()) @ own
            np.testing.assert_allclose(found[node, 2 * head : 2 * head + 2], expected, atol=1e-5)


def test_edges_are_the_hierarchy_and_what_occurs_together_in_training_reports() -> None:
    model = create(**TEXT_STAGE)
    assert model.graph is not None
    place = {
        name: SYMPTOMS.index(name) for name in ("pleural effusion", "cardiomegaly", "consolidation", "lung opacity")
    }
    edges = model.graph.edges()
    assert edges[place["consolidation"], place["lung opacity"]]
    assert not edges[place["pleural effusion"], place["cardiomegaly"]]
    assert bool(edges.diagonal().all())
    model.eval()(batch(*REPORTS))
    assert not model.graph.counts.any()  # validation counts nothing
    reports = ["Effusion on the left. The heart is enlarged."] * 2 + ["The lungs are clear."] * 2
    model.train()(batch(*reports))
    counts = model.graph.counts
    assert counts[-1, -1] == 4
    assert counts[place["pleural effusion"], place["cardiomegaly"]] == 2
    assert model.graph.edges()[place["pleural effusion"], place["cardiomegaly"]]
    create().train()(batch(*REPORTS))  # stage 2 counts nothing, either


def test_saliency_is_the_classifiers_grad_cam_made_from_the_image_alone() -> None:
    image = {"kind": "resnet", "size": 64, "pyramid_levels": [-1], "options": RESNET}
    classifier = Classifier.create({"findings": ["edema"], "image": image, "pooling": "mean"}, [], 0).eval()
    images = pictures(2)
    features = (
        classifier.image_encoder.backbone(
            (images - images.mean((2, 3), keepdim=True)) / images.std((2, 3), correction=0, keepdim=True)
        )
        .last_hidden_state.detach()
        .requires_grad_()
    )
    cells = classifier.image_encoder.patch_projections[0](features)
    (gradient,) = torch.autograd.grad(classifier.pool(cells).sum(), features)
    expected = grad_cam(features, gradient)
    found = classifier.activation_maps(classifier.image_encoder.patches(images))[:, 0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    model = create()
    prior = model.observe(model.classifier, images)
    assert not prior.saliency.requires_grad
    assert prior.saliency.shape == (2, 13, 16)
    torch.testing.assert_close(prior.saliency.sum(-1), torch.ones(2, 13))


def test_an_empty_map_becomes_uniform_and_is_flagged() -> None:
    maps, pointing = normalised(torch.tensor([[[0.0, 0.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0]]]))
    assert maps.tolist() == [[[0.25] * 4, [0.25, 0.75, 0, 0]]]
    assert pointing.tolist() == [[False, True]]


def test_a_uniform_saliency_is_attention_without_a_prior() -> None:
    refiner = create().image_refiner
    assert refiner is not None
    symptoms, patches = torch.randn(1, 13, 16), torch.randn(1, 16, 16)
    with torch.no_grad():
        found = refiner(symptoms, patches, torch.full((1, 13, 16), 1 / 16))
        plain = symptoms + refiner.attention(symptoms, refiner.attention.keys_values(patches))
    torch.testing.assert_close(found, refiner.norm(plain), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("saliency", ["grad-cam", "grounder", "none"])
def test_saliency_moves_the_refined_symptoms(saliency: str) -> None:
    model = create(saliency=saliency)
    with torch.no_grad():
        prior = model.observe(model.classifier, pictures(1))
        uniform = type(prior)(prior.probabilities, torch.full_like(prior.saliency, 1 / 16), prior.pointing)
        found, plain = (model.encode(pictures(1), one).symptoms for one in (prior, uniform))
    assert found is not None
    assert plain is not None
    assert bool(prior.pointing.any()) == (saliency != "none")
    assert torch.allclose(found, plain, atol=1e-5) == (saliency == "none")


def test_probabilities_move_the_symptoms_and_neighbours_read_each_other() -> None:
    graph = create().graph
    assert graph is not None
    with torch.no_grad():
        low = torch.full((1, 13), 0.1)
        high = low.clone()
        high[0, SYMPTOMS.index("consolidation")] = 0.9
        moved = (graph(low) - graph(high)).abs().amax(-1)[0] > 1e-6
    assert bool(moved[SYMPTOMS.index("consolidation")])
    assert bool(moved[SYMPTOMS.index("lung opacity")])
    assert not bool(moved[SYMPTOMS.index("fracture")])
