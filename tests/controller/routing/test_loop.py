"""The loop on a real log: decisions are kept before they are told, restarts miss and double nothing."""

import asyncio
from dataclasses import replace

import pytest
from escalation_examples import DEADLINE_S, escalation
from routing_scenes import DRAIN, LIMITS, START_NS, S, fleet, reroute

from paritas.clock import ManualClock
from paritas.contracts.model import Operator, Requirement
from paritas.controller.admission import admit
from paritas.controller.compaction import Retention
from paritas.controller.config import Limits
from paritas.controller.convert import escalation_to
from paritas.controller.drivers.memory import MemoryRouter
from paritas.controller.hub import End, EndReason, Hub
from paritas.controller.journal import Journal
from paritas.controller.model import Draft, EventKind
from paritas.controller.routing import rows
from paritas.controller.routing.declared import Declared
from paritas.controller.routing.loop import RoutingLoop
from paritas.controller.routing.model import RouteKey, Why
from paritas.controller.silences import Silence, SilenceBook
from paritas.controller.store import Store
from paritas.controller.store_thread import StoreThread
from paritas.controller.wire import silence_to
from paritas.errors import TransientError, UsageError
from paritas.records import Phase


class Controller:
    """Store, hub and journal as the server makes them, without gRPC; the clock stands still."""

    def __init__(self, folder, clock=None):
        self.path, self.clock = folder / "log.db", clock or ManualClock(START_NS)
        self.store = StoreThread(self.path, retention=Retention())

    async def __aenter__(self):
        await self.store.__aenter__()
        _, head = await self.store.run(Store.bounds)
        self.hub, self.silences = Hub(head=head, max_subscribers=1), SilenceBook()
        self.journal = Journal(
            self.store, self.hub, silences=self.silences, clock=self.clock, report=self._report
        )
        return self

    async def __aexit__(self, *error):
        await self.store.__aexit__(*error)

    async def _report(self, writable):
        pass

    def loop(self, *fleets, **drivers):
        declared = [Declared(one) for one in fleets]
        parts = {"store": self.store, "hub": self.hub, "silences": self.silences, "clock": self.clock}
        return RoutingLoop(declared, **parts, drivers=drivers.get("drivers"))

    async def publish(self, number=1, **changes):
        values = {"issued_ns": START_NS, "valid_until_ns": START_NS + 600 * S}
        event = escalation(number, **{**values, **changes})
        await self.journal.append(admit([escalation_to(event)], limits=Limits()))

    async def silence(self, ends_ns):
        made = Silence("s1", (Requirement("clause", Operator.IN, ("token-tv",)),), 0, ends_ns, "ana", "known")
        payload = silence_to(made).SerializeToString()
        draft = Draft(EventKind.SILENCE, "silence-s1", payload, silence_id="s1", ends_ns=ends_ns)
        await self.journal.append([draft])

    async def audit(self, policy=""):
        found = await self.store.run(rows.audit_before, policy, before=0, limit=1000)
        return [(e.kind.value, e.key.slice, e.detail) for e in reversed(found)]


def run(scenario):
    async def bounded():
        async with asyncio.timeout(DEADLINE_S):
            await scenario()

    asyncio.run(bounded())


async def until(loop, holds, policy="qwen3-8b"):
    """Wait for a table of which `holds` is true."""
    table = loop.places[policy].table
    while not holds(table):
        table = await loop.places[policy].after(table)
    return table


def weights(table, name="all"):
    return next(dict(r.weights) for r in table.routes if r.slice == name)


def test_an_event_of_the_journal_moves_the_route_and_the_router(tmp_path):
    async def scenario():
        of = fleet()
        router = MemoryRouter(of)
        async with Controller(tmp_path) as c, c.loop(of, drivers={of.policy: router}) as loop:
            await c.publish(actions=(reroute(0.5),))
            table = await until(loop, lambda t: "reference" in weights(t))
            assert weights(table) == {"inference": 0.5, "reference": 0.5}
            place = loop.places[of.policy]
            while not (  # noqa: ASYNC110  # memory tells no one
                place.drive.shown.is_confirmed
                and place.drive.shown.observed.weights[RouteKey(of.policy)] == weights(table)
            ):
                await asyncio.sleep(0)
            sent = [router.route() for _ in range(100)]
            assert sum(name == "f1" for name in sent) == 50

    run(scenario)


def test_a_dry_run_computes_writes_down_and_touches_nothing(tmp_path):
    async def scenario():
        of = fleet(dry_run=True)
        router = MemoryRouter(of)
        async with Controller(tmp_path) as c, c.loop(of, drivers={of.policy: router}) as loop:
            await c.publish(actions=(reroute(),))
            await until(loop, lambda t: weights(t) == {"reference": 1.0})
            assert loop.places[of.policy].drive is None
            assert {router.route() for _ in range(10)} == {"r1", "r2", "r3", "r4"}
            found = await c.store.run(rows.audit_before, "", before=0, limit=9)
            assert {e.dry_run for e in found} == {True}

    run(scenario)


def test_a_restart_misses_nothing_and_does_nothing_twice(tmp_path):
    async def scenario():
        clock = ManualClock(START_NS)
        async with Controller(tmp_path, clock) as c:
            async with c.loop(fleet()) as loop:
                await c.publish(actions=(reroute(),))
                await until(loop, lambda t: weights(t) == {"reference": 1.0})
                before, audit = loop.places["qwen3-8b"].table, await c.audit()
            # While no loop runs, the incident is over; then another one begins.
            await c.publish(2, after=Phase.RESOLVED, actions=())
            await c.publish(slice="replica=r2", incident_id="i2", actions=(DRAIN,))
        async with Controller(tmp_path, clock) as c, c.loop(fleet()) as loop:
            table = loop.places["qwen3-8b"].table
            assert weights(table) == {"reference": 1.0}  # it dwells, from when it moved
            assert table.drained == {"r2"}
            assert table.revision == before.revision + 1
            clock.advance(seconds=30)
            await loop.round()
            assert weights(loop.places["qwen3-8b"].table) == {"inference": 1.0}
            await loop.round()
            assert (await c.audit())[: len(audit)] == audit
            assert sum("out: r2" in text for _, name, text in await c.audit() if name == "all") == 2

    run(scenario)


