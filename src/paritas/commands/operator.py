"""`paritas operator`: give detectors the contracts that a Kubernetes cluster holds, and tell in them how they stand."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.reaching import add_identity_options, tls_files
from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.controller.async_client import AsyncEscalationClient

__all__ = ["register"]

CONFIG_MAP = "paritas-contracts"


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "operator",
        help="follow KernelContract objects of a Kubernetes cluster",
        description="Checks each KernelContract, gives detectors those that are valid, and writes into their status "
        "whether they are enforced and violated (docs/operator.md).",
    )
    _add_contracts_options(parser)
    _add_asking_options(parser)
    parser.add_argument(
        "--health", metavar="HOST:PORT", default="", help="serve /healthz, /readyz and /metrics there"
    )
    add_identity_options(parser)
    parser.set_defaults(run=run)


def _add_contracts_options(parser: argparse.ArgumentParser) -> None:
    """Add whose contracts are followed, and where detectors find them."""
    add = parser.add_argument
    add(
        "--namespace",
        metavar="NAME",
        default="",
        help="whose contracts (default: that of the service account)",
    )
    add("--all-namespaces", action="store_true", help="those of every namespace")
    add(
        "--config-map",
        metavar="NAME",
        default=CONFIG_MAP,
        help=f"ConfigMap that detectors mount, in the namespace of each contract (default: {CONFIG_MAP})",
    )


def _add_asking_options(parser: argparse.ArgumentParser) -> None:
    """Add who is asked how contracts stand, and how often."""
    add = parser.add_argument
    add(
        "--target",
        metavar="HOST:PORT",
        default="",
        help="gRPC address of the controller, who knows the incidents",
    )
    add(
        "--detectors",
        metavar="URL",
        default="",
        help="page of a contract's detector, such as http://detect-{name}.{namespace}.svc:4323",
    )
    add(
        "--refresh-s",
        type=float,
        default=30.0,
        help="how often the controller and the detectors are asked (default: 30)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Follow until SIGINT or SIGTERM; return 0."""
    import asyncio

    from paritas.clock import SystemClock
    from paritas.controller.operator.model import Plan
    from paritas.controller.operator.watching import followed, run_operator

    _check(arguments)
    namespace = followed(arguments.namespace, all_namespaces=arguments.all_namespaces)
    plan = Plan(namespace, arguments.config_map, arguments.detectors, arguments.refresh_s)
    whose = f"of {namespace}" if namespace else "of every namespace"

    def started(page: str) -> None:
        sys.stdout.write(f"contracts {whose} go to ConfigMap {plan.config_map!r}\n")
        sys.stdout.write(f"health: http://{page}/healthz\n" if page else "")
        sys.stdout.flush()

    asyncio.run(
        run_operator(
            plan, _controller(arguments), clock=SystemClock(), health=arguments.health, started=started
        )
    )
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if not arguments.refresh_s > 0:
        raise UsageError("--refresh-s must be above 0", hint="such as --refresh-s 30")
    try:
        arguments.detectors.format(name="a", namespace="b")
    except (KeyError, IndexError, ValueError) as error:
        message = f"--detectors {arguments.detectors!r} knows {{name}} and {{namespace}} only"
        raise UsageError(message, hint="such as http://detect-{name}.{namespace}.svc:4323") from error


def _controller(arguments: argparse.Namespace) -> "AsyncEscalationClient | None":
    from paritas.controller.async_client import AsyncEscalationClient

    if not arguments.target:
        return None
    named = arguments.token_file or os.environ.get("PARITAS_TOKEN_FILE")
    token_file = Path(named) if named else None
    return AsyncEscalationClient(arguments.target, tls=tls_files(arguments), token_file=token_file)
