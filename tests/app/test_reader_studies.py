"""Judge: blinded items, saved answers, and a table that ``judgements analyse`` reads; on SQLite and PostgreSQL."""

import csv
import io
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rightlung.judgements import analyse_table, read_judgements, read_key
from rightlung.results.estimate import BootstrapSettings
from tests.app.conftest import Client, another, new_key


def create(client: Client, **changes: Any) -> str:
    body = {
        "title": "T",
        "models": ["starter", "chex"],
        "annotators": ["anna", "ben"],
        "per_annotator": 2,
        "overlap": 1,
    }
    response = client.post("/api/v1/reader-studies", json=body | {"seed": 3} | changes)
    assert response.status_code == 201, response.json()
    return f"/api/v1/reader-studies/{response.json()['id']}"


def ratings(*values: int, **more: Any) -> dict[str, Any]:
    names = ("recall", "precision", "intuitiveness")
    return dict(zip(names, values, strict=True)) | {"version": None, "key": new_key()} | more


def judge_all(client: Client, study: str, phrase: int = 0) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get(f"{study}/items").json()["items"]
    for place, item in enumerate(items):
        at = f"{study}/items/{item['id']}"
        if item["state"] == "open":
            assert client.post(f"{at}/prompt", json={"phrase": phrase}).status_code == 200
        for number, alias in enumerate(("A", "B")):
            body = ratings(1 + (place + number) % 5, 3, 1 + (2 * place + number) % 5, comment='=1+1\n, "quoted"')
            assert client.put(f"{at}/answers/{alias}", json=body).status_code == 200
    return items


@pytest.fixture
def people(serve: Callable[..., Client], store_url: str) -> tuple[Client, Client, Client]:
    owner = serve(store=store_url)
    return owner, another(owner, "anna"), another(owner, "ben")


def test_a_study_goes_from_plan_to_results(people: tuple[Client, Client, Client], tmp_path: Path) -> None:
    owner, anna, ben = people
    study = create(owner, questions=[{"text": "Useful?", "choices": ["no", "yes"]}, {"text": "Why?"}])
    for client in (anna, ben):
        items = judge_all(client, study)
        assert client.get(f"{study}/items").json()["next"] is None
        assert len(items) == 2
    added = anna.post(
        f"{study}/items/{anna.get(f'{study}/items').json()['items'][0]['id']}/custom", json={"text": "Mine."}
    )
    assert (added.status_code, added.json()["place"], added.json()["custom"]) == (201, 1, True)
    at = f"{study}/items/{added.json()['id']}"
    body = ratings(5, 5, 5, answers={"q1": 2, "q2": "it fits"})
    assert anna.put(f"{at}/answers/A", json=body).json()["answers"] == {"q1": 2, "q2": "it fits"}
    for name in ("export.csv", "export.parquet", "key.csv", "questions.csv"):
        (tmp_path / name).write_bytes(owner.get(f"{study}/{name}").content)
    key = read_key(tmp_path / "key.csv")
    assert set(key.models.values()) == {"starter", "chex"}
    tables = [read_judgements(tmp_path / name, key=key) for name in ("export.csv", "export.parquet")]
    assert tables[0].judgements == tables[1].judgements
    assert (len(tables[0].judgements), len(tables[0].problems)) == (9, 0)
    assert [one.prompt for one in tables[0].judgements if one.custom] == ["Mine."]
    own = list(csv.DictReader(io.StringIO((tmp_path / "questions.csv").read_text())))
    assert [(row["answer"], row["label"]) for row in own] == [("2", "yes"), ("it fits", "")]
    offline = analyse_table(
        tmp_path / "export.csv", tmp_path / "out", key=tmp_path / "key.csv", settings=BootstrapSettings()
    )
    shown = owner.get(f"{study}/results").json()
    for mine, theirs in zip(shown["means"], offline.result["means"], strict=True):
        assert mine["model"] == theirs["model"]
        for name in ("recall", "precision", "intuitiveness"):
            assert mine["ratings"][name]["estimate"] == pytest.approx(theirs["ratings"][name]["estimate"])
    page = owner.get(f"{study}/results.html")
    assert "<script" not in page.text
    assert shown["summary"][0] in page.text


