"""Follows the escalation stream and tells people: one thread reads, one groups, and messages go in lanes of their own."""

import hashlib
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from types import TracebackType
from typing import Self

from paritas.clock import NS_PER_S, Clock
from paritas.controller.background import running
from paritas.controller.backoff import Backoff, delay_s
from paritas.controller.deliveries import Delivery, DeliveryKind
from paritas.controller.notify.book import noted, pruned
from paritas.controller.notify.grouping import awaited, due, next_due_ns, regrouped, remember, settled
from paritas.controller.notify.lanes import DEADLINE_S, Landed, Lanes
from paritas.controller.notify.log import NotificationLog
from paritas.controller.notify.model import GroupKey, Inhibition, Notice, Receiver
from paritas.controller.notify.rendering import rendered
from paritas.controller.notify.sending import Message, UndeliveredError
from paritas.controller.subscription import Subscription
from paritas.errors import ParitasError

__all__ = ["Notifier", "Plan"]

_PATIENCE = Backoff(first_s=1.0, most_s=300.0)
_SHORTEST_WAIT_S = 0.01
_LONGEST_WAIT_S = 1.0  # a silence may end, or the clock be set, without an event

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """Who is told of what, and what is not worth telling."""

    receivers: tuple[Receiver, ...]
    inhibitions: tuple[Inhibition, ...] = ()


