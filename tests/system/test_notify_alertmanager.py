"""Escalations through a real controller to a real Alertmanager: begun, kept alive, worse, ended, refused, away, in a cluster."""

import json
from datetime import datetime

import pytest
from certificates import self_signed
from system.alertmanager_process import HURRY, Alertmanager, hook, one_receiver
from system.alertmanager_scene import CLOCK, LEASE_NS, firing, is_told, plan_of, publish, telling
from system.control_process import controller, target_of
from system.otel_parts import wait_until
from system.parts import why_not

from paritas.clock import SystemClock
from paritas.contracts.model import Operator, Requirement
from paritas.controller.client import EscalationClient
from paritas.records import Phase, Severity

pytestmark = pytest.mark.skipif(bool(why_not("alertmanager")), reason=str(why_not("alertmanager")))

SELDOM = {"repeat": "1h"}  # whatever ends sooner was ended
PASSWORD = "only-for-tests"
HASH = "$2b$04$abcdefghijklmnopqrstuuSOASZ5gFdIXxQU/MI4albXfVKBHc6R2"


class Ahead(SystemClock):
    """A clock that is two seconds ahead of Alertmanager's."""

    def now_ns(self):
        return super().now_ns() + 2_000_000_000


@pytest.fixture
def told():
    """Where Alertmanager tells people."""
    with hook() as opened:
        yield opened


@pytest.fixture
def manager(told, tmp_path):
    """An Alertmanager that tells every alert at once."""
    opened = Alertmanager(tmp_path / "alertmanager", one_receiver(told.url))
    with opened.serve():
        yield opened


def ns_of(text):
    """Unix ns of a time that Alertmanager writes."""
    return round(datetime.fromisoformat(text).timestamp() * 1e9)


def test_an_escalation_is_an_alert_that_lives_on_until_the_recovery(manager, told, tmp_path):
    """The command itself, with its file: what Alertmanager has is what docs/notifications.md says."""
    plan, data, before_ns = tmp_path / "notify.yaml", tmp_path / "data", CLOCK.now_ns()
    plan.write_bytes(plan_of(manager))
    with controller(data, "--notify", plan) as control, EscalationClient(target_of(control)) as client:
        publish(client, slice="replica=r2", severity=Severity.CRITICAL)
        firing(manager, "a")
        alert = manager.alerts()["a"]
        assert alert["labels"] == {
            "alertname": "ParitasClause",
            "incident_id": "a",
            "contract": "qwen3-8b-rollout",
            "policy": "qwen3-8b",
            "clause": "token-tv",
            "slice": "replica=r2",
            "weights_version": "17",
            "severity": "critical",
        }
        assert alert["annotations"] == {
            "summary": "token-tv of slice all is violated",
            "cause": "stale_replica",
            "advice": "drain r2",
        }
        assert before_ns - 10**6 <= ns_of(alert["startsAt"]) <= CLOCK.now_ns()
        assert 0 < ns_of(alert["endsAt"]) - ns_of(alert["updatedAt"]) <= LEASE_NS
        wait_until(lambda: manager.alerts()["a"]["endsAt"] > alert["endsAt"], "it is told again")
        assert manager.alerts()["a"]["startsAt"] == alert["startsAt"]
        publish(client, number=2, slice="replica=r2", after=Phase.RESOLVED)
        firing(manager)
        is_told(told, ["a"], status="resolved")
        assert control.end() == 0
        assert "people were told: " in control.out
        assert "0 tries failed" in control.out
    assert told.alerts("/all", status="firing") == ["a"], "once, however often it was told again"


def test_what_gets_worse_is_one_alert_all_the_time(manager, told, tmp_path):
    """A label that changes makes another alert: the one before must end at once, else both fire."""
    with telling(tmp_path, plan_of(manager, group=SELDOM)) as (client, _):
        publish(client, severity=Severity.WARNING)
        firing(manager, "a")
        publish(client, number=2, severity=Severity.CRITICAL)
        wait_until(
            lambda: [a["labels"]["severity"] for a in manager.asked("/alerts")] == ["critical"],
            "critical alone",
        )
        publish(client, number=3, after=Phase.RESOLVED)
        firing(manager)


def test_two_incidents_that_are_alike_end_each_by_itself(manager, told, tmp_path):
    """A clause may be violated and without data at once, in one slice."""
    with telling(tmp_path, plan_of(manager, group=SELDOM)) as (client, _):
        publish(client, "a")
        publish(client, "b", after=Phase.NO_DATA)
        firing(manager, "a", "b")
        publish(client, "b", 2, after=Phase.RESOLVED)
        firing(manager, "a")
        is_told(told, ["b"], status="resolved")


