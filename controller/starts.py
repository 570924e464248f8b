"""The first message of a stream, checked: who subscribes, to what, from where."""

import json
from dataclasses import dataclass

from paritas.controller import tokens
from paritas.controller.filters import Filter
from paritas.controller.refusals import RefusalError, Refused, invalid
from paritas.controller.tokens import Token
from paritas.controller.wire import filter_of
from paritas.proto.v1 import escalation_pb2 as pb

__all__ = ["PROTOCOL_VERSION", "Start", "start_of"]

PROTOCOL_VERSION = 1
_NAME_BYTES = 256
_FILTER_BYTES = 64 * 1024  # it is kept, as sets of texts, for as long as the stream lives


@dataclass(frozen=True, slots=True)
class Start:
    """What a stream was asked to be.

    Attributes
    ----------
    point : str
        ``now``, ``token``, ``snapshot_then_follow`` or ``resume``.
    token : Token or None
        With ``token``: everything after it.
    max_outstanding : int
        Unacknowledged events at most; 0 is no limit.
    owner : str
        Who showed a token or certificate, by its name; "" where nobody was asked for one.
    """

    subscriber_id: str
    only: Filter
    point: str
    token: Token | None
    max_outstanding: int
    owner: str = ""

    @property
    def kept_as(self) -> str:
        """What its acks are kept under: another's subscriber of the same name is another one.

        Examples
        --------
        >>> Start("router", Filter(), "now", None, 0, owner="team-a").kept_as
        '["team-a", "router"]'
        """
        is_plain = not self.owner and not self.subscriber_id.startswith("[")  # else it might spell another's
        return self.subscriber_id if is_plain else json.dumps([self.owner, self.subscriber_id])


def start_of(message: pb.ClientMsg | None) -> Start:
    """Return the start of a stream whose first message is `message`.

    Raises
    ------
    RefusalError
        INVALID, naming the field; PRECONDITION for a protocol this version does not speak.
    """
    if message is None or message.WhichOneof("body") != "start":
        raise invalid("the first message of a stream must be start")
    start = message.start
    if start.protocol_version != PROTOCOL_VERSION:
        text = f"start.protocol_version: {start.protocol_version} is not spoken here, {PROTOCOL_VERSION} is"
        raise RefusalError(text, reason=Refused.PRECONDITION)
    if not 0 < len(start.subscriber_id.encode()) <= _NAME_BYTES:
        raise invalid(f"start.subscriber_id: must be 1 to {_NAME_BYTES} bytes long")
    if start.filter.ByteSize() > _FILTER_BYTES:
        raise invalid(f"start.filter: {start.filter.ByteSize()} bytes, at most {_FILTER_BYTES} are taken")
    point = start.WhichOneof("start")
    if point is None:
        raise invalid("start.start: must be one of now, token, snapshot_then_follow, resume")
    return Start(
        subscriber_id=start.subscriber_id,
        only=filter_of(start.filter, place="start.filter"),
        point=point,
        token=tokens.decode(start.token, field="start.token") if point == "token" else None,
        max_outstanding=start.max_outstanding,
    )
