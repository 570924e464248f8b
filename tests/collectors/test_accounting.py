"""Every token in one status, every problem under one reason."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.collectors import Accounting
from paritas.collectors.dumps import Problem, ProblemReason
from paritas.records import KernelIdentity, Role, TokenStatus, TokenTrace

STATUSES = st.lists(st.sampled_from(TokenStatus), max_size=12)


def trace(statuses, role=Role.TRAIN) -> TokenTrace:
    n = len(statuses)
    return TokenTrace(
        "run",
        "s",
        KernelIdentity(role),
        np.zeros(n, np.float32),
        np.zeros(n, np.uint64),
        np.array(statuses, np.uint8),
    )


ITEMS = st.lists(
    st.builds(trace, STATUSES, st.sampled_from(Role))
    | st.builds(Problem, st.just("f"), st.integers(0, 9), st.sampled_from(ProblemReason), st.just("m")),
    max_size=8,
)


def account(items) -> Accounting:
    accounting = Accounting()
    for item in items:
        accounting.add(item)
    return accounting


def test_as_dict() -> None:
    items = [
        trace([TokenStatus.VALID, TokenStatus.VALID, TokenStatus.POSITIVE]),
        trace([], Role.TRAIN),
        trace([TokenStatus.MISSING], Role.INFERENCE),
        Problem("f", 2, ProblemReason.BAD_JSON, "not JSON"),
        Problem("f", 3, ProblemReason.BAD_JSON, "not JSON"),
    ]
    none = dict.fromkeys((status.name.lower() for status in TokenStatus), 0)
    assert account(items).as_dict() == {
        "kernels": {
            "train": {"sequences": 2, "tokens": 3, "status": {**none, "valid": 2, "positive": 1}},
            "inference": {"sequences": 1, "tokens": 1, "status": {**none, "missing": 1}},
        },
        "problems": {"bad_json": 2},
    }


@given(ITEMS)
@settings(deadline=None, max_examples=60)
def test_counts_add_up(items) -> None:
    accounting = account(items)
    traces = [item for item in items if isinstance(item, TokenTrace)]
    assert accounting.balanced
    assert sum(role.tokens for role in accounting.roles.values()) == sum(map(len, traces))
    assert sum(role.sequences for role in accounting.roles.values()) == len(traces)
    assert sum(accounting.problems.values()) == len(items) - len(traces)
    for status in TokenStatus:
        told = sum(int(role.by_status[status]) for role in accounting.roles.values())
        assert told == sum(item.counts()[status] for item in traces)
    json.dumps(accounting.as_dict(), allow_nan=False)


@given(ITEMS, ITEMS)
@settings(deadline=None, max_examples=40)
def test_merge_equals_adding_all(left, right) -> None:
    merged, other = account(left), account(right)
    before = other.as_dict()
    merged.merge(other)
    assert merged.as_dict() == account([*left, *right]).as_dict()
    merged.merge(other)
    assert other.as_dict() == before  # the other one is only read


def test_an_imbalance_shows() -> None:
    accounting = account([trace([TokenStatus.VALID])])
    accounting.roles[Role.TRAIN].tokens += 1
    assert not accounting.balanced


@pytest.mark.parametrize("role", Role)
def test_each_role_has_its_own_counts(role: Role) -> None:
    assert list(account([trace([TokenStatus.VALID], role)]).roles) == [role]
