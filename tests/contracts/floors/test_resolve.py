"""Limits relative to a floor: what binds, what is said of it, and which floors are refused."""

import pytest
from floor_cases import CONTRACT, VALUES, contract, floor
from hypothesis import given
from hypothesis import strategies as st

from paritas.contracts.dump import canonical_json
from paritas.contracts.floors import FloorValue, floor_notes, with_floors
from paritas.contracts.load import load_text
from paritas.errors import UsageError

AGAIN = "\n  hint: measure it again: paritas floor measure"


def refused(*floors, text=CONTRACT):
    with pytest.raises(UsageError) as caught:
        with_floors(contract(text), [(f"{i}.json", one) for i, one in enumerate(floors)])
    return caught.value.render()


def test_the_smaller_of_floor_and_ceiling_binds_and_is_told():
    bound = with_floors(contract(), [("aa.json", floor())])
    assert [c.at_most for c in bound.clauses] == [pytest.approx(0.015), 0.01, pytest.approx(0.1)]
    assert floor_notes(bound) == (
        "token-tv: 1.5 times the floor aa of 0.01 binds: 0.015",
        "tail: 2 times the floor aa of 0.02 is above its ceiling, which binds: 0.01",
        "bias: 2 times the floor aa of 0.05 binds: 0.1",
    )


@given(st.floats(1e-6, 0.2))
def test_a_limit_never_passes_its_ceiling(upper):
    one = floor(values=(FloorValue("tv", {}, 0.0, upper, 9, 9), *VALUES[1:]))
    (tv, *_) = with_floors(contract(), [("aa.json", one)]).clauses
    assert tv.at_most == min(1.5 * upper, 0.04)


def test_without_a_floor_the_ceiling_binds_and_it_is_said():
    plain = contract()
    assert with_floors(plain, []).digest == plain.digest
    assert floor_notes(plain)[0] == "token-tv: no floor aa was given, so its ceiling 0.04 binds"


def test_the_digest_is_that_of_the_new_limits_and_the_contract_loads_again():
    bound = with_floors(contract(), [("aa.json", floor())])
    assert bound.digest != contract().digest
    again = load_text(canonical_json(bound), "again.json")
    assert [c.at_most for c in again.clauses] == [c.at_most for c in bound.clauses]


def test_a_lower_limit_keeps_its_ceiling():
    text = CONTRACT + "  # more\n"
    text = CONTRACT.replace(
        "    statistical:\n",
        "    observability:\n      - {id: paired, statistic: pairing_rate, at_least: {floor: aa, times: 1, ceiling: 0.99}}\n"
        "    statistical:\n",
    )
    bound = with_floors(contract(text), [("aa.json", floor())])
    assert bound.clause("paired").at_least == 0.99
    assert "paired: a floor makes upper limits only, so its ceiling 0.99 binds" in floor_notes(bound)


def test_the_estimator_of_the_budget_is_part_of_what_was_measured():
    text = CONTRACT.replace(
        "  clauses:\n",
        "  budget: {gradient_bias: 0.4, estimator: {kind: mis, cap: 3.0, low: 0.5}}\n  clauses:\n",
        1,
    )
    assert "holds no gradient_bias (cap 3.0, estimator mis, low 0.5)" in refused(floor(), text=text)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"kernel": {"engine": "torch", "dtype": "bfloat16", "batch_invariant": False}},
            "[usage] 0.json: the floor aa is of another kernel: dtype was bfloat16, the contract declares float32"
            + AGAIN,
        ),
        (
            {"kernel": {"engine": "torch", "dtype": "float32"}},
            "[usage] 0.json: the floor aa is of another kernel: batch_invariant was not reported, the contract declares false"
            + AGAIN,
        ),
        (
            {"model": "large"},
            "[usage] 0.json: the floor aa is of the model large, the contract's policy is small" + AGAIN,
        ),
        (
            {"role": "inference"},
            (
                "[usage] 0.json: the contract declares no inference kernel, so nothing says that the floor aa is of its kernel\n"
                "  hint: declare it under spec.kernels.inference"
            ),
        ),
        (
            {"name": "bb"},
            (
                "[usage] 0.json: no clause of mine names the floor bb\n"
                "  hint: write at_most: {floor: bb, times: 1.5, ceiling: …}"
            ),
        ),
        (
            {"values": VALUES[1:]},
            (
                "[usage] 0.json: the floor aa holds no tv, which clause token-tv asks of it\n"
                "  hint: measure the floor with this contract: paritas floor measure"
            ),
        ),
        (
            {"values": (VALUES[0], FloorValue("ratio_tail", {"above": 4.0}, 0.0, 0.1, 9, 9))},
            (
                "[usage] 0.json: the floor aa holds no ratio_tail (above 2.0), which clause tail asks of it\n"
                "  hint: measure the floor with this contract: paritas floor measure"
            ),
        ),
    ],
)
def test_another_floor_is_refused_with_one_clear_error(more, text):
    assert refused(floor(**more)) == text


def test_one_name_twice_is_refused():
    told = refused(floor(), floor())
    assert told == "[usage] 1.json: a floor aa is also in 0.json\n  hint: give each floor once"


@pytest.mark.parametrize(
    ("clause", "hint"),
    [
        (
            "{id: k, statistic: kl_k3, at_most: {floor: aa, times: 2, ceiling: 1}}",
            "kl_k3 is unbounded and has no valid upper limit: write an absolute limit",
        ),
    ],
)
def test_an_unbounded_statistic_has_no_floor(clause, hint):
    told = refused(floor(), text=CONTRACT + f"      - {clause}\n")
    assert told == f"[usage] 0.json: the floor aa holds no kl_k3, which clause k asks of it\n  hint: {hint}"


def test_a_quantile_has_no_floor():
    quantile = "{id: ttft, statistic: time_to_first_token, quantile: 0.9, at_most: {floor: aa, times: 2, ceiling: 1s}}"
    told = refused(floor(), text=CONTRACT + f"    runtime:\n      - {quantile}\n")
    assert told.endswith("\n  hint: a floor is a mean: a quantile takes an absolute limit")
