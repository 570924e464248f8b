"""`paritas control` with an access file as a process, and what a person does with it from a shell."""

import json
import os
import subprocess
import sys

import pytest
from certificates import self_signed
from escalation_examples import escalation

from paritas.cli import main
from paritas.client import EscalationClient, TlsFiles

START_S = 60
PARITAS = (sys.executable, "-c", "import sys; from paritas.cli import main; sys.exit(main())")


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """A controller that asks for names; yields its data folder, its address and a subscriber's token file."""
    for name in ("PARITAS_TOKEN_FILE", "PARITAS_DATA"):
        monkeypatch.delenv(name, raising=False)
    access, token = tmp_path / "access.jsonl", tmp_path / "token"
    token.write_text(run("access", "add", "reader", "--file", access).stdout)
    command = [*PARITAS, "control", "--listen", "127.0.0.1:0"]
    command += ["--data", tmp_path / "data", "--access", access]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        target = process.stdout.readline().split()[1]
        yield tmp_path / "data", target, token
    finally:
        process.terminate()
        process.communicate(timeout=START_S)


def test_with_tls_for_others_the_owner_has_a_socket(tmp_path):
    pki, data = self_signed(tmp_path), tmp_path / "data"
    command = [
        *PARITAS,
        "control",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data,
        "--certificate",
        pki.certificate,
    ]
    with subprocess.Popen([*command, "--key", pki.key], stdout=subprocess.PIPE, text=True) as process:
        try:
            target = process.stdout.readline().split()[1].replace("127.0.0.1", "localhost")
            with EscalationClient(target, tls=TlsFiles(ca=pki.ca)) as client:
                client.publish([escalation()])
            assert run("incidents", "list", "--data", data).stdout.startswith("incident-1 ")
            assert (data / "controller.sock").stat().st_mode & 0o777 == 0o600
            reached = ("--target", target, "--ca", pki.ca)
            assert run("incidents", "list", *reached).stdout.startswith("incident-1 ")
            for place in (reached, ("--data", data)):
                assert run("routes", *place).stdout == "no policy is routed here\n"
                assert run("promote", "status", *place).stdout == "no promotion\n"
        finally:
            process.terminate()
            process.communicate(timeout=START_S)


def run(*words):
    """Run a command as its user does."""
    command = [*PARITAS, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=START_S, check=False, env=os.environ
    )


def test_the_owner_of_the_folder_needs_no_token_and_others_do(guarded):
    data, target, token = guarded
    with EscalationClient(target, token_file=data / "controller.token") as client:
        client.publish([escalation()])
    mine = run("incidents", "list", "--data", data, "--json")
    assert json.loads(mine.stdout)["current"]["incident_id"] == "incident-1"
    stranger = run("incidents", "list", "--target", target)
    assert (stranger.returncode, stranger.stderr) == (
        1,
        "[permanent] no token or certificate of a known name was shown\n",
    )
    reader = run("incidents", "list", "--target", target, "--token-file", token)
    assert reader.stdout.startswith("incident-1  firing     warning  token-tv all  ")
    refused = run("incidents", "ack", "incident-1", "--target", target, "--token-file", token)
    assert refused.stderr == "[permanent] reader is subscriber; this takes actor\n"


@pytest.mark.parametrize("words", [("routes",), ("promote", "status")])
def test_routes_and_promotions_too_are_the_owners_without_a_token(guarded, words, monkeypatch):
    data, target, token = guarded
    assert run(*words, "--data", data).returncode == 0
    stranger = run(*words, "--target", target)
    assert (stranger.returncode, stranger.stderr) == (
        1,
        "[permanent] no token or certificate of a known name was shown\n",
    )
    assert run(*words, "--target", target, "--token-file", token).returncode == 0
    monkeypatch.setenv("PARITAS_TOKEN_FILE", str(token))
    assert run(*words, "--target", target).returncode == 0


def test_a_person_acknowledges_silences_and_ends_it(guarded):
    data, target, _ = guarded
    with EscalationClient(target, token_file=data / "controller.token") as client:
        client.publish([escalation()])
    me = ("--data", data, "--author", "ana")
    assert (
        run("incidents", "ack", "incident-1", *me).stdout
        == "incident-1 seen by ana (owner of the data folder)\n"
    )
    made = run("incidents", "silence", "clause=token-tv", "--for", "30m", "--comment", "swap", *me).stdout
    silence_id = made.split()[0]
    assert "clause=token-tv  by ana (owner of the data folder): swap" in made
    assert run("incidents", "silences", "--data", data).stdout == made
    assert run("incidents", "list", "--data", data).stdout.endswith("[seen, silenced]\n")
    assert run("incidents", "expire", silence_id, *me).returncode == 0
    assert run("incidents", "silences", "--data", data).stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("incidents", "silence", "clause", "--for", "1m", "--target", "127.0.0.1:1"),
            "[usage] 'clause' is not a matcher\n  hint: write FIELD=VALUE, such as clause=token-tv\n",
        ),
        (
            ("incidents", "silence", "clause=x", "--for", "soon", "--target", "127.0.0.1:1"),
            "[usage] --for: 'soon' is not a duration\n  hint: a number and a unit, such as 30m\n",
        ),
        (
            ("incidents", "list", "--target", "127.0.0.1:1", "--token-file", "/no/token"),
            "[usage] cannot read key file '/no/token': No such file or directory\n",
        ),
        (
            ("access", "list", "--file", "/no/file"),
            "[usage] cannot read access file '/no/file': No such file or directory\n",
        ),
    ],
)
def test_what_cannot_work_is_said(words, said, capsys):
    assert main(list(words)) == 64
    assert capsys.readouterr().err == said


def test_names_and_roles_are_listed_without_a_token(tmp_path, capsys):
    file = str(tmp_path / "access.jsonl")
    main(["access", "add", "a", "--role", "admin", "--file", file])
    main(["access", "add", "b", "--subject", "b.example", "--file", file])
    capsys.readouterr()
    assert main(["access", "list", "--file", file]) == 0
    assert capsys.readouterr().out == "a\tadmin\ttoken\nb\tsubscriber\tb.example\n"
