"""Real routers as processes, and the small servers behind them that say who answered."""

import json
import subprocess
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from free_ports import free_port
from system import routers_setup

from paritas.controller.drivers.envoy_config import bootstrap

MODULES = {"sglang-router": "sglang_router.launch_router", "vllm-router": "vllm_router.launch_router"}


class _Server(ThreadingHTTPServer):
    request_queue_size = (
        128  # copies of requests come in crowds; one beyond Python's five waits a second or more
    )


class Workers:
    """One server a replica; every answer is the replica's name, and `hits` counts requests, copies too."""

    def __init__(self, *names):
        self.hits = Counter()
        self._servers = {name: self._started(name) for name in names}

    def address(self, name):
        return "{}:{}".format(*self._servers[name].server_address)

    def close(self):
        for server in self._servers.values():
            server.shutdown()
            server.server_close()

    def _started(self, name):
        hits = self.hits

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers.get("content-length") or 0))
                hits[name, self.path] += 1
                body = json.dumps({"id": name, "model_path": "m", "status": "ok"}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST  # noqa: N815  # the handler's own spelling

            def log_message(self, *_words):
                pass

        server = _Server(("127.0.0.1", 0), Answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


def ask(base_url, times=1, **headers):
    """Count who answered `times` requests."""
    answered = Counter()
    for _ in range(times):
        asked = urllib.request.Request(f"{base_url}/v1/completions", data=b'{"model":"m","prompt":"x"}')
        for name, value in {"content-type": "application/json", **headers}.items():
            asked.add_header(name.replace("_", "-"), value)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            answered[json.loads(answer.read())["id"]] += 1
    return answered


@contextmanager
def envoy(folder, fleet, addresses):
    """Run Envoy with our bootstrap; yields its URL, for when the driver says that it is connected."""
    config = folder / "envoy.json"
    config.write_text(json.dumps(bootstrap(fleet, addresses)))
    command = [routers_setup.ENVOY, "-c", config, "--use-dynamic-base-id", "-l", "warn"]
    with _running(folder / "envoy.log", command):
        yield f"http://{addresses.listen}"


@contextmanager
def worker_router(folder, kind, urls):
    """Run sglang-router or vllm-router over `urls`; yields its URL."""
    port = free_port()
    command = [routers_setup.PYTHON, "-m", MODULES[kind], "--host", "127.0.0.1", "--port", str(port)]
    command += ["--prometheus-port", str(free_port()), "--policy", "round_robin", "--worker-urls", *urls]
    with _running(folder / "router.log", command):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(log, command):
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
