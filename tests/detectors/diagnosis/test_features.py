"""Features: every one against numpy on the tokens themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS, pair, random_top

from paritas.detectors.diagnosis import Features, Fingerprint, fingerprints
from paritas.detectors.diagnosis.parts import MIN_BIN, evidence, worst_part
from paritas.detectors.evidence import PairBatch
from paritas.records import TokenStatus

LENGTH = 400
EDGES = (0, 1, 4, 16, 64, 256, 1024)


def some_pairs(seed, scale, sequences=16):
    rng, made = np.random.default_rng(seed), []
    for i in range(sequences):
        ell = scale * rng.standard_t(5, LENGTH) + rng.normal(0, scale)
        counts = {
            TokenStatus.VALID: LENGTH,
            TokenStatus.NONFINITE: int(rng.integers(0, 5)),
            TokenStatus.SENTINEL: int(rng.integers(0, 5)),
            TokenStatus.POSITIVE: int(rng.integers(0, 5)),
            TokenStatus.MISSING: int(rng.integers(0, 9)),
            TokenStatus.MASKED: int(rng.integers(0, 50)),
            TokenStatus.PROMPT: int(rng.integers(0, 50)),
        }
        made.append(
            pair(
                ell, -rng.exponential(1.5, LENGTH), name=f"s-{i}", counts=counts, top=random_top(rng, LENGTH)
            )
        )
    return made


def features_of(pairs):
    return Features.of(Fingerprint(fingerprints(PairBatch.of(pairs)).sum(axis=0)))


def correlation(pairs, shift):
    """Correlation of log p with log q `shift` tokens later, within sequences."""
    p = [one.logprob_q + one.log_ratio for one in pairs]
    q = [one.logprob_q for one in pairs]
    n = LENGTH - abs(shift)
    ours = np.concatenate([x[max(-shift, 0) :][:n] for x in p])
    theirs = np.concatenate([x[max(shift, 0) :][:n] for x in q])
    return np.corrcoef(ours, theirs)[0, 1]


def root(ell):
    return np.copysign(np.sqrt(np.abs(ell)), ell)


def opposed(ell, q):
    """Return the smaller share of its drift that a likely and an unlikely half spend on moving apart."""
    shares = [ell[part].sum() / np.abs(ell[part]).sum() for part in (q >= np.log(0.1), q < np.log(0.1))]
    return min(np.abs(shares)) if shares[0] * shares[1] < 0 else 0.0


def neighbours(columns):
    """Correlation with the token before, around the mean of all."""
    mean = np.concatenate(columns).mean()
    products = np.concatenate([c[1:] * c[:-1] for c in columns]).mean() - mean**2
    return products / (np.concatenate(columns) ** 2 - mean**2).mean()


def lean_z(pairs):
    leans = [
        (np.abs(one.log_ratio[LENGTH // 2 :]).mean() - np.abs(one.log_ratio[: LENGTH // 2]).mean())
        / np.abs(one.log_ratio).mean()
        for one in pairs
    ]
    return np.mean(leans) / (np.std(leans) / np.sqrt(len(leans)))


def direct(pairs):
    """Return every feature, from the tokens themselves."""
    ell = np.concatenate([one.log_ratio for one in pairs])
    q = np.concatenate([one.logprob_q for one in pairs])
    return (
        {"tokens": len(ell), "units": len(pairs)}
        | of_ratios(ell)
        | of_levels(ell, q)
        | of_sequences(pairs)
        | {"top1_z": top1_z(pairs)}
        | of_statuses(pairs)
    )


def of_ratios(ell):
    w = np.minimum(np.exp(ell), 2.0)
    return {
        "mean_abs": np.abs(ell).mean(),
        "mean": ell.mean(),
        "sd": ell.std(),
        "share_not_above": (ell <= 0).mean(),
        "kurtosis": (ell**4).mean() / ell.var() ** 2,
        "up": (ell > np.log(1.5)).mean(),
        "down": (ell < -np.log(1.5)).mean(),
        "mean_ratio": w.mean(),
        "mean_ratio_z": (w.mean() - 1) / (ell.std() / np.sqrt(len(ell))),
    }


def of_levels(ell, q):
    """Features that look at how likely a token was."""
    likely, rare = (q >= np.log(0.1)) & (q < np.log(0.9)), q < np.log(0.1)
    return {
        "slope": np.polyfit(q, q + ell, 1)[0],
        "opposed": opposed(ell, q),
        "band_high": ell[likely].mean(),
        "band_low": ell[rare].mean(),
    }


def of_sequences(pairs):
    """Features that look at a token's neighbours or its place."""
    return {
        "correlation": correlation(pairs, 0),
        "back": correlation(pairs, -1),
        "ahead": correlation(pairs, 1),
        "last_growth": np.mean([abs(one.log_ratio[-1]) for one in pairs])
        / np.mean([np.abs(one.log_ratio[-9:-1]) for one in pairs]),
        "coherence": neighbours([root(one.log_ratio) for one in pairs]),
        "clustering": neighbours([np.sqrt(np.abs(one.log_ratio)) for one in pairs]),
        "lean_z": lean_z(pairs),
    }


