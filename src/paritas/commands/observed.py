"""Who was observed, and when: what signed evidence binds a judgement to."""

from collections.abc import Iterable, Sequence

from paritas.detectors.pairs import PairedTrace

__all__ = ["observed_of"]

SHOWN = 16  # a fleet has a few kinds of kernels; more are not one candidate anyway


def observed_of(pairs: Sequence[PairedTrace]) -> dict[str, object]:
    """Return the digests of every kernel, the weights versions and the times of what was paired.

    ``from_ns`` and ``to_ns`` are Unix ns of the first and last sequence start, 0 where the records carry none.
    """
    times = [p.event_ns for p in pairs if p.event_ns > 0]
    return {
        "kernels": {
            "inference": _distinct(p.inference.digest for p in pairs),
            "train": _distinct(p.train.digest for p in pairs),
        },
        "weights": _distinct(p.weights_version for p in pairs),
        "from_ns": min(times, default=0),
        "to_ns": max(times, default=0),
        "sequences": len(pairs),
        "tokens": sum(p.tokens for p in pairs),
    }


def _distinct(told: Iterable[str]) -> list[str]:
    return sorted(set(told) - {""})[:SHOWN]
