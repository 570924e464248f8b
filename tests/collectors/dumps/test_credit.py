"""Advantages and rewards of dumps: one number a sequence, as objectives read it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dump_lines import encode, nemo_line, prime_line, raw_options, recorded_line
from pair_factory import clause, contract

from paritas.collectors.dumps import Problem, read_nemo_rl, read_prime_rl, read_recorded
from paritas.collectors.dumps.credit import advantage_of
from paritas.commands.offline import judge
from paritas.contracts.model import Family
from paritas.records import Role, State


def labels(items):
    """`advantage` and `reward` of every trace, the same in both kernels'."""
    found = [(t.attributes.get("advantage"), t.attributes.get("reward")) for t in items]
    assert len(set(found)) == 1
    return found[0]


def nemo(tmp_path, **changes):
    path = tmp_path / "train_data_step1.jsonl"
    path.write_bytes(encode(nemo_line(**changes)))
    return list(read_nemo_rl(path, raw_options()))


def prime(tmp_path, **changes):
    path = tmp_path / "rank_0.jsonl"
    path.write_bytes(encode(prime_line(**changes)))
    return list(read_prime_rl(path, raw_options()))


def recorded(tmp_path, **changes):
    path = tmp_path / "serve.jsonl"
    path.write_bytes(encode(recorded_line(**changes)))
    return list(read_recorded(path, Role.INFERENCE, raw_options()))


@pytest.mark.parametrize(
    ("advantages", "label"),
    [
        ([[9.0, 9.0, 0.5, 0.5, 9.0, 9.0]], "0.5"),  # outside the loss, and padding, do not count
        ([[0.0, 0.0, -0.5, -1.5, 0.0, 0.0]], "-1.0"),  # its tokens differ, not in sign
        ([[0.0, 0.0, 0.5, -0.5, 0.0, 0.0]], None),
        ([[0.0, 0.0, 0.0, 0.5, 0.0, 0.0]], None),
        ([[0.0, 0.0, math.nan, math.inf, 0.0, 0.0]], None),
        ([[0.0, 0.0, math.nan, 0.5, 0.0, 0.0]], "0.5"),
        ([0.25], "0.25"),
        (0.25, "0.25"),
        (["much"], None),
        (None, None),
    ],
)
def test_nemo_rl_tells_the_advantage_of_a_sequence(tmp_path, advantages, label):
    assert labels(nemo(tmp_path, advantages=advantages)) == (label, "1.0")


def test_a_column_that_is_not_aligned_is_one_problem(tmp_path):
    (problem,) = nemo(tmp_path, advantages=[[0.5, 0.5]])
    assert isinstance(problem, Problem)
    assert problem.message == "columns differ in length: token_ids 6, advantages 2"
    (problem,) = prime(tmp_path, advantages=[0.5, 0.5])
    assert problem.message == "columns differ in length: token_ids 3, advantages 2"
    (problem,) = recorded(tmp_path, advantages=[0.5, "x", 0.5])
    assert problem.message == "'advantages[1]' is text, expected a number or an integer or null"


@pytest.mark.parametrize(
    ("advantages", "label"),
    [([9.0, -0.5, -0.5], "-0.5"), ([0.0, None, 0.5], "0.5"), ([0.0, None, None], None), (None, None)],
)
def test_prime_rl_tells_the_advantage_of_a_sequence(tmp_path, advantages, label):
    assert labels(prime(tmp_path, advantages=advantages)) == (label, None)


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"advantages": [0.5, 0.5, 0.5], "rewards": [1.0]}, ("0.5", "1.0")),
        ({"advantages": -2, "rewards": 3}, ("-2", "3")),
        ({"advantages": [0.5] * 3, "advantage": 7.0, "rewards": 1.0, "reward": 0.0}, ("7.0", "0.0")),
        ({"rewards": [1.0, 2.0]}, (None, None)),
    ],
)
def test_a_recorded_line_may_call_them_as_trainers_do(tmp_path, changes, label):
    assert labels(recorded(tmp_path, **changes)) == label


def test_a_number_no_label_holds_is_none():
    assert advantage_of(10**400, np.ones(1, np.bool_)) == {}
    assert advantage_of(True, np.ones(1, np.bool_)) == {}


@pytest.mark.parametrize("dump", ["nemo", "prime"])
def test_the_clauses_of_objectives_judge_a_dump(tmp_path, dump):
    clauses = (
        clause("ppo_clip_rate", 0.5, Family.STATISTICAL, clip=0.2),
        clause("reward_loss", 0.9, Family.STATISTICAL),
    )
    rng = np.random.default_rng(4)
    lines = []
    for i in range(60):
        q = np.round(rng.uniform(-3, -1, 4), 4)
        p = q + (
            1.0 if i % 2 else -1.0
        )  # far outside the clip range, on the side the advantage pushes to or not
        sign = 1.0 if i % 4 < 2 else -1.0
        if dump == "nemo":
            lines.append(
                nemo_line(
                    idx=i,
                    rewards=[float(i % 3 == 0)],
                    input_lengths=[5],
                    token_ids=[[1, 2, 3, 4, 5]],
                    token_loss_mask=[[0, 1, 1, 1, 1]],
                    advantages=[[0.0, *[sign] * 4]],
                    generation_logprobs=[[0.0, *q]],
                    prev_logprobs=[[0.0, *p]],
                )
            )
        else:
            lines.append(
                prime_line(
                    export_sequence_idx=i,
                    token_ids=[1, 2, 3, 4],
                    loss_mask=[True] * 4,
                    advantages=[sign] * 4,
                    inference_logprobs=q.tolist(),
                    trainer_logprobs=p.tolist(),
                    rl_weights=[None] * 4,
                    ref_kl_weights=[None] * 4,
                )
            )
    path = tmp_path / ("train_data_step1.jsonl" if dump == "nemo" else "rank_0.jsonl")
    path.write_bytes(encode(*lines))
    read = read_nemo_rl if dump == "nemo" else read_prime_rl
    found = judge(contract(*clauses), read(path, raw_options()))
    told = {v.clause: v for v in found.verdicts}
    # A > 0 drops w = e, A < 0 drops w = 1/e: every other sequence of each sign.
    assert told["ppo_clip_rate"].estimate == pytest.approx(0.5)
    assert (told["reward_loss"].state is State.NO_DATA) == (dump == "prime")
    without = judge(contract(*clauses), (_bare(t) for t in read(path, raw_options())))
    assert {v.clause: v.state for v in without.verdicts}["ppo_clip_rate"] is State.NO_DATA


def _bare(trace):
    return replace(trace, attributes={})
