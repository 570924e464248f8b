"""`paritas promote` as a user runs it: a promotion to full on recorded data, exit codes, and every mistake."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from command_runs import recording
from promotion_cases import TEXT, private_file, public_file

from paritas.cli import main
from paritas.clock import SystemClock
from paritas.commands.places import DataFolder, Running
from paritas.controller.config import ServerConfig
from paritas.controller.promotion.config import PromotionConfig
from paritas.controller.server import serving

HEALTHY = ("--serve", recording("healthy.serve"), "--train", recording("healthy.train"))
NO_BAKE = TEXT.replace(", bake: 30m", "").replace("[0.05, 0.25]", "[0.05]")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A running controller, its contract and keys, in a folder of their own; nothing else is told."""
    folder = DataFolder(tmp_path / "state")
    folder.make()
    (tmp_path / "rollout.yaml").write_text(NO_BAKE.format(tv=0.3, version="1.0.0"))
    private_file(tmp_path)
    config = PromotionConfig(keys=public_file(tmp_path))
    monkeypatch.setenv("PARITAS_DATA", str(folder.root))
    monkeypatch.chdir(tmp_path)
    with serving(ServerConfig(folder.database, listen="127.0.0.1:0", promotion=config)) as target:
        folder.announce(Running(os.getpid(), target, ""))
        yield tmp_path


