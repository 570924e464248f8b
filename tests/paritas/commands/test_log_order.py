"""The one order of a log: by time over all partitions, whatever the batches, never past what is hidden."""

from collections import Counter

import pytest

from paritas.agent.eventlog import Batch, Position, SkipReason, Stored
from paritas.commands.log_order import LogOrder
from paritas.wire import Gap, WireRecord

TIMES = {0: [1, 4, 4, 9, 12], 1: [2, 4, 5, 6, 30], 2: []}
EXPECTED = sorted((t, p, o) for p, times in TIMES.items() for o, t in enumerate(times))


class Log:
    """A log in memory; partitions in `slow` say nothing though they hold records."""

    def __init__(self, times, slow=()):
        self.times, self.slow = {p: list(ts) for p, ts in times.items()}, set(slow)

    def read(self, partition, offset, *, limit):
        times = [] if partition in self.slow else self.times[partition][offset : offset + limit]
        stored = (
            Stored(Position(partition, offset + i), WireRecord(b"", b""), t) for i, t in enumerate(times)
        )
        return Batch(tuple(stored), offset + len(times))

    def end_offsets(self):
        return {p: len(ts) for p, ts in self.times.items()}


def place(stored):
    return stored.appended_ns, stored.position.partition, stored.position.offset


def read_all(order):
    found = []
    while step := [place(stored) for stored in order.records()]:
        found += step
    return found


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_records_come_in_the_order_of_their_times_whatever_the_batch(batch):
    order = LogOrder(Log(TIMES), dict.fromkeys(TIMES, 0), batch=batch)
    assert read_all(order) == EXPECTED
    assert order.positions == {0: 5, 1: 5, 2: 0}
    assert order.at_end()


def test_a_restart_at_any_record_goes_on_with_the_next():
    for cut in range(len(EXPECTED) + 1):
        log, order = Log(TIMES), LogOrder(Log(TIMES), dict.fromkeys(TIMES, 0), batch=3)
        found, handed = [], (place(s) for _ in range(9) for s in order.records())
        for one in handed:
            if len(found) == cut:  # this one was handed out, but its reader died
                break
            found.append(one)
        assert found + read_all(LogOrder(log, order.positions, batch=3)) == EXPECTED


def test_a_partition_that_hides_records_holds_back_the_others():
    log = Log(TIMES, slow=[1])
    order = LogOrder(log, dict.fromkeys(TIMES, 0), batch=100)
    assert list(order.records()) == []
    assert order.positions == dict.fromkeys(TIMES, 0)
    assert not order.at_end()
    log.slow.clear()
    assert read_all(order) == EXPECTED


def test_what_is_appended_after_the_end_is_not_read():
    log = Log(TIMES)
    order = LogOrder(log, dict.fromkeys(TIMES, 0), batch=2, ends=log.end_offsets())
    log.times[0].append(3)
    log.times[2].append(3)
    assert read_all(order) == EXPECTED
    assert order.at_end()


def test_positions_follow_the_records_one_by_one():
    order = LogOrder(Log(TIMES), dict.fromkeys(TIMES, 0), batch=100)
    seen = []
    for stored in order.records():
        assert order.positions[stored.position.partition] == stored.position.offset  # not yet: it may fail
        seen.append(place(stored))
        if len(seen) == 4:
            break
    assert seen == EXPECTED[:4]


class DamagedLog(Log):
    """A log in which some offsets gave no record, as `why` says."""

    def __init__(self, times, why):
        super().__init__(times)
        self.why = why

    def read(self, partition, offset, *, limit):
        seen = range(offset, min(offset + limit, len(self.times[partition])))
        lost = [o for o in seen if (partition, o) in self.why]
        stored = (
            Stored(Position(partition, o), WireRecord(b"", b""), self.times[partition][o])
            for o in seen
            if o not in lost
        )
        return Batch(tuple(stored), offset + len(seen), Counter(self.why[partition, o] for o in lost))


def told(order):
    """What is handed out, with the holes told before it; then the holes that nothing follows."""
    found = []
    while not order.at_end():
        found += [(place(stored), taken(order)) for stored in order.records()]
    return found, order.untold()


def taken(order):
    gaps, order.gaps = order.gaps, []
    return gaps


DAMAGE = {
    (0, 0): SkipReason.EXPIRED,
    (0, 1): SkipReason.EXPIRED,
    (0, 3): SkipReason.CORRUPT,
    (1, 2): SkipReason.CORRUPT,
    (1, 3): SkipReason.CORRUPT,
    (1, 4): SkipReason.CORRUPT,
}


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_a_hole_is_told_just_before_what_follows_it_whatever_the_batch(batch):
    order = LogOrder(DamagedLog(TIMES, DAMAGE), dict.fromkeys(TIMES, 0), batch=batch)
    found, at_end = told(order)
    lost = {
        (4, 0, 2): [(0, 1)],
        (12, 0, 4): [(3, 3)],
    }
    assert {where: [(g.first_seq, g.last_seq) for g in gaps] for where, gaps in found if gaps} == lost
    assert at_end == [Gap("log/1", 2, 4, "corrupt")]
    assert [where for where, _ in found] == [e for e in EXPECTED if (e[1], e[2]) not in DAMAGE]
    assert order.skipped == {"expired": 2, "corrupt": 4}
    assert order.at_end()


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_a_restart_meets_a_hole_again_that_nobody_was_told_of(batch):
    log = DamagedLog(TIMES, DAMAGE)
    before = LogOrder(log, dict.fromkeys(TIMES, 0), batch=batch)
    while not before.at_end():
        list(before.records())
    assert before.positions[1] == 2
    after = LogOrder(log, before.positions, batch=batch)
    assert told(after) == ([], [Gap("log/1", 2, 4, "corrupt")])


def test_the_marker_of_a_transaction_is_counted_and_no_loss():
    order = LogOrder(DamagedLog(TIMES, {(0, 2): SkipReason.MISSING}), dict.fromkeys(TIMES, 0), batch=3)
    found, at_end = told(order)
    assert not any(gaps for _, gaps in found)
    assert at_end == []
    assert order.skipped == {"missing": 1}
