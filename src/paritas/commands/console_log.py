"""What the log says on a terminal: the sentence, then its fields."""

import logging
import os

from paritas.commands.console import complain

__all__ = ["ConsoleHandler", "install"]

PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class ConsoleHandler(logging.Handler):
    """Writes to whatever standard error is at that moment.

    Examples
    --------
    >>> record = logging.makeLogRecord({"msg": "Detection waits.", "levelname": "WARNING", "wait_s": 0.5190563})
    >>> ConsoleHandler().format(record)
    'warning: Detection waits. (wait_s=0.519)'
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line: level, sentence, and the fields that were given as `extra`."""
        fields = {k: v for k, v in vars(record).items() if k not in PLAIN}
        told = ", ".join(f"{k}={_told(v)}" for k, v in fields.items())
        line = f"{record.levelname.lower()}: {record.getMessage()}" + (f" ({told})" if told else "")
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        return f"{line}\n{trace}" if trace else line

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; who logs goes on, whether or not it can be written."""
        complain(self.format(record) + "\n")


def _told(value: object) -> str:
    """A measured time to three digits: the others say nothing to who reads."""
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else str(value)


def install() -> None:
    """Let this process's log speak, unless it already does; called by a command's start only.

    gRPC's core writes to standard error by itself, and without being told otherwise also what is no error, such as
    that a server has ended.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    ours = logging.getLogger("paritas")
    if not ours.hasHandlers():
        ours.addHandler(ConsoleHandler(level=logging.WARNING))
