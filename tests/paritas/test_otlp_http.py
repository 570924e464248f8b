"""Targets, and the client's edges that an emitter does not show."""

import pytest
from hostile_peers import Peer, answering

from paritas.clock import SystemClock
from paritas.errors import TransientError, UsageError
from paritas.otlp_http import OtlpClient, Target, target_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("unix:/run/a.sock", "unix:/run/a.sock"),
        ("http://127.0.0.1:99", "http://127.0.0.1:99"),
        ("http://agent/", "http://agent:4318"),
        ("http://[::1]:4318", "http://::1:4318"),
    ],
)
def test_targets(text, shown):
    assert str(target_of(text)) == shown


@pytest.mark.parametrize(
    "text", ["", "unix:relative", "http://", "http://a:b", "ftp://a", "http://a?x=1", "//a"]
)
def test_what_is_no_target(text):
    with pytest.raises(UsageError) as raised:
        target_of(text, name="--agent")
    assert str(raised.value) == f"--agent is {text!r}"
    assert raised.value.hint == "write unix:/path/of/the.sock or http://127.0.0.1:PORT"


def test_nobody_listens(tmp_path):
    client = OtlpClient(Target(unix_path=tmp_path / "s"), clock=SystemClock(), timeout_s=1.0)
    with pytest.raises(TransientError) as raised:
        client.post(b"x")
    assert str(raised.value) == "the receiver went away: [Errno 2] No such file or directory"
    client.close()
    client.close()


def test_one_connection_serves_many_posts():
    serve = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
    with Peer(serve) as peer:
        client = OtlpClient(Target(unix_path=peer.path), clock=SystemClock(), timeout_s=30.0)
        assert [client.post(b"x").text for _ in range(3)] == ["hi"] * 3
        assert peer.connections == 1
        client.close()


def test_a_long_answer_is_cut_and_the_connection_given_up():
    body = b"a" * 100_000
    serve = answering(b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    with Peer(serve) as peer:
        client = OtlpClient(Target(unix_path=peer.path), clock=SystemClock(), timeout_s=30.0)
        assert len(client.post(b"x").body) == 65536
        assert client.post(b"x").status == 400
        assert peer.connections == 2
        client.close()


def test_after_abort_nothing_is_posted():
    with Peer(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as peer:
        client = OtlpClient(Target(unix_path=peer.path), clock=SystemClock(), timeout_s=30.0)
        assert client.post(b"x").status == 200
        client.abort()
        with pytest.raises(TransientError):
            client.post(b"x")
        client.close()
