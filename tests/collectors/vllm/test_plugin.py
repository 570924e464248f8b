"""What a process of vLLM gets from us, without vLLM: nothing that is not asked for."""

from types import SimpleNamespace

import pytest

from paritas.clock import ManualClock
from paritas.collectors.emitter import EmitterDrop, EmitterReading
from paritas.collectors.settings import hasher_of, settings_from
from paritas.collectors.vllm.account import Fault, VllmReading
from paritas.collectors.vllm.plugin import Plugin, farewell_of, register
from paritas.collectors.vllm.weights import METHOD


@pytest.fixture
def variables(monkeypatch):
    """Sets the variables of this process; those of the tests' own environment are gone."""

    def put(**values):
        for name in ("ENABLED", "AGENT", "RUN_ID", "DATA", "TOKEN_KEY_FILE", "TOKEN_SECRET", "SHARE"):
            monkeypatch.delenv(f"PARITAS_{name}", raising=False)
        for name, value in values.items():
            monkeypatch.setenv(f"PARITAS_{name}", value)

    return put


@pytest.mark.parametrize("values", [{}, {"RUN_ID": "r", "ENABLED": "0"}])
def test_without_a_wish_nothing_happens(variables, caplog, values):
    variables(**values)
    register()
    assert not caplog.records


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"RUN_ID": "r"},
            (
                "this process is not observed: [usage] no token key is set   hint: set "
                "PARITAS_TOKEN_KEY_FILE to the same 16 to 64 random bytes for both kernels"
            ),
        ),
        (
            {"RUN_ID": "r", "SHARE": "2"},
            "this process is not observed: [usage] PARITAS_SHARE is '2'   hint: write a number from 0 to 1",
        ),
    ],
)
def test_a_wrong_variable_is_told_and_the_engine_starts(variables, caplog, values, line):
    variables(**values)
    register()
    assert [one.message for one in caplog.records] == [line]


def test_an_engine_that_is_not_understood_is_left_alone(variables, caplog):
    variables(RUN_ID="r", TOKEN_SECRET="x" * 20)
    settings = settings_from({"PARITAS_RUN_ID": "r", "PARITAS_TOKEN_SECRET": "x" * 20})
    plugin = Plugin(settings, hasher_of(settings), clock=ManualClock())
    engine = SimpleNamespace(vllm_config=SimpleNamespace())
    plugin.attach(engine)
    assert vars(engine).keys() == {"vllm_config"}
    assert plugin.account.read().faults == {Fault.KERNEL: 1}
    assert "'types.SimpleNamespace' object has no attribute 'output_processor'" in caplog.text


def test_the_name_of_the_method_is_ours():
    assert METHOD.startswith("paritas_")


def test_the_last_line_says_what_was_lost():
    told = VllmReading(5, 2, 4, {}, {}, {Fault.END: 1}, is_stopped=False)
    sent = EmitterReading(4, 1, {EmitterDrop.CLOSED: 2, EmitterDrop.QUEUE_TRACES: 1}, 0, 0, 7, 0)
    assert farewell_of(told, sent) == (
        "5 sequences observed (2 asked for by us), 4 ended: 1 records delivered, 3 dropped "
        "(2 closed, 1 queue_traces); faults: 1 end"
    )
