"""Which dump a path holds, told from its content."""

from enum import StrEnum
from itertools import islice
from pathlib import Path

from paritas.collectors.dumps.fields import Row, parse_row
from paritas.collectors.dumps.lines import Line, check_regular, is_folder, read_lines
from paritas.collectors.dumps.nemo_rl import nemo_files
from paritas.collectors.dumps.prime_rl import rank_files, step_folders
from paritas.collectors.dumps.problem import LineError, Problem
from paritas.errors import UsageError

__all__ = ["DumpFormat", "first_object", "format_of", "recognise", "unknown_content"]

# The first object decides; garbage before it is passed over, but not for ever.
LINES_MOST = 64
LINE_LIMIT_BYTES = 64 << 20


class DumpFormat(StrEnum):
    """The dumps that can be read."""

    RECORDED_INFERENCE = "recorded_inference"  # the serving side of a recorded pair
    RECORDED_TRAIN = "recorded_train"  # the training side of one
    RECORDED_REFERENCE = "recorded_reference"  # what the kernel of a reference model said
    NEMO_RL = "nemo_rl"
    PRIME_RL = "prime_rl"


FORMATS_HINT = (
    "readable are: a recorded file (sample_id, token_ids, logprobs); "
    "NeMo-RL train_data_step{N}.jsonl (token_ids, generation_logprobs, prev_logprobs); "
    "prime-rl token_exports (schema_version, token_ids, inference_logprobs, trainer_logprobs)"
)

NEMO_FIELDS = frozenset({"token_ids", "generation_logprobs", "prev_logprobs"})
PRIME_FIELDS = frozenset({"schema_version", "token_ids", "inference_logprobs", "trainer_logprobs"})
RECORDED_FIELDS = frozenset({"sample_id", "token_ids"})
# Only who samples knows these.
INFERENCE_FIELDS = frozenset({"logprobs_mode", "prompt_token_ids", "finish_reason", "metrics"})


def recognise(path: Path) -> DumpFormat:
    """Return the format of a file, or of the dump in a folder, by what is written in it.

    A file is what its first JSON object is.  A recorded line is of the training kernel
    unless it says ``"role": "inference"`` or ``"reference"``, or holds what only a sampler knows
    (``logprobs_mode``, ``prompt_token_ids``, ``finish_reason``, ``metrics``).  A folder is
    what its first file with an object is, of those that the layout of NeMo-RL or prime-rl
    names.

    Raises
    ------
    UsageError
        There is nothing at `path`, it cannot be read, or nothing in it is known.
    """
    files = files_of(path) if is_folder(path) else [path]
    for file in files:
        row = first_object(file)
        if row is not None:
            found = format_of(row)
            if found is None:
                raise unknown_content(file)
            return found
    raise unknown_content(path)


def files_of(folder: Path) -> list[Path]:
    """Return the files in a folder that a known layout names."""
    return nemo_files(folder) or [file for step in step_folders(folder) for file in rank_files(step)]


def first_object(file: Path) -> Row | None:
    """Return the first JSON object of a file; None when there is none in its first lines."""
    check_regular(file)
    lines = islice(read_lines(file, limit_bytes=LINE_LIMIT_BYTES), LINES_MOST)
    return next((row for row in map(object_in, lines) if row is not None), None)


def object_in(line: Line | Problem) -> Row | None:
    """Return the object a line holds, if it holds one."""
    if isinstance(line, Problem) or line.content is None:
        return None
    try:
        return parse_row(line.content)
    except LineError:
        return None


def format_of(row: Row) -> DumpFormat | None:
    """Return the format one object is of; None when it is of none.

    Examples
    --------
    >>> format_of({"sample_id": "a", "token_ids": [5], "logprobs_mode": "raw_logprobs"}).value
    'recorded_inference'
    """
    fields = row.keys()
    if fields >= PRIME_FIELDS:
        return DumpFormat.PRIME_RL
    if fields >= NEMO_FIELDS:
        return DumpFormat.NEMO_RL
    if fields >= RECORDED_FIELDS:
        if row.get("role") == "reference":
            return DumpFormat.RECORDED_REFERENCE
        sampled = "role" not in row and not INFERENCE_FIELDS.isdisjoint(fields)
        inference = sampled or row.get("role") == "inference"
        return DumpFormat.RECORDED_INFERENCE if inference else DumpFormat.RECORDED_TRAIN
    return None


def unknown_content(path: Path) -> UsageError:
    """Return the error of a path in which no dump is recognised."""
    return UsageError(f"{path}: holds no dump that can be read", hint=FORMATS_HINT)
