"""The two stateful operators: Flink keeps their state and tells them the time, they do nothing else."""

from collections.abc import Callable, Iterator
from typing import Any

from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, OutputTag, RuntimeContext, TimerService
from pyflink.datastream.state import ValueStateDescriptor

from paritas.contracts.model import Contract
from paritas.detectors.decode import Decoder
from paritas.detectors.flink.evaluation import OrderedEvaluation, verdict_line
from paritas.detectors.flink.events import Arrival, Arrived, Beat
from paritas.detectors.flink.pairing import KeyedPairing
from paritas.records import Escalation

__all__ = ["VERDICTS", "EvaluationOperator", "PairingOperator"]

MS = 1_000_000
NS = 1_000_000_000
# After a restart the sources need this long to speak again; silence until then is no silence of the log.
RESTART_QUIET_S = 30.0
VERDICTS = OutputTag("verdicts", Types.STRING())  # at the end of a bounded input, one JSON object a contract
ORIGIN = ("paritas-agent", "paritas-epoch", "paritas-seq")
END_MS = 2**63 - 1  # Flink's last watermark is the largest number it knows, in milliseconds


def _ceil_ms(time_ns: int) -> int:
    return -(-time_ns // MS)


def _arrival(row: Row, log_ms: int) -> Arrival:
    """Return the record a row of the source holds: key, value, headers, partition, offset, time."""
    _, value, headers, partition, offset, _ = row  # the time is the element's too, in every mode of Python
    known = {name: bytes(text).decode(errors="replace") for name, text in (headers or {}).items()}
    origin = tuple(known[name] for name in ORIGIN) if all(name in known for name in ORIGIN) else ()
    return Arrival(log_ms * MS, partition, offset, origin, bytes(value or b""))


class PairingOperator(KeyedProcessFunction):  # type: ignore[misc]  # pyflink is not typed
    """Keyed by trace id: records in, events out.

    A key is forgotten `pair_within` after its last record.  Nothing else rests on timers here:
    those that Python sets in the last bundle before a checkpoint are not in it, so after a
    failure some never fire, and a few keys are remembered for longer.
    """

    def __init__(self, contract: Contract) -> None:
        self._compare = contract.compare
        self._within_ms = _ceil_ms(round(contract.compare.pair_within_s * NS))

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the key's state and the counters."""
        self._state = runtime_context.get_state(ValueStateDescriptor("pairing", Types.PICKLED_BYTE_ARRAY()))
        self._decoder = Decoder()
        runtime_context.get_metrics_group().gauge("received", lambda: self._decoder.received)
        runtime_context.get_metrics_group().gauge("refused", lambda: sum(self._decoder.refused.values()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Arrived]:
        """Take one record."""
        arrival = _arrival(value, ctx.timestamp())
        forget_ms = _ceil_ms(arrival.log_ns) + self._within_ms
        pairing, _ = self._state.value() or (KeyedPairing(self._compare), 0)
        event = pairing.take(arrival, self._decoder)
        self._state.update((pairing, forget_ms))
        ctx.timer_service().register_event_time_timer(forget_ms)
        if event is not None:
            yield event

    def on_timer(
        self,
        timestamp: int,
        ctx: KeyedProcessFunction.OnTimerContext,  # noqa: ARG002 -- Flink's signature
    ) -> Iterator[Arrived]:
        """Forget the key if no record came since the timer was set."""
        held = self._state.value()
        if held is not None and held[1] <= timestamp:
            self._state.clear()
        yield from ()


class EvaluationOperator(KeyedProcessFunction):  # type: ignore[misc]  # pyflink is not typed
    """Keyed by contract: events and beats in, encoded escalations out, verdicts at the end of the input.

    Parameters
    ----------
    encode : callable
        Escalation → bytes of the topic.
    idle_s : float, seconds
        Quiet of a live log after which it is looked at again; 0 on a bounded input.
    """

    def __init__(
        self,
        contract: Contract,
        *,
        deployment: str,
        encode: Callable[[Escalation], bytes],
        idle_s: float,
    ) -> None:
        self._contract = contract
        self._deployment = deployment
        self._encode = encode
        self._idle_ms = round(idle_s * 1000)

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the state; it is read once and written with every bundle."""
        self._state = runtime_context.get_state(ValueStateDescriptor("contract", Types.PICKLED_BYTE_ARRAY()))
        self._evaluation: OrderedEvaluation | None = None
        self._quiet_until_ms = -1

    def process_element(self, value: Arrived | Beat, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """Keep an event until the watermark has reached it; at a beat look whether the log is silent."""
        evaluation, timers = self._evaluate(), ctx.timer_service()
        if isinstance(value, Beat):
            yield from map(self._encode, self._beat(evaluation, timers))
            return
        evaluation.put(value)
        timers.register_event_time_timer(_ceil_ms(value.log_ns))
        self._state.update(evaluation)
        self._quiet_until_ms = timers.current_processing_time() + self._idle_ms

    def on_timer(
        self,
        timestamp: int,  # noqa: ARG002 -- Flink's signature
        ctx: KeyedProcessFunction.OnTimerContext,
    ) -> Iterator[Any]:
        """Judge what the watermark has reached."""
        evaluation, watermark_ms = self._evaluate(), ctx.timer_service().current_watermark()
        if watermark_ms >= END_MS:
            yield from self._end(evaluation)
        else:
            yield from map(self._encode, list(evaluation.advance(watermark_ms * MS)))
        self._state.update(evaluation)

    def _beat(self, evaluation: OrderedEvaluation, timers: TimerService) -> Iterator[Escalation]:
        """The one beat of a bounded input says that it ends; those of a live one, how long it is silent."""
        if not self._idle_ms:
            timers.register_event_time_timer(END_MS - 1)
            self._state.update(evaluation)
            return
        now_ms = timers.current_processing_time()
        if self._quiet_until_ms < 0:  # restored: the first event, or a long quiet, says that sources are back
            self._quiet_until_ms = now_ms + round(RESTART_QUIET_S * 1000)
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + self._idle_ms
            yield from list(evaluation.pass_time(now_ms * MS))
            self._state.update(evaluation)

    def _end(self, evaluation: OrderedEvaluation) -> Iterator[Any]:
        """End of a bounded input: the last escalations, then the verdicts."""
        if not evaluation.ended:
            yield from map(self._encode, evaluation.flush())
            yield VERDICTS, verdict_line(self._contract.digest, evaluation.verdicts())

    def _evaluate(self) -> OrderedEvaluation:
        if self._evaluation is None:
            self._evaluation = self._state.value() or OrderedEvaluation(
                self._contract, deployment=self._deployment
            )
        return self._evaluation
