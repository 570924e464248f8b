"""One training step as its author sees it: a context, and one call that shows a batch."""

from typing import Protocol, Self

from paritas.collectors.torch.backend import Tensor, quietly
from paritas.collectors.torch.shown import Shown
from paritas.collectors.torch.timing import Mark, StepTimes, Timed
from paritas.collectors.torch.traces import Names, Stamp

__all__ = ["Stage", "Step"]


class Stage(Protocol):
    """Where a step shows its batches: `TorchCollector`."""

    def show(self, shown: Shown, names: Names | None = None, *, stamp: Stamp | None = None) -> None:
        """Take a batch."""
        ...

    def drain(self) -> None:
        """Emit what has arrived."""
        ...


class Step:
    """One training step: its batches, its weights, its duration.  A context manager."""

    def __init__(self, stage: Stage, stamp: Stamp, times: StepTimes) -> None:
        self._stage, self._stamp, self._times = stage, stamp, times
        self._began: Mark | None = None

    def __enter__(self) -> Self:
        self._began = quietly(self._times.mark)
        return self

    def __exit__(self, *_: object) -> None:
        if self._began is not None:
            began, stamp = self._began, self._stamp
            timed = Timed(stamp.run_id, stamp.weights_version, stamp.attributes)
            quietly(lambda: self._times.end(began, timed))
        self._stage.drain()

    def observe(
        self,
        tokens: Tensor,
        *,
        logits: Tensor | None = None,
        logprobs: Tensor | None = None,
        mask: Tensor | None = None,
        loss_mask: Tensor | None = None,
        names: Names | None = None,
    ) -> None:
        """Show a batch of this step: no wait, no exception; what becomes of it is counted.

        Parameters
        ----------
        tokens : tensor of shape (b, t), integer
            The tokens that are scored.  A causal model's logits at a position score the next
            token: pass ``ids[:, 1:]`` with ``logits[:, :-1]``.
        logits : tensor of shape (b, t, v), any float type, or None
        logprobs : tensor of shape (b, t), nats, or None
            One of the two; where the trainer has log-probabilities already, they cost nothing.
        mask : tensor of shape (b, t), or None
            Not 0 where a token of the response stands; padding on either side and the prompt are 0.
        loss_mask : tensor of shape (b, t), or None
            0 where a token of the response stays out of the loss (tool output, forced text).
        names : Names or None
            None: rows are numbered, which no inference trace will match.
        """
        shown = Shown(tokens, logits=logits, logprobs=logprobs, mask=mask, loss_mask=loss_mask)
        self._stage.show(shown, names, stamp=self._stamp)
