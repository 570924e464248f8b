"""Units: a batch of outcomes, which of them belong together, and what they tell the rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.diagnosis import fingerprints
from paritas.detectors.diagnosis.places import Labels, labels_of
from paritas.detectors.evidence import PairBatch
from paritas.detectors.measures import Columns, Measures, measure
from paritas.detectors.pairs import Floats, PairedTrace, PairOutcome
from paritas.detectors.placement import NOWHERE, Placement, Plan, Slots
from paritas.detectors.runs import SliceRun
from paritas.detectors.sampling import weigh
from paritas.detectors.table import Table
from paritas.detectors.token_columns import sizes
from paritas.records import PairReason

__all__ = ["REPEATS", "Batch", "chunks", "cut", "unit_key"]

Ints = NDArray[np.int64]
Known = tuple[Sequence[str], Ints, Ints]

# Outcomes that are not sequences of their own: they repeat one that already counted.
REPEATS = (PairReason.DUPLICATE, PairReason.LATE)
CHUNK_TOKENS = 131_072  # measured together: fewer calls; bounds memory, changes no result


def unit_key(outcome: PairOutcome, *, by_group: bool) -> tuple[str, str]:
    """Outcomes with equal keys that stand together are one unit."""
    if by_group and outcome.group_id:
        return outcome.run_id, f"group:{outcome.group_id}"
    return outcome.run_id, outcome.sequence_id


def cut(outcomes: Sequence[PairOutcome], start: int, *, sequences: int, by_group: bool) -> int:
    """End of the batch of about so many sequences that begins at `start`; no unit is cut in two."""
    stop = min(start + sequences, len(outcomes))
    key = unit_key(outcomes[stop - 1], by_group=by_group)
    while stop < len(outcomes) and unit_key(outcomes[stop], by_group=by_group) == key:
        stop += 1
    return stop


def chunks(pairs: Sequence[PairedTrace], tokens: int) -> Iterator[PairBatch]:
    """Concatenate consecutive pairs of at most `tokens` tokens together, or of one pair; at least once."""
    ends = np.cumsum([pair.tokens for pair in pairs])
    start = 0
    while start < len(pairs):
        held = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, held + tokens, side="right")), start + 1)
        yield PairBatch.of(pairs[start:stop])
        start = stop
    if not pairs:
        yield PairBatch.of([])


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Outcomes of whole units, and what they tell.

    Attributes
    ----------
    outcomes : sequence of PairOutcome
    places : shape (outcomes,), int64
        Row of the table of each outcome; the last one for all without a pair.
    starts : sequence of int
        Outcomes of unit i are ``starts[i]:starts[i + 1]``.
    tellers, told : shape (tellers,), int64; sequence of int
        Outcomes that are not repeats; those of unit i are ``tellers[told[i]:told[i + 1]]``.
    event_ns : shape (outcomes,), int64
    pairs : sequence of PairedTrace
    table : Table
    sums : shape (n, fields)
        Fingerprint of each pair.
    sizes : shape (n,), nats
        Mean |ell| of each pair; 0 without tokens.
    lags : shape (n,), int64
        Versions the trainer is ahead; 0 where it is not known.
    labels : dict of str to list
        What each pair says of itself, label by label (`diagnosis.places.labels_of`).
    columns : Columns
        Of the table.
    """

    outcomes: Sequence[PairOutcome]
    places: Ints
    starts: Sequence[int]
    tellers: Ints
    told: Sequence[int]
    event_ns: Ints
    pairs: Sequence[PairedTrace]
    table: Table
    sums: Floats
    sizes: Floats
    lags: Ints
    labels: Labels
    columns: Columns

    @classmethod
    def of(cls, outcomes: Sequence[PairOutcome], columns: Columns, *, by_group: bool) -> "Batch":
        """Compute what can be computed of many pairs together."""
        pairs = [o.pair for o in outcomes if o.pair is not None]
        parts = [_part(chunk, columns) for chunk in chunks(pairs, CHUNK_TOKENS)]
        measures, sums, mean_sizes = zip(*parts, strict=True)
        is_pair = np.array([o.pair is not None for o in outcomes], dtype=bool)
        starts = _starts(outcomes, by_group=by_group)
        tells = np.array([o.pair is not None or o.reason not in REPEATS for o in outcomes], dtype=bool)
        return cls(
            outcomes,
            np.where(is_pair, np.cumsum(is_pair) - 1, len(pairs)),
            starts,
            np.flatnonzero(tells),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(tells)])[starts].tolist(),
            np.array([o.event_ns for o in outcomes], dtype=np.int64),
            pairs,
            Table.of(Measures.joined(measures), columns),
            np.concatenate(sums),
            np.concatenate(mean_sizes),
            np.array([pair.lag or 0 for pair in pairs], dtype=np.int64),
            labels_of(pairs),
            columns,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def tellers_of(self, unit: int) -> Ints:
        """Outcomes of one unit but for repeats."""
        return self.tellers[self.told[unit] : self.told[unit + 1]]

    def is_loss(self, outcome: int) -> bool:
        """Whether an outcome has no pair."""
        return int(self.places[outcome]) == len(self.pairs)

    def count(self, units: range, reasons: dict[str, int]) -> None:
        """Count the reasons of the outcomes of some units that stand together."""
        for outcome in self.outcomes[self.starts[units.start] : self.starts[units.stop]]:
            reasons[outcome.reason] = reasons.get(outcome.reason, 0) + 1

    def runs(self, tellers: Ints, plans: Sequence[Plan], placement: Placement) -> list[SliceRun]:
        """What some tellers, whose plans are `plans`, tell each declared slice; several of a unit are a group.

        A group's time is that of its first; it has no losses.  Whether they paired its members tell one by one.
        """
        unit = np.searchsorted(self.told, np.searchsorted(self.tellers, tellers), side="right") - 1
        event_ns = self.event_ns[tellers[np.searchsorted(unit, unit)]]
        numbers = np.array([plan.numbers for plan in plans], dtype=np.int64)
        same: dict[tuple[int, bytes], list[SliceRun]] = {}
        for i in range(numbers.shape[1] if plans else 0):
            inside, slots = numbers[:, i] != NOWHERE, placement.of(i)
            if inside.any():
                told = (unit[inside], event_ns[inside], tellers[inside])
                for run in self._runs(told, numbers[inside, i], slots):
                    same.setdefault((id(run.table), run.columns.tobytes()), []).append(run)
        return [SliceRun.joined(runs) for runs in same.values()]

    def _runs(self, told: tuple[Ints, Ints, Ints], number: Ints, slots: Slots) -> Iterator[SliceRun]:
        """What tellers tell one slice: the unit, time and outcome of each, and the number of its instance."""
        unit, event_ns, outcome = told
        held, holder = np.unique(number, return_inverse=True)
        known, place = (slots.names(held), slots.rows(held), slots.columns), self.places[outcome]
        if (np.diff(unit) > 0).all():
            yield SliceRun(self.table, *known, holder, unit, place, event_ns, outcome, holder)
            return
        order = np.lexsort((holder, unit))
        starts = np.flatnonzero(np.diff(unit[order] * len(held) + holder[order], prepend=-1))
        first = order[starts]
        grouped = self.table.grouped(place[order], starts, self.columns)
        entries = (holder[first], unit[first], np.arange(len(first)), event_ns[first])
        is_census = self.columns.by_sequence[slots.columns]
        yield SliceRun(grouped, *_some(known, ~is_census), *entries, outcome, holder)
        if is_census.any():
            none = np.zeros(0, np.int64)
            yield SliceRun(
                self.table, *_some(known, is_census), holder, unit, place, event_ns, outcome=none, holder=none
            )


def _some(known: Known, is_asked: NDArray[np.bool_]) -> Known:
    """Names of instances, their rows and the columns of those clauses that are asked for."""
    names, rows, columns = known
    return names, rows[:, is_asked], columns[is_asked]


def _starts(outcomes: Sequence[PairOutcome], *, by_group: bool) -> list[int]:
    """First outcome of each unit, and the number of all."""
    keys = [unit_key(o, by_group=by_group) for o in outcomes]
    changes = (i for i, (one, other) in enumerate(pairwise(keys), start=1) if one != other)
    return [0, *changes, len(keys)] if keys else [0]


def _part(pairs: PairBatch, columns: Columns) -> tuple[Measures, Floats, Floats]:
    """Measures, fingerprints and mean |ell| of some pairs."""
    mean = pairs.mean_of("sizes", lambda: sizes(pairs))
    told = measure(pairs, columns)
    if columns.sampled_at_least is not None:
        told = weigh(told, columns.rows, pairs.pairs, columns.sampled_at_least)
    return told, fingerprints(pairs), np.where(np.isnan(mean), 0.0, mean)
