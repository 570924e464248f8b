"""Judge the recording of a test that a contract carries, as `paritas check` does."""

from pathlib import Path

from paritas.commands.offline import judge_dump, judge_recording
from paritas.contracts.model import Contract
from paritas.contracts.testing import Judged
from paritas.records import State

__all__ = ["judge_carried"]


def judge_carried(contract: Contract, serve: Path, train: Path) -> Judged:
    """Judge a recorded pair; one path for both means a dump that holds both kernels.

    Raises
    ------
    UsageError
        If a file is not there or is no recording.
    """
    found = judge_dump(contract, serve) if serve == train else judge_recording(contract, serve, train)
    reached = {(clause, name, State.VIOLATED): n for (clause, name), n in found.reached.items()}
    return Judged(found.verdicts, found.diagnosis, reached)
