"""Standard streams that are closed, full, of an old encoding, or whose reader leaves.

None of these may cost a command its exit code: to whoever asks, 1 means "violated" and 0 "conforming".
"""

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

__all__ = ["flushed_output", "let_go", "prepare_streams", "say"]


def prepare_streams() -> None:
    """Open on nothing what was closed before the start; write as an escape what the encoding lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 -- it lives as long as the process
    if isinstance(sys.stdout, TextIOWrapper) and _may_refuse(sys.stdout):
        sys.stdout.reconfigure(errors="backslashreplace")


def _may_refuse(stream: TextIOWrapper) -> bool:
    """Whether there is a text that the stream raises for; what a person chose for errors stays."""
    is_utf8 = codecs.lookup(stream.encoding).name == "utf-8"
    return stream.errors == "strict" or (stream.errors == "surrogateescape" and not is_utf8)


def say(text: str) -> None:
    """Write what a command answers; a reader who leaves, as `head` does, changes no exit code."""
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        let_go(sys.stdout)


@contextmanager
def flushed_output() -> Iterator[None]:
    """Write what is left in memory at the end, where an error can still be told.

    Raises
    ------
    OSError
        The output takes nothing more, and its reader did not leave: a full disk.
    """
    try:
        yield
    finally:
        _flush()


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        let_go(sys.stdout)
    except OSError:
        let_go(sys.stdout)
        raise


def let_go(stream: TextIO) -> None:
    """Point a stream at nothing, so that the interpreter's last flush does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
