"""The operator's page: where it cannot be served is said with the option's name."""

import asyncio

import pytest

from paritas.controller.operator.counts import Counts
from paritas.controller.operator.page import serving_page
from paritas.errors import UsageError


def refused(listen):
    async def play():
        async with serving_page(listen, Counts(), alive=str, ready=str):
            pass

    with pytest.raises(UsageError) as caught:
        asyncio.run(play())
    return caught.value.render()


@pytest.mark.parametrize("listen", ["here", "4325", "127.0.0.1:", ":4325"])
def test_what_is_no_address(listen):
    assert refused(listen) == f"[usage] --health: {listen!r} is not an address\n  hint: write HOST:PORT"


@pytest.mark.parametrize("listen", ["a..b:0", "127.0.0.1:65536", "192.0.2.1:0"])
def test_what_cannot_be_bound(listen):
    assert refused(listen) == f"[usage] --health: cannot bind {listen!r}\n  hint: choose another address"
