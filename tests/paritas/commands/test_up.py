"""`paritas up`, `ingest` and `watch` as processes: a recording goes in, a subscriber receives escalations."""

import contextlib
import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_runs import DEADLINE_S, recording, run, service, until

from paritas.agent.eventlog import EmbeddedReader
from paritas.commands.places import DataFolder
from paritas.controller.client import EscalationClient

STALE = (recording("healthy.serve"), recording("stale.train"))


def incidents(data):
    with EscalationClient(DataFolder(data).running().target) as client:
        return {i.current.event_id: i.current for i in client.incidents(include_closed=True)}


def watch(data, count):
    done = run("watch", "--data", data, "--count", count, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_subscriber_receives_the_escalation_with_its_cause(tmp_path):
    with service(tmp_path) as process:
        sent = run("ingest", "--data", tmp_path, *STALE)
        assert (sent.returncode, sent.stderr) == (0, "")
        assert sent.stdout == "sent 48 inference sequences, 48 train sequences in 96 records\n"
        until(lambda: len(incidents(tmp_path)) >= 7)
        received = watch(tmp_path, 7)
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(timeout=DEADLINE_S) == 0
    assert "96 records, 0 refused, 0 repeated" in rest
    replica = [e for e in received if e["slice"] == "replica=r2"]
    assert replica
    assert {e["diagnosis"][0]["cause"] for e in replica} == {"stale_weights"}
    assert {a["kind"] for e in replica for a in e["actions"]} == {"notify", "reroute"}
    assert {e["slice"] for e in received} & {"replica=r0", "replica=r1", "replica=r3"} == set()


def test_kill_9_and_sending_everything_again_change_no_escalation(tmp_path):
    with service(tmp_path / "a"):
        run("ingest", "--data", tmp_path / "a", *STALE)
        until(lambda: len(incidents(tmp_path / "a")) >= 7)
        expected = set(incidents(tmp_path / "a"))
    with service(tmp_path / "b") as process:
        run("ingest", "--data", tmp_path / "b", *STALE)
        process.kill()
        process.wait()
    for _ in range(2):
        with service(tmp_path / "b") as process:
            run("ingest", "--data", tmp_path / "b", *STALE)
            process.kill()
            process.wait()
    with service(tmp_path / "b"):
        until(lambda: set(incidents(tmp_path / "b")) == expected)


def test_bad_lines_are_named_and_the_rest_is_sent(tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"sample_id": 1\n')
    with service(tmp_path / "d"):
        done = run("ingest", "--data", tmp_path / "d", recording("healthy.serve"), recording("healthy.train"))
        assert done.returncode == 0
        done = run("ingest", "--data", tmp_path / "d", bad)
    assert done.returncode in (3, 64)
    assert "bad.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


def test_nobody_there_is_one_clear_error(tmp_path):
    for command in (("ingest", "--data", tmp_path, STALE[0]), ("watch", "--data", tmp_path)):
        done = run(*command)
        assert done.returncode == 64
        assert done.stderr == (
            f"[usage] nothing runs on {tmp_path}\n  hint: start `paritas up` with the same --data first\n"
        )


def test_an_attribute_that_is_none_is_refused(tmp_path):
    with service(tmp_path):
        done = run("ingest", "--data", tmp_path, "--attribute", "replica", STALE[0])
    assert (done.returncode, done.stderr) == (64, "[usage] --attribute 'replica' is not KEY=VALUE\n")


def test_two_instances_on_one_folder_are_refused(tmp_path):
    with service(tmp_path):
        second = run("up", "--data", tmp_path, "--listen", "127.0.0.1:0")
    assert second.returncode == 64
    assert second.stderr.startswith("[usage] ")
    assert "Traceback" not in second.stderr


def test_a_remote_address_without_tls_is_refused(tmp_path):
    done = run("up", "--data", tmp_path, "--listen", "0.0.0.0:0")
    assert done.returncode == 64
    assert done.stderr == (
        "[usage] listen: '0.0.0.0:0' can be reached from other machines and has no TLS\n"
        "  hint: listen on 127.0.0.1 or unix:/path, or give certificate, key and client CA\n"
    )


def test_the_folder_and_what_is_in_it_are_private(tmp_path):
    data = tmp_path / "private"
    with service(data):
        modes = {
            p.name: oct(p.stat().st_mode & 0o777) for p in (data, data / "otlp.sock", data / "token.key")
        }
    assert modes == {"private": "0o700", "otlp.sock": "0o600", "token.key": "0o600"}


def test_demo_finds_both_faults_and_leaves_the_healthy_pair_alone():
    done = subprocess.run(
        [str(Path(sys.executable).with_name("paritas")), "demo"],
        capture_output=True,
        text=True,
        timeout=150,  # ten seconds of work and waiting, unless the machine is busy
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "received 0 escalations, as it should" in done.stdout
    assert "stale_weights" in done.stdout
    assert "support_mismatch" in done.stdout


@pytest.fixture
def serve_lines():
    with gzip.open(recording("healthy.serve"), "rt") as file:
        return file.readlines()


@contextlib.contextmanager
def following(data, path):
    """`ingest --follow` of a file; yields it, ended in any case."""
    command = [str(Path(sys.executable).with_name("paritas")), "ingest", "--data", str(data), "--follow"]
    follower = subprocess.Popen(
        [*command, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield follower
    finally:
        follower.kill()
        follower.communicate()


def ended(follower):
    """What it says when it is told to end, and its exit code."""
    follower.send_signal(signal.SIGTERM)
    return *follower.communicate(timeout=DEADLINE_S), follower.returncode


def test_a_growing_file_is_followed(tmp_path, serve_lines):
    """Lines that are appended while `ingest --follow` runs are sent; SIGTERM ends it with its account."""
    growing, log = tmp_path / "serve.jsonl", tmp_path / "d" / "log"
    growing.write_text("".join(serve_lines[:10]))
    with service(tmp_path / "d"), following(tmp_path / "d", growing) as follower:
        until(lambda: appended(log) >= 10)
        with growing.open("a") as file:
            file.writelines(serve_lines[10:15])
        until(lambda: appended(log) >= 15)
        assert ended(follower) == ("sent 15 inference sequences in 15 records\n", "", 0)


def test_a_rotated_file_is_followed_without_loss(tmp_path, serve_lines):
    """As logrotate does it: rename, make the new file, and tell the writer, who goes on in the old one until then."""
    growing, log = tmp_path / "serve.jsonl", tmp_path / "d" / "log"
    growing.write_text("".join(serve_lines[:10]))
    with service(tmp_path / "d"), following(tmp_path / "d", growing) as follower:
        until(lambda: appended(log) >= 10)
        with growing.open("a") as writer:
            growing.rename(tmp_path / "serve.jsonl.1")
            growing.touch()
            writer.writelines(serve_lines[10:15])
        growing.write_text("".join(serve_lines[15:20]))
        until(lambda: appended(log) >= 20)
        told = "sent 20 inference sequences in 20 records; rotations followed: 1\n"
        assert ended(follower) == (told, "", 0)


def test_a_file_that_is_cut_may_have_lost_lines_and_says_so(tmp_path, serve_lines):
    """As logrotate's copytruncate does it: what is added between the last look and the cut is in the copy alone."""
    growing, log = tmp_path / "serve.jsonl", tmp_path / "d" / "log"
    growing.write_text("".join(serve_lines[:10]))
    with service(tmp_path / "d"), following(tmp_path / "d", growing) as follower:
        until(lambda: appended(log) >= 10)
        growing.write_text("".join(serve_lines[10:15]))
        until(lambda: appended(log) >= 15)
        out, err, code = ended(follower)
    assert (out, code) == ("sent 15 inference sequences in 15 records; 1 lines could not be read\n", 3)
    assert err.startswith(f"{growing}:11: the file got shorter and is read from its start\n  hint: ")


def appended(log):
    with EmbeddedReader(log) as reader:
        return sum(reader.end_offsets().values())


def test_following_two_files_at_once_is_refused(tmp_path):
    with service(tmp_path):
        done = run("ingest", "--data", tmp_path, "--follow", *STALE)
    assert (done.returncode, done.stderr) == (
        64,
        "[usage] --follow takes one file or folder\n  hint: start one `paritas ingest --follow` for each\n",
    )


def test_a_port_that_does_not_exist_is_refused(tmp_path):
    done = run("up", "--data", tmp_path, "--listen", "127.0.0.1:99999")
    assert (done.returncode, done.stderr) == (
        64,
        "[usage] listen: port 99999 is above 65535\n  hint: port 0 picks a free one\n",
    )


def test_a_watcher_that_reaches_nobody_says_why_and_goes_on(tmp_path):
    command = [str(Path(sys.executable).with_name("paritas")), "watch", "--target", "127.0.0.1:1"]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = watcher.stderr.readline()
        assert line.startswith(
            "warning: Subscription was interrupted, it resumes. (subscriber_id=paritas-watch, error="
        )
        assert "wait_s=" in line
        assert watcher.poll() is None
    finally:
        watcher.kill()
        watcher.communicate()
