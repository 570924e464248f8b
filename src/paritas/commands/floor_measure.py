"""Measure a floor: one kernel against itself, from two recordings of the same tokens."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paritas.clock import Clock
from paritas.collectors.dumps import Problem, ReadOptions, read_recorded
from paritas.collectors.dumps.lines import check_regular
from paritas.contracts.catalogue import CATALOGUE, Need
from paritas.contracts.derive import estimator_of
from paritas.contracts.floors import FloorValue, MeasuredFloor
from paritas.contracts.floors.resolve import options_in
from paritas.contracts.model import Clause, Contract, Family, Slice
from paritas.detectors.evidence import PairBatch
from paritas.detectors.measures import Columns
from paritas.detectors.measures import measure as measure_pairs
from paritas.detectors.pairing import Pairer
from paritas.detectors.pairs import Floats, PairOutcome
from paritas.detectors.repair_limits import lower_limit, unit_means, units_of, upper_limit
from paritas.detectors.rows import Row
from paritas.errors import UsageError
from paritas.records import KernelIdentity, Role, TokenTrace
from paritas.tokens import TokenHasher

__all__ = ["Asked", "measure", "measured_clauses"]

LOCAL_KEY = b"paritas-floor-local"
NS = 1_000_000_000
EVERYTHING = Slice("all")
Ints = NDArray[np.int64]
DRIFT = (Family.NUMERICAL, Family.STATISTICAL)
PAIRED = (Need.PAIR, Need.TOP_INFERENCE, Need.TOP_BOTH, Need.FULL_LOGITS)
SAME_HINT = "a floor is one kernel against itself: the same tokens, only batched otherwise"


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure.

    Attributes
    ----------
    role : Role
        Which kernel of the contract both recordings are of.
    one, other : Path
        Recordings; tokens are taken to be drawn by the kernel of the first.
    alpha : float
        All upper limits together hold with probability 1 - alpha.
    seed : int
        Of the recordings; written down, nothing is drawn here.
    """

    name: str
    role: Role
    one: Path
    other: Path
    model: str = ""
    seed: int = 0
    alpha: float = 0.05


