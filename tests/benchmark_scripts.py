"""The benchmarks as modules: they are programs beside the package, and are found by their path."""

import importlib.util
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


@cache
def script(name):
    """Return a benchmark as a module."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
