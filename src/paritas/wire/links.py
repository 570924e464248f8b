"""The link from one of our spans to the engine's own: a W3C trace context, there and back."""

import re
from collections.abc import Sequence

from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["links_of", "traceparent_in"]

TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def links_of(traceparent: str) -> list[Span.Link]:
    """Return the link of a trace context; none where there is no valid one.

    Examples
    --------
    >>> traceparent_in(links_of("00-" + "a" * 32 + "-" + "b" * 16 + "-01"))[:10]
    '00-aaaaaaa'
    """
    found = TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return []
    return [Span.Link(trace_id=bytes.fromhex(found[1]), span_id=bytes.fromhex(found[2]))]


def traceparent_in(links: Sequence[Span.Link]) -> str:
    """Return the trace context of the first link; empty where there is none."""
    if not links or len(links[0].trace_id) != 16 or len(links[0].span_id) != 8:
        return ""
    return f"00-{links[0].trace_id.hex()}-{links[0].span_id.hex()}-01"
