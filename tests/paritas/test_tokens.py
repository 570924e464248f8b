"""Token identities and the status of one log-probability."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.errors import UsageError
from paritas.records import TokenStatus
from paritas.tokens import (
    SENTINEL_NATS,
    SLACK_NATS,
    ZERO_RUN_NATS,
    ZERO_RUN_TOKENS,
    TokenHasher,
    as_logged,
    classify,
    missing_zeros,
)

KEY = b"sixteen bytes !!"
IDS = st.integers(-(2**62), 2**62)


def hash_one(token_id: int, key: bytes = KEY) -> int:
    """The definition, one id at a time."""
    if token_id < 0:
        return 0
    digest = hashlib.blake2b(token_id.to_bytes(8, "little"), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "little") or 1


@given(st.lists(IDS | st.integers(-3, 300), max_size=30))
@settings(deadline=None, max_examples=50)
def test_hash_equals_its_definition(ids: list[int]) -> None:
    hasher = TokenHasher(KEY, table_ids=100)
    expected = [hash_one(i) for i in ids]
    for _ in range(2):  # from an empty table and from a filled one
        assert hasher.hash(np.array(ids, np.int64)).tolist() == expected


@pytest.mark.parametrize("shape", [(0,), (6,), (2, 3), (3, 0), (1, 2, 3)])
def test_hash_keeps_the_shape(shape: tuple[int, ...]) -> None:
    ids = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    digests = TokenHasher(KEY).hash(ids)
    assert digests.shape == shape
    assert digests.dtype == np.uint64
    assert digests.ravel().tolist() == [hash_one(i) for i in range(ids.size)]


def test_hash_depends_on_the_key_and_names_nothing_zero_but_absence() -> None:
    ids = np.arange(5000)
    one, other = TokenHasher(KEY).hash(ids), TokenHasher(KEY[::-1]).hash(ids)
    assert not (one == other).any()
    assert np.unique(one).size == 5000
    assert one.all()
    assert TokenHasher(KEY).hash(np.array([-1, -(2**63)])).tolist() == [0, 0]


def test_hash_does_not_touch_its_input() -> None:
    ids = np.array([3, -1, 1 << 40])
    ids.flags.writeable = False
    assert TokenHasher(KEY).hash(ids).tolist() == [hash_one(3), 0, hash_one(1 << 40)]


@pytest.mark.parametrize("length", [0, 15, 65])
def test_key_of_a_wrong_length(length: int) -> None:
    with pytest.raises(UsageError) as caught:
        TokenHasher(b"k" * length)
    assert caught.value.render() == (
        f"[usage] the token key has {length} bytes\n  hint: use 16 to 64 random bytes, the same for both kernels"
    )


def test_from_secret() -> None:
    ids = np.arange(3)
    same = TokenHasher.from_secret("a text").hash(ids)
    assert same.tolist() == TokenHasher.from_secret("a text").hash(ids).tolist()
    assert same.tolist() != TokenHasher.from_secret("a tex").hash(ids).tolist()
    with pytest.raises(UsageError) as caught:
        TokenHasher.from_secret("")
    assert caught.value.render() == (
        "[usage] the token secret is empty\n  hint: use a random text, the same for both kernels"
    )


STATUS_OF = [
    (-0.5, TokenStatus.VALID),
    (0.0, TokenStatus.VALID),
    (-0.0, TokenStatus.VALID),
    (SLACK_NATS, TokenStatus.VALID),
    (np.nextafter(SLACK_NATS, 1), TokenStatus.POSITIVE),
    (1.0, TokenStatus.POSITIVE),
    (9999.0, TokenStatus.POSITIVE),
    (np.nextafter(SENTINEL_NATS, 0), TokenStatus.VALID),
    (SENTINEL_NATS, TokenStatus.SENTINEL),
    (-1e5, TokenStatus.SENTINEL),
    (float(np.finfo(np.float32).min), TokenStatus.SENTINEL),
    (float(np.finfo(np.float64).min), TokenStatus.SENTINEL),
    (np.nan, TokenStatus.NONFINITE),
    (np.inf, TokenStatus.NONFINITE),
    (-np.inf, TokenStatus.NONFINITE),
    (5e-324, TokenStatus.VALID),
]


@pytest.mark.parametrize(("logprob", "status"), STATUS_OF)
def test_classify_one(logprob: float, status: TokenStatus) -> None:
    assert classify(np.array([logprob])).tolist() == [status]


def test_classify_order() -> None:
    values = np.array([value for value, _ in STATUS_OF])
    every = np.ones(values.size, bool)
    assert set(classify(values, missing=every).tolist()) == {TokenStatus.MISSING}
    assert set(classify(values, missing=every, masked=every).tolist()) == {TokenStatus.MASKED}
    assert classify(values, missing=~every, masked=~every).tolist() == [status for _, status in STATUS_OF]


@given(st.lists(st.floats(), max_size=20))
@settings(deadline=None, max_examples=50)
def test_only_valid_entries_are_log_probabilities(values: list[float]) -> None:
    logprob = np.array(values, np.float64)
    valid = classify(logprob) == TokenStatus.VALID
    logged = as_logged(logprob)
    assert logged.dtype == np.float32
    assert ((logged[valid] <= 0) & (logged[valid] >= SENTINEL_NATS)).all()


def test_as_logged_keeps_what_was_reported() -> None:
    values = np.array([-0.5, 3e-7, 2.0, -9999.0, np.nan, np.inf])
    assert as_logged(values).tolist()[:4] == [-0.5, 0.0, 2.0, -9999.0]
    assert np.isnan(as_logged(values)[4])
    assert as_logged(values)[5] == np.inf


def zeros_found(logprob, partner, counted=None):
    counted = np.ones(len(logprob), bool) if counted is None else np.array(counted, bool)
    return missing_zeros(np.array(logprob, float), np.array(partner, float), counted=counted).tolist()


def test_missing_zeros_needs_a_run_far_from_the_partner() -> None:
    far, near = [-1.0] * 4, [-0.1] * 4
    assert zeros_found([0, 0, 0, 0], far) == [True] * 4
    assert zeros_found([0, 0, 0, 0], near) == [False] * 4
    assert zeros_found([0, 0, -1, 0], far) == [False] * 4
    assert zeros_found([-1, 0, 0, 0], far) == [False, True, True, True]
    assert zeros_found([0, 0, 0, 0], far, [True, False, True, True]) == [False] * 4
    assert zeros_found([], []) == []


def test_missing_zeros_threshold_is_the_mean_of_the_run() -> None:
    at, below = [ZERO_RUN_NATS] * ZERO_RUN_TOKENS, [ZERO_RUN_NATS * 1.01] * ZERO_RUN_TOKENS
    assert zeros_found([0] * ZERO_RUN_TOKENS, at) == [False] * ZERO_RUN_TOKENS
    assert zeros_found([0] * ZERO_RUN_TOKENS, below) == [True] * ZERO_RUN_TOKENS


def test_missing_zeros_ignores_a_partner_that_says_nothing() -> None:
    assert zeros_found([0, 0, 0], [np.nan, -9999.0, -np.inf]) == [False] * 3
    assert zeros_found([0, 0, 0], [np.nan, 7.0, -3.0]) == [True] * 3


@given(
    st.lists(st.tuples(st.sampled_from([0.0, -0.5, np.nan]), st.floats(-3, 0), st.booleans()), max_size=25)
)
@settings(deadline=None, max_examples=80)
def test_missing_zeros_equals_a_plain_loop(rows: list[tuple[float, float, bool]]) -> None:
    expected = [False] * len(rows)
    start = 0
    for i in range(len(rows) + 1):
        if i < len(rows) and rows[i][0] == 0.0 and rows[i][2]:
            continue
        run = rows[start:i]
        if len(run) >= ZERO_RUN_TOKENS and sum(row[1] for row in run) < ZERO_RUN_NATS * len(run) - 1e-9:
            expected[start:i] = [True] * len(run)
        start = i + 1
    logprob, partner, counted = ([row[k] for row in rows] for k in range(3))
    assert zeros_found(logprob, partner, counted) == expected
