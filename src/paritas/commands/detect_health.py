"""Whether a detection loop does its work: what it says of itself, and the judgement.  Pure but for `LoopState`."""

from dataclasses import dataclass
from enum import StrEnum

from paritas.agent.health import Health

__all__ = ["DetectNote", "DetectTrouble", "LoopState", "Stage", "judge"]

NS = 1_000_000_000
STALL_S = 60.0
DEAD_S = (
    600.0  # one publishing that waits for a controller, and the saving of a large state, take minutes at most
)


class DetectTrouble(StrEnum):
    """Why a detector does not do its work."""

    STARTING = "starting"
    DRAINING = "draining"
    WAITING_FOR_LOG = "waiting_for_log"  # a broker is away, or the log cannot be read just now
    LOOP_STALLED = "loop_stalled"  # it has not turned round for a minute
    CONTROLLER_UNREACHABLE = "controller_unreachable"
    CONTROLLER_NOT_SERVING = "controller_not_serving"  # it answers, and cannot write its log
    PUBLISH_REFUSED = "publish_refused"  # it does not let this detector publish
    STATE_NOT_SAVED = "state_not_saved"  # the disk refuses the state


class DetectNote(StrEnum):
    """What a detector does its work in spite of."""

    CONTRACT_STALE = "contract_stale"  # the file holds another contract, which cannot be used


class Stage(StrEnum):
    """Where the process is."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"


@dataclass(slots=True)
class LoopState:
    """What a loop says of itself: written by its thread, read by any; each field stands for itself.

    Attributes
    ----------
    stage : Stage
    turn_ns : int
        Monotonic ns at which the loop last turned round, with or without success.
    trouble : DetectTrouble or None
        What the last turn met.
    controller : DetectTrouble or None
        What was found when the controller was last asked; STARTING before the first answer, if somebody asks.
    """

    turn_ns: int
    stage: Stage = Stage.STARTING
    trouble: DetectTrouble | None = None
    controller: DetectTrouble | None = None


def judge(
    state: LoopState,
    now_ns: int,
    *,
    is_stale: bool = False,
    stall_s: float = STALL_S,
    dead_s: float = DEAD_S,
) -> Health:
    """Return the health.

    Parameters
    ----------
    now_ns : int
        Monotonic ns.
    is_stale : bool
        Whether the contract's file holds one that cannot be used.
    stall_s, dead_s : float
        A running loop that did not turn round for so long is stalled; dead, and a restart may help.

    Examples
    --------
    >>> judge(LoopState(0, Stage.RUNNING, DetectTrouble.PUBLISH_REFUSED), 1).text()
    'not ready: publish_refused'
    """
    quiet_s = (now_ns - state.turn_ns) / NS if state.stage is Stage.RUNNING else 0.0
    found = {
        DetectTrouble.STARTING: state.stage is Stage.STARTING,
        DetectTrouble.DRAINING: state.stage is Stage.DRAINING,
        DetectTrouble.LOOP_STALLED: quiet_s > stall_s,
    }
    told = [trouble for trouble, holds in found.items() if holds]
    told += [t for t in (state.trouble, state.controller) if t is not None and t not in told]
    notes = (DetectNote.CONTRACT_STALE,) if is_stale else ()
    return Health(quiet_s <= dead_s, tuple(dict.fromkeys(told)), notes)
