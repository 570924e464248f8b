"""Health is progress: alive and not shipping is not ready."""

import re
from dataclasses import replace

import pytest

from paritas.agent.account import Totals
from paritas.agent.counters import SpoolCounters, SyncTimes
from paritas.agent.health import Health, Reading, judge
from paritas.agent.intake import Answer
from paritas.agent.metrics import Extra, metrics, render
from paritas.agent.reasons import DropReason, NotReady
from paritas.agent.shipper import ShipperState

NS = 10**9
WELL = Reading(
    spool=SpoolCounters(records=Totals(10, 10)),
    shipper=ShipperState(0, 0, 0, progress_ns=1000 * NS, error="", is_refused=False),
    beat_ns=1000 * NS,
    now_ns=1000 * NS,
)
WAITING = SpoolCounters(records=Totals(10, 9, {}, 1))


def reasons(reading):
    return judge(reading, stall_s=30.0).reasons


def test_nothing_to_do_is_well_however_long():
    assert reasons(replace(WELL, now_ns=1100 * NS)) == ()
    assert judge(WELL, stall_s=30.0) == Health(True, ())


@pytest.mark.parametrize(("seconds", "expected"), [(29, ()), (31, (NotReady.NOT_SHIPPING,))])
def test_records_that_wait_without_progress_make_it_not_ready(seconds, expected):
    now_ns = (1000 + seconds) * NS
    assert reasons(replace(WELL, spool=WAITING, now_ns=now_ns, beat_ns=now_ns)) == expected


def test_own_records_that_wait_count_too():
    spool = SpoolCounters(own=Totals(1, 0, {}, 1))
    assert reasons(replace(WELL, spool=spool, now_ns=1100 * NS)) == (NotReady.NOT_SHIPPING,)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"is_started": False}, NotReady.STARTING),
        ({"is_draining": True}, NotReady.DRAINING),
        ({"shipper": replace(WELL.shipper, is_refused=True)}, NotReady.TARGET_REFUSES),
        ({"spool": SpoolCounters(is_memory_only=True)}, NotReady.MEMORY_ONLY),
        ({"spool": SpoolCounters(sync=SyncTimes(is_failing=True))}, NotReady.SYNC_FAILING),
    ],
)
def test_each_trouble_has_its_name(change, expected):
    health = judge(replace(WELL, **change), stall_s=30.0)
    assert (health.is_alive, health.reasons) == (True, (expected,))


def test_a_shipping_thread_that_stands_still_is_dead():
    health = judge(replace(WELL, beat_ns=800 * NS), stall_s=30.0)
    assert (health.is_alive, health.reasons) == (False, (NotReady.THREAD_DIED,))
    assert health.text() == "not ready: thread_died"


def test_one_failed_sync_is_forgotten_by_one_that_works():
    sync = SyncTimes()
    sync.note_failure()
    assert sync.is_failing
    sync.note(0.5)
    sync.note(0.25)
    assert (sync.is_failing, sync.count, sync.failures, sync.total_s, sync.longest_s) == (
        False,
        2,
        1,
        0.75,
        0.5,
    )


def page():
    spool = SpoolCounters(records=Totals(10, 7, {"overflow": 1}, 2), sync=SyncTimes(3, 0, 0.5, 0.25))
    return render(metrics(replace(WELL, spool=spool), judge(WELL, stall_s=1.0), Extra({Answer.BAD: 2})))


def test_the_page_has_every_label_from_the_start():
    text = page()
    for label, values in (("reason", DropReason), ("answer", Answer), ("reason", NotReady)):
        assert all(f'{{{label}="{value}"}}' in text for value in values)
    assert 'paritas_agent_records_dropped_total{reason="overflow"} 1\n' in text
    assert 'paritas_agent_requests_total{answer="bad"} 2\n' in text
    assert "paritas_agent_fsync_seconds_count 3\nparitas_agent_fsync_seconds_sum 0.5\n" in text
    assert "# TYPE paritas_agent_fsync_seconds summary\n" in text


def test_the_page_is_in_the_format_that_prometheus_reads():
    sample = r'paritas_agent_[a-z_]+(\{[a-z]+="[a-z_]+"\})? [0-9.e+-]+'
    comment = r"# (HELP paritas_agent_[a-z_]+ .+|TYPE paritas_agent_[a-z_]+ (counter|gauge|summary))"
    lines = page().splitlines()
    assert all(re.fullmatch(sample, line) or re.fullmatch(comment, line) for line in lines)
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
