"""The spool: everything accepted is delivered, dropped for a reason, or still there."""

import shutil

import pytest
from agent_scenes import AGENT, holds, number_of, record, requests_of, spool_at

from paritas.agent.eventlog import Cursor
from paritas.agent.intake import Answer, Intake
from paritas.agent.own_spans import GAP_SPAN
from paritas.agent.reasons import DropReason
from paritas.clock import ManualClock
from paritas.errors import TransientError, UsageError
from paritas.wire import Gap, Origin, decode


def take_all(spool, limit=7):
    """Take and settle everything; returns the entries of the bulk and of the agent itself."""
    bulk, own = [], []
    while taken := spool.take(limit=limit, limit_bytes=1 << 20):
        for entry in taken.batch.entries:
            (own if entry.origin.agent.endswith("/own") else bulk).append(entry)
        taken.source.settle(taken.batch.end_seq)
        holds(spool)
    return bulk, own


def numbers(entries):
    return [number_of(entry.record) for entry in entries]


def segments(spool):
    return sorted((spool.settings.path / "bulk").glob("*.seg"))


def test_what_is_appended_is_taken_in_order_and_counted(tmp_path):
    with spool_at(tmp_path) as spool:
        spool.append([record(n) for n in range(20)])
        assert holds(spool).queued == 20
        bulk, _ = take_all(spool)
        assert numbers(bulk) == list(range(20))
        assert [entry.origin.seq for entry in bulk] == list(range(20))
        assert {entry.origin.agent for entry in bulk} == {AGENT}
        assert (holds(spool).delivered, holds(spool).queued) == (20, 0)


def test_totals_and_position_go_on_over_restarts(tmp_path):
    clock = ManualClock()
    with spool_at(tmp_path, clock) as spool:
        spool.append([record(n) for n in range(10)])
        taken = spool.take(limit=4, limit_bytes=1 << 20)
        taken.source.settle(taken.batch.end_seq)
    clock.advance(seconds=1)
    with spool_at(tmp_path, clock) as spool:
        told = holds(spool)
        assert (told.accepted, told.delivered, told.queued) == (10, 4, 6)
        spool.append([record(10)])
        assert numbers(take_all(spool)[0]) == [4, 5, 6, 7, 8, 9, 10]


def crash(spool, tmp_path, name="crashed"):
    """What a killed process leaves behind: the directory as it is now."""
    copy = tmp_path / name
    shutil.copytree(spool.settings.path, copy)
    return copy


def test_killed_before_a_commit_it_sends_again_under_the_same_identity(tmp_path):
    with spool_at(tmp_path / "spool") as spool:
        spool.append([record(n) for n in range(5)])
        first, _ = take_all(spool)
        copy = crash(spool, tmp_path)
    with spool_at(copy) as spool:
        again, _ = take_all(spool)
        assert [entry.origin for entry in again] == [entry.origin for entry in first]
        assert holds(spool).accepted == 5


def test_after_a_crash_a_number_never_means_another_record(tmp_path):
    clock = ManualClock()
    with spool_at(tmp_path / "spool", clock) as spool:
        spool.append([record(1)])
        copy = crash(spool, tmp_path)
        spool.append([record(2)])
        lost = take_all(spool)[0][1].origin
    clock.advance(seconds=1)
    with spool_at(copy, clock) as spool:
        spool.append([record(3)])
        assert take_all(spool)[0][1].origin == Origin(AGENT, lost.epoch + 10**9, lost.seq)


def test_the_oldest_are_dropped_when_it_is_full_and_a_gap_record_says_which(tmp_path):
    with spool_at(tmp_path, limit_bytes=3 * 4096) as spool:
        for n in range(300):
            spool.append([record(n, size=90)])
            holds(spool)
        told = holds(spool)
        assert told.dropped["overflow"] > 100
        spool.maintain()
        bulk, own = take_all(spool)
        assert numbers(bulk) == list(range(told.dropped["overflow"], 300))
        [gap] = [entry.record for entry in own if GAP_SPAN.encode() in entry.record.value]
        lost = Gap("pod-7", 0, told.dropped["overflow"] - 1, "overflow")
        assert decode(gap.value).gaps == (lost,)
        assert holds(spool).delivered == len(bulk)


