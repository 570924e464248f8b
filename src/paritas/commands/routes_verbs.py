"""The verbs of `paritas routes`."""

import argparse
import json
import sys

from paritas.clock import NS_PER_S, SystemClock
from paritas.commands.reaching import reach_by_token
from paritas.commands.routes_text import (
    audit_dict,
    audit_line,
    override_dict,
    override_line,
    state_dict,
    state_lines,
)
from paritas.contracts.durations import parse_duration
from paritas.controller.route_admin import RouteAdmin
from paritas.controller.routing.model import Hold, RouteKey
from paritas.controller.routing.override import Override
from paritas.errors import UsageError

__all__ = ["expire", "override", "show"]


def show(arguments: argparse.Namespace) -> int:
    """Print what is wanted, what is so, the overrides and the newest lines of the audit log."""
    with _admin(arguments) as admin:
        states = admin.states(arguments.policy)
        overrides = admin.overrides(arguments.policy)
        audit = list(admin.audit(arguments.policy, limit=arguments.audit))[::-1]
    if arguments.json:
        told = {
            "states": [state_dict(state) for state in states],
            "overrides": [override_dict(one) for one in overrides],
            "audit": [audit_dict(entry) for entry in audit],
        }
        sys.stdout.write(json.dumps(told) + "\n")
        return 0
    lines = [line for state in states for line in state_lines(state)]
    lines += [override_line(one) for one in overrides]
    lines += [audit_line(entry) for entry in audit]
    sys.stdout.write("".join(f"{line}\n" for line in lines or ["no policy is routed here"]))
    return 0


def override(arguments: argparse.Namespace) -> int:
    """Begin an override and say its id."""
    now_ns = SystemClock().now_ns()
    asked = Override(
        override_id="",
        key=RouteKey(arguments.policy, arguments.slice),
        author=arguments.author,
        reason=arguments.reason,
        starts_ns=0,
        ends_ns=now_ns + round(_lasts_s(arguments.lasts) * NS_PER_S),
        weights=_shares("--weights", arguments.weights),
        shadow=_shares("--shadow", arguments.shadow),
        drain=frozenset(_names(arguments.drain)),
        admit=frozenset(_names(arguments.admit)),
        release=frozenset(_holds(arguments.release)),
        yields=arguments.yields,
    )
    with _admin(arguments) as admin:
        return _say(arguments, admin.override(asked))


def expire(arguments: argparse.Namespace) -> int:
    """End an override now."""
    with _admin(arguments) as admin:
        return _say(arguments, admin.expire(arguments.override, author=arguments.author))


def _say(arguments: argparse.Namespace, made: Override) -> int:
    text = json.dumps(override_dict(made)) if arguments.json else override_line(made)
    sys.stdout.write(text + "\n")
    return 0


def _admin(arguments: argparse.Namespace) -> RouteAdmin:
    reach = reach_by_token(arguments)
    return RouteAdmin(reach.target, tls=reach.tls, token_file=reach.token_file)


def _lasts_s(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        message = f"--for: {text!r} is no duration"
        raise UsageError(message, hint="write a number and a unit: 90s, 30m, 2h") from error


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _shares(option: str, text: str) -> dict[str, float]:
    shares: dict[str, float] = {}
    for part in _names(text):
        kernel, _, share = part.partition("=")
        try:
            shares[kernel] = float(share)
        except ValueError as error:
            message = f"{option}: {part!r} is no share of a kernel"
            raise UsageError(message, hint="write inference=0.5,reference=0.5") from error
    return shares


def _holds(text: str) -> list[Hold]:
    try:
        return [Hold(name) for name in _names(text)]
    except ValueError as error:
        message = f"--release: {text!r} names no hold"
        raise UsageError(message, hint=f"one of {', '.join(Hold)}") from error
