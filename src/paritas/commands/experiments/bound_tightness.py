"""Bound tightness: what is certified beside what is true, over families of kernel pairs.

Laws over 64 tokens in many contexts, so that truth and exact certificates are sums; certificates from
samples add a confidence limit.  Sequences of two-token laws are enumerated up to thousands of tokens.
"""

from math import lgamma

import numpy as np

from paritas.commands.experiments.kernel_families import (
    CAP,
    FAMILIES,
    Drawn,
    Drift,
    Pair,
    bias,
    confidence,
    drawn_from,
    gain,
    pair_of,
    reward,
    tv,
)
from paritas.commands.experiments.result import (
    Cell,
    Claim,
    Figure,
    Floats,
    Panel,
    Result,
    Setting,
    Table,
    curve,
)
from paritas.contracts.bounds import (
    MeanLimits,
    capped_ratio,
    sequence_tv_from_mean,
    sequence_tv_from_oscillation,
    shortfall,
    tv_from_oscillation,
)

__all__ = ["run", "sequence_tv"]

SCALES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
ALPHA = 0.05
QUANTITIES = (
    "token TV",
    "gradient bias, uncorrected",
    "gradient bias, min(w, 2)",
    "reward drift",
    "confidence drift",
)
COLUMNS = (
    "family",
    "scale",
    "quantity",
    "truth",
    "a priori",
    "exact certificate",
    "from samples",
    "truth / from samples",
)
HORIZONS = (1, 4, 16, 64, 256, 1024, 4096)


def run(setting: Setting) -> Result:
    """Compare every quantity in every family at every scale."""
    scales = SCALES if not setting.is_quick else SCALES[::3]
    rows = [
        row
        for i, (family, drift) in enumerate(FAMILIES.items())
        for j, scale in enumerate(scales)
        for row in _case(family, drift, scale, setting, np.random.default_rng([setting.seed, i, j]))
    ]
    tokens = Table(
        "tokens",
        f"bounds beside the truth; from samples: 95 % upper limit of {_samples(setting)} tokens",
        COLUMNS,
        tuple(rows),
    )
    sequences = _sequences(setting)
    return Result(
        "bound-tightness",
        setting.seed,
        (_summary(tokens), tokens, sequences),
        (_figure(tokens, sequences),),
        _claims(tokens, sequences),
    )


def _summary(tokens: Table) -> Table:
    """Truth over each bound by quantity, over all families and scales with a truth above 1e-4."""
    rows = []
    for name in QUANTITIES:
        told = [row for row in tokens.rows if row[2] == name and float(str(row[3])) > 1e-4]
        ratios = [_ratios(told, place) for place in (4, 5, 6)]
        rows.append((name, len(told), *(cell for told_ in ratios for cell in told_)))
    columns = (
        "quantity",
        "cases",
        *(f"{kind}, {what}" for what in COLUMNS[4:7] for kind in ("median", "tightest")),
    )
    return Table("summary", "truth over bound: 1 is tight", columns, tuple(rows))


def _ratios(rows: list[tuple[Cell, ...]], place: int) -> tuple[float | None, float | None]:
    """Median and largest of truth over the bound in a column; None where there is no such bound."""
    told = [float(str(row[3])) / float(str(row[place])) for row in rows if row[place]]
    return (float(np.median(told)), max(told)) if told else (None, None)


def _samples(setting: Setting) -> int:
    return setting.sized(20_000, 2000)


def _case(
    family: str, drift: Drift, scale: float, setting: Setting, rng: np.random.Generator
) -> list[tuple[Cell, ...]]:
    """Rows of one pair."""
    pair = pair_of(rng, drift, scale, setting.sized(400, 60))
    drawn = drawn_from(pair, rng, _samples(setting))
    prior = float(tv_from_oscillation(np.ptp(pair.log_ratio, axis=1)).mean())
    short, capped = shortfall(pair.log_ratio), capped_ratio(pair.log_ratio, CAP)
    told = zip(
        QUANTITIES,
        (tv(pair), bias(pair, 1.0), bias(pair, np.inf), reward(pair), confidence(pair)),
        (prior, 2.0 * prior, None, prior, prior),
        (short, 2.0 * short, 1.0 - capped, gain(pair), short),
        ((0.0, 1.0), (0.0, 2.0), (-1.0, 1.0), (-1.0, 1.0), (0.0, 1.0)),
        strict=True,
    )
    return [
        (family, scale, name, truth, before, *limits, truth / limits[1])
        for name, truth, before, statistic, ends in told
        for limits in (_certified(pair, drawn, statistic, ends),)
    ]


