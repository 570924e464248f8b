"""The records that cross a room's edge: frozen, checked once, numpy columns inside.

Conventions: log-probabilities are natural (nats); times are Unix nanoseconds;
`ell = log p_train - log q_inference` of one sampled token, `w = exp(ell)`.
"""

from paritas.records.escalation import Action, Escalation, Phase, Severity
from paritas.records.kernel import KernelIdentity, LogprobSemantics, Role, Sampling
from paritas.records.process import GpuReading, GpuSample, StepTime
from paritas.records.trace import Timings, TokenStatus, TokenTrace, TopK, trace_id_of
from paritas.records.verdict import Finding, PairReason, Reason, State, Verdict

__all__ = [
    "Action",
    "Escalation",
    "Finding",
    "GpuReading",
    "GpuSample",
    "KernelIdentity",
    "LogprobSemantics",
    "PairReason",
    "Phase",
    "Reason",
    "Role",
    "Sampling",
    "Severity",
    "State",
    "StepTime",
    "Timings",
    "TokenStatus",
    "TokenTrace",
    "TopK",
    "Verdict",
    "trace_id_of",
]

# Which file holds a record is nobody's business: snapshots and pickles name this package, as they always did.
for _record in (
    *(Action, Escalation, Phase, Severity),
    *(KernelIdentity, LogprobSemantics, Role, Sampling),
    *(GpuReading, GpuSample, StepTime),
    *(Timings, TokenStatus, TokenTrace, TopK),
    *(Finding, PairReason, Reason, State, Verdict),
):
    _record.__module__ = __name__
