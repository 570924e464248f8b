"""OTLP/gRPC: ``TraceService/Export``, with the standard health service beside it.

The request arrives as bytes and stays bytes: what passes unread over HTTP passes unread here.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb

from paritas.agent.intake import Answer, Intake, Reply
from paritas.errors import UsageError
from paritas.listen_probe import why_not_free

__all__ = ["GrpcReceiver"]

SERVICE: str = pb.DESCRIPTOR.services_by_name["TraceService"].full_name
WORKERS = 4
MAX_CALLS = 64  # more are answered RESOURCE_EXHAUSTED at once
CODES = {
    Answer.BAD: grpc.StatusCode.INVALID_ARGUMENT,
    Answer.TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    Answer.FULL: grpc.StatusCode.UNAVAILABLE,
    Answer.BUSY: grpc.StatusCode.UNAVAILABLE,
}
STATUSES = {
    True: health_pb2.HealthCheckResponse.SERVING,
    False: health_pb2.HealthCheckResponse.NOT_SERVING,
}


class GrpcReceiver:
    """Serves OTLP/gRPC during its context.

    Parameters
    ----------
    listen : str
        ``HOST:PORT`` on a loopback address.
    intake : Intake
        Takes the bodies.
    max_body_bytes : int
        Largest message, unpacked.

    Attributes
    ----------
    address : str
        Where it listens.

    Raises
    ------
    UsageError
        On entering: the address cannot be bound.
    """

    def __init__(self, listen: str, intake: Intake, *, max_body_bytes: int) -> None:
        self._listen, self._intake, self._max_body_bytes = listen, intake, max_body_bytes
        self._health = HealthServicer()
        self._server: Any = None
        self.address = ""

    def __enter__(self) -> Self:
        options = [
            ("grpc.max_receive_message_length", self._max_body_bytes),
            ("grpc.so_reuseport", 0),  # two agents on one port would each get half
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ]
        pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="paritas-otlp-grpc")
        self._server = grpc.server(pool, options=options, maximum_concurrent_rpcs=MAX_CALLS)
        self._server.add_generic_rpc_handlers((self._handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.address = self._bind()
        self._server.start()
        return self

    def _handlers(self) -> Any:
        export = grpc.unary_unary_rpc_method_handler(self._export)  # no deserializer: bytes
        return grpc.method_handlers_generic_handler(SERVICE, {"Export": export})

    def _bind(self) -> str:
        host = self._listen.rpartition(":")[0]
        hint = "choose another port; 0 picks a free one"
        if reason := why_not_free(self._listen):
            raise UsageError(f"{self._listen}: cannot listen: {reason}", hint=hint)
        try:
            port = self._server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise UsageError(f"{self._listen}: cannot listen", hint=hint) from error
        return f"{host}:{port}"

    def _export(self, body: bytes, context: Any) -> bytes:
        reply = self._intake.take_admitted(lambda: body, len(body))
        if reply.answer in CODES:
            context.abort(CODES[reply.answer], reply.text)
        return _response(reply)

    def report(self, service: str, is_serving: bool) -> None:
        """Show one function's health under its name; the empty name is the agent's."""
        self._health.set(service, STATUSES[is_serving])

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let calls finish and stop; twice is fine."""
        if self._server is not None:
            self._health.enter_graceful_shutdown()
            self._server.stop(1.0).wait()
            self._server = None


def _response(reply: Reply) -> bytes:
    if reply.answer is Answer.TAKEN:
        return b""
    partial = pb.ExportTracePartialSuccess(rejected_spans=reply.rejected_spans, error_message=reply.text)
    return pb.ExportTraceServiceResponse(partial_success=partial).SerializeToString()
