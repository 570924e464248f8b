"""PromotionService over gRPC: every method is a thin edge around the ledger."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from paritas.controller.promotion.ledger import Change, Ledger
from paritas.controller.promotion.model import Transition
from paritas.controller.promotion.proof import fault_of
from paritas.controller.promotion.store import Stored
from paritas.controller.promotion.whole import Whole
from paritas.controller.promotion.wire import blocked_to, candidate_of, promotion_to, transition_to
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.statuses import answered, status_of, text_of
from paritas.errors import ParitasError
from paritas.proto.v1 import promotion_pb2 as pb
from paritas.proto.v1 import promotion_pb2_grpc as pb_grpc

__all__ = ["SERVICE", "PromotionService"]

SERVICE: str = pb.DESCRIPTOR.services_by_name["PromotionService"].full_name
_DEFAULT_PAGE = 100
_MAX_PAGE = 1000


class PromotionService(pb_grpc.PromotionServiceServicer):
    """The methods of the service, on one event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @answered
    async def Start(self, request: pb.StartPromotionRequest, _context: Any) -> pb.StartPromotionResponse:  # noqa: N802
        """Begin a promotion."""
        candidate = candidate_of(request.candidate)
        stored = await self._ledger.start(
            request.promotion_id, request.contract, candidate, actor=request.actor
        )
        return pb.StartPromotionResponse(promotion=_told(stored))

    @answered
    async def Get(self, request: pb.GetPromotionRequest, _context: Any) -> pb.GetPromotionResponse:  # noqa: N802
        """Return one promotion, its evidence verified now."""
        whole = await self._ledger.whole(request.promotion_id)
        return _whole(whole, self._ledger)

    @answered
    async def List(self, request: pb.ListPromotionsRequest, _context: Any) -> pb.ListPromotionsResponse:  # noqa: N802
        """Return one page of promotions."""
        limit = request.page_size or _DEFAULT_PAGE
        if limit > _MAX_PAGE:
            message = f"page_size: at most {_MAX_PAGE}, got {limit}"
            raise RefusalError(message, reason=Refused.INVALID)
        page = await self._ledger.page(
            request.contract, include_over=request.include_over, before=request.before_revision, limit=limit
        )
        following = page[-1].revision if len(page) == limit else 0
        return pb.ListPromotionsResponse(promotions=map(_told, page), next_before_revision=following)

    async def Watch(  # noqa: N802
        self, request: pb.WatchPromotionsRequest, context: Any
    ) -> AsyncIterator[pb.WatchPromotionsResponse]:
        """Follow changes until the client or the controller goes."""
        try:
            async for stored in self._ledger.changes(request.contract, after=request.after_revision):
                yield pb.WatchPromotionsResponse(promotion=_told(stored))
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the controller is closing")
        except ParitasError as error:
            await context.abort(status_of(error), text_of(error))

    @answered
    async def Advance(  # noqa: N802
        self, request: pb.AdvancePromotionRequest, _context: Any
    ) -> pb.AdvancePromotionResponse:
        """Go on after a pause, or under a tightened contract."""
        change = await self._ledger.advance(request.promotion_id, request.contract, actor=request.actor)
        return pb.AdvancePromotionResponse(**_change(change))

    @answered
    async def Abort(self, request: pb.AbortPromotionRequest, _context: Any) -> pb.AbortPromotionResponse:  # noqa: N802
        """Stop for good."""
        change = await self._ledger.abort(request.promotion_id, actor=request.actor, text=request.text)
        return pb.AbortPromotionResponse(**_change(change))

    @answered
    async def SubmitVerdict(  # noqa: N802
        self, request: pb.SubmitVerdictRequest, _context: Any
    ) -> pb.SubmitVerdictResponse:
        """Take signed evidence."""
        change = await self._ledger.submit(request.promotion_id, request.envelope)
        return pb.SubmitVerdictResponse(**_change(change))


def _told(stored: Stored) -> pb.Promotion:
    return promotion_to(stored.promotion, revision=stored.revision)


def _change(change: Change) -> dict[str, Any]:
    return {
        "promotion": _told(change.stored),
        "transitions": _transitions(change.transitions),
        "blocked": blocked_to(change.blocked),
    }


def _transitions(transitions: Sequence[Transition]) -> list[pb.PromotionTransition]:
    return [transition_to(t) for t in transitions]


def _whole(whole: Whole, ledger: Ledger) -> pb.GetPromotionResponse:
    transitions = []
    for entry in whole.kept:
        message = transition_to(entry.transition)
        message.envelope = entry.envelope
        message.fault = fault_of(entry, ledger.keys)
        transitions.append(message)
    return pb.GetPromotionResponse(
        promotion=_told(whole.stored),
        transitions=transitions,
        contract=whole.stored.document.encode(),
        latest_envelope=whole.stored.latest,
        blocked=blocked_to(whole.stored.blocked),
    )
