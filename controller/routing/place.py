"""One policy in the running loop: its newest table, who waits for a newer one, and its router."""

import asyncio
from collections.abc import Sequence

from paritas.controller.routing.declared import Declared
from paritas.controller.routing.drive import Drive
from paritas.controller.routing.model import Fleet, Route
from paritas.controller.routing.table import Table, table_of
from paritas.errors import TransientError

__all__ = ["Place"]


class Place:
    """Holds the newest table; a watcher that is slow misses those in between, never the newest.

    Parameters
    ----------
    inherited : int
        Revision that an earlier process decided last, perhaps for a fleet that was declared otherwise.
    """

    def __init__(self, declared: Declared, drive: Drive | None, *, inherited: int = 0) -> None:
        self.declared, self.drive, self.inherited = declared, drive, inherited
        self._table: Table | None = None
        self._newer = asyncio.Condition()
        self.is_closed = False

    @property
    def fleet(self) -> Fleet:
        """What the operator declared."""
        return self.declared.fleet

    @property
    def table(self) -> Table:
        """The newest table.

        Raises
        ------
        TransientError
            Nothing was decided yet.
        """
        if self._table is None:
            raise TransientError("no route is decided yet", hint="try again in a moment")
        return self._table

    async def publish(self, routes: Sequence[Route]) -> None:
        """Make the routes of a decision the newest, and the router's wish."""
        self._table = table_of(self.fleet, routes)
        if self.drive is not None:
            self.drive.want(routes)
        await self._tell()

    async def after(self, known: Table | None) -> Table | None:
        """Wait for a table that is not `known`; None when the loop closes."""
        async with self._newer:
            await self._newer.wait_for(lambda: self.is_closed or self._table is not known)
        return None if self.is_closed else self._table

    async def close(self) -> None:
        """Let everybody who waits go."""
        self.is_closed = True
        await self._tell()

    async def _tell(self) -> None:
        async with self._newer:
            self._newer.notify_all()
