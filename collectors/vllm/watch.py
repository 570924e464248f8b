"""Two methods of one engine's output processor, wrapped: where requests come in and where tokens come out.

The front end's `OutputProcessor` is the one place that every V1 engine, offline or serving, passes a
request through, before it is sent to the engine core and for each step that comes back:

- `add_request`: once the front end has made its own state, which decides what a client gets, the copy
  that goes to the engine core may ask for more.
- `process_outputs`: what was asked for by us is read and taken out before the front end looks.

Nothing here may raise.  What was injected is taken out whatever else fails.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from paritas.clock import Clock
from paritas.collectors.emitter import Emitter
from paritas.collectors.openai.engines import EngineFacts
from paritas.collectors.openai.naming import Names
from paritas.collectors.telling import teller
from paritas.collectors.vllm.account import Account, Fault, Unobserved
from paritas.collectors.vllm.asking import Asked, Declared, asked_of, identity_of, names_in
from paritas.collectors.vllm.note import Note, Source
from paritas.collectors.vllm.traces import Ended, timings_of, timings_seen, trace_of, weights_in
from paritas.tokens import TokenHasher

__all__ = ["NO_HEADERS", "Headers", "Outlet", "Watch"]

# The note is kept on vLLM's own state of the request, so that it is gone when the request is.
NOTE = "_paritas_note"
NS_PER_S = 1_000_000_000
Headers = tuple[Names, str]
NO_HEADERS: Headers = (Names(), "")
Ending = tuple[Any, Any, Note, int]  # output, state, note, tokens of this step as they came


@dataclass(frozen=True, slots=True)
class Outlet:
    """What all engines of a process share.

    Attributes
    ----------
    instance : str
        Stands before names that mean something in this process only.
    headers : callable
        What the HTTP request that is served now says of itself.
    """

    declared: Declared
    emitter: Emitter
    hasher: TokenHasher
    account: Account
    clock: Clock
    instance: str
    headers: Callable[[], Headers] = lambda: NO_HEADERS


class Watch:
    """Observes one engine through its output processor.

    Parameters
    ----------
    processor : vllm.v1.engine.output_processor.OutputProcessor
    facts : EngineFacts
    outlet : Outlet
    """

    def __init__(self, processor: Any, facts: EngineFacts, outlet: Outlet) -> None:
        self._processor, self._facts, self._outlet = processor, facts, outlet
        self._account = outlet.account
        declared = outlet.declared
        self._source = Source(declared, facts.kernel, outlet.hasher, declared.weights_version)
        self._is_speculative = bool(facts.kernel.speculative)
        self._add, self._process = processor.add_request, processor.process_outputs
        self.before_request: Callable[[bool], None] = _nothing

    def attach(self) -> None:
        """Put ourselves before the methods of this one object."""
        self._processor.add_request = self.add_request
        self._processor.process_outputs = self.process_outputs

    def know(self, facts: EngineFacts, digest: str) -> None:
        """Take in what the workers told of the kernel and of the weights they hold now."""
        self._facts = facts
        self._source = replace(self._source, kernel=facts.kernel, weights_digest=digest)

    def touch(self) -> None:
        """The weights may be others from now on: what was declared of the old ones no longer holds."""
        self._source = replace(self._source, weights_version="", weights_digest="")

    def add_request(self, *args: Any, **kwargs: Any) -> Any:
        """Let vLLM make its state, then decide whether this sequence is observed."""
        made = self._add(*args, **kwargs)
        request = args[0] if args else kwargs.get("request")
        if getattr(request, "sampling_params", None) is not None:
            try:
                self._begin(request)
            except Exception as error:  # noqa: BLE001 -- the request goes on unobserved
                self._account.fault(Fault.BEGIN, error)
        return made

    def _begin(self, request: Any) -> None:
        state = self._processor.request_states[request.request_id]
        if hasattr(state, NOTE):
            return
        self.before_request(len(self._processor.request_states) == 1)
        reason = self._why_not(request)
        if reason is not None:
            self._account.unobserved[reason] += 1
            return
        note, asked = self._note(request, state)
        if asked.unobserved is not None:
            self._account.unobserved[asked.unobserved] += 1
            return
        setattr(state, NOTE, note)
        self._account.begun += 1
        if asked.inject is not None:
            # A copy: the parameters may be shared with siblings, and are the caller's.
            request.sampling_params = copy(request.sampling_params)
            request.sampling_params.logprobs = asked.inject
            self._account.injected += 1

    def _why_not(self, request: Any) -> Unobserved | None:
        if self._account.is_stopped:
            return Unobserved.STOPPED
        if (telling := teller()) is not None:
            telling.hear(self._source.kernel, self._source.weights_digest)
            return Unobserved.TRAINER
        return Unobserved.STREAMED_INPUT if getattr(request, "resumable", False) else None

    def _note(self, request: Any, state: Any) -> tuple[Note, Asked]:
        params, parent = request.sampling_params, getattr(state, "parent_req", None)
        told, traceparent = self._outlet.headers()
        external = _external_id(request, parent)
        choices = 1 if parent is None else int(parent.n)
        identity = identity_of(
            names_in(params, told),
            external,
            int(getattr(state, "request_index", 0) or 0),
            choices=choices,
            instance=self._outlet.instance,
        )
        asked = asked_of(
            params,
            self._facts,
            self._outlet.declared,
            key=identity.group_id if choices > 1 else identity.sequence_id,
            is_speculative=self._is_speculative,
        )
        event_ns = (
            int((getattr(request, "arrival_time", 0.0) or 0.0) * NS_PER_S) or self._outlet.clock.now_ns()
        )
        may_stop = bool(getattr(params, "stop", None))
        note = Note(identity, asked, event_ns=event_ns, traceparent=traceparent, may_stop=may_stop)
        note.source, note.began_s = self._source, self._outlet.clock.monotonic_ns() / NS_PER_S
        return note, asked

    def process_outputs(self, *args: Any, **kwargs: Any) -> Any:
        """Read one step of the engine, let vLLM process it, then make traces of what ended."""
        endings = self._read(args, kwargs)
        processed = self._process(*args, **kwargs)
        for ending in endings:
            try:
                self._end(*ending)
            except Exception as error:  # noqa: BLE001 -- the answer is out already
                self._account.fault(Fault.END, error)
        return processed

    def _read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Ending]:
        endings: list[Ending] = []
        outputs: Any = ()
        try:
            outputs = args[0] if args else kwargs["engine_core_outputs"]
            stamp = args[1] if len(args) > 1 else kwargs.get("engine_core_timestamp")
            self._read_step(outputs, stamp or self._outlet.clock.monotonic_ns() / NS_PER_S, endings)
        except Exception as error:  # noqa: BLE001 -- a call or a state that we do not know
            self._account.fault(Fault.TAKE, error)
            self._strip(outputs)
        return endings

    def _read_step(self, outputs: Any, stamp: float, endings: list[Ending]) -> None:
        states = self._processor.request_states
        for output in outputs:
            state = states.get(output.request_id)
            note = getattr(state, NOTE, None)
            if note is None:
                continue
            try:
                if not note.is_broken:
                    note.take(output, stamp)
                    if note.may_stop or output.finish_reason is not None:
                        endings.append((output, state, note, len(output.new_token_ids)))
            except Exception as error:  # noqa: BLE001 -- this sequence is lost to us, not to the client
                note.is_broken = True
                self._account.fault(Fault.TAKE, error)
            if note.is_injected:
                output.new_logprobs = None

    def _strip(self, outputs: Any) -> None:
        """Take out what we injected, one output at a time, whatever else is wrong."""
        for output in outputs:
            with suppress(Exception):
                note = getattr(self._processor.request_states.get(output.request_id), NOTE, None)
                if note is not None and note.is_injected:
                    output.new_logprobs = None

    def _end(self, output: Any, state: Any, note: Note, came: int) -> None:
        """Make a trace of a sequence that vLLM has ended; one with stop strings may go on."""
        if output.request_id in self._processor.request_states:
            return
        kept = len(note.ids) - (came - len(output.new_token_ids))
        if not kept:
            return
        trace, doubts = trace_of(note, _ended(state, note, kept), self._source_of(note))
        self._outlet.emitter.emit(trace)
        self._account.good(doubts)

    def _source_of(self, note: Note) -> Source:
        """What is known of the weights holds for a sequence only if they stayed the same all through it."""
        first, last = note.source, self._source
        if first is last or first is None:
            return last
        version = last.weights_version if first.weights_version == last.weights_version else ""
        digest = last.weights_digest if first.weights_digest in ("", last.weights_digest) else ""
        return replace(last, weights_version=version, weights_digest=digest)


def _nothing(is_idle: bool) -> None:
    """Nobody wants to know that a request came, idle as the engine was."""
    del is_idle


def _external_id(request: Any, parent: Any) -> str:
    """The name the caller gave the request: newer versions add to it, children of one request share it."""
    for one in (request if parent is None else parent, request):
        if told := getattr(one, "external_req_id", None) or getattr(one, "request_id", None):
            return str(told)
    return ""


def _ended(state: Any, note: Note, kept: int) -> Ended:
    prompt, cached = getattr(state, "prompt_len", None), getattr(state, "num_cached_tokens", None)
    weights: tuple[str, ...] = ()
    with suppress(TypeError, ValueError):  # spans of another shape are not told
        weights = weights_in(getattr(state, "weight_version_starts", None))
    stats = getattr(state, "stats", None)
    timings = timings_seen(note) if stats is None else timings_of(stats)
    return Ended(kept, weights, timings, prompt, cached)
