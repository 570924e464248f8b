"""Agents: who has reported, who has fallen silent, and who was announced and never came.

A pure function of the log: an agent is heard when the log takes a record of its own, told by the header
``paritas-agent``; its reports on itself count, so an agent without traffic is not silent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from paritas.contracts.model import Clause
from paritas.detectors.crossings import Change, Crossing
from paritas.records import Reason, State, Verdict

__all__ = ["AGENT_SILENCE", "AgentBook"]

AGENT_SILENCE = "agent_silence"
NS = 1_000_000_000
GONE_NS = 86_400 * NS  # an agent that nobody announced and that is silent for a day has been removed
REMEMBERED = 4096  # agents; beyond it the longest silent one that nobody announced is forgotten
NEVER_NS = 2**63 - 1
NAN = float("nan")


@dataclass(slots=True)
class Heard:
    """What is known of one agent."""

    last_ns: int
    records: int = 0


@dataclass(slots=True)
class AgentBook:
    """Last sign of life of every agent, and the clauses that limit how long it may be ago.

    Attributes
    ----------
    clauses : tuple of Clause
        Those on `agent_silence`.
    start_ns, now_ns : int
        Log times of the first record, and up to which time has passed; 0 before.
    heard : dict
        Agents that reported.
    silent : set of (clause id, agent)
        What is violated now.

    Examples
    --------
    >>> from paritas.contracts.model import Family
    >>> book = AgentBook((Clause("a", Family.OBSERVABILITY, AGENT_SILENCE, at_most=5.0),))
    >>> list(book.hear("pod-7", 0)), [c.slice for c in book.elapse(6 * NS)]
    ([], ['agent=pod-7'])
    >>> [(c.change.value, c.event_ns) for c in book.hear("pod-7", 8 * NS)]
    [('recovered', 8000000000)]
    """

    clauses: tuple[Clause, ...]
    start_ns: int = -1
    now_ns: int = -1
    heard: dict[str, Heard] = field(default_factory=dict)
    silent: set[tuple[str, str]] = field(default_factory=set)
    _due_ns: int = -1

    def hear(self, agent: str, now_ns: int) -> Iterator[Crossing]:
        """The log took a record at `now_ns`, of `agent` or, empty, of nobody; yield what that ends."""
        if not self.clauses:
            return
        if self.start_ns < 0:
            self.start_ns = now_ns
        yield from self.elapse(now_ns)
        if not agent:
            return
        if agent not in self.heard:
            self._make_room()
            limit_ns = min(round((clause.at_most or 0.0) * NS) for clause in self.clauses)
            self._due_ns = min(self._due_ns, now_ns + limit_ns)
        self.heard.setdefault(agent, Heard(now_ns)).last_ns = now_ns
        self.heard[agent].records += 1
        for clause in self.clauses:
            yield from self._end(clause, agent, now_ns)

    def elapse(self, now_ns: int) -> Iterator[Crossing]:
        """Let the log's time pass to `now_ns`; yield agents that have been silent for too long, by deadline."""
        if self.start_ns < 0:
            return
        self.now_ns = max(self.now_ns, now_ns)
        if self.now_ns <= self._due_ns:
            return
        over = sorted((ns, c.id, agent) for ns, c, agent in self._deadlines() if ns < self.now_ns)
        by_id = {clause.id: clause for clause in self.clauses}
        for deadline_ns, clause_id, agent in over:
            self.silent.add((clause_id, agent))
            yield self._crossing(Change.VIOLATED, by_id[clause_id], agent, deadline_ns)
        yield from self._forget()
        self._due_ns = min((ns for ns, *_ in self._deadlines()), default=NEVER_NS)
        self._due_ns = min([self._due_ns, *(h.last_ns + GONE_NS for h in self.heard.values())])

    @property
    def is_missing(self) -> bool:
        """Whether some agent is silent for too long: what it would have told is missing."""
        return bool(self.silent)

    def verdicts(self, clause: Clause) -> Iterator[Verdict]:
        """One verdict an agent, announced ones first; one without data where there is none."""
        agents = self._agents(clause)
        if not agents:
            yield _verdict(clause, "agent=", (State.NO_DATA, Reason.NO_UNITS), NAN, 0)
        for agent in agents:
            yield self.verdict(clause, f"agent={agent}")

    def verdict(self, clause: Clause, name: str) -> Verdict:
        """Return the verdict on one agent, as of the time that has passed."""
        agent = name.removeprefix("agent=")
        told = self.heard.get(agent)
        since_ns = self.start_ns if told is None else told.last_ns
        silent_s = max(self.now_ns - since_ns, 0) / NS
        if (clause.id, agent) in self.silent:
            why = State.VIOLATED, Reason.NOT_REPORTED if told is None else Reason.COUNTEREXAMPLE
        elif told is None:
            why = State.NO_DATA, Reason.NOT_REPORTED
        else:
            why = State.CONFORMING, Reason.MATCHED
        return _verdict(clause, name, why, silent_s, told.records if told else 0)

    def _agents(self, clause: Clause) -> list[str]:
        return list(dict.fromkeys([*clause.agents, *self.heard]))

    def _deadlines(self) -> Iterator[tuple[int, Clause, str]]:
        """When each agent that is not yet silent will be, exclusive; of no agent before the first record."""
        for clause in self.clauses:
            for agent in self._agents(clause):
                if (clause.id, agent) not in self.silent:
                    told = self.heard.get(agent)
                    since_ns = self.start_ns if told is None else told.last_ns
                    yield since_ns + round((clause.at_most or 0.0) * NS), clause, agent

    def _end(self, clause: Clause, agent: str, now_ns: int) -> Iterator[Crossing]:
        if (clause.id, agent) in self.silent:
            self.silent.discard((clause.id, agent))
            self._due_ns = -1
            yield self._crossing(Change.RECOVERED, clause, agent, now_ns)

    def _forget(self) -> Iterator[Crossing]:
        """Agents that nobody announced are gone after a day: scaled down, or renamed."""
        announced = {agent for clause in self.clauses for agent in clause.agents}
        for agent, told in list(self.heard.items()):
            if agent not in announced and self.now_ns - told.last_ns > GONE_NS:
                for clause in self.clauses:
                    yield from self._end(clause, agent, told.last_ns + GONE_NS)
                del self.heard[agent]

    def _make_room(self) -> None:
        if len(self.heard) < REMEMBERED:
            return
        announced = {agent for clause in self.clauses for agent in clause.agents}
        others = [agent for agent in self.heard if agent not in announced]
        if len(others) >= REMEMBERED:
            oldest = min(others, key=lambda agent: (self.heard[agent].last_ns, agent))
            del self.heard[oldest]
            self.silent = {(clause_id, agent) for clause_id, agent in self.silent if agent != oldest}

    def _crossing(self, change: Change, clause: Clause, agent: str, event_ns: int) -> Crossing:
        return Crossing(change, clause, f"agent={agent}", "agent", -1, event_ns, "")


def _verdict(clause: Clause, name: str, why: tuple[State, Reason], silent_s: float, records: int) -> Verdict:
    limits = (silent_s, NAN, NAN, clause.at_most or 0.0)
    head = (clause.id, name, *why, clause.statistic, clause.family.value)
    return Verdict(*head, *limits, NAN, NAN, NAN, records, 0, unit="seconds")
