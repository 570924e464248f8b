"""Length buckets: slices by the length of the response, and estimates that stand side by side."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_factory import EVERYTHING, both, clause, contract, evaluated, lost, pair, paired
from rich.console import Console

from paritas.commands.offline import judge
from paritas.commands.report import show_judgement
from paritas.contracts.model import Slice
from paritas.detectors.lengths import bucket_name, length_bucket, shortest_of
from paritas.detectors.slices import LabelReader, labels_of
from paritas.detectors.verdicts import verdicts
from paritas.records import TokenStatus

BY_LENGTH = Slice("length", by=("length",))
TV = clause("tv", 0.5)


@given(st.integers(0, 10**6))
def test_a_bucket_holds_its_tokens_and_they_double(tokens):
    low, high = map(int, bucket_name(tokens).split("-"))
    assert low <= tokens <= high
    assert low == 0 or high + 1 == 2 * low
    assert shortest_of(f"length={bucket_name(tokens)}") == low


def test_prompt_tokens_are_not_part_of_a_response():
    one = pair([0.0] * 5, counts={TokenStatus.VALID: 5, TokenStatus.PROMPT: 900, TokenStatus.MASKED: 130})
    assert length_bucket(one) == "128-255"


def test_a_label_of_that_name_wins_and_a_loss_has_no_length():
    own = paired(pair([0.0], attributes={"length": "short"}))
    reader = LabelReader((BY_LENGTH,))
    assert (reader.key(own), labels_of(own)["length"]) == (("short",), "short")
    assert reader.key(paired(pair([0.0]))) == ("0-127",)
    assert reader.key(lost()) == (None,)


def test_each_bucket_is_a_slice_of_its_own():
    outcomes = [paired(pair([-0.1] * n, name=f"s{n}")) for n in (10, 20, 200, 300)]
    told = {
        v.slice: v.units for v in verdicts(evaluated(contract(TV, slices=(EVERYTHING, BY_LENGTH)), outcomes))
    }
    assert told == {"all": 4, "length=0-127": 2, "length=128-255": 1, "length=256-511": 1}


def test_estimates_by_length_stand_in_order_of_length():
    asked = contract(TV, slices=(EVERYTHING, BY_LENGTH))
    traces = [
        view for n in (300, 10, 20, 200) for view in both(f"s{n}", q=[-1.0] * n, p=[-1.0 - n / 1000] * n)
    ]
    console = Console(file=io.StringIO(), width=140)
    show_judgement(judge(asked, traces), console)
    shown = console.file.getvalue()
    assert "by length, in tokens: estimate (sequences)\n" in shown
    assert "  tv: 0-127 0.01488 (2), 128-255 0.1813 (1), 256-511 0.2592 (1)\n" in shown


@pytest.mark.parametrize("name", ["all", "replica=1-2x", "length=short", "length=other", "length="])
def test_other_slices_are_no_buckets(name):
    assert shortest_of(name) == -1
