"""The account of a writer balances whatever happens in whatever order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.agent.eventlog import GapReason, SkipReason
from paritas.agent.eventlog.ledger import Ledger
from paritas.errors import UsageError

STEPS = st.lists(
    st.one_of(
        st.just(("accept",)),
        st.tuples(st.just("release"), st.integers(0, 30), st.dictionaries(st.sampled_from(SkipReason), st.integers(0, 9))),
        st.tuples(st.just("drop"), st.integers(0, 30), st.sampled_from(GapReason)),
    ),
    max_size=40,
)  # fmt: skip


@given(st.integers(0, 10), st.integers(0, 10), STEPS)
@settings(deadline=None)
def test_recovered_and_accepted_are_delivered_dropped_or_queued(head, more, steps):
    ledger = Ledger(head_seq=head, next_seq=head + more)
    for step in steps:
        match step:
            case ("accept",):
                ledger.accept()
            case ("release", below, skipped):
                ledger.release(min(below, ledger.next_seq), skipped=skipped)
            case ("drop", below, reason):
                ledger.drop_below(min(below, ledger.next_seq), reason)
        gone = ledger.delivered + sum(ledger.dropped.values())
        assert ledger.recovered + ledger.accepted == gone + ledger.queued
        assert min(ledger.queued, ledger.delivered, *ledger.dropped.values(), 0) == 0


def test_what_a_reader_skipped_is_dropped_not_delivered():
    ledger = Ledger(head_seq=0, next_seq=10)
    ledger.release(6, skipped={SkipReason.CORRUPT: 2})
    assert (ledger.delivered, dict(ledger.dropped), ledger.queued) == (4, {"corrupt": 2}, 4)


def test_what_was_dropped_before_its_release_is_counted_once():
    ledger = Ledger(head_seq=0, next_seq=10)
    assert ledger.drop_below(4, GapReason.OVERFLOW) == range(4)
    ledger.release(6, skipped={SkipReason.EXPIRED: 4})
    assert (ledger.delivered, ledger.dropped["overflow"], ledger.queued) == (0, 4, 4)


def test_numbers_that_were_never_given_cannot_be_released():
    with pytest.raises(UsageError, match="cannot release up to 3: only 2 numbers were given"):
        Ledger(head_seq=0, next_seq=2).release(3, skipped={})
