"""Snapshots: what comes back is what went in, and nothing else is ever built."""

import hashlib
import json
import os
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_streams import stream, watched

from paritas.detectors import snapshot
from paritas.detectors.diagnosis import causes
from paritas.detectors.pipeline import Detector
from paritas.detectors.snapshot import FORMAT, dump, load
from paritas.errors import PermanentError
from paritas.records import State

HINT = "delete it to judge the event log again from its start"


def detector():
    machine = Detector(watched(), deployment="d")
    for trace in stream(60):
        list(machine.process([trace], 0))
    return machine


WHOLE = dump(detector())
HEAD, _, STATE = WHOLE.partition(b"\n")


def refused(text, *, contract_digest="d"):
    """Return the message a snapshot is refused with; every refusal says what to do."""
    with pytest.raises(PermanentError) as caught:
        load(text, contract_digest=contract_digest)
    assert caught.value.hint == HINT
    return str(caught.value)


def forged(state):
    """Return a snapshot whose head fits its state."""
    head = {"format": FORMAT, "contract": "d", "blake2b": hashlib.blake2b(state, digest_size=16).hexdigest()}
    return json.dumps(head).encode() + b"\n" + state


def test_a_snapshot_says_the_same_as_its_detector():
    machine = detector()
    restored = load(dump(machine), contract_digest="d")
    assert [repr(v) for v in restored.verdicts()] == [repr(v) for v in machine.verdicts()]
    assert restored.account == machine.account
    assert restored.pairer.waiting == machine.pairer.waiting > 0
    assert load(WHOLE, contract_digest="d").evaluator.reasons == machine.evaluator.reasons


def test_the_head_is_one_line_a_person_can_read():
    told = json.loads(HEAD)
    assert (told["format"], told["contract"]) == (FORMAT, "d")
    assert told["blake2b"] == hashlib.blake2b(STATE, digest_size=16).hexdigest()


def test_another_contract_is_refused():
    assert refused(WHOLE, contract_digest="e") == "the snapshot is of another format or contract, or damaged"


def test_another_format_is_refused():
    head = json.dumps({**json.loads(HEAD), "format": FORMAT + 1}).encode()
    assert refused(head + b"\n" + STATE) == "the snapshot is of another format or contract, or damaged"


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"{}\n", b"[1]\n", b"7\n", b"\xff\xfe\n", HEAD[:-1] + b"\n" + STATE], ids=range(7)
)
def test_a_damaged_head_is_refused(text):
    assert refused(text) == "the snapshot is damaged"


@settings(max_examples=40)
@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_one_changed_byte_anywhere_is_refused(place, change):
    text = bytearray(WHOLE)
    text[place] ^= change
    assert refused(bytes(text)) in {
        "the snapshot is damaged",
        "the snapshot is of another format or contract, or damaged",
    }


@settings(max_examples=40)
@given(st.integers(0, len(WHOLE) - 1))
def test_a_torn_file_is_refused(length):
    assert refused(WHOLE[:length])


class Harmful:
    """Runs a command when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        (os.system, ("touch HARM",), "posix.system"),
        (eval, ("1",), "builtins.eval"),
        (getattr, (int, "mro"), "builtins.int"),
        # what Python before 3.11.4 writes for an enum member leads to nothing else
        (getattr, (Detector, "__init__"), "builtins.getattr"),
        (__import__, ("os",), "builtins.__import__"),
        (json.loads, ("1",), "json.loads"),
        (pickle.loads, (b"",), "_pickle.loads"),
        # functions of ours are no classes of ours
        (causes.ramp, (1.0, 0.0, 1.0), "paritas.detectors.diagnosis.causes.ramp"),
        (snapshot.load, (b"",), "paritas.detectors.snapshot.load"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_foreign_pickle_is_refused_before_it_runs(function, arguments, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = forged(pickle.dumps(Harmful(function, *arguments)))
    assert refused(text) == f"the snapshot cannot be read: {named} has no place in a snapshot"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("paritas.detectors.snapshot", "pickle"),
        ("paritas.detectors.snapshot", "__builtins__"),
        ("paritas.detectors.diagnosis", "causes"),
        ("paritas.detectors.snapshot", "Detector"),
        ("paritas.detectors.snapshot", "pickle.loads"),
        ("paritas.records.kernel", "dataclass"),
        ("numpy", "load"),
    ],
)
def test_what_our_modules_merely_hold_is_refused(module, name):
    state = f"c{module}\n{name}\n.".encode()  # GLOBAL, STOP: the oldest pickle protocol
    assert (
        refused(forged(state)) == f"the snapshot cannot be read: {module}.{name} has no place in a snapshot"
    )


def test_a_class_of_ours_that_is_no_longer_there_is_refused():
    message = refused(forged(b"cparitas.detectors.bank\nVault\n."))
    assert message.startswith("the snapshot cannot be read: ")
    assert "Vault" in message


@pytest.mark.parametrize("value", [None, {"a": 1}, [1.5], "text"], ids=str)
def test_a_state_that_is_no_detector_is_refused(value):
    assert refused(forged(pickle.dumps(value))) == "the snapshot holds no detector"


@pytest.mark.parametrize("state", [b"", b"garbage", b"\x80\x05", b"h\x05.", STATE[:-9]], ids=range(5))
def test_a_state_that_is_no_pickle_is_refused(state):
    assert refused(forged(state)).startswith("the snapshot cannot be read: ")


def test_an_enum_member_is_read_as_every_python_writes_it():
    """Before 3.11.4 it is written as a call of `getattr`, later as one of the class."""
    member = snapshot._member(State, "VIOLATED")
    assert member is State.VIOLATED
