"""Delay: sequences from a fault to its alarm, beside peers that are tuned to as many false alarms.

Two ways of tuning.  "its law": each peer's threshold is set on streams of the very law that will be
watched, exactly at the limit: the best it can do, and nobody has such streams.  "every allowed
stream": one threshold that holds on all streams a contract allows, heavy tails and allowed changes
included.  Ours is not tuned: it runs at the declared level in both.

Beside them stands the oracle, which knows the laws before and after the change (`oracle`): the
shortest delay that any procedure with as few false alarms can have.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paritas.commands.experiments.fault_streams import CHANGE, UNITS, Fault, faults
from paritas.commands.experiments.oracle import AT_LIMIT, BEST_BET, BOTH_LAWS, oracle_delays
from paritas.commands.experiments.peers import Detector, Places, Scored, Tuning, peers
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
from paritas.commands.experiments.simulation import tiled
from paritas.contracts.model import Clause, Family, Slice
from paritas.detectors.bets import multipliers
from paritas.detectors.rows import make_row
from paritas.detectors.sequential import mean_wealth

__all__ = ["GOAL", "Measured", "ours", "run"]

TARGET = 0.05  # share of streams with a false alarm in `UNITS` sequences
GOAL = 0.5
AFTER = 3000  # units after the change
SLOW_AFTER, SLOW_WARM = 600, 150  # of KSWIN, whose window is 100 values
OURS, TUNED_OURS = "ours, declared level", "ours, tuned as the peers"
ITS_LAW, EVERY = "its law", "every allowed stream"
WAYS = (ITS_LAW, EVERY)
COLUMNS = ("fault", "tuned on", "detector", "false alarms", "early", "median", "90 %", "found")


@dataclass(frozen=True, slots=True)
class Measured:
    """One detector at one fault: share of false alarms on the worst null, and delays."""

    fault: str
    tuned: str
    name: str
    false_alarms: float
    early: float
    median: float
    p90: float
    found: float

    @property
    def is_kept(self) -> bool:
        """Whether the target holds; a peer that no setting keeps to it is no detector here."""
        return self.false_alarms <= TARGET

    def row(self) -> tuple[Cell, ...]:
        """Cells of the table; a delay of streams that mostly never alarm is unknown."""
        delays = (None if not np.isfinite(x) else x for x in (self.median, self.p90))
        return self.fault, self.tuned, self.name, self.false_alarms, self.early, *delays, self.found


def run(setting: Setting) -> Result:
    """Measure every detector at every fault, tuned both ways."""
    chosen = faults()[:1] if setting.is_quick else faults()
    nulls = {fault.limit: _nulls(fault, setting) for fault in chosen}
    told, floors = [], {}
    for number, fault in enumerate(chosen):
        rng = np.random.default_rng([setting.seed, number])
        changed = fault.changed(rng, setting.sized(200, 20), setting.sized(AFTER, 400))
        told += _of_fault(fault, nulls[fault.limit], changed)
        null = setting.sized(UNITS, 600), setting.sized(1000, 100)
        floors[fault.name] = oracle_delays(fault, changed, null, target=TARGET, rng=rng)
    says = (
        f"sequences after a change at {CHANGE}; peers tuned to {TARGET:.0%} of streams in {UNITS} sequences"
    )
    table = Table("delays", says, COLUMNS, tuple(one.row() for one in told))
    ratios = _ratios(told)
    reach = _reach(ratios, floors)
    return Result(
        "delay", setting.seed, (table, ratios, reach), (_figure(told, reach),), _claims(ratios, reach)
    )


@dataclass(frozen=True, slots=True)
class Tuned:
    """A detector and what each law of allowed streams asks of it, the same law at the limit first."""

    detector: Detector
    tunings: tuple[Tuning, ...]

    def at(self, way: str) -> tuple[float, float]:
        """Setting and share of false alarms on the worst law, tuned one `way`."""
        some = self.tunings[:1] if way == ITS_LAW else self.tunings
        setting = 1.0 / TARGET if self.detector.name == OURS else max(one.setting for one in some)
        return setting, max(one.share(setting) for one in some)


def _nulls(fault: Fault, setting: Setting) -> tuple[Tuned, ...]:
    """Tune every detector on all allowed streams of a limit."""
    rng = np.random.default_rng([setting.seed, round(1e6 * fault.limit)])
    units, streams = setting.sized(UNITS, 600), setting.sized(300, 20)
    drawn = [draw(rng, (units, streams)) for draw in fault.allowed.values()]
    own = ours(fault.limit, units)
    others = [d for d in peers(fault.limit) if not (setting.is_quick and d.name == "KSWIN")]
    found = [own, replace(own, name=TUNED_OURS), *others]
    return tuple(Tuned(d, tuple(d.tune(values, TARGET) for values in drawn)) for d in found)


def _of_fault(fault: Fault, found: Sequence[Tuned], changed: Floats) -> list[Measured]:
    told = [one for tuned in found for one in _measured(fault, tuned, changed)]
    return sorted(told, key=lambda one: WAYS.index(one.tuned))


def ours(limit: float, units: int) -> Scored:
    """A row of the detectors' bank at level `TARGET` over a period of `units`; its score is its wealth."""
    clause = Clause("tv", Family.NUMERICAL, "tv", at_most=limit)
    row = make_row(clause, Slice("all"), "all", TARGET)

    def score(values: Floats) -> Floats:
        bank, index = tiled([row], values.shape[1], period_ns=units), np.arange(values.shape[1])
        out = np.empty_like(values)
        for event_ns, told in enumerate(values):
            bank.multiply(index, told, *multipliers(row, told), event_ns)
            out[event_ns] = mean_wealth(bank.alarm, axis=1)
        return out

    return Scored(OURS, score)


