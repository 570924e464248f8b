"""One record after the other to a receiver on a Unix socket: for commands and tests.

Inside a trainer or an engine use `paritas.collectors.emitter`, which never blocks.
"""

import http.client
from pathlib import Path
from typing import Self

from paritas.clock import SystemClock
from paritas.errors import PermanentError, TransientError, UsageError
from paritas.otlp_http import OtlpClient, Target
from paritas.wire.records import WireRecord

__all__ = ["Sender"]


class Sender:
    """Sends records one at a time over one kept connection; a context manager.

    Parameters
    ----------
    receiver : Path or Target
        Its socket, or where else it listens.
    timeout_s : float, seconds
        Of each answer.
    """

    def __init__(self, receiver: Path | Target, *, timeout_s: float = 30.0) -> None:
        self._receiver = receiver
        target = Target(unix_path=receiver) if isinstance(receiver, Path) else receiver
        self._client = OtlpClient(target, clock=SystemClock(), timeout_s=timeout_s)

    def __enter__(self) -> Self:
        """Connect.

        Raises
        ------
        UsageError
            If nobody listens.
        """
        try:
            self._client.connect()
        except OSError as error:
            message = f"nobody listens on {self._receiver}"
            own = isinstance(self._receiver, Path)
            hint = "start `paritas up` with the same --data first" if own else "is the agent up?"
            raise UsageError(message, hint=hint) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def send(self, record: WireRecord) -> None:
        """Return when the receiver has the record in its log.

        Raises
        ------
        TransientError
            The receiver is gone or cannot take it now.
        PermanentError
            It will never take this record.
        """
        answer = self._client.post(record.value)
        if answer.status in (429, 503):
            raise TransientError(answer.text)
        if answer.status != http.client.OK:
            raise PermanentError(f"the receiver answered {answer.status}: {answer.text}")
