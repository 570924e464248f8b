"""What a promotion is: where it stands, what moved it, and why it does not move."""

from dataclasses import dataclass, field
from enum import StrEnum

from paritas.contracts.model import Stage

__all__ = [
    "Block",
    "Blocked",
    "Candidate",
    "Cause",
    "Gate",
    "GateVerdict",
    "Promotion",
    "Standing",
    "Transition",
]


class Standing(StrEnum):
    """Where a promotion stands; the last three are over."""

    RUNNING = "running"
    PAUSED = "paused"  # undecided at its deadline: a person advances or aborts
    FULL = "full"
    ROLLED_BACK = "rolled_back"
    DEMOTED = "demoted"  # was full, and no longer conforms
    ABORTED = "aborted"

    @property
    def is_over(self) -> bool:
        """Whether nothing can move it any more."""
        return self in (Standing.ROLLED_BACK, Standing.DEMOTED, Standing.ABORTED)


class GateVerdict(StrEnum):
    """The answer of a gate; rollout controllers read these three words."""

    PASS = "PASS"  # noqa: S105 -- no password
    FAIL = "FAIL"
    INSUFFICIENT = "INSUFFICIENT"


class Cause(StrEnum):
    """Why a transition happened."""

    STARTED = "started"
    GATE_PASSED = "gate_passed"
    CLAUSE_VIOLATED = "clause_violated"  # rolled back
    DEADLINE_PASSED = "deadline_passed"  # paused
    RESUMED = "resumed"  # by a person, as another attempt
    CONTRACT_TIGHTENED = "contract_tightened"  # from the first gate again, under the new contract
    DECLARED_STATE = "declared_state"  # demoted: a clause is in a state of `demote_on`
    ABORTED = "aborted"


class Block(StrEnum):
    """Why a promotion does not move; every refusal has one."""

    VIOLATED_CLAUSE = "violated_clause"
    MISSING_DATA = "missing_data"
    UNDECIDED = "undecided"
    TOO_FEW_SEQUENCES = "too_few_sequences"
    BAKING = "baking"
    STALE_WINDOW = "stale_window"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    MALFORMED = "malformed"
    FORGED = "forged"
    REPLAYED = "replayed"
    ANOTHER_PROMOTION = "another_promotion"
    ANOTHER_CONTRACT = "another_contract"
    CHANGED_CONTRACT = "changed_contract"
    ANOTHER_CANDIDATE = "another_candidate"
    ANOTHER_STAGE = "another_stage"
    ANOTHER_ATTEMPT = "another_attempt"
    ALPHA_EXCEEDED = "alpha_exceeded"
    LOOSENED_CONTRACT = "loosened_contract"
    HELD = "held"
    WAITING = "waiting"  # nothing to decide: evidence is what moves it
    PAUSED = "paused"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Blocked:
    """One refusal: the reason, and the text a person reads."""

    block: Block
    text: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is promoted: digests of the two kernels, the fallback and the weights; empty where not told.

    Attributes
    ----------
    inference, train, reference : str
        `KernelIdentity.digest`.
    weights : str
        Digest of the weights, or their version where no digest is known.
    """

    inference: str
    train: str = ""
    reference: str = ""
    weights: str = ""

    def differing(self, seen: "Candidate") -> tuple[str, ...]:
        """Return in which parts `seen` is another one; a part that is empty here binds nothing.

        Examples
        --------
        >>> Candidate("ab", weights="s9").differing(Candidate("ab", train="cd", weights="s8"))
        ('weights',)
        """
        names = ("inference", "train", "reference", "weights")
        return tuple(n for n in names if getattr(self, n) not in ("", getattr(seen, n)))


@dataclass(frozen=True, slots=True)
class Gate:
    """One place of the way: a stage and, in the canary, a step from 0."""

    stage: Stage
    step: int = 0

    def __str__(self) -> str:
        return f"{self.stage} step {self.step + 1}" if self.stage is Stage.CANARY else str(self.stage)


@dataclass(frozen=True, slots=True)
class Promotion:
    """The whole state of one promotion.

    Attributes
    ----------
    promotion_id : str
    contract, contract_version, contract_digest : str
        The contract it is bound to.
    candidate : Candidate
    candidate_digest : str
        Digest over the candidate's digests.
    standing : Standing
    gate : Gate
        Where it is, or was when it ended.
    attempt : int
        Which try of this candidate it is, from 1; each one spends less of alpha.
    nonce : str
        What evidence for this gate must carry; new at every gate and attempt.
    stage_ns, gate_ns : int
        Unix ns at which the stage (deadline) and the gate (bake) began.
    window_from_ns, window_sequences : int
        Window of the latest undecided evidence at this gate; -1 and 0 before there is any.
    transitions : int
        How many there were.
    used : tuple of str
        Digests of the envelopes that moved it: each moves it once.
    seed : str
        What nonces are derived from; never told.
    """

    promotion_id: str
    contract: str
    contract_version: str
    contract_digest: str
    candidate: Candidate
    candidate_digest: str
    standing: Standing
    gate: Gate
    attempt: int
    nonce: str
    stage_ns: int
    gate_ns: int
    window_from_ns: int = -1
    window_sequences: int = 0
    transitions: int = 0
    used: tuple[str, ...] = ()
    seed: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Transition:
    """One move of one promotion, with what it was decided under.

    Attributes
    ----------
    number : int
        Within the promotion, from 1.
    envelope : str
        Digest of the evidence that caused it; empty where a person or the time did.
    """

    promotion_id: str
    number: int
    at_ns: int
    cause: Cause
    before: Standing
    after: Standing
    gate_before: Gate
    gate_after: Gate
    attempt: int
    contract_digest: str
    candidate_digest: str
    envelope: str = ""
    actor: str = ""
    text: str = ""
