"""`paritas scrape` as a user runs it, before a real HTTP server that replays what a vLLM told."""

import http.server
import socket
from pathlib import Path

import pytest
from command_runs import run, run_json
from http_servers import serving
from odd_servers import NO_HTTP, speaking

from paritas.commands.scrape import metrics_url
from paritas.errors import UsageError

RECORDED = Path(__file__).parents[2] / "collectors/metrics/vllm-0.32.prom"


class Engine(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing."""

    def do_GET(self):
        body = RECORDED.read_bytes() if self.path == "/metrics" else b"<html>no</html>"
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_a_person_sees_a_table_and_a_program_everything():
    with serving(Engine) as url:
        done = run("scrape", "--url", url)
        code, told = run_json("scrape", "--url", url + "/metrics")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "engine:           vllm",
        "model:            smol",
        "running:          0",
        "waiting:          0",
    ]
    assert lines[-6] == "ttft:             mean 0.3966 s, p50 0.045 s, p99 2.425 s, n 5"
    assert (code, told["engine"], told["finished"], told["swapped"]) == (0, "vllm", 5.0, None)
    assert told["ttft"]["bounds_s"][-1] is None
    assert told["names"]["kv_usage"] == "vllm:kv_cache_usage_perc"


def test_what_is_wrong_is_said():
    with serving(Engine) as url:
        other = run("scrape", "--url", url + "/page")
        missing = run("scrape", "--url", url + "/none")
    with socket.socket() as closed:  # bound, so that nobody else listens there meanwhile
        closed.bind(("127.0.0.1", 0))
        silent = f"http://127.0.0.1:{closed.getsockname()[1]}"
        nobody = run("scrape", "--url", silent)
    assert other.returncode == 64
    assert other.stderr.startswith("[usage] this is no text of Prometheus metrics: ")
    hint = "\n  hint: is the engine up, and does it tell metrics?\n"
    assert (missing.returncode, missing.stderr) == (
        1,
        f"[transient] {url}/none: HTTP 404 Not Found{hint}",
    )
    assert (nobody.returncode, nobody.stderr) == (
        1,
        f"[transient] {silent}/metrics: Connection refused{hint}",
    )


@pytest.mark.parametrize("words", NO_HTTP, ids=["other", "broken"])
def test_what_speaks_no_http_is_one_clear_error(words):
    with speaking(words) as url:
        done = run("scrape", "--url", url)
    assert done.returncode == 1
    assert done.stderr == (
        f"[transient] {url}/metrics: what answers there does not speak HTTP, or broke off\n"
        "  hint: is the engine up, and does it tell metrics?\n"
    )


@pytest.mark.parametrize("text", ["", "localhost:8000", "ftp://a", "http://", "http://a:b"])
def test_no_address(text):
    with pytest.raises(UsageError) as error:
        metrics_url(text)
    assert error.value.render() == (
        f"[usage] --url is {text!r}\n  hint: write http://HOST:PORT or https://HOST:PORT"
    )
