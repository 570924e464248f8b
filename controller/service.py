"""EscalationService over gRPC: every method is a thin edge around a pure or stored part."""

import asyncio
from dataclasses import replace
from typing import Any

import grpc

from paritas.controller.access.callers import Callers
from paritas.controller.admission import admit
from paritas.controller.core import Core
from paritas.controller.decisions import acknowledge, expire_silence, list_silences, silence
from paritas.controller.hub import EndReason
from paritas.controller.link import GoneError, Link
from paritas.controller.pages import history, list_page
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.session import Session
from paritas.controller.starts import Start, start_of
from paritas.controller.statuses import answered
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.proto.v1 import escalation_pb2_grpc as pb_grpc

__all__ = ["CANCELED_KEY", "EscalationService"]

CANCELED_KEY = "paritas-canceled-bin"

_CODES = {
    EndReason.OVERFLOW: grpc.StatusCode.RESOURCE_EXHAUSTED,
    EndReason.OUT_OF_RANGE: grpc.StatusCode.OUT_OF_RANGE,
    EndReason.DRAINING: grpc.StatusCode.UNAVAILABLE,
    EndReason.REPLACED: grpc.StatusCode.ABORTED,
    EndReason.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    EndReason.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}


class EscalationService(pb_grpc.EscalationServiceServicer):
    """The methods of the service, on one event loop.

    Parameters
    ----------
    core : Core
        The server's shared parts.
    callers : Callers
        Tells who subscribes: names of subscribers are each caller's own.
    """

    def __init__(self, core: Core, callers: Callers) -> None:
        self._core, self._callers = core, callers

    @answered
    async def Publish(self, request: pb.PublishRequest, _context: Any) -> pb.PublishResponse:  # noqa: N802
        """Append a batch, all or nothing."""
        try:
            drafts = admit(request.events, limits=self._core.config.limits)
        except RefusalError:
            self._core.journal.counts["refused"] += 1
            raise
        appended = await self._core.journal.append(drafts)
        return pb.PublishResponse(accepted=len(appended.events), duplicates=appended.duplicates)

    @answered
    async def List(self, request: pb.ListIncidentsRequest, _context: Any) -> pb.ListIncidentsResponse:  # noqa: N802
        """Return one page of incidents."""
        return await list_page(request, self._core)

    @answered
    async def Get(self, request: pb.GetIncidentRequest, _context: Any) -> pb.GetIncidentResponse:  # noqa: N802
        """Return one incident with its history."""
        return await history(request.incident_id, self._core)

    @answered
    async def Acknowledge(self, request: pb.AcknowledgeRequest, _context: Any) -> pb.AcknowledgeResponse:  # noqa: N802
        """Record that a person has seen an incident."""
        return pb.AcknowledgeResponse(acknowledgement=await acknowledge(request, self._core))

    @answered
    async def Silence(self, request: pb.SilenceRequest, _context: Any) -> pb.SilenceResponse:  # noqa: N802
        """Create a silence."""
        return pb.SilenceResponse(silence=await silence(request, self._core))

    @answered
    async def ExpireSilence(  # noqa: N802
        self, request: pb.ExpireSilenceRequest, _context: Any
    ) -> pb.ExpireSilenceResponse:
        """End a silence now."""
        return pb.ExpireSilenceResponse(silence=await expire_silence(request, self._core))

    @answered
    async def ListSilences(self, request: pb.ListSilencesRequest, _context: Any) -> pb.ListSilencesResponse:  # noqa: N802
        """Return the silences."""
        return pb.ListSilencesResponse(silences=await list_silences(request, self._core))

    @answered
    async def Subscribe(  # type: ignore[override]  # noqa: N802  # the stub knows only generators
        self, _messages: Any, context: Any
    ) -> None:
        """Serve one stream."""
        link = Link(context)
        start = replace(await self._start(link), owner=self._callers.name(context))
        session = Session(start, link, self._core)
        end = await session.run()
        if end.reason is EndReason.GONE:
            raise asyncio.CancelledError  # what gRPC is about to do to this call
        if end.reason is not EndReason.STOPPED:
            trailer = ((CANCELED_KEY, session.canceled(end).SerializeToString()),)
            await context.abort(_CODES[end.reason], end.detail, trailer)

    async def _start(self, link: Link) -> Start:
        limit_s = self._core.config.start_s
        try:
            async with asyncio.timeout(limit_s):
                return start_of(await link.read())
        except GoneError as error:
            raise asyncio.CancelledError from error
        except TimeoutError as error:
            message = f"start: did not come within {limit_s:g} s"
            raise RefusalError(message, reason=Refused.INVALID) from error
