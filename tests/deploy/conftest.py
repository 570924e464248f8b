"""What a broker's clients leave behind is swept between the tests of this folder."""

from left_sockets import pytest_itemcollected, pytest_runtest_setup, pytest_sessionfinish  # noqa: F401
