"""What SGLang's ``meta_info`` tells beside the tokens: times."""

import math
from collections.abc import Mapping
from typing import Any

from paritas.records import Timings

__all__ = ["received_ns", "timings_in"]

NS_PER_S = 1_000_000_000


def timings_in(meta: Mapping[str, Any]) -> Timings:
    """Read the times; all but ``e2e_latency`` are there only with ``--enable-metrics``.

    Time to first token is counted from arrival, queue included, as everywhere in Paritas.

    Examples
    --------
    >>> timings_in({"queue_time": 0.25, "first_token_latency": 1.0, "e2e_latency": 3.0}).decode_s
    2.0
    """
    queue_s, ttft_s, e2e_s, entered, filled = (
        _seconds(meta.get(name))
        for name in (
            "queue_time",
            "first_token_latency",
            "e2e_latency",
            "forward_entry_time",
            "prefill_finished_time",
        )
    )
    return Timings(queue_s, ttft_s, _between(entered, filled), _between(ttft_s, e2e_s))


def received_ns(meta: Mapping[str, Any]) -> int:
    """Return the Unix ns at which the request came; 0 where it is not told."""
    told = _seconds(meta.get("request_received_ts"))
    return 0 if told is None else int(told * NS_PER_S)


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None or end < start else end - start


def _seconds(told: Any) -> float | None:
    is_number = isinstance(told, int | float) and not isinstance(told, bool)
    return float(told) if is_number and math.isfinite(told) and 0 <= told < 1e11 else None
