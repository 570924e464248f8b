"""Where the demo draws a table over itself."""

import pytest
from rich.console import Console

from paritas.commands.demo import ACTS, _Stage


@pytest.mark.parametrize(
    ("columns", "is_terminal", "is_drawn_over"),
    [("120", True, True), ("200", True, True), ("80", True, False), ("200", False, False)],
)
def test_a_row_that_would_be_wrapped_is_not_drawn_over(columns, is_terminal, is_drawn_over, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    console = Console(width=120, force_terminal=is_terminal)
    with _Stage(console, up=None, clock=None, act=ACTS[0])._live() as live:
        assert (live is not None) == is_drawn_over
