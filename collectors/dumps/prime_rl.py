"""prime-rl ``token_exports/step_{n}/rank_{r}.jsonl``: both kernels, one object a sequence.

Schema 1: columns of equal length whose entry i belongs to ``token_ids[i]``, null where the
trainer had NaN or infinity.  An empty file ``STABLE`` lands in the folder of a step after
all ranks have written; before that the folder is not read.  Tokens outside ``loss_mask``
are MASKED, and so are those whose weights say that the policy did not sample them
(``rl_weights`` and ``ref_kl_weights`` both zero: tokens taken from another model).
"""

import re
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.dumps.credit import advantage_of
from paritas.collectors.dumps.decode import decode_lines
from paritas.collectors.dumps.fields import (
    Row,
    check_lengths,
    floats,
    integer,
    mask,
    required,
    text,
    token_ids,
)
from paritas.collectors.dumps.lines import check_file, entries_in, is_folder, read_lines
from paritas.collectors.dumps.options import ReadOptions
from paritas.collectors.dumps.problem import LineError, Problem, ProblemReason
from paritas.collectors.dumps.traces import BothKernels, Scores, labels_of, traces_of
from paritas.errors import UsageError
from paritas.records import TokenTrace

__all__ = ["PrimeDecoder", "is_stable", "rank_files", "read_prime_rl", "read_step", "step_folders"]

SCHEMA_VERSION = 1
STABLE = "STABLE"
STEP_FOLDER = re.compile(r"step_(\d+)")
RANK_FILE = re.compile(r"rank_(\d+)\.jsonl(?:\.gz)?")


def read_prime_rl(path: Path, options: ReadOptions) -> Iterator[TokenTrace | Problem]:
    """Read the exports of a run, of one step, or one rank's file.

    Each sequence gives the inference kernel's trace, then the training kernel's.  Steps
    without ``STABLE`` are not read; each is a problem at the end.  A file that is named
    itself is read whatever lies beside it.

    Parameters
    ----------
    path : Path
        The run's folder, its ``token_exports``, a ``step_{n}`` folder or a file.

    Raises
    ------
    UsageError
        The path does not exist or cannot be read, or the folder holds no step.  Bad content
        never raises.
    """
    if not is_folder(path):
        check_file(path)
        return read_files([path], options, ticks=count())
    folders = step_folders(path)
    if not folders:
        raise UsageError(
            f"{path}: holds no step_{{n}} folder", hint="name the output folder of a prime-rl run"
        )
    return read_steps(folders, options)


def read_steps(folders: list[Path], options: ReadOptions) -> Iterator[TokenTrace | Problem]:
    """Read every stable step, then name the others."""
    ticks, unstable = count(), []
    for folder in folders:
        if is_stable(folder):
            yield from read_step(folder, options, ticks=ticks)
        else:
            unstable.append(folder)
    yield from map(unstable_step, unstable)


def read_step(folder: Path, options: ReadOptions, *, ticks: Iterator[int]) -> Iterator[TokenTrace | Problem]:
    """Read the ranks of a stable step; a step without any is a problem."""
    files = rank_files(folder)
    if not files:
        yield Problem(str(folder), 0, ProblemReason.EMPTY_FILE, "the step holds no rank_{r}.jsonl")
    yield from read_files(files, options, ticks=ticks)


def read_files(
    files: Iterable[Path], options: ReadOptions, *, ticks: Iterator[int]
) -> Iterator[TokenTrace | Problem]:
    """Read files one after another."""
    for file in files:
        lines = read_lines(file, limit_bytes=options.limit_line_bytes)
        yield from decode_lines(lines, PrimeDecoder(options, ticks=ticks), file=str(file))


def unstable_step(folder: Path) -> Problem:
    """Return the problem of a step that is not finished."""
    return Problem(
        str(folder),
        0,
        ProblemReason.UNSTABLE_STEP,
        f"the step has no {STABLE} file and was not read",
        "the trainer is still writing it, or stopped inside it",
    )


def step_folders(path: Path) -> list[Path]:
    """Return the folders of steps under `path`, by step; `path` itself if it is one."""
    if STEP_FOLDER.fullmatch(path.name) or rank_files(path):
        return [path]
    root = path / "token_exports" if (path / "token_exports").is_dir() else path
    return sorted((folder for folder in entries_in(root) if is_step(folder)), key=step_number)


