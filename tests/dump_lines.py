"""Good lines of every dump format to start from, and what a reader's items look like as JSON."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from paritas.collectors.dumps import Problem, ReadOptions
from paritas.records import Sampling, Timings, TokenStatus, TokenTrace, TopK
from paritas.tokens import TokenHasher

GOLDEN = Path(__file__).parent / "collectors" / "golden"
RECORDINGS = Path(__file__).parent / "data" / "recordings"

HASHER = TokenHasher(b"a key for tests, known to all")


def raw_options(**changes):
    """Return options that show raw ids, so that expected values can be read."""
    return ReadOptions(HASHER, raw_token_ids=True, **changes)


def shared_data() -> Path:
    """Return the folder of full recordings, or skip the test and say why."""
    told = os.environ.get("PARITAS_SHARED_DATA")
    folder = Path(told) if told else Path(__file__).parents[1].resolve().parent / "shared" / "data"
    if not (folder / "smollm2").is_dir():
        pytest.skip(
            f"no full recordings at {folder}: set PARITAS_SHARED_DATA to the folder that holds smollm2/"
        )
    return folder


def recorded_line(**changes):
    line = {
        "sample_id": "s-0",
        "slice": "chat",
        "engine": "vllm",
        "engine_version": "0.32.0",
        "dtype": "bfloat16",
        "temperature": 1.0,
        "top_p": 1.0,
        "logprobs_mode": "raw_logprobs",
        "finish_reason": "stop",
        "token_ids": [11, 12, 13],
        "logprobs": [-0.5, -1.25, -0.125],
    }
    return {**line, **changes}


def nemo_line(**changes):
    line = {
        "content": ["a prompt and an answer"],
        "rewards": [1.0],
        "input_lengths": [4],
        "token_ids": [[10, 11, 12, 13, 0, 0]],
        "token_loss_mask": [[0, 0, 1, 1, 0, 0]],
        "sample_loss_mask": [1.0],
        "advantages": [[0.0, 0.0, 0.5, 0.5, 0.0, 0.0]],
        "generation_logprobs": [[0.0, 0.0, -0.5, -1.25, 0.0, 0.0]],
        "prev_logprobs": [[0.0, -3.0, -0.75, -1.5, 0.0, 0.0]],
        "idx": 0,
    }
    return {**line, **changes}


def prime_line(**changes):
    line = {
        "schema_version": 1,
        "step": 3,
        "rank": 0,
        "micro_step": 0,
        "micro_sequence_idx": 0,
        "export_sequence_idx": 0,
        "env_name": "math",
        "token_ids": [10, 11, 12],
        "position_ids": [0, 1, 2],
        "loss_mask": [False, True, True],
        "advantages": [0.0, 0.5, 0.5],
        "inference_logprobs": [0.0, -0.5, -1.25],
        "trainer_logprobs": [-2.0, -0.75, -1.5],
        "rl_weights": [None, None, None],
        "ref_kl_weights": [None, None, None],
    }
    return {**line, **changes}


def encode(*lines) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def shown(item):
    """Return an item as a JSON value; what has its default is left out."""
    if isinstance(item, Problem):
        return {"problem": item.reason.value, "text": item.render()}
    trace = {
        "trace": item.kernel.role.value,
        "id": item.sequence_id,
        "token": item.token.tolist(),
        "logprob": [shown_number(value) for value in item.logprob.tolist()],
        "status": [TokenStatus(value).name.lower() for value in item.status.tolist()],
        "kernel": {name: value for name, value in item.kernel.fields().items() if name != "role"},
        "sampling": shown_record(item.sampling, Sampling()),
        "timings": shown_record(item.timings, Timings()),
        "attributes": dict(item.attributes),
        "group": item.group_id,
        "weights": item.weights_version,
        "digest": item.weights_digest,
        "event_ns": item.event_ns,
        "top": shown_top(item.top),
    }
    return {name: value for name, value in trace.items() if value not in ({}, "", None)}


def shown_record(record, default):
    names = record.__slots__
    told = {name: getattr(record, name) for name in names if getattr(record, name) != getattr(default, name)}
    return {name: round(value, 9) if isinstance(value, float) else value for name, value in told.items()}


def shown_number(value: float):
    return round(value, 6) if math.isfinite(value) else str(value)


def shown_top(top: TopK | None):
    if top is None:
        return None
    pairs = np.stack([top.token.astype(object), top.logprob.astype(object)], axis=-1).tolist()
    return [[[token, shown_number(float(logprob))] for token, logprob in row] for row in pairs]


def traces_in(items) -> list[TokenTrace]:
    return [item for item in items if isinstance(item, TokenTrace)]


def problems_in(items) -> list[Problem]:
    return [item for item in items if isinstance(item, Problem)]
