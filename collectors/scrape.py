"""What an engine's ``/metrics`` says of itself: one typed reading, whatever version named it.

Pure: the text comes from elsewhere (`paritas scrape` fetches it).  Needs prometheus-client
(``pip install 'paritas[scrape]'``) when a text is read, not before.

Engines rename their metrics; a reading keeps under which name each value was found.  What no known
name gives is None, which is not zero.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from paritas.errors import UsageError

__all__ = ["EngineMetrics", "Histogram", "engine_metrics"]

Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]
# Newest name first.  vLLM: V1 of 0.33 down to 0.8, then V0; SGLang 0.5 and before.
SUMS: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
    "swapped": ("vllm:num_requests_swapped",),
    "preemptions": (
        "vllm:num_preemptions_total",
        "sglang:num_retracted_requests_total",
        "sglang:num_retracted_reqs",
    ),
    "finished": ("vllm:request_success_total", "sglang:num_requests_total"),
    "corrupted": ("vllm:corrupted_requests_total",),
    "prompt_tokens": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total"),
    "generation_tokens": ("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
    "cached_tokens": (
        "vllm:prompt_tokens_cached_total",
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
        "sglang:cached_tokens_total",
    ),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
}
# Shares and lengths: of several engines behind one address the highest is told.
HIGHEST: Mapping[str, tuple[str, ...]] = {
    "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
    "prefix_hit_rate": ("vllm:gpu_prefix_cache_hit_rate", "sglang:cache_hit_rate"),
    "acceptance_rate": ("vllm:spec_decode_draft_acceptance_rate", "sglang:spec_accept_rate"),
    "acceptance_length": ("sglang:spec_accept_length",),
}
HISTOGRAMS: Mapping[str, tuple[str, ...]] = {
    "ttft": ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
    "itl": (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "sglang:inter_token_latency_seconds",
        "sglang:time_per_output_token_seconds",
    ),
    "e2e": ("vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds"),
    "queue": ("vllm:request_queue_time_seconds", "sglang:queue_time_seconds"),
    "prefill": ("vllm:request_prefill_time_seconds",),
    "decode": ("vllm:request_decode_time_seconds",),
}
PREFIXES = {"vllm:": "vllm", "sglang:": "sglang"}


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations as Prometheus counts them; of several engines the sum.

    Attributes
    ----------
    bounds_s : tuple of float
        Upper bounds of the buckets, seconds; the last is infinite.
    counts : tuple of float
        Observations at most that long.
    total_s : float
        Sum of all observations, seconds; NaN where it is not told.
    """

    bounds_s: tuple[float, ...]
    counts: tuple[float, ...]
    total_s: float

    @property
    def count(self) -> float:
        """Number of observations."""
        return self.counts[-1]

    @property
    def mean_s(self) -> float:
        """Mean in seconds; NaN without observations."""
        return self.total_s / self.count if self.count else math.nan

    def quantile_s(self, q: float) -> float:
        """Estimate a quantile, linear within its bucket; NaN without observations.

        In the last, open bucket the estimate is where that begins.

        Examples
        --------
        >>> Histogram((1.0, 2.0, math.inf), (0.0, 10.0, 10.0), 15.0).quantile_s(0.5)
        1.5
        """
        if not self.count:
            return math.nan
        wanted = q * self.count
        rows = [(0.0, 0.0), *zip(self.bounds_s, self.counts, strict=True)]
        for (low_s, below), (high_s, within) in pairwise(rows):
            if within >= wanted and within > below:
                return (
                    low_s
                    if math.isinf(high_s)
                    else low_s + (high_s - low_s) * (wanted - below) / (within - below)
                )
        return rows[-1][0]


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """One look at an engine; counters count from its start.

    Attributes
    ----------
    engine : str
        ``vllm``, ``sglang`` or empty.
    model : str
        Empty where several are served.
    kv_usage : float or None
        Share of the KV cache in use, 1 is full (vLLM calls it a percentage).
    prefix_queries, prefix_hits, cached_tokens : float or None
        Tokens of prompts looked up, found, and taken from the prefix cache.
    acceptance_rate, acceptance_length : float or None
        Of drafted tokens, and tokens a step, with speculative decoding.
    names : mapping of str to str
        Field to the metric that gave it.
    """

    engine: str
    model: str
    running: float | None = None
    waiting: float | None = None
    swapped: float | None = None
    preemptions: float | None = None
    finished: float | None = None
    corrupted: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    cached_tokens: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    prefix_hit_rate: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    acceptance_rate: float | None = None
    acceptance_length: float | None = None
    kv_usage: float | None = None
    ttft: Histogram | None = None
    itl: Histogram | None = None
    e2e: Histogram | None = None
    queue: Histogram | None = None
    prefill: Histogram | None = None
    decode: Histogram | None = None
    names: Mapping[str, str] = field(default_factory=dict)


