"""A program: a `paritas` command under a wall clock that a test can move.

``python offset_command.py OFFSET_FILE COMMAND …``
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from agent_process import OffsetClock

import paritas.clock


def main():
    offset = Path(sys.argv[1])
    # Commands make their own clock when they run; the program around them moves it, nothing else is replaced.
    paritas.clock.SystemClock = lambda: OffsetClock(offset)
    from paritas.cli import main as paritas_main

    return paritas_main(sys.argv[2:])


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main())
    os._exit(1)
