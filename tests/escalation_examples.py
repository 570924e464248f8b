"""Escalations by hand and at random, and the bounded waits of the controller's tests."""

import json
import threading
from contextlib import contextmanager
from dataclasses import asdict

import grpc
from hypothesis import strategies as st

from paritas.controller.admission import admit
from paritas.controller.config import Limits, ServerConfig
from paritas.controller.convert import escalation_to
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.proto.v1 import escalation_pb2_grpc as pb_grpc
from paritas.records import Action, Escalation, Finding, Phase, Reason, Severity, State, Verdict

DEADLINE_S = 90  # a wait that takes this long has failed; none is expected to
HOUR_NS = 3_600_000_000_000


def verdict(**changes):
    values = {
        "clause": "token-tv",
        "slice": "all",
        "state": State.VIOLATED,
        "reason": Reason.REFUTED,
        "statistic": "tv",
        "family": "numerical",
        "estimate": 0.031,
        "lower": 0.024,
        "upper": 0.04,
        "limit": 0.02,
        "log10_e": 4.5,
        "log10_pass": -2.0,
        "threshold_log10": 3.1,
        "units": 800,
        "tokens": 400_000,
    }
    return Verdict(**{**values, **changes})


def escalation(number=1, **changes):
    """Return transition `number` of an incident; event ids follow from incident and number."""
    incident_id = changes.get("incident_id", "incident-1")
    values = {
        "event_id": f"{incident_id}/{number}",
        "incident_id": incident_id,
        "transition": number,
        "contract": "qwen3-8b-rollout",
        "contract_version": "1.2.0",
        "policy": "qwen3-8b",
        "clause": "token-tv",
        "slice": "all",
        "weights_version": "17",
        "before": Phase.PENDING,
        "after": Phase.FIRING,
        "severity": Severity.WARNING,
        "level": 0,
        "verdict": verdict(),
        "diagnosis": (Finding("stale_replica", "all", 0.8, {"replica": "r2", "lag": 1.0}, "drain r2"),),
        "actions": (Action("reroute", {"to": "reference", "share": 1.0}),),
        "trace_ids": ("ab" * 16,),
        "issued_ns": 1_700_000_000_000_000_000,
        "valid_until_ns": 1_700_000_600_000_000_000,
        "summary": "token-tv of slice all is violated",
    }
    return Escalation(**{**values, **changes})


def drafts(*events):
    """Escalations as the log takes them."""
    return admit([escalation_to(event) for event in events], limits=Limits())


def plain(record):
    """Return a record as text that is equal for equal values: NaN too, and -0.0 is not 0.0."""
    return json.dumps(asdict(record), sort_keys=True)


INT64 = st.integers(-(2**63), 2**63 - 1)
UINT63 = st.integers(0, 2**63 - 1)
TEXT = st.text(max_size=12)
NUMBERS = st.floats()
LEAVES = st.none() | st.booleans() | INT64 | NUMBERS | TEXT
VALUES = st.recursive(
    LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXT, v, max_size=3), max_leaves=6
)
VERDICTS = st.builds(
    Verdict,
    clause=TEXT,
    slice=TEXT,
    state=st.sampled_from(State),
    reason=st.sampled_from(Reason),
    statistic=TEXT,
    family=TEXT,
    estimate=NUMBERS,
    lower=NUMBERS,
    upper=NUMBERS,
    limit=NUMBERS,
    log10_e=NUMBERS,
    log10_pass=NUMBERS,
    threshold_log10=NUMBERS,
    units=UINT63,
    tokens=UINT63,
    needed_units=UINT63,
    unit=TEXT,
)
FINDINGS = st.builds(
    Finding,
    cause=TEXT,
    slice=TEXT,
    confidence=NUMBERS,
    facts=st.dictionaries(TEXT, NUMBERS | TEXT, max_size=3),
    advice=TEXT,
)
ACTIONS = st.builds(Action, kind=TEXT, arguments=st.dictionaries(TEXT, VALUES, max_size=3))
ESCALATIONS = st.builds(
    Escalation,
    event_id=TEXT,
    incident_id=TEXT,
    transition=UINT63,
    contract=TEXT,
    contract_version=TEXT,
    policy=TEXT,
    clause=TEXT,
    slice=TEXT,
    weights_version=TEXT,
    before=st.sampled_from(Phase),
    after=st.sampled_from(Phase),
    severity=st.sampled_from(Severity),
    level=st.integers(0, 2**32 - 1),
    verdict=VERDICTS,
    diagnosis=st.lists(FINDINGS, max_size=2).map(tuple),
    actions=st.lists(ACTIONS, max_size=2).map(tuple),
    trace_ids=st.lists(TEXT, max_size=2).map(tuple),
    issued_ns=INT64,
    valid_until_ns=INT64,
    summary=TEXT,
)


def config(folder, **changes):
    """Return a server on a free port with its log in `folder` and quick heartbeats."""
    values = {"database": folder / "escalations.db", "listen": "127.0.0.1:0", "heartbeat_s": 0.05}
    return ServerConfig(**{**values, **changes})


@contextmanager
def deadline(close, *, seconds=DEADLINE_S):
    """Call `close` when the block takes too long, so that a hang becomes a failure."""
    timer = threading.Timer(seconds, close)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def take(subscription, count, *, keep=lambda delivery: True):
    """Return the next `count` deliveries that `keep` lets through."""
    taken = []
    with deadline(subscription.close):
        while len(taken) < count:
            delivery = next(subscription, None)
            assert delivery is not None, f"only {len(taken)} of {count} deliveries came"
            if keep(delivery):
                taken.append(delivery)
    return taken


@contextmanager
def stub(target):
    with grpc.insecure_channel(target) as channel:
        yield pb_grpc.EscalationServiceStub(channel)


class RawStream:
    """A Subscribe stream message by message, for what the client hides."""

    def __init__(self, service, first, *more):
        self._queue = [first, *more]
        self._wake = threading.Condition()
        self.call = service.Subscribe(self._messages(), timeout=DEADLINE_S)

    def _messages(self):
        while True:
            with self._wake:
                while not self._queue:
                    self._wake.wait()
                message = self._queue.pop(0)
            if message is None:
                return
            yield message

    def send(self, **body):
        with self._wake:
            self._queue.append(pb.ClientMsg(**body) if body else None)
            self._wake.notify()

    def next(self, kind=None):
        """Return the body of the next message, or of the next one of `kind`."""
        for message in self.call:
            body = message.WhichOneof("body")
            if kind in (None, body):
                return getattr(message, body)
        raise AssertionError(f"the stream ended without {kind}")

    def events(self, count):
        return [self.next("event") for _ in range(count)]

    def end(self):
        """Read to the end; return the rest and the error, None for a clean end."""
        rest = []
        try:
            rest.extend(self.call)
        except grpc.RpcError as error:
            return rest, error
        return rest, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call.cancel()
        self.send()


def start(subscriber_id="raw", **changes):
    """Return the first message of a raw stream; it starts now unless told otherwise."""
    points = {"now", "token", "snapshot_then_follow", "resume"}
    point = {} if points & set(changes) else {"now": pb.ClientMsg.Now()}
    values = {"subscriber_id": subscriber_id, "protocol_version": 1, **point, **changes}
    return pb.ClientMsg(start=pb.ClientMsg.Start(**values))


SNAPSHOT = pb.ClientMsg.SnapshotThenFollow()
RESUME = pb.ClientMsg.Resume()