def is_step(folder: Path) -> bool:
    """Return whether the folder is named like a step's."""
    return bool(STEP_FOLDER.fullmatch(folder.name)) and folder.is_dir()


def step_number(folder: Path) -> int:
    """Return the step that a folder's name says."""
    return int(folder.name.removeprefix("step_"))


def is_stable(folder: Path) -> bool:
    """Return whether all ranks have written."""
    return (folder / STABLE).exists()


def rank_files(folder: Path) -> list[Path]:
    """Return the files of a step, by rank."""
    files = [file for file in entries_in(folder) if RANK_FILE.fullmatch(file.name) and file.is_file()]
    return sorted(files, key=lambda file: (int(file.name.removeprefix("rank_").split(".")[0]), file.name))


class PrimeDecoder:
    """Turns the sequences of one rank's file into two traces each.

    Parameters
    ----------
    ticks : iterator of int
        Numbers the sequences over all files, for those times that no export has.
    """

    def __init__(self, options: ReadOptions, *, ticks: Iterator[int]) -> None:
        self._options, self._ticks = options, ticks

    def __call__(self, row: Row, index: int) -> tuple[TokenTrace, TokenTrace]:
        """Decode one sequence; `index` is its line from 0."""
        check_schema(row)
        step, rank = named_integer(row, "step"), named_integer(row, "rank")
        exported = integer(row, "export_sequence_idx")
        ids = token_ids("token_ids", required(row, "token_ids"))
        inference, train = (
            nullable(row, name, ids.size) for name in ("inference_logprobs", "trainer_logprobs")
        )
        environment = labels_of({"environment": text(row, "env_name")}, frozenset())
        masked = masked_of(row, ids.size)
        line = BothKernels(
            sequence_id=f"{step}/{rank}/{index if exported is None else exported}",
            event_ns=self._options.event_ns(next(self._ticks)),
            attributes={
                "step": str(step),
                "rank": str(rank),
                **environment,
                **advantage_of(row.get("advantages"), ~masked),
            },
            token=ids,
            masked=masked,
            inference=inference,
            train=train,
        )
        return traces_of(line, self._options)


def check_schema(row: Row) -> None:
    """Raise UNKNOWN_SCHEMA unless the line is of the version that is understood here."""
    required(row, "schema_version")
    version = integer(row, "schema_version")
    if version != SCHEMA_VERSION:
        raise LineError(
            ProblemReason.UNKNOWN_SCHEMA,
            f"'schema_version' is {version}, expected {SCHEMA_VERSION}",
            hint="a newer trainer needs a newer reader",
        )


def named_integer(row: Row, name: str) -> int:
    """Return an integer field that must be there and not null."""
    required(row, name)
    value = integer(row, name)
    if value is None:
        raise LineError(ProblemReason.BAD_TYPE, f"{name!r} is null, expected an integer")
    return value


def nullable(row: Row, name: str, n: int) -> Scores:
    """Return a column of log-probabilities; null means NaN or infinity here, not missing."""
    logprob, _ = floats(name, required(row, name))
    check_lengths({"token_ids": n, name: logprob.size})
    return Scores(logprob, np.zeros(n, np.bool_))


def masked_of(row: Row, n: int) -> NDArray[np.bool_]:
    """Return where a token is outside the loss, or was not sampled by the policy.

    Returns
    -------
    shape (n,), bool
    """
    kept = mask("loss_mask", required(row, "loss_mask"))
    check_lengths({"token_ids": n, "loss_mask": kept.size})
    rl, ref_kl = weights_of(row, "rl_weights", n), weights_of(row, "ref_kl_weights", n)
    # A weight that is not given is NaN, which counts as one for rl and as none for ref_kl.
    sampled: NDArray[np.bool_] = (rl != 0) | (np.nan_to_num(ref_kl) != 0)
    return ~(kept & sampled)


def weights_of(row: Row, name: str, n: int) -> NDArray[np.float64]:
    """Return an optional column of loss weights, NaN where it says nothing."""
    if row.get(name) is None:
        return np.full(n, np.nan)
    weights, _ = floats(name, row[name])
    check_lengths({"token_ids": n, name: weights.size})
    return weights
