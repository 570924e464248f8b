"""The store in a thread of its own, so that the event loop never waits for the disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from paritas.controller.compaction import Retention
from paritas.controller.store import Store

__all__ = ["StoreThread"]

P = ParamSpec("P")
T = TypeVar("T")


class StoreThread:
    """Runs the verbs of one `Store`, one after the other, in the order they were asked for."""

    def __init__(self, path: Path, *, retention: Retention) -> None:
        self._path = path
        self._retention = retention
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="escalation-log")
        self._store: Store | None = None
        self.epoch = 0

    async def __aenter__(self) -> Self:
        opening = partial(Store, self._path, retention=self._retention)
        try:
            self._store = await asyncio.get_running_loop().run_in_executor(self._thread, opening)
        except BaseException:
            self._thread.shutdown()
            raise
        self.epoch = self._store.epoch
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.run(Store.close)
        self._thread.shutdown()

    async def run(self, verb: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``verb(store, *args, **kwargs)`` from the store's thread."""
        if self._store is None:
            raise RuntimeError("the store is not open")
        call = partial(verb, self._store, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
