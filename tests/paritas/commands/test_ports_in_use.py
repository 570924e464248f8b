"""A port of gRPC that somebody else has: one error of ours, and no line that gRPC writes past it."""

import socket

import pytest
from command_runs import run

AGENT = """name: pod-7
spool: {{path: {folder}/spool}}
receivers: {{grpc: {{listen: "{listen}"}}}}
destination: {{embedded: {{path: {folder}/log}}}}
"""


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_of_the_controller(tmp_path, taken):
    done = run("control", "--data", tmp_path, "--listen", taken)
    assert (done.returncode, done.stdout, done.stderr) == (
        64,
        "",
        (
            f"[usage] listen: cannot bind {taken!r}: Address already in use\n"
            "  hint: is another controller running there? choose another address\n"
        ),
    )


def test_of_the_agent(tmp_path, taken):
    (tmp_path / "agent.yaml").write_text(AGENT.format(folder=tmp_path, listen=taken))
    done = run("agent", "--config", tmp_path / "agent.yaml")
    assert (done.returncode, done.stdout, done.stderr) == (
        64,
        "",
        (
            f"[usage] {taken}: cannot listen: Address already in use\n"
            "  hint: choose another port; 0 picks a free one\n"
        ),
    )
