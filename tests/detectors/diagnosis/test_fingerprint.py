"""Fingerprints: every sum against a loop, and sums that add."""

import json
import math
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS, pair, ragged_pairs

from paritas.detectors.diagnosis import FIELDS, Fingerprint, Recent, fingerprints
from paritas.detectors.diagnosis.bins import BANDS, EDGES, HISTOGRAM, NEAR, _level
from paritas.detectors.diagnosis.fingerprint import BETS, PARTS
from paritas.detectors.evidence import PairBatch
from paritas.records import TokenStatus


def clipped(value):
    return min(max(value, -50.0), 50.0)


def moments(tokens):
    p, q = [t[0] for t in tokens], [t[1] for t in tokens]
    products = [a * b for a, b in tokens]
    return {
        "p": math.fsum(p),
        "q": math.fsum(q),
        "pp": math.fsum(x * x for x in p),
        "qq": math.fsum(x * x for x in q),
        "pq": math.fsum(products),
    }


def direct(one):
    """Return the fingerprint of one pair with loops."""
    ell = [clipped(e) for e in one.log_ratio]
    q = [max(v, -50.0) for v in one.logprob_q]
    p = [max(v + e, -50.0) for v, e in zip(one.logprob_q, one.log_ratio, strict=True)]
    out = dict.fromkeys(FIELDS, 0.0)
    out |= {"tokens": len(ell), "units": 1.0, "abs": math.fsum(map(abs, ell)), "ell": math.fsum(ell)}
    out |= {"ell2": math.fsum(e**2 for e in ell), "ell4": math.fsum(e**4 for e in ell)}
    out |= {"not_above": sum(e <= 0 for e in ell), "equal": sum(e == 0 for e in ell)}
    out["k3"] = math.fsum(math.expm1(e) - e for e in ell)
    out["capped"] = math.fsum(min(math.exp(e), 2.0) for e in ell)
    for name, ratio in (("15", 1.5), ("2", 2.0)):
        out[f"up{name}"] = sum(e > math.log(ratio) for e in ell)
        out[f"down{name}"] = sum(e < -math.log(ratio) for e in ell)
    out |= moments(list(zip(p, q, strict=True)))
    for name, tokens in (
        ("back", list(zip(p[1:], q[:-1], strict=True))),
        ("ahead", list(zip(p[:-1], q[1:], strict=True))),
    ):
        out |= {f"{name}_{k}": v for k, v in {"n": float(len(tokens)), **moments(tokens)}.items()}
    known = [(h, c) for h, c in zip(one.top.is_top1, one.top.top1_q, strict=True) if not math.isnan(c)]
    out |= {"top1_n": len(known), "top1_gain": math.fsum(h - c for h, c in known)}
    out["top1_variance"] = math.fsum(c * (1 - c) for _, c in known)
    for e, logq, position in zip(ell, one.logprob_q, one.position, strict=True):
        i = sum(logq < edge for edge in BANDS)
        out[f"band{i}_n"] += 1
        out[f"band{i}_ell"] += e
        j = sum(position >= edge for edge in EDGES) - 1
        out[f"position{j}_n"] += 1
        out[f"position{j}_abs"] += abs(e)
        out[f"position{j}_abs2"] += e * e
        out[f"histogram{sum(abs(e) > edge for edge in HISTOGRAM)}"] += 1
        out[f"band{i}_abs"] += abs(e)
    for status in TokenStatus:
        out[f"status_{status.name.lower()}"] = one.counts.get(status, 0)
    return out | neighbours(ell) | ends(ell) | bets(out | ends(ell))


def root(value):
    return math.copysign(math.sqrt(abs(value)), value)


def neighbours(ell):
    roots = [root(e) for e in ell]
    return {
        "root": math.fsum(roots),
        "size": math.fsum(map(abs, roots)),
        "next_root": math.fsum(a * b for a, b in pairwise(roots)),
        "next_size": math.fsum(abs(a * b) for a, b in pairwise(roots)),
    }


def ends(ell):
    sizes, half = [abs(e) for e in ell], len(ell) // 2
    parts = {
        "last": sizes[-1:],
        "near": sizes[max(len(sizes) - 1 - NEAR, 0) : max(len(sizes) - 1, 0)],
        "first": sizes[:half],
        "second": sizes[len(sizes) - half :],
    }
    out = {}
    for name, part in parts.items():
        out |= {f"{name}_n": len(part), f"{name}_abs": math.fsum(part)}
    mean = math.fsum(sizes) / len(sizes) if sizes else 0.0
    told = half > 0 and mean > 0
    lean = (out["second_abs"] - out["first_abs"]) / half / mean if told else 0.0
    return out | {
        "unit_abs": mean,
        "unit_abs2": mean * math.fsum(sizes),
        "lean_n": float(told),
        "lean": lean,
        "lean2": lean**2,
    }


