"""The log: order, batches, snapshots, acknowledgements, and what compaction leaves."""

import pytest
from escalation_examples import drafts, escalation

from paritas.controller.compaction import IDS_PER_EVENT, Retention
from paritas.controller.convert import escalation_of
from paritas.controller.model import Draft, EventKind, Subject
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.store import Store
from paritas.errors import TransientError, UsageError
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Phase, Severity

S = 1_000_000_000


def numbers(events):
    return [event.seq for event in events]


def ids(events):
    return [event.event_id for event in events]


def current(row):
    return escalation_of(pb.Escalation.FromString(row.payload))


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "log.db", retention=Retention(events=10, age_s=100)) as store:
        yield store


def test_entries_come_back_in_order_and_once(store):
    first = store.append(drafts(escalation(1), escalation(2)), now_ns=5)
    again = store.append(drafts(escalation(2), escalation(3), escalation(3)), now_ns=6)
    assert (numbers(first.events), first.duplicates) == ([1, 2], 0)
    assert (numbers(again.events), again.duplicates) == ([3], 2)
    assert store.read(after=0, limit=10) == [*first.events, *again.events]
    assert numbers(store.read(after=1, limit=1)) == [2]
    assert [event.received_ns for event in store.read(after=0, limit=10)] == [5, 5, 6]


def test_it_survives_closing(tmp_path):
    path = tmp_path / "log.db"
    with Store(path, retention=Retention()) as store:
        told = store.append(drafts(escalation(1)), now_ns=5).events
        store.ack("router", seq=1, now_ns=6)
        epoch = store.epoch
    store.close()
    with Store(path, retention=Retention()) as store:
        assert (store.read(after=0, limit=9), store.acked("router"), store.epoch) == ([*told], 1, epoch)
        assert store.append(drafts(escalation(1)), now_ns=7).duplicates == 1


def test_a_batch_is_all_or_nothing(store):
    good, bad = drafts(escalation(1))[0], Draft(EventKind.ESCALATION, "x", payload=None)
    with pytest.raises(RefusalError) as caught:
        store.append([good, bad], now_ns=1)
    assert caught.value.reason is Refused.DAMAGED
    assert store.read(after=0, limit=9) == []
    assert store.append([good], now_ns=1).duplicates == 0


def test_a_snapshot_is_the_open_incidents_at_a_number(store):
    store.append(
        drafts(
            escalation(1, incident_id="a"),
            escalation(1, incident_id="b"),
            escalation(2, incident_id="a"),
            escalation(2, incident_id="b", after=Phase.RESOLVED),
        ),
        now_ns=5,
    )
    seq, rows = store.snapshot()
    assert (seq, [current(row).event_id for row in rows]) == (4, ["a/2"])
    everything = store.incidents(after=0, limit=9, include_closed=True)
    assert [(row.subject.incident_id, row.open) for row in everything] == [("a", True), ("b", False)]
    assert store.incident("nobody") is None


def test_a_late_transition_is_logged_but_does_not_turn_state_back(store):
    store.append(drafts(escalation(2, after=Phase.RESOLVED), escalation(1)), now_ns=5)
    row = store.incident("incident-1")
    assert (current(row).transition, row.open) == (2, False)
    assert ids(store.incident_events("incident-1", limit=9)) == ["incident-1/2", "incident-1/1"]


def test_a_renewal_takes_the_place_of_its_transition_and_not_of_a_later_one(store):
    renewed = escalation(1, event_id="again", valid_until_ns=2 * 10**18)
    store.append(drafts(escalation(1), renewed), now_ns=5)
    (row,) = store.snapshot()[1]
    assert current(row).valid_until_ns == 2 * 10**18
    store.append(drafts(escalation(2), escalation(1, event_id="late")), now_ns=6)
    (row,) = store.snapshot()[1]
    assert current(row).transition == 2


def test_severity_is_the_worst_so_far(store):
    steps = (Severity.WARNING, Severity.CRITICAL, Severity.INFO)
    told = store.append(drafts(*(escalation(i, severity=s) for i, s in enumerate(steps, 1))), now_ns=5)
    worst = [event.subject.severity for event in told.events]
    assert worst == [Severity.WARNING, Severity.CRITICAL, Severity.CRITICAL]
    assert store.incident("incident-1").subject.severity is Severity.CRITICAL


def test_acks_only_go_forward(store):
    assert store.acked("router") is None
    store.nack("router", event_id="e", error="no route", now_ns=1)
    assert store.acked("router") is None
    for seq in (3, 7, 5):
        store.ack("router", seq=seq, now_ns=1)
    assert (store.acked("router"), store.acked("other")) == (7, None)


