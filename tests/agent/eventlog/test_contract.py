"""The embedded event log keeps the contract of every event log."""

import pytest

from paritas.agent.eventlog import EmbeddedLog, EventLog, LogSettings, SyncMode
from paritas.clock import ManualClock, SystemClock

pytest.register_assert_rewrite("eventlog_contract")

from eventlog_contract import CHECKS, NAMES  # noqa: E402 - after the line above, to explain its failures

SETTINGS = {
    "one large segment": (LogSettings(partitions=3, sync=SyncMode.NONE), ManualClock()),
    "a segment a record": (
        LogSettings(partitions=2, sync=SyncMode.NONE, segment_bytes=100, limit_bytes=2**30),
        ManualClock(),
    ),
    "always durable": (LogSettings(partitions=2, sync=SyncMode.ALWAYS), ManualClock()),
    "group commit": (LogSettings(partitions=2, sync_bytes=1), SystemClock()),
}


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_contract(check, settings, tmp_path):
    chosen, clock = SETTINGS[settings]

    def opener() -> EventLog:
        return EmbeddedLog(tmp_path / "log", chosen, clock=clock)

    check(opener)
