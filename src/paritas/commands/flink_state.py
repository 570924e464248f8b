"""What a job on Flink goes on from: kept beside the command, so that the same command again goes on."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from paritas.errors import UsageError

__all__ = ["FlinkState", "Judged", "load_state", "save_state"]


@dataclass(frozen=True, slots=True)
class Judged:
    """What a job judges; the state of one is of no use to another.

    Attributes
    ----------
    contract : str
        Digest.
    brokers, topic, escalations, deployment : str
        As the command was told.
    state_format : int
        `snapshot.FORMAT` of the detectors that keep it; 0 in files of before it was written.
    """

    contract: str
    brokers: str
    topic: str
    escalations: str
    deployment: str
    state_format: int = 0


@dataclass(frozen=True, slots=True)
class FlinkState:
    """The last job.

    Attributes
    ----------
    judged : Judged
    job : str
        Its id.
    checkpoints : str
        Folder of checkpoints, as Flink names it; empty if only the cluster knows.
    savepoint : str
        Where it was stopped with; empty if it was not.
    began : str
        What it had gone on from itself; empty for the start of the topic.
    """

    judged: Judged
    job: str
    checkpoints: str = ""
    savepoint: str = ""
    began: str = ""


def load_state(path: Path) -> FlinkState | None:
    """Read the state; None if there is none.

    Raises
    ------
    UsageError
        It is no state of a job.
    """
    try:
        found = json.loads(path.read_text())
        return FlinkState(**(found | {"judged": Judged(**found["judged"])}))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        hint = "move it away to judge the topic from its start"
        raise UsageError(f"{path}: no state of a Flink job", hint=hint) from error


def save_state(path: Path, state: FlinkState) -> None:
    """Write the state in one piece.

    Raises
    ------
    UsageError
        It cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(asdict(state), indent=1) + "\n")
        beside.replace(path)
    except OSError as error:
        message = f"{path}: cannot be written: {error.strerror}"
        raise UsageError(message, hint="choose another --state") from error
