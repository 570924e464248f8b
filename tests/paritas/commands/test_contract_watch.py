"""A contract's file that changes while a process judges by it."""

import os
import threading

import pytest
from command_runs import run
from kubelet_mounts import mount

from paritas.clock import ManualClock
from paritas.commands.contract_watch import POLL_S, ContractWatch, Reloading
from paritas.contracts.load import load_contract
from paritas.errors import ContractError, TransientError, UsageError

CONTRACT = """apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: mine, version: VERSION}
spec:
  policy: p
  clauses:
    numerical:
      - {id: token-tv, statistic: tv, at_most: 0.02}
"""


def text(version="1.0.0"):
    return CONTRACT.replace("VERSION", version)


class Loop:
    """A real receiver of contracts, without a log; it may not be able to at first."""

    def __init__(self, contract, failures=0):
        self.contract, self.failures, self.taken = contract, failures, []

    def take_over(self, contract):
        if self.failures:
            self.failures -= 1
            raise TransientError("the broker is away")
        self.contract = contract
        self.taken.append(contract.version)


@pytest.fixture
def path(tmp_path):
    return mount(tmp_path / "contracts", "mine.yaml", text())


@pytest.fixture
def turn(path):
    """One turn two seconds later, of a loop that judges by the file; its parts are attributes."""
    watch, clock = ContractWatch(lambda: load_contract(path), [path]), ManualClock()
    loop, asked = Loop(watch.contract), threading.Event()
    reloading = Reloading(watch, loop, asked=asked, clock=clock)

    def later(seconds=POLL_S):
        clock.advance(seconds=seconds)
        reloading()

    later.loop, later.watch, later.asked, later.clock = loop, watch, asked, clock
    reloading()
    return later


def test_a_link_that_the_kubelet_moves_is_taken_over(path, turn, capsys):
    mount(path.parent, "mine.yaml", text("1.1.0"))
    turn()
    turn()
    assert turn.loop.taken == ["1.1.0"]
    assert capsys.readouterr() == ("judging by mine 1.1.0 now, from the log's oldest record on\n", "")
    assert (turn.watch.counts.applied, turn.watch.counts.rejected) == (1, 0)


def test_a_touched_a_moved_and_a_rewritten_copy_are_no_change(path, turn, capsys):
    mount(path.parent, "mine.yaml", text())
    turn()
    os.utime(path)
    turn()
    path.write_text(text() + "# a remark\n")
    turn()
    assert turn.loop.taken == []
    assert capsys.readouterr() == ("", "")
    assert turn.watch.counts.applied == 0


def test_a_bad_contract_is_said_once_with_its_place_and_the_old_one_stays(path, turn, capsys):
    mount(path.parent, "mine.yaml", text("1.1.0").replace("at_most", "at_mots"))
    turn()
    turn()
    told = capsys.readouterr()
    assert told.err == (
        f"[contract] {path}:8:39: spec.clauses.numerical[0]: unknown field 'at_mots'\n"
        "  hint: did you mean 'at_most'?\n"
        "  still judging by mine 1.0.0\n"
    )
    assert turn.loop.taken == []
    counts = turn.watch.counts
    assert (counts.applied, counts.rejected, counts.is_stale) == (0, 1, True)
    mount(path.parent, "mine.yaml", text())
    turn()
    assert (counts.applied, counts.rejected, counts.is_stale) == (0, 1, False)
    assert turn.loop.taken == []


def test_a_file_that_is_gone_is_said_and_may_come_back_as_another(path, turn, capsys):
    (path.parent / "..data").unlink()
    turn()
    assert capsys.readouterr().err == (
        f"[usage] {path}: no such file\n"
        "  hint: paritas contract init -o FILE writes one\n"
        "  still judging by mine 1.0.0\n"
    )
    assert turn.watch.counts.is_stale
    mount(path.parent, "mine.yaml", text("2.0.0"))
    turn()
    assert (turn.loop.taken, turn.watch.counts.is_stale) == (["2.0.0"], False)


def test_it_looks_every_two_seconds_or_when_it_is_asked(path, turn):
    mount(path.parent, "mine.yaml", text("1.1.0"))
    turn(seconds=POLL_S - 0.1)
    assert turn.loop.taken == []
    turn.asked.set()
    turn(seconds=0.0)
    assert turn.loop.taken == ["1.1.0"]
    assert not turn.asked.is_set()


def test_a_loop_that_cannot_take_it_over_now_is_asked_again(path, turn, capsys):
    turn.loop.failures = 2
    mount(path.parent, "mine.yaml", text("1.1.0"))
    for _ in range(2):
        with pytest.raises(TransientError, match="the broker is away"):
            turn()
    turn(seconds=0.0)
    assert turn.loop.taken == ["1.1.0"]
    assert turn.watch.counts.applied == 1
    capsys.readouterr()


def test_what_this_process_cannot_take_over_is_said(path, capsys):
    watch, clock = ContractWatch(lambda: load_contract(path), [path]), ManualClock()
    loop, told = Loop(watch.contract), []
    refuses = lambda c: UsageError("no", hint="restart") if c.version == "1.1.0" else None  # noqa: E731
    reloading = Reloading(
        watch, loop, asked=threading.Event(), clock=clock, refuses=refuses, on_applied=told.append
    )
    mount(path.parent, "mine.yaml", text("1.1.0"))
    reloading()
    assert capsys.readouterr().err == "[usage] no\n  hint: restart\n  still judging by mine 1.0.0\n"
    mount(path.parent, "mine.yaml", text("1.2.0"))
    clock.advance(seconds=POLL_S)
    reloading()
    assert [c.version for c in told] == loop.taken == ["1.2.0"]


def test_a_first_contract_that_is_bad_is_an_error(tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("nonsense: 1\n")
    with pytest.raises(ContractError):
        ContractWatch(lambda: load_contract(bad), [bad])
    assert run("detect", "--log", tmp_path, "--contract", bad, "--controller", "x:1").returncode == 64
