"""One kernel run at two batch sizes, as the two recordings that a floor is measured from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from paritas.collectors.kernels import KernelSpec, Suite, Twice, asks_of, open_twice
from paritas.collectors.kernels.fit import check_room
from paritas.collectors.kernels.kernel import Answer, Ask, Scored
from paritas.collectors.kernels.recording import inference_line, train_line
from paritas.commands.certify_files import write_line, writing
from paritas.errors import UsageError
from paritas.records import KernelIdentity, Sampling

__all__ = ["ONE", "OTHER", "Run", "record", "record_with"]

ONE, OTHER = "one.jsonl.gz", "other.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Run:
    """What to run.

    Attributes
    ----------
    sizes : (int, int)
        Responses in a batch of the first run, and of the second.
    drawn : Sampling
        How tokens are drawn.
    top_logprobs : int
        Length of the recorded lists of most likely tokens.
    """

    kernel: KernelSpec
    sizes: tuple[int, int]
    suite: Suite
    drawn: Sampling
    top_logprobs: int = 20


def record(run: Run, folder: Path) -> str:
    """Write `ONE` and `OTHER` into a folder; return what a person must know of them, or nothing.

    Raises
    ------
    UsageError
        The kernel cannot be opened or asked, has one batch size only, or the folder cannot be written.
    """
    return record_with(open_twice(run.kernel, top_k=run.top_logprobs), run, folder)


def record_with(kernel: Twice, run: Run, folder: Path) -> str:
    """`record` with a kernel that is open."""
    laws = kernel.laws(run.drawn)
    asks = asks_of(run.suite, kernel)
    check_room(kernel.context, asks, run.kernel.flag)
    pairs = (pair for batch in _batches(asks, run) for pair in kernel.run(batch, run.sizes, laws))
    written = _write(pairs, folder, kernel, run, laws[1])
    if not written:
        raise UsageError(
            f"{run.kernel.flag}: no response has a token", hint="give other prompts, or another --seed"
        )
    if not kernel.apart:
        return ""
    return f"{kernel.apart} of {len(asks)} responses part at some token; they count up to there"


def _batches(asks: Iterable[Ask], run: Run) -> Iterator[list[Ask]]:
    """Prompts of one length, as many as the larger batch holds: what is kept of a batch is bounded."""
    most = max(run.sizes)
    for _, same in groupby(
        sorted(asks, key=lambda ask: (ask.prompt.size, ask.seed)), lambda ask: ask.prompt.size
    ):
        told = list(same)
        yield from (told[start : start + most] for start in range(0, len(told), most))


def _write(
    pairs: Iterable[tuple[Answer, Scored]], folder: Path, kernel: Twice, run: Run, law: Sampling
) -> int:
    """Write both files line by line; return how many lines each has."""
    first, second = (_sized(kernel, size) for size in run.sizes)
    written = 0
    with writing(folder / ONE) as one, writing(folder / OTHER) as other:
        for answer, scored in pairs:
            if answer.token.size:
                write_line(one, inference_line(answer, first, law))
                write_line(other, train_line(answer, scored, second, law))
                written += 1
    return written


def _sized(kernel: Twice, size: int) -> KernelIdentity:
    """The identity with the batch size under `extra`, where a floor shows what was varied."""
    return replace(kernel.identity, extra={**kernel.identity.extra, kernel.size_name: str(size)})
