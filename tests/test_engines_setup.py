"""The heavy environment's installer: what it says, without installing anything."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from engines import engines_setup
from engines.engines_setup import PARTS
from part_setup import SetupError


def test_parts_come_after_what_they_need_and_once():
    assert [part.name for part in engines_setup.ordered(("vllm", "trl", "torch"))] == ["torch", "vllm", "trl"]


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(engines_setup, "CACHE", tmp_path)
    monkeypatch.setattr(engines_setup, "VENV", tmp_path / "engines-venv")
    return tmp_path


def test_what_is_missing_is_named_with_the_command(empty_cache):
    assert engines_setup.missing_part("trl") == (
        f"{empty_cache}/engines-venv lacks torch, trl: run python tests/engines/engines_setup.py torch trl"
    )


def test_a_full_disk_is_said_before_anything_is_fetched(empty_cache, monkeypatch):
    monkeypatch.setitem(PARTS, "torch", dataclasses.replace(PARTS["torch"], disk_gb=1e9))
    with pytest.raises(SetupError, match=r"GB free, torch takes 1000000000.0 GB"):
        engines_setup.fetch("torch")
    assert [path.name for path in empty_cache.iterdir()] == ["engines.lock"]


def test_a_python_without_wheels_is_refused(empty_cache, monkeypatch):
    monkeypatch.setattr(engines_setup, "PYTHONS", ((9, 0), (9, 1)))
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with pytest.raises(SetupError) as caught:
        engines_setup.fetch("torch")
    assert str(caught.value) == f"the engines run on Python 9.0 to 9.1, this is {here}"


def test_an_unknown_part_is_refused():
    script = Path(engines_setup.__file__)
    run = subprocess.run(
        [sys.executable, str(script), "tensorflow"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert "invalid choice: 'tensorflow'" in run.stderr
