"""What holds for every stream of verdicts: limits, leases, silences, replays, no flapping."""

from dataclasses import replace
from itertools import pairwise
from math import fsum, isclose

from hypothesis import given, settings
from hypothesis import strategies as st
from routing_scenes import FLEETS, SILENCE, SLICES, START_NS, STEPS, Incidents, S, Step, fleet, reroute

from paritas.controller.routing.desired import Round, decide
from paritas.controller.routing.memory import Memory, memory_from, memory_text
from paritas.controller.routing.model import RouteKey
from paritas.controller.routing.override import Override


def rounds(of, steps, *, restart=frozenset(), twice=frozenset(), told=None):
    """Yield (now_ns, incidents, decision) of every step; restarts go through the form on disk."""
    incidents, memory, now_ns = Incidents(), Memory(), START_NS
    for number, step in enumerate(steps):
        now_ns += round(step.seconds * S)
        incidents.take(step, now_ns)
        heard = incidents.told() if told is None else told(incidents.told())
        decision = decide(memory, Round(of, now_ns, heard))
        if number in twice:
            decision = decide(decision.memory, Round(of, now_ns, heard))
        memory = memory_from(memory_text(decision.memory)) if number in restart else decision.memory
        yield now_ns, heard, decision


def healthy(of, route, kernel):
    return [r.name for r in of.replicas if r.kernel == kernel and r.name not in route.drained]


@given(FLEETS, STEPS)
def test_the_limits_hold_and_shares_sum_to_one(of, steps):
    limits = of.limits
    for _, _, decision in rounds(of, steps):
        for route in decision.routes:
            assert isclose(fsum(route.weights.values()), 1.0, abs_tol=1e-12)
            assert all(share > 0.0 for share in route.weights.values())
            assert fsum(v for k, v in route.weights.items() if k != "inference") <= (
                limits.share_moved_at_most + 1e-12
            )
            for kernel in {r.kernel for r in of.replicas}:
                size = sum(r.kernel == kernel for r in of.replicas)
                left = len(healthy(of, route, kernel))
                assert left >= min(size, limits.minimum_healthy)
                assert size - left <= limits.drained_at_most * size + 1e-9
            assert "reference" not in route.weights or any(r.kernel == "reference" for r in of.replicas)


@given(FLEETS, STEPS)
def test_every_round_renews_the_lease(of, steps):
    """By the clock as it is: set back, it does not lengthen one."""
    for now_ns, _, decision in rounds(of, steps):
        assert {r.valid_until_ns for r in decision.routes} == {now_ns + 60 * S}


@given(FLEETS, STEPS)
def test_nothing_is_done_for_what_is_silenced_from_its_beginning(of, steps):
    """Every incident is silenced: no share is moved, no replica out, no trainer held."""

    def hush(incidents):
        return tuple(replace(one, suppression=SILENCE) for one in incidents)

    for _, _, decision in rounds(of, steps, told=hush):
        for route in decision.routes:
            assert (route.weights, route.drained, route.holds) == ({"inference": 1.0}, frozenset(), {})


@settings(max_examples=25)
@given(FLEETS, STEPS)
def test_a_silence_moves_nothing_further(of, steps):
    """In a round in which all open incidents are silenced, nothing is moved that was not moved before."""
    before = None
    for _, heard, decision in rounds(of, steps):
        if before is not None and all(s.suppression or s.escalation.actions == () for s in heard):
            loud = any(not s.suppression and s.escalation.after.value == "recovering" for s in heard)
            for old, new in zip(before, decision.routes, strict=True):
                assert new.drained <= old.drained
                assert set(new.holds) <= set(old.holds)
                if not loud:  # a recovering one that is not silenced may lapse into the fail mode
                    assert new.weights.get("reference", 0.0) <= old.weights.get("reference", 0.0) + 1e-12
        before = decision.routes


@settings(max_examples=25)
@given(FLEETS, STEPS, st.sets(st.integers(0, 39)), st.sets(st.integers(0, 39)))
def test_restarts_and_repeats_change_nothing(of, steps, restart, twice):
    plain = [d for _, _, d in rounds(of, steps)]
    marred = [d for _, _, d in rounds(of, steps, restart=restart, twice=twice)]
    assert [d.routes for d in plain] == [d.routes for d in marred]
    assert [memory_text(d.memory) for d in plain] == [memory_text(d.memory) for d in marred]
    assert repr([d.routes for d in plain]) == repr([d.routes for _, _, d in rounds(of, steps)])
    for number in twice & set(range(len(steps))):
        assert marred[number].audit == ()  # the repeat had nothing to tell


