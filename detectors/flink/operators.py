"""The two stateful operators: Flink keeps their state and tells them the time, they do nothing else."""

from collections.abc import Callable, Iterator
from typing import Any

from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, OutputTag, RuntimeContext, TimeDomain
from pyflink.datastream.state import ValueStateDescriptor

from paritas.contracts.model import Contract
from paritas.detectors.decode import Decoder
from paritas.detectors.flink.evaluation import OrderedEvaluation, verdict_line
from paritas.detectors.flink.events import Arrival, Arrived
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


def _arrival(row: Row) -> Arrival:
    """Return the record a row of the source holds: key, value, headers, partition, offset, time."""
    _, value, headers, partition, offset, time = row
    known = {name: bytes(text).decode(errors="replace") for name, text in (headers or {}).items()}
    origin = tuple(known[name] for name in ORIGIN) if all(name in known for name in ORIGIN) else ()
    return Arrival(time.to_epoch_milli() * MS, partition, offset, origin, bytes(value or b""))


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
        arrival = _arrival(value)
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
    """Keyed by contract: events in, encoded escalations out, verdicts at the end of the input.

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

    def process_element(self, value: Arrived, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """Keep an event until the watermark has reached it."""
        evaluation, timers = self._evaluate(), ctx.timer_service()
        evaluation.put(value)
        timers.register_event_time_timer(_ceil_ms(value.log_ns))
        timers.register_event_time_timer(END_MS - 1)  # known from the first bundle on: see PairingOperator
        self._state.update(evaluation)
        if self._idle_ms and self._quiet_until_ms < 0:
            timers.register_processing_time_timer(timers.current_processing_time() + self._idle_ms)
        self._quiet_until_ms = timers.current_processing_time() + self._idle_ms
        yield from ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        """Judge what the watermark has reached, or a silence of the live log."""
        evaluation, timers = self._evaluate(), ctx.timer_service()
        if ctx.time_domain() == TimeDomain.PROCESSING_TIME:
            escalations = list(self._look(evaluation, timestamp))
            timers.register_processing_time_timer(timestamp + self._idle_ms)
        elif timers.current_watermark() >= END_MS:
            yield from self._end(evaluation)
            escalations = []
        else:
            escalations = list(evaluation.advance(timers.current_watermark() * MS))
        self._state.update(evaluation)
        yield from map(self._encode, escalations)

    def _end(self, evaluation: OrderedEvaluation) -> Iterator[Any]:
        """End of a bounded input: the last escalations, then the verdicts."""
        if not evaluation.ended:
            yield from map(self._encode, evaluation.flush())
            yield VERDICTS, verdict_line(self._contract.digest, evaluation.verdicts())

    def _look(self, evaluation: OrderedEvaluation, now_ms: int) -> Iterator[Escalation]:
        if self._quiet_until_ms < 0:  # restored: the first event, or a long quiet, says that sources are back
            self._quiet_until_ms = now_ms + round(RESTART_QUIET_S * 1000)
        if now_ms >= self._quiet_until_ms:
            yield from evaluation.pass_time(now_ms * MS)

    def _evaluate(self) -> OrderedEvaluation:
        if self._evaluation is None:
            self._evaluation = self._state.value() or OrderedEvaluation(
                self._contract, deployment=self._deployment
            )
        return self._evaluation