def test_an_end_counts_though_our_clock_is_ahead(manager, told, tmp_path):
    with telling(tmp_path, plan_of(manager, group=SELDOM), clock=Ahead()) as (client, _):
        publish(client)
        firing(manager, "a")
        publish(client, number=2, after=Phase.RESOLVED)
        firing(manager)
        is_told(told, ["a"], status="resolved")


def test_a_restarted_alertmanager_knows_it_all_again(told, tmp_path):
    """It keeps what it told, but no alerts: nobody is told twice, and all are told of an end that it missed."""
    manager = Alertmanager(tmp_path / "alertmanager", one_receiver(told.url))
    with telling(tmp_path, plan_of(manager)) as (client, notifier):
        with manager.serve():
            for incident, clause in (("a", "token-tv"), ("b", "seq-tv")):
                publish(client, incident, clause=clause)
            wait_until(lambda: set(told.alerts("/all", status="firing")) == {"a", "b"}, "both are told")
            began = manager.alerts()["a"]["startsAt"]
        publish(client, "b", 2, clause="seq-tv", after=Phase.RESOLVED)
        wait_until(lambda: notifier.counts["failed:unreachable:am-0"], "it is missed")
        with manager.serve():
            firing(manager, "a")
            assert manager.alerts()["a"]["startsAt"] == began
            is_told(told, ["b"], status="resolved")
            publish(client, number=2, after=Phase.RESOLVED)
            is_told(told, ["b", "a"], status="resolved")
    assert sorted(told.alerts("/all", status="firing")) == ["a", "b"]


def test_silences_and_inhibitions_of_alertmanager_are_its_own_affair(told, tmp_path):
    """The state there is whole, people are told nothing, and here nothing has changed."""
    quiet = {
        "source_matchers": ['clause="fresh"'],
        "target_matchers": ['clause="seq-tv"'],
        "equal": ["policy", "slice"],
    }
    manager = Alertmanager(tmp_path / "alertmanager", one_receiver(told.url, inhibit_rules=[quiet]))
    with manager.serve(), telling(tmp_path, plan_of(manager)) as (client, notifier):
        manager.asked("/silences", silence("token-tv"))
        for incident, clause in (("c", "fresh"), ("a", "token-tv"), ("b", "seq-tv")):
            publish(client, incident, clause=clause)
            firing(manager, *{"c": "c", "a": "ca", "b": "cab"}[incident])
        wait_until(lambda: held(manager) == {"a": "silencedBy", "b": "inhibitedBy"}, "both are held")
        is_told(told, ["c"], status="firing")
        sent = notifier.counts["sent:am-0"]
        wait_until(lambda: notifier.counts["sent:am-0"] > sent, "it is told all the same")
        assert told.alerts("/all", status="firing") == ["c"]
        assert {i.current.incident_id for i in client.incidents()} == {"a", "b", "c"}


def silence(clause):
    ends = "2100-01-01T00:00:00Z"
    matcher = {"name": "clause", "value": clause, "isRegex": False, "isEqual": True}
    who = {"createdBy": "ana", "comment": "swap"}
    return {"matchers": [matcher], "startsAt": "2020-01-01T00:00:00Z", "endsAt": ends, **who}


def held(manager):
    """What holds each alert that is held."""
    states = {name: alert["status"] for name, alert in manager.alerts().items()}
    kinds = ("silencedBy", "inhibitedBy")
    return {name: kind for name, state in states.items() for kind in kinds if state[kind]}


def test_it_groups_by_what_its_route_says(told, tmp_path):
    """Here each contract is a group of its own; there a clause is one, over both of them."""
    route = {"receiver": "all", "group_by": ["clause"], **HURRY}
    manager = Alertmanager(tmp_path / "alertmanager", one_receiver(told.url) | {"route": route})
    with manager.serve(), telling(tmp_path, plan_of(manager, group=SELDOM)) as (client, _):
        for incident, more in (("a", {}), ("b", {"contract": "other"}), ("c", {"clause": "seq-tv"})):
            publish(client, incident, **more)
        wait_until(lambda: groups(told) == {"token-tv": {"a", "b"}, "seq-tv": {"c"}}, "two groups")


