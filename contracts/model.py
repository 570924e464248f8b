"""The contract as records: what the loader returns and everybody else reads.

C = (N, S, R, O, Π): numerical, statistical, runtime and observability clauses, and the
escalation policy.  Durations are seconds (`*_s`), limits are in the statistic's own unit
(`contracts.catalogue`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from paritas.records import Action, Role, Severity, State

__all__ = [
    "Budget",
    "Clause",
    "Compare",
    "Contract",
    "ContractTest",
    "Escalation",
    "Estimator",
    "Expectation",
    "FalseAlarms",
    "Family",
    "Floor",
    "Gate",
    "Level",
    "Match",
    "Operator",
    "Place",
    "Promotion",
    "Refit",
    "Requirement",
    "Slice",
    "Stage",
    "When",
]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands in its file; prints as ``file:line:column``, both from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Family(StrEnum):
    """The four clause families N, S, R, O."""

    NUMERICAL = "numerical"
    STATISTICAL = "statistical"
    RUNTIME = "runtime"
    OBSERVABILITY = "observability"


class Stage(StrEnum):
    """The promotion stages; `full` is production."""

    OFFLINE_CI = "offline_ci"
    SHADOW = "shadow"
    CANARY = "canary"
    FULL = "full"


class Operator(StrEnum):
    """Selector operators, Kubernetes style plus comparisons."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    GTE = "Gte"
    LT = "Lt"
    LTE = "Lte"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One selector: `field` `op` `values` (strings for labels, numbers for comparisons)."""

    field: str
    op: Operator
    values: tuple[str | float, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """All requirements must hold: `labels` on the trace, `tokens` on each token.

    Token fields: ``position`` (0-based in the response), ``phase`` (prefill: the first
    token, decode: the rest), ``turn``, ``logprob`` (inference kernel, nats).
    """

    labels: tuple[Requirement, ...] = ()
    tokens: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Slice:
    """A named part of the traffic.

    Without `by`, one slice called `name`.  With `by`, one slice per observed value called
    ``key=value`` (joined by commas for several keys), at most `at_most` of them; the rest
    falls into ``name=other``.
    """

    name: str
    by: tuple[str, ...] = ()
    match: Match | None = None
    at_most: int = 64
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Floor:
    """A limit relative to a measured A/A floor: ``times`` × the floor called `name`.

    `measured` is that floor, in the statistic's unit; None until a floor file is given, and then
    the ceiling alone binds (docs/floors.md).
    """

    name: str
    times: float
    measured: float | None = None


@dataclass(frozen=True, slots=True)
class Clause:
    """One limit on one statistic.

    Attributes
    ----------
    at_most, at_least : float or None
        Exactly one is set, except for state statistics (``kernel_identity``) that take none.
    quantile : float or None
        ``q``: the limit binds the q-quantile, i.e. the share above it may be 1 − q.
    above : float or None
        Ratio threshold of a tail statistic: counts tokens with |ell| > ln(above).
    cap, clip : float or None
        Truncation C of the ratio, clip range c, where the statistic takes one.
    clip_high : float or None
        Upper end of an asymmetric clip range [1 - clip, 1 + clip_high]; None means `clip`.
    beta : float or None
        Factor of DPO's implicit reward.
    temperature, smoothing : float or None
        Recalibration applied to a confidence: its logit over `temperature`, then (1 - smoothing) of it.
    reward_range : pair of float or None
        Lowest and highest reward; None means 0 and 1.
    within_s : float or None
        Deadline of an observability statistic, seconds.
    window_s, window_steps : float or None, int or None
        The unit of a runtime clause: all units that start in so many seconds, or so many of them; None
        makes each a unit of its own, which is right only where they are independent.
    baseline : int or None
        Windows from which a shape statistic learns the usual distribution.
    agents : tuple of str
        Agents that must report; those not named are watched from their first record on.
    slices : tuple of str
        Names of declared slices; empty means every declared slice.
    stages : tuple of Stage
        Where the clause binds; empty means everywhere.
    source : str
        Where the limit comes from (presets say it for each).
    """

    id: str
    family: Family
    statistic: str
    at_most: float | None = None
    at_least: float | None = None
    floor: Floor | None = None
    quantile: float | None = None
    above: float | None = None
    cap: float | None = None
    clip: float | None = None
    clip_high: float | None = None
    beta: float | None = None
    temperature: float | None = None
    smoothing: float | None = None
    reward_range: tuple[float, float] | None = None
    within_s: float | None = None
    window_s: float | None = None
    window_steps: int | None = None
    baseline: int | None = None
    agents: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()
    derived: bool = False
    source: str = ""
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """What may be paired: `weights_within` versions apart (0 = equal), by unit, in time.

    `sampled_at_least` is the least probability with which a sequence is recorded; None: all are.
    `against` is the kernel that the training kernel is compared with: the inference kernel, or that of a
    reference model.
    """

    weights_within: int = 0
    unit: str = "sequence"
    pair_within_s: float = 600.0
    sampled_at_least: float | None = None
    against: Role = Role.INFERENCE


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """Expected false alarms `at_most` per `per_s` seconds, over all clauses and slices together."""

    at_most: float = 0.05
    per_s: float = 604_800.0


@dataclass(frozen=True, slots=True)
class Estimator:
    """Policy-gradient estimator whose bias is budgeted: none, tis, mis, clip, ppo_min."""

    kind: str = "tis"
    cap: float = 2.0
    low: float | None = None
    clip: float | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """Declare high, derive low (docs/mathematics.md F); None means not declared.

    `score_norm` is the declared bound G of the norm of grad log p, which turns a bias in units of
    A_max G into one of the gradient.
    """

    reward_drift: float | None = None
    reward_range: tuple[float, float] | None = None
    sequence_tv: float | None = None
    gradient_bias: float | None = None
    token_tv: float | None = None
    max_tokens: int | None = None
    mean_tokens: float | None = None
    temperature: float = 1.0
    estimator: Estimator | None = None
    score_norm: float | None = None
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class When:
    """Which verdicts a rule answers: empty tuples match everything."""

    family: tuple[Family, ...] = ()
    clause: tuple[str, ...] = ()
    slice: tuple[str, ...] = ()
    state: tuple[State, ...] = (State.VIOLATED,)


@dataclass(frozen=True, slots=True)
class Level:
    """One escalation level: reached `after_s` seconds of firing."""

    severity: Severity
    actions: tuple[Action, ...] = ()
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Escalation:
    """One rule of the policy Π."""

    when: When
    levels: tuple[Level, ...]
    for_s: float = 0.0
    keep_firing_for_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Gate:
    """One promotion gate; unused fields keep their defaults."""

    stage: Stage
    alpha: float = 0.01
    suite: str = ""
    share: float | None = None
    steps: tuple[float, ...] = ()
    bake_s: float | None = None
    deadline_s: float | None = None
    at_least_sequences: int = 0
    demote_on: tuple[State, ...] = ()


@dataclass(frozen=True, slots=True)
class Promotion:
    """The gates in order; stages that are not declared are not gated."""

    gates: tuple[Gate, ...] = ()


@dataclass(frozen=True, slots=True)
class Refit:
    """What a weights version must show on each replica before its sequences count (docs/repair.md).

    Attributes
    ----------
    tokens : int
        The first so many tokens are tested, and do not count themselves.
    alpha : float
        Probability that any healthy version is ever rejected on any replica.
    """

    tokens: int
    alpha: float = 0.01


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a contract test expects of a clause in a slice, within so many sequences."""

    clause: str
    slice: str
    state: State
    at_most_sequences: int | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class ContractTest:
    """A test a contract carries: recorded input, expected verdicts."""

    name: str
    serve: str
    train: str
    expect: tuple[Expectation, ...]
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Contract:
    """A whole kernel contract, defaults filled in and preset applied.

    `kernels` maps a role to the identity fields it must show; `digest` is BLAKE2b-128 over
    the canonical JSON of everything else.
    """

    name: str
    version: str
    owner: str
    policy: str
    kernels: Mapping[Role, Mapping[str, object]]
    compare: Compare
    slices: tuple[Slice, ...]
    false_alarms: FalseAlarms
    budget: Budget | None
    clauses: tuple[Clause, ...]
    escalation: tuple[Escalation, ...]
    on_controller_loss: str
    promotion: Promotion
    tests: tuple[ContractTest, ...]
    preset: str = ""
    file: str = field(default="", compare=False)
    digest: str = ""
    refit: Refit | None = None

    def clause(self, clause_id: str) -> Clause:
        """Return the clause with that id; KeyError if there is none."""
        return next(c for c in self.clauses if c.id == clause_id)
