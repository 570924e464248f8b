"""Agents: who has reported, who has fallen silent, and who was announced and never came.

A pure function of the log: an agent is heard when the log takes a record of its own, told by the header
``paritas-agent``; its reports on itself count, so an agent without traffic is not silent.  Announced are
those that a clause names, and those in a roster (`detectors.rosters`) from when they are expected.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from paritas.contracts.model import Clause
from paritas.detectors.absence import agent_missing
from paritas.detectors.crossings import Change, Crossing
from paritas.detectors.rosters import RosterBook
from paritas.records import Finding, Reason, State, Verdict
from paritas.wire import Roster

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
    rosters : RosterBook
        Who is expected to report besides.

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
    rosters: RosterBook = field(default_factory=RosterBook)
    _due_ns: int = -1

    def hear(self, agent: str, now_ns: int, rosters: Sequence[Roster] = ()) -> Iterator[Crossing]:
        """The log took a record at `now_ns`, of `agent` or, empty, of nobody; yield what that, and its rosters, change."""
        if not self.clauses:
            return
        if self.start_ns < 0:
            self.start_ns = now_ns
        yield from self.elapse(now_ns)
        for reporter in dict.fromkeys([agent, *(roster.name for roster in rosters)]):
            if reporter:
                yield from self._heard(reporter, now_ns)
        for roster in rosters:
            yield from self._enrol(roster, now_ns)

    def _heard(self, agent: str, now_ns: int) -> Iterator[Crossing]:
        if agent not in self.heard:
            yield from self._make_room(now_ns)
            limit_ns = min(round((clause.at_most or 0.0) * NS) for clause in self.clauses)
            self._due_ns = min(self._due_ns, now_ns + limit_ns)
        self.heard.setdefault(agent, Heard(now_ns)).last_ns = now_ns
        self.heard[agent].records += 1
        yield from self._end_all(agent, now_ns)

    def _enrol(self, roster: Roster, now_ns: int) -> Iterator[Crossing]:
        """Who left is silent no more; who is expected, and has not reported in time, is at once."""
        for agent in self.rosters.take(roster, now_ns):
            for clause in self.clauses:
                if agent not in clause.agents:
                    yield from self._end(clause, agent, now_ns)
        self._due_ns = -1
        yield from self.elapse(now_ns)

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
        silences = (ns for ns, *_ in self._deadlines())
        self._due_ns = min((*silences, *self._removals()), default=NEVER_NS)

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
        since_ns, told = self._since(clause, agent)
        silent_s = max(self.now_ns - since_ns, 0) / NS
        if (clause.id, agent) in self.silent:
            why = State.VIOLATED, Reason.NOT_REPORTED if told is None else Reason.COUNTEREXAMPLE
        elif agent in self.rosters.left and agent not in clause.agents:
            why = State.NO_DATA, Reason.NO_UNITS
        elif told is None:
            why = State.NO_DATA, Reason.NOT_REPORTED
        else:
            why = State.CONFORMING, Reason.MATCHED
        return _verdict(clause, name, why, silent_s, told.records if told else 0)

    def findings(self, verdict: Verdict) -> tuple[Finding, ...]:
        """Return the cause of a verdict where it is known: an agent that was announced and never came."""
        if verdict.state is not State.VIOLATED or verdict.reason is not Reason.NOT_REPORTED:
            return ()
        agent = verdict.slice.removeprefix("agent=")
        return (agent_missing(verdict.slice, agent, self.rosters.sidecar(agent)),)

    def _agents(self, clause: Clause) -> list[str]:
        """Who is watched: whom the clause names, who is in a roster, who was heard and has not left."""
        heard = (agent for agent in self.heard if agent not in self.rosters.left)
        return list(dict.fromkeys([*clause.agents, *self.rosters.agents(), *heard]))

    def _named(self) -> set[str]:
        return {agent for clause in self.clauses for agent in clause.agents}

    def _since(self, clause: Clause, agent: str) -> tuple[int, Heard | None]:
        """From when an agent is silent, and what was heard of it since it is expected; never, if it need not speak yet.

        One that a roster expects since after its last record is another by the same name.
        """
        told, expected_ns = self.heard.get(agent), self.rosters.since_ns(agent)
        if told is not None and told.last_ns >= expected_ns:
            return told.last_ns, told
        if agent not in self.rosters or (told is None and agent in clause.agents):
            return self.start_ns, None
        return (max(expected_ns, self.start_ns) if expected_ns else NEVER_NS), None

    def _deadlines(self) -> Iterator[tuple[int, Clause, str]]:
        """When each agent that is not yet silent will be, exclusive; of no agent before the first record."""
        for clause in self.clauses:
            for agent in self._agents(clause):
                if (clause.id, agent) not in self.silent:
                    since_ns, _ = self._since(clause, agent)
                    yield since_ns + round((clause.at_most or 0.0) * NS), clause, agent

    def _end_all(self, agent: str, now_ns: int) -> Iterator[Crossing]:
        for clause in self.clauses:
            yield from self._end(clause, agent, now_ns)

    def _end(self, clause: Clause, agent: str, now_ns: int) -> Iterator[Crossing]:
        if (clause.id, agent) in self.silent:
            self.silent.discard((clause.id, agent))
            self._due_ns = -1
            yield self._crossing(Change.RECOVERED, clause, agent, now_ns)

    def _forget(self) -> Iterator[Crossing]:
        """Agents that nobody announced are gone after a day: scaled down, or renamed; and so are sources of rosters."""
        for is_source in (True, False):  # whom a source expected may be gone with it
            for agent in [a for a in self._strangers() if (a in self.rosters.sources) is is_source]:
                gone_ns = self.heard[agent].last_ns + GONE_NS
                if gone_ns < self.now_ns:
                    yield from self._remove(agent, gone_ns)
        left = [(agent, ns) for agent, ns in self.rosters.left.items() if agent not in self.heard]
        self.rosters.forget(agent for agent, ns in left if ns + GONE_NS < self.now_ns)

    def _remove(self, agent: str, gone_ns: int) -> Iterator[Crossing]:
        yield from self._end_all(agent, gone_ns)
        del self.heard[agent]
        announced = self._named()
        for orphan in self.rosters.drop(agent):
            if orphan not in announced and orphan not in self.heard:
                yield from self._end_all(orphan, gone_ns)

    def _strangers(self) -> Iterator[str]:
        """Who was heard and is announced by nobody, sources of rosters among them."""
        announced = self._named()
        return (agent for agent in self.heard if agent not in announced and agent not in self.rosters)

    def _removals(self) -> Iterator[int]:
        """When each of these, and each who left without a word, is forgotten, exclusive."""
        yield from (self.heard[agent].last_ns + GONE_NS for agent in self._strangers())
        left = self.rosters.left.items()
        yield from (ns + GONE_NS for agent, ns in left if agent not in self.heard)

    def _make_room(self, now_ns: int) -> Iterator[Crossing]:
        """Forget the one unheard for longest of those that nobody announced; its silence ends, or it would never."""
        if len(self.heard) < REMEMBERED:
            return
        others = [agent for agent in self._strangers() if agent not in self.rosters.sources]
        if len(others) >= REMEMBERED:
            oldest = min(others, key=lambda agent: (self.heard[agent].last_ns, agent))
            yield from self._end_all(oldest, now_ns)
            del self.heard[oldest]

    def _crossing(self, change: Change, clause: Clause, agent: str, event_ns: int) -> Crossing:
        return Crossing(change, clause, f"agent={agent}", "agent", -1, event_ns, "")


def _verdict(clause: Clause, name: str, why: tuple[State, Reason], silent_s: float, records: int) -> Verdict:
    limits = (silent_s, NAN, NAN, clause.at_most or 0.0)
    head = (clause.id, name, *why, clause.statistic, clause.family.value)
    return Verdict(*head, *limits, NAN, NAN, NAN, records, 0, unit="seconds")
