"""Collecting inside vLLM (0.10 or later, V1 engine): one trace a finished sequence, the command unchanged.

``pip install paritas`` beside vLLM and set ``PARITAS_RUN_ID`` or ``PARITAS_AGENT``: vLLM calls
`paritas.collectors.vllm.plugin.register` in each of its processes (entry point group
``vllm.general_plugins``).  Nothing here imports vLLM before that.

Requests that ask for log-probabilities are all observed.  Of the others a declared share
(``PARITAS_SHARE``) is, chosen by the name of the sequence: the engine core is asked for them, and they
are taken out again before vLLM makes an answer.  Who wants a name of his own says so in ``extra_args``
of `SamplingParams` (over HTTP ``vllm_xargs``) or, over HTTP, in the headers that
`paritas.collectors.openai.naming` describes::

    SamplingParams(extra_args={"paritas_sequence_id": "s-41", "paritas_group_id": "p-9"})
"""

from paritas.collectors.vllm.account import Account, Unobserved, VllmReading
from paritas.collectors.vllm.asking import Asked, asked_of
from paritas.collectors.vllm.kernel import engine_facts
from paritas.collectors.vllm.note import Note
from paritas.collectors.vllm.traces import Ended, trace_of

__all__ = [
    "Account",
    "Asked",
    "Ended",
    "Note",
    "Unobserved",
    "VllmReading",
    "asked_of",
    "engine_facts",
    "trace_of",
]
