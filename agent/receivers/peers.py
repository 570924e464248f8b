"""Who is at the other end of a Unix socket, as the kernel tells it."""

import os
import socket
import struct
from collections.abc import Container, Iterable
from dataclasses import dataclass

__all__ = ["Peer", "allowed_uids", "peer_of"]

CREDENTIALS = struct.Struct("=iII")  # pid_t, uid_t, gid_t


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected: its ids at that moment."""

    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the credentials of the other end; it cannot forge them."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return Peer(*CREDENTIALS.unpack(packed))


class _Everyone:
    """Contains every user: where the folder of the socket decides who reaches it."""

    def __contains__(self, uid: object) -> bool:
        return True


def allowed_uids(others: Iterable[int], *, any_user: bool = False) -> Container[int]:
    """Return the users that may send: this process's own and the configured ones, or all.

    Examples
    --------
    >>> 1000 in allowed_uids([1000]), 4_000_000 in allowed_uids([1000])
    (True, False)
    >>> 4_000_000 in allowed_uids([], any_user=True)
    True
    """
    return _Everyone() if any_user else frozenset({os.geteuid(), *others})
