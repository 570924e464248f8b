"""A contract's file while a process judges by it: a good change is taken over, a bad one is told once."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from paritas.clock import Clock
from paritas.commands.console import complain, say_now
from paritas.contracts.model import Contract
from paritas.errors import ParitasError

if TYPE_CHECKING:
    from paritas.commands.detecting import DetectionLoop

__all__ = ["ContractCounts", "ContractWatch", "Reloading"]

POLL_S = 2.0
NS = 1_000_000_000


@dataclass(slots=True)
class ContractCounts:
    """What became of the contract's file while the process ran.

    Attributes
    ----------
    applied, rejected : int
        Contracts taken over, and those that could not be used.
    is_stale : bool
        Whether the file now holds one that could not be used.
    """

    applied: int = 0
    rejected: int = 0
    is_stale: bool = False


class ContractWatch:
    """Tells when the files of a contract hold another one than before.

    What counts is the content: a file that was touched, or a link that Kubernetes moved to a copy, is no change.

    Parameters
    ----------
    load : callable
        Reads the contract as it was read at the start, floors and all.
    files : sequence of Path
        What it reads; one that is no file, such as a preset's name, never changes.

    Attributes
    ----------
    contract : Contract
        The last good one.
    counts : ContractCounts

    Raises
    ------
    UsageError, ContractError
        From the constructor: the first contract cannot be read.
    """

    def __init__(self, load: Callable[[], Contract], files: Sequence[Path]) -> None:
        self._load, self._files = load, tuple(files)
        self.counts = ContractCounts()
        self._seen = self._content()  # before it is read: what changes meanwhile is seen at the next look
        self.contract = load()

    def look(self) -> Contract | ParitasError | None:
        """Return another contract, or why there is none, once for each content; None if nothing changed.

        A file that is back to the contract in force is answered with that contract.
        """
        content = self._content()
        if content == self._seen:
            return None
        self._seen = content
        try:
            self.contract = self._load()
        except ParitasError as error:
            return error
        return self.contract

    def _content(self) -> tuple[bytes | None, ...]:
        return tuple(map(_digest, self._files))


def _digest(path: Path) -> bytes | None:
    try:
        return hashlib.blake2b(path.read_bytes()).digest()
    except OSError:
        return None


class Reloading:
    """Looks every two seconds, or when asked to, and hands a changed contract to the loop; `DetectionLoop.on_turn`.

    Parameters
    ----------
    loop : DetectionLoop
    asked : Event
        Set to look at once, as by SIGHUP.
    refuses : callable or None
        Given a good contract, says why this process cannot take it over; None if it can.
    on_applied : callable
        Told the new contract after the loop took it over.
    """

    def __init__(
        self,
        watch: ContractWatch,
        loop: "DetectionLoop",
        *,
        asked: Event,
        clock: Clock,
        refuses: Callable[[Contract], ParitasError | None] | None = None,
        on_applied: Callable[[Contract], None] = lambda _: None,
    ) -> None:
        self._watch, self._loop, self._counts = watch, loop, watch.counts
        self._asked, self._clock, self._on_applied = asked, clock, on_applied
        self._refuses = refuses
        self._due_ns = 0
        self._pending: Contract | None = None

    def __call__(self) -> None:
        """Take a turn.

        Raises
        ------
        TransientError
            The log cannot say where it begins; the next turn tries again.
        """
        if self._is_due():
            self._note(self._watch.look())
        if self._pending is not None:
            self._loop.take_over(self._pending)
            self._tell(self._pending)
            self._pending = None

    def _is_due(self) -> bool:
        now_ns = self._clock.monotonic_ns()
        if not self._asked.is_set() and now_ns < self._due_ns:
            return False
        self._asked.clear()
        self._due_ns = now_ns + round(POLL_S * NS)
        return True

    def _note(self, found: Contract | ParitasError | None) -> None:
        if isinstance(found, Contract) and self._refuses is not None:
            found = self._refuses(found) or found
        if isinstance(found, Contract):
            self._counts.is_stale = False
            self._pending = found if found.digest != self._loop.contract.digest else None
        elif found is not None:
            self._counts.rejected += 1
            self._counts.is_stale = True
            kept = self._loop.contract
            complain(f"{found.render()}\n  still judging by {kept.name} {kept.version}\n")

    def _tell(self, contract: Contract) -> None:
        self._counts.applied += 1
        say_now(f"judging by {contract.name} {contract.version} now, from the log's oldest record on\n")
        self._on_applied(contract)
