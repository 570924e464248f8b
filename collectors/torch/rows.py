"""The log-probability of each chosen token, in float32, from logits that are read once.

Neither path holds a second matrix of the size of the logits: on CUDA one Triton kernel reads
each row once and keeps three numbers; elsewhere, and without Triton, rows are taken in pieces
that fit a processor's cache.  No autograd graph is made, no device is waited for.
"""

from dataclasses import dataclass

from paritas.collectors.torch.backend import Tensor, has_triton, pytorch
from paritas.collectors.torch.traces import extents

__all__ = ["RowScores", "is_rank_free", "score_rows"]

# Sixteen rows of a vocabulary of 49,152 in float32.  Measured on two cores: pieces of this size
# cost a tenth of the whole matrix at once, and both a quarter and four times as much cost more.
PIECE_BYTES = 3 << 20


@dataclass(frozen=True, slots=True, eq=False)
class RowScores:
    """What one pass over logits tells of the chosen tokens.

    Attributes
    ----------
    logprob : tensor of shape (b, t), float32, nats
        NaN where the token is outside the vocabulary, such as the -100 of a label.
    rank : tensor of shape (b, t), int32, or None
        Entries of the row that are at least the chosen one, itself included: 1 is the most
        likely; 0 where the row holds NaN at the chosen token, or the token is outside.
    """

    logprob: Tensor
    rank: Tensor | None


def score_rows(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, with_rank: bool = False
) -> RowScores:
    """Score the chosen tokens; the results lie on the device of the logits.

    Parameters
    ----------
    logits : tensor of shape (b, t, v), any float type
        Row (i, j) is the law of token (i, j).  A view such as ``logits[:, :-1]`` is not copied.
    tokens : tensor of shape (b, t), integer
        A token outside 0 .. v-1 is skipped, and its row on CUDA not even read.
    temperature : float
        Logits are divided by it.
    with_rank : bool

    Notes
    -----
    ``(x - m) - log(sum exp(x_i - m))`` with m the largest logit: the sum is at least one, so no
    rounding lifts a log-probability above zero.
    """
    torch = pytorch()
    with torch.no_grad():
        logits, tokens = logits.detach(), tokens.to(logits.device, non_blocking=True)
        if logits.is_cuda and has_triton():
            from paritas.collectors.torch.triton_rows import score_on_gpu

            return RowScores(*score_on_gpu(logits, tokens, temperature=temperature, with_rank=with_rank))
        return _score_in_pieces(logits, tokens, temperature=temperature, with_rank=with_rank)


def is_rank_free(logits: Tensor) -> bool:
    """Whether the rank falls out of the one read of a row; elsewhere it takes twice the time, or more.

    512 rows of a vocabulary of 49,152 on two cores: 18 ms without and 38 ms with it in float32,
    15 and 42 ms in bfloat16.
    """
    return bool(logits.is_cuda) and has_triton()


def _score_in_pieces(logits: Tensor, tokens: Tensor, *, temperature: float, with_rank: bool) -> RowScores:
    torch = pytorch()
    logprob = torch.full(tokens.shape, torch.nan, dtype=torch.float32, device=logits.device)
    rank = torch.zeros(tokens.shape, dtype=torch.int32, device=logits.device) if with_rank else None
    rows = max(1, min(PIECE_BYTES // (4 * logits.shape[-1]), tokens.shape[1]))
    # One buffer for all pieces: memory that is asked for anew each time is zeroed anew each time.
    buffer = torch.empty((rows, logits.shape[-1]), dtype=torch.float32, device=logits.device)
    for sequence, (start, end) in enumerate(_wanted(tokens)):
        for first in range(start, end, rows):
            place = (sequence, slice(first, min(first + rows, end)))
            logprob[place] = _score_piece(logits[place], tokens[place], temperature, buffer)
            if rank is not None:
                rank[place] = _rank_piece(logits[place], tokens[place])
    return RowScores(logprob, rank)


def _wanted(tokens: Tensor) -> list[tuple[int, int]]:
    """Return from where to where each sequence has tokens to score; all of it on a device that must not wait."""
    if tokens.is_cuda:
        return [(0, tokens.shape[1])] * tokens.shape[0]
    return extents((tokens >= 0).numpy())


def _score_piece(logits: Tensor, tokens: Tensor, temperature: float, buffer: Tensor) -> Tensor:
    """Log-probabilities of a few rows; an index outside would abort the program on CUDA, so it is replaced."""
    torch = pytorch()
    known, index = _index(tokens, logits.shape[-1])
    law = buffer[: logits.shape[0]]
    if temperature == 1.0:
        torch.log_softmax(logits, -1, dtype=torch.float32, out=law)
    else:
        torch.log_softmax(torch.div(logits.float(), temperature), -1, out=law)
    return law.gather(-1, index)[..., 0].masked_fill_(~known, torch.nan)


def _rank_piece(logits: Tensor, tokens: Tensor) -> Tensor:
    torch = pytorch()
    known, index = _index(tokens, logits.shape[-1])
    at_least = logits >= logits.gather(-1, index)
    return at_least.sum(-1, dtype=torch.int32).masked_fill_(~known, 0)


def _index(tokens: Tensor, size: int) -> tuple[Tensor, Tensor]:
    known = (tokens >= 0) & (tokens < size)
    return known, tokens.long().masked_fill(~known, 0)[..., None]
