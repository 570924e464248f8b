"""Counters → the text that Prometheus reads.  Pure.

One consistent reading makes the whole page, so ``accepted = delivered + dropped + queued`` holds within
every scrape; a client library's registry, with one lock a metric, cannot promise that.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from paritas.agent.health import Health, Reading
from paritas.agent.intake import Answer
from paritas.agent.reasons import DropReason, NotReady

__all__ = ["CONTENT_TYPE", "Extra", "Metric", "metrics", "render"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "paritas_agent_"
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric and its samples, by the value of its one label, or by a summary's suffix."""

    name: str
    kind: str
    says: str
    samples: Mapping[str, float]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Extra:
    """Counts that neither spool nor shipper keep.

    Attributes
    ----------
    answers : mapping of Answer to int
        Requests, by what they were told.
    reloads : mapping of str to int
        Configurations read again, by outcome.
    crashes : int
        Unexpected errors that the shipping thread survived.
    resident_bytes : int
        Memory of the process.
    """

    answers: Mapping[Answer, int] = field(default_factory=dict)
    reloads: Mapping[str, int] = field(default_factory=dict)
    crashes: int = 0
    resident_bytes: int = 0


def metrics(reading: Reading, health: Health, extra: Extra) -> Iterator[Metric]:
    """Yield every metric; each label value is there from the start, with 0."""
    yield from _records(reading)
    yield from _spool(reading)
    yield from _process(reading, health, extra)


def _records(reading: Reading) -> Iterator[Metric]:
    told, own, shipper = reading.spool.records, reading.spool.own, reading.shipper
    dropped = {str(reason): told.dropped.get(reason, 0) for reason in DropReason}
    yield _counter("records_accepted_total", "records taken in, over all runs of the spool", told.accepted)
    yield _counter("records_delivered_total", "records the destination acknowledged", told.delivered)
    yield Metric("records_dropped_total", "counter", "records given up, by reason", dropped, "reason")
    yield _gauge("records_queued", "records neither delivered nor dropped", told.queued)
    yield _counter("records_retried_total", "records sent again after a failure", shipper.retried)
    yield _counter("own_records_accepted_total", "gap and health records of the agent itself", own.accepted)
    yield _counter("own_records_delivered_total", "of these, acknowledged", own.delivered)
    yield _counter("own_records_dropped_total", "of these, given up", sum(own.dropped.values()))
    yield _gauge("own_records_queued", "of these, waiting", own.queued)
    yield _gauge("oldest_unacked_age_seconds", "wait of the oldest record", reading.spool.oldest_age_s)
    yield _gauge(
        "last_success_timestamp_seconds", "time of the last acknowledgement", shipper.last_success_ns / NS
    )
    yield _gauge("consecutive_failures", "failures since the last acknowledgement", shipper.failures)


def _spool(reading: Reading) -> Iterator[Metric]:
    spool, sync = reading.spool, reading.spool.sync
    yield _gauge("spool_bytes", "bytes of segments on disk", spool.disk_bytes)
    yield _gauge("memory_queue_bytes", "bytes waiting in memory", spool.memory_bytes)
    yield _gauge("memory_only", "1 while the disk refuses", float(spool.is_memory_only))
    yield _gauge("quarantined_bytes", "damaged bytes kept for inspection", spool.quarantined_bytes)
    yield _counter("disk_refusals_total", "times the agent went on in memory", spool.degradations)
    yield _counter("commit_failures_total", "positions that could not be saved", spool.commit_failures)
    yield _counter("position_resets_total", "damaged positions put away", spool.cursor_resets)
    yield _counter("gap_records_lost_total", "gaps that no record tells of", spool.gaps_forgotten)
    yield _counter("dead_letters_total", "records kept among the dead letters", spool.dead_letters)
    timed: dict[str, float] = {"_count": sync.count, "_sum": sync.total_s}
    yield Metric("fsync_seconds", "summary", "time that group syncs took", timed)
    yield _gauge("fsync_seconds_max", "the longest of them", sync.longest_s)
    yield _counter("fsync_failures_total", "group syncs that failed", sync.failures)


def _process(reading: Reading, health: Health, extra: Extra) -> Iterator[Metric]:
    answers = {str(answer): extra.answers.get(answer, 0) for answer in Answer}
    reasons = {str(reason): float(reason in health.reasons) for reason in NotReady}
    yield Metric("requests_total", "counter", "requests, by answer", answers, "answer")
    yield Metric("not_ready", "gauge", "1 for each reason that holds", reasons, "reason")
    yield _gauge("ready", "1 if what comes in goes out", float(health.is_ready))
    reloads = {outcome: extra.reloads.get(outcome, 0) for outcome in ("applied", "refused")}
    yield Metric("config_reloads_total", "counter", "configurations read again", reloads, "outcome")
    yield _counter("crashes_total", "unexpected errors survived", extra.crashes)
    yield _gauge("resident_memory_bytes", "memory of the process", extra.resident_bytes)
    del reading


def _counter(name: str, says: str, value: float) -> Metric:
    return Metric(name, "counter", says, {"": value})


def _gauge(name: str, says: str, value: float) -> Metric:
    return Metric(name, "gauge", says, {"": value})


def render(found: Iterator[Metric]) -> str:
    """Return the exposition text.

    Examples
    --------
    >>> print(render(iter([Metric("up", "gauge", "is up", {"a": 1.0}, "of")])), end="")
    # HELP paritas_agent_up is up
    # TYPE paritas_agent_up gauge
    paritas_agent_up{of="a"} 1
    """
    return "".join(line for metric in found for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    name = PREFIX + metric.name
    yield f"# HELP {name} {metric.says}\n# TYPE {name} {metric.kind}\n"
    for value, sample in metric.samples.items():
        labels = f'{{{metric.label}="{value}"}}' if metric.label else value  # a summary's suffix
        yield f"{name}{labels} {sample:.17g}\n"
