"""Look and ask: answers are those of the models, and a perturbation asks the changed question."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rightlung
from rightlung.app.perturbing import negated
from rightlung.app.queue import ModelQueue
from rightlung.app.scores import findings_json, score_json
from rightlung.core import Grounding
from rightlung.models.calibration_file import calibrations_of
from tests.app.conftest import SOURCE, Client


def ground(client: Client, key: str, text: str, model: str = "starter", **more: Any) -> Any:
    response = client.post("/api/v1/ground", json={"study": key, "phrases": [text], "models": [model], **more})
    assert response.status_code == 200, response.json()
    return response.json()["answers"][0]


def phrase_with_twin(client: Client, key: str) -> dict[str, Any]:
    phrases = client.get(f"/api/v1/studies/{key}").json()["phrases"]
    return next(one for one in phrases if "removed" in one["twins"] and one["boxes"])


def test_a_study_is_shown_with_its_truth_and_true_pixels(client: Client, key: str) -> None:
    study, shown = rightlung.open_source(SOURCE)[0], client.get(f"/api/v1/studies/{key}").json()
    assert (shown["id"], shown["width"], shown["height"]) == (study.id, 96, 96)
    assert [one["text"] for one in shown["phrases"]] == [phrase.text for phrase in study.phrases]
    assert shown["regions"].keys() == study.regions.keys()
    response = client.get(shown["pixels"])
    pixels = np.frombuffer(response.content, "<u2").reshape(int(response.headers["X-Height"]), -1)
    assert np.abs(pixels / 65535 - study.image).max() < 1 / 65535
    picture = np.asarray(Image.open(io.BytesIO(client.get(shown["image"]).content)))
    assert np.abs(picture / 255 - study.image).max() < 0.51 / 255
    assert (
        client.get(shown["image"], headers={"If-None-Match": client.get(shown["image"]).headers["ETag"]}).status_code
        == 304
    )


def test_masks_travel_row_by_row(client: Client, key: str) -> None:
    study, shown = rightlung.open_source(SOURCE)[0], client.get(f"/api/v1/studies/{key}").json()
    index = next(index for index, phrase in enumerate(study.phrases) if phrase.mask is not None)
    sent, mask = shown["phrases"][index]["mask"], study.phrases[index].mask
    assert mask is not None
    flat = np.repeat(np.arange(len(sent["runs"])) % 2 == 1, sent["runs"])
    assert np.array_equal(flat.reshape(sent["size"]), mask.pixels)


def test_the_list_is_searched_and_filtered(client: Client) -> None:
    every = client.get("/api/v1/studies").json()
    assert every["total"] == 4
    first = every["studies"][0]
    assert client.get("/api/v1/studies", params={"q": first["id"]}).json()["total"] == 1
    for finding in every["findings"]:
        found = client.get("/api/v1/studies", params={"finding": finding, "polarity": "positive"}).json()["studies"]
        wanted = [one["key"] for one in every["studies"] if one["findings"].get(finding) == "positive"]
        assert [one["key"] for one in found] == wanted
    assert client.get("/api/v1/studies", params={"q": "no such words"}).json()["studies"] == []


@pytest.mark.parametrize("name", ["starter", "chex"])
def test_an_answer_is_that_of_the_model(client: Client, key: str, name: str) -> None:
    study = rightlung.open_source(SOURCE)[0]
    text = "Enlargement of the heart."
    answer, found = ground(client, key, text, name)["plain"], rightlung.load(name).ground([study.image], [text])[0]
    assert np.allclose(answer["map"]["values"], found.heatmap.values, rtol=1e-3, atol=1e-4 * found.heatmap.values.max())
    assert answer["map"]["extent"] == pytest.approx(found.heatmap.extent.as_tuple(), abs=1e-6)
    assert answer["abstention"] == pytest.approx(found.abstention, abs=1e-4)
    assert answer["score"]["name"]
    assert ground(client, key, text, name)["plain"]["cached"] is True


def test_a_probability_is_said_only_for_what_it_was_calibrated_on(client: Client, key: str) -> None:
    phrase = phrase_with_twin(client, key)["text"]
    answer = ground(client, key, phrase, perturb={"kind": "noise-image"})
    score, known = answer["plain"]["score"], calibrations_of("starter")["phantom"].ground
    assert known is not None
    assert score["calibrated"] is True
    assert score["value"] == pytest.approx(1 - answer["plain"]["abstention"], abs=1e-4)
    value = min(max(score["value"], 1e-4), 1 - 1e-4)
    odds = np.exp(known.intercept) * (value / (1 - value)) ** known.slope
    assert score["probability"] == pytest.approx(odds / (1 + odds), abs=0.0051)
    assert "phantoms" in score["statement"]
    assert "on real images it is only a ranking" in score["statement"]
    changed, denied = answer["perturbed"]["score"], ground(client, key, "No pneumothorax.")["plain"]["score"]
    assert [one["probability"] for one in (changed, denied)] == [None, None]
    assert score_json({}, Grounding(None, ()), phrase, "nih:/data", known)["probability"] is None


def test_swapping_sides_asks_about_the_other_side(client: Client, key: str) -> None:
    answer = ground(client, key, "Left pleural effusion.", perturb={"kind": "swap-sides"})
    plain = ground(client, key, "Right pleural effusion.")["plain"]
    changed = answer["perturbed"]
    assert changed["phrase"] == "Right pleural effusion."
    assert changed["map"] == plain["map"]
    maps = [np.asarray(one["map"]["values"]) for one in (answer["plain"], plain)]
    first, second = (one / one.sum() for one in maps)
    assert changed["change"]["total_variation"] == pytest.approx(np.abs(first - second).sum() / 2, abs=0.05)
    assert np.allclose(changed["change"]["difference"]["values"], second - first, atol=1e-5)


def test_the_twin_is_the_patient_without_the_finding(client: Client, key: str) -> None:
    study, phrase = rightlung.open_source(SOURCE)[0], phrase_with_twin(client, key)
    finding = next(name for name, polarity in phrase["findings"].items() if polarity == "positive")
    changed = ground(client, key, phrase["text"], perturb={"kind": "twin-removed"})["perturbed"]
    twin = study.twin("removed", finding)
    picture = np.asarray(Image.open(io.BytesIO(client.get(changed["image"]).content)))
    assert np.abs(picture / 255 - twin.image).max() < 0.51 / 255
    found = rightlung.load("starter").ground([twin.image], [phrase["text"]])[0].heatmap
    assert np.allclose(changed["map"]["values"], found.values, rtol=1e-3, atol=1e-4 * found.values.max())


def test_covering_the_peak_changes_the_pixels_there_and_nowhere_else(client: Client, key: str) -> None:
    answer = ground(client, key, "Enlargement of the heart.", perturb={"kind": "occlude-peak"})
    images = [np.asarray(Image.open(io.BytesIO(client.get(address).content)), dtype=float)
              for address in (f"/api/v1/studies/{key}/image.png", answer["perturbed"]["image"])]  # fmt: skip
    rows, columns = np.nonzero(images[0] != images[1])
    x0, y0, x1, y1 = (96 * value for value in answer["perturbed"]["covered"])
    assert len(rows) > 50
    assert y0 - 1 <= rows.min() < 96 * answer["plain"]["peak"][1] < rows.max() <= y1
    assert x0 - 1 <= columns.min() < 96 * answer["plain"]["peak"][0] < columns.max() <= x1


@pytest.mark.parametrize(
    ("kind", "code"), [("swap-sides", "no-change"), ("twin-moved", "no-twin"), ("occlude-target", "no-change")]
)
def test_a_perturbation_that_does_not_apply_says_why(client: Client, key: str, kind: str, code: str) -> None:
    body = {"study": key, "phrases": ["Anything at all."], "models": ["starter"], "perturb": {"kind": kind}}
    response = client.post("/api/v1/ground", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (409, code)


@pytest.mark.parametrize(("text", "denied"), [
    ("Small left pleural effusion.", "No pleural effusion."), ("No pneumothorax.", "Pneumothorax."),
    ("Comparison: none.", None),
])  # fmt: skip
def test_a_phrase_is_negated(text: str, denied: str | None) -> None:
    assert negated(text) == denied


def test_blinded_models_are_named_by_letters_until_revealed(client: Client, key: str) -> None:
    body = {"study": key, "phrases": ["Heart."], "models": ["starter", "chex"], "blinded": True}
    found = client.post("/api/v1/ground", json=body).json()
    assert sorted(one["model"] for one in found["answers"]) == ["A", "B"]
    models = client.post("/api/v1/ground/reveal", json={"token": found["reveal"]}).json()["models"]
    open_answers = {name: ground(client, key, "Heart.", name)["plain"]["map"] for name in ("starter", "chex")}
    assert all(one["plain"]["map"] == open_answers[models[one["model"]]] for one in found["answers"])
    plain = [one["plain"] for one in found["answers"]]
    assert [(one["cached"], one["milliseconds"], one["score"]["name"]) for one in plain] == 2 * [(None, None, "score")]


def test_boxes_images_and_regions_are_described(client: Client, key: str) -> None:
    chex, study = rightlung.load("chex"), rightlung.open_source(SOURCE)[0]
    box = [0.1, 0.2, 0.45, 0.8]
    body = {"study": key, "model": "chex", "queries": [{"box": box}, {"phrase": "heart"}]}
    answers = client.post("/api/v1/describe", json=body).json()["answers"]
    expected = chex.describe([study.image], [rightlung.core.Query(box=rightlung.core.Box(*box))])[0]
    assert answers[0]["sentence"] == expected
    report = client.post("/api/v1/report", json={"study": key, "model": "chex"}).json()
    assert report["text"] == chex.report([study.image])[0].text
    classified = client.post("/api/v1/classify", json={"study": key, "model": "starter"}).json()
    scores, known = classified["findings"], calibrations_of("starter")["phantom"].classify
    assert [one["score"] for one in scores] == sorted((one["score"] for one in scores), reverse=True)
    assert classified["statement"] == "Calibrated on phantom (phantom?count=300&seed=501); elsewhere only a ranking."
    assert known is not None
    best = known.findings[scores[0]["name"]]
    assert scores[0]["present"] == (scores[0]["score"] >= best.threshold)
    in_box = client.post("/api/v1/classify", json={"study": key, "model": "starter", "box": box}).json()
    assert in_box["calibrated"] is False
    assert "probability" not in in_box["findings"][0]
    real = findings_json({"edema": 0.9}, "nih:/data", calibrations_of("starter"), True)
    assert (real["calibrated"], real["findings"]) == (False, [{"name": "edema", "score": 0.9}])
    name, region = next(iter(study.regions.items()))
    at = client.post("/api/v1/regions", json={"study": key, "point": region.centre}).json()["regions"]
    assert name in [one["name"] for one in at]


@pytest.mark.parametrize(("body", "status", "code"), [
    ({"phrases": ["x" * 10_000]}, 422, "invalid"), ({"phrases": [" "]}, 422, "invalid"),
    ({"phrases": ["a\x00b"]}, 422, "invalid"), ({"models": ["nothing"]}, 404, "unknown-model"),
    ({"study": "s.bm90aGluZw"}, 404, "unknown-study"), ({"study": "../../etc/passwd"}, 404, "unknown-study"),
    ({"perturb": {"kind": "explode"}}, 422, "invalid"), ({"perturb": {"kind": "replace"}}, 422, "invalid"),
])  # fmt: skip
def test_bad_questions_are_refused_in_one_sentence(client: Client, key: str, body: Any, status: int, code: str) -> None:
    response = client.post("/api/v1/ground", json={"study": key, "phrases": ["Heart."], "models": ["starter"]} | body)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert "\n" not in response.json()["error"]["message"]


@pytest.mark.parametrize(("body", "message"), [
    ({"phrases": ["x" * 1_001]}, "the phrase is longer than 1,000 characters"),
    ({"phrases": []}, "the list of phrases has fewer than 1 entries"),
    ({"study": None}, "study: Input should be a valid string"),
    ({"colour": "red"}, "the colour is no field of this request"),
])  # fmt: skip
def test_a_refusal_is_a_sentence_for_people(client: Client, key: str, body: Any, message: str) -> None:
    response = client.post("/api/v1/ground", json={"study": key, "phrases": ["Heart."], "models": ["starter"]} | body)
    assert response.json()["error"]["message"] == message


def test_a_box_outside_the_image_is_refused(client: Client, key: str) -> None:
    body = {"study": key, "model": "chex", "queries": [{"box": [0.5, 0.5, 1.5, 0.8]}]}
    error = client.post("/api/v1/describe", json=body).json()["error"]
    assert error["field"] == "queries.0.box"
    assert "leaves the image" in error["message"]


def test_a_full_queue_answers_busy_and_recovers() -> None:
    import threading

    from rightlung.app.errors import AppError

    queue, gate, started = ModelQueue(waiting=2), threading.Event(), threading.Event()

    def wait() -> bool:
        started.set()
        return gate.wait(10)

    blocked = [threading.Thread(target=queue.ask, args=(name, wait)) for name in "ab"]
    for thread in blocked:
        thread.start()
    started.wait(10)
    while len(queue._asked) < 2:
        pass
    with pytest.raises(AppError) as refused:
        queue.ask("c", lambda: 1)
    assert (refused.value.status, refused.value.code) == (503, "busy")
    assert int(refused.value.response().headers["Retry-After"]) >= 1
    gate.set()
    for thread in blocked:
        thread.join()
    assert queue.ask("c", lambda: 1) == (1, False)
    assert queue.ask("c", lambda: 2) == (1, True)
    queue.close()
