"""The rules of groups: wait, interval, repeat, inhibition, silence; and over random lives of incidents."""

from dataclasses import replace

from escalation_examples import escalation
from hypothesis import given
from hypothesis import strategies as st

from paritas.contracts.model import Operator, Requirement
from paritas.controller.deliveries import Delivery, DeliveryKind
from paritas.controller.filters import Filter
from paritas.controller.model import Incident, Suppression
from paritas.controller.notify.book import Book, noted, pruned
from paritas.controller.notify.grouping import Told, awaited, due, next_due_ns, regrouped, remember, settled
from paritas.controller.notify.model import Grouping, Inhibition, NoticeReason, Receiver, ReceiverKind
from paritas.controller.silences import Silence
from paritas.records import Phase, Severity

S = 1_000_000_000
OPS = Receiver(
    "ops", ReceiverKind.WEBHOOK, "https://ops", grouping=Grouping(wait_s=30, interval_s=60, repeat_s=600)
)
AGENT_GONE = Inhibition({"clause": frozenset({"fresh"})}, {"clause": frozenset({"token-tv"})})


class Desk:
    """One receiver and its log, with the hand on the clock."""

    def __init__(self, receiver=OPS, rules=()):
        self.receivers, self.rules, self.now_s = (receiver,), rules, 0.0
        self.tells, self.book = {}, Book({})

    def event(self, incident="a", number=1, *, suppression=None, **changes):
        current = escalation(number, incident_id=incident, **changes)
        self.take(Delivery(DeliveryKind.ESCALATION, escalation=current, suppression=suppression))

    def take(self, delivery):
        self.book = noted(self.book, delivery)

    def at(self, now_s, *, delivered=True):
        """Move the clock and send what is due; return (reason, firing, resolved) of each notice."""
        self.now_s = now_s
        now_ns = round(now_s * S)
        self.tells = settled(self.tells, self.book, self.receivers, now_ns=now_ns)
        found = due(self.tells, self.book, self.receivers, self.rules, now_ns=now_ns)
        for key, notice in found if delivered else ():
            self.tells = remember(self.tells, key, notice, now_ns=now_ns)
        self.book = pruned(self.book, awaited(self.tells), now_ns=now_ns)
        return [(n.reason, names(n.firing), names(n.resolved)) for _, n in found]


def names(entries):
    return [entry.current.incident_id for entry in entries]


def test_a_group_waits_for_company_then_tells_once():
    desk = Desk()
    desk.event("a")
    assert desk.at(0) == []
    desk.event("b", severity=Severity.CRITICAL)
    assert desk.at(29.9) == []
    assert desk.at(30) == [(NoticeReason.FIRST, ["b", "a"], [])], "worst first"
    assert desk.at(31) == desk.at(629) == []


def test_what_resolves_before_its_first_message_is_never_told():
    desk = Desk()
    desk.event("a")
    desk.at(0)
    desk.event("a", 2, after=Phase.RESOLVED)
    assert desk.at(30) == desk.at(10_000) == []
    assert (desk.tells, desk.book.entries) == ({}, {}), "and nothing is kept of it"


def test_news_and_ends_come_at_the_interval_and_an_ended_group_is_forgotten():
    desk = Desk()
    desk.event("a")
    desk.at(0)
    desk.at(30)
    desk.event("b")
    assert desk.at(40) == []
    assert desk.at(90) == [(NoticeReason.NEW_INCIDENTS, ["a", "b"], [])]
    desk.event("a", 2, after=Phase.RESOLVED)
    assert desk.at(150) == [(NoticeReason.SOME_RESOLVED, ["b"], ["a"])]
    desk.event("b", 2, after=Phase.SUPERSEDED)
    assert desk.at(210) == [(NoticeReason.ALL_RESOLVED, [], ["b"])]
    assert (desk.tells, desk.book.entries) == ({}, {})


def test_a_worse_severity_is_news_and_a_milder_phase_is_not():
    desk = Desk()
    desk.event("a")
    desk.at(0)
    desk.at(30)
    desk.event("a", 2, severity=Severity.CRITICAL)
    assert desk.at(100) == [(NoticeReason.NEW_INCIDENTS, ["a"], [])]
    desk.event("a", 3, after=Phase.RECOVERING, severity=Severity.INFO)
    assert desk.at(200) == []
    desk.event("a", 4, after=Phase.RESOLVED, severity=Severity.INFO)
    assert desk.at(300) == [(NoticeReason.ALL_RESOLVED, [], ["a"])]


