"""What people decide: acknowledge an incident, silence its actions, end a silence."""

import hashlib
import secrets
from dataclasses import replace

from paritas.controller.config import Limits
from paritas.controller.core import Core
from paritas.controller.model import Acknowledgement, Draft, EventKind
from paritas.controller.pages import unknown_incident
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.silences import Silence, check
from paritas.controller.store import Store
from paritas.controller.wire import acknowledgement_to, matchers_of, silence_of, silence_to
from paritas.proto.v1 import escalation_pb2 as pb

__all__ = ["acknowledge", "expire_silence", "list_silences", "silence"]

_SILENCE_BYTES = 64 * 1024


async def acknowledge(request: pb.AcknowledgeRequest, core: Core) -> pb.Acknowledgement:
    """Record that `author` has seen the incident; saying it twice is saying it once.

    Raises
    ------
    RefusalError
        INVALID without an author, NOT_FOUND for an unknown incident.
    """
    _check_texts(core.config.limits, author=request.author, comment=request.comment)
    row = await core.store.run(Store.incident, request.incident_id)
    if row is None:
        raise unknown_incident(request.incident_id)
    ack = Acknowledgement(
        incident_id=request.incident_id,
        transition=pb.Escalation.FromString(row.payload).transition,
        author=request.author,
        comment=request.comment,
        acknowledged_ns=core.clock.now_ns(),
    )
    event_id = _ack_id(ack)
    payload = acknowledgement_to(ack).SerializeToString()
    await core.journal.append([Draft(EventKind.ACKNOWLEDGEMENT, event_id, payload, row.subject)])
    kept = await core.store.run(Store.event, event_id)
    return pb.Acknowledgement.FromString(kept.payload if kept else payload)


def _ack_id(ack: Acknowledgement) -> str:
    """Equal acknowledgements have equal ids, whenever they were made."""
    parts = (ack.incident_id, str(ack.transition), ack.author, ack.comment)
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return f"ack-{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


async def silence(request: pb.SilenceRequest, core: Core) -> pb.Silence:
    """Create a silence and tell every subscriber.

    Raises
    ------
    RefusalError
        INVALID, naming the field; EXHAUSTED when there are too many already.
    """
    now_ns = core.clock.now_ns()
    _check_texts(core.config.limits, author=request.author, comment=request.comment)
    made = Silence(
        silence_id=secrets.token_hex(8),
        matchers=matchers_of(list(request.matchers)),
        starts_ns=request.starts_ns or now_ns,
        ends_ns=request.ends_ns,
        author=request.author,
        comment=request.comment,
        created_ns=now_ns,
    )
    check(made, now_ns=now_ns, max_silence_s=core.config.limits.silence_s)
    _check_room(core, now_ns=now_ns)
    return await _put(made, core, event_id=f"silence-{made.silence_id}")


def _check_room(core: Core, *, now_ns: int) -> None:
    core.silences.forget_ended(now_ns=now_ns)
    if len(core.silences) >= core.config.limits.silences:
        message = f"silences: {len(core.silences)} are active or planned, no more are taken"
        raise RefusalError(message, reason=Refused.EXHAUSTED, hint="end one, or match more with one")


async def expire_silence(request: pb.ExpireSilenceRequest, core: Core) -> pb.Silence:
    """End a silence now; ending one that is over changes nothing.

    Raises
    ------
    RefusalError
        INVALID without an author, NOT_FOUND for an unknown silence.
    """
    _check_texts(core.config.limits, author=request.author)
    stored = await core.store.run(Store.silence, request.silence_id)
    if stored is None:
        raise RefusalError(f"silence {request.silence_id!r} is not known", reason=Refused.NOT_FOUND)
    old, now_ns = silence_of(pb.Silence.FromString(stored)), core.clock.now_ns()
    if old.ends_ns <= now_ns:
        return silence_to(old)
    ended = replace(old, starts_ns=min(old.starts_ns, now_ns), ends_ns=now_ns, expired_by=request.author)
    return await _put(ended, core, event_id=f"silence-{old.silence_id}-expired")


async def list_silences(request: pb.ListSilencesRequest, core: Core) -> list[pb.Silence]:
    """Return the silences by end; only those that have not ended unless asked."""
    stored = [pb.Silence.FromString(payload) for payload in await core.store.run(Store.silences)]
    now_ns = core.clock.now_ns()
    return [s for s in stored if request.include_ended or s.ends_ns > now_ns]


async def _put(made: Silence, core: Core, *, event_id: str) -> pb.Silence:
    message = silence_to(made)
    payload = message.SerializeToString()
    if len(payload) > _SILENCE_BYTES:
        raise RefusalError(f"silence: {len(payload)} bytes, at most {_SILENCE_BYTES}", reason=Refused.INVALID)
    draft = Draft(EventKind.SILENCE, event_id, payload, silence_id=made.silence_id, ends_ns=made.ends_ns)
    if (await core.journal.append([draft])).duplicates:  # another call was faster: what it has kept is so
        kept = await core.store.run(Store.silence, made.silence_id)
        return pb.Silence.FromString(kept or payload)
    return message


def _check_texts(limits: Limits, **texts: str) -> None:
    if not texts["author"].strip():
        raise RefusalError("author: must not be empty", reason=Refused.INVALID)
    for name, text in texts.items():
        size = len(text.encode())
        if size > limits.text_bytes:
            message = f"{name}: {size} bytes, at most {limits.text_bytes} are taken"
            raise RefusalError(message, reason=Refused.INVALID)
