"""A file that holds the desired state, for routers that reload one: replaced whole, read back."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from paritas.clock import Clock
from paritas.controller.drivers.document import document_of, encoded, observed_of
from paritas.controller.drivers.driver import Applied, Observed, Outcome
from paritas.controller.drivers.outcomes import outcomes
from paritas.controller.routing.model import Fleet, Route
from paritas.durable import replace_file
from paritas.errors import TransientError, UsageError

__all__ = ["FileDriver", "FileSettings"]


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Which file; its folder must exist."""

    path: Path

    def __post_init__(self) -> None:
        """Refuse a folder that is not there before anything moves."""
        if not self.path.parent.is_dir():
            raise UsageError(f"path: there is no folder {str(self.path.parent)!r}")


class FileDriver:
    """Writes `document.document_of` to one file.

    What is read back is the file, not the router that should read it.

    Parameters
    ----------
    settings : FileSettings
        Which file.
    fleet : Fleet
        Whose routes.
    clock : Clock
        For how long writing took.
    """

    name = "file"

    def __init__(self, settings: FileSettings, fleet: Fleet, clock: Clock) -> None:
        self._path, self._fleet, self._clock = settings.path, fleet, clock

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def apply(self, routes: Sequence[Route]) -> Sequence[Applied]:
        """Replace the file; a reader sees the old one or the new one."""
        return await outcomes(routes, {}, partial(self._write, routes), clock=self._clock)

    async def _write(self, routes: Sequence[Route]) -> tuple[Outcome, str]:
        try:
            await asyncio.to_thread(replace_file, self._path, [encoded(document_of(self._fleet, routes))])
        except OSError as error:
            return Outcome.FAILED, f"cannot write {str(self._path)!r}: {error.strerror}"
        return Outcome.APPLIED, ""

    async def observe(self) -> Observed:
        """Read the file.

        Raises
        ------
        TransientError
            It is not there, or does not hold routes of this fleet.
        """
        try:
            return observed_of(self._fleet, json.loads(await asyncio.to_thread(self._path.read_bytes)))
        except OSError as error:
            raise TransientError(f"file: cannot read {str(self._path)!r}: {error.strerror}") from error
        except ValueError as error:
            raise TransientError(f"file: {str(self._path)!r} holds no routes: {error}") from error
