"""Hold an asynchronous resource open from ordinary code, on an event loop in a thread."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import TypeVar

__all__ = ["running"]

T = TypeVar("T")


@contextmanager
def running(resource: AbstractAsyncContextManager[T], *, name: str) -> Iterator[T]:
    """Enter `resource` on a loop in a thread called `name`; leave it at the end of the block.

    What entering or leaving raises is raised here.
    """
    entered: Future[tuple[T, Callable[[], object]]] = Future()
    with ThreadPoolExecutor(1, thread_name_prefix=name) as thread:
        held = thread.submit(asyncio.run, _hold(resource, entered))
        value, leave = entered.result()
        try:
            yield value
        finally:
            leave()
            held.result()


async def _hold(
    resource: AbstractAsyncContextManager[T], entered: Future[tuple[T, Callable[[], object]]]
) -> None:
    leaving = asyncio.Event()
    leave = partial(asyncio.get_running_loop().call_soon_threadsafe, leaving.set)
    try:
        async with resource as value:
            entered.set_result((value, leave))
            await leaving.wait()
    except BaseException as error:
        if entered.done():
            raise
        entered.set_exception(error)
