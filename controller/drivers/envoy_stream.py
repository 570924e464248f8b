"""Envoy's runtime discovery (RTDS) as a server: the newest layer to every stream, and who took it.

Envoy connects to us.  It keeps the layer it has when the stream breaks and asks again, so the newest
layer is sent at the start of every stream.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import json_format

from paritas.proto.v1 import runtime_discovery_pb2 as pb

__all__ = ["METHOD", "TYPE_URL", "Acks", "RuntimeStreams"]

SERVICE = "envoy.service.runtime.v3.RuntimeDiscoveryService"
METHOD = f"/{SERVICE}/StreamRuntime"
TYPE_URL = "type.googleapis.com/envoy.service.runtime.v3.Runtime"


@dataclass(slots=True, eq=False)
class _Stream:
    """One connected Envoy: its name, the version it holds, and what it refused last."""

    node: str = ""
    holds: int = 0
    refused: dict[int, str] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Acks:
    """Who took a version: names of Envoys that hold it, refusals by name, names still silent."""

    held: tuple[str, ...]
    refused: Mapping[str, str]
    silent: tuple[str, ...]


class RuntimeStreams:
    """The newest layer and every stream that follows it, on one event loop.

    Parameters
    ----------
    name : str
        Resource name of the layer, as the Envoys' bootstrap asks for it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._version = 0
        self._layer: dict[str, Any] = {}
        self._streams: set[_Stream] = set()
        self._moved = asyncio.Condition()

    @property
    def layer(self) -> Mapping[str, Any]:
        """The newest layer."""
        return self._layer

    @property
    def connected(self) -> tuple[str, ...]:
        """Names of the Envoys that follow now."""
        return tuple(sorted(stream.node for stream in self._streams))

    @property
    def version(self) -> int:
        """Number of the newest layer; 0 before the first."""
        return self._version

    async def joined(self, *, timeout_s: float) -> None:
        """Wait until at least one Envoy follows, at most `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._moved:
                await self._moved.wait_for(lambda: bool(self._streams))

    def publish(self, layer: Mapping[str, Any]) -> int:
        """Make `layer` the newest, unless it is so already; return its version."""
        if self._version == 0 or layer != self._layer:
            self._version, self._layer = self._version + 1, dict(layer)
            for stream in self._streams:
                stream.changed.set()
        return self._version

    async def taken(self, version: int, *, timeout_s: float) -> Acks:
        """Wait until every connected Envoy answered `version`, at most `timeout_s`; an empty fleet waits too."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._moved:
                await self._moved.wait_for(lambda: bool(self._streams) and not self._acks(version).silent)
        return self._acks(version)

    def _acks(self, version: int) -> Acks:
        held = tuple(sorted(s.node for s in self._streams if s.holds >= version))
        refused = {s.node: s.refused[version] for s in self._streams if version in s.refused}
        silent = tuple(
            sorted(s.node for s in self._streams if s.holds < version and version not in s.refused)
        )
        return Acks(held, refused, silent)

    async def serve(self, requests: AsyncIterator[pb.RuntimeRequest], context: Any) -> None:
        """Serve one stream until it ends (the handler of `METHOD`)."""
        stream = _Stream()
        first = await anext(aiter(requests), None)
        if first is None:
            return
        stream.node = first.node.id or str(context.peer())
        self._streams.add(stream)
        await self._tell()
        sender = asyncio.create_task(self._send(stream, context))
        try:
            async for request in requests:
                await self._note(stream, request)
        finally:
            sender.cancel()
            self._streams.discard(stream)
            await self._tell()

    async def _send(self, stream: _Stream, context: Any) -> None:
        """Send the newest layer, then each newer one; versions that were overtaken are skipped."""
        sent = 0
        while True:
            if self._version > sent:
                sent = self._version
                await context.write(self._response(sent))
            stream.changed.clear()
            if self._version == sent:
                await stream.changed.wait()

    def _response(self, version: int) -> pb.RuntimeResponse:
        layer = pb.RuntimeLayer(name=self._name)
        json_format.ParseDict(self._layer, layer.layer)
        response = pb.RuntimeResponse(version_info=str(version), type_url=TYPE_URL, nonce=str(version))
        response.resources.add(type_url=TYPE_URL, value=layer.SerializeToString())
        return response

    async def _note(self, stream: _Stream, request: pb.RuntimeRequest) -> None:
        """An answer echoes the nonce; a refusal carries an error beside it."""
        answered = int(request.response_nonce) if request.response_nonce.isdecimal() else 0
        if request.HasField("error_detail"):
            stream.refused = {answered: request.error_detail.message}
        else:
            stream.holds = max(stream.holds, answered)
        await self._tell()

    async def _tell(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what a gRPC server is given."""
        method = grpc.stream_stream_rpc_method_handler(
            self.serve, pb.RuntimeRequest.FromString, pb.RuntimeResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"StreamRuntime": method})
