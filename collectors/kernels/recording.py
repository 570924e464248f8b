"""What both kernels said of one response, as the two lines of a recorded pair.

`paritas.collectors.dumps.read_recorded` reads them back.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.dumps.recorded_fields import EXACT_COLUMNS
from paritas.collectors.kernels.kernel import Answer, Scored, TopRows
from paritas.exact import ExactDrift
from paritas.records import KernelIdentity, LogprobSemantics, Sampling

__all__ = ["inference_line", "train_line"]

Line = dict[str, object]
DIGITS = 7  # of a log-probability: the resolution of float32 near 1
MODES = {LogprobSemantics.RAW: "raw_logprobs", LogprobSemantics.PROCESSED: "processed_logprobs"}


def inference_line(answer: Answer, kernel: KernelIdentity, law: Sampling) -> Line:
    """Return the line of the inference kernel's file."""
    ids = {"prompt_token_ids": answer.ask.prompt.tolist(), "token_ids": answer.token.tolist()}
    return {
        **_named(answer, kernel),
        **_sampling(law),
        "logprobs_mode": MODES.get(law.semantics, law.semantics.value),
        "finish_reason": answer.finish,
        **ids,
        "logprobs": _numbers(answer.logprob),
        "top_logprobs": _lists(answer.top),
    }


def train_line(answer: Answer, scored: Scored, kernel: KernelIdentity, law: Sampling) -> Line:
    """Return the line of the training kernel's file.

    It names no ``logprobs_mode``: the two laws are compared as they are configured, also where
    they differ, since that is what a certification is asked for.
    """
    exact = {} if scored.exact is None else {"exact": _exact(scored.exact)}
    return {
        **_named(answer, kernel),
        **_sampling(law),
        "token_ids": answer.token.tolist(),
        "logprobs": _numbers(scored.logprob),
        "top_logprobs": _lists(scored.top),
        **exact,
    }


def _named(answer: Answer, kernel: KernelIdentity) -> Line:
    """Names, labels and kernel; the labels come first, so that none takes a name with a meaning."""
    known: Mapping[str, object] = {k: v for k, v in kernel.fields().items() if not k.startswith("extra.")}
    ask = answer.ask
    return {
        **ask.labels,
        "sample_id": ask.sample_id,
        "group_id": ask.group_id,
        **known,
        "extra": dict(sorted(kernel.extra.items())),
    }


def _sampling(law: Sampling) -> Line:
    told = {name: getattr(law, name) for name in ("temperature", "top_p", "top_k", "min_p")}
    return {name: value for name, value in told.items() if value is not None}


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else value for value in np.round(values, DIGITS).tolist()]


def _lists(top: TopRows) -> list[list[list[float]]]:
    return [[[token, round(log, DIGITS)] for token, log in row] for row in top]


def _exact(drift: ExactDrift) -> dict[str, list[float]]:
    columns = (getattr(drift, name).astype(np.float64) for name in ExactDrift.__slots__)
    return {name: np.round(c, DIGITS).tolist() for name, c in zip(EXACT_COLUMNS, columns, strict=True)}
