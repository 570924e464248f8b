"""The resume token: an opaque name for "everything through here was seen".

Layout, for this module only: ``P1``, epoch and sequence number as big-endian uint64, CRC-32
of all before it.  The epoch is drawn when a log is created, so that a token can never match
the numbers of another log; the checksum turns garbage into a clear refusal.
"""

import struct
import zlib
from dataclasses import dataclass

from paritas.controller.refusals import RefusalError, Refused

__all__ = ["Token", "decode", "encode"]

_BODY = struct.Struct(">2sQQ")
_CHECK = struct.Struct(">I")
_MAGIC = b"P1"
SIZE_BYTES = _BODY.size + _CHECK.size


@dataclass(frozen=True, slots=True)
class Token:
    """A place in one log.

    Attributes
    ----------
    epoch : int
        Identity of the log, uint64.
    seq : int
        Number of the last event seen, uint64; 0 is before the first.
    """

    epoch: int
    seq: int


def encode(token: Token) -> bytes:
    """Return the 22 bytes a subscriber keeps.

    Examples
    --------
    >>> decode(encode(Token(epoch=7, seq=3)), field="token")
    Token(epoch=7, seq=3)
    """
    body = _BODY.pack(_MAGIC, token.epoch, token.seq)
    return body + _CHECK.pack(zlib.crc32(body))


def decode(raw: bytes, *, field: str) -> Token:
    """Return the place that `raw` names.

    Raises
    ------
    RefusalError
        INVALID, naming `field`, when `raw` was not made by `encode`.
    """
    body, check = raw[: _BODY.size], raw[_BODY.size :]
    if len(raw) != SIZE_BYTES or not body.startswith(_MAGIC) or check != _CHECK.pack(zlib.crc32(body)):
        message = f"{field}: not a token of this service ({len(raw)} bytes)"
        raise RefusalError(message, reason=Refused.INVALID, hint="send back tokens unchanged")
    _, epoch, seq = _BODY.unpack(body)
    return Token(epoch=epoch, seq=seq)
