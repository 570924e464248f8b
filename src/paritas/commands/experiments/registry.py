"""The experiments by name; each module is imported only when its experiment runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType

from paritas.commands.experiments.result import Result, Setting
from paritas.errors import UsageError

__all__ = ["EXPERIMENTS", "Experiment", "find", "run_experiment"]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment: its module here, what it shows, and roughly how long a full run takes."""

    module: str
    says: str
    takes: str


EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        "bound-tightness": Experiment(
            "bound_tightness", "certified bounds beside the truth, over families of kernels", "20 s"
        ),
        "false-alarms": Experiment(
            "false_alarms",
            "streams exactly at every limit: realised alarms beside the declared budget",
            "3 min",
        ),
        "delay": Experiment(
            "delay",
            "sequences from a fault to its alarm, beside five peers and an oracle at equal false alarms",
            "3 min",
        ),
        "recorded-delay": Experiment(
            "recorded_delay",
            "recorded faults: sequences to the alarm, beside detectors on what frameworks log",
            "2 min",
        ),
        "bias-vs-clip": Experiment(
            "bias_vs_clip", "gradient bias and variance against the clip range, read correctly", "5 s"
        ),
        "precision-ladder": Experiment(
            "precision_ladder",
            "recorded kernels from float32 to int4: drift, verdict, sequences needed",
            "1 min",
        ),
        "falsification": Experiment(
            "falsification", "exact small RL problems searched for a bias above its certificate", "1 min"
        ),
    }
)


def find(name: str) -> Experiment:
    """Return an experiment.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    near = get_close_matches(name, EXPERIMENTS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(sorted(EXPERIMENTS))}"
    raise UsageError(f"no such experiment: {name!r}", hint=hint)


def run_experiment(name: str, setting: Setting) -> Result:
    """Run one experiment; raises `UsageError` as `find` does."""
    module = import_module(f"paritas.commands.experiments.{find(name).module}")
    result: Result = module.run(setting)
    return result