@settings(max_examples=25)
@given(FLEETS, STEPS, st.randoms(use_true_random=False))
def test_the_order_of_incidents_does_not_matter(of, steps, random):
    def shuffled(incidents):
        mixed = list(incidents)
        random.shuffle(mixed)
        return tuple(mixed)

    assert [d.routes for _, _, d in rounds(of, steps)] == [
        d.routes for _, _, d in rounds(of, steps, told=shuffled)
    ]


@given(FLEETS, STEPS)
def test_only_the_detectors_lead_back(of, steps):
    """While an incident that moved something is not over, it is never brought back by time."""
    for now_ns, heard, decision in rounds(of, steps):
        later = decide(decision.memory, Round(of, now_ns + 10_000 * S, heard))
        still = {a.incident_id for a in later.memory.asks.values()}
        assert set(decision.memory.asks) == still
        for ask in decision.memory.asks.values():
            route = next(r for r in decision.routes if r.key.slice == "all")
            after = next(r for r in later.routes if r.key.slice == "all")
            if ask.replica in route.drained and (ask.drains or ask.share):
                assert ask.replica in after.drained
            assert set(ask.holds) & set(route.holds) <= set(after.holds)
            if ask.slice == "all" and ask.share:
                kept = min(ask.share, route.weights.get("reference", 0.0))
                assert after.weights.get("reference", 0.0) >= kept - 1e-12


HURRIED = [
    Step(seconds, key, life, actions, 100_000.0)
    for seconds in (0.5, 3.0)
    for key in range(len(SLICES) - 1)
    for life in ("fire", "recover", "resolve", "supersede")
    for actions in ((reroute(),), (reroute(0.5),))
]


@settings(max_examples=25)
@given(st.lists(st.sampled_from(HURRIED), min_size=60, max_size=120))
def test_an_adversary_cannot_make_it_flap(steps):
    """However verdicts alternate, dwell and time out bound how often anything comes back."""
    of = fleet()
    shares, outs, began_ns, ended_ns = {}, {}, START_NS, START_NS
    before = None
    for now_ns, _, decision in rounds(of, steps):
        ended_ns = now_ns
        for route in decision.routes:
            old = before[route.key.slice] if before else None
            if old and route.weights.get("reference", 0) < old.weights.get("reference", 0):
                shares[route.key.slice] = shares.get(route.key.slice, 0) + 1
        if before:
            for name in decision.routes[0].drained - before["all"].drained:
                outs[name] = outs.get(name, 0) + 1
        before = {r.key.slice: r for r in decision.routes}
    length_s = (ended_ns - began_ns) / S
    assert all(count <= length_s // of.limits.dwell_s for count in shares.values())
    for count in outs.values():
        served_s = sum(min(20.0 * n, 100.0) for n in range(1, count))  # each time out but the last was served
        assert served_s <= length_s


def test_the_worst_alternation_is_bounded_exactly():
    """Fire and resolve every second for 400 s: at most one move away and one back in 30 s."""
    of = fleet()
    steps = [
        Step(0.5, key, life, (reroute(),), 100_000.0)
        for _ in range(200)
        for life, key in (("fire", 0), ("fire", 2), ("resolve", 0), ("resolve", 2))
    ]
    routes = [d.routes[0] for _, _, d in rounds(of, steps)]
    moves = sum(a.weights != b.weights for a, b in pairwise(routes))
    ejections = sum(b.drained > a.drained for a, b in pairwise(routes))
    assert moves <= 2 * 400 // 30
    assert ejections == 6  # times out of 20, 40, 60, 80, 100 and 100 s: the last ends as the time does


@given(FLEETS, STEPS, st.sampled_from(("r1", "r2", "f1")), st.sampled_from((0.0, 0.4, 1.0)))
def test_a_person_wins_within_the_limits(of, steps, name, share):
    names = {r.name for r in of.replicas}
    weights = {"inference": 1.0 - share, "reference": share} if "f1" in names else {"inference": 1.0}
    order = Override(
        "o1",
        RouteKey("qwen3-8b"),
        "ana",
        "test",
        0,
        2 * START_NS,
        weights=weights,
        admit=frozenset({name} & names),
    )
    incidents, memory, now_ns = Incidents(), Memory(), START_NS
    for step in steps:
        now_ns += round(step.seconds * S)
        incidents.take(step, now_ns)
        decision = decide(memory, Round(of, now_ns, incidents.told(), (order,)))
        memory = decision.memory
        for route in decision.routes:
            assert name not in route.drained
            most = of.limits.share_moved_at_most
            assert isclose(
                route.weights.get("reference", 0.0), min(weights.get("reference", 0.0), most), abs_tol=1e-9
            )
