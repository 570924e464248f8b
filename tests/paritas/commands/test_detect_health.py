"""What a detection loop says of itself, judged."""

import pytest

from paritas.clock import ManualClock
from paritas.commands.detect_health import DetectTrouble, LoopState, Stage, judge
from paritas.commands.exposition import Family, exposition, labelled
from paritas.commands.grpc_health import ControllerProbe
from paritas.errors import TransientError

NS = 1_000_000_000
RUNNING, STARTING, DRAINING = Stage.RUNNING, Stage.STARTING, Stage.DRAINING
AWAY, WAITS = DetectTrouble.CONTROLLER_UNREACHABLE, DetectTrouble.WAITING_FOR_LOG


@pytest.mark.parametrize(
    ("state", "at_s", "said", "is_alive"),
    [
        (LoopState(0), 10_000, "not ready: starting", True),
        (LoopState(0, STARTING, WAITS), 10_000, "not ready: starting, waiting_for_log", True),
        (LoopState(0, RUNNING), 60, "ready", True),
        (LoopState(0, RUNNING), 61, "not ready: loop_stalled", True),
        (LoopState(0, RUNNING), 601, "not ready: loop_stalled", False),
        (LoopState(0, DRAINING), 10_000, "not ready: draining", True),
        (LoopState(0, RUNNING, AWAY, AWAY), 1, "not ready: controller_unreachable", True),
        (LoopState(0, RUNNING, WAITS, AWAY), 1, "not ready: waiting_for_log, controller_unreachable", True),
    ],
)
def test_each_trouble_is_named(state, at_s, said, is_alive):
    found = judge(state, at_s * NS)
    assert (found.text(), found.is_alive) == (said, is_alive)


def test_an_old_contract_is_no_reason_to_be_unready():
    found = judge(LoopState(0, RUNNING), 1, is_stale=True)
    assert (found.is_ready, found.text()) == (True, "ready, but: contract_stale")


def test_labels_are_escaped_and_numbers_are_spelled_as_prometheus_does():
    told = Family("x", "gauge", "is", *labelled("of", {'a"\\\n': float("inf"), "b": float("nan")}))
    assert exposition([told], common={"contract": '"'}) == (
        '# HELP x is\n# TYPE x gauge\nx{contract="\\"",of="a\\"\\\\\\n"} Inf\nx{contract="\\"",of="b"} NaN\n'
    )


class Answers:
    """A health service that says one thing after the other; a real one is asked in test_detect_controller.py."""

    def __init__(self, *told):
        self.told = list(told)

    def status(self, service, *, timeout_s):
        del service, timeout_s
        found = self.told.pop(0)
        if found is None:
            raise TransientError("nobody answers")
        return found


def test_nobody_is_ready_before_the_controller_was_asked_once():
    state = LoopState(0, RUNNING)
    probe = ControllerProbe(Answers("SERVING", "NOT_SERVING", None), state, clock=ManualClock())
    assert judge(state, 1).text() == "not ready: starting"
    said = []
    for _ in range(3):
        state.controller = probe.found()
        said.append(judge(state, 1).text())
    assert said == ["ready", "not ready: controller_not_serving", "not ready: controller_unreachable"]
