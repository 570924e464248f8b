"""What every event log must do.  A log passes when each check passes on a fresh one.

Use it from a test module::

    @pytest.mark.parametrize("check", CHECKS, ids=NAMES)
    def test_contract(check, opener):
        check(opener)

An opener is called without arguments and opens the same log each time; the log it opens first is
empty and has at least two partitions.  What one handle appended, a later handle reads.
"""

from dataclasses import dataclass

import pytest

from paritas.agent.eventlog import Position
from paritas.errors import PermanentError, UsageError
from paritas.wire import RECORD_LIMIT_BYTES, WireRecord


def record(number, size=0):
    return WireRecord(
        b"%032x" % number, b"value-%d" % number + bytes(size), (("paritas-seq", b"%d" % number),)
    )


def append(log, number, size=0):
    return log.append(record(number, size), partition_key=b"%032x" % number)


@dataclass
class Total:
    """Everything a log holds, read page by page."""

    records: list
    positions: list
    skipped: int


def read_all(log, page=3):
    total = Total([], [], 0)
    for partition in range(log.partitions):
        offset = log.start_offsets()[partition]
        while True:
            batch = log.read(partition, offset, limit=page)
            assert len(batch) <= page
            assert len(batch) + sum(batch.skipped.values()) == batch.next_offset - offset
            if batch.next_offset == offset:
                break
            total.records += [stored.record for stored in batch]
            total.positions += [stored.position for stored in batch]
            total.skipped += sum(batch.skipped.values())
            offset = batch.next_offset
    return total


def check_a_record_is_read_where_it_was_put(opener):
    with opener() as log:
        position = append(log, 1)
        log.flush()
        [stored] = log.read(position.partition, position.offset, limit=10)
        assert (stored.record, stored.position) == (record(1), position)
        assert stored.appended_ns > 0


def check_paging_gives_every_record_once(opener):
    with opener() as log:
        positions = [append(log, number) for number in range(40)]
        log.flush()
        total = read_all(log)
        assert total.skipped == 0
        assert sorted(total.records, key=lambda r: r.key) == [record(number) for number in range(40)]
        assert sorted(total.positions, key=_place) == sorted(positions, key=_place)


def _place(position):
    return position.partition, position.offset


def check_order_within_a_key(opener):
    with opener() as log:
        sent = [WireRecord(b"key", b"%d" % number) for number in range(20)]
        positions = [log.append(r, partition_key=b"key") for r in sent]
        log.flush()
        assert len({position.partition for position in positions}) == 1
        offsets = [position.offset for position in positions]
        assert offsets == list(range(offsets[0], offsets[0] + 20))
        assert [s.record for s in log.read(positions[0].partition, offsets[0], limit=20)] == sent


def check_keys_spread_over_partitions(opener):
    with opener() as log:
        used = {append(log, number).partition for number in range(64)}
        assert used == set(range(log.partitions))


def check_the_partition_key_decides_not_the_record_key(opener):
    with opener() as log:
        used = {log.append(WireRecord(b"%d" % n, b""), partition_key=b"same").partition for n in range(20)}
        assert len(used) == 1


def check_any_bytes_survive(opener):
    odd = [
        WireRecord(b"", b""),
        WireRecord(bytes(range(256)), bytes(range(256)), (("a", b""), ("a", b"\xff"), ("ü", b"\0"))),
        WireRecord(b"k", b"\xa7\x5e\x01\x00" * 50),
        WireRecord(b"k", bytes(RECORD_LIMIT_BYTES)),
    ]
    with opener() as log:
        positions = [log.append(r, partition_key=r.key) for r in odd]
        log.flush()
        assert [log.read(p.partition, p.offset, limit=1).stored[0].record for p in positions] == odd


def check_reading_again_gives_the_same(opener):
    with opener() as log:
        for number in range(10):
            append(log, number)
        log.flush()
        assert read_all(log, page=3) == read_all(log, page=100)


def check_the_end_is_an_empty_batch_until_something_comes(opener):
    with opener() as log:
        position = append(log, 1)
        log.flush()
        end = log.end_offsets()[position.partition]
        for offset in (end, end + 1000):
            batch = log.read(position.partition, offset, limit=10)
            assert (list(batch), batch.next_offset, batch.skipped) == ([], offset, {})
        assert append(log, 1) == Position(position.partition, end)
        log.flush()
        assert len(log.read(position.partition, end, limit=10)) == 1


def check_offsets_bound_what_is_there(opener):
    with opener() as log:
        before = log.end_offsets()
        assert before == log.start_offsets()
        assert list(before) == list(range(log.partitions))
        for number in range(30):
            append(log, number)
        log.flush()
        assert sum(log.end_offsets().values()) - sum(before.values()) == 30
        assert log.start_offsets() == before


def check_a_later_handle_reads_and_goes_on(opener):
    with opener() as log:
        first, log_id = append(log, 1), log.log_id
    with opener() as log:
        assert log.log_id == log_id
        second = append(log, 1)
        log.flush()
        assert second == Position(first.partition, first.offset + 1)
        assert [s.record for s in log.read(first.partition, first.offset, limit=5)] == [record(1), record(1)]


def check_no_limit_no_records(opener):
    with opener() as log:
        position = append(log, 1)
        log.flush()
        batch = log.read(position.partition, position.offset, limit=0)
        assert (list(batch), batch.next_offset) == ([], position.offset)


def check_a_record_that_is_too_large_is_refused_for_good(opener):
    with opener() as log:
        with pytest.raises(PermanentError, match="exceeds the limit"):
            append(log, 1, size=2 * 1024 * 1024)
        log.flush()
        assert read_all(log).records == []


def check_an_unknown_partition_is_the_callers_mistake(opener):
    with opener() as log:
        for partition in (-1, log.partitions):
            with pytest.raises(UsageError, match=f"no partition {partition}"):
                log.read(partition, 0, limit=1)


def check_closing_twice_is_fine(opener):
    with opener() as log:
        append(log, 1)
        log.close()
        log.close()


CHECKS = [check for name, check in sorted(globals().items()) if name.startswith("check_")]
NAMES = [check.__name__.removeprefix("check_") for check in CHECKS]