def _measured(fault: Fault, tuned: Tuned, changed: Floats) -> list[Measured]:
    """Delays of one detector, tuned both ways."""
    shown, change = _shown(tuned.detector, changed)
    first = tuned.detector.alarms(shown)
    return [_delays(fault.name, way, tuned, first, (change, len(shown))) for way in WAYS]


def _delays(
    fault: str, way: str, tuned: Tuned, first: Callable[[float], Places], ends: tuple[int, int]
) -> Measured:
    setting, false_alarms = tuned.at(way)
    change, units = ends
    place = first(setting)
    early = place < change
    delays = np.where(place < units, place - change + 1.0, np.inf)[~early]
    told = (_quantile(delays, 0.5), _quantile(delays, 0.9), _share(delays))
    return Measured(fault, way, tuned.detector.name, false_alarms, float(early.mean()), *told)


def _shown(detector: Detector, changed: Floats) -> tuple[Floats, int]:
    """Values a detector sees and the place of the change; a slow one starts shortly before it."""
    if isinstance(detector, Scored) and detector.units:
        start = CHANGE - SLOW_WARM
        return changed[start : CHANGE + SLOW_AFTER, : detector.streams], SLOW_WARM
    return changed, CHANGE


def _quantile(delays: Floats, share: float) -> float:
    """Quantile of delays in which never is infinite."""
    return float(np.sort(delays)[min(int(share * len(delays)), len(delays) - 1)]) if len(delays) else np.inf


def _share(delays: Floats) -> float:
    return float(np.isfinite(delays).mean()) if len(delays) else 0.0


def _ratios(told: Sequence[Measured]) -> Table:
    """Ours over the best peer, fault by fault; no peer that finds half of the streams counts as a ratio of 0.

    A peer that no setting keeps to the target is no detector here, and is left out.
    """
    rows = []
    for fault, way in dict.fromkeys((one.fault, one.tuned) for one in told):
        here = {one.name: one for one in told if (one.fault, one.tuned) == (fault, way)}
        own, same = here.pop(OURS), here.pop(TUNED_OURS)
        best = min((one for one in here.values() if one.is_kept), key=lambda one: one.median)
        known = np.isfinite(best.median)
        ratios = (x.median / best.median if known else 0.0 for x in (own, same))
        rows.append((fault, way, own.median, best.name, best.median if known else None, *ratios))
    columns = ("fault", "tuned on", "ours", "best peer", "its median", "ratio", "ratio if ours is tuned too")
    return Table(
        "ratios", "median delay of ours over that of the best peer and setting", columns, tuple(rows)
    )


