"""Fair bets on signs: evidence that one of two comparable numbers is usually the larger.

Under the null that both are drawn alike the sign of their difference is a fair coin, whatever their
distribution, so ``prod (1 + lambda sign)`` is an e-value at any moment one chooses to look.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLEAR", "SignBets"]

LAMBDAS = np.array([0.15, 0.4, 0.8])
CLEAR = float(np.log10(20.0))  # log10 of an e-value; by Markov it lies with at most 5 %


@dataclass(slots=True)
class SignBets:
    """How often signs were positive and negative, and what bets on positive ones would have made of it.

    Examples
    --------
    >>> bets = SignBets()
    >>> for _ in range(12):
    ...     bets.fold(1.0)
    >>> round(bets.log10_e(), 2)
    2.61
    """

    positive: int = 0
    negative: int = 0

    def fold(self, difference: float) -> None:
        """Bet on the sign of one difference; equal numbers win and lose nothing."""
        if difference > 0.0:
            self.positive += 1
        elif difference < 0.0:
            self.negative += 1

    def fold_many(self, differences: NDArray[np.float64]) -> None:
        """Bet on the signs of many differences."""
        self.positive += int(np.count_nonzero(differences > 0.0))
        self.negative += int(np.count_nonzero(differences < 0.0))

    def log10_e(self) -> float:
        """Evidence of all bets together, log10 of the mean of their wealth."""
        logs = self.positive * np.log1p(LAMBDAS) + self.negative * np.log1p(-LAMBDAS)
        return float((np.logaddexp.reduce(logs) - np.log(len(LAMBDAS))) / np.log(10.0))
