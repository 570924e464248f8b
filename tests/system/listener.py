"""A real subscriber that keeps listening while the controller goes and comes."""

import threading

from paritas.clock import SystemClock
from paritas.controller.client import EscalationClient
from paritas.controller.deliveries import DeliveryKind
from paritas.controller.subscription import SubscriptionOptions


class Listener:
    """A subscriber in a thread of its own, over every restart; `events` are its ids in order."""

    def __init__(self, target, name):
        self.events, self.synced = [], threading.Event()
        self._client = EscalationClient(target, clock=SystemClock())
        self._subscription = self._client.subscribe(name, SubscriptionOptions(auto_ack=True))
        self._thread = threading.Thread(target=self._read, name=name)

    def _read(self):
        for delivery in self._subscription:
            if delivery.kind is DeliveryKind.SNAPSHOT_END:
                self.synced.set()
            if delivery.kind is DeliveryKind.ESCALATION:
                self.events.append(delivery.escalation.event_id)
            elif delivery.kind is DeliveryKind.INCIDENT:
                self.events.append(delivery.incident.current.event_id)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._subscription.close()
        self._thread.join(timeout=30)
        self._client.close()
        assert not self._thread.is_alive()
