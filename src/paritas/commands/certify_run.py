"""One certification: kernels opened, suite drawn and scored into a recording, recording judged.

The judgement is made from the recording that was just written, so `paritas check` says the same.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.collectors.kernels import (
    KernelSpec,
    Suite,
    asks_of,
    open_sampler,
    open_scorer,
    run_suite,
    scoring_law,
)
from paritas.collectors.kernels.divergence import Divergence
from paritas.collectors.kernels.fit import check_tokenizers
from paritas.collectors.kernels.recording import inference_line, train_line
from paritas.commands.certify_files import made_folder, recording_folder, write_line, write_report, writing
from paritas.commands.jsonable import finite
from paritas.commands.junit import junit_xml
from paritas.commands.offline import Judgement, judge_recording
from paritas.contracts.model import Contract
from paritas.records import Sampling

if TYPE_CHECKING:
    from paritas.collectors.kernels import Answer, Ask, Sampler, Scored, Scorer

__all__ = ["Certification", "Kernels", "Plan", "certify", "certify_pair"]

SERVE, TRAIN = "serve.jsonl.gz", "train.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Attributes
    ----------
    drawn : Sampling
        How the inference kernel draws.
    top_logprobs : int
        Length of the recorded lists of most likely tokens.
    attempt : int or None
        Which try of this candidate it is.
    """

    train: KernelSpec
    inference: KernelSpec
    suite: Suite
    drawn: Sampling
    top_logprobs: int = 20
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Certification:
    """What a run found.

    Attributes
    ----------
    laws : (Sampling, Sampling)
        Drawn from, and scored under.
    """

    judgement: Judgement
    plan: Plan
    divergence: Divergence
    kernels: "Kernels"
    laws: tuple[Sampling, Sampling]

    def as_dict(self) -> dict[str, object]:
        """Everything `check` tells, and what was run."""
        suite, (drawn, scored) = self.plan.suite, self.laws
        sampler, scorer = self.kernels.sampler, self.kernels.scorer
        ran = {
            "kernels": {"inference": sampler.identity.fields(), "train": scorer.identity.fields()},
            "laws": {"drawn": asdict(drawn), "scored": asdict(scored)},
            "suite": {
                "prompts": len(suite.prompts),
                "samples": suite.samples,
                "max_tokens": suite.max_tokens,
                "seed": suite.seed,
            },
            "divergence": self.divergence.as_dict(),
        }
        return {**self.judgement.as_dict(), "certify": finite(ran)}

    def junit(self) -> bytes:
        """JUnit XML of the verdicts."""
        return junit_xml(self.judgement)

    def show(self) -> None:
        """Write the tables of `check`, and one line with the divergence."""
        from paritas.commands.report import number, show_judgement, wide_console

        out = wide_console()
        show_judgement(self.judgement, out)
        told = {k: v for k, v in self.divergence.as_dict().items() if isinstance(v, float)}
        exact = self.divergence.exact_tokens > 0
        of = "exact, of whole distributions" if exact else "estimated from the sampled tokens"
        numbers = ", ".join(f"{name} {number(value)}" for name, value in told.items())
        out.print(f"\n[bold]divergence[/]  {numbers}; {of}")


@dataclass(frozen=True, slots=True)
class Kernels:
    """The two that are compared, ready to be asked."""

    sampler: "Sampler"
    scorer: "Scorer"


def certify(contract: Contract, plan: Plan, *, out: Path | None) -> Certification:
    """Open the kernels of a plan, run it and judge what it recorded.

    Raises
    ------
    UsageError
        A kernel cannot be opened or asked, the kernels do not fit, or `out` cannot be written.
    """
    if out is not None:
        made_folder(out)  # before the models are loaded, which takes long
    _say_opening(plan.inference)
    sampler = open_sampler(plan.inference, top_k=plan.top_logprobs)  # first: a server answers at once
    _say_opening(plan.train)
    scorer = open_scorer(plan.train, top_k=plan.top_logprobs)
    return certify_pair(contract, plan, Kernels(sampler, scorer), out=out)


def certify_pair(contract: Contract, plan: Plan, kernels: Kernels, *, out: Path | None) -> Certification:
    """Run a plan with kernels that are open; raises as `certify`."""
    drawn = kernels.sampler.law(plan.drawn)
    scored = scoring_law(drawn, plan.train.law())
    asks = asks_of(plan.suite, kernels.scorer)
    check_tokenizers(kernels.sampler, kernels.scorer, plan.suite.prompts)
    with recording_folder(out) as folder:
        answers = run_suite(kernels.sampler, kernels.scorer, asks, drawn=drawn, scored=scored)
        divergence = _record(_shown(answers, asks), folder, kernels, (drawn, scored))
        judgement = judge_recording(contract, folder / SERVE, folder / TRAIN, attempt=plan.attempt)
        found = Certification(judgement, plan, divergence, kernels, (drawn, scored))
        if out is not None:
            _keep(found, folder)
    return found


def _say_opening(spec: KernelSpec) -> None:
    """Tell a person who waits; models take long to load and servers to answer."""
    if sys.stderr.isatty():
        sys.stderr.write(f"opening {spec.flag} {spec.kind}:{spec.target}\n")


def _record(
    pairs: Iterable[tuple["Answer", "Scored"]],
    folder: Path,
    kernels: Kernels,
    laws: tuple[Sampling, Sampling],
) -> Divergence:
    """Write both files line by line; they get their names when they are complete."""
    divergence = Divergence()
    with writing(folder / SERVE) as serve, writing(folder / TRAIN) as train:
        for answer, scored in pairs:
            divergence.add(answer, scored)
            write_line(serve, inference_line(answer, kernels.sampler.identity, laws[0]))
            write_line(train, train_line(answer, scored, kernels.scorer.identity, laws[1]))
    return divergence


def _shown(
    pairs: Iterable[tuple["Answer", "Scored"]], asks: list["Ask"]
) -> Iterator[tuple["Answer", "Scored"]]:
    """Pass everything on and move a progress bar on standard error, if somebody looks at one."""
    if not sys.stderr.isatty():
        yield from pairs
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("responses"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(pairs, total=len(asks))


def _keep(found: Certification, folder: Path) -> None:
    """Write what is kept beside the recording."""
    report = json.dumps(found.as_dict(), indent=2, allow_nan=False).encode() + b"\n"
    for name, content in (("report.json", report), ("junit.xml", found.junit())):
        write_report(folder / name, content)
