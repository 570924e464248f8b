"""Ports for processes that bind them later: none that the kernel gives away meanwhile."""

import itertools
import random
import socket
from functools import cache
from pathlib import Path

KERNELS_OWN = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORTS = range(10_000, 65_536)
FEW = 1000


def free_port():
    """Return one of `free_ports`."""
    [port] = free_ports(1)
    return port


def free_ports(number):
    """Return so many ports of 127.0.0.1 that nobody listens on, none of them twice in this process.

    They are not from the range out of which the kernel gives connections and port 0 theirs: such a port may be
    somebody else's before the process that it is for has started, or while it is started again.
    """
    return list(itertools.islice(filter(_is_free, _shuffled()), number))


@cache
def _shuffled():
    """An iterator over all candidates; by the system's randomness, as workers share the seed of their tests."""
    candidates = _beyond_the_kernels()
    random.SystemRandom().shuffle(candidates)
    return iter(candidates)


def _beyond_the_kernels():
    try:
        low, high = map(int, KERNELS_OWN.read_text().split())
    except OSError:
        return list(PORTS)
    beyond = [port for port in PORTS if not low <= port <= high]
    return beyond if len(beyond) > FEW else list(PORTS)


def _is_free(port):
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
