"""What rounding does: the least drift a limit can ask for, and the most that it explains (docs/mathematics.md G).

A model of planning numbers, not a bound: near-Gaussian log-ratios with standard deviation s.  Below
`floor_of` a limit fires on a healthy pair; a mean above the ceiling is a bug, not noise.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paritas.contracts.model import Clause, Contract
from paritas.records import Role, State, Verdict

__all__ = ["Ceiling", "Implausible", "ceiling_of", "floor_of", "implausible", "rounding_sd"]

# Half of what is usual (G4) for float formats; for quantised ones the smallest published drift
# (peers: fp8 k3 0.0014, int4 with fake quantisation mean |ell| 0.0126), so that no good kernel is accused.
ROUNDING_SD: Mapping[str, float] = MappingProxyType(
    {
        "float32": 1e-6,
        "float16": 2.5e-3,
        "bfloat16": 2e-2,
        "int8": 3e-2,
        "fp8": 5e-2,
        "int4": 2e-2,
    }
)
UNTOLD = ("", "auto", "none")  # the engine's default: the format of the weights
SPELLINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "float32": ("float32", "fp32"),
        "float16": ("float16", "fp16", "half"),
        "bfloat16": ("bfloat16", "bf16"),
        "int8": ("int8", "w8a8"),
        "fp8": ("fp8", "e4m3", "e5m2", "float8"),
        "int4": ("int4", "q4_", "awq", "gptq", "w4a16", "nf4"),
    }
)


def rounding_sd(contract: Contract) -> tuple[float, str] | None:
    """Return the sd of the log-ratio that the declared formats cause, in nats, and the coarsest format.

    None if no format is declared, or both kernels are batch-invariant, which can make them equal.
    """
    sides = [contract.kernels.get(role, {}) for role in (Role.TRAIN, Role.INFERENCE)]
    if all(side.get("batch_invariant") is True for side in sides):
        return None
    formats = {
        fmt for fmt, words in SPELLINGS.items() if any(w in name for name in _names(sides) for w in words)
    }
    if not formats:
        return None
    coarsest = max(formats, key=lambda fmt: ROUNDING_SD[fmt])
    return ROUNDING_SD[coarsest], coarsest


def _names(sides: Iterable[Mapping[str, object]]) -> list[str]:
    """Every number format that the kernels declare, in lower case."""
    keys = ("dtype", "quantization", "kv_cache_dtype")
    told = (str(side[key]).lower() for side in sides for key in keys if key in side)
    return [name for name in told if name not in UNTOLD]


def floor_of(clause: Clause, sd: float, tokens: int | None) -> float | None:
    """Return what the clause's statistic shows at that sd when nothing is wrong; None if unknown.

    Parameters
    ----------
    sd : float, nats
    tokens : int or None
        Length of a response, for `sequence_tv`.

    Examples
    --------
    >>> from paritas.contracts.model import Family
    >>> clause = Clause("t", Family.NUMERICAL, "tv", at_most=0.001)
    >>> round(floor_of(clause, 0.02, None), 4)
    0.008
    """
    match clause.statistic:
        case "tv" | "tv_topk":
            return _tv(sd)
        case "sequence_tv":
            return None if tokens is None else _tv(sd * math.sqrt(tokens))
        case "ratio_tail":
            return _share_beyond(math.log(clause.above or 1.0), sd)
        case "phantom_clip_rate":
            return _share_beyond(math.log1p(clause.clip or 0.0), sd)
        case "logprob_abs_diff" | "distillation_drift":
            return sd * math.sqrt(2 / math.pi)
        case "kl_k3" | "trust_region_kl":
            return sd * sd / 2
        case _:
            return None


def _tv(sd: float) -> float:
    """Total variation of a log-normal ratio with mean 1: 2 Phi(sd/2) - 1."""
    return math.erf(sd / (2 * math.sqrt(2)))


def _share_beyond(log_ratio: float, sd: float) -> float:
    return math.erfc(log_ratio / (sd * math.sqrt(2)))


# Default s of G4, factor f = 2 for float formats included, by what a declared name may hold; the first match counts.
# fp8 without its kind is taken for e5m2, the coarser.  int4 has no useful ceiling: it must be measured.
CEILING_SD: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("float32", ("float32", "fp32"), 2e-5),
    ("bfloat16", ("bfloat16", "bf16"), 0.10),  # before float16, whose name it holds
    ("float16", ("float16", "fp16", "half"), 1.2e-2),
    ("int8", ("int8", "w8a8"), 0.12),
    ("fp8 e4m3", ("e4m3",), 0.30),
    ("fp8 e5m2", ("e5m2", "fp8", "float8"), 0.65),
)
TAILS = ("ratio_tail", "phantom_clip_rate")  # real log-ratios have heavier tails than the model's
TABLE_LAYERS = 24  # G4 is of 48 residual additions, two a layer; its public anchor has 24 layers


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that rounding explains of a declared pair of kernels.

    Attributes
    ----------
    sd : float, nats
        Standard deviation of the log-ratio.
    number_format : str
        The coarsest declared.
    layers : int
        Of the model, where it is declared; else those of the table.
    """

    sd: float
    number_format: str
    layers: int


