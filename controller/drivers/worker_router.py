"""sglang-router and vllm-router, driven over their worker APIs.  Needs aiohttp (``paritas[control]``).

Both answer ``GET /workers``; they differ in how a worker enters and leaves.  The first only queues
what it is told, so nothing counts before it was read back.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from paritas.clock import NS_PER_S, Clock
from paritas.controller.drivers.driver import Applied, Observed, Outcome
from paritas.controller.drivers.members import Change, Members, change_of, members_of
from paritas.controller.drivers.outcomes import outcomes
from paritas.controller.http_client import HttpClient
from paritas.controller.routing.model import Fleet, Replica, Route
from paritas.controller.secret_files import bearer
from paritas.errors import TransientError, UsageError

__all__ = ["Dialect", "WorkerRouterDriver", "WorkerRouterSettings"]


class Dialect(StrEnum):
    """Whose API is spoken."""

    SGLANG = "sglang-router"
    VLLM = "vllm-router"


@dataclass(frozen=True, slots=True)
class WorkerRouterSettings:
    """Where the router is, and how long it may take.

    Attributes
    ----------
    url : str
        Its base URL.
    token_file : Path or None
        Holds its API key, for routers that ask for one.
    request_s, settle_s : float
        Limit of one request, and of the wait until a change was read back.
    poll_s : float
        How often it is asked meanwhile.
    """

    url: str
    token_file: Path | None = None
    request_s: float = 2.0
    settle_s: float = 5.0
    poll_s: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what is no URL."""
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"url: {self.url!r} is not an http or https URL")
        for name in ("request_s", "settle_s", "poll_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}: must be positive, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class _Worker:
    id: str
    url: str
    healthy: bool


class WorkerRouterDriver(HttpClient):
    """One router whose workers are the fleet's replicas; a replica's target is its URL.

    Workers that the fleet does not declare are shown and left alone.

    Parameters
    ----------
    dialect : Dialect
        Which router it is.
    settings : WorkerRouterSettings
        Where it is.
    fleet : Fleet
        Who may be in rotation.
    clock : Clock
        For how long a change took.

    Raises
    ------
    UsageError
        A replica has no target, or the key file cannot be read.
    """

    def __init__(self, dialect: Dialect, settings: WorkerRouterSettings, fleet: Fleet, clock: Clock) -> None:
        self._dialect, self._settings, self._fleet, self._clock = dialect, settings, fleet, clock
        if nameless := [replica.name for replica in fleet.replicas if not replica.target]:
            message = f"{dialect}: replica {nameless[0]!r} has no target"
            raise UsageError(message, hint="write the URL under which the router knows it")
        headers = bearer(settings.token_file)
        super().__init__(f"{dialect}: the driver", limit_s=settings.request_s, headers=headers)
        self.name = str(dialect)

    async def apply(self, routes: Sequence[Route]) -> Sequence[Applied]:
        """Add, wait until they are healthy, then remove; read back before claiming anything."""
        members = members_of(self._fleet, routes)
        return await outcomes(routes, members.unsupported, partial(self._move, members), clock=self._clock)

    async def observe(self) -> Observed:
        """Ask for the workers.

        Raises
        ------
        TransientError
            The router cannot be asked.
        """
        workers = await self._workers()
        names = {replica.target: replica.name for replica in self._fleet.replicas}
        unknown = tuple(sorted(w.url for w in workers if w.url not in names))
        return Observed(
            serving=frozenset(names[w.url] for w in workers if w.url in names and w.healthy), unknown=unknown
        )

    async def _move(self, members: Members) -> tuple[Outcome, str]:
        """Bring in before taking out; one replica that will not come in does not keep a bad one in."""
        if not members.wanted:
            return Outcome.FAILED, "no replica would be left in rotation; nothing was changed"
        change = change_of(self._fleet, members.wanted, (w.url for w in await self._workers()))
        refused = [why for replica in change.add if (why := await self._add(replica))]
        absent = await self._await_healthy(change.add, members.wanted)
        if len(absent) == len(members.wanted):
            return Outcome.FAILED, "; ".join(["no wanted replica is healthy; none was removed", *refused])
        left = await self._remove(change)
        late = [*(f"{name} is not healthy yet" for name in absent), *(f"{name} is still in" for name in left)]
        return (Outcome.ACCEPTED, "; ".join([*late, *refused])) if late else (Outcome.APPLIED, "")

    async def _remove(self, change: Change) -> list[str]:
        """Take them out; return the names of those that are still there."""
        ids = {worker.url: worker.id for worker in await self._workers()}
        for replica in change.remove:
            if replica.target in ids:
                await self._take_out(replica, ids[replica.target])
        return await self._await_gone(change.remove)

    async def _await_healthy(self, added: Sequence[Replica], wanted: Sequence[Replica]) -> list[str]:
        """Wait for those just `added`; return the names of all `wanted` that are not healthy members."""

        def absent(workers: Sequence[_Worker], among: Sequence[Replica]) -> list[str]:
            healthy = {worker.url for worker in workers if worker.healthy}
            return [replica.name for replica in among if replica.target not in healthy]

        await self._until_empty(lambda workers: absent(workers, added))
        return absent(await self._workers(), wanted)

    async def _await_gone(self, removed: Sequence[Replica]) -> list[str]:
        def left(workers: Sequence[_Worker]) -> list[str]:
            there = {worker.url for worker in workers}
            return [replica.name for replica in removed if replica.target in there]

        return await self._until_empty(left)

    async def _until_empty(self, pending: Callable[[Sequence[_Worker]], list[str]]) -> list[str]:
        """Ask until `pending` names nobody, at most `settle_s`; nothing tells when another process is done."""
        deadline_ns = self._clock.monotonic_ns() + round(self._settings.settle_s * NS_PER_S)
        while (names := pending(await self._workers())) and self._clock.monotonic_ns() < deadline_ns:  # noqa: ASYNC110  # it polls a router
            await asyncio.sleep(self._settings.poll_s)
        return names

    async def _add(self, replica: Replica) -> str:
        """Ask for `replica`; return why it was refused, or "".  One that is there already is no refusal."""
        try:
            if self._dialect is Dialect.SGLANG:
                await self._call("POST", "/workers", json={"url": replica.target})
            else:
                there = HTTPStatus.BAD_REQUEST
                await self._call("POST", "/add_worker", params={"url": replica.target}, allowed=there)
        except TransientError as error:
            return f"{replica.name}: {error}"
        return ""

    async def _take_out(self, replica: Replica, worker_id: str) -> None:
        if self._dialect is Dialect.SGLANG:
            await self._call("DELETE", f"/workers/{worker_id}", allowed=HTTPStatus.NOT_FOUND)
        else:
            await self._call("POST", "/remove_worker", params={"url": replica.target})

    async def _workers(self) -> list[_Worker]:
        answer = await self._call("GET", "/workers")
        try:
            return [
                _Worker(str(w.get("id", "")), str(w["url"]), bool(w["is_healthy"])) for w in answer["workers"]
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise TransientError(f"{self.name}: GET /workers is not the answer of a router") from error

    async def _call(self, method: str, path: str, *, allowed: int = 0, **content: Any) -> Any:
        """Return the answer, JSON where it is; anything but success (or `allowed`) is transient."""
        url = self._settings.url.rstrip("/") + path
        try:
            async with self.session.request(method, url, **content) as answer:
                text = await answer.text()
                if answer.status >= HTTPStatus.BAD_REQUEST and answer.status != allowed:
                    raise TransientError(f"{self.name}: {method} {path} gave {answer.status}: {text[:200]}")
                return await answer.json(content_type=None) if method == "GET" else text
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise TransientError(f"{self.name}: {method} {path} failed: {reason}") from error
