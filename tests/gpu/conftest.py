"""What needs a CUDA device; anywhere else one test skips and says why.

make test-gpu        or: PYTHONPATH=src:tests python -m pytest -c tests/gpu/pytest.ini tests/gpu
"""

from gpu.cuda_device import why_not_here

REASON = why_not_here()


def pytest_ignore_collect(collection_path):
    is_test = collection_path.name.startswith("test_") and collection_path.name != "test_device.py"
    return True if REASON and is_test else None
