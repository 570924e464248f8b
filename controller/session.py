"""One Subscribe stream: created, snapshot, what was missed, then what comes.

The hand-over from the log to the queue has no gap and no double: the log is read until it
reaches what the hub last told, and the queue is attached without waiting in between.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial

from paritas.controller.acks import Acks
from paritas.controller.core import Core
from paritas.controller.filters import wants
from paritas.controller.hub import End, EndReason, Outbox
from paritas.controller.link import GoneError, Link
from paritas.controller.model import EventKind, IncidentRow, LoggedEvent
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.starts import PROTOCOL_VERSION, Start
from paritas.controller.store import Store
from paritas.controller.tokens import Token
from paritas.controller.wire import incident_to
from paritas.errors import ParitasError
from paritas.proto.v1 import escalation_pb2 as pb

__all__ = ["Session"]

_PAGE = 256  # entries read from the log at once
_TEXT = 4096  # characters of each text of a Nack that are kept
_ENDS = {Refused.OUT_OF_RANGE: EndReason.OUT_OF_RANGE, Refused.INVALID: EndReason.INVALID}

log = logging.getLogger(__name__)


class Session:
    """Serves one stream until it ends.

    Parameters
    ----------
    start : Start
        What the client asked for.
    link : Link
        The stream.
    core : Core
        The server's shared parts.
    """

    def __init__(self, start: Start, link: Link, core: Core) -> None:
        self._start = start
        self._link = link
        self._core = core
        self._outbox = Outbox(capacity=core.config.limits.queue_events, wants=self._wants)
        self._acks = Acks(start.kept_as, core, max_outstanding=start.max_outstanding)
        self._sent: int | None = None  # everything through here was sent or is hidden by the filter
        self._oldest = 0
        self._created = asyncio.Event()

    async def run(self) -> End:
        """Serve the stream; return why it ended."""
        name, owner = self._start.subscriber_id, self._start.owner
        self._core.hub.join(name, self._outbox, owner=owner)
        try:
            return await self._run()
        finally:
            try:
                await self._acks.keep()
            finally:
                self._core.hub.leave(name, self._outbox, owner=owner)

    def canceled(self, end: End) -> pb.ServerMsg.Canceled:
        """Return the last message of a stream that ended so."""
        return pb.ServerMsg.Canceled(
            reason=pb.ServerMsg.Reason.Value(f"REASON_{end.reason.name}"),
            detail=end.detail,
            oldest=self._core.token(self._oldest),
            resume=b"" if self._sent is None else self._core.token(self._sent),
        )

    async def _run(self) -> End:
        jobs = (self._write(), self._read(), self._beat(), self._acks.keep_all())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._guarded(job)) for job in jobs]
            end = await self._outbox.ended()
            await self._farewell(end)
            for task in tasks:
                task.cancel()
        return end

    async def _farewell(self, end: End) -> None:
        self._core.hub.counts[end.reason.value] += 1
        if end.reason is EndReason.GONE:
            return
        last = None if end.reason is EndReason.STOPPED else partial(self._last, end)
        with suppress(GoneError):
            if not await self._link.finish(last, timeout_s=self._core.config.farewell_s):
                self._core.hub.counts["unread"] += 1

    def _last(self, end: End) -> pb.ServerMsg:
        return pb.ServerMsg(canceled=self.canceled(end))

    async def _guarded(self, job: Awaitable[None]) -> None:
        """Let a refusal or a failing store end this stream, and only this one."""
        try:
            await job
        except RefusalError as error:
            self._outbox.end(End(_ENDS.get(error.reason, EndReason.UNAVAILABLE), str(error)))
        except ParitasError as error:
            self._outbox.end(End(EndReason.UNAVAILABLE, str(error)))
        except GoneError:
            self._outbox.end(End(EndReason.GONE, ""))

    def _wants(self, event: LoggedEvent) -> bool:
        """Silences concern everybody: they may cover what a subscriber already holds."""
        return event.kind is EventKind.SILENCE or wants(self._start.only, event.subject)

    # Sending.

    async def _write(self) -> None:
        self._oldest, head = await self._core.store.run(Store.bounds)
        place = await self._place(head)
        self._acks.tell(place or 0)
        await self._link.write(partial(self._first, head, snapshot=place is None))
        sent = await self._send_snapshot() if place is None else place
        self._sent = await self._catch_up(sent)
        self._core.hub.attach(self._outbox)  # no await since `_catch_up` looked at the head
        await self._follow()

    async def _place(self, head: int) -> int | None:
        """Return the number to go on after; None asks for a snapshot.

        Raises
        ------
        RefusalError
            OUT_OF_RANGE when the log no longer holds all that came after it, or never did.
        """
        match self._start.point:
            case "now":
                return head
            case "token":
                return self._checked(self._start.token, head)
            case "resume":
                seq = await self._core.store.run(Store.acked, self._start.kept_as)
                return None if seq is None else self._checked(Token(self._core.store.epoch, seq), head)
            case _:
                return None

    def _checked(self, token: Token | None, head: int) -> int:
        if token is None or token.epoch != self._core.store.epoch:
            message = "token: is of another log"
        elif not self._oldest <= token.seq <= head:
            message = f"token: {token.seq} is outside the log, which holds {self._oldest} to {head}"
        else:
            return token.seq
        raise RefusalError(message, reason=Refused.OUT_OF_RANGE)

    def _first(self, head: int, *, snapshot: bool) -> pb.ServerMsg:
        self._created.set()
        return pb.ServerMsg(
            created=pb.ServerMsg.Created(
                protocol_version=PROTOCOL_VERSION,
                head=self._core.token(head),
                oldest=self._core.token(self._oldest),
                heartbeat_interval_s=self._core.config.heartbeat_s,
                snapshot=snapshot,
            )
        )

    async def _send_snapshot(self) -> int:
        seq, rows = await self._core.store.run(Store.snapshot)
        for row in rows:
            if wants(self._start.only, row.subject):
                await self._link.write(partial(self._item, row))
        await self._link.write(partial(self._snapshot_end, seq))
        return seq

    def _item(self, row: IncidentRow) -> pb.ServerMsg:
        incident = incident_to(row, self._core.suppression(row.subject))
        return pb.ServerMsg(snapshot_item=pb.ServerMsg.SnapshotItem(incident=incident))

    def _snapshot_end(self, seq: int) -> pb.ServerMsg:
        self._sent = seq
        self._acks.tell(seq)
        return pb.ServerMsg(snapshot_end=pb.ServerMsg.SnapshotEnd(token=self._core.token(seq)))

    async def _catch_up(self, sent: int) -> int:
        """Send what the log holds after `sent`, until it is what the hub last told."""
        self._sent = sent
        while sent < self._core.hub.head:
            for event in await self._core.store.run(Store.read, after=sent, limit=_PAGE):
                if self._wants(event):
                    await self._send(event)
                self._sent = sent = event.seq
        return sent

    async def _follow(self) -> None:
        while True:
            event = await self._outbox.first()
            if self._sent is None or event.seq > self._sent:  # a snapshot may be ahead of the hub
                await self._send(event)
            self._outbox.drop_first()

    async def _send(self, event: LoggedEvent) -> None:
        await self._acks.room()
        await self._link.write(partial(self._event, event))

    def _event(self, event: LoggedEvent) -> pb.ServerMsg:
        self._sent = event.seq
        self._acks.send(event.seq)
        return pb.ServerMsg(event=self._core.event(event))

    async def _beat(self) -> None:
        await self._created.wait()
        while True:
            await asyncio.sleep(self._core.config.heartbeat_s)
            await self._link.write(self._heartbeat)

    def _heartbeat(self) -> pb.ServerMsg:
        if self._outbox.caught_up:
            self._sent = max(self._sent or 0, self._outbox.offered)
        beat = pb.ServerMsg.Heartbeat(server_time_ns=self._core.clock.now_ns(), queued=len(self._outbox))
        if self._sent is not None:
            self._acks.tell(self._sent)
            beat.token = self._core.token(self._sent)
        return pb.ServerMsg(heartbeat=beat)

    # Receiving.

    async def _read(self) -> None:
        """Serve what the client says; one that says no more may go on listening."""
        while (message := await self._link.read()) is not None:
            await self._take(message)

    async def _take(self, message: pb.ClientMsg) -> None:
        match message.WhichOneof("body"):
            case "ack":
                self._acks.take(message.ack.token)
            case "nack":
                await self._take_nack(message.nack)
            case "ping":
                await self._link.write(self._heartbeat)
            case "stop":
                self._outbox.end(End(EndReason.STOPPED, ""))
            case "start":
                raise RefusalError("start: may only be the first message", reason=Refused.INVALID)

    async def _take_nack(self, nack: pb.ClientMsg.Nack) -> None:
        text = nack.error[:_TEXT]
        event_id = nack.event_id[:_TEXT]
        fields = {"subscriber_id": self._start.subscriber_id, "event_id": event_id, "error": text}
        fields |= {"caller": self._start.owner} if self._start.owner else {}
        log.warning("Subscriber could not apply an event.", extra=fields)
        now_ns = self._core.clock.now_ns()
        name = self._start.kept_as
        await self._core.store.run(Store.nack, name, event_id=event_id, error=text, now_ns=now_ns)
