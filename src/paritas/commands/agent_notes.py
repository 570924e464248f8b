"""What agents say of themselves in the log: the last note of each, and a line when it changes."""

import logging
from collections.abc import Iterable

from paritas.wire import AgentHealth

__all__ = ["AgentNotes"]

log = logging.getLogger(__name__)
READY = "ready"
MOST = 4096  # agents remembered; the one unheard for longest is forgotten first


class AgentNotes:
    """The last note of each agent.

    Examples
    --------
    >>> notes = AgentNotes()
    >>> notes.note([AgentHealth("pod-7", "ready"), AgentHealth("pod-8", "ready")])
    >>> notes.text()
    '2 agents heard'
    """

    def __init__(self) -> None:
        self._notes: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._notes)

    def note(self, health: Iterable[AgentHealth]) -> None:
        """Remember reports; log those that differ from the one before."""
        for report in health:
            before = self._notes.pop(report.agent, READY)
            self._notes[report.agent] = report.note
            if len(self._notes) > MOST:
                del self._notes[next(iter(self._notes))]
            if report.note != before:
                log.warning("An agent is %s.", report.note, extra={"agent": report.agent})

    def counts(self) -> dict[str, int]:
        """Return how many were heard, by whether they say they are ready.

        Examples
        --------
        >>> notes = AgentNotes()
        >>> notes.note([AgentHealth("pod-7", "ready")])
        >>> notes.counts()
        {'ready': 1, 'not_ready': 0}
        """
        ready = sum(note == READY for note in self._notes.values())
        return {"ready": ready, "not_ready": len(self._notes) - ready}

    def text(self) -> str:
        """Return how many were heard, and which of them are not ready."""
        poor = sorted(agent for agent, note in self._notes.items() if note != READY)
        names = ", ".join([*poor[:3], *(["…"] if len(poor) > 3 else [])])
        heard = f"{len(self._notes)} agent{'' if len(self._notes) == 1 else 's'} heard"
        return f"{heard}, {len(poor)} not ready ({names})" if poor else heard
