"""Own images: opened from memory, announced if they are no frontal chest radiograph, stored only when asked."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import rightlung
from tests.app.conftest import Client, another
from tests.studies.dicom_files import dicom

STUDY = rightlung.open_source("phantom?count=1&seed=3&size=128")[0]


def png(pixels: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.round(pixels * 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def upload(client: Client, data: bytes, name: str = "mine.png") -> dict[str, object]:
    response = client.post("/api/v1/uploads", content=data, headers={"X-File-Name": name})
    assert response.status_code == 201, response.json()
    found: dict[str, object] = response.json()
    return found


def test_an_upload_is_asked_like_a_study_and_stays_in_memory(client: Client, tmp_path: Path) -> None:
    shown = upload(client, png(STUDY.image))
    assert (shown["kind"], shown["title"], shown["warnings"], shown["report"]) == ("upload", "mine.png", [], None)
    body = {"study": shown["key"], "phrases": ["Enlarged heart."], "models": ["starter"]}
    assert client.post("/api/v1/ground", json=body).json()["answers"][0]["plain"]["map"] is not None
    assert client.post("/api/v1/regions", json={"study": shown["key"]}).json()["regions"]
    for name, box in STUDY.regions.items():
        if name in ("left lung", "right lung"):
            assert box.iou(rightlung.core.Box(*shown["regions"][name])) > 0.6  # type: ignore[index]
    assert client.get("/api/v1/studies").json()["studies"][0]["key"] == shown["key"]
    assert another(client, "ben").get(f"/api/v1/studies/{shown['key']}").status_code == 404
    store = b"".join(file.read_bytes() for file in tmp_path.glob("store.sqlite*"))
    assert b"mine.png" not in store
    assert png(STUDY.image)[:64] not in store
    assert client.delete(f"/api/v1/uploads/{shown['key']}").status_code == 204
    assert client.get(f"/api/v1/studies/{shown['key']}").json()["error"]["code"] == "unknown-study"


def test_keeping_stores_the_pixels_and_nothing_else(client: Client, tmp_path: Path) -> None:
    shown = upload(client, png(STUDY.image), "Example%20Anna.png")
    kept = client.post(f"/api/v1/uploads/{shown['key']}/keep").json()
    assert kept["kind"] == "kept"
    assert "Example" not in str(kept)
    assert client.get(str(kept["pixels"])).content == client.get(f"/api/v1/studies/{kept['key']}/pixels").content
    client.app.state.context.library._own.clear()  # type: ignore[attr-defined]  # as after a restart
    pixels = np.frombuffer(client.get(f"/api/v1/studies/{kept['key']}/pixels").content, "<u2").reshape(128, 128)
    assert np.abs(pixels / 65535 - np.round(STUDY.image * 255) / 255).max() < 1e-4
    assert b"Example" not in b"".join(file.read_bytes() for file in tmp_path.glob("store.sqlite*"))
    assert another(client, "ben").get(f"/api/v1/studies/{kept['key']}").status_code == 404
    assert client.delete(f"/api/v1/uploads/{kept['key']}").status_code == 204
    assert client.get(f"/api/v1/studies/{kept['key']}").status_code == 404


def test_a_person_may_keep_only_so_many_images(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rightlung.app.study_routes.KEPT_IMAGES", 1)
    keys = [upload(client, png(STUDY.image))["key"] for _ in range(2)]
    assert client.post(f"/api/v1/uploads/{keys[0]}/keep").status_code == 200
    refused = client.post(f"/api/v1/uploads/{keys[1]}/keep")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert client.get(f"/api/v1/studies/{keys[1]}").status_code == 200  # still in memory
    bens = another(client, "ben")
    key = upload(bens, png(STUDY.image))["key"]
    assert bens.post(f"/api/v1/uploads/{key}/keep").status_code == 200


@pytest.mark.parametrize(("change", "said"), [
    (lambda image: 1 - image, "inverted"), (lambda image: image[::-1], "upside down"),
    (lambda image: np.random.default_rng(0).random((128, 128), np.float32), "it is noise"),
    (lambda image: np.tile(np.linspace(0, 1, 128, dtype=np.float32), (128, 1)), "it is a gradient"),
])  # fmt: skip
def test_an_image_that_is_no_upright_radiograph_is_announced(client: Client, change, said: str) -> None:  # type: ignore[no-untyped-def]
    warnings = upload(client, png(change(STUDY.image)))["warnings"]
    assert any(said in warning for warning in warnings), warnings  # type: ignore[attr-defined]


def test_an_image_without_a_chest_has_no_regions(client: Client) -> None:
    shown = upload(client, png(np.tile(np.linspace(0, 1, 128, dtype=np.float32), (128, 1))))
    assert shown["regions"] == {}
    assert client.post("/api/v1/regions", json={"study": shown["key"]}).json()["error"]["code"] == "no-regions"


def test_a_lateral_dicom_file_is_announced_and_its_names_are_not_read(client: Client) -> None:
    words = np.round(STUDY.image * 4095).astype(np.uint16)
    shown = upload(client, dicom(words, ViewPosition="LL", PatientName="Example^Anna"))
    assert any("no frontal chest radiograph according to its header" in one for one in shown["warnings"])  # type: ignore[attr-defined]
    assert "Anna" not in str(shown)


@pytest.mark.parametrize("data", [
    b"", b"PK\x03\x04" + bytes(100), b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff\xe0" + bytes(50), b"GIF89a" + bytes(50), bytes(128) + b"DICM",
])  # fmt: skip
def test_other_files_are_refused(client: Client, data: bytes) -> None:
    refused = client.post("/api/v1/uploads", content=data)
    assert (refused.status_code, refused.json()["error"]["code"]) == (415, "not-an-image")


def test_a_png_that_would_fill_the_memory_is_refused(client: Client) -> None:
    file = io.BytesIO()
    Image.new("L", (8_000, 8_000)).save(file, "PNG")
    refused = client.post("/api/v1/uploads", content=file.getvalue())
    assert refused.status_code == 415
    assert "pixels" in refused.json()["error"]["message"]
