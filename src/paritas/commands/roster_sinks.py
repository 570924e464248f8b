"""Where `paritas roster` writes: a topic, or an agent or `paritas up` that brings it to the log."""

from http import HTTPStatus

from paritas.agent.destination import KafkaDestination
from paritas.agent.eventlog.kafka_settings import KafkaSettings
from paritas.agent.eventlog.kafka_shipper import KafkaShipper
from paritas.clock import SystemClock
from paritas.errors import PermanentError, TransientError
from paritas.otlp_http import OtlpClient, Target
from paritas.wire import WireRecord

__all__ = ["ReceiverSink", "TopicSink"]

POST_S = 10.0


class TopicSink:
    """A topic; connects at the first record, again after each failure."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._destination = KafkaDestination(KafkaShipper(settings))
        self._place = settings.place

    def __str__(self) -> str:
        return self._place

    def post(self, record: WireRecord) -> None:
        """Return when the in-sync replicas have it; raise one of our errors otherwise."""
        told = self._destination.ship([record])
        if told.error is not None:
            raise told.error
        if told.refused:
            raise PermanentError(f"{self._place} refuses the roster: {told.refused[0]}")
        if 0 not in told.acknowledged:
            raise TransientError(f"{self._place}: not acknowledged in time")

    def close(self) -> None:
        """End the client; a `post` that runs fails.  Twice is fine."""
        self._destination.close()


class ReceiverSink:
    """Whoever takes OTLP over HTTP; connects at the first record, again after each failure."""

    def __init__(self, target: Target) -> None:
        self._client, self._target = OtlpClient(target, clock=SystemClock(), timeout_s=POST_S), target

    def __str__(self) -> str:
        return str(self._target)

    def post(self, record: WireRecord) -> None:
        """Return when the receiver has it; raise one of our errors otherwise."""
        answer = self._client.post(record.value)
        if answer.status != HTTPStatus.OK:
            raise TransientError(f"the receiver answered {answer.status}: {answer.text}")

    def close(self) -> None:
        """End the connection; a `post` that runs fails.  Twice is fine."""
        self._client.abort()
        self._client.close()
