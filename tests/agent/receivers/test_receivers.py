"""Receivers over real sockets: every answer a client may get."""

import gzip
import http.client
import os
import socket
import stat
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from agent_scenes import recorded, requests_of
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as pb_grpc

from paritas.agent.intake import Answer, Intake
from paritas.agent.receivers.grpc import GrpcReceiver
from paritas.agent.receivers.http import tcp_receiver, unix_receiver
from paritas.agent.receivers.peers import allowed_uids, peer_of
from paritas.errors import PermanentError, TransientError, UsageError
from paritas.wire import WireRecord
from paritas.wire.sender import Sender

LIMIT_BYTES = 100_000
ONE = bytes([1]) * 16


@dataclass
class Kept:
    """A sink that keeps everything, or is full."""

    records: list = field(default_factory=list)
    dropped: list = field(default_factory=list)
    is_full: bool = False

    def append(self, records):
        if self.is_full:
            raise TransientError("the spool is full")
        self.records += records

    def drop_unspooled(self, count, reason):
        self.dropped.append((count, str(reason)))


@pytest.fixture
def sink():
    return Kept()


@pytest.fixture
def intake(sink):
    return Intake(sink, max_pending_bytes=200_000)


@pytest.fixture
def url(intake):
    with tcp_receiver("127.0.0.1:0", intake, max_body_bytes=LIMIT_BYTES) as receiver:
        yield f"http://{receiver.address}"


def post(url, body, path="/v1/traces", **headers):
    """Return status, headers and body of the answer."""
    headers = {
        "Content-Type": "application/x-protobuf",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    asked = urllib.request.Request(url + path, body, headers)
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_a_request_is_answered_when_its_records_are_kept(url, sink, intake):
    for body in recorded():
        assert post(url, body)[::2] == (200, b"")
        assert post(url, gzip.compress(body), Content_Encoding="gzip")[0] == 200
    assert len(sink.records) == 16
    assert intake.answers == {Answer.TAKEN: 8}


@pytest.mark.parametrize(
    ("body", "path", "headers", "status", "text"),
    [
        (b"\xff", "/v1/traces", {}, 400, b"the body is not an ExportTraceServiceRequest\n"),
        (bytes(LIMIT_BYTES + 1), "/v1/traces", {}, 413, b"at most 100000 bytes are taken\n"),
        (b"", "/v1/metrics", {}, 404, b"only /v1/traces is served here\n"),
        (
            b"{}",
            "/v1/traces",
            {"Content_Type": "application/json"},
            415,
            b"Content-Type must be application/x-protobuf: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf\n",
        ),
        (b"x", "/v1/traces", {"Content_Encoding": "br"}, 415, b"Content-Encoding may be gzip or identity\n"),
    ],
)
def test_what_is_wrong_is_said(url, body, path, headers, status, text):
    assert post(url, body, path, **headers)[::2] == (status, text)


def test_a_gzip_bomb_is_refused(url):
    assert post(url, gzip.compress(bytes(10_000_000)), Content_Encoding="gzip")[0] == 413


def test_when_full_a_client_is_told_when_to_come_back(url, sink, intake):
    sink.is_full = True
    status, headers, text = post(url, requests_of(ONE))
    assert (status, headers["Retry-After"], text) == (429, "1", b"the spool is full\n")
    assert intake.answers == {Answer.FULL: 1}


def test_too_much_at_once_is_answered_at_once_and_the_connection_goes_on(url, intake):
    assert intake.admit(150_000)
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    large, headers = bytes(80_000), {"Content-Type": "application/x-protobuf"}
    connection.request("POST", "/v1/traces", large, headers)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    answer.read()
    intake.release(150_000)
    connection.request("POST", "/v1/traces", requests_of(ONE), headers)
    assert connection.getresponse().status == 200
    connection.close()


def test_what_no_record_holds_is_said_as_otlp_says_it(url, sink):
    status, _, body = post(url, requests_of(ONE, b"short"))
    told = pb.ExportTraceServiceResponse.FromString(body).partial_success
    assert (status, told.rejected_spans) == (200, 1)
    assert sink.dropped == [(1, "encode_error")]
    assert len(sink.records) == 1


def test_chunks_are_taken(url, sink):
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    body = requests_of(ONE)
    headers = {"Content-Type": "application/x-protobuf"}
    connection.request("POST", "/v1/traces", iter([body[:5], body[5:]]), headers, encode_chunked=True)
    assert connection.getresponse().status == 200
    assert sink.records[0].value == body
    connection.close()


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"", b""),
        (
            b"POST /v1/traces HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc",
            b"the connection ended inside the body\n",
        ),
        (b"POST /v1/traces HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"the connection ended inside the body\n"),
    ],
)
def test_who_is_silent_for_long_is_not_waited_for(url, sink, said, answer, monkeypatch):
    monkeypatch.setattr("paritas.agent.receivers.http_server.IDLE_S", 0.5)
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(said)
        told = b"".join(iter(lambda: connection.recv(4096), b""))
    assert told.partition(b"\r\n\r\n")[2] == answer
    assert sink.records == []


def test_garbage_and_silence_end_a_connection_and_nothing_else(url, sink):
    host, port = url.removeprefix("http://").split(":")
    for said in (b"\x00\x01\r\n\r\n", b"POST /v1/traces HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", b""):
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100).startswith(b"HTTP/1.1 400" if said else b"")
    assert post(url, requests_of(ONE))[0] == 200


@pytest.fixture
def unix(tmp_path, intake):
    uids = allowed_uids(())
    with unix_receiver(
        tmp_path / "s", intake, uids=lambda: uids, is_shared=False, max_body_bytes=LIMIT_BYTES
    ) as receiver:
        yield receiver


