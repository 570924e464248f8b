"""Another contract, after a restart or while the detection loop runs: it judges the log again."""

from dataclasses import replace

import pytest
from detection_loops import (
    CONTRACT,
    Controller,
    finish,
    make_log,
    make_loop,
    stale_records,
    step_until_refused,
    told,
    told_undisturbed,
)

from paritas.agent.eventlog import Cursor, EmbeddedReader
from paritas.clock import ManualClock
from paritas.commands.detecting import DetectionLoop
from paritas.contracts.load import load_named
from paritas.errors import TransientError

STRICTER = replace(CONTRACT, version="2.0.0", digest="2" * 32)


@pytest.fixture(scope="module")
def records():
    return stale_records()


@pytest.fixture(scope="module")
def undisturbed(records, tmp_path_factory):
    return told_undisturbed(records, tmp_path_factory.mktemp("undisturbed"))


def test_the_state_of_another_contract_judges_the_log_again(records, tmp_path):
    controller, clock = Controller(), ManualClock()
    with make_log(tmp_path / "log", records) as log:
        with make_loop(log, tmp_path, controller, clock) as loop:
            finish(loop, clock)
        other = load_named("fp16")
        with DetectionLoop(
            other, log, Cursor(tmp_path / "state"), publish=controller.publish, clock=clock
        ) as loop:
            finish(loop, clock)
            assert loop.decoder.received == len(records)


def test_another_contract_judges_the_log_again_as_a_restart_with_it_would(records, undisturbed, tmp_path):
    restarted, taken = Controller(), Controller()
    with make_log(tmp_path / "log", records) as log:
        clock = ManualClock()
        with make_loop(log, tmp_path / "restarted", restarted, clock) as loop:
            finish(loop, clock)
        with make_loop(log, tmp_path / "restarted", restarted, clock, contract=STRICTER) as loop:
            finish(loop, clock)
            expected = told(restarted, loop)
        clock = ManualClock()
        with make_loop(log, tmp_path / "running", taken, clock) as loop:
            finish(loop, clock)
            assert told(taken, loop) == undisturbed
            loop.take_over(STRICTER)
            assert (loop.contract.version, loop.detector.contract.version) == ("2.0.0", "2.0.0")
            finish(loop, clock)
            assert repr(loop.detector.verdicts()) == expected[1]
            assert set(taken.events) == set(restarted.events)
        with make_loop(log, tmp_path / "running", taken, clock, contract=STRICTER) as loop:
            assert loop.step() == 0, "its state was saved under the new contract"


def test_what_the_old_contract_had_to_say_is_still_said(records, tmp_path):
    controller, clock = Controller(refusals=1), ManualClock()
    with make_log(tmp_path / "log", records) as log, make_loop(log, tmp_path, controller, clock) as loop:
        with pytest.raises(TransientError, match="not now"):
            step_until_refused(loop, clock)
        loop.take_over(STRICTER)
        loop.step()
        assert {e.contract_version for e in controller.events.values()} >= {"1.0.0"}


def test_a_log_that_cannot_say_where_it_begins_keeps_the_old_contract(records, tmp_path):
    class Away(EmbeddedReader):
        def start_offsets(self):
            if getattr(self, "is_away", False):
                raise TransientError("away")
            return super().start_offsets()

    with make_log(tmp_path / "log", records):
        pass
    controller, clock = Controller(), ManualClock()
    with Away(tmp_path / "log") as log, make_loop(log, tmp_path, controller, clock) as loop:
        log.is_away = True
        with pytest.raises(TransientError, match="away"):
            loop.take_over(STRICTER)
        assert loop.contract == CONTRACT
