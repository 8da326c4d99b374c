from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rightlung.audit import TaskAudit, audit_tasks
from rightlung.audit.task_page import make_task_page, verdict_of
from rightlung.core import Box, Report, Sentence
from rightlung.core.plotting import PREDICTED
from rightlung.pages.content import Figure, Page, Section
from rightlung.results.estimate import BootstrapSettings
from tests.asking.models import picture
from tests.audit.oracle import HEART, NODULE, Oracle, Ward
from tests.pages.test_figures import marks


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> TaskAudit:
    folder = tmp_path_factory.mktemp("tasks")
    options = {"settings": BootstrapSettings(100), "conditions": ["none", "exchange-image"], "name": "oracle"}
    return audit_tasks(Oracle(), Ward(), folder, ["grounding", "detection"], **options)


@pytest.fixture(scope="module")
def page(done: TaskAudit) -> Page:
    return make_task_page(done.result, done.parts, [])


def figures(section: Section) -> list[Figure]:
    return [part for part in section.parts if isinstance(part, Figure)]


def test_each_part_begins_with_a_figure_of_its_main_measures(done: TaskAudit, page: Page) -> None:
    found = done.result["tasks"]["detection"]
    (axes,) = figures(page.shown[1])[0].draw().axes
    other = found["conditions"]["exchange-image"]["measures"]["map"]["estimate"]
    assert marks(axes, "o") == [(1.0, 0), (round(other, 9), 3)]  # the model, and on another image
    baselines = [found["blind"][name]["measures"]["map"]["estimate"] for name in ("blind-constant", "blind-random")]
    assert marks(axes, "D") == [(round(value, 9), row) for row, value in enumerate(baselines, 1)]
    assert axes.get_xlim()[0] == 0.0
    assert [label.get_text() for label in axes.get_yticklabels()][0::3] == ["model", "another patient's image"]
    assert [axes.texts[0].get_text() for axes in figures(page.shown[0])[0].draw().axes] == [
        "mIoU of boxes", "mAP of sentences",
    ]  # fmt: skip


def test_detection_has_a_line_for_each_finding_with_its_best_baseline(done: TaskAudit, page: Page) -> None:
    found = done.result["tasks"]["detection"]
    (axes,) = figures(page.shown[1])[1].draw().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cardiomegaly", "nodule"]
    assert [x for x, _ in marks(axes, "o")] == [1.0, 1.0]
    best = max(found["blind"], key=lambda name: found["blind"][name]["measures"]["map"]["estimate"])
    expected = [round(one[best]["estimate"], 9) for one in found["by_class"].values()]
    assert [x for x, _ in marks(axes, "D")] == expected
    assert "<svg" in done.page.read_text(encoding="utf-8")


def test_the_clearest_lead_of_five_patients_is_not_better(tmp_path: Path) -> None:
    for patients, outcome in ((5, "too few patients to tell."), (6, "better.")):
        source, settings = Ward(2 * patients), BootstrapSettings(100)
        done = audit_tasks(Oracle(), source, tmp_path / str(patients), ["detection"], settings=settings, cases=0)
        (one,) = done.parts
        lead = one.blind["blind-random"].difference["map"]
        assert (lead.patients, lead.excludes(0.0)) == (patients, True)
        assert verdict_of(one).endswith(f": {outcome}")
        assert (
            done.result["tasks"]["detection"]["blind"]["blind-random"]["difference"]["map"]["verdict"] == lead.verdict
        )


def is_upper_edge(drawn: Any, box: Box) -> bool:
    """Whether the middle of a box's upper edge is drawn in the colour of predicted boxes."""
    pixels, (height, width) = np.asarray(drawn)[-drawn.width :], picture(0).shape
    size = np.array([width, height]) * drawn.width / max(height, width)  # letterboxed
    x, y = ((drawn.width - size) / 2 + size * [(box.x0 + box.x1) / 2, box.y0]).round().astype(int)
    return bool((pixels[y : y + 2, x] == PREDICTED).all())


def test_cases_are_the_best_middle_and_worst_by_the_measure_of_one_row(tmp_path: Path) -> None:
    class Careless(Oracle):
        """Right about the nodule of even studies, half as large on odd ones; writes about even studies only."""

        def detect(self, images: Any, findings: Any) -> Any:
            odd = [round(float(image[0, 0]) * 255) % 2 == 0 for image in images]
            found = super().detect(images, findings)
            return [
                [replace(box, box=box.box.scaled(0.5)) if flag else box for box in boxes]
                for flag, boxes in zip(odd, found, strict=True)
            ]

    source = Ward()
    done = audit_tasks(
        Careless(), source, tmp_path, ["detection"], settings=BootstrapSettings(100), cases=2, name="<b>model</b>"
    )
    best, middle, worst = done.parts[0].galleries
    assert [case.title for case in best.cases] == ["cardiomegaly", "nodule"]  # findings in turn
    assert all("mAP 1.00" in case.notes[0] for case in best.cases)
    # Half as wide and high: IoU 0.25, which matches at 0.1 and 0.2 of seven thresholds.
    assert all("mAP 0.29" in case.notes[0] for case in worst.cases)
    studies = [case.notes[0].split("Study ")[1] for gallery in (best, middle, worst) for case in gallery.cases]
    assert len(studies) == len(set(studies))
    (_, target), (_, answer) = next(case for case in worst.cases if case.title == "nodule").pictures
    assert is_upper_edge(answer(), NODULE[False].scaled(0.5))
    assert not (np.asarray(target()) == PREDICTED).all(axis=2).any()
    assert "<b>model" not in done.page.read_text(encoding="utf-8")


def test_cases_of_texts_show_the_reference_next_to_what_the_model_wrote(tmp_path: Path) -> None:
    class Grounded(Oracle):
        def report(self, images: Any) -> list[Report]:
            return [
                replace(one, sentences=(Sentence("Heart <i>large</i>.", (HEART,)), Sentence("No box.")))
                for one in super().report(images)
            ]

    options: dict[str, Any] = {"settings": BootstrapSettings(100), "cases": 1}
    done = audit_tasks(Grounded(), Ward(), tmp_path, ["report", "region-description"], **options)
    regions, boxes, report = (one.galleries[0].cases[0] for one in done.parts)
    assert regions.title in ("left lung", "right lung")
    assert boxes.notes[:2] == ["Reference: Nodule in the left lung.", "Model: Nodule in the left lung."]
    assert boxes.notes[2] == "ROUGE-L 1.00. Study s0, box:0.0"
    assert report.notes[0].startswith("Reference: Nodule in the left lung.")
    assert report.notes[1] == "Model: (1) Heart <i>large</i>. (2) No box."
    assert is_upper_edge(report.pictures[0][1](), HEART)
    text = done.page.read_text(encoding="utf-8")
    assert "Heart &lt;i&gt;large" in text
    assert "<i>large" not in text
