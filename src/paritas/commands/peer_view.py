"""`paritas watch --peers`: what other frameworks would print of the latest sequences of a running instance."""

import http.client
import re
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping

from paritas.clock import Clock
from paritas.commands.places import DataFolder
from paritas.errors import TransientError, UsageError

__all__ = ["follow_peers", "page_of", "peer_lines", "peer_values"]

SAMPLE = re.compile(
    r'paritas_rosetta\{contract="(?:[^"\\]|\\.)*",peer="(\w+)",metric="((?:[^"\\]|\\.)*)"\} (\S+)'
)
COUNT = re.compile(r"^paritas_rosetta_sequences\{.*\} (\d+)$", re.MULTILINE)
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
TIMEOUT_S = 5.0
LIMIT_BYTES = 4 << 20


def page_of(told: str, folder: DataFolder) -> str:
    """Return the address of the metrics page: the one given, else that of the running instance.

    Raises
    ------
    UsageError
        Nothing runs there, or it serves no metrics.
    """
    address = told or folder.running().metrics
    if not address:
        message = f"the instance on {folder.root} serves no metrics"
        raise UsageError(message, hint="start it with `paritas up --metrics 127.0.0.1:0`")
    return address if "://" in address else f"http://{address}/metrics"


def follow_peers(page: str, *, clock: Clock, every_s: float, count: int) -> None:
    """Print the numbers every `every_s` seconds, `count` times (0: for ever).

    Raises
    ------
    TransientError
        The page does not answer.
    UsageError
        It is no HTTP address.
    """
    seen, never = 0, threading.Event()
    while not count or seen < count:
        if seen:
            clock.wait(never, timeout_s=every_s)
        text = _fetched(page)
        sys.stdout.write("\n".join(peer_lines(peer_values(text), _sequences(text))) + "\n\n")
        sys.stdout.flush()
        seen += 1


def _fetched(page: str) -> str:
    if not page.startswith(("http://", "https://")):
        raise UsageError(f"--metrics is {page!r}", hint="write HOST:PORT or http://HOST:PORT/metrics")
    try:
        with urllib.request.urlopen(page, timeout=TIMEOUT_S) as answer:  # noqa: S310 -- http or https, checked
            body: bytes = answer.read(LIMIT_BYTES)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = str(error.reason if isinstance(error, urllib.error.URLError) else error).strip()
        raise TransientError(f"{page}: {reason}", hint="is it up, with --metrics?") from error
    return body.decode(errors="replace")


def _sequences(text: str) -> int:
    found = COUNT.search(text)
    return int(found[1]) if found else 0


def peer_values(text: str) -> dict[tuple[str, str], float]:
    """Return (peer, metric) → value of a metrics page.

    Examples
    --------
    >>> peer_values('paritas_rosetta{contract="c",peer="trl",metric="a/b"} NaN')
    {('trl', 'a/b'): nan}
    """
    return {(peer, _plain(metric)): float(value) for peer, metric, value in SAMPLE.findall(text)}


def _plain(metric: str) -> str:
    return re.sub(r"\\.", lambda found: ESCAPES.get(found[0], found[0]), metric)


def peer_lines(values: Mapping[tuple[str, str], float], sequences: int) -> list[str]:
    """Return the table, one peer after another.

    Examples
    --------
    >>> for line in peer_lines({("trl", "a"): 0.25}, 3): print(line)
    as others would print the latest 3 sequences
    trl
      a  0.25
    """
    lines = [f"as others would print the latest {sequences} sequences"]
    width = max((len(metric) for _, metric in values), default=0)
    last = ""
    for (peer, metric), value in values.items():
        lines += [peer] if peer != last else []
        lines.append(f"  {metric:<{width}}  {value:.4g}")
        last = peer
    return lines
