"""Recordings of two kernels of one small softmax policy, for the contracts of training objectives.

Tokens are drawn from q; p has the logits of q, moved.  A healthy move is noise of sd 0.05, what
bfloat16 does; a fault is what the caller adds.
"""

import json

import numpy as np

VOCABULARY = 8
HEALTHY_SD = 0.05


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def record(folder, *, sequences=400, tokens=12, noise=HEALTHY_SD, tilt=0.0, scale=1.0, seed=0, labels=None):
    """Write ``serve.jsonl`` and ``train.jsonl`` and return their paths.

    Parameters
    ----------
    noise : float
        Standard deviation of the trainer's logits around the server's.
    tilt : float
        Added to the trainer's logits of the upper half of the vocabulary, which is what is rewarded.
    scale : float
        Factor of the trainer's logits: a temperature on one side.
    labels : callable
        (index, token ids) → labels of a sequence, ``group_id`` among them.
    """
    rng = np.random.default_rng(seed)
    paths = folder / "serve.jsonl", folder / "train.jsonl"
    with paths[0].open("w") as serve, paths[1].open("w") as train:
        for i in range(sequences):
            logits = rng.normal(0, 1.5, (tokens, VOCABULARY))
            upper = np.where(np.arange(VOCABULARY) >= VOCABULARY // 2, tilt, 0.0)
            q = log_softmax(logits)
            p = log_softmax(scale * logits + upper + rng.normal(0, noise, logits.shape))
            ids = (np.exp(q).cumsum(1) > rng.random((tokens, 1))).argmax(1)
            shared = {"sample_id": f"s-{i:05}", **(labels(i, ids) if labels else {})}
            for file, law in ((serve, q), (train, p)):
                file.write(json.dumps({**shared, **_columns(law, ids)}) + "\n")
    return paths


def _columns(law, ids):
    best = np.argsort(-law, axis=1)[:, :3]
    told = {"temperature": 1.0, "top_p": 1.0, "logprobs_mode": "processed_logprobs"}
    lists = [[[int(t), float(row[t])] for t in places] for row, places in zip(law, best, strict=True)]
    scores = law[np.arange(len(ids)), ids].tolist()
    return {**told, "token_ids": ids.tolist(), "logprobs": scores, "top_logprobs": lists}


def reward_of(ids):
    """Between -1 and 1: how much of the answer lies in the upper half of the vocabulary."""
    return 2.0 * float(np.mean(ids >= VOCABULARY // 2)) - 1.0
