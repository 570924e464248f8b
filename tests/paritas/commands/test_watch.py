"""`paritas watch` at an address where no waiting helps: one error; where it does, it waits."""

import json
import subprocess

import pytest
from certificates import self_signed
from command_runs import run
from escalation_examples import config, escalation
from free_ports import free_port
from service_runs import PARITAS

from paritas.commands.reaching import Reach
from paritas.controller.client import EscalationClient
from paritas.controller.config import TlsFiles
from paritas.controller.server import serving
from paritas.errors import TransientError


def test_a_host_that_nobody_knows_is_one_error():
    done = run("watch", "--target", "nowhere.invalid:4320")
    first, *rest = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert first.startswith("[transient] nowhere.invalid:4320: ")
    assert rest == ["  hint: is the name of the host right?"]


def test_a_port_that_speaks_tls_is_one_error(tmp_path):
    good = self_signed(tmp_path)
    tls = TlsFiles(good.certificate, good.key)
    with serving(config(tmp_path, listen="127.0.0.1:0", tls=tls)) as target:
        done = run("watch", "--target", target)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        (
            f"[transient] {target} speaks TLS, and this client does not\n"
            "  hint: name the authority of its certificate: --ca FILE\n"
        ),
    )


def test_a_host_that_is_known_is_waited_for(tmp_path):
    target = f"127.0.0.1:{free_port()}"
    command = [PARITAS, "watch", "--target", target, "--count", "1", "--json"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert watching.stderr.readline().startswith("warning: Subscription was interrupted, it resumes.")
        with serving(config(tmp_path, listen=target)), EscalationClient(target) as client:
            client.publish([escalation()])
            out, _ = watching.communicate(timeout=60)
    finally:
        watching.kill()
        watching.communicate()
    assert (watching.returncode, json.loads(out)["event_id"]) == (0, "incident-1/1")


@pytest.mark.parametrize(
    "target", ["unix:/no/such.sock", "dns:///nowhere.invalid:1", "127.0.0.1:1", "[::1]:1"]
)
def test_what_may_come_up_is_not_refused(target):
    Reach(target).check()


def test_a_host_that_is_none_is_refused():
    with pytest.raises(TransientError) as told:
        Reach("a..b:1").check()
    assert told.value.render() == (
        "[transient] a..b:1: not the name of a host\n  hint: is the name of the host right?"
    )
