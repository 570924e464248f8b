"""Routes for gateways and trainers: watched in the background, decided here, valid as long as renewed.

::

    with RouteClient("127.0.0.1:4320", "qwen3-8b") as routes:
        kernel = routes.resolve({"x-task": "math"}, sticky_key=session).kernel
        if Hold.REFIT in routes.holds: ...

`resolve` and `holds` look at a table in memory: they never wait, and never raise for a controller
that is away.  When it does not renew the table in time, the declared fail mode answers.
"""

import asyncio
import secrets
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

import grpc

from paritas.clock import Clock, SystemClock
from paritas.controller.backoff import Backoff, delay_s
from paritas.controller.config import TlsFiles
from paritas.controller.reach import Reach
from paritas.controller.route_wire import renewed_until_ns, table_from
from paritas.controller.routing.model import INFERENCE, Hold, Why
from paritas.controller.routing.table import Resolution, Table, resolve
from paritas.errors import ParitasError
from paritas.proto.v1 import route_pb2 as pb
from paritas.proto.v1 import route_pb2_grpc as pb_grpc

__all__ = ["AsyncRouteClient", "RouteCache", "RouteClient"]

BACKOFF = Backoff(first_s=0.1, most_s=5.0)


class RouteCache:
    """The newest table of one policy and its lease; safe to read from any thread while another writes.

    Attributes
    ----------
    counts : Counter of str
        ``tables``, ``renewals``, and how often the ``connection`` was lost.
    """

    def __init__(self, policy: str, *, clock: Clock) -> None:
        self._policy, self._clock = policy, clock
        self._table: Table | None = None  # replaced whole: a reader never sees half of it
        self.counts: Counter[str] = Counter()

    @property
    def table(self) -> Table | None:
        """The newest table, its lease by this machine's monotonic clock; None before the first."""
        return self._table

    @property
    def request(self) -> pb.WatchRoutesRequest:
        """What resumes a watch after what is known."""
        return pb.WatchRoutesRequest(policy=self._policy, revision=self._table.revision if self._table else 0)

    def take(self, message: pb.WatchRoutesResponse) -> None:
        """Keep what a watch has sent."""
        now_ns = self._clock.monotonic_ns()
        if message.WhichOneof("body") == "table":
            self._table = table_from(message.table, now_ns=now_ns)
            self.counts["tables"] += 1
        elif self._table is not None and message.renewal.revision == self._table.revision:
            until_ns = renewed_until_ns(message.renewal.valid_for_s, now_ns=now_ns)
            self._table = replace(self._table, valid_until_ns=until_ns)
            self.counts["renewals"] += 1

    def resolve(self, attributes: Mapping[str, str], sticky_key: str = "") -> Resolution:
        """Return the kernel of a request; without a key, its share is drawn anew."""
        if self._table is None:
            return Resolution(INFERENCE, "", 0, 0.0, Why.LEASE_EXPIRED.value, "no table has come yet")
        key = sticky_key or secrets.token_hex(8)
        return resolve(self._table, attributes, key, now_ns=self._clock.monotonic_ns())

    @property
    def holds(self) -> Mapping[Hold, str]:
        """What the trainer is asked for.  Holds stay when the controller is lost: no recovery is known."""
        return self._table.holds if self._table else {}


