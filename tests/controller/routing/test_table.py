"""Which kernel a request gets: by its slice, by its key, by the lease."""

from hypothesis import given
from hypothesis import strategies as st
from routing_scenes import START_NS, S, fleet

from paritas.controller.routing.lease import effective
from paritas.controller.routing.model import FailMode, Route, RouteKey, Why
from paritas.controller.routing.table import resolve, table_of

KEYS = [f"session-{n}" for n in range(500)]


def table(share=0.5, of=None, slices=None, **changes):
    of = of or fleet(slices=slices or {})
    weights = {"inference": 1.0 - share, "reference": share}
    values = {"weights": weights, "valid_until_ns": START_NS + 60 * S, "revision": 1}
    return table_of(
        of, [Route(RouteKey(of.policy, name), **{**values, **changes}) for name in ("all", *of.slices)]
    )


def to_reference(found):
    return {key for key in KEYS if resolve(found, {}, key, now_ns=START_NS).kernel == "reference"}


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_growing_share_only_takes_keys_and_gives_none_back(one, other):
    small, large = sorted((one, other))
    assert to_reference(table(small)) <= to_reference(table(large))


@given(st.floats(0.0, 1.0))
def test_the_share_of_keys_is_the_share(share):
    assert abs(len(to_reference(table(share))) / len(KEYS) - share) < 0.1


def test_all_or_nothing_is_exact():
    assert to_reference(table(0.0)) == set()
    assert to_reference(table(1.0)) == set(KEYS)


def test_the_slice_with_the_most_headers_wins():
    slices = {"math": {"x-task": "math"}, "long": {"x-task": "math", "x-long": "1"}}
    found = table(slices=slices)
    for attributes, name in (
        ({}, "all"),
        ({"x-task": "code"}, "all"),
        ({"x-task": "math"}, "math"),
        ({"x-task": "math", "x-long": "1", "x-other": "2"}, "long"),
    ):
        assert resolve(found, attributes, "k", now_ns=START_NS).slice == name


def test_the_replicas_in_rotation_come_along():
    found = table(0.0, drained=frozenset({"r2"}))
    assert [r.name for r in resolve(found, {}, "k", now_ns=START_NS).replicas] == ["r1", "r3", "r4"]


def test_a_lease_that_ended_is_the_fail_mode():
    hold = resolve(table(0.0), {}, "k", now_ns=START_NS + 60 * S)
    assert (hold.kernel, hold.why, hold.valid_for_s) == ("inference", "lease_expired", 0.0)
    of = fleet(slices={}, fail_mode=FailMode.FALLBACK)
    assert resolve(table(0.0, of), {}, "k", now_ns=START_NS + 60 * S).kernel == "reference"
    assert resolve(table(0.0, of), {}, "k", now_ns=START_NS + 60 * S - 1).kernel == "inference"


def test_everybody_falls_to_the_same_fail_mode():
    for mode in FailMode:
        of = fleet(fail_mode=mode)
        route = Route(RouteKey(of.policy), {"inference": 1.0}, valid_until_ns=START_NS)
        late = effective(route, of, now_ns=START_NS)
        assert late.weights == table_of(of, [route]).routes[0].fallback
        assert (late.why, late.detail) == (
            Why.LEASE_EXPIRED,
            f"the controller has not renewed this route: {mode.value}",
        )


def test_a_fleet_without_a_reference_has_nothing_to_fall_back_to():
    of = fleet(reference=0, fail_mode=FailMode.FALLBACK)
    route = Route(RouteKey(of.policy), {"inference": 1.0})
    assert effective(route, of, now_ns=1).weights == {"inference": 1.0}
