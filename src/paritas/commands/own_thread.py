"""A component with a thread of its own, which works until it is told to stop."""

import abc
import threading
from types import TracebackType
from typing import Self

__all__ = ["OwnThread"]


class OwnThread(abc.ABC):
    """Runs `_run` on a daemon thread from entering to leaving; `_stop` is set when it shall end.

    Parameters
    ----------
    name : str
        Of the thread, as tools show it.
    """

    def __init__(self, *, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread and wait for its end; twice is fine."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @abc.abstractmethod
    def _run(self) -> None:
        """Work until `_stop` is set."""
