"""Pages of incidents and of one incident's history, bounded by count and by bytes."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from google.protobuf.message import Message

from paritas.controller import tokens
from paritas.controller.core import Core
from paritas.controller.filters import Filter, wants
from paritas.controller.model import IncidentRow
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.store import LAST, Store
from paritas.controller.wire import filter_of, incident_to
from paritas.proto.v1 import escalation_pb2 as pb

__all__ = ["history", "list_page", "unknown_incident"]

M = TypeVar("M", bound=Message)

_DEFAULT_PAGE = 100
_MAX_PAGE = 1000
_MAX_BYTES = 2 * 1024 * 1024  # half of what a gRPC client takes unless told otherwise
_ROWS = 256  # rows read from the store at once


async def list_page(request: pb.ListIncidentsRequest, core: Core) -> pb.ListIncidentsResponse:
    """Return one page, oldest incident first.

    Raises
    ------
    RefusalError
        INVALID for a page size or a page token that is not ours.
    """
    only, after, size = filter_of(request.filter), _after(request, core), _size(request)
    answer = pb.ListIncidentsResponse()
    left_bytes = _MAX_BYTES
    while True:
        rows = await core.store.run(
            Store.incidents, after=after, limit=_ROWS, include_closed=request.include_closed
        )
        for row in _matching(rows, only):
            message = incident_to(row, core.suppression(row.subject))
            left_bytes -= message.ByteSize()
            if len(answer.incidents) == size or (left_bytes < 0 and answer.incidents):
                answer.next_page_token = core.token(after)
                return answer
            answer.incidents.append(message)
            after = row.opened_seq
        if len(rows) < _ROWS:
            return answer
        after = rows[-1].opened_seq


def _matching(rows: Iterable[IncidentRow], only: Filter) -> Iterator[IncidentRow]:
    return (row for row in rows if wants(only, row.subject))


def _after(request: pb.ListIncidentsRequest, core: Core) -> int:
    if not request.page_token:
        return 0
    token = tokens.decode(request.page_token, field="page_token")
    if token.epoch != core.store.epoch:
        raise RefusalError("page_token: is of another log", reason=Refused.INVALID)
    return min(token.seq, LAST)


def _size(request: pb.ListIncidentsRequest) -> int:
    if request.page_size > _MAX_PAGE:
        message = f"page_size: at most {_MAX_PAGE}, got {request.page_size}"
        raise RefusalError(message, reason=Refused.INVALID)
    return request.page_size or _DEFAULT_PAGE


async def history(incident_id: str, core: Core) -> pb.GetIncidentResponse:
    """Return one incident and its latest retained entries, in order.

    Raises
    ------
    RefusalError
        NOT_FOUND when it was never heard of, or is over and forgotten.
    """
    row = await core.store.run(Store.incident, incident_id)
    if row is None:
        raise unknown_incident(incident_id)
    logged = await core.store.run(Store.incident_events, incident_id, limit=_MAX_PAGE + 1)
    events = _latest([core.event(entry) for entry in logged])
    whole = len(events) == len(logged) and bool(logged) and logged[0].seq == row.opened_seq
    incident = incident_to(row, core.suppression(row.subject))
    return pb.GetIncidentResponse(incident=incident, events=events, complete=whole)


def unknown_incident(incident_id: str) -> RefusalError:
    """Return the refusal for an incident that is not here."""
    message = f"incident {incident_id!r} is not known"
    return RefusalError(message, reason=Refused.NOT_FOUND, hint="it may be over and forgotten")


def _latest(messages: list[M]) -> list[M]:
    """Keep the newest that fit one answer."""
    kept: list[M] = []
    left_bytes = _MAX_BYTES
    for message in reversed(messages):
        left_bytes -= message.ByteSize()
        if (left_bytes < 0 and kept) or len(kept) == _MAX_PAGE:
            break
        kept.append(message)
    return kept[::-1]
