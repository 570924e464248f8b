"""Judge the recording of a test that a contract carries, and note when each violation was found."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from paritas.collectors.dumps import Problem, ReadOptions, read_dump, read_recorded
from paritas.commands.offline import LOCAL_KEY
from paritas.contracts.model import Compare, Contract, Stage
from paritas.contracts.testing import Judged
from paritas.detectors.evaluate import Change, Evaluator
from paritas.detectors.explain import explain
from paritas.detectors.pairing import Pairer
from paritas.detectors.pairs import PairOutcome
from paritas.detectors.verdicts import verdicts
from paritas.records import Role, State, TokenTrace
from paritas.tokens import TokenHasher

__all__ = ["judge_carried"]


def judge_carried(contract: Contract, serve: Path, train: Path) -> Judged:
    """Judge as `paritas check` does; one path for both means a dump that holds both kernels.

    Raises
    ------
    UsageError
        If a file is not there or is no recording.
    """
    evaluator = Evaluator(contract, stage=Stage.OFFLINE_CI, recover=False)
    reached = _observe(evaluator, list(_outcomes(contract.compare, _items(serve, train))))
    found = verdicts(evaluator)
    return Judged(found, explain(evaluator, found), reached)


def _items(serve: Path, train: Path) -> Iterable[TokenTrace | Problem]:
    options = ReadOptions(TokenHasher(LOCAL_KEY))
    if serve == train:
        return read_dump(serve, options)
    sides = (read_recorded(serve, Role.INFERENCE, options), read_recorded(train, Role.TRAIN, options))
    return chain(*sides)


def _outcomes(compare: Compare, items: Iterable[TokenTrace | Problem]) -> Iterator[PairOutcome]:
    pairer = Pairer(compare)
    for item in items:
        if isinstance(item, TokenTrace):
            yield from pairer.process(item, 0)
    yield from pairer.flush(0)


def _observe(evaluator: Evaluator, outcomes: Sequence[PairOutcome]) -> dict[tuple[str, str, State], int]:
    """Return after how many sequences each clause was first violated in each slice."""
    reached: dict[tuple[str, str, State], int] = {}
    for crossing in evaluator.observe(outcomes):
        if crossing.change is Change.VIOLATED:
            key = (crossing.clause.id, crossing.slice, State.VIOLATED)
            reached.setdefault(key, sum(evaluator.reasons.values()))
    return reached
