"""What a statistic is, in words: the catalogue entry a person reads."""

import math
from textwrap import fill

from paritas.contracts.catalogue import CATALOGUE, Need, Side, Statistic, Test
from paritas.contracts.problems import did_you_mean
from paritas.errors import UsageError

__all__ = ["example_of", "explain", "overview"]

_TESTS = {
    Test.BOUNDED_MEAN: "mean of a bounded value: data can certify the limit and refute it",
    Test.CONDITIONAL_MEAN: "mean given every prefix: data can certify the limit and refute it, also by some contexts only",
    Test.NON_NEGATIVE_MEAN: "mean that data can show to be above the limit, and nothing can certify",
    Test.SUPREMUM: "largest value: one observation refutes the limit, nothing certifies it",
    Test.STATE: "compared, not estimated: equal, different, or not reported",
}
_NEEDS = {
    Need.PAIR: "log-probabilities of both kernels for the same tokens",
    Need.TOP_INFERENCE: "the inference kernel's top-k list (one entry is enough)",
    Need.TOP_BOTH: "top-k lists of both kernels",
    Need.FULL_LOGITS: "whole distributions of both kernels, offline",
    Need.TIMINGS: "timings of the requests",
    Need.IDENTITY: "the reported identity of each kernel",
    Need.TRACE: "any trace",
    Need.AGENT: "records that an agent wrote (`paritas agent`)",
    Need.ADVANTAGE: "log-probabilities of both kernels, and the label `advantage` of the sequence",
    Need.REWARD: "log-probabilities of both kernels, and the label `reward` of the sequence",
    Need.PREFERENCE: "two sequences of a group, `preference: chosen` and `rejected`; compare: {unit: group}",
}
_OPTIONS = {
    "quantile": "0.99",
    "above": "2.0",
    "cap": "2.0",
    "clip": "0.2",
    "clip_high": "0.28",
    "beta": "0.1",
    "temperature": "1.5",
    "smoothing": "0.1",
    "reward_range": "[0, 1]",
    "within": "60s",
    "window": "1s",
    "baseline": "300",
    "agents": "[pod-1, pod-2]",
}
_MEANINGS = {
    "quantile": "the limit binds this quantile: the share of units above it may be 1 - quantile",
    "above": "a token counts when its ratio leaves [1/above, above]",
    "cap": "the ratio is truncated here (2.0 if left out)",
    "clip": "clip range c: the ratio is clipped to [1-c, 1+c]",
    "clip_high": "upper end of the clip range: [1-clip, 1+clip_high]; that of clip if left out",
    "beta": "factor of the implicit reward",
    "temperature": "the logit of a confidence is divided by it (1 if left out)",
    "smoothing": "a confidence counts (1 - smoothing) times (0 if left out)",
    "reward_range": "lowest and highest reward; that of the budget, else [0, 1]",
    "within": "deadline; compare.pair_within if left out",
    "window": "unit of the test: 1s of start times, or 1000 steps; {window} if left out",
    "baseline": "windows from which the usual distribution is learned; {baseline} if left out",
    "agents": "agents that must report, seen before or not; others are watched from their first record on",
}
_LIMITS = {
    "probability": "0.02",
    "logits": "0.5",
    "share": "0.01",
    "nats": "0.05",
    "ratio": "1.002",
    "seconds": "800ms",
    "versions": "1",
    "distance": "0.1",
    "silence": "2m",
    "agent_silence": "2m",
    "dimensionless": "0.01",
    "share of the reward range": "0.02",
    "bias in units of A_max G": "0.05",
}
_AT_LEAST = "0.995"
WIDTH = 92


def explain(name: str) -> str:
    """Return the page on one statistic.

    Raises
    ------
    UsageError
        If the catalogue has no such statistic, with the closest name.

    Examples
    --------
    >>> print(explain("tv").splitlines()[0])
    tv (numerical, in probability, 0 to 1)
    """
    if name not in CATALOGUE:
        raise UsageError(f"unknown statistic {name!r}", hint=did_you_mean(name, CATALOGUE))
    entry = CATALOGUE[name]
    rows = [(title, text) for title, text in _rows(entry) if text]
    return "\n".join([_head(entry), "", fill(entry.says, WIDTH), "", *(_row(*row) for row in rows), ""])


def overview() -> str:
    """Return one line a statistic."""
    width = max(map(len, CATALOGUE))
    lines = (
        f"{e.name:<{width}}  {e.family:<13}  {e.says.split('. ')[0].rstrip('.')}." for e in CATALOGUE.values()
    )
    return "\n".join(lines) + "\n"


def _head(entry: Statistic) -> str:
    unit = f", in {entry.unit}" if entry.unit else ""
    high = "no upper end" if math.isinf(entry.hi) else f"{entry.hi:g}"
    reach = f", {entry.lo:g} to {high}" if entry.test is not Test.STATE else ""
    return f"{entry.name} ({entry.family}{unit}{reach})"


def _rows(entry: Statistic) -> list[tuple[str, str]]:
    limit = "no limit" if entry.side is Side.NEITHER else str(entry.side)
    return [
        ("estimator", entry.estimator),
        ("limit", limit),
        *(("option", f"{option}: {_meaning(entry, option)}") for option in entry.options),
        ("judged as", _TESTS[entry.test]),
        ("can pass", "yes" if entry.certifiable else "no: keep it out of promotion gates (stages: [full])"),
        ("needs", _NEEDS[entry.need]),
        ("blind to", entry.blind),
        ("reference", entry.reference),
        ("example", example_of(entry)),
    ]


def _meaning(entry: Statistic, option: str) -> str:
    return _MEANINGS[option].replace("{window}", entry.window).replace("{baseline}", str(entry.baseline))


def _row(title: str, text: str) -> str:
    indent = " " * 11
    wrapped = text if title == "example" else fill(text, WIDTH - 11, subsequent_indent=indent)
    return f"{title:<11}{wrapped}"


def example_of(entry: Statistic) -> str:
    """Return a clause on the statistic as it would stand under its family.

    Examples
    --------
    >>> print(example_of(CATALOGUE["time_to_first_token"]))
    - {id: time-to-first-token, statistic: time_to_first_token, quantile: 0.99, window: 1s, at_most: 800ms}
    """
    # a gradient_bias clause with a cap is about tis, with a clip about clip: one of them
    options = entry.options[:1] if entry.name == "gradient_bias" else entry.options
    parts = [f"id: {entry.name.replace('_', '-')}", f"statistic: {entry.name}"]
    parts += [f"{option}: {_OPTIONS[option]}" for option in options]
    if entry.side is not Side.NEITHER:
        limit = _AT_LEAST if entry.side is Side.AT_LEAST else _LIMITS.get(entry.name, _LIMITS[entry.unit])
        parts.append(f"{entry.side}: {limit}")
    return f"- {{{', '.join(parts)}}}"
