"""Recorded pairs as outcomes, read once and judged as often as an experiment wants."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import chain
from pathlib import Path

from paritas.collectors.dumps import ReadOptions, read_recorded
from paritas.commands.experiments.result import Setting
from paritas.contracts.load import load_named
from paritas.contracts.model import Compare, Contract, Stage
from paritas.detectors.evaluate import Change, Evaluator
from paritas.detectors.explain import explain
from paritas.detectors.pairing import Pairer
from paritas.detectors.pairs import PairOutcome
from paritas.detectors.verdicts import verdicts
from paritas.errors import UsageError
from paritas.records import Role, State, TokenTrace
from paritas.tokens import TokenHasher

__all__ = ["REPLICAS", "Judged", "available", "folder_of", "judge_outcomes", "outcomes_of", "with_replicas"]

REPLICAS = 4


@dataclass(frozen=True, slots=True)
class Judged:
    """What a contract said of some outcomes.

    Attributes
    ----------
    violated : tuple of (clause, slice)
        In the order in which they were violated.
    after : int
        Sequences up to the first violation; 0 for none.
    cause : str
        The first named cause.
    """

    violated: tuple[tuple[str, str], ...]
    after: int
    cause: str


def folder_of(setting: Setting) -> Path:
    """Folder of the recordings: the given one (or its ``smollm2``), else the shipped ones.

    Raises
    ------
    UsageError
        If the folder holds no recorded pair.
    """
    if setting.recordings is None:
        return Path(str(files("paritas"))) / "data"
    inner = setting.recordings / "smollm2"
    folder = inner if inner.is_dir() else setting.recordings
    if not available(folder):
        raise UsageError(
            f"{folder}: no recorded pair", hint="a pair is NAME.serve.jsonl.gz with NAME.train.jsonl.gz"
        )
    return folder


def available(folder: Path) -> dict[str, str]:
    """Training recordings by name, and the name of the serving one each belongs to.

    A variant scored by another trainer is named after its sampler (``bf16_weights_plus4``); the
    shipped ``stale`` belongs to ``healthy``.
    """
    serve = sorted((p.name.split(".")[0] for p in folder.glob("*.serve.jsonl.gz")), key=len, reverse=True)
    told = {}
    for path in sorted(folder.glob("*.train.jsonl.gz")):
        name = path.name.split(".")[0]
        owners = [s for s in serve if name == s or name.startswith(f"{s}_")]
        owner = owners[0] if owners else "healthy"
        if owner in serve:
            told[name] = owner
    return told


@cache
def outcomes_of(folder: Path, serve: str, train: str) -> tuple[PairOutcome, ...]:
    """Pair two recordings."""
    options = ReadOptions(TokenHasher(b"paritas-experiment-local"))
    sides = (
        read_recorded(folder / f"{serve}.serve.jsonl.gz", Role.INFERENCE, options),
        read_recorded(folder / f"{train}.train.jsonl.gz", Role.TRAIN, options),
    )
    pairer = Pairer(Compare())
    told = [o for item in chain(*sides) if isinstance(item, TokenTrace) for o in pairer.process(item, 0)]
    return (*told, *pairer.flush(0))


def judge_outcomes(preset: str | Contract, outcomes: Sequence[PairOutcome]) -> Judged:
    """Judge outcomes in their order at the offline stage."""
    contract = load_named(preset) if isinstance(preset, str) else preset
    evaluator = Evaluator(contract, stage=Stage.OFFLINE_CI, recover=False)
    violated, after = [], 0
    for crossing in evaluator.observe(outcomes):
        if crossing.change is Change.VIOLATED:
            after = after or sum(evaluator.reasons.values())
            violated.append((crossing.clause.id, crossing.slice))
    found = verdicts(evaluator)
    causes = explain(evaluator, found) if any(v.state is State.VIOLATED for v in found) else ()
    return Judged(tuple(violated), after, causes[0].cause if causes else "")


def with_replicas(
    healthy: Sequence[PairOutcome], faulty: Sequence[PairOutcome], replica: int
) -> list[PairOutcome]:
    """Name replicas in turn; the sequences of one come from `faulty`, which holds the same sequences."""
    wrong = {outcome.sequence_id: outcome for outcome in faulty}
    told = []
    for i, outcome in enumerate(healthy):
        label = {"replica": f"r{i % REPLICAS}"}
        chosen = wrong[outcome.sequence_id] if i % REPLICAS == replica else outcome
        attributes = {**chosen.attributes, **label}
        pair = replace(chosen.pair, attributes=attributes) if chosen.pair is not None else None
        told.append(replace(chosen, attributes=attributes, pair=pair))
    return told
