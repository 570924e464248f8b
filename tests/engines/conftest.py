"""Real engines run in an environment of their own, and skip with one reason anywhere else.

make test-engines        or: .cache/engines-venv/bin/python -m pytest tests/engines
"""

import os

import pytest
from engines.engines_setup import why_not_here

REASON = why_not_here("torch", "trl")
TEST_S = 600  # where a test names no time: the first makes the model, beside a busy engine


def pytest_configure():
    """Every model is on the disk; a slow network is not asked about it."""
    os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S))


def pytest_ignore_collect(collection_path):
    """Elsewhere only one file is collected: its one test skips and says why."""
    is_test = collection_path.name.startswith("test_") and collection_path.name != "test_environment.py"
    return True if REASON and is_test else None


@pytest.fixture(scope="session")
def small_model():
    """Folder of a real model of 135 million weights."""
    from engines.real_model import model_dir

    return model_dir()


@pytest.fixture
def watched():
    """A collector whose traces go to a real receiver, and that receiver."""
    from engines.capture_scenes import watched_capture

    with watched_capture() as pair:
        yield pair


@pytest.fixture(scope="module")
def one_thread():
    """Several threads wait for each other on a busy machine far longer than they compute."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
