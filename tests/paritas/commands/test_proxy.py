"""`paritas proxy` as a user runs it, before a real HTTP server that replays what a vLLM answered."""

import http.server
import json
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from command_runs import DEADLINE_S, run, until
from emitter_scenes import Agent
from engine_answers import recorded, told
from http_servers import serving

from paritas.commands.proxy import upstream_of
from paritas.errors import UsageError


class Engine(http.server.BaseHTTPRequestHandler):
    """Says it is vLLM 0.32 and answers completions."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Say nothing."""

    def do_GET(self):
        known = {"/version": "version.json", "/v1/models": "models.json"}
        self._say(
            recorded(known[self.path]) if self.path in known else b"{}", 200 if self.path in known else 404
        )

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say(recorded("completions.json"))

    def _say(self, body, status=200):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def proxy(*arguments, env):
    command = [str(Path(sys.executable).with_name("paritas")), "proxy", "--listen", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        lines = [process.stdout.readline() for _ in range(6)]
        assert lines[-1] == "ready\n", "".join(lines) + process.stderr.read()
        yield process, lines
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_from_request_to_trace():
    with TemporaryDirectory() as folder, serving(Engine) as engine:
        socket_path, key = Path(folder) / "s", Path(folder) / "key"
        key.write_bytes(b"k" * 32)
        env = {"HOME": folder, "PATH": "/usr/bin:/bin", "PARITAS_RUN_ID": "by-variable"}
        told_run = ("--share", "1", "--agent", f"unix:{socket_path}", "--token-key", str(key))
        with (
            Agent(socket_path) as agent,
            proxy("--upstream", engine + "/", *told_run, env=env) as (process, lines),
        ):
            address = lines[1].split()[1]
            assert lines == [
                "proxy\n",
                f"  listening: {address}\n",
                f"  upstream:  {engine}\n",
                "  engine:    vllm 0.32.0\n",
                f"  metrics:   {address}/paritas/metrics\n",
                "ready\n",
            ]
            headers = {"Authorization": "Bearer hush", "Content-Type": "application/json"}
            asked = urllib.request.Request(f"{address}/v1/completions", b'{"prompt": "a"}', headers)
            with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
                assert (
                    json.loads(answer.read())["choices"][0]["text"]
                    == told("completions.json")["choices"][0]["text"]
                )
            until(lambda: agent.records)  # its end waits two seconds for what is on its way, and no longer
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=DEADLINE_S)
            assert (process.returncode, err) == (0, "")
            assert out == "stopped: 1 traces accepted = 1 delivered + 0 dropped (none)\n"
            (trace,) = agent.traces()
            assert (trace.run_id, len(trace), trace.kernel.engine_version) == ("by-variable", 16, "0.32.0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--upstream", "localhost:8000"),
            "[usage] --upstream is 'localhost:8000'\n  hint: write http://HOST:PORT or https://HOST:PORT\n",
        ),
        (
            ("--upstream", "http://a", "--listen", "8090"),
            "[usage] --listen is '8090'\n  hint: write HOST:PORT, such as 127.0.0.1:8090\n",
        ),
        (
            ("--upstream", "http://a", "--share", "5%"),
            "[usage] PARITAS_SHARE is '5%'\n  hint: write a number\n",
        ),
        (
            ("--upstream", "http://a", "--top-k", "-1"),
            "[usage] --top-k is -1\n  hint: write a number from 0 to 1024\n",
        ),
        (
            ("--upstream", "http://a", "--attribute", "slice"),
            "[usage] --attribute 'slice' is not KEY=VALUE\n",
        ),
        (
            ("--upstream", "http://a", "--ca", "/nowhere.pem"),
            "[usage] --ca /nowhere.pem: cannot be read: No such file or directory\n  hint: name a PEM file\n",
        ),
        (
            ("--upstream", "http://a"),
            (
                "[usage] no token key is set\n"
                "  hint: set PARITAS_TOKEN_KEY_FILE to the same 16 to 64 random bytes for both kernels\n"
            ),
        ),
    ],
)
def test_what_is_wrong_is_said(arguments, said, tmp_path):
    done = run("proxy", *arguments, env={"HOME": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (64, "", said)


def test_a_taken_port_is_said(tmp_path):
    with serving(Engine) as taken:
        address = taken.removeprefix("http://")
        done = run(
            "proxy",
            "--upstream",
            taken,
            "--listen",
            address,
            env={"HOME": str(tmp_path), "PARITAS_TOKEN_SECRET": "x"},
        )
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith(f"[usage] --listen {address}: ")
    assert done.stderr.endswith("\n  hint: choose a free port\n")


def test_a_host_that_is_none_is_said(tmp_path):
    safe = {"HOME": str(tmp_path), "PARITAS_TOKEN_SECRET": "x"}
    done = run("proxy", "--upstream", "http://127.0.0.1:1", "--listen", "a..b:0", env=safe)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "[usage] --listen a..b:0: not the name of a host\n  hint: choose a free port\n"


@pytest.mark.parametrize(
    "text", ["", "http://", "http://a:b", "ftp://a", "http://u:p@a", "http://a?x", "http://a#x", "//a"]
)
def test_what_is_no_upstream(text):
    with pytest.raises(UsageError):
        upstream_of(text)


def test_an_upstream_may_have_a_path():
    assert upstream_of("https://gateway:8443/models/a/") == "https://gateway:8443/models/a"
