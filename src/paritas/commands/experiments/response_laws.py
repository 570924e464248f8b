"""Responses of three tokens over two, enumerated: a policy with its own logits after every prefix."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.laws import TREE, Laws, decode, norm, responses
from paritas.commands.experiments.result import Floats
from paritas.contracts.bounds import gradient_bias

__all__ = ["HORIZON", "Responses", "enumerated", "every", "largest_advantage", "pulled"]

HORIZON = 3
CONTEXTS, TOKENS = responses(HORIZON)


@dataclass(frozen=True)
class Responses:
    """The eight responses of each case.

    Attributes
    ----------
    laws : Laws
    advantage : shape (n, 8)
        Of a whole response, in [-1, 1]; `reward` is the same in [0, 1].
    """

    laws: Laws

    def along(self, table: Floats) -> Floats:
        """Return the entries of (n, contexts, actions, …) along each response, shape (n, 8, horizon, …)."""
        return np.asarray(table[:, CONTEXTS, TOKENS])

    @cached_property
    def p(self) -> Floats:
        """P of each response, shape (n, 8)."""
        return np.asarray(self.along(self.laws.p).prod(axis=-1))

    @cached_property
    def q(self) -> Floats:
        """Q of each response, shape (n, 8)."""
        return np.asarray(self.along(self.laws.q).prod(axis=-1))

    @cached_property
    def log_ratio(self) -> Floats:
        """Log W; of no meaning where Q is 0."""
        return np.asarray(self.along(self.laws.log_ratio).sum(axis=-1))

    @cached_property
    def scores(self) -> Floats:
        """Score of each token along each response, shape (n, 8, horizon, d)."""
        return self.along(self.laws.score)

    @cached_property
    def advantage(self) -> Floats:
        """Mean of the step advantages along each response: in [-1, 1]."""
        return np.asarray(self.along(self.laws.advantage).mean(axis=-1))

    @cached_property
    def tv(self) -> Floats:
        """Total variation of P and Q, shape (n,)."""
        return np.asarray(np.minimum(0.5 * np.abs(self.p - self.q).sum(axis=-1), 1.0))

    @cached_property
    def largest_step_tv(self) -> Floats:
        """Largest token TV over prefixes, shape (n,)."""
        return np.asarray(self.laws.tv.max(axis=-1))

    def certified(self, beta: Floats, largest: Floats) -> Floats:
        """Beta in units of `largest` times G."""
        return gradient_bias(beta, advantage=largest, score_norm=self.laws.score_norm)


def enumerated(case: Floats, *, masked: bool = True) -> Responses:
    """Decode cases into their responses."""
    return Responses(decode(case, TREE, masked=masked))


def pulled(told: Responses, pull: Floats) -> Floats:
    """Norm of the sum over responses of pull times the summed score."""
    return norm(np.einsum("ny,nyd->nd", pull, told.scores.sum(axis=2)))


def every(told: Responses) -> NDArray[np.bool_]:
    """No case is outside what is assumed."""
    return np.ones(len(told.p), dtype=np.bool_)


def largest_advantage(told: Responses) -> Floats:
    """A_max over responses, shape (n,)."""
    return np.asarray(np.abs(told.advantage).max(axis=1))