class RouteClient:
    """Follows the routes of one policy from a thread of its own; a context manager.

    Parameters
    ----------
    target : str
        ``host:port`` or ``unix:/path``.
    policy : str
        Whose routes.
    clock : Clock
        Its monotonic time bounds the lease; its waits are those between two connections.
    tls, token_file : TlsFiles or None, Path or None
        As `controller.client.EscalationClient`.
    """

    def __init__(
        self,
        target: str,
        policy: str,
        *,
        clock: Clock | None = None,
        tls: TlsFiles | None = None,
        token_file: Path | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._reach = Reach(target, tls, token_file)
        self._cache = RouteCache(policy, clock=self._clock)
        self._closed, self._first = threading.Event(), threading.Event()
        self._random = Random(policy)  # noqa: S311  # spreads waits, keeps no secret
        self._channel: Any = None
        self._call: Any = None
        self._thread = threading.Thread(target=self._run, name="routes", daemon=True)

    def __enter__(self) -> Self:
        self._channel = self._reach.channel()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the watch; twice is fine.  The table stays until its lease ends."""
        self._closed.set()
        if self._call is not None:
            self._call.cancel()
        if self._channel is not None:
            self._channel.close()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def counts(self) -> Counter[str]:
        """What came, and how often the connection was lost."""
        return self._cache.counts

    @property
    def table(self) -> Table | None:
        """The newest table; None before the first."""
        return self._cache.table

    @property
    def holds(self) -> Mapping[Hold, str]:
        """What the trainer is asked for."""
        return self._cache.holds

    def wait(self, *, timeout_s: float) -> bool:
        """Wait for the first table; return whether it is there.  For start-up, never for a request."""
        return self._clock.wait(self._first, timeout_s=timeout_s)

    def resolve(self, attributes: Mapping[str, str], sticky_key: str = "") -> Resolution:
        """Return the kernel of a request, from memory."""
        return self._cache.resolve(attributes, sticky_key)

    def _run(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                for message in self._messages():
                    self._cache.take(message)
                    self._first.set()
                    failures = 0
            except (grpc.RpcError, ParitasError, ValueError):  # gone, unreadable token, closed channel
                failures += 1
            self._cache.counts["connection"] += 1
            wait_s = delay_s(BACKOFF, max(1, failures), random=self._random)
            self._clock.wait(self._closed, timeout_s=wait_s)

    def _messages(self) -> Iterator[pb.WatchRoutesResponse]:
        stub: Any = pb_grpc.RouteServiceStub(self._channel)
        self._call = stub.Watch(self._cache.request, metadata=self._reach.metadata())
        if self._closed.is_set():
            self._call.cancel()
        yield from self._call


class AsyncRouteClient:
    """As `RouteClient`, on the running event loop: ``async with AsyncRouteClient(...) as routes``."""

    def __init__(
        self,
        target: str,
        policy: str,
        *,
        clock: Clock | None = None,
        tls: TlsFiles | None = None,
        token_file: Path | None = None,
    ) -> None:
        self._reach = Reach(target, tls, token_file)
        self._cache = RouteCache(policy, clock=clock or SystemClock())
        self._first = asyncio.Event()
        self._random = Random(policy)  # noqa: S311  # spreads waits, keeps no secret
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @property
    def counts(self) -> Counter[str]:
        """What came, and how often the connection was lost."""
        return self._cache.counts

    @property
    def table(self) -> Table | None:
        """The newest table; None before the first."""
        return self._cache.table

    @property
    def holds(self) -> Mapping[Hold, str]:
        """What the trainer is asked for."""
        return self._cache.holds

    async def wait(self, *, timeout_s: float) -> bool:
        """Wait for the first table; return whether it is there."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._first.wait()
        return self._first.is_set()

    def resolve(self, attributes: Mapping[str, str], sticky_key: str = "") -> Resolution:
        """Return the kernel of a request, from memory; no await."""
        return self._cache.resolve(attributes, sticky_key)

    async def _run(self) -> None:
        failures = 0
        async with self._reach.aio_channel() as channel:
            while True:
                try:
                    async for message in self._messages(channel):
                        self._cache.take(message)
                        self._first.set()
                        failures = 0
                except (grpc.RpcError, ParitasError):  # gone, unreadable token
                    failures += 1
                self._cache.counts["connection"] += 1
                await asyncio.sleep(delay_s(BACKOFF, max(1, failures), random=self._random))

    async def _messages(self, channel: Any) -> AsyncIterator[pb.WatchRoutesResponse]:
        stub: Any = pb_grpc.RouteServiceStub(channel)
        async for message in stub.Watch(self._cache.request, metadata=self._reach.metadata()):
            yield message
