"""A tiny language model in numpy that stands in for real ones where the machinery around them is tested.

Each token's logits depend on the token before it and on the position; a second model is the
first one with noise, so that two of them are two kernels of one policy.
"""

import numpy as np

from paritas.collectors.kernels import LocalSampler, LocalScorer
from paritas.records import KernelIdentity, Role

VOCABULARY = 48
STOP = 0


class ToyModel:
    """Decoder and Forward at once.

    Parameters
    ----------
    noise : float
        Standard deviation of what is added to the logits, the same in each call.
    batched : float
        Standard deviation of what is added in batches, the same in each of one size and none in a batch of one.
    """

    vocabulary = VOCABULARY
    context = 64
    many = 4

    def __init__(
        self, role=Role.INFERENCE, *, noise=0.0, batched=0.0, stops=frozenset({STOP}), vocabulary=VOCABULARY
    ):
        rng = np.random.default_rng(5)
        self.vocabulary = vocabulary
        self.table = rng.normal(0.0, 2.0, (vocabulary, vocabulary))
        self.table[:, STOP] -= 3.0
        self.table += np.random.default_rng(6).normal(0.0, noise, self.table.shape) if noise else 0.0
        self.stops = stops
        self.identity = KernelIdentity(role, engine="toy", dtype="float32", extra={"kernel": "bigram"})
        self.started = []
        self.batched, self.size = batched, 1

    def encode(self, text, messages):
        told = text or "".join(m["content"] for m in messages)
        return np.array([1 + ord(letter) % (VOCABULARY - 1) for letter in told], np.int64)

    def start(self, prompts):
        self.started.append(prompts.shape)
        self.size = len(prompts)
        return self._after(prompts[:, -1])

    def step(self, tokens):
        return self._after(tokens)

    def response(self, prompt, tokens):
        rows = self._after(np.concatenate([prompt[-1:], tokens[:-1]]))
        for start in range(0, len(tokens), 5):
            yield rows[start : start + 5]

    def responses(self, prompts, tokens):
        self.started.append(
            (len(prompts), max(p.size + t.size for p, t in zip(prompts, tokens, strict=True)))
        )
        self.size = len(prompts)
        pairs = zip(prompts, tokens, strict=True)
        return [self._after(np.concatenate([prompt[-1:], token[:-1]])) for prompt, token in pairs]

    def _after(self, tokens):
        return (self.table + self._of_size())[tokens].astype(np.float32)

    def _of_size(self):
        if not self.batched or self.size == 1:
            return 0.0
        return np.random.default_rng(self.size).normal(0.0, self.batched, self.table.shape)


def scorer(**model):
    """A toy as the training kernel."""
    return LocalScorer(ToyModel(Role.TRAIN, **model), top_k=3)


def sampler(**model):
    """A toy as the inference kernel."""
    return LocalSampler(ToyModel(**model), top_k=3)
