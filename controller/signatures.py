"""Signed webhooks, by the Standard Webhooks convention (https://www.standardwebhooks.com).

Headers ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature: v1,BASE64`` of HMAC-SHA256
over ``id.timestamp.body``.
"""

import base64
import hashlib
import hmac
import re
from pathlib import Path

from paritas.controller.config import is_local
from paritas.controller.secret_files import read_secret
from paritas.errors import UsageError

__all__ = ["authority", "is_private", "signature", "signed_headers", "signing_key"]

_PREFIX = b"whsec_"


def signature(key: bytes, *, message_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``.

    Examples
    --------
    >>> signature(b"key", message_id="p-3", timestamp_s=1700000000, body=b"{}")
    'v1,y2ZlUsuMnXyNFYNMV0Jvm/pHfWNQg6LTBenrEgr1Phw='
    """
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def signed_headers(key: bytes, *, message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Return the three headers of one message."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": signature(key, message_id=message_id, timestamp_s=timestamp_s, body=body),
    }


def signing_key(file: Path) -> bytes:
    """Return the key in `file`: base64 after ``whsec_``, by the convention; any other text is the key itself.

    Raises
    ------
    UsageError
        It cannot be read, or is not base64.
    """
    secret = read_secret(file)
    if not secret.startswith(_PREFIX):
        return secret
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError as error:
        raise UsageError("key_file: what follows whsec_ is not base64") from error


def is_private(url: str) -> bool:
    """Tell whether nobody between can read or change what is sent to `url`: https, or this machine.

    Examples
    --------
    >>> [is_private(u) for u in ("https://x/", "http://localhost/a", "http://[::1]:8/", "http://x/", "ftp://x")]
    [True, True, True, False, False]
    >>> is_private("http://name:password@localhost:9093"), is_private("http://localhost:80@x")
    (True, False)
    """
    scheme, where = url.partition("://")[0], authority(url).rpartition("@")[2]
    has_port = where.rpartition(":")[2].isdecimal()
    return scheme == "https" or (scheme == "http" and is_local(where if has_port else f"{where}:80"))


def authority(url: str) -> str:
    """Return what stands between the scheme and the path: the host, its port, and the name and password before them.

    Examples
    --------
    >>> [authority(url) for url in ("https://a:b@x:8/c", "http://x?@localhost", "x")]
    ['a:b@x:8', 'x', '']
    """
    return re.split(r"[/?#\\]", url.partition("://")[2], maxsplit=1)[0]