def measure(contract: Contract, asked: Asked, *, clock: Clock) -> MeasuredFloor:
    """Compare the recordings and return the floor of every statistic of the contract that can have one.

    Raises
    ------
    UsageError
        The recordings are of two kernels, nothing in them pairs, or no clause can have a floor.
    """
    clauses = measured_clauses(contract)
    for path in (asked.one, asked.other):
        check_regular(path)  # it is read again for its digest
    sides = _Sides()
    outcomes = _pairs(list(sides.outcomes(contract, asked)), asked)
    one, other = sides.kernels(asked)
    common, varied = _compared(one, other, asked)
    return MeasuredFloor(
        asked.name,
        asked.role,
        common,
        replace(one, role=asked.role).digest,
        varied,
        (_digest(asked.one), _digest(asked.other)),
        asked.model or contract.policy,
        datetime.fromtimestamp(clock.now_ns() // NS, UTC).isoformat(),
        asked.seed,
        asked.alpha,
        _values(contract, outcomes, clauses, asked.alpha),
    )


def measured_clauses(contract: Contract) -> tuple[Clause, ...]:
    """Return the clauses that can have a floor; raises `UsageError` where none can."""
    clauses = tuple(c for c in contract.clauses if has_floor(c))
    if not clauses:
        hint = "a floor needs a numerical or statistical clause with a bounded mean, such as tv"
        raise UsageError(f"{contract.name}: no clause can have a floor", hint=hint)
    return clauses


def has_floor(clause: Clause) -> bool:
    """Whether a clause bounds from above a mean of values of both kernels that lie in a known range."""
    entry = CATALOGUE[clause.statistic]
    is_mean = clause.at_most is not None and clause.quantile is None and entry.certifiable
    return is_mean and entry.family in DRIFT and entry.need in PAIRED


class _Sides:
    """Reads both recordings and remembers which kernels they name."""

    def __init__(self) -> None:
        self._seen: dict[Role, dict[str, KernelIdentity]] = {Role.INFERENCE: {}, Role.TRAIN: {}}

    def outcomes(self, contract: Contract, asked: Asked) -> Iterator[PairOutcome]:
        """Yield how each sequence paired; the first recording takes the side of the sampler."""
        compare = replace(contract.compare, against=Role.INFERENCE)
        pairer, options = Pairer(compare), ReadOptions(TokenHasher(LOCAL_KEY))
        sides = ((asked.one, Role.INFERENCE), (asked.other, Role.TRAIN))
        for item in chain(*(read_recorded(path, role, options) for path, role in sides)):
            yield from self._paired(pairer, item)
        yield from pairer.flush(0)

    def _paired(self, pairer: Pairer, item: TokenTrace | Problem) -> Iterator[PairOutcome]:
        if isinstance(item, TokenTrace):
            self._seen[item.kernel.role][item.kernel.digest] = item.kernel
            yield from pairer.process(item, 0)

    def kernels(self, asked: Asked) -> tuple[KernelIdentity, KernelIdentity]:
        """Return the kernel of each recording.

        Raises
        ------
        UsageError
            A recording names several.
        """
        for path, role in ((asked.one, Role.INFERENCE), (asked.other, Role.TRAIN)):
            if len(self._seen[role]) != 1:
                raise UsageError(f"{path}: names {len(self._seen[role])} kernels", hint=SAME_HINT)
        one, other = (next(iter(self._seen[role].values())) for role in (Role.INFERENCE, Role.TRAIN))
        return one, other


def _pairs(outcomes: Sequence[PairOutcome], asked: Asked) -> list[PairOutcome]:
    """Outcomes that paired; raises where none did."""
    paired = [o for o in outcomes if o.pair is not None]
    if not paired:
        reasons = Counter(o.reason for o in outcomes)
        told = ", ".join(f"{n} {reason}" for reason, n in sorted(reasons.items())) or "no sequences"
        raise UsageError(f"{asked.one} and {asked.other}: nothing pairs ({told})", hint=SAME_HINT)
    return paired


def _compared(
    one: KernelIdentity, other: KernelIdentity, asked: Asked
) -> tuple[dict[str, object], dict[str, tuple[str, str]]]:
    """Fields both report alike, and the free ones in which they differ."""
    told = [{k: v for k, v in kernel.fields().items() if k != "role"} for kernel in (one, other)]
    names = sorted({*told[0], *told[1]})
    differing = [name for name in names if told[0].get(name) != told[1].get(name)]
    if hard := [name for name in differing if not name.startswith("extra.")]:
        was = " and ".join(_shown(side, hard[0]) for side in told)
        raise UsageError(f"{asked.one} and {asked.other} are of two kernels: {hard[0]} {was}", hint=SAME_HINT)
    common = {name: told[0][name] for name in names if name not in differing}
    return common, {name: (str(told[0].get(name, "")), str(told[1].get(name, ""))) for name in differing}


def _shown(fields: Mapping[str, object], name: str) -> str:
    return str(fields[name]) if name in fields else "(not reported)"


def _values(
    contract: Contract, outcomes: Sequence[PairOutcome], clauses: Sequence[Clause], alpha: float
) -> tuple[FloorValue, ...]:
    """Measure every distinct statistic; each upper limit gets its share of alpha."""
    distinct = {(c.statistic, *sorted(options_in(contract, c).items())): c for c in clauses}
    estimators = {c.id: estimator_of(contract, c) for c in clauses if c.statistic == "gradient_bias"}
    columns = Columns.of([(c, EVERYTHING) for c in distinct.values()], estimators)
    measures = measure_pairs(PairBatch.of([o.pair for o in outcomes if o.pair is not None]), columns)
    units = units_of(outcomes, by_group=contract.compare.unit == "group")
    found = (
        _value(columns.rows[i], (measures.scaled[:, i], measures.tokens[:, i]), units, alpha / len(distinct))
        for i in range(len(columns.rows))
    )
    told = zip(found, distinct.values(), strict=True)
    return tuple(replace(v, options=options_in(contract, c)) for v, c in told if v is not None)


def _value(row: Row, told: tuple[Floats, Ints], units: Ints, alpha: float) -> FloorValue | None:
    """Mean and upper limit; of its size where the statistic is signed.  None without data."""
    scaled, tokens = told
    values = unit_means(np.clip(scaled, 0.0, 1.0), units)
    if not values.size:
        return None
    estimate = row.scale.up(float(values.mean()))
    upper = row.scale.up(upper_limit(values, alpha / 2 if row.two_sided else alpha))
    if row.two_sided:
        upper = max(abs(upper), abs(row.scale.up(lower_limit(values, alpha / 2))))
    if upper <= 0.0:
        return None
    counted = int(tokens[~np.isnan(scaled)].sum())
    return FloorValue(row.clause.statistic, {}, estimate, upper, len(values), counted)


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
