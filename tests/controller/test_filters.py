"""A subscriber's filter against the records it speaks of."""

from hypothesis import given
from hypothesis import strategies as st

from paritas.controller.filters import Filter, wants
from paritas.controller.model import Subject
from paritas.records import Severity

NAMES = st.sampled_from(["a", "b", "c"])
SETS = st.frozensets(NAMES)
SUBJECTS = st.builds(
    Subject,
    contract=NAMES,
    clause=NAMES,
    slice=NAMES,
    policy=NAMES,
    severity=st.sampled_from(Severity),
)
ORDER = [Severity.INFO, Severity.WARNING, Severity.CRITICAL]


@given(SUBJECTS)
def test_an_empty_filter_wants_everything(subject):
    assert wants(Filter(), subject)


@given(SUBJECTS, SETS, SETS, SETS, SETS, st.sampled_from(Severity))
def test_a_filter_is_the_conjunction_of_its_parts(subject, contracts, clauses, slices, policies, severity):
    whole = Filter(contracts, clauses, slices, policies, severity)
    parts = (
        not contracts or subject.contract in contracts,
        not clauses or subject.clause in clauses,
        not slices or subject.slice in slices,
        not policies or subject.policy in policies,
        ORDER.index(subject.severity) >= ORDER.index(severity),
    )
    assert wants(whole, subject) is all(parts)