def test_the_same_event_twice_is_one_decision(tmp_path):
    async def scenario():
        async with Controller(tmp_path) as c, c.loop(fleet()) as loop:
            await c.publish(actions=(reroute(),))
            await until(loop, lambda t: weights(t) == {"reference": 1.0})
            audit, table = await c.audit(), loop.places["qwen3-8b"].table
            await c.publish(actions=(reroute(),))
            await loop.round()
            assert await c.audit() == audit
            assert loop.places["qwen3-8b"].table == table

    run(scenario)


def test_a_silence_stops_what_comes_and_its_end_lets_it_act(tmp_path):
    async def scenario():
        async with Controller(tmp_path) as c, c.loop(fleet()) as loop:
            await c.silence(START_NS + 100 * S)
            await c.publish(actions=(reroute(),))
            table = await until(loop, lambda t: t.routes[0].why == Why.SILENCED.value)
            assert weights(table) == {"inference": 1.0}
            c.clock.advance(seconds=100)
            await loop.round()
            assert weights(loop.places["qwen3-8b"].table) == {"reference": 1.0}

    run(scenario)


def test_an_incident_that_the_log_has_forgotten_is_over(tmp_path):
    async def scenario():
        async with Controller(tmp_path) as c, c.loop(fleet()) as loop:
            await c.publish(actions=(reroute(),))
            await until(loop, lambda t: weights(t) == {"reference": 1.0})
            with_rows = "DELETE FROM incidents"
            await c.store.run(lambda store: store._db.execute(with_rows).rowcount)
            c.clock.advance(seconds=31)
            await loop.round()
            assert weights(loop.places["qwen3-8b"].table) == {"inference": 1.0}

    run(scenario)


def test_each_round_renews_the_lease_without_writing(tmp_path):
    async def scenario():
        async with Controller(tmp_path) as c, c.loop(fleet()) as loop:
            place = loop.places["qwen3-8b"]
            first, audit = place.table, await c.audit()
            c.clock.advance(seconds=20)
            await loop.round()
            assert place.table.valid_until_ns == first.valid_until_ns + 20 * S
            assert replace(place.table, valid_until_ns=first.valid_until_ns) == first
            assert await c.audit() == audit

    run(scenario)


def test_a_log_that_cannot_be_written_keeps_the_old_routes(tmp_path):
    async def scenario():
        async with Controller(tmp_path) as c, c.loop(fleet()) as loop:
            pages = await c.store.run(lambda s: s._db.execute("PRAGMA page_count").fetchone()[0])
            await c.publish(actions=(), summary="x")
            await loop.round()
            await c.store.run(lambda s: s._db.execute(f"PRAGMA max_page_count = {pages}"))
            before = loop.places["qwen3-8b"].table
            loop._memories["qwen3-8b"] = replace(loop._memories["qwen3-8b"], notes=())
            big = fleet(slices={f"task={n}": {"x-task": str(n) * 900} for n in range(60)})
            loop.places["qwen3-8b"].declared = Declared(big)
            with pytest.raises(TransientError, match="full"):
                await loop.round()
            assert loop.places["qwen3-8b"].table == before

    run(scenario)


def test_two_fleets_of_one_policy(tmp_path):
    async def scenario():
        async with Controller(tmp_path) as c:
            with pytest.raises(UsageError, match="policy 'qwen3-8b' is declared twice"):
                async with c.loop(fleet(), fleet()):
                    pass

    run(scenario)


def test_it_leaves_when_the_server_drains(tmp_path):
    async def scenario():
        async with Controller(tmp_path) as c, c.loop(fleet()):
            while not len(c.hub):  # noqa: ASYNC110  # memory tells no one
                await asyncio.sleep(0)
            await c.hub.drain(End(EndReason.DRAINING, "closing"), timeout_s=DEADLINE_S)
            assert c.hub.counts["drain_timeout"] == 0

    run(scenario)


def test_a_fleet_that_is_not_driven_needs_no_router(tmp_path):
    async def scenario():
        async with Controller(tmp_path) as c, c.loop(fleet(limits=LIMITS)) as loop:
            assert loop.places["qwen3-8b"].drive is None

    run(scenario)


def test_a_round_that_cannot_be_kept_is_tried_again_soon_and_not_at_every_moment(tmp_path):
    """What is due stays due while the disk is full: the log of warnings must not fill what is left of it."""

    async def scenario():
        async with Controller(tmp_path) as c, c.loop(fleet()) as loop:
            await c.publish(actions=(reroute(),), valid_until_ns=START_NS + S)
            await until(loop, lambda t: weights(t) == {"reference": 1.0})
            await c.store.run(lambda s: s._db.execute("PRAGMA query_only = ON").fetchall())
            c.clock.advance(seconds=1)
            await loop._guarded_round()
            assert loop.counts["failed"] == 1
            assert loop._wait_s() == 1.0
            await c.store.run(lambda s: s._db.execute("PRAGMA query_only = OFF").fetchall())
            await loop._guarded_round()
            assert loop.places["qwen3-8b"].table.routes[0].why == Why.LEASE_EXPIRED.value

    run(scenario)
