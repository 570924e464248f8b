"""What travels between the operators."""

from dataclasses import dataclass

from paritas.detectors.sequences import Taken
from paritas.wire import Gap, Roster

__all__ = ["Arrival", "Arrived", "Beat"]

Origin = tuple[str, ...]  # agent, epoch, number there; empty when a record does not say


@dataclass(frozen=True, slots=True)
class Arrival:
    """One record of the log.

    Attributes
    ----------
    log_ns : int
        Unix ns at which the log took the record.
    partition, offset : int
        Its place; with `log_ns` the place of the record in the one order all engines follow.
    """

    log_ns: int
    partition: int
    offset: int
    origin: Origin
    value: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """What the traces of one record did.

    Attributes
    ----------
    log_ns, partition, offset : int
        As in `Arrival`.
    takens : tuple of Taken
        One a trace, in order.
    gaps : tuple of Gap
        What the record says is lost.
    agent : str
        Who wrote it; empty for nobody.
    rosters : tuple of Roster
        Whom it says to expect.
    """

    log_ns: int
    partition: int
    offset: int
    takens: tuple[Taken, ...]
    gaps: tuple[Gap, ...] = ()
    agent: str = ""
    rosters: tuple[Roster, ...] = ()

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands in the order of the log."""
        return self.log_ns, self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Beat:
    """Word from Flink's own side, which no restart loses: a second has passed, or a bounded input is at its end."""
