"""Ask an engine what it is; every question may stay unanswered."""

import asyncio
from typing import Any

import aiohttp
import yarl

from paritas.collectors.openai.engines import PROBES

__all__ = ["probe"]

# vLLM collects its environment for the first /server_info: measured at several seconds on a busy machine.
PROBE_S = 30.0
ANSWER_LIMIT_BYTES = 4 << 20


async def probe(session: aiohttp.ClientSession, upstream: str) -> dict[str, Any]:
    """Return the JSON of every probe that was answered with 200, by path."""
    told = await asyncio.gather(*(_ask(session, upstream + path) for path in PROBES))
    return {path: answer for path, answer in zip(PROBES, told, strict=True) if answer is not None}


async def _ask(session: aiohttp.ClientSession, url: str) -> Any:
    timeout = aiohttp.ClientTimeout(total=PROBE_S)
    asked = session.get(yarl.URL(url, encoded=True), timeout=timeout, headers={"Accept-Encoding": "identity"})
    try:
        async with asked as answer:
            if answer.status != 200 or (answer.content_length or 0) > ANSWER_LIMIT_BYTES:
                return None
            return await answer.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError, OSError, RecursionError):
        return None
