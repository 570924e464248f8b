"""What owns a file, a socket or a connection, and lets go of it at the end of a block."""

from abc import ABC, abstractmethod
from typing import Self

__all__ = ["Closing"]


class Closing(ABC):
    """A context manager that is closed when its block ends, whatever ended it.

    Examples
    --------
    >>> class Door(Closing):
    ...     def close(self):
    ...         print("closed")
    >>> with Door():
    ...     print("open")
    open
    closed
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_why: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go; a second call does nothing."""
