"""What a training step shows: tensors of one batch, checked, and turned into the columns that are copied."""

from dataclasses import dataclass

from paritas.collectors.torch.backend import Tensor, pytorch
from paritas.collectors.torch.rows import RowScores, is_rank_free, score_rows
from paritas.records import LogprobSemantics, Sampling

__all__ = ["Shown"]


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """One batch; see `Step.observe` for the shapes."""

    tokens: Tensor
    logits: Tensor | None = None
    logprobs: Tensor | None = None
    mask: Tensor | None = None
    loss_mask: Tensor | None = None

    @property
    def rows(self) -> int:
        """Sequences of the batch; 1 where it is no batch, so that it is counted."""
        shape = list(getattr(self.tokens, "shape", ()))
        return int(shape[0]) if len(shape) == 2 else 1

    @property
    def is_cuda(self) -> bool:
        """Whether any of it lies on a CUDA device."""
        parts = (self.tokens, self.logits, self.logprobs, self.mask, self.loss_mask)
        return any(part.is_cuda for part in parts if part is not None)

    def fits(self) -> bool:
        """Whether there is exactly one of logits and logprobs and all shapes agree."""
        if (self.logits is None) == (self.logprobs is None) or len(self.tokens.shape) != 2:
            return False
        flat = [one for one in (self.logprobs, self.mask, self.loss_mask) if one is not None]
        if any(one.shape != self.tokens.shape for one in flat):
            return False
        return self.logits is None or tuple(self.logits.shape[:-1]) == tuple(self.tokens.shape)

    def columns(self, sampling: Sampling) -> dict[str, Tensor]:
        """Return ``token``, ``mask`` and ``logprob``, ``loss_mask`` and ``rank`` where there are any, on their device."""
        torch = pytorch()
        with torch.no_grad():
            token = self.tokens.detach().long()
            mask = torch.ones_like(token, dtype=torch.bool) if self.mask is None else self._flag(self.mask)
            columns = {"token": token, "mask": mask}
            if self.loss_mask is not None:
                columns["loss_mask"] = self._flag(self.loss_mask)
            scores = self._scores(columns, sampling)
            columns["logprob"] = scores.logprob
            if scores.rank is not None:
                columns["rank"] = scores.rank
        return columns

    def _flag(self, mask: Tensor) -> Tensor:
        return (mask.detach() != 0).to(self.tokens.device, non_blocking=True)

    def _scores(self, columns: dict[str, Tensor], sampling: Sampling) -> RowScores:
        if self.logprobs is not None:
            return RowScores(self.logprobs.detach().float(), None)
        counted = columns["mask"] & columns.get("loss_mask", columns["mask"])
        # What does not count is not scored: its row of logits need not be read.
        wanted = columns["token"].masked_fill(~counted, -1)
        divisor, with_rank = _temperature(sampling), is_rank_free(self.logits)
        return score_rows(self.logits, wanted, temperature=divisor, with_rank=with_rank)


def _temperature(sampling: Sampling) -> float:
    """What logits are divided by: 1 unless that is the law the trainer speaks of."""
    if sampling.semantics is LogprobSemantics.TEMPERATURE_ONLY and sampling.temperature:
        return sampling.temperature
    return 1.0
