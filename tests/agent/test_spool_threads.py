"""The spool while one thread moves records from memory back to disk and others append."""

import threading

from agent_scenes import holds, number_of, record, spool_at

from paritas.clock import ManualClock
from paritas.errors import TransientError

TURN_S = 0.2  # long enough for a thread that nothing holds; one that the lock holds is not waited for


def test_a_record_that_comes_while_a_full_memory_moves_to_disk_costs_no_other(tmp_path, monkeypatch):
    def refuse(_packed):
        raise TransientError("no space")

    clock = ManualClock()
    with spool_at(tmp_path, clock, memory_bytes=3 * 1100) as spool:
        with monkeypatch.context() as patch:
            patch.setattr(spool._bulk, "append", refuse)
            spool.append([record(n, 600) for n in range(3)])
        original, late = spool._memory.first, []

        def first():
            found = original()
            if not late:  # another thread appends, now if it can
                late.append(threading.Thread(target=spool.append, args=([record(3, 600)],)))
                late[0].start()
                late[0].join(TURN_S)
            return found

        monkeypatch.setattr(spool._memory, "first", first)
        clock.advance(seconds=6)
        spool.maintain()
        late[0].join()
        told, kept = holds(spool), []
        while taken := spool.take(limit=9, limit_bytes=1 << 20):
            kept += [number_of(entry.record) for entry in taken.batch.entries]
            taken.source.settle(taken.batch.end_seq)
        lost = told.dropped.get("ring_overflow", 0)
        assert (told.accepted, lost + len([n for n in kept if n >= 0])) == (4, 4)
        assert sorted(n for n in kept if n >= 0) == list(range(lost, 4))  # only the oldest may be lost


def test_the_agents_own_records_wait_when_there_is_no_descriptor(tmp_path, monkeypatch):
    def refuse(_packed):
        raise OSError(24, "Too many open files")

    with spool_at(tmp_path) as spool:
        with monkeypatch.context() as patch:
            patch.setattr(spool._own, "append", refuse)
            assert spool.tell(record(1)) is False
        assert spool.counters().is_memory_only
