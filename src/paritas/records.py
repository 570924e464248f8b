"""The records that cross a room's edge: frozen, checked once, numpy columns inside.

Conventions: log-probabilities are natural (nats); times are Unix nanoseconds;
`ell = log p_train - log q_inference` of one sampled token, `w = exp(ell)`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from paritas.exact import ExactDrift

__all__ = [
    "Action",
    "Escalation",
    "Finding",
    "KernelIdentity",
    "LogprobSemantics",
    "PairReason",
    "Phase",
    "Reason",
    "Role",
    "Sampling",
    "Severity",
    "State",
    "Timings",
    "TokenStatus",
    "TokenTrace",
    "TopK",
    "Verdict",
    "trace_id_of",
]

NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Role(StrEnum):
    """Which of the two programs spoke; `reference` is where routing falls back to."""

    TRAIN = "train"
    INFERENCE = "inference"
    REFERENCE = "reference"


class LogprobSemantics(StrEnum):
    """What law a logged log-probability belongs to.

    `raw`: softmax of the untouched logits.  `temperature_only`: after division by the
    temperature.  `processed`: after temperature, truncation and every other processor,
    that is, the law the token was drawn from.
    """

    RAW = "raw"
    TEMPERATURE_ONLY = "temperature_only"
    PROCESSED = "processed"
    UNKNOWN = "unknown"


class TokenStatus(IntEnum):
    """Where one token ends; each token ends in exactly one, and the counts sum to the total."""

    VALID = 0
    PROMPT = 1
    MASKED = 2  # forced or tool token, or masked from the loss
    MISSING = 3  # no log-probability was reported
    SENTINEL = 4  # a stand-in such as -9999
    NONFINITE = 5  # NaN or infinity
    POSITIVE = 6  # a log-probability above zero


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens were drawn, and what the logged numbers mean.

    Attributes
    ----------
    temperature, top_p, top_k, min_p : float or None
        None means not reported, which is not the same as the neutral value.
    processors : str
        Digest of other logits processors (penalties, bias, grammar); empty when none.
    semantics : LogprobSemantics
        Law of the logged log-probabilities.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    processors: str = ""
    semantics: LogprobSemantics = LogprobSemantics.UNKNOWN


@dataclass(frozen=True, slots=True)
class KernelIdentity:
    """Which program evaluated the policy; empty strings and None mean not reported."""

    role: Role
    engine: str = ""
    engine_version: str = ""
    dtype: str = ""
    quantization: str = ""
    kv_cache_dtype: str = ""
    attention_backend: str = ""
    lm_head_dtype: str = ""
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    batch_invariant: bool | None = None
    cuda_graphs: bool | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    speculative: str = ""
    gpu: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """BLAKE2b-128 over the canonical JSON of all fields, 32 lowercase hex characters."""
        text = json.dumps(self.fields(), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def fields(self) -> dict[str, object]:
        """Return every reported field; what was not reported is left out."""
        known = {name: getattr(self, name) for name in self.__slots__ if name != "extra"}
        told = {name: value for name, value in known.items() if value not in ("", None)}
        return {**told, **{f"extra.{k}": v for k, v in sorted(self.extra.items())}}


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of one request in seconds; None means not reported."""

    queue_s: float | None = None
    ttft_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TopK:
    """The k most likely tokens of one kernel at each position, best first.

    Attributes
    ----------
    token : shape (n, k), uint64
        Token identities as in `TokenTrace.token`; 0 where the list is shorter.
    logprob : shape (n, k), float32, nats
        NaN where the list is shorter.
    """

    token: NDArray[np.uint64]
    logprob: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class TokenTrace:
    """One kernel's view of one sequence segment.

    Attributes
    ----------
    run_id, sequence_id : str
        Together the identity of the sequence; both kernels use the same.
    group_id : str
        Prompt group (rollouts that share a prompt); empty when there is none.
    weights_version : str
        Version of the weights this kernel held; empty when not reported.
    attributes : mapping
        Slice dimensions (``slice``, ``replica``, ``environment`` …).
    start : int
        Position in the response of the first token of this segment.
    event_ns : int
        Unix ns at which the sequence was started.
    logprob : shape (n,), float32, nats
        As reported; only entries whose status is VALID may be computed with.
    token : shape (n,), uint64
        Keyed hash of the token id (`paritas.tokens`), or the raw id where opted in.
    status : shape (n,), uint8
        `TokenStatus` of each token.
    top : TopK or None
        Top-k list of this kernel; must not depend on the sampled token.
    itl_s : shape (n,), float32, seconds, or None
        Inter-token latencies; NaN for the first token.
    final : bool
        Whether this segment ends the sequence.
    traceparent : str
        W3C trace context of the engine's own spans of this sequence, to link to; empty when there is none.
    exact : ExactDrift or None
        Whole distributions of both kernels compared, where this kernel's scorer held both (offline only).
    """

    run_id: str
    sequence_id: str
    kernel: KernelIdentity
    logprob: NDArray[np.float32]
    token: NDArray[np.uint64]
    status: NDArray[np.uint8]
    group_id: str = ""
    weights_version: str = ""
    weights_digest: str = ""
    sampling: Sampling = Sampling()
    attributes: Mapping[str, str] = field(default_factory=dict)
    start: int = 0
    event_ns: int = 0
    top: TopK | None = None
    timings: Timings = Timings()
    itl_s: NDArray[np.float32] | None = None
    final: bool = True
    traceparent: str = ""
    exact: ExactDrift | None = None

    def __post_init__(self) -> None:
        """Check once, at the edge: columns are one-dimensional and aligned."""
        shapes = {self.logprob.shape, self.token.shape, self.status.shape}
        if len(shapes) != 1 or self.logprob.ndim != 1:
            msg = f"columns of {self.sequence_id!r} must be 1-d and aligned, got {sorted(map(str, shapes))}"
            raise ValueError(msg)

    def __len__(self) -> int:
        return int(self.logprob.shape[0])

    @property
    def trace_id(self) -> str:
        """BLAKE2b-128 of run and sequence, 32 lowercase hex characters: one trace a sequence."""
        return trace_id_of(self.run_id, self.sequence_id)

    def counts(self) -> dict[TokenStatus, int]:
        """Tokens by status; the values sum to ``len(self)``."""
        tally = np.bincount(self.status, minlength=len(TokenStatus))
        return {status: int(tally[status]) for status in TokenStatus}


