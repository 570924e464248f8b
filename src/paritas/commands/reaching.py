"""How a command reaches a controller: where it is, and how it shows who it is."""

import argparse
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.places import DataFolder, default_folder
from paritas.errors import TransientError

if TYPE_CHECKING:
    from paritas.controller.backoff import Backoff
    from paritas.controller.client import EscalationClient
    from paritas.controller.config import TlsFiles

__all__ = [
    "Reach",
    "add_identity_options",
    "add_reach_options",
    "own_reach",
    "reach_by_token",
    "reach_of",
    "reach_to",
    "tls_files",
]


@dataclass(frozen=True, slots=True)
class Reach:
    """A controller's address, and the files that a client of it needs."""

    target: str
    token_file: Path | None = None
    tls: "TlsFiles | None" = None

    def client(self, *, backoff: "Backoff | None" = None) -> "EscalationClient":
        """Return a client, not yet entered.

        Raises
        ------
        UsageError
            A file cannot be read.
        """
        from paritas.controller.client import EscalationClient

        return EscalationClient(self.target, tls=self.tls, token_file=self.token_file, backoff=backoff)

    def check(self) -> None:
        """Look once for what no waiting mends, where a person waits; whoever serves tries again instead.

        Raises
        ------
        TransientError
            The host's name is unknown, or only one of client and port speaks TLS.
        """
        from paritas.controller.unreached import mismatch

        error = _unknown_name(self.target) or mismatch(self.target, self.tls)
        if error is not None:
            raise error


def _unknown_name(target: str) -> TransientError | None:
    host, _, port = target.rpartition(":")
    if not port.isdecimal() or (":" in host and not host.startswith("[")):
        return None  # a Unix socket, or another of gRPC's ways to write an address
    try:
        socket.getaddrinfo(host.strip("[]"), None)
    except UnicodeError:
        reason = "not the name of a host"
    except socket.gaierror as error:
        reason = error.strerror or str(error)
    else:
        return None
    return TransientError(f"{target}: {reason}", hint="is the name of the host right?")


def add_reach_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--target``, ``--data``, ``--token-file`` and the files of TLS."""
    parser.add_argument("--target", help="gRPC address (default: that of the running instance)")
    parser.add_argument("--data", type=Path, help="folder of the running instance")
    add_identity_options(parser)


def add_identity_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--token-file`` and the files of TLS."""
    group = parser.add_argument_group("who I am (docs/access.md)")
    group.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="file that holds my token (default: PARITAS_TOKEN_FILE)",
    )
    group.add_argument("--ca", metavar="FILE", type=Path, help="whom to trust; without it there is no TLS")
    group.add_argument("--certificate", metavar="FILE", type=Path, help="my certificate in PEM")
    group.add_argument("--key", metavar="FILE", type=Path, help="its private key")


def reach_of(arguments: argparse.Namespace) -> Reach:
    """Return how to reach the controller; the owner of a running instance's folder needs no token.

    Raises
    ------
    UsageError
        No address is given and nothing runs in the folder.
    """
    target, own = _where(arguments)
    return reach_to(target, arguments, token_file=own)


def reach_by_token(arguments: argparse.Namespace) -> Reach:
    """Return how to reach the controller by token and authority alone: where ``--key`` is another key.

    Raises
    ------
    UsageError
        No address is given and nothing runs in the folder.
    """
    from paritas.controller.config import TlsFiles

    target, own = _where(arguments)
    return Reach(target, _token_file(arguments) or own, TlsFiles(ca=arguments.ca) if arguments.ca else None)


def _where(arguments: argparse.Namespace) -> tuple[str, Path | None]:
    """The address, and the token of the folder's owner if the address is the folder's."""
    folder = DataFolder(arguments.data or default_folder(os.environ))
    own = folder.token if not arguments.target and folder.token.exists() else None
    return arguments.target or folder.running().target, own


def _token_file(arguments: argparse.Namespace) -> Path | None:
    named = arguments.token_file or os.environ.get("PARITAS_TOKEN_FILE")
    return Path(named) if named else None


def reach_to(target: str, arguments: argparse.Namespace, *, token_file: Path | None = None) -> Reach:
    """Return how to reach a controller at an address, with the options of `add_identity_options`."""
    return Reach(target, _token_file(arguments) or token_file, tls_files(arguments))


def own_reach(arguments: argparse.Namespace, folder: DataFolder, target: str) -> Reach:
    """Return how a process reaches the controller that it runs itself: with TLS, over a socket of its own."""
    token = folder.token if arguments.access else None
    return Reach(f"unix:{folder.own_socket}" if arguments.certificate else target, token)


def tls_files(arguments: argparse.Namespace) -> "TlsFiles | None":
    """Return the files of TLS that the options name; None without any."""
    from paritas.controller.config import TlsFiles

    files = (arguments.certificate, arguments.key, arguments.ca)
    return TlsFiles(*files) if any(files) else None
