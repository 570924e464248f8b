"""Addresses of a host's name, found on a thread that nobody has to wait for.  Needs aiohttp."""

import asyncio
import socket
import threading
from concurrent.futures import Future
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

__all__ = ["Resolver"]

_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class Resolver(AbstractResolver):
    """Looks each name up on a daemon thread of its own.

    Nothing ends a look-up of the system from outside, and servers of names that do not answer hold it for far longer
    than a message has.  An event loop's own threads are few, and it waits for them before it ends: there, some names
    that hang would hold up all other names, and the end of the process.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses; raises what `socket.getaddrinfo` does."""
        found: Future[list[Any]] = Future()
        found.set_running_or_notify_cancel()  # whoever waits may leave: the answer is nobody's then
        threading.Thread(
            target=_look_up, args=(found, host, port, family), name="notify-name", daemon=True
        ).start()
        return [_result(host, *told) for told in await asyncio.wrap_future(found)]

    async def close(self) -> None:
        """Nothing is held."""


def _look_up(found: "Future[list[Any]]", host: str, port: int, family: int) -> None:
    try:
        told = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except BaseException as error:  # noqa: BLE001  # handed on whole to whoever waits
        found.set_exception(error)
    else:
        found.set_result(told)


def _result(name: str, family: int, _kind: int, proto: int, _canonical: str, address: Any) -> ResolveResult:
    """An address of IPv6 may hold only in one network, whose number stands last."""
    network = f"%{address[3]}" if family == socket.AF_INET6 and address[3] else ""
    host, port = f"{address[0]}{network}", address[1]
    return ResolveResult(hostname=name, host=host, port=port, family=family, proto=proto, flags=_NUMERIC)
