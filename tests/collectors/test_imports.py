"""What enters a trainer is light, and its public names are as they say."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import paritas.collectors

HEAVY = {"torch", "grpc", "kafka", "river", "scipy", "yaml", "pandas", "google", "opentelemetry", "rich"}
PACKAGES = ["paritas.collectors", "paritas.collectors.dumps", "paritas.collectors.openai"]


def test_importing_every_module_loads_nothing_heavy() -> None:
    names = [
        module.name for module in pkgutil.walk_packages(paritas.collectors.__path__, "paritas.collectors.")
    ]
    assert "paritas.collectors.dumps.read" in names
    code = f"import sys, {', '.join(names)}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in run.stdout.split()}
    assert not HEAVY & loaded


@pytest.mark.parametrize("name", PACKAGES)
def test_public_names_are_there_once(name: str) -> None:
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)
