"""Every command answers what it cannot do with one sentence and a documented exit code."""

from __future__ import annotations

import shlex
from pathlib import Path

import PIL.Image
import pytest

from tests.audit.cards import diagonal_map, write_answers
from tests.cli.conftest import Run, radiograph
from tests.judgements.made_up import row, write_about, write_experiment, write_rows

STUDIES = "'phantom?count=3&seed=3&size=64'"
PREDICT = f"predict tests.asking.models:Painter {STUDIES} --out p"
NOT_WRITTEN = ("run", "t.csv", "t.xlsx", "k.csv", "p", "audit", "groundings", "out")
GROUND = "ground --model tests.asking.models:Painter"
PLAN = "judgements plan {} --out {} --key {} --annotator ann"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good and bad images, judgements, experiments, predictions, and studies of a single patient."""
    from rightlung.studies import open_source

    folder = tmp_path_factory.mktemp("world")
    for name in ("images", "empty", "mine"):
        (folder / name).mkdir()
    for name in ("images/one.png", "mine/a.png"):
        PIL.Image.fromarray(radiograph()).save(folder / name)
    (folder / "images" / "text.png").write_text("hello")
    (folder / "mine" / "manifest.jsonl").write_text('{"id": "a", "file": "a.png", "patient": "p", "text": "Clear."}')
    write_rows(folder / "good.csv", [row()])
    write_rows(folder / "named.csv", [row(model="GLoRIA")])
    write_experiment(folder / "exp", 30)
    write_experiment(folder / "references", 6, slugs=["prior", "uniter"])
    write_about(folder / "references", "prior", group="reference")
    write_about(folder / "references", "uniter", comparable=False)
    write_answers(open_source(STUDIES.strip("'")), folder / "written", diagonal_map, ("none",))
    return folder


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "Usage:"),
        ("dmeo", "demo"),
        ("data shwo x", "show"),
        ("demo --cuont 3", "--count"),
        ("data show manifst:/x", "did you mean 'manifest'"),
        ("data show 'manifest:/x?spilt=val'", "did you mean 'split'"),
        ("data check manifest:nowhere", "nowhere"),
        ("data check manifst:x", "did you mean 'manifest'"),
        (f"data check {STUDIES} --least eror", "did you mean 'error'"),
        ("predictions missing.parquet", "missing.parquet"),
        (f"predict startr {STUDIES} --out p", "startr"),
        ("predict tests.asking.models:Painter 'phantm?count=2&seed=1' --out p", "did you mean 'phantom'"),
        ("predict tests.asking.test_protocols:BoxClassifier manifest:mine --out p --condition none --query regions",
         "none of the 1 studies of manifest:mine has a region to ask about"),
        ("audit tests.asking.models:Painter manifest:mine", "exchange-image needs images of two patients"),
        ("predict tests.asking.models:Painter manifest:mine --out p", "exchange-image needs images of two patients"),
        (f"{PREDICT} --condition swap-side", "did you mean 'swap-sides'"),
        (f"{PREDICT} --device cuda:99", "cuda:99"),
        (f"{PREDICT} --batch-size 0", "batch-size"),
        (f"{PREDICT} --query regions", "Painter cannot answer regions; it answers phrases"),
        ("audit tests.asking.models:Painter", "also give the source"),
        (f"audit no-such-model {STUDIES}", "no-such-model"),
        (f"audit missing.parquet {STUDIES}", "missing.parquet"),
        ("audit missing.parquet", "missing.parquet: there is no such predictions file"),
        ("audit written 'phantom?count=3&seed=99&size=64'",
         f"(made from {STUDIES}) is in phantom?count=3&seed=99&size=64"),
        ("train smal --out run", "unknown recipe 'smal'; did you mean 'small'"),
        ("train small --set batch_sise=3 --out run", "did you mean 'batch_size'"),
        ("train small --precision fp32 --out run", "unknown precision 'fp32'"),
        ("train small --strategy dp --out run", "unknown strategy 'dp'; did you mean 'ddp'"),
        ("train small --accelerator gpu --out run", "unknown accelerator 'gpu'"),
        ("train small --steps 0 --out run", "schedule.steps must be at least 1"),
        (f"{GROUND} images/one.png", "at least one phrase"),
        (f"{GROUND} images/one.png '  '", "a phrase must be a text"),
        (f"{GROUND} images/no.png effusion", "there is no such image or folder"),
        (f"{GROUND} 'phantm?count=1&seed=1' effusion", "there is no such image or folder"),
        (f"{GROUND} {STUDIES} effusion --force", "--force applies to image files"),
        (f"{GROUND} empty effusion", "holds no PNG, JPEG or DICOM files"),
        (f"{GROUND} images/text.png effusion", "text.png is not an image"),
        ("ground images/one.png effusion --model starterr", "starterr"),
        ("judgements check missing.csv", "missing.csv"),
        ("judgements check named.csv", "line 2, field model: expected a code of one or two capital letters"),
        ("judgements analyse good.csv --out out --measures exp", "give the key (--key) as well"),
        (PLAN.format("exp", "t.csv", "t.csv"), "must be two files"),
        (PLAN.format("exp", "t.csv", "k.csv"), "need 50 prompts"),
        (PLAN.format("exp", "t.xlsx", "k.csv") + " --per-annotator 10",
         "t.xlsx: the table is written as CSV, so its name must end in .csv"),
        (PLAN.format("references", "t.csv", "k.csv"),
         "references: holds only references and variants (prior, uniter); choose with --model"),
        (PLAN.format("missing", "t.csv", "k.csv"), "missing does not exist"),
    ],
)  # fmt: skip
def test_bad_input_exits_2_with_a_sentence(
    call: Run, world: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    monkeypatch.chdir(world)
    result = call(*shlex.split(command))
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not [path.name for path in world.iterdir() if path.name in NOT_WRITTEN]


@pytest.mark.parametrize(
    "command",
    [
        "audit written --resamples 200 --out",
        "demo --model tests.asking.models:Painter --count 2 --out",
        f"data show {STUDIES} --sheet",
        f"{GROUND} images/one.png effusion --out",
        "judgements analyse good.csv --resamples 200 --out",
    ],
)
def test_an_output_that_cannot_be_written_exits_4(
    call: Run, world: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(world)
    result = call(*shlex.split(command), "/dev/null/out.png")
    assert result.returncode == 4
    assert "/dev/null/out.png" in result.stderr
    assert "Traceback" not in result.stderr
