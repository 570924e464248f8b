"""The heavy environment: what is pinned is there."""

import importlib.metadata

import pytest
from engines.engines_setup import PINS, why_not_here


def test_the_pinned_versions_are_installed():
    if reason := why_not_here("torch", "trl"):
        pytest.skip(reason)
    pins = [line.split("==") for line in PINS.read_text().splitlines() if "==" in line]
    assert len(pins) == 3
    for name, version in pins:
        assert importlib.metadata.version(name).partition("+")[0] == version
