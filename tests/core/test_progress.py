"""How far work is, as people see it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rightlung.core import progress
from rightlung.core.progress import ProgressBars


def test_without_a_terminal_a_line_comes_at_most_every_twenty_seconds(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    with ProgressBars() as shown:
        for at in (101.0, 119.0, 121.0, 125.0, 142.0):
            now[0] = at
            shown("[3/23] no-attn: measuring", at - 100, 50)
    assert capfd.readouterr().err.splitlines() == [
        "[3/23] no-attn: measuring: 21 of 50, about 29 s left",
        "[3/23] no-attn: measuring: 42 of 50, about 8 s left",
    ]


def test_on_a_terminal_one_bar_is_shown_at_a_time_and_none_is_left() -> None:
    shown = ProgressBars()
    shown.console = Console(file=io.StringIO(), force_terminal=True)
    shown("preparing", 1, 4)
    first = shown.bar
    shown("preparing", 2, 4)
    assert shown.bar is first
    shown("measuring", 1, 4)
    assert shown.bar is not first
    assert not first.live.is_started
    shown.say("training")
    assert shown.bar is None
    shown("measuring", 4, 4)
    assert shown.bar is None
