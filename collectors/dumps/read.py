"""Read whatever dump a path holds."""

from collections.abc import Iterator
from pathlib import Path

from paritas.collectors.dumps.nemo_rl import read_nemo_rl
from paritas.collectors.dumps.options import ReadOptions
from paritas.collectors.dumps.prime_rl import read_prime_rl
from paritas.collectors.dumps.problem import Problem
from paritas.collectors.dumps.recognise import DumpFormat, recognise
from paritas.collectors.dumps.recorded import read_recorded
from paritas.records import Role, TokenTrace

__all__ = ["read_dump"]


def read_dump(path: Path, options: ReadOptions) -> Iterator[TokenTrace | Problem]:
    """Read a dump of any known format, line by line.

    Parameters
    ----------
    path : Path
        File or folder; see `recognise`.

    Yields
    ------
    TokenTrace or Problem
        In the order of the files; every line that is not blank ends as its traces or as one
        problem.

    Raises
    ------
    UsageError
        At once: nothing is there, or nothing in it is known.  Bad content never raises.
    """
    match recognise(path):
        case DumpFormat.RECORDED_INFERENCE:
            return read_recorded(path, Role.INFERENCE, options)
        case DumpFormat.RECORDED_TRAIN:
            return read_recorded(path, Role.TRAIN, options)
        case DumpFormat.RECORDED_REFERENCE:
            return read_recorded(path, Role.REFERENCE, options)
        case DumpFormat.NEMO_RL:
            return read_nemo_rl(path, options)
        case DumpFormat.PRIME_RL:
            return read_prime_rl(path, options)
