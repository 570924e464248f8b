"""Records as others keep them: pickles name the package, and hold every field."""

import pickle
import pickletools

import numpy as np
import pytest
from wire_strategies import facts, full_trace, plain_trace

import paritas.records
from paritas.records import Finding, KernelIdentity, Reason, Role, State


@pytest.mark.parametrize("name", paritas.records.__all__)
def test_every_record_names_the_package_and_no_file_of_it(name):
    one = getattr(paritas.records, name)
    if isinstance(one, type):
        assert one.__module__ == "paritas.records"
        assert pickle.loads(pickle.dumps(one)) is one


@pytest.mark.parametrize("value", [State.VIOLATED, Reason.GAP, KernelIdentity(Role.TRAIN)], ids=str)
def test_values_survive_under_that_name(value):
    text = pickle.dumps(value)
    assert pickle.loads(text) == value
    modules = {arg for _, arg, _ in pickletools.genops(text) if str(arg).startswith("paritas")}
    assert modules == {"paritas.records"}


def test_a_trace_survives():
    assert facts(pickle.loads(pickle.dumps(full_trace()))) == facts(full_trace())


def test_a_rank_beside_the_others_keeps_its_type():
    trace = plain_trace(3, rank=np.array([1, 0, 4_000_000_000], np.uint32))
    assert pickle.loads(pickle.dumps(trace)).rank.tolist() == [1, 0, 4_000_000_000]


def test_a_frozen_record_stays_frozen():
    finding = Finding("shift", "all", 0.5, {}, "look")
    with pytest.raises(AttributeError):
        finding.cause = "other"