@pytest.fixture
def paritas(capsys):
    """Run in this process; returns (exit code, stdout, stderr)."""

    def run(*arguments):
        code = main([str(a) for a in arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def promote(paritas):
    def run(*arguments):
        code, out, err = paritas("promote", *arguments, "--json")
        assert err == "", err
        return code, json.loads(out)

    return run


def report(
    paritas, name="report.json", stage="offline_ci", attempt=1, contract="rollout.yaml", inputs=HEALTHY
):
    code, out, _ = paritas("check", contract, *inputs, "--stage", stage, "--attempt", attempt, "--json")
    Path(name).write_text(out)
    return code


def now():
    return datetime.fromtimestamp(SystemClock().now_ns() / 1e9, tz=UTC).isoformat()


def signed(promote, *arguments, name="report.json"):
    return promote("submit", "p1", "--from-check", name, "--key", "signing.pem", *arguments)


def test_a_promotion_from_the_command_line(place, paritas, promote):
    assert report(paritas) == 0
    code, started = promote(
        "start", "rollout.yaml", "--from-check", "report.json", "--weights", "s9", "--id", "p1"
    )
    assert (code, started["standing"], started["gate"]["stage"]) == (0, "running", "offline_ci")
    assert "seed" not in started
    code, answer = signed(promote, "-o", "evidence.json")
    assert (code, answer["blocked"], answer["promotion"]["gate"]["stage"]) == (0, None, "shadow")
    for stage, following in (("shadow", "canary"), ("canary", "full")):
        report(paritas, stage=stage)
        code, answer = signed(promote, "--from", now(), "--to", now())
        assert (code, answer["promotion"]["gate"]["stage"]) == (0, following), answer
    assert answer["promotion"]["standing"] == "full"
    code, detail = promote("status", "p1")
    assert (code, len(detail["transitions"])) == (0, 4)
    assert detail["transitions"][1]["evidence"] == (place / "evidence.json").read_text().strip()
    assert paritas("promote", "verify", "evidence.json", "--key", "trusted.pem")[0] == 0
    code, out, _ = paritas("promote", "status", "p1")
    assert out.splitlines()[0].startswith("p1  full at full, attempt 1  rollout 1.0.0  candidate ")
    assert "gate_passed: canary step 1 -> full, full on " in out


def test_what_a_violation_exits_with(place, paritas, promote):
    (place / "tight.yaml").write_text(NO_BAKE.format(tv=0.06, version="1.0.0"))
    bad = ("--serve", recording("top_p.serve"), "--train", recording("top_p.train"))
    assert report(paritas, contract="tight.yaml", inputs=bad) == 1
    promote("start", "tight.yaml", "--from-check", "report.json", "--id", "p1")
    code, answer = signed(promote)
    assert (code, answer["promotion"]["standing"]) == (1, "rolled_back")
    assert promote("status", "p1")[0] == 1
    assert promote("status")[1]["promotions"] == []
    assert [p["promotion_id"] for p in promote("status", "--all")[1]["promotions"]] == ["p1"]
    code, out, _ = paritas("promote", "advance", "p1")
    assert (code, out.splitlines()[-1]) == (1, "  over: it is rolled_back, at offline_ci: start a new one")


def test_what_undecided_and_refused_evidence_exit_with(place, paritas, promote):
    (place / "tight.yaml").write_text(NO_BAKE.format(tv=0.06, version="1.0.0"))
    assert report(paritas, contract="tight.yaml") == 3
    promote("start", "tight.yaml", "--from-check", "report.json", "--id", "p1")
    code, answer = signed(promote)
    assert (code, answer["blocked"]["block"]) == (3, "undecided")
    report(paritas)
    code, answer = signed(promote)
    assert (code, answer["blocked"]["block"]) == (3, "changed_contract")
    report(paritas, contract="tight.yaml", attempt=2)
    code, out, _ = paritas("promote", "submit", "p1", "--from-check", "report.json", "--key", "signing.pem")
    assert (code, out.splitlines()[-1]) == (
        3,
        "  another_attempt: the verdict is of attempt 2, this is attempt 1",
    )
    assert promote("advance", "p1")[0] == 3
    assert promote("abort", "p1", "--reason", "no", "--actor", "ann")[0] == 0


def test_a_loosened_contract_from_the_command_line(place, paritas, promote):
    report(paritas)
    promote("start", "rollout.yaml", "--from-check", "report.json", "--id", "p1")
    (place / "loose.yaml").write_text(NO_BAKE.format(tv=0.4, version="1.1.0"))
    code, answer = promote("advance", "p1", "--contract", "loose.yaml")
    assert (code, answer["blocked"]["block"]) == (3, "loosened_contract")
    (place / "tight.yaml").write_text(NO_BAKE.format(tv=0.2, version="1.0.1"))
    code, answer = promote("advance", "p1", "--contract", "tight.yaml")
    assert (code, answer["promotion"]["contract_version"], answer["promotion"]["attempt"]) == (0, "1.0.1", 2)


def test_recordings_without_real_times_do_not_pass_a_stage_of_traffic(place, paritas, promote):
    report(paritas)
    promote("start", "rollout.yaml", "--from-check", "report.json", "--id", "p1")
    signed(promote)
    report(paritas, stage="shadow")
    code, answer = signed(promote)
    assert (code, answer["blocked"]["block"]) == (3, "stale_window")


def test_verify_needs_no_controller(place, paritas, promote):
    report(paritas)
    promote("start", "rollout.yaml", "--from-check", "report.json", "--id", "p1")
    signed(promote, "-o", "evidence.json", "--expires", "1ms")
    code, told = promote("verify", "evidence.json", "--key", "trusted.pem")
    assert (code, told["signature"], told["expired"]) == (3, "good", True)
    assert told["statement"]["predicate"]["verdict"] == "PASS"
    text = (place / "evidence.json").read_text()
    (place / "evidence.json").write_text(text.replace('"payload":"e', '"payload":"f'))
    code, out, _ = paritas("promote", "verify", "evidence.json", "--key", "trusted.pem")
    assert (code, out) == (1, "forged: the envelope is signed by no trusted key, or was changed since\n")


HINT = "\n  hint: paritas check CONTRACT --stage STAGE … --json writes one\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("start", "rollout.yaml"),
            "[usage] no candidate\n  hint: give --from-check REPORT, or --inference DIGEST\n",
        ),
        (
            ("submit", "p1", "--from-check", "no.json", "--key", "signing.pem"),
            f"[usage] no.json: cannot be read: No such file or directory{HINT}",
        ),
        (
            ("submit", "p1", "--from-check", "rollout.yaml", "--key", "signing.pem"),
            f"[usage] rollout.yaml: is not JSON{HINT}",
        ),
        (
            ("submit", "p1", "--from-check", "other.json", "--key", "signing.pem"),
            f"[usage] other.json: is no report of `paritas check`{HINT}",
        ),
        (
            ("submit", "p1", "--from-check", "other.json"),
            "[usage] no key to sign with\n  hint: --key FILE; paritas floor key PRIVATE.pem PUBLIC.pem makes one\n",
        ),
        (
            ("submit", "p1", "--envelope", "no.json"),
            "[usage] no.json: cannot be read: No such file or directory\n",
        ),
        (
            ("submit", "p1"),
            (
                "[usage] one of the arguments --from-check --envelope is required\n"
                "  hint: paritas promote submit --help shows what it takes\n"
            ),
        ),
        (
            ("verify", "other.json", "--key", "signing.pem"),
            (
                "[usage] signing.pem: is not an Ed25519 public key in PEM without a password\n"
                "  hint: paritas floor key PRIVATE.pem PUBLIC.pem makes a pair\n"
            ),
        ),
    ],
)
def test_mistakes_say_what_is_wrong(place, paritas, arguments, text):
    (place / "other.json").write_text("{}")
    code, out, err = paritas("promote", *arguments)
    assert (code, out, err) == (64, "", text)


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--expires", "soon", "[usage] --expires: 'soon' is no duration\n  hint: write 30m, 24h or 7d\n"),
        ("--expires", "99999999d", "[usage] --expires: '99999999d' is too long\n  hint: at most 3650d\n"),
        ("--from", "noon", "[usage] --from: 'noon' is not a time\n  hint: write 2026-11-28T12:00:00+00:00\n"),
        (
            "--to",
            "2026-11-28",
            "[usage] --to: '2026-11-28' has no zone\n  hint: write 2026-11-28T12:00:00+00:00\n",
        ),
        (
            "--to",
            "1960-01-01T00:00:00+00:00",
            (
                "[usage] --to: '1960-01-01T00:00:00+00:00' is not a time of this program\n"
                "  hint: write 2026-11-28T12:00:00+00:00\n"
            ),
        ),
    ],
)
def test_times_that_are_none(place, paritas, promote, option, value, text):
    report(paritas)
    promote("start", "rollout.yaml", "--from-check", "report.json", "--id", "p1")
    told = ("submit", "p1", "--from-check", "report.json", "--key", "signing.pem", option, value)
    assert paritas("promote", *told) == (64, "", text)


