"""Rollouts as a trainer holds them: both kernels' log-probabilities beside each other, and their traces.

Trainers that correct for the mismatch carry the engine's log-probabilities in their batch.  From there both
traces are made at once, so they need no identity that the engine would have to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paritas.collectors.torch.backend import Tensor
from paritas.collectors.torch.capture import TorchCollector
from paritas.collectors.torch.shown import Shown
from paritas.collectors.torch.traces import Names, Stamp

__all__ = ["Rollouts", "numbered", "show_rollouts"]


@dataclass(frozen=True, slots=True, eq=False)
class Rollouts:
    """One batch; all tensors (b, t), right or left padded.

    Attributes
    ----------
    tokens : integer
    mask : not 0 where a token of the response stands
    names : Names
    train, inference : float, nats, or None
        Log-probabilities of the training kernel at the weights that sampled, and of the engine.
    loss_mask : 0 where a token stays out of the loss, or None
    """

    tokens: Tensor
    mask: Tensor
    names: Names
    train: Tensor | None = None
    inference: Tensor | None = None
    loss_mask: Tensor | None = None


def show_rollouts(collector: TorchCollector, rollouts: Rollouts, *, train: Stamp, inference: Stamp) -> None:
    """Show what the batch holds: one trace a sequence for each kernel whose log-probabilities are there."""
    shown = Shown(rollouts.tokens, mask=rollouts.mask, loss_mask=rollouts.loss_mask)
    for logprobs, stamp in ((rollouts.train, train), (rollouts.inference, inference)):
        if logprobs is not None:
            collector.show(replace(shown, logprobs=logprobs), rollouts.names, stamp=stamp)


def numbered(groups: Sequence[str], prefix: str = "") -> Names:
    """Name rows by their group and a number in it, in the order they come.

    Examples
    --------
    >>> numbered(["p", "q", "p"], prefix="7/").sequence_ids
    ['7/p/0', '7/q/0', '7/p/1']
    """
    seen: dict[str, int] = {}
    ids = []
    for group in groups:
        number = seen[group] = seen.get(group, -1) + 1
        ids.append(f"{prefix}{group}/{number}")
    return Names(ids, [f"{prefix}{group}" for group in groups])
