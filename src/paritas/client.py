"""The client library: follow escalations, acknowledge, silence; synchronous and asynchronous.

Examples
--------
>>> from paritas.client import EscalationClient, StartAt, SubscriptionOptions
>>> with EscalationClient("127.0.0.1:4320") as client:
...     subscription = client.subscribe("router-1", SubscriptionOptions(start=StartAt.RESUME))
>>> subscription.token
b''
"""

from paritas.controller.async_client import AsyncEscalationClient, AsyncSubscription
from paritas.controller.backoff import Backoff
from paritas.controller.client import (
    Delivery,
    DeliveryKind,
    EscalationClient,
    Filter,
    Published,
    StartAt,
    Subscription,
    SubscriptionOptions,
)
from paritas.controller.config import TlsFiles
from paritas.controller.refusals import RefusalError, Refused

__all__ = [
    "AsyncEscalationClient",
    "AsyncSubscription",
    "Backoff",
    "Delivery",
    "DeliveryKind",
    "EscalationClient",
    "Filter",
    "Published",
    "RefusalError",
    "Refused",
    "StartAt",
    "Subscription",
    "SubscriptionOptions",
    "TlsFiles",
]
