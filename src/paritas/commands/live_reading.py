"""A reading of the detector, and how it looks to Prometheus and to OpenTelemetry.  Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint

from paritas import __version__
from paritas.commands.exposition import ESCAPED, shown

if TYPE_CHECKING:
    from paritas.detectors.pipeline import Detector

__all__ = ["Reading", "RefitReading", "instrument_name", "otlp_metrics", "prometheus_text", "reading_of"]

NOT_AN_INSTRUMENT = re.compile(r"[^A-Za-z0-9_./-]")
LONGEST_NAME = 255  # characters of an OpenTelemetry instrument's name


@dataclass(frozen=True, slots=True)
class RefitReading:
    """What the refit gate did since the state began.

    Attributes
    ----------
    started, held : int
        Tests begun, and versions and replicas under test now.
    versions : mapping of (state, reason) to int
        Finished tests by how they ended and why.
    sequences : mapping of str to int
        Paired sequences by what became of them, and `held_losses`.
    """

    started: int = 0
    held: int = 0
    versions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    sequences: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a detector has seen, at one moment.

    Attributes
    ----------
    contract : str
    sequences : mapping of str to int
        Sequences since the state began, by how pairing ended.
    tokens : mapping of (role, status) to int
    peers : mapping of str to float
        ``PEER:METRIC`` → value over the latest sequences.
    peer_sequences : int
        How many sequences those are.
    refit : RefitReading or None
        None where the contract has no refit gate.
    version, digest : str
        Of the contract; empty before the first reading.
    """

    contract: str
    sequences: Mapping[str, int] = field(default_factory=dict)
    tokens: Mapping[tuple[str, str], int] = field(default_factory=dict)
    peers: Mapping[str, float] = field(default_factory=dict)
    peer_sequences: int = 0
    refit: RefitReading | None = None
    version: str = ""
    digest: str = ""


def reading_of(detector: "Detector") -> Reading:
    """Read a detector; only the thread that drives it may."""
    gate = detector.refit
    return Reading(
        detector.contract.name,
        {str(reason): n for reason, n in detector.evaluator.reasons.items()},
        dict(detector.account.tokens),
        detector.rosetta.values(),
        detector.rosetta.sums().sequences.count,
        None
        if gate is None
        else RefitReading(gate.started, gate.held, dict(gate.reasons), dict(gate.sequences)),
        version=detector.contract.version,
        digest=detector.contract.digest,
    )


def prometheus_text(reading: Reading) -> str:
    """Return the exposition text, with one gauge for all peers: ``paritas_rosetta{peer, metric}``.

    Examples
    --------
    >>> print(prometheus_text(Reading("c", peers={"openrlhf:vllm_kl": 0.5})).splitlines()[-1])
    paritas_rosetta{contract="c",peer="openrlhf",metric="vllm_kl"} 0.5
    """
    return "".join(f"{line}\n" for line in _lines(reading))


def _lines(reading: Reading) -> Iterator[str]:
    own = f'contract="{reading.contract.translate(ESCAPED)}"'
    yield "# HELP paritas_detect_contract_info the contract judged by: its version and digest"
    yield "# TYPE paritas_detect_contract_info gauge"
    if reading.digest:
        told = f'version="{reading.version.translate(ESCAPED)}",digest="{reading.digest}"'
        yield f"paritas_detect_contract_info{{{own},{told}}} 1"
    yield "# HELP paritas_detect_sequences_total sequences judged, by how pairing ended"
    yield "# TYPE paritas_detect_sequences_total counter"
    for reason, n in sorted(reading.sequences.items()):
        yield f'paritas_detect_sequences_total{{{own},outcome="{reason}"}} {n}'
    yield "# HELP paritas_detect_tokens_total tokens taken in, by kernel and status"
    yield "# TYPE paritas_detect_tokens_total counter"
    for (role, status), n in sorted(reading.tokens.items()):
        yield f'paritas_detect_tokens_total{{{own},role="{role}",status="{status}"}} {n}'
    if reading.refit is not None:
        yield from _refit_lines(reading.refit, own)
    yield "# HELP paritas_rosetta_sequences sequences behind each paritas_rosetta"
    yield "# TYPE paritas_rosetta_sequences gauge"
    yield f"paritas_rosetta_sequences{{{own}}} {reading.peer_sequences}"
    yield "# HELP paritas_rosetta what another framework would print of the latest sequences (docs/rosetta.md)"
    yield "# TYPE paritas_rosetta gauge"
    for name, value in reading.peers.items():
        peer, _, metric = name.partition(":")
        labels = f'{own},peer="{peer}",metric="{metric.translate(ESCAPED)}"'
        yield f"paritas_rosetta{{{labels}}} {shown(value)}"