def top1_z(pairs):
    chance = np.concatenate([one.top.top1_q for one in pairs])
    hit = np.concatenate([one.top.is_top1 for one in pairs])
    known = ~np.isnan(chance)
    return (hit - chance)[known].sum() / np.sqrt((chance * (1 - chance))[known].sum())


def of_statuses(pairs):
    count = {status: sum(one.counts.get(status, 0) for one in pairs) for status in TokenStatus}
    generated = sum(count.values()) - count[TokenStatus.MASKED] - count[TokenStatus.PROMPT]
    broken = count[TokenStatus.NONFINITE] + count[TokenStatus.SENTINEL] + count[TokenStatus.POSITIVE]
    return {"broken": broken / generated, "missing": count[TokenStatus.MISSING] / generated}


@settings(max_examples=25)
@given(SEEDS, st.sampled_from([1e-3, 0.05, 0.5]))
def test_features_are_what_numpy_says(seed, scale):
    pairs = some_pairs(seed, scale)
    got = features_of(pairs)
    for name, value in direct(pairs).items():
        assert getattr(got, name) == pytest.approx(value, rel=1e-6, abs=1e-9), name


@settings(max_examples=25)
@given(SEEDS, st.sampled_from([1e-3, 0.05, 0.5]))
def test_quantiles_are_right_to_the_width_of_a_bin(seed, scale):
    pairs = some_pairs(seed, scale)
    size = np.abs(np.concatenate([one.log_ratio for one in pairs]))
    got, median = features_of(pairs), np.median(size)
    assert got.spread == pytest.approx(size.mean() / median, rel=0.12)
    assert got.shoulder == pytest.approx(np.quantile(size, 0.9) / median, rel=0.2)
    assert got.tail == pytest.approx(np.quantile(size, 0.99) / median, rel=0.4)


