"""Resume tokens: they come back, and a flipped bit is noticed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.controller import tokens
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.tokens import Token

UINT64 = st.integers(0, 2**64 - 1)


@given(epoch=UINT64, seq=UINT64)
def test_a_token_comes_back(epoch, seq):
    assert tokens.decode(tokens.encode(Token(epoch, seq)), field="t") == Token(epoch, seq)


@given(st.binary(max_size=40))
@settings(max_examples=300)
def test_garbage_is_refused_with_its_place(raw):
    with pytest.raises(RefusalError) as caught:
        tokens.decode(raw, field="start.token")
    assert caught.value.reason is Refused.INVALID
    assert str(caught.value) == f"start.token: not a token of this service ({len(raw)} bytes)"


@given(epoch=UINT64, seq=UINT64, place=st.integers(0, tokens.SIZE_BYTES * 8 - 1))
def test_one_flipped_bit_is_noticed(epoch, seq, place):
    raw = bytearray(tokens.encode(Token(epoch, seq)))
    raw[place // 8] ^= 1 << place % 8
    with pytest.raises(RefusalError):
        tokens.decode(bytes(raw), field="t")


def test_the_layout_is_these_bytes():
    # Tokens are kept by subscribers over upgrades: this text may not change.
    assert tokens.encode(Token(epoch=1, seq=2)).hex() == "503100000000000000010000000000000002b414f69e"
