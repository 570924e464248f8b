"""What owns an HTTP session while it is entered: the base of everything here that calls a server.  Needs aiohttp."""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

import aiohttp

from paritas.errors import TransientError

__all__ = ["HttpClient"]


class HttpClient:
    """A context manager; entered again, it has a new session.

    Parameters
    ----------
    what : str
        What is not open where a call comes too early.
    limit_s : float
        Limit of one request that names none of its own.
    headers : mapping, optional
        Of every request.
    """

    def __init__(self, what: str, *, limit_s: float, headers: Mapping[str, str] | None = None) -> None:
        self._what, self._limit_s, self._every = what, limit_s, headers
        self._opened: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._limit_s)
        self._opened = aiohttp.ClientSession(timeout=timeout, headers=self._every)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session; TransientError before it is entered."""
        if self._opened is None:
            raise TransientError(f"{self._what} is not open")
        return self._opened
