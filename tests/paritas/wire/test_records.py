"""Origin headers: written once, read back, never half believed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.wire import Origin, WireRecord, origin_of, stamp

U64 = st.integers(0, 2**64 - 1)


@given(
    st.builds(Origin, agent=st.text(), epoch=U64, seq=U64),
    st.builds(Origin, agent=st.text(), epoch=U64, seq=U64),
)
@settings(deadline=None, max_examples=60)
def test_the_last_stamp_counts_and_other_headers_stay(first, second):
    record = stamp(stamp(WireRecord(b"k", b"v", (("x", b"1"), ("x", b"2"))), first), second)
    assert origin_of(record.headers) == second
    assert record.headers[:2] == (("x", b"1"), ("x", b"2"))
    assert len(record.headers) == 5


@pytest.mark.parametrize("number", [b"", b"-1", b"+1", b" 1", b"1_0", "²".encode(), b"x", b"9" * 21])
def test_a_malformed_number_is_no_origin(number):
    good = stamp(WireRecord(b"k", b"v"), Origin("a", 1, 2)).headers
    assert origin_of(good) is not None
    assert origin_of([*good[:2], ("paritas-seq", number)]) is None


def test_a_missing_or_undecodable_header_is_no_origin():
    good = stamp(WireRecord(b"k", b"v"), Origin("a", 1, 2)).headers
    assert origin_of(good[1:]) is None
    assert origin_of((("paritas-agent", b"\xff"), *good[1:])) is None
