"""NeMo-RL ``train_data_step{N}.jsonl``: both kernels of every sample of one training step.

One object a sample, written after the step.  Its traps: every value but ``idx`` is a list of
one element (a batch slice of size 1); the vectors are padded to the longest sample of the
batch, and ``input_lengths`` says where this one ends; entry t belongs to token t, and entry
0 is a dummy because nothing predicts the first token; NaN and Infinity are written as such;
a log-probability that was never reported is 0.0 (`paritas.tokens.missing_zeros`), and
``prev_logprobs`` is all zeros when the trainer skipped that pass.  The step is only in the
file's name; the version of the weights is nowhere.
"""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.dumps.credit import advantage_of, one_number, reward_of
from paritas.collectors.dumps.decode import decode_lines
from paritas.collectors.dumps.fields import (
    Row,
    check_lengths,
    floats,
    integer,
    mask,
    number,
    required,
    sequence,
    token_ids,
)
from paritas.collectors.dumps.lines import check_file, entries_in, is_folder, read_lines
from paritas.collectors.dumps.options import ReadOptions
from paritas.collectors.dumps.problem import LineError, Problem, ProblemReason
from paritas.collectors.dumps.traces import BothKernels, Scores, labels_of, traces_of
from paritas.errors import UsageError
from paritas.records import TokenTrace
from paritas.tokens import missing_zeros

__all__ = ["NemoDecoder", "nemo_files", "read_nemo_rl", "step_of"]

FILE_PATTERN = "train_data_step{N}.jsonl"
FILE_STEP = re.compile(r"train_data_step(\d+)\.jsonl(?:\.gz)?")


def read_nemo_rl(path: Path, options: ReadOptions) -> Iterator[TokenTrace | Problem]:
    """Read one dump file, or every ``train_data_step*.jsonl`` of a folder in the order of the steps.

    Each sample gives the inference kernel's trace, then the training kernel's.

    Raises
    ------
    UsageError
        The path does not exist or cannot be read, or the folder holds no dump.  Bad content
        never raises.
    """
    files = nemo_files(path) if is_folder(path) else [path]
    if not files:
        raise UsageError(f"{path}: holds no {FILE_PATTERN}", hint="name the log folder of a NeMo-RL run")
    for file in files:
        check_file(file)
    return read_files(files, options)


def read_files(files: list[Path], options: ReadOptions) -> Iterator[TokenTrace | Problem]:
    """Read files one after another."""
    ticks = count()
    for file in files:
        lines = read_lines(file, limit_bytes=options.limit_line_bytes)
        yield from decode_lines(lines, NemoDecoder(file, options, ticks=ticks), file=str(file))


def nemo_files(folder: Path) -> list[Path]:
    """Return the dump files of a folder, by step."""
    return sorted(filter(step_of, entries_in(folder)), key=lambda file: int(step_of(file)))


def step_of(file: Path) -> str:
    """Return the step in the name of a file; empty where there is none.

    Examples
    --------
    >>> step_of(Path("logs/train_data_step12.jsonl"))
    '12'
    """
    found = FILE_STEP.fullmatch(file.name)
    return str(int(found[1])) if found else ""


class NemoDecoder:
    """Turns samples of one file into two traces each.

    Parameters
    ----------
    file : Path
        Names the step; where it does not, the file's name stands in the sequence id.
    ticks : iterator of int
        Numbers the samples over all files, for those times that no dump has.
    """

    def __init__(self, file: Path, options: ReadOptions, *, ticks: Iterator[int]) -> None:
        self._options, self._ticks, self._step = options, ticks, step_of(file)
        self._name = self._step or file.name

    def __call__(self, row: Row, index: int) -> tuple[TokenTrace, TokenTrace]:
        """Decode one sample; `index` is its line from 0."""
        token, mask_column, inference, train = columns_of(row)
        masked = ~(mask_column & sample_kept(row))
        line = BothKernels(
            sequence_id=f"{self._name}/{sample_index(row, index)}",
            event_ns=self._options.event_ns(next(self._ticks)),
            attributes={**self._labels(row), **advantage_in(row, ~masked)},
            token=token,
            masked=masked,
            inference=with_missing(inference, train, masked),
            train=with_missing(train, inference, masked),
        )
        return traces_of(line, self._options)

    def _labels(self, row: Row) -> dict[str, str]:
        step = {"step": self._step} if self._step else {}
        return {**step, **environment_of(row), **reward_of(row.get("rewards"))}


