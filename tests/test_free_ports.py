"""Ports that are still free when the process that they are for has started."""

import socket

import free_ports
import pytest


def test_none_is_given_twice_and_each_can_be_bound():
    found = [free_ports.free_port(), *free_ports.free_ports(50), free_ports.free_port()]
    assert len(set(found)) == 52
    for port in found:
        socket.create_server(("127.0.0.1", port)).close()


def test_the_kernel_gives_none_of_them_to_anybody():
    low, high = map(int, free_ports.KERNELS_OWN.read_text().split())
    if high - low > 50_000:
        pytest.skip("the kernel gives away nearly every port here")
    assert not [port for port in free_ports.free_ports(50) if low <= port <= high]


def test_a_port_that_somebody_listens_on_is_passed_over():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not free_ports._is_free(taken.getsockname()[1])


@pytest.mark.parametrize("said", ["1024 65535", None])
def test_where_the_kernel_takes_all_or_does_not_say_any_may_do(said, tmp_path, monkeypatch):
    monkeypatch.setattr(free_ports, "KERNELS_OWN", tmp_path / "range")
    if said:
        (tmp_path / "range").write_text(said)
    assert free_ports._beyond_the_kernels() == list(free_ports.PORTS)
