"""`paritas control --notify` as a process: a message goes out, and the farewell counts it."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from escalation_examples import DEADLINE_S, escalation

from paritas.client import EscalationClient

PARITAS = (sys.executable, "-c", "import sys; from paritas.cli import main; sys.exit(main())")


def test_a_message_goes_out_and_the_farewell_counts_it(tmp_path):
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
    plan = tmp_path / "notify.yaml"
    plan.write_text(f'receivers: [{{name: ops, kind: slack, url: "{url}", group: {{wait: 0s}}}}]\n')
    command = [*PARITAS, "control", "--listen", "127.0.0.1:0", "--data", tmp_path / "data", "--notify", plan]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            target = process.stdout.readline().split()[1]
            with EscalationClient(target) as client:
                client.publish([escalation()])
            assert came.wait(DEADLINE_S)
        finally:
            process.terminate()
            said, _ = process.communicate(timeout=DEADLINE_S)
            inbox.shutdown()
            inbox.server_close()
    assert said == "people were told: 1 to ops; 0 tries failed\n"
