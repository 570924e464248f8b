"""`--notify`: a message goes out, the farewell counts it, and nobody can take the subscription away."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from escalation_examples import DEADLINE_S, config, escalation, take

from paritas.client import EscalationClient
from paritas.commands.notify_option import SUBSCRIBER, notifying
from paritas.commands.places import DataFolder
from paritas.commands.reaching import Reach
from paritas.controller.server import serving

PARITAS = (sys.executable, "-c", "import sys; from paritas.cli import main; sys.exit(main())")


@contextmanager
def told(folder):
    """A plan with one receiver, and the event that is set when something is posted to it."""
    came = threading.Event()

    class Inbox(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            came.set()

        def log_message(self, *_words):
            pass

    inbox = ThreadingHTTPServer(("127.0.0.1", 0), Inbox)
    threading.Thread(target=inbox.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{inbox.server_address[1]}/"
    plan = folder / "notify.yaml"
    plan.write_text(f'receivers: [{{name: ops, kind: slack, url: "{url}", group: {{wait: 0s}}}}]\n')
    yield plan, came
    inbox.shutdown()
    inbox.server_close()


def test_a_message_goes_out_and_the_farewell_counts_it(tmp_path):
    with told(tmp_path) as (plan, came):
        data = tmp_path / "data"
        command = [*PARITAS, "control", "--listen", "127.0.0.1:0", "--data", data, "--notify", plan]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                target = process.stdout.readline().split()[1]
                with EscalationClient(target) as client:
                    client.publish([escalation()])
                assert came.wait(DEADLINE_S)
            finally:
                process.terminate()
                said, _ = process.communicate(timeout=DEADLINE_S)
    assert said == "people were told: 1 to ops; 0 tries failed\n"


@pytest.mark.usefixtures("capsys")
def test_a_subscriber_that_takes_its_name_ends_no_notifications(tmp_path):
    """A second stream of one name ends the first: whoever may only read must not make people deaf."""
    with (
        told(tmp_path) as (plan, came),
        serving(config(tmp_path)) as target,
        EscalationClient(target) as client,
        notifying(plan, DataFolder(tmp_path), Reach(target)),
    ):
        client.publish([escalation(policy="a")])
        assert came.wait(DEADLINE_S)
        came.clear()
        with client.subscribe(SUBSCRIBER) as taken:
            take(taken, 3)
            client.publish([escalation(incident_id="other", policy="b")])
            assert came.wait(DEADLINE_S)
