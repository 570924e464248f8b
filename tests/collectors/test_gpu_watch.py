"""GPUs from NVML through the emitter to a real receiver, and what happens where there is none."""

import threading

import pytest
from emitter_scenes import PATIENT_S, Agent, emitter_to, holds, socket_path
from nvml_cards import library

from paritas.clock import ManualClock, SystemClock
from paritas.collectors.emitter import Emitter
from paritas.collectors.gpu_watch import GpuWatch, watch_for
from paritas.collectors.nvml import NoGpu
from paritas.collectors.settings import settings_from
from paritas.otlp_http import Target
from paritas.wire import decode


class Taken(threading.Event):
    """Keeps readings, and says when so many are here."""

    def __init__(self, many):
        super().__init__()
        self.many, self.samples = many, []

    def emit_many(self, traces):
        self.samples += traces
        if len(self.samples) >= self.many:
            self.set()


def watch(taker, bindings, **named):
    return GpuWatch(taker, clock=SystemClock(), period_s=0.001, run_id="run", library=bindings, **named)


def test_every_card_arrives_by_its_uuid_again_and_again():
    with socket_path() as path, Agent(path) as agent, emitter_to(path) as emitter:
        with watch(emitter, library(), attributes={"node": "n1"}) as watching:
            while watching.rounds < 2:
                threading.Event().wait(0.001)
        watching._thread.join(PATIENT_S)  # it is waited for for a second only
        assert emitter.flush(timeout_s=PATIENT_S)
        told = holds(emitter)
        samples = [one for record in agent.records for one in decode(record.value).gpus]
    assert told.delivered == len(samples) == 2 * watching.rounds
    assert {one.gpu.uuid for one in samples} == {"GPU-1", "GPU-2"}
    assert {(one.run_id, one.attributes["node"]) for one in samples} == {("run", "n1")}
    first = next(one.gpu for one in samples if one.gpu.uuid == "GPU-1")
    assert (first.power_w, first.throttled, first.mig, first.ecc) == (123.456, 4, False, True)
    assert next(one.gpu for one in samples if one.gpu.uuid == "GPU-2").power_w is None
    assert (watching.absent, watching.faults) == (None, 0)


@pytest.mark.parametrize(("cards", "reason"), [(None, NoGpu.NO_DRIVER), (0, NoGpu.NO_DEVICE)])
def test_without_a_gpu_the_thread_ends_and_says_why(cards, reason):
    watching = watch(Taken(1), library(cards))
    watching.start()
    watching._thread.join(PATIENT_S)
    assert (watching.rounds, watching.absent, watching.faults) == (0, reason, 0)
    watching.close()
    watching.close()


def test_a_fault_ends_the_thread_and_is_counted():
    watching = watch(None, library())  # nobody takes what is read
    watching.start()
    watching._thread.join(PATIENT_S)
    assert (watching.rounds, watching.faults) == (0, 1)


def test_closing_ends_the_session_with_the_driver():
    bindings, taken = library(), Taken(2)
    with watch(taken, bindings) as watching:
        assert taken.wait(PATIENT_S)
    watching._thread.join(PATIENT_S)  # it is waited for for a second only
    assert bindings.ended == 1


@pytest.mark.parametrize(
    ("environ", "period_s"),
    [
        ({"PARITAS_RUN_ID": "r"}, 10.0),
        ({"PARITAS_RUN_ID": "r", "PARITAS_GPU_PERIOD_S": "0.5", "LOCAL_RANK": "0"}, 0.5),
        ({"PARITAS_RUN_ID": "r", "PARITAS_GPU_PERIOD_S": "0"}, None),
        ({"PARITAS_RUN_ID": "r", "LOCAL_RANK": "3"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_who_samples(environ, period_s, tmp_path):
    settings, clock = settings_from(environ), ManualClock()
    emitter = Emitter(Target(unix_path=tmp_path / "s"), clock=clock, is_enabled=False)
    made = watch_for(emitter, settings, environ, clock=clock)
    assert (made and made._period_s) == period_s