def test_nacks_are_counted_and_the_last_is_kept(store):
    for name in "ab":
        store.nack("router", event_id=name, error=f"error {name}", now_ns=1)
    row = store._db.execute("SELECT nacks, nacked_event_id, nack_error FROM subscribers").fetchone()
    assert tuple(row) == (2, "b", "error b")


def test_the_latest_entries_of_an_incident(store):
    store.append(drafts(*(escalation(i) for i in range(1, 6))), now_ns=5)
    assert ids(store.incident_events("incident-1", limit=2)) == ["incident-1/4", "incident-1/5"]


def test_pages_of_incidents(store):
    store.append(drafts(*(escalation(1, incident_id=name) for name in "abc")), now_ns=5)
    page = store.incidents(after=0, limit=2, include_closed=False)
    rest = store.incidents(after=page[-1].opened_seq, limit=2, include_closed=False)
    assert [row.subject.incident_id for row in page + rest] == ["a", "b", "c"]


# Compaction


def fill(store, count, *, now_ns=5, first=1):
    """Append `count` resolved incidents, one entry each."""
    for number in range(first, first + count):
        event = escalation(1, incident_id=f"i{number}", after=Phase.RESOLVED)
        store.append(drafts(event), now_ns=now_ns)


def test_the_log_is_cut_a_tenth_over_its_count(store):
    fill(store, 11)
    assert store.bounds() == (0, 11)
    fill(store, 1, first=12)
    assert store.bounds() == (2, 12)
    assert numbers(store.read(after=2, limit=99)) == list(range(3, 13))


def test_what_was_cut_is_out_of_range_and_so_is_what_is_ahead(store):
    fill(store, 12)
    for after in (1, 13):
        with pytest.raises(RefusalError) as caught:
            store.read(after=after, limit=1)
        assert caught.value.reason is Refused.OUT_OF_RANGE
        assert str(caught.value) == f"token: {after} is outside the log, which holds 2 to 12"


def test_age_cuts_too(store):
    fill(store, 3, now_ns=10 * S)
    fill(store, 2, now_ns=60 * S, first=4)
    assert store.compact(now_ns=110 * S) == 0
    assert store.compact(now_ns=111 * S) == 3
    assert store.compact(now_ns=500 * S) == 5
    assert (store.bounds(), store.read(after=5, limit=9)) == ((5, 5), [])


def test_numbers_go_on_after_everything_was_cut(store):
    fill(store, 3, now_ns=1)
    store.compact(now_ns=500 * S)
    assert numbers(store.append(drafts(escalation(1)), now_ns=500 * S).events) == [4]


def test_an_open_incident_keeps_its_last_transition_whatever_its_age(store):
    store.append(drafts(escalation(1, incident_id="open")), now_ns=1)
    fill(store, 30, now_ns=1)
    store.compact(now_ns=500 * S)
    assert [current(row).event_id for row in store.snapshot()[1]] == ["open/1"]
    assert store.incident_events("open", limit=9) == []
    assert store.incident("i1") is None


def test_a_repeat_is_known_after_its_entry_was_cut_and_forgotten_much_later(store):
    fill(store, 12)
    assert (
        store.append(drafts(escalation(1, incident_id="i1", after=Phase.RESOLVED)), now_ns=5).duplicates == 1
    )
    fill(store, 12 * IDS_PER_EVENT, first=13)
    known = store._db.execute("SELECT count(*) FROM event_ids").fetchone()[0]
    assert known <= 10 * IDS_PER_EVENT + 2


def test_ended_silences_and_lost_subscribers_are_forgotten(store):
    for name, ends_ns in (("old", 10), ("new", 490 * S)):
        draft = Draft(EventKind.SILENCE, name, name.encode(), Subject(), silence_id=name, ends_ns=ends_ns)
        store.append([draft], now_ns=1)
    store.ack("lost", seq=1, now_ns=1)
    store.ack("here", seq=1, now_ns=490 * S)
    store.compact(now_ns=500 * S)
    assert store.silences() == [b"new"]
    assert (store.silence("old"), store.silence("new")) == (None, b"new")
    assert (store.acked("lost"), store.acked("here")) == (None, 1)


def test_a_log_that_keeps_nothing_is_refused():
    with pytest.raises(UsageError) as caught:
        Retention(events=0)
    assert str(caught.value) == "retention.events: must be positive, got 0"


def test_a_full_disk_is_transient_and_nothing_is_half_written(store):
    store.append(drafts(escalation(1)), now_ns=1)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    big = drafts(escalation(2), escalation(3, summary="x" * 100_000))
    with pytest.raises(TransientError) as caught:
        store.append(big, now_ns=2)
    assert str(caught.value) == f"escalation log {str(store._path)!r}: database or disk is full"
    assert ids(store.read(after=0, limit=9)) == ["incident-1/1"]
    store._db.execute("PRAGMA max_page_count = 10000")
    assert numbers(store.append(big, now_ns=3).events) == [2, 3]
