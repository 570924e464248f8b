"""Whether an address can be listened on, found out with a plain socket before a server of gRPC is given it.

gRPC says why it cannot in a line of its own on standard error, past all logging, and of a name with several
addresses it takes those that are free: somebody else then answers on the others.
"""

import errno
import os
import socket
from typing import Any

__all__ = ["why_not_free"]

# gRPC takes either for all addresses of both families.
WILDCARDS = {"::", "0.0.0.0"}  # noqa: S104  # named, not bound


def why_not_free(listen: str) -> str:
    """Return why nobody can listen on an address, in the system's words; empty where one can.

    Parameters
    ----------
    listen : str
        ``HOST:PORT``; a Unix socket is not looked at.

    Examples
    --------
    >>> with socket.create_server(("127.0.0.1", 0)) as taken:
    ...     why_not_free("127.0.0.1:%d" % taken.getsockname()[1])
    'Address already in use'
    >>> why_not_free("127.0.0.1:0")
    ''
    """
    if listen.startswith("unix:"):
        return ""
    host, _, port = listen.rpartition(":")
    name = host.strip("[]")
    try:
        found = socket.getaddrinfo(
            None if name in WILDCARDS else name, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except UnicodeError:
        return "not the name of a host"
    except socket.gaierror as error:
        return error.strerror or str(error)
    return _reason([_bind(family, address) for family, _, _, _, address in found])


def _reason(faults: list[int]) -> str:
    """An address in use is one too many; else one that can be bound is enough, such as where there is no IPv6."""
    if errno.EADDRINUSE in faults:
        return os.strerror(errno.EADDRINUSE)
    return os.strerror(faults[0]) if all(faults) else ""


def _bind(family: int, address: Any) -> int:
    """Bind for a moment, as gRPC does; return the number of the error, 0 without one."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind(address)
    except OSError as error:
        return error.errno or errno.EIO
    return 0
