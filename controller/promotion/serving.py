"""The promotions as a part of the escalation server: service, deadlines, HTTP."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from paritas.clock import Clock
from paritas.controller.promotion.config import PromotionConfig
from paritas.controller.promotion.ledger import Ledger
from paritas.controller.promotion.service import PromotionService
from paritas.controller.store_thread import StoreThread
from paritas.errors import ParitasError
from paritas.proto.v1 import promotion_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from paritas.controller.promotion.evidence import Keys

__all__ = ["promoting"]

log = logging.getLogger(__name__)


@asynccontextmanager
async def promoting(
    config: PromotionConfig, store: StoreThread, server: Any, *, clock: Clock
) -> AsyncIterator[Ledger]:
    """Add the service to a gRPC server that is not started yet, and serve the rest during the block.

    Raises
    ------
    UsageError
        A key or the token cannot be read, or the HTTP address cannot be bound.
    """
    ledger = Ledger(store, clock=clock, keys=_keys(config))
    pb_grpc.add_PromotionServiceServicer_to_server(PromotionService(ledger), server)
    ticking = asyncio.create_task(_tick(ledger, config.tick_s))
    try:
        async with _answering(config, ledger):
            yield ledger
    finally:
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        await ledger.close()


def _keys(config: PromotionConfig) -> "Keys":
    """Read whom to trust; cryptography is needed only where somebody is."""
    if config.keys is None:
        return {}
    from paritas.signing import trusted_keys

    return trusted_keys(config.keys)


async def _tick(ledger: Ledger, period_s: float) -> None:
    while True:
        await asyncio.sleep(period_s)
        try:
            await ledger.tick()
        except ParitasError as error:
            log.warning("Deadlines were not looked at.", extra={"error": str(error)})


@asynccontextmanager
async def _answering(config: PromotionConfig, ledger: Ledger) -> AsyncIterator[None]:
    if not config.http:
        yield
        return
    from paritas.controller.promotion.http import serving_http

    async with serving_http(config, ledger) as address:
        log.info("Verdicts over HTTP.", extra={"address": address})
        yield
