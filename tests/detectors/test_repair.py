"""The price of a repair: against token-by-token loops, and the certificate against exact laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS, lost, pair, paired

from paritas.detectors.repair import REPAIRS, Repair, RepairKind, price_repairs

KINDS = st.sampled_from(REPAIRS)


def rewarded(seed, n=9):
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        ell = rng.normal(0, 0.6, int(rng.integers(1, 7)))
        told = {"reward": f"{rng.integers(0, 2)}"} if rng.random() < 0.8 else {}
        found.append(paired(pair(ell, name=f"s-{i}", attributes=told)))
    return [*found, lost(name="s-x"), paired(pair([], name="s-y"))]


def weight(repair, ratio, sequence):
    """Weight of one token by the words of the definition, and whether the repair acted on it."""
    c = repair.threshold
    outside = [not 1 / c <= w <= c for w in sequence] if c else []
    match repair.kind:
        case RepairKind.NONE:
            return 1.0, False
        case RepairKind.TIS:
            return min(ratio, c), ratio > c
        case RepairKind.MIS:
            gone = not 1 / c <= ratio <= c
            return (0.0 if gone else ratio), gone
        case RepairKind.SEQUENCE_MASK:
            return (0.0 if any(outside) else ratio), any(outside)
        case RepairKind.CLIP:
            return min(max(ratio, 1 - c), 1 + c), not 1 - c <= ratio <= 1 + c


@given(SEEDS, KINDS)
def test_every_number_is_that_of_a_loop_over_tokens(seed, repair):
    outcomes = rewarded(seed)
    (price,) = price_repairs(outcomes, repairs=[repair])
    ratios = [np.exp(o.pair.log_ratio).tolist() for o in outcomes if o.pair is not None and o.pair.tokens]
    rewards = [o.pair.attributes.get("reward") for o in outcomes if o.pair is not None and o.pair.tokens]
    acted = [[weight(repair, w, seq) for w in seq] for seq in ratios]
    weights = [phi for seq in acted for phi, _ in seq]
    assert price.tokens == len(weights)
    assert price.touched == sum(hit for seq in acted for _, hit in seq)
    assert price.sequences == len(acted)
    hits, gone = (
        [any(hit for _, hit in seq) for seq in acted],
        [all(phi == 0 for phi, _ in seq) for seq in acted],
    )
    assert (price.sequences_touched, price.sequences_lost) == (sum(hits), sum(gone))
    if any(r is not None for r in rewards):
        right = [r == "1" for r in rewards]
        assert price.correct == sum(right)
        assert price.correct_touched == sum(r and h for r, h in zip(right, hits, strict=True))
        assert price.correct_lost == sum(r and g for r, g in zip(right, gone, strict=True))
    else:
        assert (price.correct, price.correct_touched, price.correct_lost) == (None, None, None)
    square = sum(phi * phi for phi in weights)
    assert price.ess == pytest.approx(sum(weights) ** 2 / (len(weights) * square) if square else 0.0)


@settings(max_examples=15)
@given(SEEDS)
def test_the_bias_of_the_certificate_is_that_of_exact_laws(seed):
    """Sum over the law q: E_q|phi - w| + mu equals the mean of the statistic, for every token repair."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    q[0], p[0] = 0.0, max(p[0], 0.01)  # mass that the sampler cannot draw
    p, q = p / p.sum(), q / q.sum()
    w = p[1:] / q[1:]
    outcomes = [paired(pair([np.log(r)], name=f"s-{i}")) for i, r in enumerate(w)]
    for repair in REPAIRS:
        values = [
            price_repairs([o], repairs=[repair])[0].bias.estimate for o in outcomes
        ]  # of one token each: the statistic
        phi = np.array([weight(repair, r, [r])[0] for r in w])
        exact = np.sum(q[1:] * np.abs(phi - w)) + p[0]
        assert np.sum(q[1:] * np.array(values)) == pytest.approx(exact)


def test_limits_hold_for_all_candidates_together():
    rng, missed, runs, alpha = np.random.default_rng(4), 0, 40, 0.2
    repairs = [
        Repair(RepairKind.TIS, 2.0),
        Repair(RepairKind.MIS, 2.0),
        Repair(RepairKind.SEQUENCE_MASK, 2.0),
    ]
    big = price_repairs(
        [paired(pair(e, name=f"s-{i}")) for i, e in enumerate(rng.normal(-0.08, 0.4, (20_000, 3)))],
        repairs=repairs,
    )
    for _ in range(runs):
        ells = rng.normal(-0.08, 0.4, (50, 3))
        prices = price_repairs(
            [paired(pair(e, name=f"s-{i}")) for i, e in enumerate(ells)], repairs=repairs, alpha=alpha
        )
        pairs = zip(prices, big, strict=True)
        missed += any(not p.bias.lower <= b.bias.estimate <= p.bias.upper for p, b in pairs)
    assert missed <= 2 * alpha * runs  # one alpha for each side


def test_a_mask_loses_answers_that_a_cap_keeps():
    outcomes = [
        paired(pair([0.0, np.log(8.0)], name="right", attributes={"reward": "1"})),
        paired(pair([0.0, 0.0], name="wrong", attributes={"reward": "0"})),
    ]
    cap, mask = price_repairs(
        outcomes, repairs=[Repair(RepairKind.TIS, 2.0), Repair(RepairKind.SEQUENCE_MASK, 2.0)]
    )
    assert (cap.sequences_lost, cap.correct_lost, cap.touched) == (0, 0, 1)
    assert (mask.sequences_lost, mask.correct_lost, mask.touched) == (1, 1, 2)


def test_rewards_of_another_range_are_correct_above_its_middle():
    outcomes = [paired(pair([0.0], name=f"s-{r}", attributes={"reward": f"{r}"})) for r in (-1, 0, 1)]
    (price,) = price_repairs(outcomes, repairs=REPAIRS[:1], reward_range=(-1.0, 1.0))
    assert price.correct == 1


def test_nothing_paired_has_no_price():
    assert price_repairs([lost()]) == ()


def test_names_are_short():
    assert [str(r) for r in REPAIRS[:3]] == ["none", "tis 1", "tis 1.25"]
