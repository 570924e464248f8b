"""The clients of the promotion service, one for threads and one for an event loop.

::

    with PromotionClient("127.0.0.1:4320") as client:
        promotion = client.start(contract, Candidate(inference=digest, weights="step-900"))
        answer = client.submit(promotion.promotion_id, envelope)
        if answer.blocked is not None:
            print(answer.blocked.text)
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from paritas.closing import Closing
from paritas.controller.config import TlsFiles
from paritas.controller.listening import CLIENT_OPTIONS, client_credentials
from paritas.controller.promotion.model import Block, Blocked, Candidate, Promotion, Transition
from paritas.controller.promotion.wire import candidate_to, promotion_of, transition_of
from paritas.controller.secret_files import bearer
from paritas.controller.statuses import error_of
from paritas.controller.unreached import call_error
from paritas.proto.v1 import promotion_pb2 as pb
from paritas.proto.v1 import promotion_pb2_grpc as pb_grpc

__all__ = ["Answer", "AsyncPromotionClient", "Detail", "Kept", "Page", "PromotionClient", "Watched"]

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb did: where the promotion stands now, what moved it, why it did not move."""

    promotion: Promotion
    transitions: tuple[Transition, ...] = ()
    blocked: Blocked | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """A transition with its envelope, and why that no longer verifies; empty if it does."""

    transition: Transition
    envelope: bytes
    fault: str


@dataclass(frozen=True, slots=True)
class Detail:
    """One promotion with everything that is kept of it; `contract` is the bound document."""

    promotion: Promotion
    kept: tuple[Kept, ...]
    contract: str
    latest: bytes
    blocked: Blocked | None


@dataclass(frozen=True, slots=True)
class Page:
    """Promotions, latest change first; `following` asks for the next page, 0 at the end."""

    promotions: tuple[Promotion, ...]
    following: int


@dataclass(frozen=True, slots=True)
class Watched:
    """A promotion that changed; watch again after `revision` to miss nothing."""

    promotion: Promotion
    revision: int


class PromotionClient(Closing):
    """One channel to one controller; a context manager.

    Parameters
    ----------
    target : str
        ``host:port`` or ``unix:/path``.
    tls : TlsFiles or None
        CA, and certificate and key where the server asks for them.
    token_file : Path or None
        Holds the token this client shows, where the server has an access file; read for every call.
    timeout_s : float
        Deadline of one call.

    Raises
    ------
    TransientError
        From any call: the controller cannot be reached, or cannot do it now.
    RefusalError
        From any call, a PermanentError: it will never take this request.
    """

    def __init__(
        self,
        target: str,
        *,
        tls: TlsFiles | None = None,
        token_file: Path | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._target, self._tls = target, tls
        self._token_file = token_file
        self._timeout_s = timeout_s
        self._channel = _channel(grpc, target, tls)
        self._stub: Any = pb_grpc.PromotionServiceStub(self._channel)

    def close(self) -> None:
        """End calls and watches; twice is fine."""
        self._channel.close()

    def start(
        self, contract: str, candidate: Candidate, *, promotion_id: str = "", actor: str = ""
    ) -> Promotion:
        """Begin a promotion under a contract document; the same id again is answered with what it is now."""
        request = _start(contract, candidate, promotion_id, actor)
        return promotion_of(self._call(self._stub.Start, request).promotion)

    def get(self, promotion_id: str) -> Detail:
        """Return one promotion with its transitions and evidence, verified now."""
        return _detail(self._call(self._stub.Get, pb.GetPromotionRequest(promotion_id=promotion_id)))

    def page(self, contract: str = "", *, include_over: bool = False, before: int = 0) -> Page:
        """Return one page of promotions, latest change first."""
        request = pb.ListPromotionsRequest(
            contract=contract, include_over=include_over, before_revision=before
        )
        return _page(self._call(self._stub.List, request))

    def watch(self, contract: str = "", *, after: int = 0) -> Iterator[Watched]:
        """Yield promotions that changed after a revision, then each change, until the server goes.

        Raises
        ------
        TransientError
            The stream ended; watch again after the last revision.
        """
        request = pb.WatchPromotionsRequest(contract=contract, after_revision=after)
        try:
            yield from map(_watched, self._stub.Watch(request, metadata=_shown(self._token_file)))
        except grpc.RpcError as error:
            raise call_error(error, target=self._target, tls=self._tls) from error

    def advance(self, promotion_id: str, *, actor: str = "", contract: str = "") -> Answer:
        """Go on after a pause, or bind a tightened contract document."""
        request = _advance(promotion_id, actor, contract)
        return _answer(self._call(self._stub.Advance, request))

    def abort(self, promotion_id: str, *, actor: str = "", text: str = "") -> Answer:
        """Stop for good."""
        request = pb.AbortPromotionRequest(promotion_id=promotion_id, actor=actor, text=text)
        return _answer(self._call(self._stub.Abort, request))

    def submit(self, promotion_id: str, envelope: bytes) -> Answer:
        """Give signed evidence."""
        request = pb.SubmitVerdictRequest(promotion_id=promotion_id, envelope=envelope)
        return _answer(self._call(self._stub.SubmitVerdict, request))

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout_s, metadata=_shown(self._token_file))
        except grpc.RpcError as error:
            raise call_error(error, target=self._target, tls=self._tls) from error