def test_nobody_sees_a_map_before_choosing_nor_a_model_name(people: tuple[Client, Client, Client]) -> None:
    owner, anna, _ = people
    study = create(owner, show_truth=True)
    item = anna.get(f"{study}/items").json()["items"][0]
    at = f"{study}/items/{item['id']}"
    opened = anna.get(at).json()
    assert (opened["aliases"], opened["truth"], opened["state"]) == ([], None, "open")
    assert anna.get(f"{at}/maps").json()["error"]["code"] == "not-chosen"
    assert anna.put(f"{at}/answers/A", json=ratings(1, 1, 1)).json()["error"]["code"] == "not-chosen"
    assert anna.post(f"{at}/prompt", json={"phrase": 99}).status_code == 422
    chosen = anna.post(f"{at}/prompt", json={"phrase": 1})
    assert chosen.json()["truth"]["text"] == opened["sentences"][1]["text"]
    assert anna.post(f"{at}/prompt", json={"phrase": 0}).json()["error"]["code"] == "already-chosen"
    maps = anna.get(f"{at}/maps")
    assert {(one["map"]["rows"], one["map"]["cols"]) for one in maps.json()["maps"].values()} == {(64, 64)}
    for response in (maps, chosen, anna.get(study), anna.get(f"{study}/items")):
        assert "starter" not in response.text
        assert "chex" not in response.text


def test_models_do_not_answer_openly_about_an_image_that_is_still_to_be_judged(
    people: tuple[Client, Client, Client],
) -> None:
    owner, anna, _ = people
    study = create(owner, annotators=["anna"], per_annotator=1, overlap=0)
    key = anna.get(f"{study}/items").json()["items"][0]["study"]
    box = [0.1, 0.1, 0.5, 0.5]
    questions: list[tuple[str, dict[str, Any]]] = [
        ("ground", {"phrases": ["Heart."], "models": ["starter"]}), ("report", {"model": "chex"}),
        ("ground", {"phrases": ["Heart."], "models": ["starter", "chex"], "blinded": True}),
        ("describe", {"model": "chex", "queries": [{"box": box}]}), ("classify", {"model": "starter"}),
    ]  # fmt: skip
    for route, question in questions:
        refused = anna.post(f"/api/v1/{route}", json={"study": key, **question})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "blinded"), route
        assert owner.post(f"/api/v1/{route}", json={"study": key, **question}).status_code == 200, route
    others = [one["key"] for one in anna.get("/api/v1/studies").json()["studies"] if one["key"] != key]
    assert anna.post("/api/v1/report", json={"study": others[0], "model": "chex"}).status_code == 200
    judge_all(anna, study)
    assert anna.post("/api/v1/report", json={"study": key, "model": "chex"}).status_code == 200


