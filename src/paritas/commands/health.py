"""`paritas health`: ask a process how it does; for probes of images that have no other program to ask with."""

import argparse
import http.client
import os
import sys
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from paritas.errors import TransientError, UsageError

__all__ = ["register"]

DEFAULT_URL = "http://127.0.0.1:4319/readyz"
LIMIT_BYTES = 4096  # an answer is one line
OK = 200
MOST_S = 3600.0


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "health",
        help="ask an agent, a detector or a controller whether it does its work",
        description="Prints the one line that it answers. Ends with 0 if it is well, with 1 if it is not or does not "
        "answer: a probe for images that hold no other program to ask with.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "url", metavar="URL", nargs="?", help=f"what to ask (default: PARITAS_HEALTH, else {DEFAULT_URL})"
    )
    where.add_argument("--grpc", metavar="TARGET", help="ask the standard gRPC health service there instead")
    parser.add_argument(
        "--service",
        metavar="NAME",
        default="",
        help="with --grpc: ask about this service, not the whole server",
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=3.0, help="how long to wait (default: 3)"
    )
    tls = parser.add_argument_group("with --grpc and TLS")
    tls.add_argument("--ca", metavar="FILE", type=Path, help="whom to trust; without it there is no TLS")
    tls.add_argument("--certificate", metavar="FILE", type=Path, help="my certificate in PEM")
    tls.add_argument("--key", metavar="FILE", type=Path, help="its private key")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ask once; return 0 if it is well."""
    if not 0 < arguments.timeout <= MOST_S:
        raise UsageError(
            f"--timeout is {arguments.timeout:g}", hint=f"give seconds, more than 0, at most {MOST_S:g}"
        )
    is_well, text = _by_grpc(arguments) if arguments.grpc else _by_http(arguments)
    sys.stdout.write(f"{text}\n")
    return 0 if is_well else 1


def _by_http(arguments: argparse.Namespace) -> tuple[bool, str]:
    url = arguments.url or os.environ.get("PARITAS_HEALTH") or DEFAULT_URL
    found = _address(url)
    connection = http.client.HTTPConnection(found.hostname or "", found.port, timeout=arguments.timeout)
    try:
        connection.request("GET", f"{found.path or '/'}{'?' if found.query else ''}{found.query}")
        answer = connection.getresponse()
        lines = answer.read(LIMIT_BYTES).decode(errors="replace").strip().splitlines()
    except (
        OSError,
        UnicodeError,
        http.client.HTTPException,
    ) as error:  # UnicodeError: a name that no DNS knows
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TransientError(f"{url}: {reason}", hint="is it up, and does it serve health there?") from error
    finally:
        connection.close()
    return answer.status == OK, lines[0] if lines else f"HTTP {answer.status}"


def _address(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        is_fine = found.scheme == "http" and bool(found.hostname) and (found.port or 1) > 0
    except ValueError:
        is_fine = False
    if not is_fine:
        raise UsageError(f"{url!r} is no address to ask", hint="write http://HOST:PORT/readyz")
    return found


def _by_grpc(arguments: argparse.Namespace) -> tuple[bool, str]:
    from paritas.commands.grpc_health import HealthClient
    from paritas.commands.reaching import Reach, tls_files

    with HealthClient(Reach(arguments.grpc, None, tls_files(arguments))) as client:
        status = client.status(arguments.service, timeout_s=arguments.timeout)
    return status == "SERVING", status.lower()
