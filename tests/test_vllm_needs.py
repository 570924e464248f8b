"""What vLLM needs of a machine: each thing that is missing is named, and the tests skip."""

import pytest
from engines import vllm_needs

GIB = 1 << 30


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine on Linux with 64 GiB free; returns the folder of its control groups."""
    tools, groups = tmp_path / "bin", tmp_path / "cgroup"
    for folder in (tools, groups, groups / "memory"):
        folder.mkdir()
    for name in ("lscpu", "g++"):
        (tools / name).touch(mode=0o755)
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:   {64 * GIB // 1024} kB\n")
    (tmp_path / "Python.h").touch()
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(vllm_needs.sys, "platform", "linux")
    monkeypatch.setattr(vllm_needs.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(vllm_needs, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(vllm_needs, "CGROUPS", groups)
    return groups


def test_a_machine_that_has_everything(machine):
    assert vllm_needs.why_vllm_cannot_run() is None


def test_missing_programs_are_named(machine, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert vllm_needs.why_vllm_cannot_run() == "vLLM needs lscpu and g++ when it runs"


def test_missing_headers_are_named(machine):
    header = machine.parent / "Python.h"
    header.unlink()
    expected = f"vLLM compiles against {header}, which is not there"
    assert vllm_needs.why_vllm_cannot_run() == expected


def test_little_memory(machine):
    (machine.parent / "meminfo").write_text("MemAvailable: 4000000 kB\n")
    expected = "tests with vLLM take 15.0 GB of memory, 4.1 GB are free"
    assert vllm_needs.why_vllm_cannot_run() == expected


@pytest.mark.parametrize("names", vllm_needs.LIMITS, ids=["version 2", "version 1"])
def test_little_left_in_a_container(machine, names):
    for name, size in zip(names, (16 * GIB, 13 * GIB), strict=True):
        (machine / name).write_text(f"{size}\n")
    expected = "tests with vLLM take 15.0 GB of memory, 3.2 GB are free"
    assert vllm_needs.why_vllm_cannot_run() == expected


def test_a_container_without_limit(machine):
    (machine / "memory.max").write_text("max\n")
    (machine / "memory.current").write_text(f"{13 * GIB}\n")
    assert vllm_needs.why_vllm_cannot_run() is None
