"""The gates of a contract in their order, and what a statement says at one of them."""

from collections.abc import Iterator, Sequence

from paritas.contracts.attempts import alpha_of_attempt
from paritas.contracts.model import Clause, Contract, Slice, Stage
from paritas.contracts.model import Gate as Declared
from paritas.controller.promotion.model import Block, Blocked, Gate, GateVerdict
from paritas.controller.promotion.statement import ClauseVerdict, Statement
from paritas.records import State

__all__ = ["binding", "declared", "gates", "judge_statement", "next_gate"]

PER_AGENT = "agent_silence"  # its slices are agents, which only the detectors know
WHOLE_ONLY = "kernel_identity"  # it has a verdict only in slices that match everything
ROUNDING = 1e-9  # of an alpha that travelled as text and was computed elsewhere
SHOWN = 3


def gates(contract: Contract) -> tuple[Gate, ...]:
    """Return the gates that must be passed, in order; `full` is where the last one leads.

    Examples
    --------
    >>> from paritas.contracts.load import load_text
    >>> text = '''
    ... apiVersion: paritas.dev/v1
    ... kind: KernelContract
    ... metadata: {name: example, version: 1.0.0}
    ... spec:
    ...   clauses: {numerical: [{id: token-tv, statistic: tv, at_most: 0.1}]}
    ...   promotion: {shadow: {share: 0.1}, canary: {steps: [0.1, 0.5]}}
    ... '''
    >>> print(*gates(load_text(text, "example.yaml")), sep=", ")
    shadow, canary step 1, canary step 2
    """
    found = (declared(contract, stage) for stage in Stage if stage is not Stage.FULL)
    return tuple(
        Gate(gate.stage, step)
        for gate in found
        if gate is not None
        for step in range(max(len(gate.steps), 1))
    )


def declared(contract: Contract, stage: Stage) -> Declared | None:
    """Return what the contract says of a stage; None where it does not gate it."""
    return next((gate for gate in contract.promotion.gates if gate.stage is stage), None)


def next_gate(contract: Contract, gate: Gate) -> Gate:
    """Return where a pass of `gate` leads."""
    order = (*gates(contract), Gate(Stage.FULL))
    return order[min(order.index(gate) + 1, len(order) - 1)]


def binding(contract: Contract, stage: Stage) -> tuple[Clause, ...]:
    """Return the clauses that bind at a stage."""
    return tuple(c for c in contract.clauses if not c.stages or stage in c.stages)


def judge_statement(
    statement: Statement, contract: Contract, gate: Gate, attempt: int
) -> tuple[GateVerdict, Blocked | None]:
    """Return what a statement's clauses say at a gate, and why it is no pass.

    The clauses decide, and never the headline alone: the worse of the two is taken.
    """
    clauses = binding(contract, gate.stage)
    bad = [v for v in statement.clauses if v.state is State.VIOLATED and _binds(v, clauses)]
    if bad:
        return GateVerdict.FAIL, Blocked(Block.VIOLATED_CLAUSE, _violated(bad))
    if statement.verdict is GateVerdict.FAIL:
        text = "the verdict is FAIL and names no violated clause"
        return GateVerdict.FAIL, Blocked(Block.VIOLATED_CLAUSE, text)
    blocked = next(_lacks(statement, contract, gate, attempt), None)
    return (GateVerdict.PASS if blocked is None else GateVerdict.INSUFFICIENT), blocked


def _binds(verdict: ClauseVerdict, clauses: Sequence[Clause]) -> bool:
    return any(c.id == verdict.clause for c in clauses)


def _violated(bad: Sequence[ClauseVerdict]) -> str:
    told = [f"{v.clause} in {v.slice}: {v.estimate:.4g} against {v.limit:.4g}" for v in bad[:SHOWN]]
    more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    return "violated: " + "; ".join(told) + more


def _lacks(statement: Statement, contract: Contract, gate: Gate, attempt: int) -> Iterator[Blocked]:
    """What keeps a statement from being a pass, the gravest first."""
    clauses = binding(contract, gate.stage)
    if not clauses:
        yield Blocked(
            Block.MISSING_DATA, f"no clause of the contract binds at {gate.stage}: nothing is proven"
        )
    if statement.missing:
        yield Blocked(Block.MISSING_DATA, "missing: " + ", ".join(statement.missing[:SHOWN]))
    yield from _absent(statement, contract, clauses)
    at_least = _at_least(contract, gate)
    if statement.window.sequences < at_least:
        text = f"{statement.window.sequences} sequences, the gate asks for {at_least}"
        yield Blocked(Block.TOO_FEW_SEQUENCES, text)
    undecided = [v for v in statement.clauses if v.state is not State.CONFORMING and _binds(v, clauses)]
    if undecided or statement.verdict is not GateVerdict.PASS:
        told = ", ".join(f"{v.clause} in {v.slice} ({v.reason})" for v in undecided[:SHOWN])
        yield Blocked(Block.UNDECIDED, f"undecided: {told or 'the verdict says so itself'}")
    yield from _spent(statement, contract, gate, attempt)


def _absent(statement: Statement, contract: Contract, clauses: Sequence[Clause]) -> Iterator[Blocked]:
    """Clauses and slices that the statement does not speak of, or without a single unit."""
    told = {(v.clause, v.slice) for v in statement.clauses}
    wanted = [(c.id, name) for c in clauses for name in _slices(c, contract)]
    silent = [f"{clause} in {name}" for clause, name in wanted if (clause, name) not in told]
    silent += [c.id for c in clauses if not any(c.id == clause for clause, _ in told)]
    if silent:
        yield Blocked(Block.MISSING_DATA, "no verdict of " + ", ".join(silent[:SHOWN]))
    empty = [v for v in statement.clauses if v.state is State.NO_DATA and _binds(v, clauses)]
    if empty:
        shown = ", ".join(f"{v.clause} in {v.slice} ({v.reason})" for v in empty[:SHOWN])
        yield Blocked(Block.MISSING_DATA, f"no data: {shown}")
    if statement.window.sequences == 0:
        yield Blocked(Block.MISSING_DATA, "no sequence was looked at")


def _slices(clause: Clause, contract: Contract) -> Iterator[str]:
    """Slices of a clause that exist whatever the traffic is."""
    if clause.statistic == PER_AGENT:
        return
    for part in contract.slices:
        is_asked = not clause.slices or part.name in clause.slices
        if is_asked and not part.by and (clause.statistic != WHOLE_ONLY or _is_whole(part)):
            yield part.name


def _is_whole(part: Slice) -> bool:
    return part.match is None


def _at_least(contract: Contract, gate: Gate) -> int:
    found = declared(contract, gate.stage)
    return 1 if found is None else max(found.at_least_sequences, 1)


def _spent(statement: Statement, contract: Contract, gate: Gate, attempt: int) -> Iterator[Blocked]:
    """A pass may spend what its attempt may, so that all attempts together spend alpha."""
    found = declared(contract, gate.stage)
    if found is None or found.stage is Stage.FULL:
        return
    allowed = alpha_of_attempt(found.alpha, attempt)
    if not 0.0 < statement.alpha <= allowed * (1.0 + ROUNDING):
        text = f"a pass spent alpha {statement.alpha:.3g}, attempt {attempt} may spend {allowed:.3g}"
        yield Blocked(Block.ALPHA_EXCEEDED, text)