def bets(sums):
    """Fair bets on each part, from its sums."""
    out = {}
    tail = (sums["last_abs"] + sums["near_abs"]) / max(sums["last_n"] + sums["near_n"], 1)
    for part in PARTS:
        mean, there = (
            (tail, sums["near_n"] > 0) if part == "last" else (sums["unit_abs"], sums[f"{part}_n"] > 0)
        )
        excess = sums[f"{part}_abs"] / sums[f"{part}_n"] / mean - 1.0 if there and mean > 0 else 0.0
        out |= {f"{part}_bet{k}": math.log1p(bet * excess) for k, bet in enumerate(BETS)}
    return out


@settings(max_examples=40)
@given(ragged_pairs())
def test_every_sum_equals_a_loop(pairs):
    got = fingerprints(PairBatch.of(pairs))
    assert got.shape == (len(pairs), len(FIELDS))
    for row, one in zip(got, pairs, strict=True):
        for name, value in direct(one).items():
            assert row[FIELDS[name]] == pytest.approx(value, rel=1e-9, abs=1e-9), name


def test_long_positions_and_every_band_and_bin_are_used():
    ells = [*(1.5 * h for h in HISTOGRAM[:8]), 60.0]
    q = np.log([0.95, 0.6, 0.2, 0.05, 0.001, 0.9, 0.5, 0.3, 0.02])
    one = pair(ells, q, position=np.array(EDGES))
    got, wanted = Fingerprint(fingerprints(PairBatch.of([one]))[0]), direct(one)
    for name in FIELDS:
        assert got[name] == pytest.approx(wanted[name], rel=1e-9, abs=1e-12), name
    assert all(got[f"position{i}_n"] == 1.0 for i in range(len(EDGES)))


def test_the_bin_of_a_size_is_what_a_search_gives():
    rng = np.random.default_rng(1)
    sizes = np.concatenate([HISTOGRAM, np.exp(rng.uniform(-25, 5, 2000)), [0.0, 1e-300, 50.0]])
    assert np.array_equal(_level(sizes), np.searchsorted(np.array(HISTOGRAM), sizes))


@given(ragged_pairs())
def test_neighbours_change_no_bit(pairs):
    together = fingerprints(PairBatch.of(pairs))
    alone = [fingerprints(PairBatch.of([one]))[0] for one in pairs]
    assert [row.tobytes() for row in together] == [row.tobytes() for row in alone]


@given(ragged_pairs(), st.integers(0, 7))
def test_sums_add(pairs, cut):
    rows = fingerprints(PairBatch.of(pairs))
    parts = Fingerprint(rows[:cut].sum(axis=0)) + Fingerprint(rows[cut:].sum(axis=0))
    np.testing.assert_allclose(parts.values, rows.sum(axis=0), rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal((parts + Fingerprint.zero()).values, parts.values)


@given(st.integers(1, 5), st.integers(0, 40))
def test_the_last_window_to_twice_the_window_is_remembered(window, units):
    recent = Recent(window)
    for _ in range(units):
        recent.fold(np.ones(len(FIELDS)))
    kept = recent.total()["tokens"]
    assert min(units, window) <= kept <= 2 * window
    assert kept == units or units > window


@given(st.integers(0, 9))
def test_a_change_is_seen_undiluted_after_two_windows(before):
    recent = Recent(3)
    for value in [1.0] * before + [10.0] * 6:
        recent.fold(np.full(len(FIELDS), value))
    assert recent.total()["tokens"] % 10.0 == 0.0


@given(SEEDS, st.integers(0, 20), st.integers(0, 20))
def test_what_is_remembered_survives_json_and_pickle(seed, before, after):
    rng = np.random.default_rng(seed)
    units = rng.normal(size=(before + after, len(FIELDS)))
    recent, whole = Recent(4), Recent(4)
    for row in units[:before]:
        recent.fold(row)
    for row in units:
        whole.fold(row)
    for restored in (
        Recent.from_dict(json.loads(json.dumps(recent.as_dict())), 4),
        pickle.loads(pickle.dumps(recent)),
    ):
        for row in units[before:]:
            restored.fold(row)
        assert restored.total().values.tobytes() == whole.total().values.tobytes()
