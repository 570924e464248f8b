"""Objects shaped like vLLM 0.32's, for what is pure in the plugin.  No engine runs here: tests/engines has one.

They hold what vLLM's hold under the same names, and fail where vLLM fails: a step that brings
log-probabilities to a request that the front end made without them ends the engine.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from emitter_scenes import KERNEL

from paritas.clock import ManualClock
from paritas.collectors.openai.engines import Engine, EngineFacts
from paritas.collectors.vllm.account import Account
from paritas.collectors.vllm.asking import Declared
from paritas.collectors.vllm.watch import Outlet, Watch
from paritas.records import LogprobSemantics
from paritas.tokens import TokenHasher

HASHER = TokenHasher(b"an example key, not a secret one")
FACTS = EngineFacts(Engine.VLLM, KERNEL, LogprobSemantics.RAW)


@dataclass
class Params:
    """vllm.SamplingParams."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    logprobs: int | None = None
    stop: list = field(default_factory=list)
    extra_args: dict | None = None
    logprob_token_ids: list | None = None


@dataclass
class Request:
    """EngineCoreRequest."""

    request_id: str
    sampling_params: Params | None
    external_req_id: str | None = None
    arrival_time: float = 5.0
    resumable: bool = False


@dataclass
class Output:
    """EngineCoreOutput."""

    request_id: str
    new_token_ids: list
    new_logprobs: tuple | None = None
    finish_reason: object = None


class State:
    """RequestState, as far as it is read."""

    def __init__(self, request, parent, index):
        self.parent_req, self.request_index = parent, index
        params = request.sampling_params
        ids = getattr(params, "logprob_token_ids", None)
        self.wanted = getattr(params, "logprobs", None) if ids is None else len(ids)
        self.stop = getattr(params, "stop", [])
        self.prompt_len, self.num_cached_tokens = 8, 4
        self.weight_version_starts = []
        self.stats = SimpleNamespace(
            queued_ts=1.0, scheduled_ts=1.5, first_token_ts=2.0, last_token_ts=4.0, first_token_latency=1.25
        )
        self.given = []


class Processor:
    """OutputProcessor: a request ends with its reason, or at its stop token, after which tokens are cut."""

    def __init__(self):
        self.request_states = {}

    def add_request(self, request, prompt, parent_req=None, request_index=0, queue=None):
        self.request_states[request.request_id] = State(request, parent_req, request_index)
        return "made"

    def process_outputs(self, engine_core_outputs, engine_core_timestamp=None, iteration_stats=None):
        for output in engine_core_outputs:
            state = self.request_states.get(output.request_id)
            if state is None:
                continue
            assert output.new_logprobs is None or state.wanted is not None, "the engine has died"
            ends = output.finish_reason is not None
            for stop in state.stop:
                if stop in output.new_token_ids:
                    del output.new_token_ids[output.new_token_ids.index(stop) + 1 :]
                    ends = True
            state.given.append(output)
            if ends:
                del self.request_states[output.request_id]
        return "processed"


class Kept:
    """An emitter whose traces stay here."""

    def __init__(self):
        self.traces = []

    def emit(self, trace):
        self.traces.append(trace)


def rows(ids, logprobs=None, extra=(), ranks=None):
    """LogprobsLists of the tokens of one step; `extra` are further columns of (id, log-probability)."""
    values = [-0.5] * len(ids) if logprobs is None else logprobs
    tokens = [[token, *(one for one, _ in extra)] for token in ids]
    logs = [[value, *(one for _, one in extra)] for value in values]
    told = [1] * len(ids) if ranks is None else ranks
    return np.array(tokens, np.int32), np.array(logs, np.float32), np.array(told, np.int64)


def step(name, ids, **named):
    """One output; log-probabilities are there unless said otherwise."""
    told = {"new_logprobs": rows(ids)} | named
    return Output(name, list(ids), **told)


class Scene:
    """A watched processor."""

    def __init__(self, *, facts=FACTS, headers=None, processor=None, **declared):
        self.processor = Processor() if processor is None else processor
        self.account, self.kept = Account(), Kept()
        told = Declared(**({"run_id": "run", "share": 1.0} | declared))
        outlet = Outlet(told, self.kept, HASHER, self.account, ManualClock(), "host:1")
        if headers is not None:
            outlet = Outlet(told, self.kept, HASHER, self.account, ManualClock(), "host:1", headers)
        self.watch = Watch(self.processor, facts, outlet)
        self.watch.attach()

    def ask(self, name="cmpl-a-0", *, parent=None, index=0, **params):
        """Add a request; return it as it goes to the engine core."""
        request = Request(name, Params(**params), external_req_id=name.partition("#")[0])
        assert self.processor.add_request(request, "prompt", parent, index) == "made"
        return request

    def run(self, *outputs, stamp=1.0):
        assert self.processor.process_outputs(list(outputs), stamp) == "processed"

    @property
    def traces(self):
        return self.kept.traces
