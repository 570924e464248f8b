"""Headers on their way through a proxy."""

from collections.abc import Iterable, Mapping

from paritas.collectors.openai.naming import HEADER_PREFIX

__all__ = ["HeaderList", "answer_headers", "request_headers"]

HeaderList = list[tuple[str, str]]
# RFC 9110, 7.6.1: these speak of one connection, not of the message.
HOP_BY_HOP = frozenset(
    {
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def request_headers(
    headers: Iterable[tuple[str, str]], *, added: Mapping[str, str], is_changed: bool
) -> HeaderList:
    """Return what goes upstream; `added` (lower case) replaces what the client sent under that name.

    Parameters
    ----------
    is_changed : bool
        The body is not the client's: its length is left to the sender.

    Examples
    --------
    >>> request_headers([("Host", "a"), ("Accept", "*/*"), ("X-Paritas-Run-Id", "r")], added={}, is_changed=False)
    [('Accept', '*/*')]
    """
    sent = list(headers)
    gone = HOP_BY_HOP | _named(sent) | {"host"} | set(added) | ({"content-length"} if is_changed else set())
    kept = [
        (name, value)
        for name, value in sent
        if name.lower() not in gone and not name.lower().startswith(HEADER_PREFIX)
    ]
    return kept + list(added.items())


def answer_headers(headers: Iterable[tuple[str, str]], *, is_changed: bool) -> HeaderList:
    """Return what goes back to the client; without a length or checksum where the body is changed."""
    told = list(headers)
    changed = {"content-length", "content-md5", "digest", "repr-digest", "content-digest", "etag"}
    gone = HOP_BY_HOP | _named(told) | (changed if is_changed else set())
    return [(name, value) for name, value in told if name.lower() not in gone]


def _named(headers: Iterable[tuple[str, str]]) -> set[str]:
    """Names that a Connection header takes along."""
    return {
        name.strip().lower()
        for header, value in headers
        if header.lower() == "connection"
        for name in value.split(",")
    }