def engine_metrics(text: str) -> EngineMetrics:
    r"""Read a text in the Prometheus exposition format.

    Raises
    ------
    UsageError
        The text is not in that format.

    Examples
    --------
    >>> told = engine_metrics('vllm:gpu_cache_usage_perc{model_name="m"} 0.25\n')
    >>> told.engine, told.model, told.kv_usage, told.names["kv_usage"]
    ('vllm', 'm', 0.25, 'vllm:gpu_cache_usage_perc')
    """
    samples = _samples(text)
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    for kinds, reduce in ((SUMS, sum), (HIGHEST, max)):
        for name, candidates in kinds.items():
            if (metric := _first(samples, candidates)) is not None:
                found[name] = float(reduce(value for _, value in samples[metric]))
                names[name] = metric
    for name, candidates in HISTOGRAMS.items():
        metric = _first(samples, (f"{one}_bucket" for one in candidates))
        if metric is not None:
            names[name] = metric.removesuffix("_bucket")
            found[name] = _histogram(samples, names[name])
    _complete(found)
    engine = next((PREFIXES[p] for metric in names.values() for p in PREFIXES if metric.startswith(p)), "")
    return EngineMetrics(engine, _model(samples), names=names, **found)


def _samples(text: str) -> Samples:
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(_canonical(sample.name), []).append((sample.labels, sample.value))
    except (ValueError, KeyError, IndexError) as error:
        raise _no_metrics(str(error)) from error
    return found


def _no_metrics(why: str) -> UsageError:
    return UsageError(
        f"this is no text of Prometheus metrics: {why}", hint="an engine tells them at /metrics"
    )


def _canonical(name: str) -> str:
    """Some set-ups write the colon as an underscore, as older scrapers wanted it."""
    for prefix in PREFIXES:
        bare = prefix.replace(":", "_")
        if name.startswith(bare):
            return prefix + name.removeprefix(bare)
    return name


def _first(samples: Samples, candidates: Iterable[str]) -> str | None:
    return next((name for name in candidates if name in samples), None)


def _histogram(samples: Samples, name: str) -> Histogram:
    buckets: dict[float, float] = {}
    for labels, value in samples[f"{name}_bucket"]:
        bound = _bound_s(labels.get("le", "inf"))
        buckets[bound] = buckets.get(bound, 0.0) + value
    bounds = tuple(sorted(buckets))
    told = samples.get(f"{name}_sum")
    total_s = sum(value for _, value in told) if told else math.nan
    return Histogram(bounds, tuple(buckets[bound] for bound in bounds), total_s)


def _bound_s(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise _no_metrics(f"a bucket ends at {text!r}") from error


def _complete(found: dict[str, Any]) -> None:
    """Rates that follow from counters."""
    for rate, part, whole in (
        ("prefix_hit_rate", "prefix_hits", "prefix_queries"),
        ("acceptance_rate", "accepted_tokens", "draft_tokens"),
    ):
        if rate not in found and found.get(whole):
            found[rate] = found.get(part, 0.0) / found[whole]


def _model(samples: Samples) -> str:
    models = {
        labels["model_name"]
        for name, rows in samples.items()
        if name.startswith(tuple(PREFIXES))
        for labels, _ in rows
        if labels.get("model_name")
    }
    return models.pop() if len(models) == 1 else ""
