"""Rows of logits that are hard to score, for the paths of `score_rows` that must agree."""

import torch

V = 9001  # no multiple of any block


def rows(dtype, device="cpu"):
    """(2, 6, V) logits and tokens, as a view that begins one row earlier, with every odd case inside."""
    g = torch.Generator().manual_seed(3)
    logits = (torch.randn(2, 7, V, generator=g) * 4).to(dtype)
    tokens = torch.randint(0, V, (2, 6), generator=g)
    tokens[0, 0], tokens[0, 1] = -100, V
    logits[0, 2, : V // 2] = -torch.inf  # half of the vocabulary is forbidden
    tokens[0, 2] = V - 1
    logits[0, 3, :] = 1000.0  # large and equal
    logits[0, 4, 7] = 90.0  # certain
    tokens[0, 4] = 7
    logits[1, 0, 5] = torch.nan
    logits[1, 1, 5] = torch.inf
    logits[1, 2, tokens[1, 2]] = -torch.inf  # the token itself is forbidden
    logits[1, 3, :] = -torch.inf
    return logits.to(device)[:, :-1], tokens.to(device)


def exact(logits, tokens, temperature):
    """What float64 says; NaN where the token is outside."""
    known = (tokens >= 0) & (tokens < logits.shape[-1])
    index = tokens.masked_fill(~known, 0)[..., None]
    law = torch.log_softmax(logits.double() / temperature, -1)
    rank = (logits >= logits.gather(-1, index)).sum(-1).masked_fill(~known, 0)
    return law.gather(-1, index)[..., 0].masked_fill(~known, torch.nan), rank.int()


def assert_scores(scores, logits, tokens, temperature):
    """Equal to float64 within a few units of float32 at the largest logit, and never above zero."""
    value, rank = exact(logits, tokens, temperature)
    torch.testing.assert_close(scores.logprob.double(), value, rtol=1e-6, atol=2e-5, equal_nan=True)
    assert not (scores.logprob > 0).any()
    assert scores.rank.tolist() == rank.tolist()
