"""What a person or a program is told, by kind of receiver."""

import json
from dataclasses import replace

import pytest
from escalation_examples import escalation

from paritas.controller.notify.model import Entry, Grouping, Notice, NoticeReason, Receiver, ReceiverKind
from paritas.controller.notify.rendering import rendered, says
from paritas.records import Finding, Phase, Severity

GROUP = (("contract", "qwen3-8b-rollout"), ("policy", ""))
NOW_NS = 1_700_000_100_000_000_000


def entry(incident="a", *, peak=Severity.CRITICAL, **changes):
    return Entry(escalation(incident_id=incident, **changes), peak)


def notice(firing=(), resolved=(), reason=NoticeReason.FIRST, **counts):
    return Notice("ops", GROUP, reason, tuple(firing), tuple(resolved), **counts)


def sent(kind, told):
    receiver = Receiver("ops", kind, "https://x")
    return json.loads(rendered(receiver, told, now_ns=NOW_NS))


ENDED = entry("b", peak=Severity.WARNING, after=Phase.RESOLVED)


def test_words_say_how_bad_what_and_why():
    assert says(notice([entry()], [ENDED], NoticeReason.NEW_INCIDENTS, silenced=2)) == (
        "[1 firing, 1 resolved] qwen3-8b-rollout\n"
        "- critical: token-tv of slice all is violated; looks like stale_replica (80%)\n"
        "- resolved: token-tv of slice all is violated\n"
        "not told: 2 silenced, 0 inhibited"
    )
    assert says(notice([], [ENDED], NoticeReason.ALL_RESOLVED)).startswith("[resolved] qwen3-8b-rollout\n")
    assert says(notice([entry()], reason=NoticeReason.REPEAT)).startswith(
        "[1 firing, 0 resolved] qwen3-8b-rollout (still)\n"
    )


def test_a_long_list_is_cut_and_counted():
    lines = says(notice([entry(str(n)) for n in range(14)])).splitlines()
    assert (len(lines), lines[-1]) == (12, "and 4 more")


def test_a_webhook_gets_every_incident_as_fields():
    body = sent(ReceiverKind.WEBHOOK, notice([entry()], [ENDED]))
    assert body["group"] == {"contract": "qwen3-8b-rollout", "policy": ""}
    assert body["firing"][0]["causes"] == [
        {"cause": "stale_replica", "confidence": 0.8, "advice": "drain r2"}
    ]
    assert (body["resolved"][0]["incident_id"], body["resolved"][0]["phase"]) == ("b", "resolved")


def test_nothing_of_a_contract_becomes_markup_in_slack():
    risky = entry(summary="<!channel> & <http://x|y>")
    text = sent(ReceiverKind.SLACK, notice([risky]))["text"]
    assert "&lt;!channel&gt; &amp; &lt;http://x|y&gt;" in text


def test_alerts_for_alertmanager_end_by_themselves_and_keep_their_labels():
    firing, ended = sent(ReceiverKind.ALERTMANAGER, notice([entry()], [ENDED]))
    # the wait until the next repeat, three times: 3 x 4 h after NOW_NS
    assert firing["startsAt"] == "2023-11-14T22:13:20.000+00:00"
    assert firing["endsAt"] == "2023-11-15T10:15:00.000+00:00"
    # five seconds before NOW_NS, as an end that is ahead of Alertmanager's clock is none to it
    assert ended["endsAt"] == "2023-11-14T22:14:55.000+00:00"
    assert firing["labels"] == {
        "alertname": "ParitasClause",
        "incident_id": "a",
        "contract": "qwen3-8b-rollout",
        "policy": "qwen3-8b",
        "clause": "token-tv",
        "slice": "all",
        "weights_version": "17",
        "severity": "critical",
    }
    assert firing["annotations"]["cause"] == "stale_replica"


@pytest.mark.parametrize("kind", list(ReceiverKind))
def test_without_a_diagnosis_nothing_is_guessed(kind):
    body = json.dumps(sent(kind, notice([replace(entry(), current=escalation(diagnosis=()))])))
    assert "looks like" not in body
    assert '"cause":' not in body


def test_an_alert_never_ends_before_it_starts_also_where_the_detectors_clock_is_ahead():
    """An Alertmanager refuses such a one, and whoever is refused tells nobody anything."""
    ahead = entry("b", after=Phase.RESOLVED, issued_ns=NOW_NS + 5_000_000_000)
    (alert,) = sent(ReceiverKind.ALERTMANAGER, notice([], [ahead], NoticeReason.ALL_RESOLVED))
    assert alert["startsAt"] == alert["endsAt"] == "2023-11-14T22:14:55.000+00:00"


def test_an_alert_starts_when_the_controller_first_heard_of_it():
    known = replace(entry(issued_ns=NOW_NS), opened_ns=NOW_NS - 60_000_000_000)
    (alert,) = sent(ReceiverKind.ALERTMANAGER, notice([known]))
    assert alert["startsAt"] == "2023-11-14T22:14:00.000+00:00"


def test_an_alert_lasts_three_times_as_long_as_until_it_is_told_again():
    """A group is told at most every interval, however short the time between reminders."""
    seldom = Grouping(wait_s=0.0, interval_s=300.0, repeat_s=60.0)
    receiver = Receiver("ops", ReceiverKind.ALERTMANAGER, "https://x", grouping=seldom)
    (alert,) = json.loads(rendered(receiver, notice([entry()]), now_ns=NOW_NS))
    assert alert["endsAt"] == "2023-11-14T22:30:00.000+00:00"


def test_the_alert_of_a_milder_severity_ends_when_it_gets_worse():
    """The severity is a label, and other labels are another alert."""
    before = notice([entry()], outgrown=(entry(peak=Severity.WARNING),))
    worse, milder = sent(ReceiverKind.ALERTMANAGER, before)
    assert (worse["labels"]["severity"], worse["endsAt"]) == ("critical", "2023-11-15T10:15:00.000+00:00")
    assert (milder["labels"]["severity"], milder["endsAt"]) == ("warning", "2023-11-14T22:14:55.000+00:00")
    assert [says(before), sent(ReceiverKind.WEBHOOK, before)] == [
        says(notice([entry()])),
        sent(ReceiverKind.WEBHOOK, notice([entry()])),
    ]


def test_a_confidence_that_is_no_number_is_null():
    """NaN is no JSON: a receiver that reads strictly would refuse the message, and every later one."""
    strange = entry(diagnosis=(Finding("stale_replica", "all", float("nan"), {}, ""),))
    text = rendered(Receiver("ops", ReceiverKind.WEBHOOK, "https://x"), notice([strange]), now_ns=NOW_NS)
    assert b"NaN" not in text
    assert json.loads(text)["firing"][0]["causes"][0]["confidence"] is None
