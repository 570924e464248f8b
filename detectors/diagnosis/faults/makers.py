"""Makers: each fault where it happens, in the logits, in the sampling law, in the log or in its alignment.

A maker takes the affected sequences and a severity from mild to bad and returns what both kernels
logged.  The severities of a fault are in its own unit (`registry`).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from paritas.detectors.diagnosis.faults.kernels import Kernel, scales
from paritas.detectors.diagnosis.faults.laws import (
    Log,
    Matrix,
    Workload,
    draw,
    log_softmax,
    truncated,
    wander,
)
from paritas.records import LogprobSemantics, Sampling, TokenStatus

__all__ = [
    "Maker",
    "after_tile",
    "broken",
    "cached_prefix",
    "coarse",
    "cut_min_p",
    "cut_top_k",
    "cut_top_p",
    "declared_lag",
    "flipped",
    "growing",
    "healthy",
    "learned",
    "moved",
    "other_adapter",
    "other_context",
    "other_ending",
    "quantised",
    "raw_at_temperature",
    "raw_at_top_p",
    "retrained",
    "rolled",
    "told_raw",
    "uneven",
    "warm_sampler",
    "warm_trainer",
]

Rng = np.random.Generator
Maker = Callable[[Rng, Workload, Kernel, float], Log]
PREFILL = 2.0  # how much coarser the first token of a quantised kernel is
COARSEST = 1.3  # nats; rounding to 4 bits after training makes about 1
RAW = Sampling(1.0, 1.0, semantics=LogprobSemantics.RAW)


def _sampled(rng: Rng, logged: Matrix, train: Matrix, drawn: Matrix | None = None) -> Log:
    """Log tokens drawn from the logged law, or from another."""
    return Log.of(draw(rng, logged if drawn is None else drawn), logged, train)


def _served(rng: Rng, work: Workload, kernel: Kernel) -> Matrix:
    """Logits of a healthy sampler."""
    return np.asarray(work.logits + kernel.noise(rng, work), np.float32)


def healthy(rng: Rng, work: Workload, kernel: Kernel, _: float = 0.0) -> Log:
    """Both kernels are what the contract says."""
    return _sampled(rng, log_softmax(_served(rng, work, kernel)), log_softmax(work.logits))


def _moved(rng: Rng, work: Workload, kernel: Kernel, change: Matrix) -> Log:
    """Only the trainer's logits moved."""
    return _sampled(rng, log_softmax(_served(rng, work, kernel)), log_softmax(work.logits + change))


# ---- definitions of the logged number


def rolled(rng: Rng, work: Workload, kernel: Kernel, by: float) -> Log:
    """The trainer's column is moved by `by` tokens within each sequence."""
    log = healthy(rng, work, kernel)
    starts = np.cumsum(work.lengths) - work.lengths
    place = (work.position - int(by)) % np.repeat(work.lengths, work.lengths)
    return replace(log, p=log.p[np.repeat(starts, work.lengths) + place])


def warm_sampler(rng: Rng, work: Workload, kernel: Kernel, temperature: float) -> Log:
    """The sampler logs the law it draws from, at a temperature; the trainer scores at 1."""
    served = log_softmax(_served(rng, work, kernel) / np.float32(temperature))
    return _sampled(rng, served, log_softmax(work.logits))


def warm_trainer(rng: Rng, work: Workload, kernel: Kernel, temperature: float) -> Log:
    """The trainer divides by the temperature tokens were drawn at; the sampler logs raw numbers."""
    served = _served(rng, work, kernel)
    scale = np.float32(temperature)
    return _sampled(rng, log_softmax(served), log_softmax(work.logits / scale), log_softmax(served / scale))


def cut_top_p(rng: Rng, work: Workload, kernel: Kernel, top_p: float) -> Log:
    """The sampler renormalises over a top-p set, the trainer does not."""
    served = truncated(log_softmax(_served(rng, work, kernel)), top_p=top_p)
    return _sampled(rng, served, log_softmax(work.logits))


def cut_top_k(rng: Rng, work: Workload, kernel: Kernel, top_k: float) -> Log:
    """The same with a top-k set."""
    served = truncated(log_softmax(_served(rng, work, kernel)), top_k=int(top_k))
    return _sampled(rng, served, log_softmax(work.logits))


