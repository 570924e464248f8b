"""A proxy in this process before a real engine, once it knows which one."""

from contextlib import asynccontextmanager

from proxy_scenes import replay, scene


@asynccontextmanager
async def watching(engine, **named):
    """A scene whose proxy has looked at its engine to the end: requests that come before it pass unobserved."""
    async with scene(replay(b""), engine=None, base=engine, **named) as s:
        await s.proxy.look()
        yield s
