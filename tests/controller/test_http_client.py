"""The base of everything that calls a server: a session while it is entered, and only then."""

import asyncio

import pytest

from paritas.controller.http_client import HttpClient
from paritas.errors import TransientError


class Caller(HttpClient):
    def __init__(self):
        super().__init__("the caller", limit_s=3.0, headers={"x-who": "me"})


def test_before_it_is_entered_it_is_not_open():
    with pytest.raises(TransientError, match=r"^the caller is not open$"):
        _ = Caller().session


def test_a_session_lasts_as_long_as_the_block_and_entered_again_it_is_another():
    async def play():
        seen = []
        caller = Caller()
        for _ in range(2):
            async with caller as entered:
                assert entered is caller
                seen.append(caller.session)
                assert not seen[-1].closed
        return seen

    first, second = asyncio.run(play())
    assert first is not second
    assert first.closed
    assert second.closed


def test_limit_and_headers_are_of_every_request():
    async def play():
        async with Caller() as caller:
            return caller.session.timeout.total, dict(caller.session.headers)

    assert asyncio.run(play()) == (3.0, {"x-who": "me"})


def test_leaving_what_was_not_entered_does_nothing():
    asyncio.run(Caller().__aexit__(None, None, None))
