"""What gRPC's core has to say of its connections is for who develops it: a command says it in words of its own."""

import json
import signal
import subprocess

from escalation_examples import escalation
from service_runs import PARITAS

from paritas.controller.client import EscalationClient
from paritas.controller.config import ServerConfig
from paritas.controller.server import serving


def test_a_server_that_cancels_its_calls_is_told_in_our_words_alone(tmp_path):
    hasty = ServerConfig(tmp_path / "log.db", listen="127.0.0.1:0", drain_s=0.1, farewell_s=0.1)
    watching = None
    try:
        with serving(hasty) as target, EscalationClient(target) as client:
            command = [PARITAS, "watch", "--target", target, "--json"]
            watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            client.publish([escalation()])
            assert json.loads(watching.stdout.readline())["event_id"] == "incident-1/1"
            watching.send_signal(signal.SIGSTOP)  # it does not end its call, so the server does
        watching.send_signal(signal.SIGCONT)
        first = watching.stderr.readline()
    finally:
        if watching is not None:
            watching.kill()
            watching.communicate()
    assert first.startswith("warning: Subscription was interrupted, it resumes.")
