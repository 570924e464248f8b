"""Rosters: who is expected to report, by the last word of each source; and who has left them all."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from paritas.wire import Roster

__all__ = ["RosterBook"]

SOURCES = 64  # beyond it the one unheard for longest is forgotten, with its agents
LEAVERS = 4096  # remembered, so that what they still had to send does not bring them back


@dataclass(slots=True)
class Source:
    """The last roster of one source: agent → (Unix ns since when it is expected, or 0; its sidecar)."""

    epoch: int
    number: int
    agents: dict[str, tuple[int, str]]


@dataclass(slots=True)
class RosterBook:
    """What all sources say together.

    Attributes
    ----------
    sources : dict of str to Source
        The one heard last is last.
    left : dict of str to int
        Agents that are in no roster any more, and the log's time at which they left the last.

    Examples
    --------
    >>> from paritas.wire import Expected
    >>> book = RosterBook()
    >>> book.take(Roster("roster:a", 1, 1, (Expected("pod-7", 3),)), 9), list(book.agents())
    ([], ['pod-7'])
    >>> book.take(Roster("roster:a", 1, 2, ()), 10), list(book.agents())
    (['pod-7'], [])
    """

    sources: dict[str, Source] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)

    def __contains__(self, agent: object) -> bool:
        return any(agent in source.agents for source in self.sources.values())

    def agents(self) -> Iterator[str]:
        """Everyone in a roster, in the order of the sources' names; who is in two comes twice."""
        for name in sorted(self.sources):
            yield from self.sources[name].agents

    def since_ns(self, agent: str) -> int:
        """From when an agent is expected to report; 0 if it is in no roster, or not expected yet."""
        told = (source.agents.get(agent, (0, ""))[0] for source in self.sources.values())
        return min((ns for ns in told if ns), default=0)

    def sidecar(self, agent: str) -> str:
        """Whether an agent's place has a sidecar, by the first source that knows it; empty if it is in no roster."""
        told = (self.sources[name].agents.get(agent, (0, ""))[1] for name in sorted(self.sources))
        return next(filter(None, told), "")

    def take(self, roster: Roster, now_ns: int) -> list[str]:
        """Put a roster in the place of its source's last one; return who is in none any more.

        A copy, or an older one of the same epoch that comes late, changes nothing; another epoch is the last word.
        """
        before = self.sources.get(roster.name)
        if before and before.epoch == roster.epoch and before.number >= roster.number:
            return []
        self.sources.pop(roster.name, None)
        listed = {one.agent: (one.since_ns, one.sidecar) for one in roster.agents}
        self.sources[roster.name] = Source(roster.epoch, roster.number, listed)
        for agent in listed:
            self.left.pop(agent, None)
        return self._leave(before, now_ns) + self._make_room(now_ns)

    def drop(self, name: str) -> list[str]:
        """Forget a source; return whom only it expected.  They have not left: nobody said so."""
        source = self.sources.pop(name, None)
        return [agent for agent in (source.agents if source else ()) if agent not in self]

    def forget(self, agents: Iterable[str]) -> None:
        """Forget that agents have left."""
        for agent in agents:
            self.left.pop(agent, None)

    def _leave(self, before: Source | None, now_ns: int) -> list[str]:
        gone = [agent for agent in (before.agents if before else ()) if agent not in self]
        self.left |= dict.fromkeys(gone, now_ns)
        while len(self.left) > LEAVERS:
            del self.left[next(iter(self.left))]
        return gone

    def _make_room(self, now_ns: int) -> list[str]:
        """Keep the latest sources; what an older one expected counts as left."""
        gone: list[str] = []
        while len(self.sources) > SOURCES:
            gone += self._leave(self.sources.pop(next(iter(self.sources))), now_ns)
        return gone