def trace_id_of(run_id: str, sequence_id: str) -> str:
    """Return the trace id both kernels' spans of one sequence share.

    Examples
    --------
    >>> len(trace_id_of("run", "seq-1"))
    32
    >>> trace_id_of("a", "bc") == trace_id_of("ab", "c")
    False
    """
    text = f"{len(run_id)}:{run_id}{sequence_id}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class PairReason(StrEnum):
    """How the search for a trace's partner ended; all but `paired` are losses that are shown."""

    PAIRED = "paired"
    UNMATCHED = "unmatched"
    LATE = "late"
    DUPLICATE = "duplicate"
    WEIGHTS_MISMATCH = "weights_mismatch"
    SEMANTICS_MISMATCH = "semantics_mismatch"
    LENGTH_MISMATCH = "length_mismatch"
    TOKEN_MISMATCH = "token_mismatch"  # noqa: S105 -- tokens of a vocabulary, no password


class State(StrEnum):
    """What a clause says of a slice; `undecided` and `no_data` are never a pass."""

    CONFORMING = "conforming"
    VIOLATED = "violated"
    UNDECIDED = "undecided"
    NO_DATA = "no_data"


class Reason(StrEnum):
    """Why a verdict is what it is."""

    CERTIFIED = "certified"  # the e-process against "limit exceeded" passed 1/alpha
    REFUTED = "refuted"  # the e-process against "limit kept" passed 1/alpha
    COUNTEREXAMPLE = "counterexample"  # one observation contradicts a limit of zero or a supremum
    MATCHED = "matched"  # observed identity equals the declared one
    DIFFERS = "differs"  # observed identity differs from the declared one
    NEEDS_MORE_UNITS = "needs_more_units"
    CERTIFICATE_LOST = (
        "certificate_lost"  # a derived limit is exceeded: it proves nothing any more, and breaks nothing
    )
    FALSIFIABLE_ONLY = "falsifiable_only"  # nothing can certify this statistic online
    COVERAGE = "coverage"  # too much is missing for any pass
    GAP = "gap"  # records were lost on the way: what they said nobody knows
    NO_UNITS = "no_units"
    NOT_REPORTED = "not_reported"  # the input lacks what the statistic needs
    NOT_APPLICABLE = "not_applicable"  # the clause belongs to another stage


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one clause says of one slice.

    Attributes
    ----------
    estimate, lower, upper : float
        Mean over units and its always-valid limits (docs/mathematics.md D16), in the statistic's unit; NaN without data.
    limit : float
        The contract's limit in the same unit.
    log10_e : float
        log10 of the e-value against "the limit is kept" (violations) at its highest.
    log10_pass : float
        log10 of the e-value against "the limit is exceeded" (passes).
    threshold_log10 : float
        log10 of 1/alpha of this clause and slice.
    units, tokens : int
        Sequences (or groups) and valid tokens behind the verdict.
    needed_units : int
        Estimate of how many units a decision takes at this rate; 0 when decided or unknown.
    """

    clause: str
    slice: str
    state: State
    reason: Reason
    statistic: str
    family: str
    estimate: float
    lower: float
    upper: float
    limit: float
    log10_e: float
    log10_pass: float
    threshold_log10: float
    units: int
    tokens: int
    needed_units: int = 0
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One named cause in one slice.

    Attributes
    ----------
    cause : str
        Name from the closed list in `detectors/diagnosis`.
    confidence : float
        Between 0 and 1.
    facts : mapping of str to float or str
        The measured numbers that speak for it.
    advice : str
        What to do first.
    """

    cause: str
    slice: str
    confidence: float
    facts: Mapping[str, float | str]
    advice: str


class Severity(StrEnum):
    """How urgent an escalation is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Phase(StrEnum):
    """Where an incident stands."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    RESOLVED = "resolved"
    SUPERSEDED = "superseded"
    NO_DATA = "no_data"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing the contract asks for, such as ``reroute`` with ``{"to": "reference"}``."""

    kind: str
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Escalation:
    """One transition of one incident, as a subscriber receives it.

    Attributes
    ----------
    event_id : str
        Identity for deduplication: equal inputs give equal ids.
    incident_id : str
        Identity of the incident; constant over its transitions.
    transition : int
        Number of this transition within the incident, from 1.
    level : int
        Escalation level, from 0.
    trace_ids : tuple of str
        Exemplar traces, worst first.
    issued_ns, valid_until_ns : int
        Unix ns; after `valid_until_ns` an unrefreshed event no longer asks for anything.
    """

    event_id: str
    incident_id: str
    transition: int
    contract: str
    contract_version: str
    policy: str
    clause: str
    slice: str
    weights_version: str
    before: Phase
    after: Phase
    severity: Severity
    level: int
    verdict: Verdict
    diagnosis: tuple[Finding, ...]
    actions: tuple[Action, ...]
    trace_ids: tuple[str, ...]
    issued_ns: int
    valid_until_ns: int
    summary: str

    def as_dict(self) -> dict[str, object]:
        """Return plain JSON-ready values."""
        return asdict(self)