@settings(max_examples=25)
@given(SEEDS)
def test_position_growth_compares_late_bins_with_early_ones(seed):
    pairs = some_pairs(seed, 0.05)
    got = features_of(pairs)
    size = np.concatenate([np.abs(one.log_ratio) for one in pairs])
    place = np.searchsorted(EDGES, np.concatenate([one.position for one in pairs]), side="right") - 1
    bins = [i for i in range(len(EDGES)) if (place == i).sum() >= MIN_BIN]
    early, late = (size[np.isin(place, part)] for part in (bins[: len(bins) // 2], bins[len(bins) // 2 :]))
    z = (late.mean() - early.mean()) / np.sqrt(late.var() / len(late) + early.var() / len(early))
    assert got.position_growth == pytest.approx(late.mean() / early.mean(), rel=1e-9)
    assert got.position_z == pytest.approx(z, rel=1e-6)


def test_nothing_gives_nan_and_no_error():
    got = Features.of(Fingerprint.zero())
    assert (got.tokens, got.units) == (0.0, 0.0)
    told = {name: getattr(got, name) for name in Features.__dataclass_fields__}
    assert all(np.isnan(v) for name, v in told.items() if name not in ("tokens", "units"))


def test_one_token_and_equal_tokens_give_no_error():
    for pairs in ([pair([0.0])], [pair([0.1])], [pair([0.0] * 50)], [pair([0.2] * 50, [-1.0] * 50)]):
        got = features_of(pairs)
        assert got.tokens == pairs[0].tokens
        assert not np.isinf([getattr(got, n) for n in Features.__dataclass_fields__]).any()


def test_a_lost_token_leaves_features_finite():
    got = features_of([pair([-np.inf, *[0.01, -0.01] * 20], [-1.0] * 41)])
    assert np.isfinite(
        [got.mean_abs, got.sd, got.kurtosis, got.slope if got.slope == got.slope else 0.0]
    ).all()


def test_a_few_late_tokens_say_nothing_however_large():
    early, late = pair([0.01, -0.013, 0.002] * 130), pair([1.0] * 9, position=np.arange(5000, 5009))
    alone, together = features_of([early]), features_of([early, late])
    assert together.position_growth == alone.position_growth
    assert together.position_z == alone.position_z


def test_too_few_positions_say_nothing():
    assert np.isnan(features_of([pair([0.1] * 15)]).position_growth)


# ---- evidence that a part of the responses drifts more


def ordered(seed, sequences=60, length=64):
    """Return sequences whose drifts stand in no order."""
    rng = np.random.default_rng(seed)
    return [0.05 * rng.standard_t(4, length) for _ in range(sequences)]


def sums_of(ells):
    made = [pair(ell, np.full(len(ell), -1.0), name=f"s-{i}") for i, ell in enumerate(ells)]
    return Fingerprint(fingerprints(PairBatch.of(made)).sum(axis=0))


@pytest.mark.parametrize("part", ["position0", "position2", "position4", "last"])
def test_a_part_that_is_like_the_others_is_seldom_called_worse(part):
    found = [evidence(sums_of(ordered(seed)), part) for seed in range(100)]
    assert np.mean(np.array(found) >= np.log10(20.0)) <= 0.05


@pytest.mark.parametrize(("part", "where"), [("position0", 0), ("last", -1)])
def test_a_part_that_drifts_more_is_found(part, where):
    ells = ordered(1)
    for ell in ells:
        ell[where] *= 6.0
    assert evidence(sums_of(ells), part) > 3.0
    assert evidence(sums_of(ells), "position2") < 0.0


def test_the_worst_part_is_told_by_a_name_and_only_when_it_is_clear():
    ells = ordered(1)
    assert worst_part(sums_of(ells)) is None
    for ell in ells:
        ell[16:] *= 3.0
    found = worst_part(sums_of(ells))
    assert found is None or found.name.startswith("tokens")
    for ell in ells:
        ell[-1] *= 9.0
    found = worst_part(sums_of(ells))
    assert found.name == "last token"
    assert found.times > 4.0
    assert found.log10_e > 2.0


def test_a_band_has_to_drift_twice_as_much_as_nature_makes_it():
    rng = np.random.default_rng(2)
    for times, called in ((1.3, None), (6.0, "q below 0.01")):
        made = []
        for i in range(60):
            rare = rng.random(64) < 0.2
            ell = 0.05 * rng.standard_t(4, 64) * np.where(rare, times, 1.0)
            made.append(pair(ell, np.where(rare, -6.0, -0.3), name=f"s-{i}"))
        found = worst_part(Fingerprint(fingerprints(PairBatch.of(made)).sum(axis=0)))
        assert getattr(found, "name", None) == called


def test_nothing_has_no_worst_part():
    assert worst_part(Fingerprint.zero()) is None
