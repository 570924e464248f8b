"""Attempts: trying a candidate again and again spends one error probability, not one each time.

Attempt k of a candidate is judged at ``alpha 6 / (pi^2 k^2)``.  The terms sum to alpha, so the
probability that a candidate which does not conform ever passes is at most alpha, however often it is tried
(a union bound over attempts; inside one attempt Ville's inequality covers every moment).
"""

from dataclasses import dataclass
from math import pi

from paritas.contracts.model import Contract, Gate, Stage

__all__ = ["ALPHA", "NO_GATE", "GateLevel", "alpha_of_attempt", "level_of"]

ALPHA = 0.01  # of a gate that does not say, and of a judgement that is no gate


def alpha_of_attempt(alpha: float, attempt: int) -> float:
    """Return the error probability that attempt number `attempt`, from 1, may spend.

    Examples
    --------
    >>> [round(alpha_of_attempt(0.01, k), 6) for k in (1, 2, 10)]
    [0.006079, 0.00152, 6.1e-05]
    """
    return alpha * 6.0 / (pi * attempt) ** 2


@dataclass(frozen=True, slots=True)
class GateLevel:
    """At what level a gate judges.

    Attributes
    ----------
    stage : Stage
    alpha : float
        Error probability over all attempts of one candidate.
    attempt : int or None
        Number of this one; None for a judgement that no gate asks for, and which is counted nowhere.
    """

    stage: Stage
    alpha: float = ALPHA
    attempt: int | None = None

    @property
    def pass_alpha(self) -> float:
        """Error probability of a pass in this judgement."""
        return self.alpha if self.attempt is None else alpha_of_attempt(self.alpha, self.attempt)

    def __str__(self) -> str:
        if self.attempt is None:
            return f"no gate: a pass errs with probability {self.alpha:g} in this judgement alone"
        return f"{self.stage}, attempt {self.attempt}: a pass spends {self.pass_alpha:.3g} of alpha {self.alpha:g}"


NO_GATE = GateLevel(Stage.OFFLINE_CI)


def level_of(contract: Contract, gate: Gate, attempt: int | None) -> GateLevel:
    """Return the level of a gate; the first attempt of a declared one unless told otherwise."""
    if attempt is None and gate in contract.promotion.gates:
        attempt = 1
    return GateLevel(gate.stage, gate.alpha, attempt)
