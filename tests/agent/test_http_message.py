"""The small HTTP reader, against everything a client may send."""

import gzip
from http import HTTPStatus
from io import BufferedReader, BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritas.agent.http_message import BadRequestError, read_body, read_head, response, unpack

HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"


def stream_of(content):
    return BufferedReader(BytesIO(content))


def test_a_request_is_read_with_its_headers():
    request = read_head(stream_of(HEAD))
    assert (request.method, request.path, request.content_length, request.keeps_alive) == (
        "POST",
        "/v1/traces",
        3,
        True,
    )


@pytest.mark.parametrize("size_bytes", [1, 20, 4096])
def test_a_head_that_arrives_in_pieces_or_with_bare_line_ends_reads_the_same(size_bytes):
    for head in (HEAD, HEAD.replace(b"\r\n", b"\n")):
        stream = BufferedReader(BytesIO(head + b"abc"), size_bytes)
        assert (read_head(stream), stream.read()) == (read_head(stream_of(HEAD)), b"abc")


@pytest.mark.parametrize("inside", [b"\n", b"\r"])
def test_no_header_hides_behind_a_bare_line_end(inside):
    head = HEAD.replace(b"Host: x", b"Host: x" + inside + b"Hidden: y")
    whole, pieces = (read_head(BufferedReader(BytesIO(head), size)) for size in (4096, 1))
    assert whole.headers == pieces.headers


def test_the_end_of_a_connection_is_no_request():
    assert read_head(stream_of(b"")) is None


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % n for n in range(101)) + b"\r\n", 431),
    ],
)
def test_what_is_no_http_is_refused(content, status):
    with pytest.raises(BadRequestError) as raised:
        read_head(stream_of(content))
    assert raised.value.status == status


@pytest.mark.parametrize("told", ["", "-1", "1e3", "³", "9" * 20])
def test_a_length_must_be_a_plain_number(told):
    request = read_head(stream_of(f"POST / HTTP/1.1\r\nContent-Length: {told}\r\n\r\n".encode()))
    with pytest.raises(BadRequestError, match=r"^Content-Length is required$"):
        _ = request.content_length


def test_connections_are_kept_as_each_version_says():
    old = b"GET / HTTP/1.0\r\n%s\r\n"
    assert not read_head(stream_of(old % b"")).keeps_alive
    assert read_head(stream_of(old % b"Connection: keep-alive\r\n")).keeps_alive
    assert not read_head(stream_of(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")).keeps_alive


def test_chunks_are_joined_and_bounded():
    chunked = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\ntrailer: x\r\n\r\n"
    assert read_body(stream_of(chunked), None, limit_bytes=5) == b"abcde"
    with pytest.raises(BadRequestError, match=r"^at most 4 bytes are taken$"):
        read_body(stream_of(chunked), None, limit_bytes=4)
    with pytest.raises(BadRequestError, match=r"^a chunk has no size$"):
        read_body(stream_of(b"-3\r\nabc\r\n"), None, limit_bytes=9)


def test_a_body_that_ends_early_is_refused():
    with pytest.raises(BadRequestError, match=r"^the connection ended inside the body$"):
        read_body(stream_of(b"ab"), 3, limit_bytes=9)


@given(st.binary(max_size=2000))
def test_gzip_is_unpacked(body):
    assert unpack(gzip.compress(body), "gzip", limit_bytes=2000) == body


@pytest.mark.parametrize(
    ("body", "encoding", "status", "text"),
    [
        (gzip.compress(bytes(1001), mtime=0), "gzip", 413, "at most 1000 bytes are taken"),
        (b"not gzip", "gzip", 400, "the body is not gzip"),
        (gzip.compress(b"abc", mtime=0)[:-4], "gzip", 400, "the gzip body is cut off"),
        (b"", "br", 415, "Content-Encoding may be gzip or identity"),
    ],
    ids=["too-large", "not-gzip", "cut-off", "other-encoding"],
)
def test_what_cannot_be_unpacked_is_refused(body, encoding, status, text):
    with pytest.raises(BadRequestError) as raised:
        unpack(body, encoding, limit_bytes=1000)
    assert (raised.value.status, str(raised.value)) == (status, text)


@given(st.binary(max_size=300))
def test_no_bytes_break_it(content):
    stream = stream_of(content)
    try:
        while read_head(stream) is not None:
            pass
    except BadRequestError:
        pass


def test_an_answer_says_its_length():
    told = response(HTTPStatus.SERVICE_UNAVAILABLE, b"later\n", "text/plain", headers={"Retry-After": "1"})
    assert told == (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n"
        b"Retry-After: 1\r\n\r\nlater\n"
    )
