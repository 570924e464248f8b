"""Falsification: statements hold, the search can find what it looks for, assumptions withdraw."""

import numpy as np
import pytest

from paritas.commands.experiments.broken_assumptions import assumption_table
from paritas.commands.experiments.falsification import STATEMENTS, reproduce, run, tightest_climb
from paritas.commands.experiments.laws import BANDIT, TREE, Laws, decode, responses
from paritas.commands.experiments.response_laws import enumerated
from paritas.commands.experiments.result import Setting
from paritas.commands.experiments.search import Tally, climb, is_broken, ratios, sweep
from paritas.commands.experiments.statements import CLIP, Judged, Statement, update_bias, weights_of
from paritas.commands.experiments.statements_grpo import group_advantages

QUICK = Setting(seed=3, is_quick=True)
BY_NAME = {statement.name: statement for statement in STATEMENTS}


@pytest.fixture(scope="module")
def found():
    return run(QUICK)


def cases(size, seed=0, number=40):
    return np.random.default_rng(seed).normal(size=(number, size.width))


def test_no_statement_is_violated(found):
    table = found.table("statements")
    assert table.column("violations") == (0,) * len(STATEMENTS)
    assert found.exit_code == 0


def test_the_tables_have_their_shapes(found):
    shapes = {table.name: (len(table.rows), len(table.columns)) for table in found.tables}
    assert shapes == {
        "certificates": (24, 4),
        "statements": (24, 8),
        "assumptions": (4, 7),
        "sampled": (5, 6),
    }


def test_every_objective_is_there(found):
    names = set(found.table("statements").column("statement"))
    assert {"ppo-clip", "grpo-clip", "trpo-tv", "rlhf-kl", "dpo-gradient", "reward-direct"} <= names


def test_the_same_seed_gives_the_same_numbers():
    statement = BY_NAME["dpo-gradient"]
    assert sweep(statement, (3, 1), 1000) == sweep(statement, (3, 1), 1000) != sweep(statement, (4, 1), 1000)


def test_the_tightest_case_is_made_again_by_its_seed_alone(found):
    best = tightest_climb("ppo-clip", QUICK)
    assert list(best.entropy) == found.cases["ppo-clip"]["seed"]
    assert reproduce(BY_NAME["ppo-clip"], best, QUICK) == best.ratio == found.cases["ppo-clip"]["ratio"]


def test_a_printed_case_can_be_checked_by_hand(found):
    told = found.cases["pg-uncorrected"]
    weight, p, q, score, advantage = (np.array(told[k]) for k in ("weight", "p", "q", "score", "advantage"))
    bias = np.einsum("s,sv,svd->d", weight, (q - p) * advantage, score)
    tv = weight @ (0.5 * np.abs(p - q).sum(axis=1))
    bound = 2.0 * tv * np.abs(advantage).max() * np.linalg.norm(score, axis=-1).max()
    assert np.linalg.norm(bias) / bound == pytest.approx(told["ratio"], rel=1e-6)


def weaker(statement, factor):
    """The statement with a bound that is too small by `factor`."""

    def judge(case):
        told = statement.judge(case)
        return Judged(told.truth, told.bound * factor, told.stands)

    return Statement(statement.name, "", "", "", statement.size, judge)


@pytest.mark.parametrize("name", ["ppo-clip", "pg-tis", "grpo-clip", "token-tv", "reward-tv", "confidence"])
def test_a_constant_that_is_one_percent_too_small_is_caught(name):
    assert climb(weaker(BY_NAME[name], 0.99), (1, 2), 60).violations > 0


def test_a_climb_is_never_looser_than_where_it_started():
    statement = BY_NAME["pg-uncorrected"]
    assert climb(statement, (5,), 40).ratio >= climb(statement, (5,), 0).ratio > 0.0


def test_a_violation_outside_the_assumptions_is_counted_apart():
    told = sweep(BY_NAME["tis-prior"], (1, 1), 1000)
    assert isinstance(told, Tally)
    assert told.violations == 0 < told.uncovered < told.withdrawn


