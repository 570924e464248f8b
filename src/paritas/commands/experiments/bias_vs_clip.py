"""Bias against clip range, read correctly (docs/mathematics.md D9, D10).

clip(w, 1-c, 1+c) with c = 0 is the constant 1: the uncorrected estimator.  A small clip range
enforces nothing about the kernels; it declines to correct for them.  Worst-case bias falls in c and
the variance of the weight rises; the bias of one advantage, and the second moment, are not monotone.
"""

import numpy as np

from paritas.commands.experiments.laws import log_softmax
from paritas.commands.experiments.recorded import available, folder_of, outcomes_of
from paritas.commands.experiments.result import Claim, Figure, Floats, Panel, Result, Setting, Table, curve
from paritas.contracts.bounds import MeanLimits, bias_statistic, bias_statistic_range, smallest_certified_cap
from paritas.contracts.model import Estimator
from paritas.detectors.evidence import PairBatch

__all__ = ["run"]

RANGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0)
CAPS, BUDGETS, ALPHA = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0), (0.002, 0.01, 0.05), 0.05
TOKENS, NOISE = 64, 0.3
FALLING, RISING = 1e-12, -1e-12
COLUMNS = (
    *("clip range c", "worst-case bias", "bias of one advantage", "bias, counterexample"),
    *("sd of the weight", "second moment, counterexample", "masked (MIS), worst case", "PPO min, worst case"),
)
# D9: two tokens, A g constant, whose bias and second moment are not monotone in c
COUNTER_W, COUNTER_Q = np.array([3.0, 0.5]), np.array([0.2, 0.8])


def run(setting: Setting) -> Result:
    """Measure on exact laws, and certify on a recording."""
    exact = _exact(np.random.default_rng(setting.seed), setting.sized(2000, 100))
    recorded, caps = _recorded(setting)
    return Result(
        "bias-vs-clip",
        setting.seed,
        (exact, recorded, caps),
        (_figure(exact, recorded),),
        _claims(exact),
    )


def _exact(rng: np.random.Generator, contexts: int) -> Table:
    """Every curve over the clip range, by enumeration."""
    logits = 2.0 * rng.normal(size=(contexts, TOKENS))
    law_q, law_p = (log_softmax(z) for z in (logits, logits + NOISE * rng.normal(size=logits.shape)))
    q, ell = np.exp(law_q) / contexts, law_p - law_q
    pull = rng.normal(size=q.shape)  # advantage times score of one parameter
    pull = pull / np.abs(pull).max()
    return Table(
        "ranges",
        f"in units of A_max G; {contexts} contexts of {TOKENS} tokens, logit noise {NOISE}",
        COLUMNS,
        tuple(_at(c, q, ell, pull) for c in RANGES),
    )


def _at(c: float, q: Floats, ell: Floats, pull: Floats) -> tuple[float, ...]:
    w = np.exp(ell)
    weight = np.clip(w, 1.0 - c, 1.0 + c)
    counter = np.clip(COUNTER_W, 1.0 - c, 1.0 + c)
    return (
        c,
        _beta(q, ell, Estimator("clip", clip=c)),
        abs(float((q * (weight - w) * pull).sum())),
        abs(float(COUNTER_Q @ (counter - COUNTER_W))),
        float(np.sqrt((q * weight**2).sum() - (q * weight).sum() ** 2)),
        float(COUNTER_Q @ counter**2),
        _beta(q, ell, Estimator("mis", cap=1.0 + c, low=max(1.0 - c, 0.0))),
        _beta(q, ell, Estimator("ppo_min", clip=c), advantage=np.sign(ell)),
    )


def _beta(q: Floats, ell: Floats, estimator: Estimator, *, advantage: Floats | float = 1.0) -> float:
    """D3 certificate of an estimator, exactly."""
    return float((q * bias_statistic(ell, estimator, advantage=advantage)).sum())


def _recorded(setting: Setting) -> tuple[Table, Table]:
    """Certified bias of a healthy recording, and the smallest certified truncation."""
    folder = folder_of(setting)
    names = available(folder)
    name = next((n for n in ("bf16", "healthy") if n in names), next(iter(names)))
    batch = PairBatch.of([o.pair for o in outcomes_of(folder, names[name], name) if o.pair is not None])
    kinds = ("clip", "mis")
    rows = tuple(
        (c, *(x for kind in kinds for x in _certified(batch.log_ratio, _of(kind, c)))) for c in RANGES
    )
    columns = ("clip range c", *(f"{kind}, {what}" for kind in kinds for what in ("estimate", "95 % upper")))
    says = f"recording {name}, {len(batch.log_ratio)} tokens; upper limits hold at every moment (D16)"
    return Table("recording", says, columns, rows), _caps(batch.log_ratio)


