"""The terminal of tables, by rich."""

import sys

from rich.console import Console

from paritas.commands.output import let_go

__all__ = ["PatientConsole"]


class PatientConsole(Console):
    """A console whose reader may leave, as `head` does: the exit code stays that of the command.

    Rich would exit with 1 there, which to a caller means "violated".
    """

    def on_broken_pipe(self) -> None:
        """Say no more."""
        self.quiet = True
        let_go(sys.stdout)
