"""The account of one stream: nothing is counted twice, nothing is forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from paritas.agent.account import Account, Totals
from paritas.agent.reasons import DropReason

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["accept", "take", "lose", "overflow", "settle", "give_back"]),
        st.integers(0, 6),
    ),
    max_size=60,
)


def holds(account):
    told = account.totals()
    assert told.accepted == told.delivered + sum(told.dropped.values()) + told.queued
    assert min(told.delivered, told.queued, *told.dropped.values(), 0) == 0
    settled = account.settled()
    assert account.head_seq == settled.delivered + sum(settled.dropped.values())
    return told


def walk(account, steps):
    """Apply steps as a spool would: never more than there is."""
    flight_end = lost_end = account.head_seq
    for step, amount in steps:
        if step == "accept":
            account.accept()
        elif step == "take" and not account.has_in_flight:
            flight_end = min(account.head_seq + amount, account.next_seq)
            account.take(flight_end)
            lost_end = account.head_seq
        elif step == "lose" and account.has_in_flight:
            start = max(lost_end, account.head_seq)
            lost_end = min(start + amount, flight_end)
            account.lose(range(start, lost_end), DropReason.CORRUPT)
        elif step == "overflow":
            account.overflow(min(account.head_seq + amount, account.next_seq))
        elif step == "settle":
            account.settle(account.head_seq + amount)
        elif step == "give_back":
            account.give_back()
        holds(account)


@given(STEPS)
def test_the_invariant_holds_after_every_step_and_over_a_restart(steps):
    account = Account(head_seq=0, next_seq=0)
    walk(account, steps)
    saved = account.settled()
    again = Account(
        head_seq=account.head_seq,
        next_seq=account.next_seq,
        delivered=saved.delivered,
        dropped=saved.dropped,
    )
    told = holds(again)
    assert told.accepted == account.totals().accepted
    assert told.delivered == account.totals().delivered
    walk(again, steps)


def test_what_is_in_flight_survives_an_overflow():
    account = Account(head_seq=0, next_seq=10)
    account.take(5)
    assert account.overflow(3) == range(5, 5)
    assert account.overflow(8) == range(5, 8)
    account.settle(5)
    assert account.totals() == Totals(10, 5, {"overflow": 3}, 2)


def test_what_is_given_back_and_gone_from_disk_is_an_overflow():
    account = Account(head_seq=0, next_seq=10)
    account.take(5)
    account.lose(range(1, 2), DropReason.CORRUPT)
    account.overflow(3)
    account.give_back()
    assert account.totals() == Totals(10, 0, {"overflow": 3}, 7)
    assert account.head_seq == 3


def test_totals_of_two_streams_add_up():
    one, two = Totals(3, 1, {"overflow": 2}), Totals(4, 1, {"overflow": 1, "corrupt": 1}, 1)
    assert one + two == Totals(7, 2, {"corrupt": 1, "overflow": 3}, 1)