def _of(kind: str, c: float) -> Estimator:
    if kind == "clip":
        return Estimator("clip", clip=c)
    return Estimator("mis", cap=1.0 + c, low=max(1.0 - c, 0.0))


def _certified(ell: Floats, estimator: Estimator) -> tuple[float, float]:
    low, high = bias_statistic_range(estimator)
    if low == high:
        return 0.0, 0.0
    limits = MeanLimits(low, high).observe(bias_statistic(ell, estimator))
    return max(limits.mean, 0.0), max(limits.upper(ALPHA), 0.0)


def _caps(ell: Floats) -> Table:
    states = [
        MeanLimits(1.0 - cap, 1.0).observe(bias_statistic(ell, Estimator("tis", cap=cap))) for cap in CAPS
    ]
    rows = tuple((beta, smallest_certified_cap(CAPS, states, beta=beta, alpha=ALPHA)) for beta in BUDGETS)
    says = f"smallest truncation min(w, C), C of {', '.join(map(str, CAPS))}, whose certified bias fits"
    return Table("caps", says, ("bias budget", "smallest certified C"), rows)


def _column(table: Table, name: str) -> Floats:
    return np.array([float(str(x)) for x in table.column(name)])


def _claims(exact: Table) -> tuple[Claim, ...]:
    return (_uncorrected(exact), _variance(exact), _not_monotone(exact), _masks(exact))


def _uncorrected(exact: Table) -> Claim:
    worst = _column(exact, "worst-case bias")
    holds = worst[0] == worst.max() and (np.diff(worst) <= FALLING).all()
    told = f"{worst[0]:.4f} at 0, {worst[RANGES.index(0.2)]:.4f} at 0.2, {worst[-1]:.6f} at 2"
    return Claim("c = 0 is the uncorrected estimator, and the worst case falls in c", told, bool(holds))


def _variance(exact: Table) -> Claim:
    spread = _column(exact, "sd of the weight")
    told = f"{spread[0]:.4f} at 0, {spread[-1]:.4f} at 2"
    return Claim("the weight's deviation rises in c", told, bool((np.diff(spread) >= RISING).all()))


def _not_monotone(exact: Table) -> Claim:
    bias, second = (_column(exact, name) for name in (COLUMNS[3], COLUMNS[5]))
    told = f"bias {bias[0]:.3g}, {bias.max():.3g}, {bias[-1]:.3g}; second moment {second[0]:.3g}, {second.min():.3g}, {second[-1]:.3g}"
    holds = bias[0] < bias.max() > bias[-1] and second[0] > second.min() < second[-1]
    return Claim("the bias of one pair and the second moment are not monotone", told, bool(holds))


def _masks(exact: Table) -> Claim:
    small = RANGES.index(0.01)
    ppo, worst = (_column(exact, name)[small] for name in ("PPO min, worst case", "worst-case bias"))
    told = f"{ppo:.3f} at c = 0.01, clipping {worst:.3f}"
    return Claim(
        "PPO's min at a small range is no truncation: its worst case stays large", told, bool(ppo > worst)
    )


def _figure(exact: Table, recorded: Table) -> Figure:
    """Ranges up to 1 on a logarithmic scale; PPO's min has the worst case of a mask."""
    shown = [i for i, c in enumerate(RANGES) if c <= 1.0]
    laws = ("worst-case bias", "bias of one advantage", "sd of the weight", "PPO min, worst case")
    panels = (
        (exact, laws, "exact laws", "units of A_max G"),
        (recorded, recorded.columns[1:], "a recording", "certified bias"),
    )
    return Figure(
        "bias-vs-clip", tuple(_panel(table, names, shown, *texts) for table, names, *texts in panels)
    )


def _panel(table: Table, names: tuple[str, ...], shown: list[int], title: str, label: str) -> Panel:
    curves = []
    for name in names:
        values = _column(table, name)
        places = [i for i in shown if values[i] > 0.0]
        kind = "dashed" if "sd" in name or "95" in name else "line"
        curves.append(curve(name, [RANGES[i] for i in places], values[places], kind))
    return Panel(title, "clip range c", label, tuple(curves), (False, True))
