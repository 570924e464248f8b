"""What the operator counts, and how Prometheus reads it.  Pure."""

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["HELP", "Counts", "prometheus_text"]

HELP = {
    "contracts": ("gauge", "KernelContract objects followed, by whether the latest generation is accepted"),
    "contracts_violated": ("gauge", "KernelContract objects with condition Violated=True"),
    "passes_total": ("counter", "comparisons of every object with what detectors are given"),
    "failures_total": ("counter", "what could not be asked or written: cluster, controller or detector"),
    "writes_total": ("counter", "changes written to the cluster: config_map or status"),
    "last_pass_timestamp_seconds": ("gauge", "Unix time of the last pass that reached the cluster"),
}


@dataclass(slots=True)
class Counts:
    """The numbers; `failures` by part, `writes` by kind, `contracts` by ``"true"`` or ``"false"``."""

    contracts: Counter[str] = field(default_factory=Counter)
    violated: int = 0
    passes: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    last_pass_ns: int = 0


def prometheus_text(counts: Counts) -> str:
    """Return the exposition text.

    Examples
    --------
    >>> print(prometheus_text(Counts(passes=2)).splitlines()[9])
    paritas_operator_passes_total 2
    """
    rows = {
        "contracts": [(f'{{accepted="{k}"}}', counts.contracts[k]) for k in ("false", "true")],
        "contracts_violated": [("", counts.violated)],
        "passes_total": [("", counts.passes)],
        "failures_total": [
            (f'{{part="{k}"}}', counts.failures[k]) for k in ("cluster", "controller", "detector")
        ],
        "writes_total": [(f'{{kind="{k}"}}', counts.writes[k]) for k in ("config_map", "status")],
        "last_pass_timestamp_seconds": [("", counts.last_pass_ns // 1_000_000_000)],
    }
    lines: list[str] = []
    for name, (kind, says) in HELP.items():
        lines += [f"# HELP paritas_operator_{name} {says}", f"# TYPE paritas_operator_{name} {kind}"]
        lines += [f"paritas_operator_{name}{labels} {value}" for labels, value in rows[name]]
    return "".join(f"{line}\n" for line in lines)
