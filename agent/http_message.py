"""The part of HTTP/1.1 that receivers and the health page need: small, bounded, no globals.

The standard library's server parses headers as e-mail, which costs more than everything else the
agent does with a request.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BufferedReader

from paritas.errors import PermanentError

__all__ = ["BadRequestError", "Request", "read_body", "read_head", "response", "unpack"]

MAX_LINE_BYTES = 8192
MAX_HEADERS = 100
LINE_END, HEAD_END = b"\r\n", b"\r\n\r\n"


class BadRequestError(PermanentError):
    """The request cannot be answered otherwise than with `status`, and the connection must end."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """First line and headers; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    is_http_1_0: bool = False

    @property
    def keeps_alive(self) -> bool:
        """Whether the client wants another request on this connection."""
        told = self.headers.get("connection", "").lower()
        return told == "keep-alive" if self.is_http_1_0 else told != "close"

    @property
    def content_length(self) -> int | None:
        """Bytes of the body; None if it comes in chunks.

        Raises
        ------
        BadRequestError
            The header is no number, or missing.
        """
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            return None
        told = self.headers.get("content-length", "")
        if not (told.isascii() and told.isdigit() and len(told) < 16):
            raise BadRequestError(HTTPStatus.LENGTH_REQUIRED, "Content-Length is required")
        return int(told)


def read_head(stream: BufferedReader) -> Request | None:
    """Return the next request of a connection, or None at its end.

    A head that has arrived whole, as nearly every one does, is taken in one piece; else line by line.

    Raises
    ------
    BadRequestError
        What came is no HTTP, or too much of it.
    """
    size_bytes = stream.peek().find(HEAD_END, 0, MAX_LINE_BYTES)  # so short that no line in it is too long
    lines = _lines(stream) if size_bytes < 0 else stream.read(size_bytes + len(HEAD_END))[:-4].split(b"\n")
    if not lines:
        return None
    parts = lines[0].decode("latin-1").split()
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
    return Request(parts[0], parts[1], _headers(lines), parts[2] == "HTTP/1.0")


def _lines(stream: BufferedReader) -> list[bytes]:
    """Return the lines of a head; none at the connection's end."""
    lines: list[bytes] = []
    while (line := _line(stream)) and (not lines or line.rstrip(LINE_END)) and len(lines) <= MAX_HEADERS + 1:
        lines.append(line.rstrip(LINE_END))
    return lines


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or len(headers) == MAX_HEADERS:
            raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "bad or too many headers")
        headers[name.lower()] = value.strip()
    return headers


def _line(stream: BufferedReader) -> bytes:
    line = stream.readline(MAX_LINE_BYTES + 1)
    if len(line) > MAX_LINE_BYTES:
        raise BadRequestError(HTTPStatus.REQUEST_URI_TOO_LONG, f"a line has more than {MAX_LINE_BYTES} bytes")
    return line


def read_body(stream: BufferedReader, length: int | None, *, limit_bytes: int) -> bytes:
    """Return the body, of a known length or in chunks.

    Raises
    ------
    BadRequestError
        It is larger than the limit, or the connection ended inside it.
    """
    if length is None:
        return _chunks(stream, limit_bytes)
    if length > limit_bytes:
        raise too_large(limit_bytes)
    body = stream.read(length) or b""  # None if a socket was silent for too long
    if len(body) != length:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "the connection ended inside the body")
    return body


def too_large(limit_bytes: int) -> BadRequestError:
    """Return the error for a body beyond the limit."""
    return BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {limit_bytes} bytes are taken")


def _chunks(stream: BufferedReader, limit_bytes: int) -> bytes:
    body = bytearray()
    while size := _chunk_size(_line(stream)):
        if len(body) + size > limit_bytes:
            raise too_large(limit_bytes)
        body += read_body(stream, size, limit_bytes=limit_bytes)
        _line(stream)
    while _line(stream).rstrip(b"\r\n"):
        pass  # trailers
    return bytes(body)


def _chunk_size(line: bytes) -> int:
    digits = line.split(b";")[0].strip()
    try:
        return int(digits, 16) if digits.isalnum() else int("")
    except ValueError as error:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "a chunk has no size") from error


def unpack(body: bytes, encoding: str, *, limit_bytes: int) -> bytes:
    """Return the body as it was before its Content-Encoding; at most `limit_bytes` of it.

    Raises
    ------
    BadRequestError
        The encoding is unknown, the body is damaged, or unpacks to more.
    """
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise BadRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding may be gzip or identity")
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        out = unpacker.decompress(body, limit_bytes)
    except zlib.error as error:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "the body is not gzip") from error
    if unpacker.unconsumed_tail:
        raise too_large(limit_bytes)
    if not unpacker.eof:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "the gzip body is cut off")
    return out


def response(
    status: HTTPStatus, body: bytes, content_type: str, *, headers: Mapping[str, str] | None = None
) -> bytes:
    """Return the bytes of an answer.

    Examples
    --------
    >>> response(HTTPStatus.OK, b"ok", "text/plain").splitlines()[0]
    b'HTTP/1.1 200 OK'
    """
    told = {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"HTTP/1.1 {int(status)} {status.phrase}\r\n{lines}\r\n".encode("latin-1") + body
