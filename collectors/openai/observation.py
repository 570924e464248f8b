"""One request under observation: JSON answers and chunks in, traces and doubts out.

Pure but for the growing state: time comes with each call.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from paritas.collectors.openai.columns import Columns, Doubt, columns_of, itl_of
from paritas.collectors.openai.engines import Engine, EngineFacts
from paritas.collectors.openai.llamacpp import hides_tokens, timings_of_llamacpp
from paritas.collectors.openai.meta import timings_in
from paritas.collectors.openai.naming import Names
from paritas.collectors.openai.plans import Plan, Route
from paritas.collectors.openai.responses import Spoken, weights_of
from paritas.records import Timings, TokenTrace
from paritas.tokens import TokenHasher

__all__ = ["Context", "Observation", "Seen"]

NS_PER_S = 1_000_000_000
# One request with more choices is cut: what the rest says is not worth the memory.
CHOICES_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of a request before its answer.

    Attributes
    ----------
    names : Names
        What the client said; `run_id`, weights and attributes completed from the settings.
    event_ns : int
        Unix ns at which the request arrived.
    started_ns : int
        The same by the monotonic clock.
    traceparent : str
        Trace context that the engine was given.
    request_id : str
        Names the sequence where neither client nor engine does.
    """

    plan: Plan
    facts: EngineFacts
    names: Names
    hasher: TokenHasher
    event_ns: int
    started_ns: int
    traceparent: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What came of one request."""

    traces: tuple[TokenTrace, ...]
    doubts: Counter[Doubt]


class Observation:
    """Gathers what an answer says.

    Parameters
    ----------
    context : Context
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._choices: dict[int, Spoken] = {}
        self._response_id, self._fingerprint = "", ""
        self._weights: list[str] = []
        self._metrics: Mapping[str, Any] = {}
        self._completion_tokens: int | None = None

    def read(self, answer: Any, *, now_ns: int) -> None:
        """Take in a whole answer, or the JSON of one event."""
        route = self._context.plan.route
        if route in (Route.GENERATE, Route.NATIVE):
            read_one = self._read_native if route is Route.NATIVE else self._read_generate
            for index, one in enumerate(answer if isinstance(answer, list) else [answer]):
                if isinstance(one, Mapping):
                    read_one(one, index, now_ns)
        elif isinstance(answer, Mapping):
            self._read_openai(answer, now_ns)

    def _read_native(self, answer: Mapping[str, Any], index: int, now_ns: int) -> None:
        at = answer.get("index")
        spoken = self._spoken(at if isinstance(at, int) else index)
        if spoken is not None:
            spoken.read_native(answer, now_ns=now_ns)
        if isinstance(timings := answer.get("timings"), Mapping):
            self._metrics = timings

    def _read_generate(self, answer: Mapping[str, Any], index: int, now_ns: int) -> None:
        at = answer.get("index")
        meta = answer.get("meta_info")
        spoken = self._spoken(at if isinstance(at, int) else index)
        if spoken is not None:
            spoken.read_generate(answer, now_ns=now_ns)
        if isinstance(meta, Mapping):
            self._response_id = self._response_id or str(meta.get("id") or "")
            self._metrics = meta

    def _read_openai(self, answer: Mapping[str, Any], now_ns: int) -> None:
        self._response_id = self._response_id or str(answer.get("id") or answer.get("request_id") or "")
        self._fingerprint = str(answer.get("system_fingerprint") or self._fingerprint)
        if isinstance(metadata := answer.get("metadata"), Mapping):
            self._weights = weights_of(metadata) or self._weights
        if isinstance(metrics := answer.get("metrics"), Mapping):
            self._metrics = metrics
        if isinstance(timings := answer.get("timings"), Mapping):
            self._metrics = timings
        counted = _counted(answer)
        self._completion_tokens = self._completion_tokens if counted is None else counted
        told = answer.get("choices")
        choices: list[Any] = told if isinstance(told, list) else []
        for choice in choices:
            if isinstance(choice, Mapping):
                self._read_choice(choice, answer, now_ns, counted=counted if len(choices) == 1 else None)

    def _read_choice(
        self, choice: Mapping[str, Any], answer: Mapping[str, Any], now_ns: int, *, counted: int | None
    ) -> None:
        index = choice.get("index")
        spoken = self._spoken(index if isinstance(index, int) else 0)
        if spoken is None:
            return
        spoken.read_choice(choice, now_ns=now_ns)
        spoken.counted = spoken.counted if counted is None else counted
        if spoken.prompt_tokens is None:
            usage = answer.get("usage")
            told = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
            spoken.prompt_tokens = told if isinstance(told, int) else None

    def _spoken(self, index: int) -> Spoken | None:
        if index not in self._choices and len(self._choices) >= CHOICES_LIMIT:
            return None
        return self._choices.setdefault(index, Spoken())

    def finish(self) -> Seen:
        """Return the traces of the finished choices, and every doubt."""
        doubts: Counter[Doubt] = Counter()
        traces, columns = [], []
        for index, spoken in sorted(self._choices.items()):
            if not spoken.is_finished:
                doubts[Doubt.UNFINISHED] += 1
                continue
            found = self._columns(spoken)
            if found is None:
                doubts[Doubt.NO_TOKEN_IDS] += 1
                continue
            if self._hides(spoken):
                doubts[Doubt.HIDDEN_TOKENS] += 1
                continue
            doubts += found.doubts
            columns.append(found)
            traces.append(self._trace(index, spoken, found, doubts))
        doubts += _duplicates(columns, self._is_greedy)
        if self._is_short(columns) and not doubts[Doubt.LENGTH_MISMATCH]:
            doubts[Doubt.LENGTH_MISMATCH] += 1
        return Seen(tuple(traces), doubts)

    def _is_short(self, columns: list[Columns]) -> bool:
        """Whether the engine counted other tokens than it told; llama.cpp's count is looked at in `_hides`."""
        is_told = self._completion_tokens is not None and self._context.facts.engine is not Engine.LLAMACPP
        return is_told and len(columns) == 1 and len(columns[0].ids) != self._completion_tokens

    def _hides(self, spoken: Spoken) -> bool:
        if self._context.facts.engine is not Engine.LLAMACPP:
            return False
        of_all = self._completion_tokens if len(self._choices) == 1 else None
        counted = of_all if spoken.counted is None else spoken.counted
        return hides_tokens(spoken, self._context.plan, counted=counted)

    def _columns(self, spoken: Spoken) -> Columns | None:
        plan = self._context.plan
        found = columns_of(spoken, self._context.hasher, top_k=plan.top_k, echo=plan.echo)
        if found is not None and self._is_greedy:
            del found.doubts[Doubt.ALL_ZERO]  # greedy and truncated: probability one is the truth
        return found

    @property
    def _is_greedy(self) -> bool:
        sampling = self._context.plan.sampling
        return sampling.temperature == 0.0 or sampling.top_k == 1

    def _trace(self, index: int, spoken: Spoken, columns: Columns, doubts: Counter[Doubt]) -> TokenTrace:
        context = self._context
        weights = spoken.weights or self._weights
        if len(weights) > 1:
            doubts[Doubt.MIXED_WEIGHTS] += 1
        is_many = context.plan.is_many or len(self._choices) > 1
        sequence_id, group_id = context.names.of_choice(
            self._response_id or context.request_id, index, is_many=is_many
        )
        return TokenTrace(
            run_id=context.names.run_id,
            sequence_id=sequence_id,
            group_id=group_id,
            kernel=self._kernel(),
            # Both versions in one label: such a sequence must meet no trace of either alone.
            weights_version=context.names.weights_version
            or "+".join(weights)
            or context.facts.weights_version,
            sampling=context.plan.sampling,
            attributes=context.names.attributes,
            event_ns=context.event_ns,
            logprob=columns.logprob,
            token=context.hasher.hash(columns.ids),
            status=columns.status,
            top=columns.top,
            timings=self._timings(spoken),
            itl_s=itl_of(spoken.arrivals, len(columns.ids)) if context.plan.is_stream else None,
            traceparent=context.traceparent,
            rank=columns.rank,
        )

    def _kernel(self) -> Any:
        kernel = self._context.facts.kernel
        if not self._fingerprint:
            return kernel
        return replace(kernel, extra={**kernel.extra, "system_fingerprint": self._fingerprint})

    def _timings(self, spoken: Spoken) -> Timings:
        """What the engine tells, completed by what the proxy saw arrive."""
        engine = self._context.facts.engine
        is_of_another = engine is Engine.LLAMACPP and len(self._choices) > 1  # it times one choice
        told = Timings() if is_of_another else _told_timings(self._metrics, engine)
        if not self._context.plan.is_stream or not spoken.arrivals:
            return told
        first_ns, last_ns = spoken.arrivals[0][0], spoken.arrivals[-1][0]
        return replace(
            told,
            ttft_s=(first_ns - self._context.started_ns) / NS_PER_S,
            decode_s=(last_ns - first_ns) / NS_PER_S,
        )


