"""Messages on their way, each in a lane of its own: no receiver waits for another.  Needs aiohttp."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from paritas.controller.notify.sending import Message, Undelivered, UndeliveredError, send

__all__ = ["DEADLINE_S", "Landed", "Lanes"]

DEADLINE_S = 10.0  # of one message; a receiver that is well answers in a fraction of it

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Landed:
    """The end of one message's way; `failure` is None when its receiver has taken it."""

    message: Message
    failure: UndeliveredError | None = None


class Lanes:
    """An asynchronous context manager; hold it open with `controller.background.running`.

    Whoever gives it messages bounds what it holds: one a receiver, until that one has landed.

    Parameters
    ----------
    landed : callable of Landed
        Told once of every message, from the event loop's thread.
    deadline_s : float
        For one message, all in all.  Leaving waits for those on their way, so never longer than this.
    """

    def __init__(self, landed: Callable[[Landed], None], *, deadline_s: float = DEADLINE_S) -> None:
        self._landed, self._deadline_s = landed, deadline_s
        self._on_their_way: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*self._on_their_way)

    def post(self, message: Message) -> None:
        """Send `message`; from any thread, returns at once."""
        self._loop.call_soon_threadsafe(self._start, message)

    def _start(self, message: Message) -> None:
        task = self._loop.create_task(self._carry(message))
        self._on_their_way.add(task)
        task.add_done_callback(self._on_their_way.discard)

    async def _carry(self, message: Message) -> None:
        self._landed(Landed(message, await self._failure(message)))

    async def _failure(self, message: Message) -> UndeliveredError | None:
        try:
            await send(message, deadline_s=self._deadline_s)
        except UndeliveredError as error:
            return error
        except Exception as error:  # noqa: BLE001 -- top of a lane: counted; else its receiver would wait for ever
            log.warning("A lane met what it does not know.", extra={"error": type(error).__name__})
            text = f"receiver {message.receiver.name!r} cannot be spoken to: {type(error).__name__}"
            return UndeliveredError(text, reason=Undelivered.BROKEN)
        return None
