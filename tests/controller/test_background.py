"""A resource that is open on another thread while a block runs."""

import threading
from contextlib import asynccontextmanager

import pytest

from paritas.controller.background import running


def names():
    return {t.name.rsplit("_", 1)[0] for t in threading.enumerate()}


def test_a_resource_is_open_during_the_block_on_another_thread():
    log = []

    @asynccontextmanager
    async def resource():
        log.append(threading.current_thread().name)
        yield "open"
        log.append("closed")

    with running(resource(), name="r") as value:
        assert (value, log) == ("open", ["r_0"])
    assert log == ["r_0", "closed"]
    assert "r" not in names()


def test_what_entering_raises_is_raised_here():
    @asynccontextmanager
    async def resource():
        raise ValueError("cannot open")
        yield

    with pytest.raises(ValueError, match="cannot open"), running(resource(), name="r"):
        pass
    assert "r" not in names()


def test_what_leaving_raises_is_raised_here():
    @asynccontextmanager
    async def resource():
        yield
        raise ValueError("cannot close")

    with pytest.raises(ValueError, match="cannot close"), running(resource(), name="r"):
        pass


def test_it_closes_when_the_block_fails():
    log = []

    @asynccontextmanager
    async def resource():
        yield
        log.append("closed")

    with pytest.raises(KeyError), running(resource(), name="r"):
        raise KeyError
    assert log == ["closed"]
