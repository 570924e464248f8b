"""A reference model with a kernel of its own: paired with the trainer's view, its identity checked, losses counted."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_runs import run, run_json
from objective_recordings import record
from pair_factory import clause, contract, trace

from paritas.collectors.dumps import read_dump
from paritas.collectors.dumps.options import ReadOptions
from paritas.contracts.diff import compare_contracts
from paritas.contracts.dump import resolved
from paritas.contracts.load import load_contract, load_text
from paritas.contracts.model import Compare, Family
from paritas.detectors.pairing import Pairer
from paritas.detectors.pipeline import Detector
from paritas.records import KernelIdentity, PairReason, Role, State
from paritas.tokens import TokenHasher

EXAMPLE = Path(__file__).parents[2] / "examples/contracts/dpo-reference.yaml"
AGAINST = Compare(unit="group", against=Role.REFERENCE)
MARGIN = clause("dpo_margin_drift", 0.02, Family.STATISTICAL, beta=0.5)


def said(role, kind, logprob, group="g-0", **more):
    """What one kernel says of one answer."""
    labels = {"preference": kind}
    return trace(role, name=f"{group}/{kind}", logprob=logprob, group_id=group, attributes=labels, **more)


def outcomes(traces, compare=AGAINST):
    pairer = Pairer(compare)
    return [o for t in traces for o in pairer.process(t, 0)] + list(pairer.flush(0))


def test_the_margin_drifts_by_four_log_probabilities_of_two_kernels():
    chosen, rejected = (-1.0, -2.0), (-0.5, -1.5, -0.25)
    traces = [
        said("reference", "chosen", chosen),
        said("reference", "rejected", rejected),
        said("train", "chosen", (-1.25, -2.0)),
        said("train", "rejected", (-0.5, -1.25, -0.25)),
    ]
    detector = Detector(replace(contract(MARGIN), compare=AGAINST), recover=False)
    assert [list(detector.process([t], 0)) for t in traces] == [[]] * 4
    assert list(detector.flush(0)) == []
    (verdict,) = detector.verdicts()
    moved = (sum((-1.25, -2.0)) - sum(chosen)) - (sum((-0.5, -1.25, -0.25)) - sum(rejected))
    assert verdict.estimate == pytest.approx(math.tanh(0.5 * abs(moved) / 4))
    assert verdict.units == 1


def test_the_pair_names_the_kernel_of_the_reference():
    kernel = KernelIdentity(Role.REFERENCE, engine="served", dtype="float16")
    found = outcomes([said("reference", "chosen", (-1.0,), kernel=kernel), said("train", "chosen", (-1.0,))])
    assert [o.reason for o in found] == [PairReason.PAIRED]
    assert found[0].pair.inference == kernel


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_the_policy_on_an_engine_takes_no_part_in_any_order(order):
    views = [
        said("inference", "chosen", (-9.0,)),
        said("reference", "chosen", (-1.0,)),
        said("train", "chosen", (-1.5,)),
    ]
    found = [o for o in outcomes([views[i] for i in order]) if o.pair is not None]
    assert len(found) == 1
    np.testing.assert_allclose(found[0].pair.log_ratio, [-0.5])
    plain = [o for o in outcomes([views[i] for i in order], Compare()) if o.pair is not None]
    np.testing.assert_allclose(plain[0].pair.log_ratio, [7.5])


def test_an_answer_that_one_kernel_never_evaluated_is_counted():
    found = outcomes(
        [
            said("reference", "chosen", (-1.0,)),
            said("train", "rejected", (-1.0,)),
            said("inference", "rejected", (-1.0,)),
        ]
    )
    told = {(o.sequence_id, o.reason, o.detail) for o in found}
    assert told == {
        ("g-0/chosen", PairReason.UNMATCHED, "only reference was reported"),
        ("g-0/rejected", PairReason.UNMATCHED, "only inference, train was reported"),
    }


def test_half_a_preference_tells_of_no_margin():
    detector = Detector(replace(contract(MARGIN), compare=AGAINST), recover=False)
    for one in (said("reference", "chosen", (-1.0,)), said("train", "chosen", (-2.0,))):
        list(detector.process([one], 0))
    list(detector.flush(0))
    assert [v.state for v in detector.verdicts()] == [State.NO_DATA]


# ---- contract


def test_the_contract_says_with_which_kernel_it_compares():
    told = load_contract(EXAMPLE)
    assert told.compare.against is Role.REFERENCE
    assert load_text(json.dumps(resolved(told)), "again.yaml").compare == told.compare
    plain = load_text(EXAMPLE.read_text().replace(", against: reference", ""), "plain.yaml")
    assert plain.compare.against is Role.INFERENCE
    assert "against" not in resolved(plain)["spec"]["compare"]
    (change,) = (c for c in compare_contracts(plain, told).changes if c.path == "compare.against")
    assert (change.before, change.after, change.effect.value) == ("inference", "reference", "incomparable")


# ---- the command


@pytest.fixture
def files(tmp_path):
    def preference(i, _):
        return {
            "group_id": f"g-{i // 2:04}",
            "preference": ("chosen", "rejected")[i % 2],
            "dtype": "bfloat16",
        }

    return record(tmp_path, sequences=40, labels=preference)


def test_check_reads_the_reference_in_its_role(files, tmp_path):
    code, told = run_json("check", EXAMPLE, "--reference", files[0], "--train", files[1])
    assert code == 3
    (margin,) = (v for v in told["verdicts"] if v["clause"] == "margin")
    assert margin["units"] == 20
    assert told["accounting"]["pairs"]["paired"] == 40
    fewer = tmp_path / "fewer.jsonl"
    fewer.write_text("".join(line + "\n" for line in files[0].read_text().splitlines()[:30]))
    _, told = run_json("check", EXAMPLE, "--reference", fewer, "--train", files[1])
    assert (told["accounting"]["pairs"]["paired"], told["accounting"]["pairs"]["unmatched"]) == (30, 10)


def test_a_reference_of_another_kernel_than_declared_is_refused(files, tmp_path):
    changed = tmp_path / "changed.jsonl"
    changed.write_text(files[0].read_text().replace('"dtype": "bfloat16"', '"dtype": "float16"'))
    strict = tmp_path / "strict.yaml"
    strict.write_text(EXAMPLE.read_text() + "    runtime: [{id: kernel, statistic: kernel_identity}]\n")
    states = {}
    for name, file in (("same", files[0]), ("other", changed)):
        _, told = run_json("check", strict, "--reference", file, "--train", files[1])
        states[name] = {v["clause"]: v["state"] for v in told["verdicts"]}["kernel"]
    assert states == {"same": "conforming", "other": "violated"}


MISTAKES = {
    ("--serve", "--train"): (
        EXAMPLE,
        (
            "dpo-reference compares the training kernel with the reference kernel\n"
            "  hint: give its recording with --reference (the contract's compare.against)\n"
        ),
    ),
    ("--reference", "--train"): (
        EXAMPLE.with_name("dpo.yaml"),
        (
            "dpo compares the training kernel with the inference kernel\n"
            "  hint: give its recording with --serve (the contract's compare.against)\n"
        ),
    ),
    ("--reference", "--serve", "--train"): (
        EXAMPLE,
        "--serve and --reference: the training kernel is compared with one other\n",
    ),
    ("--reference", "--dump"): (
        EXAMPLE,
        "--dump holds both kernels: give it without --serve and --train\n",
    ),
    ("--reference",): (EXAMPLE, "no input\n  hint: give --serve FILE --train FILE, or --dump PATH\n"),
}


@pytest.mark.parametrize("options", MISTAKES)
def test_recordings_of_other_kernels_than_the_contract_compares_are_one_error(options, files):
    example, message = MISTAKES[options]
    done = run("check", example, *(word for name in options for word in (name, files[0])))
    assert (done.returncode, done.stdout, done.stderr) == (64, "", f"[usage] {message}")


def test_a_recorded_line_may_say_that_it_is_a_reference(files, tmp_path):
    path = tmp_path / "reference.jsonl"
    lines = (json.loads(line) for line in files[0].read_text().splitlines())
    path.write_text("".join(json.dumps({**line, "role": "reference"}) + "\n" for line in lines))
    found = list(read_dump(path, ReadOptions(TokenHasher(b"k" * 16))))
    assert {t.kernel.role for t in found} == {Role.REFERENCE}
    assert len(found) == 40
