"""Alertmanager as a process of a test, what it is asked over its API, and a receiver that keeps what it tells."""

import http.server
import json
import subprocess
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field

from free_ports import free_port
from http_servers import serving
from system.alertmanager_setup import ALERTMANAGER, AMTOOL
from system.otel_parts import running, wait_until

HURRY = {
    "group_wait": "0s",
    "group_interval": "1s",
    "repeat_interval": "1h",
}  # an interval of none is refused
ASKED_S = 30


@dataclass(slots=True)
class Told:
    """What Alertmanager told its receivers: the path it was told at, and the message."""

    url: str = ""
    messages: list = field(default_factory=list)

    def labels(self, path, *, status):
        """Labels of the alerts told there with that status, in order."""
        told = [message for at, message in self.messages if at == path]
        return [a["labels"] for message in told for a in message["alerts"] if a["status"] == status]

    def alerts(self, path, *, status):
        """Their incidents."""
        return [labels.get("incident_id") for labels in self.labels(path, status=status)]


@contextmanager
def hook():
    """Serve a `Told` on a port of its own."""
    told = Told()

    class Takes(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            told.messages.append((self.path, message))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_words):
            pass

    with serving(Takes) as told.url:
        yield told


def one_receiver(url, **more):
    """A configuration that tells everything at `url`/all, at once; `more` goes beside its route."""
    receiver = {"name": "all", "webhook_configs": [{"url": f"{url}/all"}]}
    return {"route": {"receiver": "all", "group_by": ["..."], **HURRY}, "receivers": [receiver], **more}


class Alertmanager:
    """One instance; `serve` runs it until the block ends, always on the same ports and the same data.

    Parameters
    ----------
    folder : Path
        Its configuration, data and log.
    configuration : dict
        JSON, and so YAML.
    words : sequence
        Further options.
    """

    def __init__(self, folder, configuration, *words, scheme="http"):
        folder.mkdir(exist_ok=True)
        self.port, self.peer, self._folder = free_port(), f"127.0.0.1:{free_port()}", folder
        self.url, self._words = f"{scheme}://127.0.0.1:{self.port}", words
        self.file = folder / "alertmanager.json"
        self.file.write_text(json.dumps(configuration))

    def join(self, other, *options):
        """Be of one cluster with another; before serving."""
        self._words = (f"--cluster.listen-address={self.peer}", f"--cluster.peer={other.peer}", *options)

    @contextmanager
    def serve(self, *, is_ready=None):
        """Run it; `is_ready` replaces the question over HTTP whether it is."""
        where = (f"--web.listen-address=127.0.0.1:{self.port}", f"--storage.path={self._folder / 'data'}")
        cluster = () if any("cluster" in word for word in self._words) else ("--cluster.listen-address=",)
        command = [ALERTMANAGER, f"--config.file={self.file}", *where, *cluster, *self._words]
        with running(command, self._folder / "log", environment={}, ports={}) as part:
            wait_until(is_ready or (lambda: self.answers("/-/ready")), "Alertmanager ready", alive=part)
            yield part

    def answers(self, path):
        """Whether it answers 200 there."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=ASKED_S) as answer:
                return answer.status == 200
        except OSError:
            return False

    def asked(self, path, body=None):
        """A JSON answer of the API; with a body it is a POST."""
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/api/v2{path}", content, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=ASKED_S) as answer:
            return json.loads(answer.read() or b"null")

    def alerts(self):
        """The alerts that fire, by their incident."""
        return {a["labels"].get("incident_id"): a for a in self.asked("/alerts")}


def amtool(*words):
    """Run amtool; returns its exit code and all it said."""
    done = subprocess.run([AMTOOL, *words], capture_output=True, text=True, check=False, timeout=ASKED_S)
    return done.returncode, done.stdout + done.stderr