def _certified(pair: Pair, drawn: Drawn, statistic: Floats, ends: tuple[float, float]) -> tuple[float, float]:
    """Mean of a statistic under q, and its 95 % upper limit from samples; no bound is below 0."""
    limit = MeanLimits(*ends).observe(statistic[drawn]).upper(ALPHA)
    return max(pair.mean(statistic), 0.0), max(limit, 0.0)


def _sequences(setting: Setting) -> Table:
    """Sequence TV of a two-token law by length: truth, both laws of growth, and the direct certificate."""
    rng, oscillation = np.random.default_rng([setting.seed, 7]), 0.05
    responses = setting.sized(4000, 400)
    rows = tuple(_sequence_row(rng, oscillation, horizon, responses) for horizon in HORIZONS)
    columns = ("tokens", "truth", "square-root law (B3)", "sum of token TV (B1)", "from samples (B7)")
    return Table(
        "sequences",
        f"sequence TV where every token's logits move by {oscillation}; {responses} responses",
        columns,
        rows,
    )


def _sequence_row(
    rng: np.random.Generator, oscillation: float, horizon: int, responses: int
) -> tuple[Cell, ...]:
    q, p = (float(1.0 / (1.0 + np.exp(sign * oscillation / 2.0))) for sign in (1.0, -1.0))
    hits = rng.binomial(horizon, q, responses)
    ell = hits * np.log(p / q) + (horizon - hits) * np.log((1.0 - p) / (1.0 - q))
    certified = MeanLimits().observe(shortfall(ell)).upper(ALPHA)
    return (
        horizon,
        sequence_tv(p, q, horizon),
        float(sequence_tv_from_oscillation(oscillation, horizon)),
        float(sequence_tv_from_mean(p - q, horizon)),
        certified,
    )


def sequence_tv(p: float, q: float, horizon: int) -> float:
    """Exact total variation of two laws of `horizon` independent coins.

    Examples
    --------
    >>> round(sequence_tv(0.6, 0.5, 1), 12)
    0.1
    """
    hits = np.arange(horizon + 1)
    logs = np.array([lgamma(horizon + 1) - lgamma(k + 1) - lgamma(horizon - k + 1) for k in hits])
    laws = [np.exp(logs + hits * np.log(x) + (horizon - hits) * np.log1p(-x)) for x in (p, q)]
    return float(0.5 * np.abs(laws[0] - laws[1]).sum())


def _claims(tokens: Table, sequences: Table) -> tuple[Claim, ...]:
    exact = [row for row in tokens.rows if _above(row[3], row[5]) or _above(row[3], row[4])]
    exact += [row for row in sequences.rows if _above(row[1], row[2]) or _above(row[1], row[3])]
    missed = [row for row in tokens.rows if _above(row[3], row[6])]
    missed += [row for row in sequences.rows if _above(row[1], row[4])]
    cases = len(tokens.rows) + len(sequences.rows)
    return (
        Claim("no truth exceeds a bound", f"{len(exact)} of {cases}", not exact),
        Claim(
            "a limit from samples misses at most 5 %",
            f"{len(missed)} of {cases}",
            len(missed) <= 0.05 * cases,
        ),
    )


def _above(truth: Cell, bound: Cell) -> bool:
    return bound is not None and float(str(truth)) > float(str(bound)) * (1.0 + 1e-9) + 1e-12


def _figure(tokens: Table, sequences: Table) -> Figure:
    curves = []
    for name in QUANTITIES:
        rows = [row for row in tokens.rows if row[2] == name and float(str(row[3])) > 1e-7]
        truth, limit = ([float(str(row[i])) for row in rows] for i in (3, 6))
        curves.append(curve(name, truth, limit, "points"))
    ends = [1e-5, 1.0]
    both = Panel(
        "certified from samples",
        "truth",
        "95 % upper limit",
        (*curves, curve("equal", ends, ends, "dashed")),
        (True, True),
    )
    lengths = [float(str(x)) for x in sequences.column("tokens")]
    lines = [curve(c, lengths, [float(str(x)) for x in sequences.column(c)]) for c in sequences.columns[1:]]
    return Figure(
        "bound-tightness",
        (both, Panel("sequence TV by length", "tokens", "probability", tuple(lines), (True, True))),
    )