def test_nothing_but_the_picture_tells_maps_apart(
    people: tuple[Client, Client, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, anna, _ = people
    study = create(owner)
    at = f"{study}/items/{anna.get(f'{study}/items').json()['next']}"
    anna.post(f"{at}/prompt", json={"phrase": 0})
    maps = anna.get(f"{at}/maps").json()["maps"]
    assert [one.keys() for one in maps.values()] == 2 * [{"map", "boxes", "absent"}]
    assert [max(map(max, one["map"]["values"])) for one in maps.values()] == [1, 1]
    assert [one["boxes"] for one in maps.values()] == [[], []]
    shelf = owner.app.state.context.shelf  # type: ignore[attr-defined]
    shelf.queue.forget(lambda _: True)
    nothing = np.full((96, 96), np.nan, np.float32)
    monkeypatch.setattr("rightlung.app.models.changed_image", lambda *_: nothing)
    refused = anna.get(f"{at}/maps")
    assert refused.status_code == 422
    assert not re.search("starter|chex", refused.text)
    assert "no answer" in refused.text


def test_the_order_is_the_annotators_own_and_the_same_on_another_day(people: tuple[Client, Client, Client]) -> None:
    owner, anna, ben = people
    study = create(owner, mode="planned", annotators=["anna", "ben"], per_annotator=8, overlap=8, custom_prompts=False)
    prompts = [[one["prompt"] for one in client.get(f"{study}/items").json()["items"]] for client in (anna, ben, anna)]
    assert prompts[0] == prompts[2] != prompts[1]
    assert sorted(prompts[0]) == sorted(prompts[1])
    with owner.app.state.context.store.reading() as session:  # type: ignore[attr-defined]
        from rightlung.app.reader_studies import items_of

        first = [item.codes[0] for item in items_of(session, study.rpartition("/")[2], "anna")]
    assert first.count(first[0]) == 4  # each model is A equally often
    at = f"{study}/items/{anna.get(f'{study}/items').json()['next']}"
    assert anna.post(f"{at}/custom", json={"text": "Mine."}).status_code == 409


def test_two_tabs_and_a_repeated_request_do_not_overwrite(people: tuple[Client, Client, Client]) -> None:
    owner, anna, ben = people
    study = create(owner, per_annotator=1)
    at = {
        name: f"{study}/items/{client.get(f'{study}/items').json()['next']}"
        for name, client in zip("ab", (anna, ben), strict=True)
    }
    for client, item in zip((anna, ben), at.values(), strict=True):
        client.post(f"{item}/prompt", json={"phrase": 0})
    first = ratings(1, 2, 3)
    saved = anna.put(f"{at['a']}/answers/A", json=first).json()
    assert anna.put(f"{at['a']}/answers/A", json=first).json() == saved  # the network repeated it
    lost = anna.put(f"{at['a']}/answers/A", json=ratings(5, 5, 5))
    assert (lost.status_code, lost.json()["current"]) == (409, saved)
    assert anna.put(f"{at['a']}/answers/A", json=ratings(4, 4, 4, version=1)).json()["version"] == 2
    # The same image, judged by both, is two answers; nobody writes into another's item.
    assert ben.put(f"{at['b']}/answers/A", json=ratings(5, 5, 5)).status_code == 200
    assert ben.put(f"{at['a']}/answers/A", json=ratings(5, 5, 5, version=2)).json()["error"]["code"] == "unknown-item"
    assert anna.get(at["a"]).json()["answers"]["A"]["recall"] == 4
    undone = anna.post(f"{study}/undo").json()
    assert (undone["alias"], undone["answer"]["recall"]) == ("A", 4)
    assert anna.post(f"{study}/undo").json()["error"]["code"] == "no-change"
    assert ben.get(at["b"]).json()["answers"]["A"]["recall"] == 5


def test_an_answer_that_waited_has_the_time_of_judging(client: Client) -> None:
    study = create(client, annotators=["local"], models=["starter"], per_annotator=1, overlap=0)
    at = f"{study}/items/{client.get(f'{study}/items').json()['next']}"
    client.post(f"{at}/prompt", json={"phrase": 0})
    present = datetime.now(UTC)
    waited = (present - timedelta(days=2)).astimezone(timezone(timedelta(hours=5)))
    body = ratings(1, 2, 3, judged_at=waited.isoformat())
    saved = client.put(f"{at}/answers/A", json=body).json()
    assert abs(datetime.fromisoformat(saved["saved_at"]) - waited) < timedelta(milliseconds=1)
    assert saved["saved_at"].endswith("Z")
    for version, wrong in enumerate((present + timedelta(days=1), present - timedelta(days=31)), 1):  # a wrong clock
        body = ratings(1, 2, 3, version=version, judged_at=wrong.isoformat())
        saved = client.put(f"{at}/answers/A", json=body).json()
        assert abs(datetime.fromisoformat(saved["saved_at"]) - present) < timedelta(minutes=1)


@pytest.mark.parametrize("changes", [
    {"recall": 0}, {"recall": 6}, {"recall": 2.5}, {"precision": None}, {"answers": {"q1": 3}}, {"answers": {"q9": 1}},
    {"key": "x"}, {"comment": "x" * 5_000}, {"more": 1},
])  # fmt: skip
def test_bad_answers_are_refused(client: Client, changes: dict[str, Any]) -> None:
    study = create(
        client, annotators=["local"], per_annotator=1, overlap=0, questions=[{"text": "?", "choices": ["a", "b"]}]
    )
    at = f"{study}/items/{client.get(f'{study}/items').json()['next']}"
    client.post(f"{at}/prompt", json={"phrase": 0})
    assert client.put(f"{at}/answers/A", json=ratings(1, 1, 1) | changes).status_code == 422
    assert client.get(at).json()["answers"]["A"] is None


def test_a_plan_that_is_too_large_says_so(client: Client) -> None:
    body = {"title": "T", "models": ["starter"], "annotators": ["a", "b"], "per_annotator": 50, "overlap": 1}
    refused = client.post("/api/v1/reader-studies", json=body)
    assert refused.status_code == 422
    assert "there are 4; lower per_annotator or raise overlap" in refused.json()["error"]["message"]


def test_drawn_truth_is_saved_once_and_exported(people: tuple[Client, Client, Client], tmp_path: Path) -> None:
    import rightlung
    from rightlung.core import Box
    from rightlung.core.mask import Mask

    owner, anna, ben = people
    key = anna.get("/api/v1/studies").json()["studies"][0]["key"]
    drawn = {"study": key, "label": "nodule", "text": "A nodule.", "box": [0.25, 0.25, 0.5, 0.75], "key": new_key()}
    first = anna.post("/api/v1/annotations", json=drawn)
    again = anna.post("/api/v1/annotations", json=drawn)
    assert (first.status_code, again.status_code, again.json()) == (201, 200, first.json())
    runs = {"size": [4, 4], "runs": [4, 2, 10]}  # the left half of the second row
    anna.post("/api/v1/annotations", json={"study": key, "label": "mass", "mask": runs, "key": new_key()})
    at = f"/api/v1/annotations/{first.json()['id']}"
    changed = {"label": "nodule", "text": "A nodule.", "box": [0.25, 0.25, 0.5, 0.5], "version": 1}
    assert ben.put(at, json=changed).status_code == 200  # without accounts, everyone is an owner
    assert anna.put(at, json=changed).json()["error"]["code"] == "conflict"
    assert anna.post("/api/v1/annotations", json=drawn | {"key": new_key(), "box": None}).status_code == 422
    coco = owner.get("/api/v1/exports/coco.json").json()
    assert [one["bbox"] for one in coco["annotations"]] == [[24, 24, 24, 24], [0, 24, 48, 24]]
    assert Mask.from_rle(coco["annotations"][1]["segmentation"]).pixels[24:48, :48].all()
    (tmp_path / "drawn.tar").write_bytes(owner.get("/api/v1/exports/manifest.tar").content)
    study = rightlung.open_source(f"manifest:{tmp_path / 'drawn.tar'}")[0]
    assert (study.phrases[0].text, study.phrases[0].boxes) == ("A nodule.", (Box(0.25, 0.25, 0.5, 0.5),))
    assert study.extra["readers"] == {"anna": {"boxes": [
        {"label": "nodule", "phrase": 0, "box": [0.25, 0.25, 0.5, 0.5]},
        {"label": "mass", "phrase": 1, "box": [0, 0.25, 0.5, 0.5]},
    ]}}  # fmt: skip
    assert study.phrases[1].mask is not None
    assert study.phrases[1].mask.area == pytest.approx(1 / 8)
    assert owner.get("/api/v1/exports/coco.json", params={"author": "ben"}).json()["annotations"] == []