def _counted(answer: Mapping[str, Any]) -> int | None:
    """Tokens the engine counted: in ``usage``, or where llama.cpp leaves that out, in its ``timings``."""
    for name, key in (("usage", "completion_tokens"), ("timings", "predicted_n")):
        part = answer.get(name)
        if isinstance(part, Mapping) and isinstance(told := part.get(key), int):
            return told
    return None


def _told_timings(metrics: Mapping[str, Any], engine: Engine) -> Timings:
    """Read vLLM's per-request metrics: their time to first token leaves the queue out, ours does not."""
    if engine is Engine.SGLANG:
        return timings_in(metrics)
    if engine is Engine.LLAMACPP:
        return timings_of_llamacpp(metrics)
    if engine is not Engine.VLLM:
        return Timings()
    queue_s, prefill_s, decode_s = (
        _seconds(metrics.get(name))
        for name in ("queue_time_ms", "time_to_first_token_ms", "generation_time_ms")
    )
    ttft_s = None if queue_s is None or prefill_s is None else queue_s + prefill_s
    return Timings(queue_s, ttft_s, prefill_s, decode_s)


def _seconds(told_ms: Any) -> float | None:
    is_number = isinstance(told_ms, int | float) and not isinstance(told_ms, bool)
    return told_ms / 1000 if is_number else None


def _duplicates(columns: list[Columns], is_greedy: bool) -> Counter[Doubt]:
    """Count samples of one prompt that repeat another: seeds that are all the same."""
    if is_greedy:
        return Counter()
    long = [one.ids.tobytes() for one in columns if len(one.ids) >= 8]
    repeated = len(long) - len(set(long))
    return Counter({Doubt.DUPLICATE_CHOICES: repeated}) if repeated else Counter()