def test_a_damaged_report_and_one_of_several_kernels(place, paritas, promote):
    report(paritas)
    promote("start", "rollout.yaml", "--from-check", "report.json", "--id", "p1")
    told = json.loads((place / "report.json").read_text())
    (place / "two.json").write_text(
        json.dumps(
            {**told, "observed": {**told["observed"], "kernels": {"inference": ["a", "b"], "train": []}}}
        )
    )
    submit = ("submit", "p1", "--key", "signing.pem", "--from-check")
    code, _, err = paritas("promote", *submit, "two.json")
    assert (code, err) == (
        64,
        "[usage] the report saw 2 different inference: no one candidate\n  hint: judge one at a time\n",
    )
    (place / "bad.json").write_text(json.dumps({**told, "verdicts": [{"clause": 3}]}))
    code, _, err = paritas("promote", *submit, "bad.json")
    assert (code, err) == (64, f"[usage] the report is damaged: 'slice'{HINT}")


def test_a_private_key_that_others_can_read_signs_nothing(place, paritas, promote):
    report(paritas)
    promote("start", "rollout.yaml", "--from-check", "report.json", "--id", "p1")
    (place / "signing.pem").chmod(0o644)
    code, _, err = paritas("promote", "submit", "p1", "--from-check", "report.json", "--key", "signing.pem")
    assert (code, err.splitlines()[0]) == (
        64,
        "[usage] signing.pem: others can read this private key (mode 0644)",
    )


def test_the_controller_says_where_it_answers_rollout_controllers(tmp_path):
    """As a process: `paritas control` with keys, HTTP and token, and a promotion that survives `kill -9`."""
    public_file(tmp_path)
    (tmp_path / "token").write_text("x" * 32)
    command = [
        str(Path(sys.executable).with_name("paritas")),
        *("control", "--listen", f"unix:{tmp_path}/c.sock", "--data", str(tmp_path / "state")),
        *("--promotion-keys", str(tmp_path / "trusted.pem"), "--promotion-http", "127.0.0.1:0"),
        *("--hook-token", str(tmp_path / "token")),
    ]
    (tmp_path / "rollout.yaml").write_text(NO_BAKE.format(tv=0.3, version="1.0.0"))
    before = None
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == f"escalations: unix:{tmp_path}/c.sock (gRPC)\n"
            assert process.stdout.readline().startswith("verdicts: http://127.0.0.1:")
            told = [command[0], "promote", "start", str(tmp_path / "rollout.yaml"), "--inference", "ab" * 16]
            told += ["--id", "p1", "--target", f"unix:{tmp_path}/c.sock", "--json"]
            done = subprocess.run(told, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            assert before in (None, done.stdout)
            before = done.stdout
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