def _reach(ratios: Table, floors: Mapping[str, Mapping[str, float]]) -> Table:
    """Oracle and goal side by side; what holds on every allowed stream must be silent at the limit too."""
    rows = []
    for fault, way, own, _, best, _, _ in ratios.rows:
        told = floors[str(fault)]
        least = told[BOTH_LAWS if way == ITS_LAW else AT_LIMIT]
        half = GOAL * float(best) if best is not None else None
        told_names = tuple(told[name] for name in (BOTH_LAWS, AT_LIMIT, BEST_BET))
        within = half is None or half >= least
        rows.append((fault, way, half, *told_names, own, best, within))
    columns = (
        "fault",
        "tuned on",
        "goal",
        BOTH_LAWS,
        AT_LIMIT,
        BEST_BET,
        "ours",
        "best peer",
        "within reach",
    )
    says = "median delays: the goal (half of the best peer) beside three oracles, the best informed first"
    return Table("floors", says, columns, tuple(rows))


def _claims(ratios: Table, reach: Table) -> tuple[Claim, ...]:
    ways = list(dict.fromkeys(str(row[1]) for row in ratios.rows))
    return tuple(
        Claim(
            f"at most {GOAL:g} of the best peer's delay, peers tuned on {way}",
            "; ".join(f"{row[0]}: {row[5]:.2f}" for row in ratios.rows if row[1] == way),
            all(float(str(row[5])) <= GOAL for row in ratios.rows if row[1] == way),
            is_promise=False,
            goal=f"<= {GOAL:g}; oracle {_least(reach, way)}",
        )
        for way in ways
    )


def _least(reach: Table, way: str) -> str:
    """Ratio of the oracle to the best peer, fault by fault: no procedure has a smaller one."""
    peers = [row[7] for row in reach.rows if row[1] == way]
    both = zip(_oracle(reach, way), peers, strict=True)
    ratios = (oracle / float(peer) if peer is not None else 0.0 for oracle, peer in both)
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


def _figure(told: Sequence[Measured], reach: Table) -> Figure:
    """Best setting of each kind of detector, one panel a way of tuning, and the oracle."""
    ways = dict.fromkeys(one.tuned for one in told)
    return Figure("delay", tuple(_panel(told, way, _oracle(reach, way)) for way in ways))


def _oracle(reach: Table, way: str) -> list[float]:
    """Delays of the oracle that bounds what is tuned one way."""
    place = reach.columns.index(BOTH_LAWS if way == ITS_LAW else AT_LIMIT)
    return [float(str(row[place])) for row in reach.rows if row[1] == way]


def _panel(told: Sequence[Measured], way: str, oracle: Sequence[float]) -> Panel:
    names = list(dict.fromkeys(one.fault for one in told))
    kinds = dict.fromkeys(_kind(one.name) for one in told)
    curves = [curve("oracle", oracle, [float(i) for i in range(len(oracle))], "points")]
    for kind in kinds:
        here = [one for one in told if one.tuned == way and _kind(one.name) == kind and one.is_kept]
        best = [min((one.median for one in here if one.fault == name), default=np.inf) for name in names]
        places = [i for i, x in enumerate(best) if np.isfinite(x)]
        curves.append(curve(kind, [best[i] for i in places], places, "points"))
    return Panel(
        f"peers tuned on {way}", "median delay, sequences", "", tuple(curves), (True, False), tuple(names)
    )


def _kind(name: str) -> str:
    return name.split(maxsplit=1)[0] if not name.startswith("ours") else name
