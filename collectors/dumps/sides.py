"""Whether two files are a recorded pair, each on its own side."""

from pathlib import Path

from paritas.collectors.dumps.fields import Row
from paritas.collectors.dumps.lines import check_file
from paritas.collectors.dumps.recognise import DumpFormat, first_object, format_of
from paritas.errors import UsageError

__all__ = ["check_sides"]

BOTH_KERNELS = {DumpFormat.NEMO_RL: "NeMo-RL", DumpFormat.PRIME_RL: "prime-rl"}


def check_sides(serve: Path, train: Path) -> None:
    """Refuse what is surely no pair: a dump of both kernels, or each file in the other's place.

    Only the training side's file saying what the numbers of a sampler mean (``logprobs_mode``), and the
    serving side's not, is sure; two files of samplers are a pair that somebody may want.

    Raises
    ------
    UsageError
        So it is, or a file is not there or cannot be read.
    """
    rows = [first_row(path) for path in (serve, train)]
    for path, row in zip((serve, train), rows, strict=True):
        if (found := format_of(row)) in BOTH_KERNELS:
            message = f"{path}: is a dump of {BOTH_KERNELS[found]}, which holds both kernels"
            raise UsageError(message, hint="give it alone, with --dump")
    if rows[0] and [samples(row) for row in rows] == [False, True]:
        message = f"{serve} and {train} are in each other's place: the second says its logprobs_mode"
        hint = 'the serving side comes first; else let the second say "role": "train" in its lines'
        raise UsageError(message, hint=hint)


def first_row(path: Path) -> Row:
    """Return the first object of a file; nothing of a pipe, which gives each line once."""
    check_file(path)
    return (first_object(path) or {}) if path.is_file() else {}


def samples(row: Row) -> bool:
    """Whether a line says that a sampler wrote it.

    Examples
    --------
    >>> samples({"logprobs_mode": "raw_logprobs"}), samples({"logprobs_mode": "raw_logprobs", "role": "train"})
    (True, False)
    """
    return row["role"] == "inference" if "role" in row else "logprobs_mode" in row
