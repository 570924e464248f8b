"""Which run, sequence and group an answer belongs to, and whether the declared share takes it.

A client says so in request headers, or in the ``user`` field where it cannot set headers::

    x-paritas-run-id: grpo-7            user: "paritas:run=grpo-7,sequence=s-41,group=p-9"
    x-paritas-sequence-id: s-41
    x-paritas-group-id: p-9
    x-paritas-weights-version: 312
    x-paritas-attributes: slice=math,environment=gsm8k

Without a word the response id names the sequence, as every client sees it; the choices of one
answer are ``ID/0``, ``ID/1`` …, and the answer is their group.  Where an answer has no id the request's
``x-request-id`` does, else a fresh name.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "HEADER_PREFIX",
    "Names",
    "Traceparent",
    "is_in_share",
    "names_of",
    "request_id_of",
    "traceparent_of",
]

HEADER_PREFIX = "x-paritas-"
USER_PREFIX = "paritas:"
NAME_LIMIT = 256  # characters; longer ids are cut: a trace is not a place for a novel
ATTRIBUTE_LIMIT = 16
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")


@dataclass(frozen=True, slots=True)
class Names:
    """What a client said; empty where it did not."""

    run_id: str = ""
    sequence_id: str = ""
    group_id: str = ""
    weights_version: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    def of_choice(self, response_id: str, index: int, *, is_many: bool) -> tuple[str, str]:
        """Return sequence and group of one choice.

        Examples
        --------
        >>> Names().of_choice("cmpl-1", 1, is_many=True), Names(sequence_id="s").of_choice("c", 0, is_many=False)
        (('cmpl-1/1', 'cmpl-1'), ('s', ''))
        """
        base = self.sequence_id or response_id
        if not is_many:
            return base, self.group_id
        return f"{base}/{index}", self.group_id or base


def names_of(headers: Mapping[str, str], user: str = "") -> Names:
    """Read the headers (names in lower case) and the ``user`` field; a header has precedence.

    Examples
    --------
    >>> names_of({"x-paritas-run-id": "r"}, "paritas:run=q,sequence=s").run_id
    'r'
    """
    told = _pairs(user.removeprefix(USER_PREFIX)) if user.startswith(USER_PREFIX) else {}

    def one(header: str, key: str) -> str:
        return _name(headers.get(HEADER_PREFIX + header) or told.get(key, ""))

    return Names(
        run_id=one("run-id", "run"),
        sequence_id=one("sequence-id", "sequence"),
        group_id=one("group-id", "group"),
        weights_version=one("weights-version", "weights"),
        attributes=_pairs(headers.get(HEADER_PREFIX + "attributes", "")),
    )


def request_id_of(headers: Mapping[str, str], fresh: str) -> str:
    """Return the client's own name of a request (names of headers in lower case), else the fresh one.

    Examples
    --------
    >>> request_id_of({"x-request-id": "a-7"}, "f"), request_id_of({}, "f")
    ('a-7', 'f')
    """
    return _name(headers.get("x-request-id", "")) or fresh


def _pairs(text: str) -> dict[str, str]:
    """Return NAME=VALUE pairs; what is none is passed over: a client is not refused for it."""
    parts = [part.partition("=") for part in text.split(",")]
    named = {_name(name): _name(value) for name, _, value in parts if _name(name)}
    return dict(list(named.items())[:ATTRIBUTE_LIMIT])


def _name(text: str) -> str:
    """Return a name as a trace holds it; empty for what UTF-8 cannot hold: Latin-1 in a header, half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return text.strip()[:NAME_LIMIT]


def is_in_share(key: str, share: float) -> bool:
    """Whether a share takes a key: the same keys in every process, more of them with a larger share.

    Examples
    --------
    >>> is_in_share("s-41", 1.0), is_in_share("s-41", 0.0)
    (True, False)
    """
    digest = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=8, person=b"paritas.share")
    return int.from_bytes(digest.digest(), "big") < share * 2**64


@dataclass(frozen=True, slots=True)
class Traceparent:
    """A W3C trace context, as the header holds it."""

    trace_id: str
    span_id: str

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"


def traceparent_of(text: str) -> Traceparent | None:
    """Read a ``traceparent`` header; None where it is not valid.

    Examples
    --------
    >>> traceparent_of("00-" + "a" * 32 + "-" + "b" * 16 + "-01").span_id
    'bbbbbbbbbbbbbbbb'
    """
    found = TRACEPARENT.fullmatch(text.strip())
    if found is None or text.startswith("ff") or not int(found[1], 16) or not int(found[2], 16):
        return None
    return Traceparent(found[1], found[2])