def test_the_socket_is_private_and_goes_with_its_receiver(tmp_path, unix, sink):
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    with Sender(tmp_path / "s") as sender:
        sender.send(WireRecord(b"", requests_of(ONE)))
    assert len(sink.records) == 1
    unix.close()
    unix.close()
    assert not (tmp_path / "s").exists()


def test_a_full_agent_is_a_transient_error_to_our_sender(tmp_path, unix, sink):
    sink.is_full = True
    with Sender(tmp_path / "s") as sender:
        with pytest.raises(TransientError, match=r"^the spool is full$"):
            sender.send(WireRecord(b"", requests_of(ONE)))
        with pytest.raises(PermanentError, match="the receiver answered 400"):
            sender.send(WireRecord(b"", b"\xff"))


def test_a_live_socket_is_not_taken_over_and_a_stale_one_is(tmp_path, unix, intake):
    again = {"uids": frozenset, "is_shared": False, "max_body_bytes": 1}
    with pytest.raises(UsageError, match=r"another agent listens here$"):
        unix_receiver(tmp_path / "s", intake, **again)
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / "stale"))
    with unix_receiver(tmp_path / "stale", intake, **again):
        pass


def test_a_path_that_is_too_long_is_one_clear_error(tmp_path, intake):
    with pytest.raises(UsageError, match=r"a socket's path has at most 100 bytes$"):
        unix_receiver(tmp_path / ("x" * 100), intake, uids=frozenset, is_shared=False, max_body_bytes=1)


def test_the_kernel_says_who_is_there():
    one, two = socket.socketpair()
    with one, two:
        peer = peer_of(one)
    assert (peer.pid, peer.uid, peer.gid) == (os.getpid(), os.geteuid(), os.getegid())


STRANGER = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1])
    try:
        s.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    except BrokenPipeError:
        pass  # turned away already; the answer is still there
    print(s.recv(12).decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize(
    ("uids", "told"),
    [
        (allowed_uids(()), b"HTTP/1.1 403"),
        (allowed_uids((65534,)), b"HTTP/1.1 200"),
        (allowed_uids((), any_user=True), b"HTTP/1.1 200"),
    ],
)
def test_another_user_is_turned_away_unless_he_is_named_or_all_are(intake, uids, told):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # others can reach it
        Path(folder).chmod(0o755)
        path = f"{folder}/s"
        with unix_receiver(Path(path), intake, uids=lambda: uids, is_shared=True, max_body_bytes=LIMIT_BYTES):
            run = subprocess.run(
                [sys.executable, "-c", STRANGER, path], capture_output=True, check=True, timeout=90
            )
    assert run.stdout == told + b"\n"


@pytest.fixture
def channel(intake):
    with (
        GrpcReceiver("127.0.0.1:0", intake, max_body_bytes=LIMIT_BYTES) as receiver,
        grpc.insecure_channel(receiver.address) as channel,
    ):
        channel.receiver = receiver
        yield channel


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
def test_grpc_takes_what_the_standard_stub_sends(channel, sink, compression):
    stub = pb_grpc.TraceServiceStub(channel)
    for body in recorded():
        answer = stub.Export(
            pb.ExportTraceServiceRequest.FromString(body), timeout=60, compression=compression
        )
        assert answer == pb.ExportTraceServiceResponse()
    assert len(sink.records) == 8


def test_grpc_passes_one_trace_byte_for_byte(channel, sink):
    raw = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
    body = requests_of(ONE, spans=2)
    assert raw(body, timeout=60) == b""
    assert sink.records[0].value == body


def test_grpc_says_what_is_wrong(channel, sink):
    raw = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
    with pytest.raises(grpc.RpcError) as raised:
        raw(b"\xff", timeout=60)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError) as raised:
        raw(bytes(LIMIT_BYTES + 1), timeout=60)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    sink.is_full = True
    with pytest.raises(grpc.RpcError) as raised:
        raw(requests_of(ONE), timeout=60)
    assert (raised.value.code(), raised.value.details()) == (
        grpc.StatusCode.UNAVAILABLE,
        "the spool is full",
    )
    sink.is_full = False
    told = pb.ExportTraceServiceResponse.FromString(raw(requests_of(ONE, b"x"), timeout=60))
    assert told.partial_success.rejected_spans == 1


def test_grpc_health_follows_what_is_reported(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    for is_serving, status in ((True, "SERVING"), (False, "NOT_SERVING")):
        channel.receiver.report("destination", is_serving)
        answer = stub.Check(health_pb2.HealthCheckRequest(service="destination"), timeout=60)
        assert health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) == status


def test_an_address_in_use_is_one_clear_error(intake, url, channel, capfd):
    taken = url.removeprefix("http://")
    with pytest.raises(UsageError, match=f"^{taken}: cannot listen: Address already in use$"):
        tcp_receiver(taken, intake, max_body_bytes=1)
    busy = channel.receiver.address
    with pytest.raises(UsageError, match=f"^{busy}: cannot listen: Address already in use$"):
        GrpcReceiver(busy, intake, max_body_bytes=1).__enter__()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("host", ["a..b", "ä..b", "a" * 64])
def test_a_host_that_is_none_is_one_clear_error(host, intake):
    with pytest.raises(UsageError) as raised:
        tcp_receiver(f"{host}:0", intake, max_body_bytes=1)
    assert str(raised.value) == f"{host}:0: cannot listen: not the name of a host"


def test_a_host_that_nobody_knows_is_told_in_the_systems_words(intake):
    with pytest.raises(UsageError) as raised:
        tcp_receiver("nowhere.invalid:0", intake, max_body_bytes=1)
    assert str(raised.value).startswith("nowhere.invalid:0: cannot listen: ")
    assert "Unknown error" not in str(raised.value)
    assert "attempting" not in str(raised.value)
