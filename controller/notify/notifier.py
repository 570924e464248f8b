"""Follows the escalation stream and tells people: one thread reads, one groups and sends."""

import hashlib
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Self

from paritas.clock import NS_PER_S, Clock
from paritas.controller.backoff import Backoff, delay_s
from paritas.controller.deliveries import Delivery, DeliveryKind
from paritas.controller.notify.book import noted, pruned
from paritas.controller.notify.grouping import awaited, due, next_due_ns, regrouped, remember, settled
from paritas.controller.notify.log import NotificationLog
from paritas.controller.notify.model import GroupKey, Inhibition, Notice, Receiver
from paritas.controller.notify.rendering import rendered
from paritas.controller.notify.sending import send
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

    A message that could not be delivered is due again, after growing waits, until it is delivered
    or its group has ended untold; the log is written after each delivery, so a crash in between
    repeats one message rather than losing it.

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

    Attributes
    ----------
    counts : Counter
        Messages ``sent`` and ``failed``, by receiver: ``sent:NAME``, ``failed:NAME``; ``unsaved`` logs.

    Raises
    ------
    UsageError
        On entering: the log cannot be used.
    """

    def __init__(
        self, plan: Plan, follow: Callable[[], Subscription], kept: NotificationLog, *, clock: Clock
    ) -> None:
        self._plan, self._follow, self._kept, self._clock = plan, follow, kept, clock
        tells, self._book = kept.load()
        self._tells = regrouped(tells, self._book, plan.receivers)
        self._arrived: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._retry_ns: dict[str, tuple[int, int]] = {}  # by receiver: failures in a row, and not before
        self._random = Random(0)  # noqa: S311  # spreads waits, keeps no secret
        self._whole = threading.Event()  # a first snapshot is here; before it, silence would look like an end
        self._threads: Sequence[threading.Thread] = ()
        self._subscription: Subscription | None = None
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._subscription = self._follow()
        self._threads = [
            threading.Thread(target=self._read, args=(self._subscription,), name="notify-read", daemon=True),
            threading.Thread(target=self._work, name="notify-send", daemon=True),
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
        while self._take(self._wait_s()):
            self._tell()

    def _wait_s(self) -> float:
        """Until the next group may be due, at most a second."""
        due_ns = next_due_ns(self._tells, self._plan.receivers)
        if due_ns is None:
            return _LONGEST_WAIT_S
        return min(max((due_ns - self._clock.now_ns()) / NS_PER_S, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)

    def _take(self, wait_s: float) -> bool:
        """Note all that has arrived; return False at the end of the subscription."""
        with suppress(queue.Empty):
            delivery = self._arrived.get(timeout=wait_s)
            while delivery is not None:
                self._book = noted(self._book, delivery)
                if delivery.kind is DeliveryKind.SNAPSHOT_END:
                    self._whole.set()
                delivery = self._arrived.get_nowait()
            return False
        return True

    def _tell(self) -> None:
        """Send what is due; nothing before the first snapshot is whole."""
        if not self._whole.is_set():
            return
        now_ns = self._clock.now_ns()
        plan = self._plan
        self._tells = settled(self._tells, self._book, plan.receivers, now_ns=now_ns)
        for key, notice in due(self._tells, self._book, plan.receivers, plan.inhibitions, now_ns=now_ns):
            if self._retry_ns.get(notice.receiver, (0, 0))[1] <= now_ns:
                self._deliver(key, notice, now_ns=now_ns)
        self._book = pruned(self._book, awaited(self._tells), now_ns=now_ns)

    def _deliver(self, key: GroupKey, notice: Notice, *, now_ns: int) -> None:
        receiver = next(r for r in self._plan.receivers if r.name == notice.receiver)
        body = rendered(receiver, notice, now_ns=now_ns)
        try:
            message_id = _message_id(key, notice, told_ns=self._tells[key].sent_ns)
            send(receiver, body, message_id=message_id, now_ns=now_ns)
        except ParitasError as error:
            self._put_off(receiver.name, error, now_ns=now_ns)
            return
        self.counts[f"sent:{receiver.name}"] += 1
        self._retry_ns.pop(receiver.name, None)
        self._tells = remember(self._tells, key, notice, now_ns=now_ns)
        self._save()

    def _put_off(self, name: str, error: ParitasError, *, now_ns: int) -> None:
        failures = self._retry_ns.get(name, (0, 0))[0] + 1
        wait_s = delay_s(_PATIENCE, failures, random=self._random)
        self._retry_ns[name] = (failures, now_ns + round(wait_s * NS_PER_S))
        self.counts[f"failed:{name}"] += 1
        log.warning("Message was not delivered.", extra={"error": str(error), "wait_s": wait_s})

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