def _refit_lines(refit: RefitReading, own: str) -> Iterator[str]:
    yield "# HELP paritas_refit_tests_total tests of a weights version on a replica that began"
    yield "# TYPE paritas_refit_tests_total counter"
    yield f"paritas_refit_tests_total{{{own}}} {refit.started}"
    yield "# HELP paritas_refit_held weights versions and replicas under test"
    yield "# TYPE paritas_refit_held gauge"
    yield f"paritas_refit_held{{{own}}} {refit.held}"
    yield "# HELP paritas_refit_versions_total tests that ended, by state and reason"
    yield "# TYPE paritas_refit_versions_total counter"
    for (state, reason), n in sorted(refit.versions.items()):
        yield f'paritas_refit_versions_total{{{own},state="{state}",reason="{reason}"}} {n}'
    yield "# HELP paritas_refit_sequences_total sequences with a weights version, by what became of them"
    yield "# TYPE paritas_refit_sequences_total counter"
    for state, n in sorted(refit.sequences.items()):
        yield f'paritas_refit_sequences_total{{{own},state="{state}"}} {n}'


def instrument_name(peer_metric: str) -> str:
    """Return the OpenTelemetry name of a peer's metric: ``paritas.rosetta.PEER.METRIC``.

    Examples
    --------
    >>> instrument_name("verl:rollout_corr/kl"), instrument_name("prime_rl:mismatch_kl/my env/mean")
    ('paritas.rosetta.verl.rollout_corr/kl', 'paritas.rosetta.prime_rl.mismatch_kl/my_env/mean')
    """
    peer, _, metric = peer_metric.partition(":")
    return NOT_AN_INSTRUMENT.sub("_", f"paritas.rosetta.{peer}.{metric}")[:LONGEST_NAME]


def otlp_metrics(reading: Reading, *, start_ns: int, now_ns: int) -> ExportMetricsServiceRequest:
    """Return an OTLP request: a gauge a peer metric, counters of sequences and tokens.

    What is not finite is left out: many backends refuse a whole request for it.
    """
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend([_label("service.name", "paritas"), *_own(reading)])
    scope = resource.scope_metrics.add()
    scope.scope.name, scope.scope.version = "paritas", __version__
    scope.metrics.extend(_counters(reading, start_ns, now_ns))
    known = {"paritas.rosetta.sequences": float(reading.peer_sequences)}
    if reading.refit is not None:
        known["paritas.refit.held"] = float(reading.refit.held)
    known |= {instrument_name(name): value for name, value in reading.peers.items()}
    for name, value in known.items():
        if isfinite(value):
            metric = scope.metrics.add(name=name, unit="1")
            metric.gauge.data_points.add(as_double=value, time_unix_nano=now_ns)
    return request


def _own(reading: Reading) -> list[KeyValue]:
    return [_label("paritas.contract", reading.contract)]


def _counters(reading: Reading, start_ns: int, now_ns: int) -> Iterator[Metric]:
    sequences = [({"paritas.outcome": reason}, n) for reason, n in sorted(reading.sequences.items())]
    tokens = [
        ({"paritas.role": role, "paritas.token.status": status}, n)
        for (role, status), n in sorted(reading.tokens.items())
    ]
    told = (
        ("paritas.detect.sequences", "{sequence}", sequences),
        ("paritas.detect.tokens", "{token}", tokens),
        *_refit_counters(reading.refit),
    )
    for name, unit, points in told:
        metric = Metric(name=name, unit=unit)
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        for labels, n in points:
            point = NumberDataPoint(as_int=n, start_time_unix_nano=start_ns, time_unix_nano=now_ns)
            point.attributes.extend(_label(*pair) for pair in labels.items())
            metric.sum.data_points.append(point)
        yield metric


def _refit_counters(
    refit: RefitReading | None,
) -> Iterator[tuple[str, str, list[tuple[dict[str, str], int]]]]:
    """Name, unit and points of the refit gate's counters; none without a gate."""
    if refit is None:
        return
    ended = [
        ({"paritas.refit.state": state, "paritas.refit.reason": reason}, n)
        for (state, reason), n in sorted(refit.versions.items())
    ]
    became = [({"paritas.refit.state": state}, n) for state, n in sorted(refit.sequences.items())]
    yield "paritas.refit.tests", "{test}", [({}, refit.started)]
    yield "paritas.refit.versions", "{test}", ended
    yield "paritas.refit.sequences", "{sequence}", became


def _label(name: str, value: str) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(string_value=value))
