"""Answers recorded from a real vLLM 0.32, and such as other engines give, for the proxy's tests."""

import json
from pathlib import Path

from paritas.collectors.openai import Context, Engine, Observation, facts_of, plan_of
from paritas.collectors.openai.naming import Names
from paritas.collectors.openai.streams import EventCutter, data_of
from paritas.tokens import TokenHasher

DATA = Path(__file__).parent / "collectors/openai/data"
HASHER = TokenHasher(b"an example key, not a secret one")
VLLM = facts_of({"/version": {"version": "0.32.0"}})
SGLANG = facts_of({}, engine=Engine.SGLANG)
LLAMACPP = facts_of({}, engine=Engine.LLAMACPP)
SECOND_NS = 1_000_000_000


def recorded(name):
    return (DATA / name).read_bytes()


def told(name):
    return json.loads(recorded(name))


def events(name):
    """The JSON of every event of a recorded stream."""
    cutter = EventCutter()
    whole = cutter.feed(recorded(name))
    assert cutter.rest() == b""
    return [data for event in whole if (data := data_of(event)) is not None]


def observation(route, facts=VLLM, *, asked=None, names=None, top_k=0):
    """An observation of a request; the answer's clock starts at zero."""
    body = json.dumps(asked or {"model": "m"}).encode()
    plan = plan_of(route, body, facts, takes=True, top_k=top_k)
    assert plan.unobserved is None, plan.unobserved
    names = names or Names(run_id="run")
    return Observation(Context(plan, facts, names, HASHER, event_ns=7, started_ns=0))


def seen_in(answers, route, facts=VLLM, **named):
    """What an observation makes of answers that arrive a second apart."""
    watching = observation(route, facts, **named)
    for number, answer in enumerate(answers):
        watching.read(answer, now_ns=(number + 1) * SECOND_NS)
    return watching.finish()


def chat(content, token_ids=None, **choice):
    """A chat answer with these entries."""
    return {
        "id": "chatcmpl-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "x"},
                "logprobs": content and {"content": content},
                "finish_reason": "stop",
                "token_ids": token_ids,
                **choice,
            }
        ],
    }


def entry(token_id, logprob, top=()):
    return {
        "token": f"token_id:{token_id}",
        "logprob": logprob,
        "bytes": None,
        "top_logprobs": [{"token": f"token_id:{t}", "logprob": v, "bytes": None} for t, v in top],
    }


def sglang(tuples, **meta):
    """An answer of SGLang's /generate."""
    told_meta = {
        "id": "a1",
        "finish_reason": {"type": "length", "length": len(tuples)},
        "prompt_tokens": 3,
        "completion_tokens": len(tuples),
        "weight_version": "default",
        "output_token_logprobs": tuples,
        **meta,
    }
    return {"text": "x", "output_ids": [t[1] for t in tuples], "meta_info": told_meta}
