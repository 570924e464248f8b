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


def nemo_sequence(i, q, p, sign):
    """One sequence of four tokens as NeMo-RL dumps it; every third was rewarded."""
    return nemo_line(
        idx=i,
        rewards=[float(i % 3 == 0)],
        input_lengths=[5],
        token_ids=[[1, 2, 3, 4, 5]],
        token_loss_mask=[[0, 1, 1, 1, 1]],
        advantages=[[0.0, *[sign] * 4]],
        generation_logprobs=[[0.0, *q]],
        prev_logprobs=[[0.0, *p]],
    )


def prime_sequence(i, q, p, sign):
    """The same as prime-rl dumps it, which tells no reward."""
    return prime_line(
        export_sequence_idx=i,
        token_ids=[1, 2, 3, 4],
        loss_mask=[True] * 4,
        advantages=[sign] * 4,
        inference_logprobs=q.tolist(),
        trainer_logprobs=p.tolist(),
        rl_weights=[None] * 4,
        ref_kl_weights=[None] * 4,
    )


def sequences(line_of):
    """Sixty sequences, far outside the clip range, on the side the advantage pushes to or not."""
    rng = np.random.default_rng(4)
    for i in range(60):
        q = np.round(rng.uniform(-3, -1, 4), 4)
        yield line_of(i, q, q + (1.0 if i % 2 else -1.0), 1.0 if i % 4 < 2 else -1.0)


@pytest.fixture
def dumped(tmp_path, dump):
    """Read the sixty sequences of one framework's dump, from the start at each call."""
    name, line_of, read = DUMPS[dump]
    (tmp_path / name).write_bytes(encode(*sequences(line_of)))
    return lambda: read(tmp_path / name, raw_options())


DUMPS = {
    "nemo": ("train_data_step1.jsonl", nemo_sequence, read_nemo_rl),
    "prime": ("rank_0.jsonl", prime_sequence, read_prime_rl),
}
OBJECTIVES = (
    clause("ppo_clip_rate", 0.5, Family.STATISTICAL, clip=0.2),
    clause("reward_loss", 0.9, Family.STATISTICAL),
)


@pytest.mark.parametrize("dump", DUMPS)
def test_the_clauses_of_objectives_judge_a_dump(dumped, dump):
    told = {v.clause: v for v in judge(contract(*OBJECTIVES), dumped()).verdicts}
    # A > 0 drops w = e, A < 0 drops w = 1/e: every other sequence of each sign.
    assert told["ppo_clip_rate"].estimate == pytest.approx(0.5)
    assert (told["reward_loss"].state is State.NO_DATA) == (dump == "prime")


@pytest.mark.parametrize("dump", DUMPS)
def test_without_advantages_no_clause_of_objectives_judges(dumped):
    without = judge(contract(*OBJECTIVES), (_bare(t) for t in dumped()))
    assert {v.clause: v.state for v in without.verdicts}["ppo_clip_rate"] is State.NO_DATA


def _bare(trace):
    return replace(trace, attributes={})
