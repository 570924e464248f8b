"""Escalations as records of a topic: bit for bit there and back, garbage refused, no gRPC needed."""

import subprocess
import sys

import pytest
from escalation_examples import escalation

from paritas.controller.topic import escalation_bytes, escalation_from
from paritas.errors import PermanentError


def test_there_and_back():
    event = escalation()
    assert escalation_bytes(escalation_from(escalation_bytes(event))) == escalation_bytes(event)
    assert escalation_from(escalation_bytes(event)) == event


def test_what_is_no_escalation_is_refused():
    with pytest.raises(PermanentError) as caught:
        escalation_from(b"\xff\xff")
    assert caught.value.render() == (
        "[permanent] the record is no escalation\n  hint: does another program write to the topic?"
    )


def test_it_needs_no_grpc():
    code = "import sys, paritas.controller.topic; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