def test_records_in_flight_survive_the_overflow_that_takes_them_from_disk(tmp_path):
    with spool_at(tmp_path, limit_bytes=3 * 4096) as spool:
        spool.append([record(n, size=90) for n in range(10)])
        taken = spool.take(limit=10, limit_bytes=1 << 20)
        for n in range(10, 300):
            spool.append([record(n, size=90)])
            holds(spool)
        taken.source.settle(taken.batch.end_seq)
        told = holds(spool)
        assert told.delivered == 10
        rest, _ = take_all(spool)
        assert 10 + told.dropped["overflow"] + len(rest) == 300


def test_an_overflow_that_could_not_be_saved_is_found_by_the_next_run(tmp_path):
    with spool_at(tmp_path / "spool", limit_bytes=3 * 4096) as spool:
        for n in range(300):
            spool.append([record(n, size=90)])
        dropped = holds(spool).dropped["overflow"]
        copy = crash(spool, tmp_path)
    with spool_at(copy, limit_bytes=3 * 4096) as spool:
        assert holds(spool).dropped == {"overflow": dropped}
        assert holds(spool).accepted == 300
        spool.maintain()
        _, own = take_all(spool)
        assert sum(GAP_SPAN.encode() in entry.record.value for entry in own) == 1


def test_refusing_when_full_takes_all_of_a_request_or_none(tmp_path):
    with spool_at(tmp_path, limit_bytes=3 * 4096, refuse_when_full=True) as spool:
        two, taken = [record(1, size=500), record(2, size=500)], 0
        while spool.counters().disk_bytes < 3 * 4096 - 1200:
            spool.append(two)
            taken += 2
        with pytest.raises(TransientError, match=r"^the spool is full$"):
            spool.append(two)
        told = holds(spool)
        assert (told.accepted, told.dropped) == (taken, {})
        take_all(spool)
        spool.commit()
        spool.append([record(1)])  # there is room again


@pytest.mark.parametrize("at", [64 + 40, 64 + 200, -5])
def test_a_damaged_frame_is_counted_told_and_kept_for_inspection(tmp_path, at):
    with spool_at(tmp_path, segment_bytes=1 << 16) as spool:
        spool.append([record(n, size=90) for n in range(20)])
    [segment, *_] = segments(spool)
    content = bytearray(segment.read_bytes())
    content[at] ^= 0xFF
    segment.write_bytes(content)
    with spool_at(tmp_path, segment_bytes=1 << 16) as spool:
        bulk, _ = take_all(spool)
        told = holds(spool)
        assert told.dropped == {"corrupt": 1}
        assert len(bulk) == 19
        assert spool.counters().quarantined_bytes > 0
        spool.maintain()
        _, own = take_all(spool)
        assert sum(GAP_SPAN.encode() in entry.record.value for entry in own) == 1


def test_a_torn_end_costs_nothing(tmp_path):
    with spool_at(tmp_path) as spool:
        spool.append([record(n) for n in range(5)])
    segment = segments(spool)[0]
    with segment.open("ab") as file:
        file.write(segment.read_bytes()[64:80])
    with spool_at(tmp_path) as spool:
        assert numbers(take_all(spool)[0]) == [0, 1, 2, 3, 4]
        assert holds(spool).dropped == {}


def test_a_damaged_position_is_put_away_and_everything_sent_again(tmp_path):
    with spool_at(tmp_path) as spool:
        spool.append([record(n) for n in range(5)])
        first, _ = take_all(spool)
    (tmp_path / "bulk/position").write_bytes(b"nonsense")
    with spool_at(tmp_path) as spool:
        assert spool.counters().cursor_resets == 1
        assert (tmp_path / "bulk/position.bad").exists()
        again, _ = take_all(spool)
        assert [entry.origin for entry in again] == [entry.origin for entry in first]
        holds(spool)


def test_records_expire_by_a_clock_that_does_not_jump(tmp_path):
    class Jumping(ManualClock):
        jump_ns = 0

        def now_ns(self):
            return super().now_ns() + self.jump_ns

    clock = Jumping()
    with spool_at(tmp_path, clock, max_age_s=3600.0) as spool:
        spool.append([record(0)])
        clock.jump_ns = 10**18  # thirty years ahead
        spool.append([record(1)])
        assert spool.counters().oldest_age_s == 0.0
        taken = spool.take(limit=9, limit_bytes=1 << 20)
        assert numbers(taken.batch.entries) == [0, 1]
        taken.source.give_back()
        clock.jump_ns = -(10**18)
        clock.advance(seconds=1800)
        spool.append([record(2)])
        clock.advance(seconds=1801)
        assert spool.counters().oldest_age_s == 3601.0
        assert numbers(take_all(spool)[0]) == [2]
        assert holds(spool).dropped == {"expired": 2}


