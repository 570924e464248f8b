"""Who is at the other end of a Unix socket, as the kernel tells it."""

import os
import socket
import struct
from collections.abc import Iterable
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


def allowed_uids(others: Iterable[int]) -> frozenset[int]:
    """Return the users that may send: this process's own, and the configured ones."""
    return frozenset({os.geteuid(), *others})
