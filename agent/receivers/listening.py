"""Taking an address: a Unix socket that is private from its first moment, or a TCP port."""

import os
import socket
from pathlib import Path

from paritas.agent.config import host_port
from paritas.errors import UsageError

__all__ = ["MAX_PATH_BYTES", "listen_tcp", "listen_unix"]

MAX_PATH_BYTES = 100  # the kernel takes 107; a margin for a temporary name
BACKLOG = 128


def listen_unix(path: Path, *, is_shared: bool) -> socket.socket:
    """Return a listening Unix socket; a stale file is replaced, a live one is an error.

    Parameters
    ----------
    is_shared : bool
        Whether other users may connect (their credentials are checked then); else mode 0600.

    Raises
    ------
    UsageError
        The path is too long, someone listens there, or it cannot be made.
    """
    _claim(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    mask = os.umask(0o111 if is_shared else 0o177)  # private when made, not made and then closed to others
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"{path}: cannot listen: {_reason(error)}", hint="choose another path") from error
    finally:
        os.umask(mask)
    return listener


def _claim(path: Path) -> None:
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise UsageError(
            f"{path}: a socket's path has at most {MAX_PATH_BYTES} bytes", hint="choose a shorter path"
        )
    if not path.exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise UsageError(f"{path}: another agent listens here", hint="stop it, or choose another path")


def listen_tcp(listen: str) -> socket.socket:
    """Return a listening TCP socket; UsageError if the address cannot be bound."""
    host, port = host_port(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        host.encode("idna")  # for a name that is none the library would leave its socket open
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"{listen}: cannot listen: {_reason(error)}", hint="choose another port; 0 picks a free one"
        ) from error


def _reason(error: OSError | UnicodeError) -> str:
    """What the system calls it; the library's own text repeats the address.  Its own numbers are below zero."""
    if isinstance(error, UnicodeError):
        return "not the name of a host"
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return (error.strerror or str(error)).partition(" (while")[0]
