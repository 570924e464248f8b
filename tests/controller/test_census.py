"""How many there are of what is kept."""

import asyncio
import sqlite3
from contextlib import closing

import pytest
from escalation_examples import drafts, escalation
from promotion_cases import CANDIDATE, DOCUMENT, KEYS

from paritas.clock import ManualClock
from paritas.controller import census as counted
from paritas.controller.census import Promotions, census
from paritas.controller.compaction import Retention
from paritas.controller.model import Draft, EventKind
from paritas.controller.promotion.ledger import Ledger
from paritas.controller.store import Store
from paritas.controller.store_thread import StoreThread
from paritas.records import Phase, Severity


def incident(name, clause="tv", severity=Severity.WARNING, number=1, **more):
    told = {"incident_id": name, "event_id": f"{name}/{number}", "clause": clause, "severity": severity}
    return escalation(number, **{**told, **more})


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "log.db", retention=Retention()) as store:
        yield store


def found(store, tmp_path):
    return census(store, Promotions(), folder=tmp_path)


def test_open_incidents_are_counted_by_clause_severity_and_whether_a_person_saw_them(store, tmp_path):
    store.append(
        drafts(
            incident("a"),
            incident("b"),
            incident("c", "kl", Severity.CRITICAL),
            incident("d"),
            incident("d", number=2, after=Phase.RESOLVED),
        ),
        now_ns=1,
    )
    (event,) = (e for e in store.incident_events("a", limit=1))
    seen = Draft(kind=EventKind.ACKNOWLEDGEMENT, event_id="ack", subject=event.subject, payload=b"ana")
    store.append([seen], now_ns=2)
    told = found(store, tmp_path)
    assert told.incidents == {
        ("qwen3-8b-rollout", "kl", "critical", False): 1,
        ("qwen3-8b-rollout", "tv", "warning", False): 1,
        ("qwen3-8b-rollout", "tv", "warning", True): 1,
    }
    assert (told.oldest, told.head) == (0, 6)
    assert told.free_bytes > 0


def test_beyond_the_bound_clauses_are_counted_together(store, tmp_path, monkeypatch):
    monkeypatch.setattr(counted, "MOST_CLAUSES", 2)
    store.append(drafts(*(incident(str(n), f"clause-{n}") for n in range(5))), now_ns=1)
    told = found(store, tmp_path).incidents
    assert sorted((contract, clause, n) for (contract, clause, *_), n in told.items()) == [
        ("other", "other", 3),
        ("qwen3-8b-rollout", "clause-0", 1),
        ("qwen3-8b-rollout", "clause-1", 1),
    ]


def test_counting_reads_the_index_of_open_incidents_only(tmp_path):
    path = tmp_path / "log.db"
    with Store(path, retention=Retention()):
        pass
    with closing(sqlite3.connect(path)) as db:
        (*_, plan) = db.execute(f"EXPLAIN QUERY PLAN {counted._OPEN}").fetchone()
    assert plan == "SCAN incidents USING COVERING INDEX incidents_open"


def test_a_log_from_before_gets_the_index(tmp_path):
    path = tmp_path / "log.db"
    with Store(path, retention=Retention()) as store:
        store.append(drafts(incident("a")), now_ns=1)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP INDEX incidents_open")
    with Store(path, retention=Retention()) as store:
        assert sum(found(store, tmp_path).incidents.values()) == 1


def test_promotions_are_read_again_only_when_one_has_changed(tmp_path):
    async def walk():
        async with StoreThread(tmp_path / "log.db", retention=Retention()) as store:
            ledger = Ledger(store, clock=ManualClock(), keys=KEYS)
            look = lambda known: store.run(census, known, folder=tmp_path)  # noqa: E731
            first = (await look(Promotions())).promotions
            await ledger.start("p1", DOCUMENT, CANDIDATE, actor="ann")
            second = (await look(first)).promotions
            third = (await look(second)).promotions
            await ledger.abort("p1", actor="ann", text="")
            return first, second, third, (await look(third)).promotions

    first, second, third, fourth = asyncio.run(walk())
    assert (first.by_standing, second.by_standing) == ({}, {"running": 1})
    assert third is second
    assert fourth.by_standing == {"aborted": 1}