def test_what_was_told_milder_than_it_is_or_was_is_named_as_it_was_told():
    told = {
        ("ops", ("qwen3-8b-rollout", "qwen3-8b")): Told(0, 1, frozenset({("a", "warning"), ("b", "info")}))
    }
    desk = Desk()
    desk.event("a", severity=Severity.CRITICAL)
    desk.event("b", after=Phase.RESOLVED)
    [(_, notice)] = due(told, desk.book, desk.receivers, (), now_ns=100 * S)
    assert [(e.current.incident_id, e.peak) for e in notice.outgrown] == [("a", "warning"), ("b", "info")]
    assert (names(notice.firing), names(notice.resolved)) == (["a"], ["b"])


def test_an_incident_is_as_old_as_the_controller_says():
    desk = Desk()
    for number, received_ns in ((1, 7), (2, 9)):
        current = escalation(number, incident_id="a")
        desk.take(Delivery(DeliveryKind.ESCALATION, escalation=current, received_ns=received_ns))
    assert desk.book.entries["a"].opened_ns == 7
    desk.take(Delivery(DeliveryKind.SNAPSHOT_START))
    known = Incident(escalation(3, incident_id="a"), open=True, peak=Severity.WARNING, opened_ns=5)
    desk.take(Delivery(DeliveryKind.INCIDENT, incident=known))
    desk.take(Delivery(DeliveryKind.SNAPSHOT_END))
    assert desk.book.entries["a"].opened_ns == 5


def test_a_group_that_still_fires_is_told_again():
    desk = Desk()
    desk.event("a")
    desk.at(0)
    desk.at(30)
    assert desk.at(629) == []
    assert desk.at(630) == [(NoticeReason.REPEAT, ["a"], [])]


def test_what_was_not_delivered_is_due_again():
    desk = Desk()
    desk.event("a")
    desk.at(0)
    first = desk.at(30, delivered=False)
    assert desk.at(31) == first == [(NoticeReason.FIRST, ["a"], [])]


def test_pending_is_nobodys_business_yet():
    desk = Desk()
    desk.event("a", after=Phase.PENDING)
    assert desk.at(0) == desk.at(1_000) == []
    assert desk.tells == {}


def test_groups_are_made_by_the_named_fields_and_filters_keep_others_out():
    only = Filter(min_severity=Severity.CRITICAL)
    desk = Desk(replace(OPS, only=only, grouping=Grouping(by=("slice",), wait_s=0)))
    desk.event("a", slice="replica=r1", severity=Severity.CRITICAL)
    desk.event("b", slice="replica=r2", severity=Severity.CRITICAL)
    desk.event("c", slice="replica=r3")
    assert desk.at(0) == [(NoticeReason.FIRST, ["a"], []), (NoticeReason.FIRST, ["b"], [])]


def test_a_silence_holds_notices_until_it_ends_and_state_goes_on():
    desk = Desk()
    desk.event("a", suppression=Suppression("s", "ana", "swap", 1_000 * S))
    desk.at(0)
    assert desk.at(500) == desk.at(1_000) == [], "the group begins when the silence ends"
    assert desk.at(1_030) == [(NoticeReason.FIRST, ["a"], [])]


def test_a_silence_made_later_holds_what_fires_and_its_early_end_frees_it():
    desk = Desk()
    desk.event("a")
    desk.at(0)
    matcher = Requirement("clause", Operator.IN, ("token-tv",))
    silence = Silence("s", (matcher,), 0, 10_000 * S, "ana", "swap")
    desk.take(Delivery(DeliveryKind.SILENCE, silence=silence))
    assert desk.at(100) == []
    ended = replace(silence, ends_ns=200 * S, expired_by="ana")
    desk.take(Delivery(DeliveryKind.SILENCE, silence=ended))
    assert desk.at(200) == []
    assert desk.at(230) == [(NoticeReason.FIRST, ["a"], [])]


def test_a_silence_that_came_with_an_incident_counts_until_it_is_heard_of_again():
    desk = Desk()
    desk.event("a", suppression=Suppression("s", "ana", "swap", 10_000 * S))
    desk.at(0)
    matcher = Requirement("clause", Operator.IN, ("token-tv",))
    ended = Silence("s", (matcher,), 0, 50 * S, "ana", "swap", expired_by="ana")
    desk.take(Delivery(DeliveryKind.SILENCE, silence=ended))
    assert desk.at(60) == []
    assert desk.at(90) == [(NoticeReason.FIRST, ["a"], [])]


