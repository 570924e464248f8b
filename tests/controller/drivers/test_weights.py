"""Shares as whole weights and back."""

from fleets import fleet_of, route
from hypothesis import given
from hypothesis import strategies as st

from paritas.controller.drivers.weights import TOTAL_WEIGHT, kernel_shares, replica_weights, whole

shares = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=9)


@given(shares, st.integers(1, 10_000))
def test_whole_weights_sum_to_the_total_and_are_less_than_one_off(given_shares, total):
    weights = whole(given_shares, total)
    mass = sum(given_shares)
    assert sum(weights) == (total if mass > 0.0 else 0)
    if mass > 0.0:
        off = [abs(w - s / mass * total) for w, s in zip(weights, given_shares, strict=True)]
        assert max(off) < 1.0 + 1e-6 * total


@given(st.floats(0.0, 1.0), st.sets(st.sampled_from(["r0", "r1"]), max_size=1))
def test_shares_survive_the_way_to_weights_and_back(inference, drained):
    fleet = fleet_of()
    weights = replica_weights(fleet, route(inference=inference, drained=drained))
    assert all(weights[name] == 0 for name in drained)
    assert abs(kernel_shares(fleet, weights)["inference"] - inference) <= 1.0 / TOTAL_WEIGHT


def test_a_kernel_without_a_replica_in_rotation_gives_its_share_to_the_other():
    weights = replica_weights(fleet_of(), route(inference=0.5, drained=("r0", "r1")))
    assert weights == {"r0": 0, "r1": 0, "ref": TOTAL_WEIGHT}


def test_nobody_in_rotation_has_no_weights_and_no_shares():
    weights = replica_weights(fleet_of(), route(drained=("r0", "r1", "ref")))
    assert set(weights.values()) == {0}
    assert kernel_shares(fleet_of(), weights) == {}
