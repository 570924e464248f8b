"""`paritas proxy`: observe an OpenAI-compatible server from the outside."""

import argparse
import asyncio
import os
import signal
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.collectors.emitter import EmitterReading
    from paritas.collectors.openai.proxy import Proxy
    from paritas.collectors.openai.proxy_settings import ProxySettings
    from paritas.collectors.settings import CollectorSettings

__all__ = ["register", "settings_of", "upstream_of"]

ENGINES = ("vllm", "sglang", "llama.cpp", "other")
SEMANTICS = ("raw", "temperature_only", "processed")
ROLES = ("inference", "reference")


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "proxy",
        help="observe an OpenAI-compatible server from the outside",
        description="Passes requests to a server and answers back, asks it for log-probabilities and token ids on the "
        "way, takes them out again, and sends traces to the agent. Clients see what they would have seen without it. "
        "/paritas/healthz and /paritas/metrics are its own.",
    )
    parser.add_argument("--upstream", metavar="URL", required=True, help="the server, http:// or https://")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default="127.0.0.1:8090", help="default: 127.0.0.1:8090"
    )
    parser.add_argument(
        "--data", type=Path, help="folder of a running `paritas up`: its socket and token key"
    )
    parser.add_argument("--agent", metavar="TARGET", help="unix:/path or http://host:port of the agent")
    parser.add_argument("--token-key", metavar="FILE", type=Path, help="secret that names tokens")
    parser.add_argument("--run", dest="run_id", metavar="ID", help="run of requests that name none")
    _add_observing(parser)
    parser.set_defaults(run=run)


def _add_observing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--share",
        metavar="NUMBER",
        help="share of sequences observed that ask for no log-probabilities (default: 0.05)",
    )
    parser.add_argument("--top-k", type=int, default=0, help="most likely tokens to ask for (default: 0)")
    parser.add_argument("--engine", choices=ENGINES, help="what the server is (default: as it says)")
    parser.add_argument(
        "--semantics", choices=SEMANTICS, help="law of its log-probabilities, if it is not told"
    )
    parser.add_argument("--role", choices=ROLES, default="inference", help="default: inference")
    parser.add_argument("--weights-version", metavar="VERSION", help="where the server tells none")
    parser.add_argument(
        "--attribute", metavar="KEY=VALUE", action="append", default=[], help="add to every trace"
    )
    parser.add_argument("--ca", metavar="FILE", type=Path, help="authorities of an https:// server")


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return 0."""
    import aiohttp  # noqa: F401 -- first, so that the extra is named where it is missing

    from paritas.clock import SystemClock
    from paritas.collectors.emitter import Emitter
    from paritas.collectors.openai.proxy import Proxy
    from paritas.collectors.settings import hasher_of, settings_from

    told = settings_from(_environ(arguments, os.environ))
    settings = settings_of(arguments, told)
    host, port = _address(arguments.listen)
    hasher, clock = hasher_of(told), SystemClock()
    resource = {"service.name": "paritas-proxy"}
    with Emitter(told.agent, clock=clock, limits=told.limits, resource=resource) as emitter:
        proxy = Proxy(settings, clock=clock, emitter=emitter, hasher=hasher)
        asyncio.run(_serve(proxy, host, port, upstream=settings.upstream))
        emitter.close(timeout_s=told.limits.exit_s)
        sys.stdout.write(_farewell(emitter.read()))
    return 0


def _environ(arguments: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables, overruled by the command line; the user's own `paritas up` if nothing else is named."""
    from paritas.commands.places import default_folder

    given = {
        "PARITAS_DATA": arguments.data,
        "PARITAS_AGENT": arguments.agent,
        "PARITAS_TOKEN_KEY_FILE": arguments.token_key,
        "PARITAS_RUN_ID": arguments.run_id,
        "PARITAS_SHARE": arguments.share,
        "PARITAS_WEIGHTS_VERSION": arguments.weights_version,
    }
    merged = {**environ, **{name: str(value) for name, value in given.items() if value is not None}}
    folder = default_folder(environ)
    if not merged.get("PARITAS_DATA") and folder.is_dir():
        merged["PARITAS_DATA"] = str(folder)
    return merged


