"""Following the pods of one namespace: list, watch, and list again when the watch has lost its place."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from paritas.controller.backoff import Backoff, delay_s
from paritas.controller.kubernetes.members import Members
from paritas.controller.kubernetes.pods import ExpiredError, PodSource
from paritas.errors import TransientError

__all__ = ["Following"]

log = logging.getLogger(__name__)
AGAIN = Backoff(first_s=0.5, most_s=15.0)


class Following:
    """Keeps `members` as the cluster has them, until it is cancelled.

    Parameters
    ----------
    source : PodSource
        Entered by the caller.
    members : Members
    on_change : callable
        Told after each change, on the event loop.
    random : Random
        Spreads the tries after failures.

    Attributes
    ----------
    is_synced : bool
        Whether what is known is what the cluster has.
    lists, failures : int
        Times that everything was listed; times that the API server could not be asked or said no.
    problem : str
        Why it is not synced; empty while it is, and at first.
    """

    def __init__(
        self, source: PodSource, members: Members, *, on_change: Callable[[], None], random: Random
    ) -> None:
        self.members = members
        self.is_synced = False
        self.lists = self.failures = 0
        self.problem = ""
        self._source, self._on_change, self._random = source, on_change, random
        self._in_a_row = 0

    async def run(self) -> None:
        """Follow for ever; a failure is counted, said when it is a new one, and tried again."""
        while True:
            try:
                await self._follow(await self._list())
            except ExpiredError:
                self._in_a_row += 1  # a place that is lost at once, again and again, is no reason to storm
            except TransientError as error:
                self._fail(str(error))
            if self._in_a_row:
                await asyncio.sleep(delay_s(AGAIN, self._in_a_row, random=self._random))

    async def _list(self) -> str:
        pods, version = await self._source.listed()
        with _read_as_pods():
            changed = self.members.put(pods)
        self.lists += 1
        if changed or not self.is_synced:
            self.is_synced, self.problem = True, ""
            self._on_change()
        return version

    async def _follow(self, version: str) -> None:
        """One watch after the other, each from where the last ended."""
        while True:
            async for kind, pod in self._source.events(version):
                with _read_as_pods():
                    version = pod["metadata"]["resourceVersion"]
                    changed = kind != "BOOKMARK" and self.members.change(kind, pod)
                self._in_a_row = 0
                if changed:
                    self._on_change()
            self._in_a_row = 0
            await asyncio.sleep(AGAIN.first_s)  # whoever ends every watch at once is not stormed

    def _fail(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("The cluster cannot be followed.", extra={"detail": problem})
        self.is_synced, self.problem = False, problem
        self.failures += 1
        self._in_a_row += 1


@contextmanager
def _read_as_pods() -> Iterator[None]:
    """Inside, what is not as a pod should be is an answer that cannot be used."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TransientError(f"the API server sent what is no pod: {error!r}") from error
