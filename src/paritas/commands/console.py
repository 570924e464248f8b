"""What a long-running command says while it works: where a line finds no room the line is lost, not the work."""

import sys
from contextlib import suppress

__all__ = ["complain", "say_now"]


def say_now(text: str) -> None:
    """Write to standard output now; `output.say` is for what a command answers at its end.

    Raises
    ------
    BrokenPipeError
        Its reader, such as head, has seen enough.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:  # a full disk, say
        return


def complain(text: str) -> None:
    """Write to standard error, if it takes it: also from a thread, which an error here would end."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