def columns_of(row: Row) -> tuple[NDArray[np.int64], NDArray[np.bool_], Scores, Scores]:
    """Return ids, loss mask and both kernels' scores, without the dummy entry and the padding."""
    ids = sequence("token_ids", vector(row, "token_ids"))
    kept = mask("token_loss_mask", vector(row, "token_loss_mask"))
    scores = [floats(name, vector(row, name)) for name in ("generation_logprobs", "prev_logprobs")]
    lengths = {"token_ids": len(ids), "token_loss_mask": kept.size}
    lengths |= {"generation_logprobs": scores[0][0].size, "prev_logprobs": scores[1][0].size}
    check_lengths(lengths)
    used = slice(1, used_length(row, len(ids)))
    inference, train = (Scores(logprob[used], null[used]) for logprob, null in scores)
    return token_ids("token_ids", ids[used]), kept[used], inference, train


def vector(row: Row, name: str) -> object:
    """Return a column out of its list of one element; a bare column is taken as it is."""
    value = required(row, name)
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list) else value


def scalar(row: Row, name: str) -> Row:
    """Return a row that holds the field `name` out of its list of one element."""
    value = required(row, name)
    return {name: value[0] if isinstance(value, list) and len(value) == 1 else value}


def used_length(row: Row, padded: int) -> int:
    """Return how many entries of the padded columns are of this sample."""
    length = number(scalar(row, "input_lengths"), "input_lengths")
    if length is None or not 0 <= length <= padded or length != int(length):
        message = f"'input_lengths' is no length within the {padded} entries of the columns"
        raise LineError(ProblemReason.BAD_VALUE, message)
    return int(length)


def sample_kept(row: Row) -> bool:
    """Return whether the sample is in the loss."""
    return bool(mask("sample_loss_mask", list(scalar(row, "sample_loss_mask").values()))[0])


def sample_index(row: Row, index: int) -> int:
    """Return the place of the sample in its batch: ``idx``, else its line from 0."""
    idx = integer(scalar(row, "idx"), "idx") if "idx" in row else None
    return index if idx is None else idx


def environment_of(row: Row) -> dict[str, str]:
    """Return the label ``environment`` out of ``agent_ref``, which is a name or an object with one."""
    agent = scalar(row, "agent_ref")["agent_ref"] if "agent_ref" in row else None
    name = agent.get("name") if isinstance(agent, dict) else agent
    return labels_of({"environment": name}, frozenset()) if isinstance(name, str) else {}


def advantage_in(row: Row, counted: NDArray[np.bool_]) -> dict[str, str]:
    """Return the label ``advantage`` out of ``advantages``: a padded column, or one number."""
    if row.get("advantages") is None:
        return {}
    told = vector(row, "advantages")
    if not isinstance(told, list) or len(told) == 1:
        return advantage_of(one_number(told), counted)
    padded = len(sequence("token_ids", vector(row, "token_ids")))
    check_lengths({"token_ids": padded, "advantages": len(told)})
    return advantage_of(told[1 : counted.size + 1], counted)


def with_missing(scores: Scores, partner: Scores, masked: NDArray[np.bool_]) -> Scores:
    """Mark what the trainer wrote as 0.0 because nothing was reported."""
    zeros = missing_zeros(scores.logprob, partner.logprob, counted=~masked)
    return Scores(scores.logprob, scores.missing | zeros)