def cut_min_p(rng: Rng, work: Workload, kernel: Kernel, min_p: float) -> Log:
    """The same with a min-p set."""
    served = truncated(log_softmax(_served(rng, work, kernel)), min_p=min_p)
    return _sampled(rng, served, log_softmax(work.logits))


def raw_at_temperature(rng: Rng, work: Workload, kernel: Kernel, temperature: float) -> Log:
    """Tokens are drawn at a temperature, and both kernels log the law at 1."""
    served = _served(rng, work, kernel)
    drawn = log_softmax(served / np.float32(temperature))
    return _sampled(rng, log_softmax(served), log_softmax(work.logits), drawn)


def raw_at_top_p(rng: Rng, work: Workload, kernel: Kernel, top_p: float) -> Log:
    """Tokens are drawn from a top-p set, and both kernels log the whole law."""
    served = log_softmax(_served(rng, work, kernel))
    return _sampled(rng, served, log_softmax(work.logits), truncated(served, top_p=top_p))


def told_raw(rng: Rng, work: Workload, kernel: Kernel, temperature: float) -> Log:
    """The same as `raw_at_temperature`, and the engine says so."""
    log = raw_at_temperature(rng, work, kernel, temperature)
    return replace(log, sampling=replace(RAW, temperature=temperature))


# ---- other weights


def learned(rng: Rng, work: Workload, kernel: Kernel, step: float) -> Log:
    """The trainer took steps on these very sequences: sampled tokens became likelier, some stretches a lot."""
    served = log_softmax(_served(rng, work, kernel))
    tokens = draw(rng, served)
    gain = step * np.exp(1.1 * wander(rng, work, 0.8)[:, 0] - 0.6)
    sign = np.where(rng.random(len(tokens)) < 0.8, 1.0, -1.0)
    change = np.zeros_like(work.logits)
    change[np.arange(len(tokens)), tokens] = gain * sign
    return Log.of(tokens, served, log_softmax(work.logits + change))


def moved(rng: Rng, work: Workload, kernel: Kernel, step: float) -> Log:
    """The trainer took steps on other sequences: some contexts moved a lot, E_q[w] = 1."""
    return _moved(rng, work, kernel, _drift(rng, work, step, unevenness=0.9))


def retrained(rng: Rng, work: Workload, kernel: Kernel, step: float) -> Log:
    """The trainer took many steps on other sequences: all tokens moved, first ones and some sequences more.

    Made after a 135M model that was trained for 4 to 10 steps on other prompts; E_q[w] = 1.
    """
    own = rng.standard_normal(len(work.lengths), np.float32)[work.sequence][:, None]
    early = 1.0 + 0.5 * np.exp(-work.position / 3.0).astype(np.float32)[:, None]
    size = np.float32(step) * early * np.exp(0.35 * own + 0.35 * wander(rng, work, 0.7))
    mixing = rng.standard_normal((work.hidden.shape[1], work.logits.shape[1]), np.float32)
    change = size * (work.hidden @ mixing) / np.float32(np.sqrt(work.hidden.shape[1]))
    return _moved(rng, work, kernel, np.asarray(change + np.float32(0.03 * step) * work.logits, np.float32))


def _drift(rng: Rng, work: Workload, step: float, unevenness: float) -> Matrix:
    """Change of low rank whose size wanders along a sequence and differs between sequences."""
    left = rng.standard_normal((work.hidden.shape[1], 2), np.float32)
    right = rng.standard_normal((2, work.logits.shape[1]), np.float32)
    own = rng.standard_normal(len(work.lengths), np.float32)[work.sequence][:, None]
    size = np.exp(unevenness * (0.8 * wander(rng, work, 0.8) + 0.6 * own) - unevenness**2)
    rank = np.float32(np.sqrt(2.0 * work.hidden.shape[1]))
    return np.asarray(np.float32(step) * size * (work.hidden @ left @ right) / rank, np.float32)


def declared_lag(rng: Rng, work: Workload, kernel: Kernel, updates: float) -> Log:
    """The sampler says itself that its weights are some updates old."""
    return replace(healthy(rng, work, kernel), lag=int(updates))


def cached_prefix(rng: Rng, work: Workload, kernel: Kernel, step: float) -> Log:
    """Keys and values of the prompt are of older weights; the response grows away from them."""
    fade = np.exp(-work.position / 150.0).astype(np.float32)[:, None]
    return _moved(rng, work, kernel, fade * _drift(rng, work, step, unevenness=0.5))


