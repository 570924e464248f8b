"""Kernel identity: declared against reported."""

import pickle

import pytest

from paritas.detectors.identity import IdentityLog
from paritas.records import KernelIdentity, Reason, Role, State

DECLARED = {
    Role.INFERENCE: {"dtype": "bfloat16", "tp": 2, "batch_invariant": True, "extra.build": "abc"},
    Role.TRAIN: {"dtype": "float32"},
}
MATCHING = KernelIdentity(
    Role.INFERENCE, dtype="bfloat16", tp=2, batch_invariant=True, extra={"build": "abc"}
)
TRAIN = KernelIdentity(Role.TRAIN, dtype="float32")


def verdict_of(*kernels, declared=DECLARED):
    log = IdentityLog(declared)
    for kernel in kernels:
        log.note(kernel)
    return log.verdict()


def test_nothing_reported_is_no_data():
    assert verdict_of() == (State.NO_DATA, Reason.NOT_REPORTED, "")


def test_nothing_declared_is_no_data():
    assert verdict_of(MATCHING, TRAIN, declared={}) == (State.NO_DATA, Reason.NOT_REPORTED, "")


def test_equal_fields_conform():
    assert verdict_of(MATCHING, TRAIN) == (State.CONFORMING, Reason.MATCHED, "")


def test_a_role_that_declares_nothing_is_not_looked_at():
    assert verdict_of(MATCHING, KernelIdentity(Role.REFERENCE, dtype="int4"))[0] is State.CONFORMING


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"dtype": "float16"}, "inference.dtype is 'float16', declared 'bfloat16'"),
        ({"tp": 4}, "inference.tp is '4', declared '2'"),
        ({"batch_invariant": False}, "inference.batch_invariant is 'false', declared 'true'"),
        ({"extra": {"build": "abd"}}, "inference.extra.build is 'abd', declared 'abc'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_one_other_value_violates_for_good(change, detail):
    fields = {"dtype": "bfloat16", "tp": 2, "batch_invariant": True, "extra": {"build": "abc"}, **change}
    other = KernelIdentity(Role.INFERENCE, **fields)
    assert verdict_of(MATCHING, other, MATCHING, TRAIN) == (State.VIOLATED, Reason.DIFFERS, detail)


def test_a_field_nobody_reports_is_undecided_not_equal():
    silent = KernelIdentity(Role.INFERENCE, dtype="bfloat16", tp=2)
    assert verdict_of(silent, TRAIN) == (State.UNDECIDED, Reason.NOT_REPORTED, "")


def test_a_difference_outweighs_what_is_not_reported():
    silent = KernelIdentity(Role.INFERENCE, dtype="float16")
    assert verdict_of(silent)[0] is State.VIOLATED


def test_undeclared_fields_do_not_matter():
    told = KernelIdentity(Role.TRAIN, dtype="float32", gpu="anything", engine="any")
    assert verdict_of(MATCHING, told)[0] is State.CONFORMING


def test_the_log_survives_a_restart():
    log = IdentityLog(DECLARED)
    log.note(MATCHING)
    assert pickle.loads(pickle.dumps(log)).verdict() == log.verdict()
