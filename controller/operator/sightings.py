"""By which digest does a detector judge, if it does?  Its metrics page says it.  Needs aiohttp."""

import asyncio
import re
from collections.abc import Iterable
from http import HTTPStatus

import aiohttp

from paritas.controller.operator.model import Item, Plan, Sighting, Why

__all__ = ["digest_in", "sighting_in", "sightings"]

TIMEOUT_S = 5.0
AT_ONCE = 16  # pages asked at a time
PAGE_BYTES = 4 * 1024 * 1024
_INFO = re.compile(r'^paritas_detect_contract_info\{[^}]*?\bdigest="([0-9a-f]{32})"[^}]*\} 1', re.MULTILINE)
_READY = re.compile(r"^paritas_detect_ready(?:\{[^}]*\})? 1$", re.MULTILINE)
_TROUBLE = re.compile(r'^paritas_detect_not_ready\{[^}]*?\breason="([a-z_]+)"[^}]*\} 1$', re.MULTILINE)


def digest_in(page: str) -> str:
    """Return the digest that a detector's metrics page tells; empty if it tells none.

    Examples
    --------
    >>> digest_in('paritas_detect_contract_info{contract="a",digest="0123456789abcdef0123456789abcdef"} 1')
    '0123456789abcdef0123456789abcdef'
    """
    found = _INFO.search(page)
    return found[1] if found else ""


def sighting_in(page: str, url: str) -> Sighting:
    r"""Return what a detector's page at `url` says; one that is not ready judges by nothing.

    Examples
    --------
    >>> told = 'paritas_detect_contract_info{digest="0123456789abcdef0123456789abcdef"} 1'
    >>> page = f'{told}\nparitas_detect_ready 0\nparitas_detect_not_ready{{reason="waiting_for_log"}} 1\n'
    >>> sighting_in(page, "http://d/metrics").detail
    'http://d/metrics: the detector is not ready: waiting_for_log'
    """
    digest = digest_in(page)
    if not digest:
        return Sighting(why=Why.DIGEST_NOT_TOLD, detail=f"{url} tells no digest")
    if _READY.search(page):
        return Sighting(digest, Why.JUDGED)
    troubles = ", ".join(_TROUBLE.findall(page)) or "it does not say why"
    return Sighting(digest, Why.DETECTOR_NOT_READY, f"{url}: the detector is not ready: {troubles}")


async def sightings(plan: Plan, items: Iterable[Item]) -> dict[str, Sighting]:
    """Ask the detector of each item; return what it said by the item's uid."""
    if not plan.detectors:
        detail = "the operator was not told where detectors are (--detectors)"
        return {item.uid: Sighting(why=Why.NO_DETECTORS, detail=detail) for item in items}
    turns = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:

        async def ask(item: Item) -> tuple[str, Sighting]:
            url = plan.detectors.format(name=item.name, namespace=item.namespace)
            async with turns:
                return item.uid, await _sighting(session, f"{url.rstrip('/')}/metrics")

        return dict(await asyncio.gather(*map(ask, items)))


async def _sighting(session: aiohttp.ClientSession, url: str) -> Sighting:
    try:
        async with session.get(url) as answer:
            page, status = await _page(answer), answer.status
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        return Sighting(why=Why.DETECTOR_AWAY, detail=f"{url} does not answer: {type(error).__name__}")
    if status != HTTPStatus.OK:
        return Sighting(why=Why.DETECTOR_AWAY, detail=f"{url} answers {status}")
    return sighting_in(page, url)


async def _page(answer: aiohttp.ClientResponse) -> str:
    """The whole page, within bounds: one read gives what has arrived, and readiness stands after much else."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) >= PAGE_BYTES:
            break
    return body[:PAGE_BYTES].decode(errors="replace")