class Notifier:
    """Tells people while the context is entered.

    Each receiver has a message on its way at most, and no receiver waits for another.  A message that
    could not be delivered is due again, after growing waits, until it is delivered or its group has
    ended untold; the log is written after each delivery, so a crash in between repeats one message
    rather than losing it.

    Parameters
    ----------
    plan : Plan
        Receivers and inhibitions.
    follow : callable
        Opens the subscription; it must start with a snapshot.
    kept : NotificationLog
        What was told so far.
    clock : Clock
        Decides when a group is due.
    deadline_s : float
        For one message, all in all; leaving waits for those on their way.

    Attributes
    ----------
    counts : Counter
        Messages by receiver: ``sent:NAME``, and by reason (`Undelivered`) ``failed:REASON:NAME``;
        ``unsaved`` logs.

    Raises
    ------
    UsageError
        On entering: the log cannot be used.
    """

    def __init__(
        self,
        plan: Plan,
        follow: Callable[[], Subscription],
        kept: NotificationLog,
        *,
        clock: Clock,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._plan, self._follow, self._kept, self._clock = plan, follow, kept, clock
        self._deadline_s = deadline_s
        tells, self._book = kept.load()
        self._tells = regrouped(tells, self._book, plan.receivers)
        self._arrived: queue.SimpleQueue[Delivery | Landed | None] = queue.SimpleQueue()
        self._on_its_way: dict[str, tuple[GroupKey, Notice]] = {}  # by receiver
        self._tried_ns: dict[GroupKey, int] = {}  # of a receiver's groups, the longest untried goes first
        self._retry_ns: dict[str, tuple[int, int]] = {}  # by receiver: failures in a row, and not before
        self._looked_ns = 0
        self._random = Random(0)  # noqa: S311  # spreads waits, keeps no secret
        self._whole = threading.Event()  # a first snapshot is here; before it, silence would look like an end
        self._threads: Sequence[threading.Thread] = ()
        self._subscription: Subscription | None = None
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._subscription = self._follow()
        self._threads = [
            threading.Thread(target=self._read, args=(self._subscription,), name="notify-read", daemon=True),
            threading.Thread(target=self._work, name="notify-work", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._subscription is not None:
            self._subscription.close()
        for thread in self._threads:
            thread.join()

    def _read(self, subscription: Subscription) -> None:
        try:
            for delivery in subscription:
                self._arrived.put(delivery)
                subscription.ack(delivery)
        except ParitasError as error:
            log.error("Notifications have stopped.", extra={"error": str(error)})  # noqa: TRY400  # one line
        finally:
            self._arrived.put(None)

    def _work(self) -> None:
        with running(Lanes(self._arrived.put, deadline_s=self._deadline_s), name="notify-lanes") as lanes:
            while self._take(self._wait_s()):
                self._tell(lanes)
        with suppress(queue.Empty):  # what landed while the lanes closed
            while True:
                self._note(self._arrived.get_nowait())

    def _wait_s(self) -> float:
        """Until time alone may make something due, at most a second; events and landings come by themselves."""
        times = [ns for _, ns in self._retry_ns.values() if ns > self._looked_ns]
        due_ns = next_due_ns(self._tells, self._plan.receivers, after_ns=self._looked_ns)
        times += [] if due_ns is None else [due_ns]
        waits = [(ns - self._clock.now_ns()) / NS_PER_S for ns in times]
        return min(max(min(waits, default=_LONGEST_WAIT_S), _SHORTEST_WAIT_S), _LONGEST_WAIT_S)

    def _take(self, wait_s: float) -> bool:
        """Note all that has arrived; return False at the end of the subscription."""
        with suppress(queue.Empty):
            item = self._arrived.get(timeout=wait_s)
            while item is not None:
                self._note(item)
                item = self._arrived.get_nowait()
            return False
        return True

    def _note(self, item: Delivery | Landed | None) -> None:
        if isinstance(item, Landed):
            self._land(item)
        elif item is not None:
            self._book = noted(self._book, item)
            if item.kind is DeliveryKind.SNAPSHOT_END:
                self._whole.set()

    def _tell(self, lanes: Lanes) -> None:
        """Send what is due; nothing before the first snapshot is whole."""
        now_ns = self._looked_ns = self._clock.now_ns()
        if not self._whole.is_set():
            return
        plan = self._plan
        # What is on its way may be told already: it is remembered, though its group has ended.
        held = {key: self._tells[key] for key, _ in self._on_its_way.values()}
        self._tells = {**settled(self._tells, self._book, plan.receivers, now_ns=now_ns), **held}
        self._tried_ns = {key: ns for key, ns in self._tried_ns.items() if key in self._tells}
        found = due(self._tells, self._book, plan.receivers, plan.inhibitions, now_ns=now_ns)
        for key, notice in sorted(found, key=lambda item: self._tried_ns.get(item[0], 0)):
            if self._may_be_told(notice.receiver, now_ns=now_ns):
                self._send(lanes, key, notice, now_ns=now_ns)
        self._book = pruned(self._book, awaited(self._tells) | self._being_told(), now_ns=now_ns)

    def _may_be_told(self, name: str, *, now_ns: int) -> bool:
        return name not in self._on_its_way and self._retry_ns.get(name, (0, 0))[1] <= now_ns

    def _being_told(self) -> frozenset[str]:
        told = (entry for _, notice in self._on_its_way.values() for entry in notice.firing)
        return frozenset(entry.current.incident_id for entry in told)

    def _send(self, lanes: Lanes, key: GroupKey, notice: Notice, *, now_ns: int) -> None:
        receiver = next(r for r in self._plan.receivers if r.name == notice.receiver)
        message_id = _message_id(key, notice, told_ns=self._tells[key].sent_ns)
        self._on_its_way[receiver.name], self._tried_ns[key] = (key, notice), now_ns
        lanes.post(Message(receiver, rendered(receiver, notice, now_ns=now_ns), message_id, now_ns))

    def _land(self, landed: Landed) -> None:
        name = landed.message.receiver.name
        key, notice = self._on_its_way.pop(name)
        if landed.failure is not None:
            self._put_off(name, landed.failure)
            return
        self.counts[f"sent:{name}"] += 1
        self._retry_ns.pop(name, None)
        self._tells = remember(self._tells, key, notice, now_ns=landed.message.made_ns)
        self._save()

    def _put_off(self, name: str, error: UndeliveredError) -> None:
        failures = self._retry_ns.get(name, (0, 0))[0] + 1
        wait_s = delay_s(self._patience(name), failures, random=self._random)
        self._retry_ns[name] = (failures, self._clock.now_ns() + round(wait_s * NS_PER_S))
        self.counts[f"failed:{error.reason}:{name}"] += 1
        fields = {"error": str(error), "reason": error.reason.value, "wait_s": wait_s}
        log.warning("Message was not delivered.", extra=fields)

    def _patience(self, name: str) -> Backoff:
        """Nobody is waited for longer than until the next reminder: an Alertmanager knows nothing after its restart."""
        repeat_s = next(r.grouping.repeat_s for r in self._plan.receivers if r.name == name)
        return replace(_PATIENCE, most_s=min(_PATIENCE.most_s, max(_PATIENCE.first_s, repeat_s)))

    def _save(self) -> None:
        """What cannot be kept is told twice after a restart: better than not at all."""
        try:
            self._kept.save(self._tells, self._book)
        except ParitasError as error:
            self.counts["unsaved"] += 1
            log.warning("Notification log cannot be written.", extra={"error": str(error)})


def _message_id(key: GroupKey, notice: Notice, *, told_ns: int) -> str:
    """Equal for one message that is sent again, so that a receiver can drop it; a reminder is another message."""
    firing = [(e.current.incident_id, e.current.transition) for e in notice.firing]
    said = repr((key, notice.reason.value, firing, told_ns))
    ended = repr([e.current.incident_id for e in notice.resolved])
    return hashlib.blake2b((said + ended).encode(), digest_size=16).hexdigest()
