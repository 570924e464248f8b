"""The escalation client for programs on an event loop: the same calls, awaited.

::

    async with AsyncEscalationClient("127.0.0.1:4320") as client:
        async with client.subscribe("router-1") as deliveries:
            async for delivery in deliveries:
                await apply(delivery.actions)
                deliveries.ack(delivery)

It is the synchronous client on threads of its own, so resuming, repeats and gaps are decided in
one place (`controller.subscription`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from paritas.contracts.model import Requirement
from paritas.controller.client import EscalationClient, Published
from paritas.controller.deliveries import Delivery
from paritas.controller.filters import Filter
from paritas.controller.histories import History
from paritas.controller.model import Acknowledgement, Incident
from paritas.controller.silences import Silence
from paritas.controller.subscription import Subscription, SubscriptionOptions
from paritas.records import Escalation

__all__ = ["AsyncEscalationClient", "AsyncSubscription"]

T = TypeVar("T")


class AsyncSubscription:
    """Iterate over it with ``async for``; an asynchronous context manager.

    A wait that is cancelled loses nothing: what arrives meanwhile is what the next wait gets.

    Parameters
    ----------
    subscription : Subscription
        What it waits for, on one thread of its own.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="subscription")
        self._next: asyncio.Future[Delivery | None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        """Both wait: for the server's farewell, and for the thread that receives it."""
        self._subscription.close()
        self._thread.shutdown()

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """Return the iterator over deliveries; there is one."""
        return self

    async def __anext__(self) -> Delivery:
        """Wait for the next delivery; ends when the subscription is closed."""
        if self._next is None and self._closed:
            raise StopAsyncIteration
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.run_in_executor(self._thread, next, self._subscription, None)
        delivery = await asyncio.shield(self._next)
        self._next = None
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    @property
    def token(self) -> bytes:
        """Where to go on; empty before the first token came."""
        return self._subscription.token

    def ack(self, delivery: Delivery) -> None:
        """Say that `delivery` and all before it were handled; never asked for again."""
        self._subscription.ack(delivery)

    def nack(self, delivery: Delivery, *, error: str) -> None:
        """Say that `delivery` was seen and could not be applied; it is recorded, not sent again."""
        self._subscription.nack(delivery, error=error)


class AsyncEscalationClient:
    """`EscalationClient`, awaited; an asynchronous context manager.

    Parameters
    ----------
    target : str
        ``host:port`` or ``unix:/path``.
    **options
        Those of `EscalationClient`: `tls`, `token_file`, `timeout_s`, `backoff`, `clock`.
    """

    def __init__(self, target: str, **options: Any) -> None:
        self._client = EscalationClient(target, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Give up waits, end subscriptions and close the channel; twice is fine."""
        await _awaited(self._client.close)

    def subscribe(self, subscriber_id: str, options: SubscriptionOptions | None = None) -> AsyncSubscription:
        """Return a subscription; it connects when it is iterated over."""
        return AsyncSubscription(self._client.subscribe(subscriber_id, options))

    async def publish(self, events: Iterable[Escalation]) -> Published:
        """Send `events` in order and return when they are in the log; safe to repeat."""
        return await _awaited(self._client.publish, events)

    async def incidents(self, only: Filter | None = None, *, include_closed: bool = False) -> list[Incident]:
        """Return the open incidents, oldest first."""
        listed = partial(self._client.incidents, only, include_closed=include_closed)
        return await _awaited(lambda: list(listed()))

    async def history(self, incident_id: str) -> History:
        """Return one incident with its transitions and acknowledgements."""
        return await _awaited(self._client.history, incident_id)

    async def acknowledge(self, incident_id: str, *, author: str, comment: str = "") -> Acknowledgement:
        """Record that `author` has seen the incident."""
        return await _awaited(self._client.acknowledge, incident_id, author=author, comment=comment)

    async def silence(
        self, matchers: Sequence[Requirement], *, author: str, comment: str, duration_s: float
    ) -> Silence:
        """Stop the actions of matching events for `duration_s` seconds from now."""
        said = {"author": author, "comment": comment, "duration_s": duration_s}
        return await _awaited(self._client.silence, matchers, **said)

    async def expire_silence(self, silence_id: str, *, author: str) -> Silence:
        """End a silence now."""
        return await _awaited(self._client.expire_silence, silence_id, author=author)

    async def silences(self, *, include_ended: bool = False) -> list[Silence]:
        """Return the silences by end."""
        return await _awaited(self._client.silences, include_ended=include_ended)


async def _awaited(call: Callable[..., T], *words: Any, **named: Any) -> T:
    return await asyncio.to_thread(call, *words, **named)