def settings_of(arguments: argparse.Namespace, told: "CollectorSettings") -> "ProxySettings":
    """Return the proxy's settings from the command line and the environment.

    Raises
    ------
    UsageError
        An option is wrong.
    """
    from paritas.collectors.openai.engines import Engine
    from paritas.collectors.openai.proxy_settings import ProxySettings
    from paritas.records import LogprobSemantics, Role

    if not 0 <= arguments.top_k <= 1024:
        raise UsageError(f"--top-k is {arguments.top_k}", hint="write a number from 0 to 1024")
    return ProxySettings(
        upstream_of(arguments.upstream),
        run_id=told.run_id,
        share=told.share,
        top_k=arguments.top_k,
        role=Role(arguments.role),
        engine=Engine(arguments.engine) if arguments.engine else None,
        semantics=LogprobSemantics(arguments.semantics) if arguments.semantics else None,
        weights_version=told.weights_version,
        attributes={**told.attributes, **dict(map(_attribute, arguments.attribute))},
        tls=_tls(arguments.ca),
    )


def upstream_of(text: str) -> str:
    """Return the base URL without a slash at its end.

    Raises
    ------
    UsageError
        It is no HTTP address.

    Examples
    --------
    >>> upstream_of("http://127.0.0.1:8000/")
    'http://127.0.0.1:8000'
    """
    try:
        found = urlsplit(text)
        is_fine = found.scheme in ("http", "https") and found.hostname and (found.port or 1)
    except ValueError:
        is_fine = False
    if not is_fine or "?" in text or "#" in text or "@" in text:
        raise UsageError(f"--upstream is {text!r}", hint="write http://HOST:PORT or https://HOST:PORT")
    return text.rstrip("/")


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen is {text!r}", hint="write HOST:PORT, such as 127.0.0.1:8090")
    return host.strip("[]"), int(port)


def _attribute(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"--attribute {text!r} is not KEY=VALUE")
    return key, value


def _tls(path: Path | None) -> ssl.SSLContext | None:
    if path is None:
        return None
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or "no certificate in PEM form"
        raise UsageError(f"--ca {path}: cannot be read: {reason}", hint="name a PEM file") from error


async def _serve(proxy: "Proxy", host: str, port: int, *, upstream: str) -> None:
    """Serve until a signal comes; requests under way have ten seconds to end."""
    from aiohttp import web

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = proxy.runner()
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except (OSError, UnicodeError) as error:
            reason = (
                (error.strerror or str(error)) if isinstance(error, OSError) else "not the name of a host"
            )
            raise UsageError(f"--listen {host}:{port}: {reason}", hint="choose a free port") from error
        sys.stdout.write(_ready(proxy, runner, upstream))
        sys.stdout.flush()
        await stop.wait()
    finally:
        await runner.cleanup()


def _ready(proxy: "Proxy", runner: object, upstream: str) -> str:
    bound_host, bound_port = runner.addresses[0][:2]  # type: ignore[attr-defined]  # an AppRunner, not imported here
    listening = f"http://{f'[{bound_host}]' if ':' in bound_host else bound_host}:{bound_port}"
    facts = proxy.facts
    engine = f"{facts.engine} {facts.version}".strip() if facts else "unknown yet: requests pass unobserved"
    lines = [
        ("listening", listening),
        ("upstream", upstream),
        ("engine", engine),
        ("metrics", f"{listening}/paritas/metrics"),
    ]
    return "proxy\n" + "".join(f"  {name + ':':11}{where}\n" for name, where in lines) + "ready\n"


def _farewell(told: "EmitterReading") -> str:
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(told.dropped.items()))
    return (
        f"stopped: {told.accepted} traces accepted = {told.delivered} delivered + "
        f"{sum(told.dropped.values())} dropped ({dropped or 'none'})\n"
    )
