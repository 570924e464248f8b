"""Recorded pairs: one JSON Lines file a kernel, one sampled sequence a line.

The serving side's file holds ``sample_id``, ``token_ids``, ``logprobs`` (nats), who served
(``engine``, ``dtype`` …), how it sampled, what the numbers mean (``logprobs_mode``, in
vLLM's words), sometimes ``top_logprobs`` and ``metrics``; the trainer's file holds the first
three for the same tokens in the same order, and little else; where its scorer held both whole
distributions, ``exact`` says how far they are apart at each token.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.dumps.credit import advantage_of, reward_of
from paritas.collectors.dumps.decode import decode_lines
from paritas.collectors.dumps.fields import Row, check_lengths, floats, label, parse_row, required, token_ids
from paritas.collectors.dumps.lines import Line, check_file, read_lines
from paritas.collectors.dumps.options import ReadOptions
from paritas.collectors.dumps.problem import LineError, Problem, ProblemReason
from paritas.collectors.dumps.recorded_fields import (
    RESERVED,
    event_ns_of,
    exact_of,
    kernel_of,
    sampling_of,
    timings_of,
)
from paritas.collectors.dumps.top import Depth, TopLists, depth_of, parse_top, top_k
from paritas.collectors.dumps.traces import Scores, labels_of
from paritas.records import KernelIdentity, Role, TokenTrace, TopK
from paritas.tokens import as_logged, classify

__all__ = ["RecordedDecoder", "read_recorded"]

# The first line nearly always shows the depth of its lists; this many are tried at most.
DEPTH_LINES_MOST = 1000


def read_recorded(path: Path, role: Role, options: ReadOptions) -> Iterator[TokenTrace | Problem]:
    """Read one kernel's file of a recorded pair, in one pass.

    Parameters
    ----------
    path : Path
        JSON Lines, plain or gzip.
    role : Role
        Whose file it is.

    Raises
    ------
    UsageError
        The file does not exist, is a folder, or cannot be read.  Bad content never raises.
    """
    check_file(path)
    lines = read_lines(path, limit_bytes=options.limit_line_bytes)
    return decode_lines(lines, RecordedDecoder(path, role, options), file=str(path))


class RecordedDecoder:
    """Turns lines of one file into traces; remembers the depth of its top lists.

    Parameters
    ----------
    path : Path
        The file, looked into again when a line alone does not show the depth of its lists.
    """

    def __init__(self, path: Path, role: Role, options: ReadOptions) -> None:
        self._path, self._role, self._options = path, role, options
        self._kernel = KernelIdentity(role)
        self._depth: Depth | None = None

    def __call__(self, row: Row, index: int) -> tuple[TokenTrace]:
        """Decode one line; `index` is its number from 0."""
        ids = token_ids("token_ids", required(row, "token_ids"))
        scores = scores_of(row, ids.size)
        sampling = sampling_of(row, self._options.semantics_of(self._role))
        trace = TokenTrace(
            run_id=self._options.run_id,
            sequence_id=sequence_id_of(row),
            kernel=self._identify(row),
            logprob=as_logged(scores.logprob),
            token=self._options.identify(ids),
            status=classify(scores.logprob, missing=scores.missing),
            group_id=label(row, "group_id"),
            weights_version=label(row, "weights_version"),
            weights_digest=label(row, "weights_digest"),
            sampling=sampling,
            attributes=attributes_of(row, ids.size),
            event_ns=event_ns_of(row, self._options.event_ns(index)),
            top=self._top(row, ids),
            timings=timings_of(row),
            exact=exact_of(row, ids.size),
        )
        return (trace,)

    def _identify(self, row: Row) -> KernelIdentity:
        # One object for equal lines: whoever caches by identity hashes it once.
        kernel = kernel_of(row, self._role)
        if kernel != self._kernel:
            self._kernel = kernel
        return self._kernel

    def _top(self, row: Row, ids: NDArray[np.int64]) -> TopK | None:
        if row.get("top_logprobs") is None:
            return None
        top, options = parse_top(row["top_logprobs"], ids), self._options
        depth = self._settle(top)
        promised = options.top_k is not None and not depth.certain and options.top_k >= depth.shortest
        entries = depth.shortest if promised else depth.entries
        keep = entries if options.top_k is None else options.top_k
        return top_k(top, entries, keep=keep, identify=options.identify)

    def _settle(self, top: TopLists) -> Depth:
        depth = depth_of(top)
        if depth.certain or not depth.shortest:
            self._depth = depth if depth.certain else self._depth
            return depth
        if self._depth is None:
            self._depth = depth_of_file(self._path, self._options.limit_line_bytes)
        return depth.join(self._depth)


def depth_of_file(path: Path, limit_bytes: int) -> Depth:
    """Return the depth of a file's top lists from its first lines, as far as they show it."""
    depth = Depth()
    if not path.is_file():  # a pipe gives its lines once, and they are wanted
        return depth
    for line in islice(read_lines(path, limit_bytes=limit_bytes), DEPTH_LINES_MOST):
        depth = depth.join(depth_of_line(line))
        if depth.certain:
            break
    return depth


def depth_of_line(line: Line | Problem) -> Depth:
    """Return what one line shows; nothing when it cannot be read, which its reader reports."""
    if isinstance(line, Problem) or line.content is None:
        return Depth()
    try:
        row = parse_row(line.content)
        ids = token_ids("token_ids", row.get("token_ids"))
        return depth_of(parse_top(row.get("top_logprobs"), ids))
    except LineError:
        return Depth()


def attributes_of(row: Row, n: int) -> Mapping[str, str]:
    """Return the labels; ``advantages`` and ``rewards``, as trainers call their columns, where none is a label."""
    everywhere = np.ones(n, np.bool_)
    columns = {**advantage_of(row.get("advantages"), everywhere), **reward_of(row.get("rewards"))}
    return {**columns, **labels_of(row, RESERVED)}


def sequence_id_of(row: Row) -> str:
    """Return the name that both files give the sequence."""
    required(row, "sample_id")
    sequence_id = label(row, "sample_id")
    if not sequence_id:
        raise LineError(
            ProblemReason.BAD_VALUE, "'sample_id' is empty", hint="both files must name the sequence"
        )
    return sequence_id


def scores_of(row: Row, n: int) -> Scores:
    """Return the log-probabilities; all missing when the line reports none."""
    if row.get("logprobs") is None:
        return Scores(np.full(n, np.nan), np.ones(n, np.bool_))
    logprob, null = floats("logprobs", row["logprobs"])
    check_lengths({"token_ids": n, "logprobs": logprob.size})
    return Scores(logprob, null)
