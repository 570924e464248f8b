"""Top-k lists say the same whatever token was sampled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.collectors.dumps.top import Depth, depth_of, parse_top, top_k

# Few values over few tokens: ties at every border.
LAWS = st.lists(st.sampled_from([-0.25, -0.5, -1.0, -2.0]), min_size=4, max_size=7)


def engine_list(law: list[float], k: int, sampled: int, *, reverse: bool) -> list[list[float]]:
    """What an engine asked for k writes: the sampled token, then its own k best without it."""
    ranked = sorted(range(len(law)), key=lambda i: (-law[i], -i if reverse else i))[:k]
    order = [sampled, *(i for i in ranked if i != sampled)]
    return [[i, law[i]] for i in order]


def best(lists, sampled, depth: int, keep: int):
    top = parse_top(lists, np.array(sampled, np.int64))
    rows = top_k(top, depth, keep=keep, identify=lambda ids: ids.astype(np.uint64))
    return None if rows is None else (rows.token.tolist(), rows.logprob.tolist())


@given(LAWS, st.integers(1, 4), st.booleans(), st.integers(1, 4))
@settings(deadline=None, max_examples=150)
def test_independent_of_the_sampled_token(law, k: int, reverse: bool, keep: int) -> None:
    seen = {
        str(best([engine_list(law, k, sampled, reverse=reverse)], [sampled], k, min(keep, k)))
        for sampled in range(len(law))
    }
    assert len(seen) == 1


@given(LAWS, st.integers(1, 3), st.lists(st.integers(0, 3), min_size=1, max_size=6), st.booleans())
@settings(deadline=None, max_examples=150)
def test_depth_never_promises_more_than_was_asked(law, k: int, sampled, reverse: bool) -> None:
    lists = [engine_list(law, k, token, reverse=reverse) for token in sampled]
    depth = depth_of(parse_top(lists, np.array(sampled)))
    assert depth.entries in (k - 1, k)
    assert depth.entries == k or not depth.certain
    assert not depth.certain or depth.shortest == k


@given(
    LAWS,
    st.integers(1, 3),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=2, max_size=4),
)
@settings(deadline=None, max_examples=100)
def test_lines_together_never_promise_more_than_was_asked(law, k: int, lines) -> None:
    depth = Depth()
    for sampled in lines:
        lists = [engine_list(law, k, token, reverse=False) for token in sampled]
        depth = depth.join(depth_of(parse_top(lists, np.array(sampled))))
    assert depth.entries in (k - 1, k)
    assert not depth.certain or depth.entries == k


def test_join_settles_by_two_lengths() -> None:
    assert Depth(2, 2).join(Depth(1, 1)) == Depth(1, 2, certain=True)
    assert Depth(1, 1).join(Depth(2, 2)) == Depth(1, 2, certain=True)
    assert Depth(2, 2).join(Depth(2, 2)) == Depth(2, 2)
    assert Depth(2, 2).join(Depth(2, 2, certain=True)).entries == 2
    assert Depth(3, 3).join(Depth(2, 2, certain=True)).entries == 2
    assert Depth().join(Depth(2, 2)) == Depth(2, 2).join(Depth()) == Depth(2, 2)
    assert Depth(20, 20).join(Depth(5, 5, certain=True)) == Depth(20, 20)  # another request's depth


def test_plain_lists_without_the_sampled_token() -> None:
    lists = [[[1, -0.5], [2, -1.0]], [[1, -0.5], [2, -1.0]]]
    assert depth_of(parse_top(lists, np.array([9, 2]))) == Depth(2, 2, certain=True)


def test_only_the_sampled_token_is_no_list() -> None:
    lists = [[[7, -2.0]], [[8, -0.5]]]
    depth = depth_of(parse_top(lists, np.array([7, 8])))
    assert depth.entries == 0
    assert best(lists, [7, 8], depth.entries, 1) is None


def test_a_sampled_token_without_a_number_may_be_the_extra_one() -> None:
    lists = [[[7, float("nan")], [5, -0.25]]]
    depth = depth_of(parse_top(lists, np.array([7])))
    assert depth.entries == 1
    assert best(lists, [7], depth.entries, 1)[0] == [[5]]


def test_stand_ins_shorten_a_list() -> None:
    lists = [[[1, float("nan")], [2, -9999.0], [3, float("-inf")], [4, 0.5], [5, -1.0], [6, 5e-7], [7, None]]]
    tokens, logprobs = best(lists, [9], 7, 3)
    assert tokens == [[6, 5, 0]]
    assert logprobs[0][:2] == [0.0, -1.0]
    assert np.isnan(logprobs[0][2])


def test_no_positions_and_no_lists() -> None:
    assert best([], [], 2, 2) == ([], [])
    assert depth_of(parse_top([], np.array([], np.int64))) == Depth()
    assert depth_of(parse_top([None, []], np.array([1, 2]))) == Depth()


@pytest.mark.parametrize("keep", [0, -1])
def test_nothing_to_keep(keep: int) -> None:
    assert best([[[1, -0.5]]], [2], 1, keep) is None