def other_adapter(rng: Rng, work: Workload, kernel: Kernel, step: float) -> Log:
    """The sampler applies another adapter, or none."""
    return _moved(rng, work, kernel, _drift(rng, work, step, unevenness=0.4))


# ---- parts of a response


def growing(rng: Rng, work: Workload, kernel: Kernel, factor: float) -> Log:
    """Noise grows with position: at `LONGEST / 2` tokens it is `factor` times larger."""
    scale = 1.0 + (factor - 1.0) * work.position.astype(np.float32)[:, None] / 128.0
    noise = scale * kernel.noise(rng, work)
    return _sampled(rng, log_softmax(work.logits + noise), log_softmax(work.logits))


def after_tile(rng: Rng, work: Workload, kernel: Kernel, factor: float) -> Log:
    """Noise is `factor` times larger from position 96 on, as at the edge of an attention tile."""
    scale = np.where(work.position >= 96, factor, 1.0).astype(np.float32)[:, None]
    return _sampled(rng, log_softmax(work.logits + scale * kernel.noise(rng, work)), log_softmax(work.logits))


def other_context(rng: Rng, work: Workload, kernel: Kernel, step: float) -> Log:
    """The two kernels saw other prompts: the first tokens differ most, some sequences much more than others."""
    fade = np.exp(-work.position / 6.0) + 0.12 * np.exp(-work.position / 80.0)
    own = np.exp(0.8 * rng.standard_normal(len(work.lengths)))[work.sequence]
    size = np.float32(step) * (fade * own).astype(np.float32)[:, None] * scales(rng, work, 1.0, 0.4)
    return _moved(rng, work, kernel, size * rng.standard_normal(work.logits.shape, np.float32))


def other_ending(rng: Rng, work: Workload, kernel: Kernel, step: float) -> Log:
    """The last token is not what the sampler drew: a stop token that one side adds, forbids or forces."""
    log = healthy(rng, work, kernel)
    last = np.cumsum(work.lengths) - 1
    p = log.p.copy()
    p[last] -= step * rng.lognormal(0.0, 0.5, len(last))
    return replace(log, p=p)


# ---- numbers


def flipped(rng: Rng, work: Workload, kernel: Kernel, share: float) -> Log:
    """Another expert is chosen at a share of tokens, which moves their logits by an amount of its own."""
    hit = rng.random((len(work.logits), 1)) < share
    change = np.where(hit, 0.9 * rng.standard_normal(work.logits.shape, np.float32), np.float32(0.0))
    return _moved(rng, work, kernel, np.asarray(change, np.float32))


def coarse(rng: Rng, work: Workload, kernel: Kernel, times: float) -> Log:
    """The sampler rounds `times` as much as the contract is made for."""
    rough = Kernel(min(times * kernel.size, COARSEST), kernel.unevenness, kernel.preset)
    return healthy(rng, work, rough)


def quantised(rng: Rng, work: Workload, kernel: Kernel, times: float) -> Log:
    """The sampler's weights were rounded: one fixed change of full rank, which blurs its law.

    The first token, which prefill makes, is worse, as in the int8 recording.
    """
    size = min(times * kernel.size, COARSEST)
    blur = rng.standard_normal((work.hidden.shape[1], work.logits.shape[1]), np.float32)
    fixed = work.hidden @ blur / np.float32(np.sqrt(work.hidden.shape[1]))
    rough = Kernel(0.8 * size, 0.35, kernel.preset).noise(rng, work)
    rough[work.position == 0] *= PREFILL
    served = (work.logits + np.float32(0.6 * size) * fixed + rough) / np.float32(1.0 + 0.1 * size)
    return _sampled(rng, log_softmax(served), log_softmax(work.logits))


def uneven(rng: Rng, work: Workload, kernel: Kernel, times: float) -> Log:
    """Something wrong that is none of the causes: noise of uneven size, alike for neighbours."""
    spread = scales(rng, work, min(times * kernel.size, COARSEST), 0.7)
    return _moved(rng, work, kernel, spread * rng.standard_normal(work.logits.shape, np.float32))


def broken(status: TokenStatus) -> Maker:
    """Return the maker of values with a status, at a share of tokens."""

    def make(rng: Rng, work: Workload, kernel: Kernel, share: float) -> Log:
        log = healthy(rng, work, kernel)
        return log.with_status(rng.random(len(log.q)) < share, status)

    return make
