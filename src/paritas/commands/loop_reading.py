"""A reading of the detection loop around the detector: pace, losses, verdicts, contract.  Pure."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paritas.agent.eventlog import SkipReason
from paritas.agent.eventlog.records import GapReason
from paritas.agent.health import Health
from paritas.agent.reasons import DropReason
from paritas.commands.contract_watch import ContractCounts
from paritas.commands.detect_health import DetectTrouble
from paritas.commands.exposition import Family, counter, gauge, health_families, labelled
from paritas.errors import TransientError
from paritas.records import State
from paritas.wire.reasons import DecodeProblem

if TYPE_CHECKING:
    from paritas.commands.detecting import DetectionLoop

__all__ = ["LoopReading", "loop_families", "loop_reading"]

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LoopReading:
    """What the loop has done, at one moment; counts are of this process.

    Attributes
    ----------
    records, repeated : int
        Records taken, and of these known already.
    refused, skipped, lost : mapping of str to int
        Records or spans that gave nothing, offsets without a record, records told to be lost: by reason.
    published, failures : int
        Escalations published; turns that failed and were tried again.
    lag : float, records
        Not judged yet; NaN where the log could not be asked.
    newest_s, saved_s : float, Unix seconds
        When the newest judged record was appended; when the state was saved last.  0 before.
    agents : mapping of str to int
        Agents heard, by whether they say they are ready.
    verdicts : mapping of (clause, family, state) to int
        How many slices a clause is in each state of.
    """

    records: int = 0
    repeated: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    published: int = 0
    failures: int = 0
    lag: float = math.nan
    newest_s: float = 0.0
    saved_s: float = 0.0
    agents: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[tuple[str, ...], int] = field(default_factory=dict)


def loop_reading(loop: "DetectionLoop") -> LoopReading:
    """Read a loop; only the thread that drives it may."""
    detector = loop.detector
    return LoopReading(
        records=loop.decoder.received,
        repeated=detector.repeated_records,
        refused=dict(loop.decoder.refused),
        skipped=dict(loop.skipped),
        lost=dict(detector.gaps.lost),
        published=loop.published,
        failures=loop.failures,
        lag=_lag(loop),
        newest_s=loop.newest_ns / NS,
        saved_s=loop.saved_ns / NS,
        agents=loop.agents.counts(),
        verdicts=_verdicts(loop),
    )


def _lag(loop: "DetectionLoop") -> float:
    if loop.state.trouble is DetectTrouble.WAITING_FOR_LOG:
        return math.nan  # asking again would only wait again
    try:
        return float(loop.lag_records())
    except TransientError:
        return math.nan


def _verdicts(loop: "DetectionLoop") -> dict[tuple[str, ...], int]:
    """Every clause in every state, so that an alert never compares with what is not there."""
    told = loop.detector.verdicts()
    found = Counter((v.clause, v.family, v.state.value) for v in told)
    clauses = {(clause.id, clause.family.value) for clause in loop.contract.clauses}
    clauses |= {(clause, family) for clause, family, _ in found}
    return {
        (*clause, state.value): found[(*clause, state.value)] for clause in sorted(clauses) for state in State
    }


def loop_families(
    reading: LoopReading, contracts: ContractCounts, health: Health, *, started_s: float
) -> Iterator[Family]:
    """Yield every family; `started_s` is when the process started, Unix seconds."""
    yield from health_families("paritas_detect", health, DetectTrouble)
    yield from _contract(contracts)
    yield from _records(reading)
    yield from _work(reading)
    yield gauge("paritas_detect_process_start_time_seconds", "time the process started", started_s)


def _contract(counts: ContractCounts) -> Iterator[Family]:
    yield counter("paritas_detect_contract_applied_total", "changed contracts taken over", counts.applied)
    yield counter(
        "paritas_detect_contract_rejected_total", "changed contracts that could not be used", counts.rejected
    )
    stale = "1 while the file holds a contract that could not be used, and an older one is judged by"
    yield gauge("paritas_detect_contract_stale", stale, float(counts.is_stale))


def _records(reading: LoopReading) -> Iterator[Family]:
    yield counter("paritas_detect_records_total", "records taken from the log", reading.records)
    yield counter("paritas_detect_records_repeated_total", "of these, known already", reading.repeated)
    for name, says, reasons, counts in (
        ("refused", "records or spans that gave no trace, by reason", (DecodeProblem,), reading.refused),
        ("skipped", "offsets of the log that gave no record, by reason", (SkipReason,), reading.skipped),
        ("lost", "records that were lost on the way, by reason", (DropReason, GapReason), reading.lost),
    ):
        none = {str(reason): 0 for kind in reasons for reason in kind}
        found = labelled("reason", dict(sorted({**none, **counts}.items())))
        yield Family(f"paritas_detect_records_{name}_total", "counter", says, *found)
    yield gauge("paritas_detect_lag_records", "records of the log that were not judged yet", reading.lag)
    newest = "time the newest judged record was appended to the log"
    yield gauge("paritas_detect_newest_record_timestamp_seconds", newest, reading.newest_s)
    agents = labelled("state", reading.agents)
    yield Family("paritas_detect_agents", "gauge", "agents heard, by whether they are ready", *agents)


def _work(reading: LoopReading) -> Iterator[Family]:
    labels = ("clause", "family", "state")
    says = "slices that a clause is in each state of"
    yield Family("paritas_detect_verdicts", "gauge", says, labels, dict(reading.verdicts))
    yield counter("paritas_detect_escalations_total", "escalations published", reading.published)
    failed = "turns of the loop that failed and were tried again"
    yield counter("paritas_detect_failed_turns_total", failed, reading.failures)
    yield gauge("paritas_detect_saved_timestamp_seconds", "time the state was saved last", reading.saved_s)
