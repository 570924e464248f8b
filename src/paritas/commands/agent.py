"""`paritas agent`: the sidecar, from a file."""

import argparse
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.console import complain, say_now

if TYPE_CHECKING:
    from paritas.agent.agent import Agent
    from paritas.clock import Clock
    from paritas.errors import ParitasError

__all__ = ["register", "serve"]

POLL_S = 2.0


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "agent",
        help="receive spans beside a GPU process and bring them to the event log",
        description="Receives OTLP, keeps it in a spool on disk and brings it to the event log. "
        "SIGHUP or a changed file reloads the configuration; SIGTERM drains and ends.",
    )
    parser.add_argument("--config", type=Path, required=True, help="the configuration file")
    parser.add_argument("--check", action="store_true", help="read the configuration, say so, and end")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return 0."""
    from paritas.clock import SystemClock
    from paritas.commands.agent_config import load_agent_config

    load = partial(load_agent_config, arguments.config)
    load()
    if arguments.check:
        sys.stdout.write(f"{arguments.config}: fine\n")
        return 0
    return serve(arguments.config, clock=SystemClock())


def serve(path: Path, *, clock: "Clock") -> int:
    """Run the agent of a configuration file until a signal ends it."""
    from paritas.agent.agent import Agent
    from paritas.agent.reload import FileWatch
    from paritas.commands.agent_config import load_agent_config
    from paritas.commands.signals import signals

    watch = FileWatch(path)
    with signals() as (stop, reload), Agent(load_agent_config(path), clock=clock) as agent:
        _tell(_ready(agent))
        due = _Due(clock)

        def on_tick() -> None:
            if reload.is_set() or (due.is_due() and watch.has_changed()):
                reload.clear()
                _say(agent.reconfigure(partial(load_agent_config, path)), path)

        agent.run(stop, on_tick=on_tick)
        told = agent
    sys.stdout.write(_farewell(told))
    return 0


class _Due:
    """True once every POLL_S."""

    def __init__(self, clock: "Clock") -> None:
        self._clock, self._next_ns = clock, 0

    def is_due(self) -> bool:
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + round(POLL_S * 1e9)
        return True


def _say(error: "ParitasError | None", path: Path) -> None:
    if error is None:
        _tell(f"reloaded {path}\n")
    else:
        complain(f"{error.render()}\n")


def _tell(text: str) -> None:
    """Say it to whoever still listens: spans come, and must be kept, whether or not anybody reads along."""
    with suppress(BrokenPipeError):
        say_now(text)


def _ready(agent: "Agent") -> str:
    served = agent.addresses
    lines = [
        ("OTLP/HTTP", served.unix),
        ("OTLP/HTTP", f"http://{served.http}/v1/traces" if served.http else ""),
        ("OTLP/gRPC", served.grpc),
        ("health", f"http://{served.health}/readyz" if served.health else ""),
        ("metrics", f"http://{served.health}/metrics" if served.health else ""),
        ("spool", str(agent.config.spool.path)),
    ]
    told = "".join(f"  {name + ':':11}{where}\n" for name, where in lines if where)
    return f"agent {agent.config.name}\n{told}ready\n"


def _farewell(agent: "Agent") -> str:
    told = agent.spool.counters()
    records = told.records
    dropped = ", ".join(f"{count} {reason}" for reason, count in records.dropped.items())
    return (
        f"stopped: {records.accepted} accepted = {records.delivered} delivered + "
        f"{sum(records.dropped.values())} dropped ({dropped or 'none'}) + {records.queued} kept in the spool\n"
    )
