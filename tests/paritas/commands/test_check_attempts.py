"""`paritas check --attempt N`: trying again asks for more evidence, and the gate says so."""

from dataclasses import replace

import pytest
from command_runs import recording, run, run_json
from pair_factory import both, clause, contract

from paritas.commands.offline import judge
from paritas.contracts.model import Gate, Promotion, Stage
from paritas.records import State

HEALTHY = ("--serve", recording("healthy.serve"), "--train", recording("healthy.train"))


def test_the_attempt_is_part_of_what_the_gate_prints():
    code, judged = run_json("check", "dense-bf16", *HEALTHY, "--attempt", "3")
    assert code == 3
    assert judged["gate"] == {
        "stage": "offline_ci",
        "alpha": 0.01,
        "attempt": 3,
        "pass_alpha": pytest.approx(0.01 * 6 / 9.8696044 / 9),
    }
    shown = run("check", "dense-bf16", *HEALTHY, "--attempt", "3").stdout
    assert "gate  offline_ci, attempt 3: a pass spends 0.000675 of alpha 0.01" in shown


def test_a_judgement_that_is_no_gate_counts_no_attempt():
    _, judged = run_json("check", "dense-bf16", *HEALTHY)
    assert (judged["gate"]["attempt"], judged["gate"]["pass_alpha"]) == (None, 0.01)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "٣", "9" * 30])
def test_an_attempt_that_is_none_is_refused(text):
    done = run("check", "dense-bf16", *HEALTHY, f"--attempt={text}")
    assert done.returncode == 64
    assert done.stderr.startswith(f"[usage] argument --attempt: {text!r} is not a whole number from 1\n")


def test_a_later_attempt_passes_later():
    asked = replace(contract(clause("tv", 0.5)), promotion=Promotion((Gate(Stage.OFFLINE_CI, alpha=0.05),)))
    traces = [view for i in range(60) for view in both(f"s{i:03}")]

    def sequences_to_pass(attempt):
        passed = (
            n
            for n in range(1, 61)
            if judge(asked, traces[: 2 * n], attempt=attempt).verdicts[0].state is State.CONFORMING
        )
        return next(passed, 99)

    assert sequences_to_pass(None) == sequences_to_pass(1) < sequences_to_pass(2) < sequences_to_pass(10)