def no_disk(spool, monkeypatch):
    """The volume refuses every append: what a full one does, without one."""

    def refuse(_payload):
        raise TransientError("no space")

    monkeypatch.setattr(spool._bulk, "append", refuse)


def test_while_the_disk_refuses_records_wait_in_memory_and_move_to_disk_after(tmp_path, monkeypatch):
    clock = ManualClock()
    with spool_at(tmp_path, clock) as spool:
        spool.append([record(0)])
        with monkeypatch.context() as patch:
            no_disk(spool, patch)
            spool.append([record(1), record(2)])
            assert spool.counters().is_memory_only
            assert holds(spool).queued == 3
            spool.maintain()
            assert spool.counters().is_memory_only
        clock.advance(seconds=6)
        spool.maintain()
        told = spool.counters()
        assert (told.is_memory_only, told.degradations, told.memory_bytes) == (False, 1, 0)
        assert holds(spool).accepted == 3
        bulk, _ = take_all(spool)
        assert numbers(bulk) == [0, 1, 2]
        assert {entry.origin.agent for entry in bulk} == {AGENT}


def test_what_is_delivered_from_memory_has_an_identity_of_its_own(tmp_path, monkeypatch):
    with spool_at(tmp_path) as spool:
        no_disk(spool, monkeypatch)
        spool.append([record(0), record(1)])
        bulk, _ = take_all(spool)
        assert [(entry.origin.agent, entry.origin.seq) for entry in bulk] == [
            ("pod-7/memory", 0),
            ("pod-7/memory", 1),
        ]
        assert holds(spool).delivered == 2


def test_memory_is_bounded_and_what_is_left_at_the_end_is_counted(tmp_path, monkeypatch):
    spool = spool_at(tmp_path, memory_bytes=10_000)
    with spool:
        no_disk(spool, monkeypatch)
        for n in range(100):
            spool.append([record(n)])
            holds(spool)
        told = holds(spool)
        assert told.dropped["ring_overflow"] + told.queued == 100
        assert spool.counters().memory_bytes <= 10_000
    told = holds(spool)
    assert told.queued == 0
    assert told.dropped["shutdown"] + told.dropped["ring_overflow"] == 100


def test_what_cannot_be_spooled_at_all_is_counted(tmp_path):
    with spool_at(tmp_path) as spool:
        spool.drop_unspooled(3, DropReason.TOO_LARGE)
        told = holds(spool)
        assert (told.accepted, told.dropped) == (3, {"too_large": 3})


def test_other_limits_apply_while_it_runs(tmp_path):
    with spool_at(tmp_path) as spool:
        spool.append([record(n, size=90) for n in range(200)])
        taken = spool.take(limit=5, limit_bytes=1 << 20)
        taken.source.settle(taken.batch.end_seq)
        smaller = spool_at(tmp_path, limit_bytes=3 * 4096).settings
        spool.reconfigure(smaller)
        spool.append([record(200)])
        told = holds(spool)
        assert told.accepted == 201
        assert told.dropped["overflow"] > 0
        assert spool.counters().disk_bytes <= 3 * 4096 + 4096


def test_a_directory_has_one_agent(tmp_path):
    with spool_at(tmp_path), pytest.raises(UsageError, match="is already writing here"), spool_at(tmp_path):
        pass


def test_it_can_be_closed_twice(tmp_path):
    with spool_at(tmp_path) as spool:
        spool.close()


def test_a_request_after_the_end_is_told_to_come_back(tmp_path):
    with spool_at(tmp_path) as spool:
        pass
    reply = Intake(spool, max_pending_bytes=1000).take(requests_of(bytes([1]) * 16))
    assert reply.answer is Answer.FULL


def test_a_full_volume_does_not_keep_the_position_from_being_saved(tmp_path, monkeypatch):
    """The reserve is given up for it; what was delivered then makes room."""
    with spool_at(tmp_path) as spool:
        spool.append([record(n) for n in range(5)])
        take_all(spool)
        save, reserve = Cursor.save, tmp_path / "reserve"

        def save_if_there_is_room(cursor, saved):
            if reserve.exists():
                raise TransientError("no space")
            save(cursor, saved)

        monkeypatch.setattr(Cursor, "save", save_if_there_is_room)
        spool.commit()
        assert (spool.counters().commit_failures, spool.counters().is_memory_only) == (0, True)
        assert Cursor(tmp_path / "bulk/position").load().positions == {0: 5}