def groups(told):
    """Incidents of the newest message of each clause; a message names all of its group."""
    named = [({a["labels"]["incident_id"] for a in m["alerts"]}, m["groupLabels"]) for _, m in told.messages]
    return {labels["clause"]: incidents for incidents, labels in named}


def test_what_is_not_told_again_ends_by_itself(manager, told, tmp_path):
    """Also what a silence of ours holds: to be quiet about what goes on, silence it in Alertmanager."""
    with telling(tmp_path, plan_of(manager, group={"repeat": "1s"})) as (client, _):
        publish(client, "a")
        publish(client, "b", clause="seq-tv")
        firing(manager, "a", "b")
        matcher = Requirement("clause", Operator.IN, ("token-tv",))
        client.silence([matcher], author="ana", comment="swap", duration_s=3600)
        firing(manager, "b")
        is_told(told, ["a"], status="resolved")
    assert set(told.alerts("/all", status="firing")) == {"a", "b"}


def test_a_password_in_the_url_is_taken_and_a_wrong_one_is_one_line(told, tmp_path, monkeypatch):
    """Alertmanager itself knows names and passwords only, and TLS."""
    tls = self_signed(tmp_path)
    web = {
        "tls_server_config": {"cert_file": str(tls.certificate), "key_file": str(tls.key)},
        "basic_auth_users": {"paritas": HASH},
    }
    (tmp_path / "web.json").write_text(json.dumps(web))
    manager = Alertmanager(
        tmp_path / "alertmanager",
        one_receiver(told.url),
        f"--web.config.file={tmp_path / 'web.json'}",
        scheme="https",
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.certificate))
    where, bearer = tmp_path / "url", tmp_path / "key"
    where.write_text(manager.url.replace("://", f"://paritas:{PASSWORD}@"))
    bearer.write_text("token")
    plan = json.loads(plan_of(manager, manager, manager))
    del plan["receivers"][0]["url"]
    plan["receivers"][0]["url_file"] = str(where)
    plan["receivers"][1]["url"] = manager.url.replace("://", "://paritas:wrong@")
    plan["receivers"][2]["key_file"] = str(bearer)
    file = tmp_path / "notify.yaml"
    file.write_text(json.dumps(plan))
    listening = lambda: "Listening on" in (tmp_path / "alertmanager" / "log").read_text()  # noqa: E731
    with manager.serve(is_ready=listening), controller(tmp_path / "data", "--notify", file) as control:
        with EscalationClient(target_of(control)) as client:
            publish(client)
        is_told(told, ["a"], status="firing")
        for name in ("am-1", "am-2"):
            line = control.says(f"receiver '{name}' answered 401")
            assert line.startswith("warning: Message was not delivered.")
        assert control.end() == 0
        said = control.errors + control.out
        assert [word in said for word in (PASSWORD, "wrong", "token")] == [False, False, False]


def test_an_alertmanager_below_a_path_is_told_by_its_whole_address(told, tmp_path):
    manager = Alertmanager(tmp_path / "alertmanager", one_receiver(told.url), "--web.route-prefix=/am")
    whole = json.loads(plan_of(manager, manager))
    whole["receivers"][1]["url"] += "/am/"
    plan, is_ready = json.dumps(whole).encode(), lambda: manager.answers("/am/-/ready")
    with manager.serve(is_ready=is_ready), telling(tmp_path, plan) as (client, notifier):
        publish(client)
        is_told(told, ["a"], status="firing")
        wait_until(lambda: notifier.counts["failed:refused:am-0"], "no such page")


def test_of_a_cluster_each_member_is_told_and_people_once(told, tmp_path):
    """One of them goes, and nobody misses anything; the other had its turn with the first alert meanwhile, and said nothing."""
    options = (
        "--cluster.settle-timeout=1s",
        "--cluster.peer-timeout=300ms",
        "--cluster.gossip-interval=50ms",
    )
    first = Alertmanager(tmp_path / "first", one_receiver(told.url))
    second = Alertmanager(tmp_path / "second", one_receiver(told.url))
    first.join(second, *options)
    second.join(first, *options)
    with second.serve(), telling(tmp_path, plan_of(first, second, group=SELDOM)) as (client, _):
        with first.serve():
            wait_until(lambda: len(first.asked("/status")["cluster"]["peers"]) == 2, "they know each other")
            publish(client)
            firing(first, "a")
            firing(second, "a")
            is_told(told, ["a"], status="firing")
        publish(client, "b")
        firing(second, "a", "b")
        is_told(told, ["a", "b"], status="firing")
