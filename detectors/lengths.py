"""Length buckets: the label `length` of a sequence that carries none of that name."""

from paritas.detectors.pairs import PairedTrace
from paritas.records import TokenStatus

__all__ = ["LENGTH", "length_bucket", "shortest_of"]

LENGTH = "length"
FIRST = 128  # tokens; buckets double from there


def length_bucket(pair: PairedTrace) -> str:
    """Return the bucket of a sequence by its generated tokens, whatever their status.

    Examples
    --------
    >>> bucket_name(5), bucket_name(128), bucket_name(300), bucket_name(4096)
    ('0-127', '128-255', '256-511', '4096-8191')
    """
    return bucket_name(sum(n for status, n in pair.counts.items() if status is not TokenStatus.PROMPT))


def bucket_name(tokens: int) -> str:
    """Name of the bucket that holds so many tokens."""
    if tokens < FIRST:
        return f"0-{FIRST - 1}"
    low = 1 << (tokens.bit_length() - 1)
    return f"{low}-{2 * low - 1}"


def shortest_of(name: str) -> int:
    """Tokens at which the bucket of a slice instance called `name` begins; -1 if it is none.

    Examples
    --------
    >>> shortest_of("length=128-255"), shortest_of("replica=r2")
    (128, -1)
    """
    key, _, bucket = name.partition("=")
    low, _, high = bucket.partition("-")
    return int(low) if key == LENGTH and low.isdecimal() and high.isdecimal() else -1
