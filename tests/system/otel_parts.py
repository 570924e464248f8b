"""The OpenTelemetry Collector and Jaeger as processes of a test, and a backend that keeps what it is sent."""

import gzip
import json
import os
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from free_ports import free_port
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from paritas.clock import Clock, SystemClock

ROOT = Path(__file__).parents[2]
OTEL = ROOT / "deploy" / "otel"
CACHE = Path(os.environ.get("PARITAS_CACHE", ROOT / ".cache")) / "otel"
READY = "Everything is ready. Begin running and processing data."
DEADLINE_S = 90.0  # generous: shared machines start processes slowly
POLL_S = 0.05
STOP_S = 20.0


def missing_tool() -> str | None:
    """Say why the parts cannot be had here, or None."""
    built = all((CACHE / name).exists() for name in ("otelcol", "jaeger"))
    return None if built or shutil.which("go") else "needs Go to build the OpenTelemetry Collector and Jaeger"


def build(part: str) -> Path:
    """Return the program of ``collector`` or ``jaeger``; builds it where the cache lacks it."""
    subprocess.run([OTEL / "build.sh", part], check=True)
    return CACHE / {"collector": "otelcol", "jaeger": "jaeger"}[part]


def wait_until(
    true: Callable[[], bool],
    what: str,
    *,
    clock: Clock | None = None,
    deadline_s: float = DEADLINE_S,
    alive: "Part | None" = None,
) -> None:
    """Poll `true` until it holds; fail with `what`, or at once when the part it depends on has ended."""
    clock, never = clock or SystemClock(), threading.Event()
    end_ns = clock.monotonic_ns() + round(deadline_s * 1e9)
    while not true():
        assert alive is None or alive.process.poll() is None, f"{what}: the process ended\n{alive.tail()}"
        late = clock.monotonic_ns() > end_ns
        assert not late, f"not within {deadline_s} s: {what}\n{alive.tail() if alive else ''}"
        clock.wait(never, timeout_s=POLL_S)


@dataclass(frozen=True, slots=True)
class Part:
    """One running program and the file its output goes to."""

    process: "subprocess.Popen[bytes]"
    log: Path
    ports: Mapping[str, int]

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def tail(self, limit: int = 3000) -> str:
        return self.text()[-limit:]

    def url(self, port: str, path: str = "") -> str:
        return f"http://127.0.0.1:{self.ports[port]}{path}"


@contextmanager
def running(
    command: Sequence[str | Path], log: Path, *, environment: Mapping[str, str], ports: Mapping[str, int]
) -> Iterator[Part]:
    """Run a program until the block ends: SIGTERM, and SIGKILL if that does not help."""
    variables = os.environ | environment | {name: str(port) for name, port in ports.items()}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield Part(process, log, ports)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(part: Part) -> bool:
    return READY in part.text()


@contextmanager
def collector(
    config: Path, log: Path, *, environment: Mapping[str, str], overlays: Sequence[str] = ()
) -> Iterator[Part]:
    """Run the collector with a configuration file; `overlays` are further configurations merged over it."""
    arguments = [f"--config={source}" for source in (config, *overlays)]
    ports = {"METRICS_PORT": free_port(), "OTLP_HTTP_PORT": free_port()}
    with running([build("collector"), *arguments], log, environment=dict(environment), ports=ports) as part:
        wait_until(lambda: _ready(part), "collector ready", alive=part)
        yield part


@contextmanager
def jaeger(config: Path, log: Path, *, environment: Mapping[str, str] | None = None) -> Iterator[Part]:
    """Run Jaeger 2 with a configuration file; its ports are in `Part.ports` under their variables' names."""
    names = ("QUERY_PORT", "QUERY_GRPC_PORT", "OTLP_GRPC_PORT", "OTLP_HTTP_PORT")
    ports = {name: free_port() for name in names}
    command = [build("jaeger"), f"--config={config}"]
    with running(command, log, environment=environment or {}, ports=ports) as part:
        wait_until(lambda: _ready(part), "jaeger ready", alive=part)
        yield part


def error_lines(part: Part) -> list[str]:
    """Lines of a collector's JSON log at level error or above."""
    lines = [json.loads(line) for line in part.text().splitlines() if line.startswith("{")]
    return [str(line) for line in lines if line.get("level") in ("error", "fatal", "panic", "dpanic")]


def metric(part: Part, name: str) -> float:
    """Return the sum of one counter over its labels, 0 where it has not been counted yet."""
    with urllib.request.urlopen(part.url("METRICS_PORT", "/metrics"), timeout=DEADLINE_S) as answer:
        lines = answer.read().decode().splitlines()
    samples = [line for line in lines if line.startswith((f"{name}{{", f"{name}_total{{"))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in samples)


@dataclass(slots=True)
class SpanSink:
    """A backend that takes OTLP/HTTP: what it accepted, and whether it refuses for now."""

    url: str = ""
    refusing: threading.Event = field(default_factory=threading.Event)
    refused: int = 0
    _requests: list[bytes] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, body: bytes) -> HTTPStatus:
        with self._lock:
            if self.refusing.is_set():
                self.refused += 1
                return HTTPStatus.SERVICE_UNAVAILABLE
            self._requests.append(body)
            return HTTPStatus.OK

    def requests(self) -> list[bytes]:
        """Return the bodies accepted so far, uncompressed."""
        with self._lock:
            return list(self._requests)

    def spans(self) -> list[Span]:
        """Return the spans accepted so far, copies included."""
        return [span for body in self.requests() for span in spans_of(body)]

    def span_ids(self) -> set[bytes]:
        """Return the identities of the spans accepted so far."""
        return {span.span_id for span in self.spans()}


def spans_of(body: bytes) -> list[Span]:
    """Return every span of a serialized request."""
    request = ExportTraceServiceRequest.FromString(body)
    return [span for source in request.resource_spans for scope in source.scope_spans for span in scope.spans]


@contextmanager
def span_sink() -> Iterator[SpanSink]:
    """Serve a `SpanSink` on a port of its own."""
    sink = SpanSink()
    with ExitStack() as stack:
        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), _handler(sink)))
        sink.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": POLL_S}, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        yield sink


def _handler(sink: SpanSink) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            plain = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(sink.take(plain))
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing: the test reads the sink."""

    return Handler


def answer_of(part: Part, path: str) -> "dict[str, object]":
    """Return a JSON answer of Jaeger's query API."""
    with urllib.request.urlopen(part.url("QUERY_PORT", path), timeout=DEADLINE_S) as answer:
        return json.loads(answer.read())