class AsyncPromotionClient:
    """The same on an event loop; an asynchronous context manager.  Verbs as in `PromotionClient`."""

    def __init__(
        self,
        target: str,
        *,
        tls: TlsFiles | None = None,
        token_file: Path | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._target = target
        self._token_file = token_file
        self._timeout_s = timeout_s
        self._channel = _channel(grpc.aio, target, tls)
        self._stub: Any = pb_grpc.PromotionServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End calls and watches; twice is fine."""
        await self._channel.close()

    async def start(
        self, contract: str, candidate: Candidate, *, promotion_id: str = "", actor: str = ""
    ) -> Promotion:
        """Begin a promotion under a contract document; the same id again is answered with what it is now."""
        request = _start(contract, candidate, promotion_id, actor)
        return promotion_of((await self._call(self._stub.Start, request)).promotion)

    async def get(self, promotion_id: str) -> Detail:
        """Return one promotion with its transitions and evidence, verified now."""
        request = pb.GetPromotionRequest(promotion_id=promotion_id)
        return _detail(await self._call(self._stub.Get, request))

    async def page(self, contract: str = "", *, include_over: bool = False, before: int = 0) -> Page:
        """Return one page of promotions, latest change first."""
        request = pb.ListPromotionsRequest(
            contract=contract, include_over=include_over, before_revision=before
        )
        return _page(await self._call(self._stub.List, request))

    async def watch(self, contract: str = "", *, after: int = 0) -> AsyncIterator[Watched]:
        """Yield promotions that changed after a revision, then each change; raises as `PromotionClient.watch`."""
        request = pb.WatchPromotionsRequest(contract=contract, after_revision=after)
        try:
            async for message in self._stub.Watch(request, metadata=_shown(self._token_file)):
                yield _watched(message)
        except grpc.RpcError as error:
            raise error_of(error, target=self._target) from error

    async def advance(self, promotion_id: str, *, actor: str = "", contract: str = "") -> Answer:
        """Go on after a pause, or bind a tightened contract document."""
        request = _advance(promotion_id, actor, contract)
        return _answer(await self._call(self._stub.Advance, request))

    async def abort(self, promotion_id: str, *, actor: str = "", text: str = "") -> Answer:
        """Stop for good."""
        request = pb.AbortPromotionRequest(promotion_id=promotion_id, actor=actor, text=text)
        return _answer(await self._call(self._stub.Abort, request))

    async def submit(self, promotion_id: str, envelope: bytes) -> Answer:
        """Give signed evidence."""
        request = pb.SubmitVerdictRequest(promotion_id=promotion_id, envelope=envelope)
        return _answer(await self._call(self._stub.SubmitVerdict, request))

    async def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return await method(request, timeout=self._timeout_s, metadata=_shown(self._token_file))
        except grpc.RpcError as error:
            raise error_of(error, target=self._target) from error


def _channel(library: Any, target: str, tls: TlsFiles | None) -> Any:
    if tls is None:
        return library.insecure_channel(target, options=CLIENT_OPTIONS)
    return library.secure_channel(target, client_credentials(tls), options=CLIENT_OPTIONS)


def _shown(token_file: Path | None) -> tuple[tuple[str, str], ...]:
    """The token as metadata of one call."""
    told = {} if token_file is None else bearer(token_file)
    return tuple((name.lower(), value) for name, value in told.items())


def _start(contract: str, candidate: Candidate, promotion_id: str, actor: str) -> pb.StartPromotionRequest:
    return pb.StartPromotionRequest(
        promotion_id=promotion_id,
        contract=contract.encode(),
        candidate=candidate_to(candidate),
        actor=actor,
    )


def _advance(promotion_id: str, actor: str, contract: str) -> pb.AdvancePromotionRequest:
    return pb.AdvancePromotionRequest(promotion_id=promotion_id, actor=actor, contract=contract.encode())


def _answer(message: Any) -> Answer:
    return Answer(
        promotion_of(message.promotion),
        _transitions(message.transitions, message.promotion.promotion_id),
        _blocked(message),
    )


def _transitions(messages: Sequence[pb.PromotionTransition], promotion_id: str) -> tuple[Transition, ...]:
    return tuple(transition_of(m, promotion_id=promotion_id) for m in messages)


def _blocked(message: Any) -> Blocked | None:
    if not message.HasField("blocked"):
        return None
    return Blocked(Block(message.blocked.block), message.blocked.text)


def _detail(message: pb.GetPromotionResponse) -> Detail:
    name = message.promotion.promotion_id
    kept = tuple(Kept(transition_of(m, promotion_id=name), m.envelope, m.fault) for m in message.transitions)
    return Detail(
        promotion_of(message.promotion),
        kept,
        message.contract.decode(),
        message.latest_envelope,
        _blocked(message),
    )


def _page(message: pb.ListPromotionsResponse) -> Page:
    return Page(tuple(map(promotion_of, message.promotions)), message.next_before_revision)


def _watched(message: pb.WatchPromotionsResponse) -> Watched:
    return Watched(promotion_of(message.promotion), message.promotion.revision)
