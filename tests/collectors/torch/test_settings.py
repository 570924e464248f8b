"""A collector made from the environment; without PyTorch, as in a process that only asks."""

import pytest

from paritas.collectors.torch import CaptureDrop, Shown, TorchCollector
from paritas.errors import UsageError


def test_without_variables_everything_is_counted_as_disabled():
    with TorchCollector.from_environ({}) as collector:
        with collector.step() as step:
            step.observe([[1, 2]])
        collector.show(Shown(None))
        told = collector.read()
    assert (told.shown, told.emitted, told.dropped) == (2, 0, {CaptureDrop.DISABLED: 2})


def test_the_variables_name_run_version_and_attributes(tmp_path):
    environ = {
        "PARITAS_RUN_ID": "grpo",
        "PARITAS_DATA": str(tmp_path),
        "PARITAS_TOKEN_SECRET": "a secret",
        "PARITAS_WEIGHTS_VERSION": "4",
        "PARITAS_ATTRIBUTES": "slice=math",
    }
    with TorchCollector.from_environ(environ) as collector:
        stamp = collector.stamp
    assert (stamp.run_id, stamp.weights_version, stamp.attributes) == ("grpo", "4", {"slice": "math"})


def test_an_enabled_collector_without_a_key_is_refused():
    with pytest.raises(UsageError) as caught:
        TorchCollector.from_environ({"PARITAS_RUN_ID": "grpo"})
    assert caught.value.render() == (
        "[usage] no token key is set\n"
        "  hint: set PARITAS_TOKEN_KEY_FILE to the same 16 to 64 random bytes for both kernels"
    )
