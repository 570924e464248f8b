"""Features: every one against numpy on the tokens themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS, pair, random_top

from paritas.detectors.diagnosis import Features, Fingerprint, fingerprints
from paritas.detectors.diagnosis.features import MIN_BIN
from paritas.detectors.evidence import PairBatch
from paritas.records import TokenStatus

LENGTH = 400
EDGES = (0, 16, 64, 256, 1024)


def some_pairs(seed, scale, sequences=8):
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


def direct(pairs):
    ell = np.concatenate([one.log_ratio for one in pairs])
    q = np.concatenate([one.logprob_q for one in pairs])
    size, w = np.abs(ell), np.minimum(np.exp(ell), 2.0)
    likely, rare = (q >= np.log(0.1)) & (q < np.log(0.9)), q < np.log(0.1)
    chance = np.concatenate([one.top.top1_q for one in pairs])
    hit = np.concatenate([one.top.is_top1 for one in pairs])
    known = ~np.isnan(chance)
    generated = sum(
        n for one in pairs for s, n in one.counts.items() if s not in (TokenStatus.MASKED, TokenStatus.PROMPT)
    )

    def share(*statuses):
        return sum(one.counts.get(s, 0) for one in pairs for s in statuses) / generated

    return {
        "tokens": len(ell),
        "units": len(pairs),
        "mean_abs": size.mean(),
        "mean": ell.mean(),
        "sd": ell.std(),
        "share_not_above": (ell <= 0).mean(),
        "kurtosis": (ell**4).mean() / ell.var() ** 2,
        "slope": np.polyfit(q, q + ell, 1)[0],
        "correlation": correlation(pairs, 0),
        "back": correlation(pairs, -1),
        "ahead": correlation(pairs, 1),
        "up": (ell > np.log(1.5)).mean(),
        "down": (ell < -np.log(1.5)).mean(),
        "mean_ratio": w.mean(),
        "mean_ratio_z": (w.mean() - 1) / (ell.std() / np.sqrt(len(ell))),
        "top1_z": (hit - chance)[known].sum() / np.sqrt((chance * (1 - chance))[known].sum()),
        "band_high": ell[likely].mean(),
        "band_low": ell[rare].mean(),
        "broken": share(TokenStatus.NONFINITE, TokenStatus.SENTINEL, TokenStatus.POSITIVE),
        "missing": share(TokenStatus.MISSING),
    }


@settings(max_examples=25)
@given(SEEDS, st.sampled_from([1e-3, 0.05, 0.5]))
def test_features_are_what_numpy_says(seed, scale):
    pairs = some_pairs(seed, scale)
    got = features_of(pairs)
    for name, value in direct(pairs).items():
        assert getattr(got, name) == pytest.approx(value, rel=1e-6, abs=1e-9), name


@settings(max_examples=25)
@given(SEEDS, st.sampled_from([1e-3, 0.05, 0.5]))
def test_spread_is_the_mean_over_the_median_to_the_width_of_a_bin(seed, scale):
    pairs = some_pairs(seed, scale)
    size = np.abs(np.concatenate([one.log_ratio for one in pairs]))
    assert features_of(pairs).spread == pytest.approx(size.mean() / np.median(size), rel=0.1)


@settings(max_examples=25)
@given(SEEDS)
def test_position_growth_compares_late_bins_with_early_ones(seed):
    pairs = some_pairs(seed, 0.05)
    got = features_of(pairs)
    size = np.concatenate([np.abs(one.log_ratio) for one in pairs])
    place = np.searchsorted(EDGES, np.concatenate([one.position for one in pairs]), side="right") - 1
    bins = [i for i in range(4) if (place == i).sum() >= MIN_BIN]
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
