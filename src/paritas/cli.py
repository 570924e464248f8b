"""The command `paritas`: one parser, one place where errors become exit codes.

This module and `paritas.commands` are the composition root: the only code that may import
every room.
"""

import argparse
import errno
import sys
from collections.abc import Sequence
from importlib import import_module

from paritas import __version__
from paritas.commands.console_log import install
from paritas.commands.output import flushed_output, let_go, prepare_streams
from paritas.errors import ContractError, ParitasError, UsageError

__all__ = ["main"]

USAGE = 64
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
COMMANDS = (
    "contract",
    "check",
    "certify",
    "repair",
    "floor",
    "up",
    "agent",
    "topics",
    "detect",
    "control",
    "health",
    "roster",
    "access",
    "operator",
    "incidents",
    "routes",
    "promote",
    "proxy",
    "scrape",
    "ingest",
    "watch",
    "demo",
    "experiment",
)


class _Parser(argparse.ArgumentParser):
    """Says one line and exits with 64, the code of every usage error here."""

    def error(self, message: str) -> "None":  # type: ignore[override]  # argparse types it NoReturn; so it is
        """Turn a parse error into ours."""
        raise UsageError(message, hint=f"{self.prog} --help shows what it takes")


def parser() -> argparse.ArgumentParser:
    """Build the parser with every command."""
    root = _Parser(prog="paritas", description="Do the two programs that evaluate one policy still agree?")
    root.add_argument("--version", action="version", version=f"paritas {__version__}")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f"paritas.commands.{name}").register(commands)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors of ours are two lines, never a traceback."""
    install()
    prepare_streams()
    try:
        with flushed_output():
            arguments = parser().parse_args(argv)
            code: int = arguments.run(arguments)
    except UsageError as error:
        return _say(error, USAGE)
    except ParitasError as error:
        return _say(error, USAGE if isinstance(error, ContractError) else 1)
    except KeyboardInterrupt:
        return 130  # as a shell reports SIGINT
    except BrokenPipeError:
        let_go(sys.stdout)
        return 0  # the reader of what has no end, such as head, has seen enough
    except ModuleNotFoundError as error:
        return _say(_missing(error), USAGE)
    except OSError as error:
        return _say(_refused(error), USAGE)
    return code


def _say(error: ParitasError, code: int) -> int:
    try:
        sys.stderr.write(error.render() + "\n")
    except OSError:
        let_go(sys.stderr)  # whoever reads errors has left: the code still tells
    return code


def _missing(error: ModuleNotFoundError) -> UsageError:
    """A part that is not installed is named together with the extra that brings it."""
    if error.name and error.name.startswith("paritas"):
        raise error
    return UsageError(f"this command needs the module {error.name!r}", hint="pip install 'paritas[all]'")


def _refused(error: OSError) -> UsageError:
    """A file that the system refuses is named; what has no name and no room is the output."""
    if error.filename is not None:
        return UsageError(f"{error.filename}: {error.strerror}", hint="check the path and its permissions")
    if error.errno in NO_ROOM:
        return UsageError(
            f"the output cannot be written: {error.strerror}", hint="what is there is not whole"
        )
    raise error
