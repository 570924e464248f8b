"""Fetches and builds the real parts that the system tests run against, once, and says what it does.

A part that cannot be had here is named with the reason, and its tests are skipped with the same reason.

Run: python tests/system/parts.py [kafka] [flink] [collector] [jaeger] [routers] [kubernetes] [alertmanager]
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import part_setup
from part_setup import SetupError
from system import alertmanager_setup, flink_setup, kafka_broker, kubernetes_parts, otel_parts, routers_setup

__all__ = ["main", "why_not"]

PARTS: Mapping[str, tuple[Callable[[], str | None], Callable[[], object]]] = {
    "kafka": (kafka_broker.missing_tool, kafka_broker.fetch),
    "flink": (flink_setup.missing_tool, flink_setup.fetch),
    "collector": (otel_parts.missing_tool, lambda: otel_parts.build("collector")),
    "routers": (routers_setup.missing_tool, routers_setup.fetch),
    "kubernetes": (kubernetes_parts.missing_tool, kubernetes_parts.fetch),
    "alertmanager": (alertmanager_setup.missing_tool, alertmanager_setup.fetch),
    "jaeger": (otel_parts.missing_tool, lambda: otel_parts.build("jaeger")),
}


@cache
def why_not(name: str) -> str | None:
    """Get a part; return why it cannot be had here, or None."""
    return part_setup.why_not(*PARTS[name], errors=(SetupError, subprocess.CalledProcessError))


def main(names: list[str]) -> int:
    """Get every named part that can be had; return 0, or 2 for a name that is none."""
    return part_setup.set_up_all(names, why_not, known=PARTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
