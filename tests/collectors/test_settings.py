"""Every variable, and the exact text of what is wrong with one."""

from pathlib import Path

import numpy as np
import pytest

from paritas.collectors.settings import EmitterLimits, hasher_of, settings_from
from paritas.errors import UsageError


def test_an_empty_environment_is_off():
    told = settings_from({})
    assert not told.is_enabled
    assert (str(told.agent), told.run_id, told.share) == ("unix:/run/paritas/otlp.sock", "default", 0.05)
    assert (told.token_key_file, told.limits, told.attributes) == (None, EmitterLimits(), {})
    assert (told.weights_digest, told.gpu_period_s) == (True, 10.0)


def test_everything_can_be_said():
    told = settings_from(
        {
            "PARITAS_ENABLED": "On",
            "PARITAS_AGENT": "http://127.0.0.1:4318",
            "PARITAS_RUN_ID": "r",
            "PARITAS_SHARE": "0.5",
            "PARITAS_ATTRIBUTES": "slice=math, replica=a",
            "PARITAS_WEIGHTS_VERSION": "3",
            "PARITAS_TOKEN_KEY_FILE": "/k",
            "PARITAS_QUEUE_TRACES": "10",
            "PARITAS_QUEUE_BYTES": "1000",
            "PARITAS_TIMEOUT_S": "1.5",
            "PARITAS_LINGER_S": "2",
            "PARITAS_RETRY_FOR_S": "3",
            "PARITAS_WEIGHTS_DIGEST": "off",
            "PARITAS_GPU_PERIOD_S": "0",
        }
    )
    limits = EmitterLimits(queue_traces=10, queue_bytes=1000, timeout_s=1.5, linger_s=2.0, retry_for_s=3.0)
    assert (told.is_enabled, told.share, told.limits) == (True, 0.5, limits)
    assert told.attributes == {"slice": "math", "replica": "a"}
    assert (told.weights_version, told.token_key_file) == ("3", Path("/k"))
    assert (told.weights_digest, told.gpu_period_s) == (False, 0.0)


@pytest.mark.parametrize(
    ("environ", "is_enabled"),
    [
        ({"PARITAS_RUN_ID": "r"}, True),
        ({"PARITAS_AGENT": "unix:/s"}, True),
        ({"PARITAS_RUN_ID": "r", "PARITAS_ENABLED": "0"}, False),
        ({"PARITAS_ENABLED": "1"}, True),
        ({"PARITAS_ENABLED": ""}, False),
    ],
)
def test_naming_a_run_or_an_agent_turns_it_on(environ, is_enabled):
    assert settings_from(environ).is_enabled is is_enabled


def test_the_folder_of_paritas_up_is_found():
    told = settings_from({"PARITAS_DATA": "/d"})
    assert (str(told.agent), told.token_key_file) == ("unix:/d/otlp.sock", Path("/d/token.key"))


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("PARITAS_ENABLED", "maybe", "write 1 or 0"),
        ("PARITAS_AGENT", "otlp.sock", "write unix:/path/of/the.sock or http://127.0.0.1:PORT"),
        ("PARITAS_AGENT", "https://a", "write unix:/path/of/the.sock or http://127.0.0.1:PORT"),
        ("PARITAS_AGENT", "http://a:99999", "write unix:/path/of/the.sock or http://127.0.0.1:PORT"),
        ("PARITAS_AGENT", "http://a/v1/traces", "write unix:/path/of/the.sock or http://127.0.0.1:PORT"),
        ("PARITAS_SHARE", "2", "write a number from 0 to 1"),
        ("PARITAS_SHARE", "nan", "write a number from 0 to 1"),
        ("PARITAS_SHARE", "half", "write a number"),
        ("PARITAS_ATTRIBUTES", "slice", "write NAME=VALUE,NAME=VALUE"),
        ("PARITAS_ATTRIBUTES", "=x", "write NAME=VALUE,NAME=VALUE"),
        ("PARITAS_QUEUE_TRACES", "0", "write a whole number above 0"),
        ("PARITAS_QUEUE_BYTES", "1e6", "write a whole number above 0"),
        ("PARITAS_TIMEOUT_S", "0", "write seconds above 0, at most 3600"),
        ("PARITAS_LINGER_S", "inf", "write seconds above 0, at most 3600"),
        ("PARITAS_RETRY_FOR_S", "soon", "write a number"),
        ("PARITAS_WEIGHTS_DIGEST", "some", "write 1 or 0"),
        ("PARITAS_GPU_PERIOD_S", "-1", "write seconds from 0 to 3600"),
        ("PARITAS_GPU_PERIOD_S", "often", "write a number"),
    ],
)
def test_what_is_wrong_is_said(name, text, hint):
    with pytest.raises(UsageError) as raised:
        settings_from({name: text})
    assert raised.value.render() == f"[usage] {name} is {text!r}\n  hint: {hint}"


def test_both_ways_to_a_hasher(tmp_path):
    (tmp_path / "token.key").write_bytes(b"k" * 32)
    ids = np.array([7])
    by_file = hasher_of(settings_from({"PARITAS_DATA": str(tmp_path)})).hash(ids)
    by_text = hasher_of(settings_from({"PARITAS_TOKEN_SECRET": "a secret"})).hash(ids)
    assert by_file[0] != by_text[0] != 0


def test_a_key_that_is_not_there(tmp_path):
    with pytest.raises(UsageError) as raised:
        hasher_of(settings_from({"PARITAS_DATA": str(tmp_path)}))
    assert raised.value.render() == (
        f"[usage] {tmp_path}/token.key: cannot be read: No such file or directory\n"
        "  hint: name the token key with PARITAS_TOKEN_KEY_FILE"
    )
    with pytest.raises(UsageError) as raised:
        hasher_of(settings_from({}))
    assert raised.value.render() == (
        "[usage] no token key is set\n"
        "  hint: set PARITAS_TOKEN_KEY_FILE to the same 16 to 64 random bytes for both kernels"
    )


def test_the_secret_is_not_shown():
    assert "hush" not in repr(settings_from({"PARITAS_TOKEN_SECRET": "hush"}))
