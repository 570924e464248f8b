"""A controller that tells Alertmanagers, in the process of a test, and the waits for what becomes of it there."""

import json
from contextlib import contextmanager

from escalation_examples import config, escalation
from system.otel_parts import wait_until

from paritas.clock import SystemClock
from paritas.commands.notify_file import read_plan
from paritas.controller.client import EscalationClient, StartAt, SubscriptionOptions
from paritas.controller.notify.log import NotificationLog
from paritas.controller.notify.notifier import Notifier
from paritas.controller.server import serving

CLOCK = SystemClock()
QUICK = {"repeat": "2s"}  # told every two seconds, so what is not told again ends after six
LEASE_NS = 6 * 10**9


def plan_of(*managers, **more):
    """A `notify.yaml`: one receiver for each Alertmanager."""
    receivers = [
        {"name": f"am-{n}", "kind": "alertmanager", "url": where.url, "group": QUICK, **more}
        for n, where in enumerate(managers)
    ]
    return json.dumps({"receivers": receivers}).encode()


@contextmanager
def telling(folder, plan, *, clock=CLOCK):
    """A controller and what tells people of it; gives a client and the notifier."""
    kept, options = NotificationLog(folder / "notify.json"), SubscriptionOptions(start=StartAt.SNAPSHOT)
    with serving(config(folder)) as target, EscalationClient(target, clock=CLOCK) as client:
        follow = lambda: client.subscribe("notify", options)  # noqa: E731  # a name would say no more
        with Notifier(read_plan(plan, "notify.yaml"), follow, kept, clock=clock) as notifier:
            yield client, notifier


def publish(client, incident="a", number=1, **changes):
    """One escalation."""
    client.publish([escalation(number, incident_id=incident, **changes)])


def firing(manager, *incidents):
    """Wait until exactly these fire."""
    wait_until(lambda: set(manager.alerts()) == set(incidents), f"{incidents} fire")


def is_told(told, incidents, *, status, path="/all"):
    """Wait until people were told so of these, in this order and nothing else."""
    wait_until(lambda: told.alerts(path, status=status) == list(incidents), f"{incidents} {status}")