def test_what_does_not_stand_gives_no_ratio():
    judged = Judged(np.array([2.0, 1.0]), np.array([1.0, 2.0]), np.array([False, True]))
    assert ratios(judged).tolist() == [0.0, 0.5]
    assert is_broken(judged).tolist() == [True, False]


def test_each_broken_assumption_is_withdrawn_seen_and_would_have_been_wrong():
    table = assumption_table(1, 300)
    assert table.column("withdrawn") == table.column("cases")
    assert all(wrong > 0 for wrong in table.column("would be wrong"))
    assert all(
        seen >= 0.9 * cases for seen, cases in zip(table.column("seen"), table.column("cases"), strict=True)
    )


# ---- the exact problems themselves


def test_scores_have_mean_zero_and_laws_sum_to_one():
    laws = decode(cases(BANDIT), BANDIT)
    assert np.allclose(laws.p.sum(axis=-1), 1.0)
    assert np.allclose(laws.q.sum(axis=-1), 1.0)
    assert np.allclose(np.einsum("nsv,nsvd->nsd", laws.p, laws.score), 0.0, atol=1e-12)


def test_the_score_is_the_gradient_of_log_p():
    drawn = cases(BANDIT, number=1)
    laws, step = decode(drawn, BANDIT), 1e-6
    features = drawn[:, 20:36].reshape(2, 4, 2)
    logits = np.log(laws.p[0])

    def log_p(theta):
        moved = logits + features @ theta
        return moved - np.log(np.exp(moved).sum(axis=-1, keepdims=True))

    for axis in np.eye(2):
        slope = (log_p(step * axis) - log_p(-step * axis)) / (2 * step)
        assert np.allclose(slope, laws.score[0] @ axis, atol=1e-7)


def test_ppo_weights_are_the_derivative_of_the_clipped_surrogate():
    laws = decode(cases(BANDIT, 7), BANDIT, masked=False)
    advantage, w, step = laws.advantage, laws.ratio, 1e-7

    def surrogate(r):
        return np.minimum(r * advantage, np.clip(r, 1.0 - CLIP, 1.0 + CLIP) * advantage)

    slope = (surrogate(w * (1 + step)) - surrogate(w * (1 - step))) / (2 * step)
    smooth = np.abs(np.abs(w - 1.0) - CLIP) > 1e-4
    expected = weights_of("ppo_min", laws, advantage) * advantage
    assert np.allclose(slope[smooth], expected[smooth], atol=1e-6)


def test_full_weights_have_no_bias_where_supports_agree():
    laws = decode(cases(BANDIT), BANDIT, masked=False)
    assert np.allclose(update_bias(laws, laws.ratio, laws.advantage), 0.0, atol=1e-12)


def test_the_sharp_pair_of_d2_reaches_its_bound():
    x, y = 0.7, 0.3
    p, q = (np.array([[[v, v, 1 - v, 1 - v]]]) / 2 for v in (x, y))
    score, advantage = np.array([[[1.0, -1.0, 1.0, -1.0]]]), np.array([[[1.0, -1.0, -1.0, 1.0]]])
    laws = Laws(np.ones((1, 1)), p, q, q, score[..., None], advantage, advantage, advantage)
    assert update_bias(laws, weights_of("none", laws, advantage), advantage) == pytest.approx(2.0 * (x - y))


def test_responses_are_laws_too():
    told = enumerated(cases(TREE))
    assert np.allclose(told.p.sum(axis=1), 1.0)
    assert np.allclose(told.q.sum(axis=1), 1.0)
    contexts, tokens = responses(3)
    assert contexts.shape == tokens.shape == (8, 3)
    assert len({tuple(row) for row in tokens.tolist()}) == 8


def test_group_advantages_are_normalised():
    reward = np.array([[0.0, 1.0, *np.zeros(6)]])
    told = group_advantages(reward)
    assert told[0, 1, 0, 0] == pytest.approx(np.sqrt(2.0))
    assert told[0, 0, 0, 0] == 0.0
    members = told[0, 1, 0, 2] + told[0, 0, 1, 2] + told[0, 2, 1, 0]
    assert members == pytest.approx(0.0)
