"""The routing tables of the log: what is kept comes back as it was."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from routing_scenes import DRAIN, FLEETS, START_NS, STEPS, Incidents, S, Story, reroute, seen

from paritas.controller.compaction import Retention
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.routing import rows
from paritas.controller.routing.audit import AuditEntry, AuditKind
from paritas.controller.routing.desired import Round, decide
from paritas.controller.routing.memory import Memory, memory_from, memory_text
from paritas.controller.routing.model import Hold, RouteKey, Why
from paritas.controller.routing.override import Override
from paritas.controller.store import Store

KEY = RouteKey("p", "task=math")
ENTRY = AuditEntry(7, KEY, AuditKind.DECIDED, Why.INCIDENT, "moved", 3, ("i1", "i2"), dry_run=False)
WHOLE = Override(
    "o1",
    KEY,
    "ana",
    "swap",
    1,
    9,
    {"inference": 0.25, "reference": 0.75},
    {"reference": 0.1},
    frozenset({"r1", "r2"}),
    frozenset({"r3"}),
    frozenset({Hold.REFIT}),
    yields=True,
    expired_by="bea",
)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "log.db", retention=Retention()) as store:
        yield store


def test_nothing_is_remembered_at_first(store):
    assert rows.load_memory(store, "p") == (0, Memory())


def test_a_decision_is_kept_with_its_audit(store):
    story = Story()
    story.at(0, seen(slice="replica=r2", actions=(DRAIN, reroute())), seen("i2", actions=(reroute(0.5),)))
    rows.keep(store, "p", 5, story.memory, [ENTRY])
    assert rows.load_memory(store, "p") == (5, story.memory)
    assert rows.load_memory(store, "q") == (0, Memory())
    assert rows.audit_before(store, "", before=0, limit=9) == [replace(ENTRY, entry=1)]


def test_what_cannot_be_read_is_said(store):
    with store.transaction() as db:
        db.execute("""INSERT INTO routing VALUES ('p', 1, '{"now_ns": 3}')""")
    with pytest.raises(RefusalError) as caught:
        rows.load_memory(store, "p")
    assert caught.value.reason is Refused.DAMAGED
    assert (
        str(caught.value)
        == "what the routing loop remembers of policy 'p' cannot be read: KeyError('revision')"
    )


def test_an_override_comes_back_as_it_was(store):
    rows.keep_override(store, WHOLE, [ENTRY])
    assert rows.overrides(store) == (WHOLE,)
    rows.keep_override(store, replace(WHOLE, ends_ns=5), [])
    assert rows.overrides(store) == (replace(WHOLE, ends_ns=5),)


def test_overrides_that_ended_long_ago_are_forgotten(store):
    for n in range(1002):
        rows.keep_override(store, replace(WHOLE, override_id=str(n), ends_ns=n), [])
    assert [o.ends_ns for o in rows.overrides(store)] == list(range(2, 1002))


def test_the_audit_is_read_in_pages_by_policy_and_bounded(store, monkeypatch):
    monkeypatch.setattr(rows, "AUDIT_ENTRIES", 5)
    other = replace(ENTRY, key=RouteKey("q"), why=None)
    rows.write_audit(store, [ENTRY, other] * 4)
    found = rows.audit_before(store, "", before=0, limit=99)
    assert [e.entry for e in found] == [8, 7, 6, 5, 4]
    assert rows.audit_before(store, "q", before=8, limit=1) == [replace(other, entry=6)]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FLEETS, STEPS)
def test_every_memory_has_a_form_on_disk(of, steps):
    incidents, memory, now_ns = Incidents(), Memory(), START_NS
    for step in steps:
        now_ns += round(step.seconds * S)
        incidents.take(step, now_ns)
        memory = decide(memory, Round(of, now_ns, incidents.told())).memory
        assert memory_from(memory_text(memory)) == memory
