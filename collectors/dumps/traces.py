"""The last step of the readers: checked columns become `TokenTrace`s."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.dumps.fields import Row, clean_text
from paritas.collectors.dumps.options import ReadOptions
from paritas.records import KernelIdentity, Role, Sampling, TokenTrace
from paritas.tokens import as_logged, classify

__all__ = ["BothKernels", "Scores", "labels_of", "traces_of"]

# Long enough for names, too short for most prompts; and few enough for a span.
LABEL_CHARACTERS = 128
LABELS_MOST = 32

# Fields that hold what people wrote, whatever their length: never copied into a label.
USER_TEXT = frozenset(
    {
        "answer",
        "completion",
        "content",
        "input",
        "messages",
        "output",
        "prompt",
        "question",
        "response",
        "text",
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One kernel's log-probabilities of a sequence.

    Attributes
    ----------
    logprob : shape (n,), float64, nats
    missing : shape (n,), bool
        Where nothing was reported.
    """

    logprob: NDArray[np.float64]
    missing: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class BothKernels:
    """One line of a dump that holds what both kernels said, and nothing about either.

    Attributes
    ----------
    token : shape (n,), int64
        Token ids.
    masked : shape (n,), bool
        Tokens outside the loss.
    """

    sequence_id: str
    event_ns: int
    attributes: Mapping[str, str]
    token: NDArray[np.int64]
    masked: NDArray[np.bool_]
    inference: Scores
    train: Scores


def traces_of(line: BothKernels, options: ReadOptions) -> tuple[TokenTrace, TokenTrace]:
    """Return the inference kernel's trace and the training kernel's, in this order."""
    token = options.identify(line.token)
    return (
        trace_of(line, options, role=Role.INFERENCE, token=token, scores=line.inference),
        trace_of(line, options, role=Role.TRAIN, token=token, scores=line.train),
    )


def trace_of(
    line: BothKernels, options: ReadOptions, *, role: Role, token: NDArray[np.uint64], scores: Scores
) -> TokenTrace:
    """Return one kernel's trace."""
    return TokenTrace(
        run_id=options.run_id,
        sequence_id=line.sequence_id,
        kernel=KernelIdentity(role),
        logprob=as_logged(scores.logprob),
        token=token,
        status=classify(scores.logprob, missing=scores.missing, masked=line.masked),
        sampling=Sampling(semantics=options.semantics_of(role)),
        attributes=line.attributes,
        event_ns=line.event_ns,
    )


def labels_of(row: Row, reserved: frozenset[str]) -> dict[str, str]:
    """Return the short scalar fields of a row that have no meaning of their own, as labels.

    At most `LABELS_MOST`, in the order of the line.  Lists, objects, null, empty and long
    texts, and fields named like `USER_TEXT` are left out.

    Examples
    --------
    >>> labels_of({"slice": "chat", "token_ids": [5], "turn": 2, "ok": True}, frozenset())
    {'slice': 'chat', 'turn': '2', 'ok': 'true'}
    """
    labels: dict[str, str] = {}
    for name, value in row.items():
        shown = "" if name in reserved or name in USER_TEXT else show(value)
        if 0 < len(shown) <= LABEL_CHARACTERS and 0 < len(name) <= LABEL_CHARACTERS:
            labels[clean_text("a field name", name)] = clean_text(name, shown)
        if len(labels) == LABELS_MOST:
            break
    return labels


def show(value: object) -> str:
    """Return a JSON scalar as text; empty for null, lists and objects."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""
