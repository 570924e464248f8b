"""Who must report, written to the event log: on every change, and again and again so that silence tells something."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from paritas.clock import Clock
from paritas.commands.roster_page import NamespaceReading, RosterReading
from paritas.controller.kubernetes.following import Following
from paritas.controller.kubernetes.members import Member
from paritas.errors import ParitasError
from paritas.wire import Expected, Roster, WireRecord, encode_roster
from paritas.wire.roster import fitting

__all__ = ["RosterWriter", "Sink", "expected_of"]

log = logging.getLogger(__name__)
NS = 1_000_000_000
SETTLE_S = 0.5  # pods come in crowds
RETRY_S = 1.0
BEAT_S = 1.0


class Sink(Protocol):
    """Where records go; used from one thread at a time, but for `close`."""

    def post(self, record: WireRecord) -> None:
        """Return when the log has the record; raise one of our errors if it has not."""
        ...

    def close(self) -> None:
        """Let go, and let a `post` that runs fail; twice is fine."""
        ...


@dataclass(slots=True)
class _Told:
    """What one namespace's roster was told as."""

    name: str
    is_due: bool = False
    due_ns: int = 0
    left_out: int = 0


def expected_of(members: Sequence[Member]) -> list[Expected]:
    """Return the agents of pods; the agent's name is the pod's.

    Examples
    --------
    >>> expected_of([Member("pod-7", "u", 5, has_sidecar=False)])
    [Expected(agent='pod-7', since_ns=5, sidecar='absent')]
    """
    return [Expected(m.name, m.since_ns, "present" if m.has_sidecar else "absent") for m in members]


@dataclass(slots=True)
class RosterWriter:
    """Writes the roster of each namespace while it is known to be true.

    While the cluster cannot be asked nothing is written: that the source has fallen silent is what detectors
    should say then.

    Attributes
    ----------
    sink : Sink
    names : mapping of str to str
        Namespace → name of its roster.
    every_s : float, seconds
        How often an unchanged roster is told.
    followed : dict of str to Following
        By namespace; filled by the caller.
    """

    sink: Sink
    names: Mapping[str, str]
    every_s: float
    clock: Clock
    followed: dict[str, Following] = field(default_factory=dict)
    records: int = 0
    write_failures: int = 0
    problem: str = ""
    written_ns: int = 0
    _told: dict[str, _Told] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _epoch: int = 0
    _beat_ns: int = 0

    def __post_init__(self) -> None:
        """Begin: rosters are numbered from here."""
        self._epoch, self._beat_ns = self.clock.now_ns(), self.clock.monotonic_ns()
        self._told = {namespace: _Told(name) for namespace, name in self.names.items()}

    def changed(self, namespace: str) -> Callable[[], None]:
        """Return what the following of a namespace calls when something is different."""

        def wake() -> None:
            self._told[namespace].is_due = True
            self._wake.set()

        return wake

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self._pause()
            for namespace, told in self._told.items():
                follows = self.followed[namespace].is_synced
                if follows and (told.is_due or self.clock.monotonic_ns() >= told.due_ns):
                    await self._tell(told, self.followed[namespace])

    async def _pause(self) -> None:
        """Wait for a change, but look round every second."""
        self._beat_ns = self.clock.monotonic_ns()
        try:
            async with asyncio.timeout(BEAT_S):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(SETTLE_S)
        self._wake.clear()

    async def _tell(self, told: _Told, followed: Following) -> None:
        kept, told.left_out = fitting(expected_of(list(followed.members.pods.values())))
        told.is_due = False
        number = self.records + self.write_failures + 1
        roster = Roster(told.name, self._epoch, number, kept, told.left_out)
        record = encode_roster(roster, now_ns=self.clock.now_ns())
        try:
            await self._post(record)
        except ParitasError as error:
            self._fail(str(error))
            told.due_ns = self.clock.monotonic_ns() + round(RETRY_S * NS)
        else:
            self.records, self.problem, self.written_ns = self.records + 1, "", self.clock.now_ns()
            told.due_ns = self.clock.monotonic_ns() + round(self.every_s * NS)

    async def _post(self, record: WireRecord) -> None:
        """Post on a thread, and show meanwhile that this loop turns round."""
        posted = asyncio.ensure_future(asyncio.to_thread(self.sink.post, record))
        while not posted.done():
            self._beat_ns = self.clock.monotonic_ns()
            await asyncio.wait([posted], timeout=BEAT_S)
        posted.result()

    def _fail(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("The roster cannot be written.", extra={"detail": problem})
        self.write_failures, self.problem = self.write_failures + 1, problem

    def read(self) -> RosterReading:
        """Return where everything stands; any thread may ask."""
        spaces = {name: self._read(name) for name in self._told}
        told = self.records, self.write_failures, self.problem, self.written_ns
        return RosterReading(spaces, *told, self.clock.monotonic_ns() - self._beat_ns)

    def _read(self, namespace: str) -> NamespaceReading:
        followed = self.followed.get(namespace)
        if followed is None:
            return NamespaceReading()
        pods = list(followed.members.pods.values())
        return NamespaceReading(
            len(pods),
            sum(pod.since_ns > 0 for pod in pods),
            sum(not pod.has_sidecar for pod in pods),
            self._told[namespace].left_out,
            followed.lists,
            followed.failures,
            followed.is_synced,
            followed.problem,
        )
