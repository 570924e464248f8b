"""The Kafka client leaves the sockets of failed connections to the garbage collector, which warns wherever it runs next.

A folder whose tests reach a broker takes both hooks into its conftest: such garbage of one test is swept before the
next begins, and what is collected while a test runs does not fail it. Warnings about anything else stay errors.
"""

import gc
import warnings

import pytest

FORGIVEN = (
    r"ignore:Exception ignored in. <(ssl.SSLSocket|socket.socket):pytest.PytestUnraisableExceptionWarning"
)


def pytest_itemcollected(item):
    """A socket that is collected as garbage warns, and does not fail the test."""
    item.add_marker(pytest.mark.filterwarnings(FORGIVEN))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Sweep here: what was logged before, and may hold an exception with its sockets, is forgotten by now."""
    _sweep()


def pytest_sessionfinish(session):
    """Sweep after the last test as well."""
    _sweep()


def _sweep():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
