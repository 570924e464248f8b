"""The machine over random streams of events: full only over a pass of every gate, and no data never advances."""

from hypothesis import given, settings
from hypothesis import strategies as st
from promotion_cases import BAKE, CANDIDATE, CONTRACT, HOUR, T0, S, clauses, contract, statement
from promotion_walks import ORDER, judge, started

from paritas.contracts.model import Stage
from paritas.controller.promotion.events import Aborted, Judged, Rebound, Resumed, Start, Ticked
from paritas.controller.promotion.gates import gates
from paritas.controller.promotion.machine import begin, step
from paritas.controller.promotion.model import Candidate, Cause, GateVerdict, Standing
from paritas.controller.promotion.statement import Window, candidate_digest
from paritas.records import State

TIGHTER, LOOSER = contract(tv=0.29, version="1.0.1"), contract(tv=0.4)
CONTRACTS = {c.digest: c for c in (CONTRACT, TIGHTER, LOOSER)}
OTHERS = [
    {"candidate": Candidate("00")},
    {"contract_digest": LOOSER.digest},
    {"gate": ORDER[3]},
    {"nonce": "x"},
    {"attempt": 9},
    {"promotion_id": "p9"},
]
CHANGES = st.one_of(
    st.just({}),
    st.just({}),
    st.builds(
        lambda name, state: {"clauses": clauses(**{name: state})},
        st.sampled_from(["token_tv", "paired", "finite"]),
        st.sampled_from([State.UNDECIDED, State.NO_DATA]),
    ),
    st.just({"clauses": clauses(token_tv=State.VIOLATED)}),
    st.just({"clauses": clauses()[1:]}),
    st.just({"verdict": GateVerdict.INSUFFICIENT}),
    st.builds(lambda n: {"window_sequences": n}, st.integers(0, 60)),
    st.builds(lambda age: {"expires": age}, st.integers(-10, 10)),
    st.sampled_from(OTHERS),
)
EVENTS = st.one_of(
    st.tuples(st.just("judge"), CHANGES),
    st.tuples(st.just("judge"), CHANGES),
    st.tuples(st.just("replay"), st.integers(0, 5)),
    st.tuples(st.sampled_from(["tick", "resume", "abort", "tighten", "loosen"]), st.none()),
)
ON = (BAKE, ("judge", {}))
STEPS = st.tuples(st.sampled_from([S, BAKE, BAKE, HOUR, 5 * HOUR]), EVENTS)
# Some gates are passed before the rest happens, so that streams do get to full.
STREAMS = st.builds(lambda n, steps: [ON] * n + steps, st.integers(0, 4), st.lists(STEPS, max_size=10))


def events_of(promotion, now, kind, detail, seen):
    """One event of a random stream, made for where the promotion is; also what was seen before."""
    match kind:
        case "judge":
            changes = dict(detail)
            window = Window(promotion.gate_ns, now, changes.pop("window_sequences", 100), 1)
            expires = now + changes.pop("expires", 10) * S
            told = statement(promotion, now, **{"window": window, "expires_ns": expires, **changes})
            event = Judged(told, f"e{len(seen)}")
            seen.append(event)
            return event
        case "replay":
            return seen[detail % len(seen)] if seen else Ticked()
        case "tighten":
            return Rebound(TIGHTER, "ann")
        case "loosen":
            return Rebound(LOOSER, "ann")
        case "resume":
            return Resumed("ann")
        case "abort":
            return Aborted("ann")
        case _:
            return Ticked()


def is_pass(event, transition):
    """Whether an event is a full certificate for the gate a transition left, judged without the machine."""
    if not isinstance(event, Judged):
        return False
    s = event.statement
    return (
        s.verdict is GateVerdict.PASS
        and {v.clause for v in s.clauses} == {"token-tv", "paired", "finite"}
        and {v.state for v in s.clauses} == {State.CONFORMING}
        and s.gate == transition.gate_before
        and s.contract_digest == transition.contract_digest
        and candidate_digest(s.candidate) == transition.candidate_digest
        and s.window.sequences >= (40 if s.gate.stage in (Stage.OFFLINE_CI, Stage.SHADOW) else 1)
        and s.expires_ns > transition.at_ns
    )


@settings(max_examples=120)
@given(STREAMS)
def test_full_is_reached_only_over_a_pass_of_every_gate_and_replays_change_nothing(stream):
    outcome = begin(Start("p1", CANDIDATE, "seed"), now_ns=T0, contract=CONTRACT)
    promotion, transitions = outcome.promotion, list(outcome.transitions)
    passed, seen, now = set(), [], T0
    for wait, (kind, detail) in stream:
        now += wait
        event = events_of(promotion, now, kind, detail, seen)
        bound = CONTRACTS[promotion.contract_digest]
        outcome = step(promotion, event, now_ns=now, contract=bound)
        again = step(
            outcome.promotion, event, now_ns=now, contract=CONTRACTS[outcome.promotion.contract_digest]
        )
        assert again.promotion == outcome.promotion
        assert again.transitions == ()
        for transition in outcome.transitions:
            if transition.cause is Cause.GATE_PASSED:
                assert is_pass(event, transition)
                passed.add((transition.gate_before, transition.contract_digest, transition.candidate_digest))
        if outcome.promotion == promotion:
            assert outcome.transitions == ()
        promotion = outcome.promotion
        transitions += outcome.transitions
        assert promotion.contract_digest != LOOSER.digest
        if promotion.standing is Standing.FULL:
            needed = gates(CONTRACTS[promotion.contract_digest])
            digests = (promotion.contract_digest, promotion.candidate_digest)
            assert {(gate, *digests) for gate in needed} <= passed
        assert (promotion.gate.stage is Stage.FULL) <= (
            promotion.standing in (Standing.FULL, Standing.DEMOTED, Standing.ABORTED)
        )
    assert [t.number for t in transitions] == list(range(1, len(transitions) + 1))
    used = [t.envelope for t in transitions if t.envelope]
    assert len(used) == len(set(used))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([S, BAKE, HOUR]),
            st.sampled_from(
                [
                    {"clauses": ()},
                    {"clauses": clauses(token_tv=State.NO_DATA)},
                    {"window": Window(0, 0, 0, 0)},
                ]
            ),
        ),
        max_size=10,
    )
)
def test_no_data_never_advances(stream):
    promotion, now = started(), T0
    for wait, changes in stream:
        now += wait
        promotion = judge(promotion, now, "e", **changes).promotion
        promotion = step(promotion, Resumed("ann"), now_ns=now, contract=CONTRACT).promotion
    assert promotion.gate == ORDER[0]
    assert promotion.standing is not Standing.FULL