def ceiling_of(kernels: Mapping[Role, Mapping[str, object]]) -> Ceiling | None:
    """Return what rounding can explain at the formats and depth of two kernels (G2, G4), or None.

    The spread grows as ``sqrt(layers + 4)``: two additions a layer to the residual stream, and four
    roundings inside a block.  A model that is shallower than the table's gets the table's; width does
    not enter.  None where a kernel's format is not known, for int4, and for mixtures of experts (`ep`
    above 1 or ``extra.experts``), whose routing flips have no rounding scale.

    Parameters
    ----------
    kernels : mapping of Role to identity fields
        As `Contract.kernels`; the depth is ``extra.layers``.

    Examples
    --------
    >>> train = {"dtype": "float32", "extra.layers": "80"}
    >>> ceiling = ceiling_of({Role.TRAIN: train, Role.INFERENCE: {"dtype": "bfloat16"}})
    >>> round(ceiling.sd, 3), ceiling.number_format, ceiling.layers
    (0.173, 'bfloat16', 80)
    """
    sides = [kernels.get(role, {}) for role in (Role.TRAIN, Role.INFERENCE)]
    if any(map(_is_mixture, sides)) or not all(side.get("dtype") for side in sides):
        return None
    rows = [_row_of(name) for name in _names(sides)]
    found = [row for row in rows if row is not None]
    if len(found) < len(rows):  # one of them has no ceiling, or is not known
        return None
    number_format, sd = max(found, key=lambda row: row[1])
    layers = max(_whole(side.get("extra.layers")) for side in sides) or TABLE_LAYERS
    scale = math.sqrt(max(layers + 4, TABLE_LAYERS + 4) / (TABLE_LAYERS + 4))
    return Ceiling(sd * scale, number_format, layers)


def _row_of(name: str) -> tuple[str, float] | None:
    """Format and s of one name, by its first match, so that fp8_e4m3 is e4m3; None without a ceiling."""
    rows = ((fmt, sd) for fmt, words, sd in CEILING_SD if any(word in name for word in words))
    return next(rows, None)


def _is_mixture(side: Mapping[str, object]) -> bool:
    return _whole(side.get("ep")) > 1 or "extra.experts" in side


def _whole(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Implausible:
    """A value that rounding does not explain: a bug, not noise.

    Attributes
    ----------
    value : float
        Lower limit of the mean where there is one (`is_sure`), else the mean.
    ceiling : float
        What rounding can give, in the statistic's unit.
    """

    clause: str
    slice: str
    statistic: str
    value: float
    ceiling: float
    number_format: str
    layers: int
    is_sure: bool

    def __str__(self) -> str:
        """One sentence for people."""
        told = "surely above" if self.is_sure else "on average"
        size = f"{told} {self.value:.3g}"
        explained = f"{self.number_format} rounding in {self.layers} layers gives at most {self.ceiling:.3g}"
        return f"{self.statistic} in {self.slice} is {size}; {explained}: a bug, not noise"


def implausible(
    contract: Contract,
    verdicts: Iterable[Verdict],
    *,
    observed: Mapping[Role, Mapping[str, object]] | None = None,
) -> tuple[Implausible, ...]:
    """Return the violated verdicts that rounding cannot explain, in their order.

    A mean with limits is compared by its lower limit, so that noise of the sample does not accuse;
    one without (an unbounded statistic) by itself, and only where the clause was refuted.

    Parameters
    ----------
    observed : mapping of Role to identity fields, optional
        What the kernels reported; what the contract declares has precedence.
    """
    told = {role: {**(observed or {}).get(role, {}), **contract.kernels.get(role, {})} for role in Role}
    ceiling = ceiling_of(told)
    if ceiling is None:
        return ()
    tokens = None if contract.budget is None else contract.budget.max_tokens
    clauses = {clause.id: clause for clause in contract.clauses}
    found = (_compared(clauses[v.clause], v, ceiling, tokens) for v in verdicts if v.state is State.VIOLATED)
    return tuple(one for one in found if one is not None)


def _compared(clause: Clause, verdict: Verdict, ceiling: Ceiling, tokens: int | None) -> Implausible | None:
    is_mean = clause.quantile is None and clause.statistic not in TAILS
    at_most = floor_of(clause, ceiling.sd, tokens) if is_mean else None
    is_sure = math.isfinite(verdict.lower)
    value = verdict.lower if is_sure else verdict.estimate
    if at_most is None or not value > at_most:
        return None
    names = (verdict.clause, verdict.slice, clause.statistic)
    return Implausible(*names, value, at_most, ceiling.number_format, ceiling.layers, is_sure)
