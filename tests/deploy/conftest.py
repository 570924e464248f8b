"""What a broker's clients leave behind is swept between the tests of this folder; a test has time for what it starts."""

import left_sockets
import pytest
from left_sockets import pytest_runtest_setup, pytest_sessionfinish  # noqa: F401

# Clusters, brokers and containers: what is waited for has deadlines of its own, and they say more.
LIMIT_S = 900


def pytest_itemcollected(item):
    """Every test here forgives left sockets and may take its time."""
    left_sockets.pytest_itemcollected(item)
    item.add_marker(pytest.mark.timeout(LIMIT_S))
