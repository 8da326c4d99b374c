from __future__ import annotations

import pytest

from rightlung.audit import TaskAudit, audit_tasks
from rightlung.audit.task_page import make_task_page
from rightlung.pages.content import Figure, Page, Section
from rightlung.results.estimate import BootstrapSettings
from tests.audit.oracle import Oracle, Ward
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
