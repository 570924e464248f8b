"""Rollouts as a trainer holds them: both kernels' log-probabilities beside each other, and their traces.

Trainers that correct for the mismatch carry the engine's log-probabilities in their batch.  From there both
traces are made at once, so they need no identity that the engine would have to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paritas.collectors.torch.backend import Tensor, pytorch, quietly
from paritas.collectors.torch.capture import TorchCollector
from paritas.collectors.torch.shown import Shown
from paritas.collectors.torch.traces import Names, Stamp

__all__ = ["Rollouts", "numbered", "prefix_of", "show_rollouts"]


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


def prefix_of(weights_version: str) -> str:
    """Return what stands before the names of this process: the version, and the rank where there are several.

    Ranks number their own parts of a batch and ask nobody: without the rank two of them would give one name
    to two sequences.

    Examples
    --------
    >>> prefix_of("7")
    '7/'
    """
    rank = quietly(_rank)
    return f"{weights_version}/" if rank is None else f"{weights_version}/{rank}/"


def _rank() -> int | None:
    """Rank of this process among several; no collective, and None in a process of its own."""
    distributed = pytorch().distributed
    is_one_of_many = (
        distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    )
    return int(distributed.get_rank()) if is_one_of_many else None


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