def test_a_lost_agent_explains_the_clause_that_has_no_data_and_only_in_its_slice():
    desk = Desk(rules=(AGENT_GONE,))
    desk.event("gone", clause="fresh", slice="replica=r1")
    desk.event("drift", slice="replica=r1")
    desk.event("elsewhere", slice="replica=r2")
    desk.at(0)
    assert desk.at(30) == [(NoticeReason.FIRST, ["elsewhere", "gone"], [])]
    desk.event("gone", 2, clause="fresh", slice="replica=r1", after=Phase.RESOLVED)
    assert desk.at(100) == [(NoticeReason.NEW_INCIDENTS, ["drift", "elsewhere"], ["gone"])]


def test_two_that_would_inhibit_each_other_are_both_told():
    both = {"clause": frozenset({"token-tv"})}
    desk = Desk(rules=(Inhibition(both, both),))
    desk.event("a")
    desk.event("b")
    desk.at(0)
    assert desk.at(30) == [(NoticeReason.FIRST, ["a", "b"], [])]


def test_a_snapshot_ends_what_it_does_not_hold():
    desk = Desk()
    desk.event("a")
    desk.event("b")
    desk.at(0)
    desk.at(30)
    current = escalation(3, incident_id="b")
    incident = Incident(current, open=True, peak=Severity.CRITICAL, opened_ns=0)
    desk.take(Delivery(DeliveryKind.SNAPSHOT_START))
    desk.take(Delivery(DeliveryKind.INCIDENT, incident=incident))
    assert desk.at(90) == [], "half a snapshot ends nothing"
    desk.take(Delivery(DeliveryKind.SNAPSHOT_END))
    assert desk.at(91) == [(NoticeReason.NEW_INCIDENTS, ["b"], ["a"])], "it was critical meanwhile"


def test_an_older_transition_changes_nothing():
    desk = Desk()
    desk.event("a", 5, after=Phase.RESOLVED)
    desk.event("a", 4)
    desk.at(0)
    assert desk.at(1_000) == []


def test_the_next_look_is_when_the_first_group_may_be_due():
    desk = Desk()
    assert next_due_ns(desk.tells, desk.receivers) is None
    desk.event("a")
    desk.at(5)
    assert next_due_ns(desk.tells, desk.receivers) == 35 * S
    desk.at(35)
    assert next_due_ns(desk.tells, desk.receivers) == 95 * S
    assert next_due_ns(desk.tells, desk.receivers, after_ns=95 * S) == 635 * S, (
        "then only the reminder is left"
    )
    assert next_due_ns(desk.tells, desk.receivers, after_ns=635 * S) is None


phases = st.sampled_from([Phase.PENDING, Phase.FIRING, Phase.RECOVERING, Phase.RESOLVED, Phase.NO_DATA])
steps = st.lists(st.tuples(st.sampled_from("abc"), phases, st.integers(0, 200)), max_size=40)


@given(steps)
def test_whoever_is_told_of_an_incident_is_told_of_its_end(moves):
    """Over any life, also where every other message is lost; never without a beginning."""
    desk, told, now_s = Desk(), [], 0
    for number, (incident, phase, wait_s) in enumerate(moves, 1):
        desk.event(incident, number, after=phase)
        now_s += wait_s
        is_delivered = number % 2 == 0
        found = desk.at(now_s, delivered=is_delivered)
        told += found if is_delivered else []
    for incident in "abc":
        desk.event(incident, len(moves) + 1, after=Phase.RESOLVED)
    for _ in range(4):
        now_s += 700
        told += desk.at(now_s)
    began = [name for _, firing, _ in told for name in firing]
    ended = [name for _, _, resolved in told for name in resolved]
    assert set(ended) == set(began)
    assert desk.tells == {}
    assert desk.book.entries == {}


def test_a_log_by_other_fields_is_grouped_anew():
    desk = Desk()
    for incident, clause in (("a", "fresh"), ("b", "token-tv"), ("c", "fresh")):
        desk.event(incident, clause=clause)
    old = {
        ("ops", ("x", "y")): Told(1, 10, frozenset({("a", "warning"), ("b", "warning")})),
        ("ops", ("x", "z")): Told(2, 20, frozenset({("c", "critical"), ("forgotten", "info")})),
        ("other", ("x", "y", "z")): Told(4, 40, frozenset({("a", "warning")})),
    }
    by_clause = replace(OPS, grouping=Grouping(by=("clause",)))
    assert regrouped(old, desk.book, [by_clause]) == {
        ("ops", ("fresh",)): Told(1, 20, frozenset({("a", "warning"), ("c", "critical")})),
        ("ops", ("token-tv",)): Told(1, 10, frozenset({("b", "warning")})),
        ("other", ("x", "y", "z")): old["other", ("x", "y", "z")],
    }
    assert regrouped(old, desk.book, [OPS]) == old, "as many fields as before: nothing is touched"
