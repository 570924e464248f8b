"""What one event-log record is before it meets a log: key, value, headers."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from paritas.wire import names

__all__ = ["RECORD_LIMIT_BYTES", "Headers", "Origin", "WireRecord", "origin_of", "stamp"]

# Half of the usual broker limit of 1 MB: room for headers, batch framing and a second span.
RECORD_LIMIT_BYTES = 512 * 1024

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class WireRecord:
    """One record as every event log stores it.

    Attributes
    ----------
    key : bytes
        Trace id as 32 lowercase hex characters (ASCII); equal keys share a partition.
    value : bytes
        Serialized OTLP ``ExportTraceServiceRequest``, at most `RECORD_LIMIT_BYTES`.
    headers : tuple of (str, bytes)
        Names of `paritas.wire.names`; order is kept.
    """

    key: bytes
    value: bytes
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Which agent shipped a record, and its number there: the identity readers deduplicate by.

    Attributes
    ----------
    agent : str
        Name of the agent.
    epoch : int
        Unix ns at which the agent's spool segment was opened; a number never means two records of one epoch.
    seq : int
        Sequence number of the record in the agent's spool.
    """

    agent: str
    epoch: int
    seq: int


def stamp(record: WireRecord, origin: Origin) -> WireRecord:
    """Return the record with the three headers that name its origin; earlier ones are replaced.

    Examples
    --------
    >>> origin_of(stamp(WireRecord(b"k", b""), Origin("pod-7", 3, 41)).headers)
    Origin(agent='pod-7', epoch=3, seq=41)
    """
    ours = (
        (names.HEADER_AGENT, origin.agent.encode()),
        (names.HEADER_EPOCH, b"%d" % origin.epoch),
        (names.HEADER_SEQ, b"%d" % origin.seq),
    )
    replaced = {name for name, _ in ours}
    kept = tuple(header for header in record.headers if header[0] not in replaced)
    return replace(record, headers=kept + ours)


def origin_of(headers: Iterable[tuple[str, bytes]]) -> Origin | None:
    """Return the origin the headers name, or None if they name none or a malformed one."""
    found = dict(headers)
    try:
        return Origin(
            agent=found[names.HEADER_AGENT].decode(),
            epoch=_number(found[names.HEADER_EPOCH]),
            seq=_number(found[names.HEADER_SEQ]),
        )
    except (KeyError, ValueError):
        return None


def _number(text: bytes) -> int:
    """Return the unsigned 64-bit number; ValueError on anything else, also on signs and spaces."""
    # 20 digits hold every u64; longer text would make int() slow on purpose.
    if not text.isdigit() or len(text) > 20:
        raise ValueError(text)
    return int(text)
