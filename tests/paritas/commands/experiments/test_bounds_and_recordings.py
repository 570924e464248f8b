"""The other experiments, small: shapes, and what they must say of what is known."""

import shutil

import numpy as np
import pytest
from command_runs import DATA

from paritas.commands.experiments import bias_vs_clip, bound_tightness, precision_ladder
from paritas.commands.experiments.bound_tightness import sequence_tv
from paritas.commands.experiments.kernel_families import FAMILIES
from paritas.commands.experiments.recorded import available, folder_of, judge_outcomes, outcomes_of
from paritas.commands.experiments.result import Setting
from paritas.errors import UsageError

QUICK = Setting(seed=2, is_quick=True)


@pytest.fixture(scope="module")
def bounds():
    return bound_tightness.run(QUICK)


@pytest.fixture(scope="module")
def ranges():
    return bias_vs_clip.run(QUICK)


@pytest.fixture(scope="module")
def ladder():
    return precision_ladder.run(QUICK)


def test_bounds_hold_in_every_family(bounds):
    assert bounds.exit_code == 0
    assert set(bounds.table("tokens").column("family")) == set(FAMILIES)
    assert {t.name: len(t.rows) for t in bounds.tables} == {"summary": 5, "tokens": 60, "sequences": 7}


def test_exact_certificates_of_tv_and_reward_are_the_truth(bounds):
    for row in bounds.table("tokens").rows:
        if row[2] == "token TV":
            assert row[3] == pytest.approx(row[5], rel=1e-9)


def test_the_square_root_law_is_close_and_the_sum_is_not(bounds):
    last = dict(zip(bounds.table("sequences").columns, bounds.table("sequences").rows[-1], strict=True))
    assert 0.7 < last["truth"] / last["square-root law (B3)"] <= 1.0
    assert last["sum of token TV (B1)"] == 1.0


def test_sequence_tv_is_that_of_enumerated_coins():
    grid = np.indices((2,) * 5).reshape(5, -1).sum(axis=0)
    p, q = (x**grid * (1 - x) ** (5 - grid) for x in (0.6, 0.5))
    assert sequence_tv(0.6, 0.5, 5) == pytest.approx(0.5 * np.abs(p - q).sum())


def test_the_clip_range_is_read_correctly(ranges):
    assert ranges.exit_code == 0
    assert {t.name: (len(t.rows), len(t.columns)) for t in ranges.tables} == {
        "ranges": (13, 8),
        "recording": (13, 5),
        "caps": (3, 2),
    }
    worst, ppo = (ranges.table("ranges").column(name) for name in ("worst-case bias", "PPO min, worst case"))
    assert worst[0] == max(worst)
    assert ppo[1] > 3 * worst[1]


def test_the_shipped_recordings_are_told_apart(ladder):
    assert ladder.exit_code == 0
    assert set(ladder.table("ladder").column("kernel")) == {"healthy", "stale", "top_p"}
    assert ladder.table("splits").rows == (("healthy", "dense-bf16", 4, 24, 0),)
    causes = dict(
        zip(ladder.table("faults").column("fault"), ladder.table("faults").column("cause named"), strict=True)
    )
    assert causes == {"stale": "stale_weights", "top_p": "support_mismatch"}


def test_a_fault_that_is_not_found_is_a_broken_promise(tmp_path):
    """A healthy pair under a name that is not known to be healthy counts as a fault."""
    for side in ("serve", "train"):
        shutil.copy(DATA / f"healthy.{side}.jsonl.gz", tmp_path / f"odd.{side}.jsonl.gz")
    told = precision_ladder.run(Setting(is_quick=True, recordings=tmp_path))
    assert told.exit_code == 1
    assert "every recorded fault is found: 0 of 1, missed: odd" in [
        f"{c.says}: {c.measured}" for c in told.claims
    ]


def test_recordings_are_found_by_name(tmp_path):
    for name in ("bf16.serve", "bf16.train", "bf16_weights_plus4.train", "lonely.train"):
        (tmp_path / f"{name}.jsonl.gz").touch()
    assert available(tmp_path) == {"bf16": "bf16", "bf16_weights_plus4": "bf16"}


def test_a_folder_without_a_pair_is_named(tmp_path):
    with pytest.raises(UsageError) as caught:
        folder_of(Setting(recordings=tmp_path))
    assert caught.value.render() == (
        f"[usage] {tmp_path}: no recorded pair\n  hint: a pair is NAME.serve.jsonl.gz with NAME.train.jsonl.gz"
    )


def test_outcomes_are_judged_as_check_judges_them():
    told = judge_outcomes("dense-bf16", outcomes_of(DATA, "healthy", "stale"))
    assert ("mean-ratio", "replica=r2") in told.violated
    assert told.cause == "stale_weights"
    assert 0 < told.after <= 48
