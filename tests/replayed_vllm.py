"""A real HTTP server that answers as a recorded vLLM 0.32 did.  No engine runs: it replays bytes."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from engine_answers import recorded

COMPLETIONS = "/v1/completions"
RECORDED = {
    "/version": (200, recorded("version.json")),
    "/v1/models": (200, recorded("models.json")),
    COMPLETIONS: (200, recorded("completions.json")),
}


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # twenty clients come at once; Python's five would turn some away


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        status, body = self.server.answers.get(self.path, (404, b'{"detail":"Not Found"}'))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(json.loads(asked))
        self.do_GET()

    def log_message(self, *_):
        """Say nothing."""


@contextlib.contextmanager
def replayed_vllm(**answers):
    """Yield (address, requests); `answers` maps a path to (status, bytes), None takes it away."""
    changed = {path: answer for path, answer in (RECORDED | answers).items() if answer is not None}
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.answers, server.asked = changed, []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", server.asked
        finally:
            server.shutdown()
            thread.join()
