"""Recordings sent again and again, as traffic that never ends: for demonstrations and for tests of a deployment."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.clock import NS_PER_S, Clock
from paritas.errors import TransientError
from paritas.records import TokenTrace

if TYPE_CHECKING:
    from paritas.collectors.dumps import Problem, ReadOptions
    from paritas.wire import WireRecord
    from paritas.wire.sender import Sender

__all__ = ["Passes", "PatientSender", "of_this_pass", "paced"]

RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class Passes:
    """What is sent how often.

    Attributes
    ----------
    every_s : float, seconds
        From the start of one pass to the start of the next.
    acts : tuple of tuple of Path
        Recordings of a pass; several acts take turns.
    count : int
        Passes of one act; a single act ends after them, several go round.  0 never ends the first act.
    """

    every_s: float
    acts: tuple[tuple[Path, ...], ...]
    count: int = 0

    def plan(self) -> Iterator[tuple[int, tuple[Path, ...]]]:
        """Yield the turn, from 0, and the recordings of each pass."""
        acts = cycle(self.acts) if len(self.acts) > 1 else self.acts
        for turn, act in enumerate(acts):
            yield from repeat((turn, act), self.count) if self.count else repeat((turn, act))


def paced(
    passes: Passes, options: "ReadOptions", *, clock: Clock, stop: threading.Event
) -> "Iterator[TokenTrace | Problem]":
    """Yield the recordings of pass after pass, as sequences of that pass; ends once `stop` is set.

    Where acts take turns, each turn is a version of the weights: what an act did wrong is over with it.
    """
    due_ns, start_ns = clock.monotonic_ns(), clock.now_ns()
    for turn, paths in passes.plan():
        if clock.wait(stop, timeout_s=max(0.0, (due_ns - clock.monotonic_ns()) / NS_PER_S)):
            return  # also where recordings hold nothing, so that no item would notice
        due_ns += round(passes.every_s * NS_PER_S)
        version = str(start_ns // NS_PER_S + turn) if len(passes.acts) > 1 else ""
        for item in of_this_pass(
            _read(paths, options, clock.now_ns()), clock.now_ns(), weights_version=version
        ):
            if stop.is_set():
                return
            yield item


def _read(paths: Sequence[Path], options: "ReadOptions", base_ns: int) -> "Iterator[TokenTrace | Problem]":
    from paritas.collectors.dumps import read_dump
    from paritas.commands.ingest import alternate

    return alternate([read_dump(path, replace(options, base_ns=base_ns)) for path in paths])


def of_this_pass(
    items: "Iterable[TokenTrace | Problem]", base_ns: int, *, weights_version: str = ""
) -> "Iterator[TokenTrace | Problem]":
    """Name every sequence and group after the pass, and move their times so that the first one is `base_ns`.

    A sequence that is sent again under its own name would be a repeat, and one with its own time would be late.

    Examples
    --------
    >>> import numpy as np
    >>> from paritas.records import KernelIdentity, Role, TokenStatus
    >>> one = TokenTrace("run", "s0", KernelIdentity(Role.TRAIN), np.zeros(1, np.float32), np.zeros(1, np.uint64),
    ...                  np.full(1, TokenStatus.VALID, np.uint8), event_ns=70)
    >>> [(t.sequence_id, t.event_ns) for t in of_this_pass([one, replace(one, event_ns=75)], 1000)]
    [('s0@1000', 1000), ('s0@1000', 1005)]
    """
    first_ns: int | None = None
    for item in items:
        if not isinstance(item, TokenTrace):
            yield item
            continue
        first_ns = item.event_ns if first_ns is None else first_ns
        yield replace(
            item,
            sequence_id=f"{item.sequence_id}@{base_ns}",
            group_id=item.group_id and f"{item.group_id}@{base_ns}",
            event_ns=base_ns + item.event_ns - first_ns,
            weights_version=weights_version or item.weights_version,
        )


class PatientSender:
    """Sends each record until the receiver takes it, or until `stop` is set.

    Parameters
    ----------
    sender : Sender
        Already entered.
    """

    def __init__(self, sender: "Sender", *, clock: Clock, stop: threading.Event) -> None:
        self._sender, self._clock, self._stop = sender, clock, stop

    def send(self, record: "WireRecord") -> None:
        """Return when the receiver has the record, or when it is time to stop.

        Raises
        ------
        PermanentError
            It will never take this record.
        """
        while not self._stop.is_set():
            try:
                self._sender.send(record)
            except TransientError:
                self._clock.wait(self._stop, timeout_s=RETRY_S)
            else:
                return
