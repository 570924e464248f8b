"""Windows of runtime clauses as a contract writes them: ``1s`` of start times, or ``1000 steps``."""

import re

from paritas.contracts.durations import DURATION_PATTERN, duration_text, parse_duration
from paritas.contracts.model import Clause

__all__ = ["WINDOW_HINT", "WINDOW_PATTERN", "parse_window", "window_text"]

WINDOW_PATTERN = rf"^([0-9]{{1,9}} steps?|{DURATION_PATTERN[1:-1]})$"
WINDOW_HINT = "write 1s, or 1000 steps"

Window = tuple[float | None, int | None]


def parse_window(text: str) -> Window:
    """Return the seconds, or the steps, that a window is long; the other one is None.

    Raises
    ------
    ValueError
        If `text` is neither, or nothing long.

    Examples
    --------
    >>> parse_window("500ms"), parse_window("1000 steps")
    ((0.5, None), (None, 1000))
    """
    if not re.fullmatch(WINDOW_PATTERN, text):
        raise ValueError(f"{text!r} is no window")
    steps = int(text.split(maxsplit=1)[0]) if " " in text else None
    seconds = None if steps is not None else float(parse_duration(text))
    if not (steps or seconds):
        raise ValueError(f"{text!r} is no window")
    return seconds, steps


def window_text(clause: Clause) -> str:
    """Return the window of a clause as a contract writes it; empty if it has none.

    Examples
    --------
    >>> from paritas.contracts.model import Family
    >>> window_text(Clause("a", Family.RUNTIME, "time_to_first_token", window_s=1.0))
    '1s'
    """
    if clause.window_steps is not None:
        return f"{clause.window_steps} step" + ("s" if clause.window_steps != 1 else "")
    return "" if clause.window_s is None else duration_text(clause.window_s)
