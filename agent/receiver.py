"""OTLP/HTTP over a Unix socket into any log: the receiver of `paritas up`, which has no spool.

A request is answered when its records are appended.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from paritas.agent.intake import Intake
from paritas.agent.otlp import SCHEMA_HEADERS
from paritas.agent.reasons import DropReason
from paritas.agent.receivers.http import HttpReceiver, unix_receiver
from paritas.agent.receivers.peers import allowed_uids
from paritas.wire import WireRecord

__all__ = ["MAX_BODY_BYTES", "SCHEMA_HEADERS", "Receiver"]

MAX_BODY_BYTES = 16 * 1024 * 1024  # a batch of thirty full records
MAX_PENDING_BYTES = 4 * MAX_BODY_BYTES


class _Appending:
    """A sink that appends one by one."""

    def __init__(self, append: Callable[[WireRecord], None]) -> None:
        self._append = append

    def append(self, records: Sequence[WireRecord]) -> None:
        """Append the records; with a TransientError some may be in, and the client sends all again."""
        for record in records:
            self._append(record)

    def drop_unspooled(self, count: int, reason: DropReason) -> None:
        """The client is told; here nobody counts."""


class Receiver:
    """Listens during its context; for processes of this user only (mode 0600, and the kernel's word).

    Parameters
    ----------
    path : Path
        The socket; a stale one is replaced, a live one is an error.
    append : callable
        Puts one record into the log; may be called from several threads.

    Raises
    ------
    UsageError
        On entering: the path is too long, or someone listens there already.
    """

    def __init__(self, path: Path, append: Callable[[WireRecord], None]) -> None:
        self._path = path
        self.intake = Intake(_Appending(append), max_pending_bytes=MAX_PENDING_BYTES)
        self._receiver: HttpReceiver | None = None

    def __enter__(self) -> Self:
        uids = allowed_uids(())
        self._receiver = unix_receiver(
            self._path, self.intake, uids=lambda: uids, is_shared=False, max_body_bytes=MAX_BODY_BYTES
        ).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; twice is fine."""
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None
