"""The file that says who is told of incidents."""

import pytest

from paritas.commands.agent_config import ConfigError
from paritas.commands.notify_file import load_plan, read_plan
from paritas.controller.notify.model import Grouping
from paritas.errors import UsageError

GOOD = """
receivers:
  - name: ops
    kind: slack
    url: http://127.0.0.1:9/x
    only: {min_severity: critical, slices: [all]}
    group: {by: [policy], wait: 10s, repeat: 1h}
  - {name: pager, kind: alertmanager, url: "https://alerts.example/"}
inhibitions:
  - {source: {clause: fresh}, target: {clause: [token-tv, seq-tv]}, equal: [slice]}
"""


def receiver(**fields):
    told = {"name": "ops", "kind": "webhook", "url": "https://x", **fields}
    inside = ", ".join(f"{name}: {value}" for name, value in told.items() if value is not None)
    return f"receivers:\n  - {{{inside}}}\n"


def test_a_plan_is_read_with_its_defaults():
    plan = read_plan(GOOD.encode(), "notify.yaml")
    ops, pager = plan.receivers
    assert ops.grouping == Grouping(("policy",), 10.0, 300.0, 3600.0)
    assert ops.only.slices == {"all"}
    assert pager.grouping.wait_s == 0.0, "Alertmanager groups by itself"
    assert plan.inhibitions[0].target == {"clause": {"token-tv", "seq-tv"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "n.yaml:1:1: missing field 'receivers'"),
        ("receivers: []", "n.yaml:1:12: receivers: expected 1 to 1000 items, got 0"),
        (receiver(kind="email"), "n.yaml:2:23: receivers[0].kind: unknown name 'email'"),
        (
            receiver(url="http://ops/x"),
            "n.yaml:2:5: receiver 'ops': url is neither https nor on this machine",
        ),
        (receiver(url=None), "n.yaml:2:5: receiver 'ops': give either url or url_file"),
        (receiver(url_file="f"), "n.yaml:2:5: receiver 'ops': give either url or url_file"),
        (
            receiver(url=None, url_file="/no/file"),
            "n.yaml:2:5: cannot read key file '/no/file': No such file or directory",
        ),
        (
            receiver(kind="alertmanager", url='"https://me:secret@x"', key_file="f"),
            "n.yaml:2:5: receiver 'ops': give either key_file or a password in the URL",
        ),
        (
            receiver(url='"http://me:secret@x"'),
            "n.yaml:2:5: receiver 'ops': url is neither https nor on this machine",
        ),
        (
            receiver(group="{by: [severity]}"),
            "n.yaml:2:61: receivers[0].group.by[0]: unknown name 'severity'",
        ),
        (
            receiver() + "  - {name: ops, kind: slack, url: https://y}\n",
            "n.yaml:2:5: two receivers are called 'ops'",
        ),
        (
            receiver() + "inhibitions:\n  - {source: {}, target: {clause: x}}\n",
            "n.yaml:4:14: matches everything",
        ),
    ],
)
def test_every_fault_is_said_with_its_place(text, message):
    with pytest.raises(ConfigError) as refused:
        read_plan(text.encode(), "n.yaml")
    assert str(refused.value) == message


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError) as refused:
        load_plan(tmp_path / "no.yaml")
    assert str(refused.value) == f"{tmp_path / 'no.yaml'}: cannot be read: No such file or directory"


def test_a_password_may_stand_in_the_url_and_a_webhook_is_signed_beside_it():
    for more in ({"kind": "alertmanager"}, {"key_file": "f"}):
        text = receiver(url='"http://me:secret@127.0.0.1:9093"', **more)
        assert read_plan(text.encode(), "n.yaml").receivers[0].url == "http://me:secret@127.0.0.1:9093"


def test_a_secret_url_is_not_shown(tmp_path):
    secret = tmp_path / "url"
    secret.write_text("http://hooks.example/T0/SECRET")
    with pytest.raises(ConfigError) as refused:
        read_plan(receiver(url=None, url_file=str(secret)).encode(), "n.yaml")
    assert (
        str(refused.value)
        == "n.yaml:2:5: receiver 'ops': the URL in url_file is neither https nor on this machine"
    )
