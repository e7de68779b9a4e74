"""The client for asyncio: the same calls, each awaited.

    from muster.aio import Client

    client = Client()
    job = await client.submit({"command": "python3 train.py"})
    async for piece in client.logs(job):
        print(piece["text"], end="")

Calls run on threads of the loop's executor, each at most as long as the server lets it.
"""
from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterator, List, Mapping, Optional, TypeVar, cast

from . import client
from ._http import ApiError, NotFound, Unreachable
from ._routes import AsyncRoutes, new_key
from .client import ENDED

if TYPE_CHECKING:
    from . import types

__all__ = ["ApiError", "Client", "NotFound", "Unreachable"]

Item = TypeVar("Item")
AHEAD = 256  # events read before they are asked for


class Client(AsyncRoutes):
    """As muster.client.Client."""

    def __init__(self, url: Optional[str] = None, token: Optional[str] = None, *, timeout_s: float = 30.0) -> None:
        self._plain = client.Client(url, token, timeout_s=timeout_s)

    async def _call(self, method: str, path: str, **more: Any) -> Any:
        call = functools.partial(self._plain._transport.call, method, path, **more)
        return await asyncio.get_running_loop().run_in_executor(None, call)

    async def submit(self, spec: Mapping[str, Any], *, key: Optional[str] = None) -> str:
        """Submit a job; its id."""
        return cast("types.Job", await self.submit_job(dict(spec), key=key or new_key()))["id"]

    async def wait(self, job: str) -> types.Job:
        """The job once it has ended; asyncio.wait_for gives it a deadline."""
        while True:
            document = await self.get_job(job)
            if document["state"] in ENDED:
                return document
            async for _ in follow(self._plain.job(job).until_end()):
                pass

    async def events(self, job: Optional[str] = None, *, last: str = "") -> AsyncIterator[types.Event]:
        """What happens from the event `last` on, as it happens; of one job until it has ended."""
        async for event in follow(self._plain.events(job, last=last)):
            yield event

    async def logs(self, job: str, *, rank: Optional[int] = None) -> AsyncIterator[types.LogPiece]:
        """What its ranks print, in pieces, until it has ended."""
        async for piece in follow(self._plain.job(job).logs(rank=rank, follow=True)):
            yield piece


async def follow(stream: Iterator[Item]) -> AsyncIterator[Item]:
    """The events of a stream that a thread reads, AHEAD of them at most before they are taken."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[List[Any]] = asyncio.Queue()
    room, left = threading.Semaphore(AHEAD), threading.Event()

    def tell(said: List[Any]) -> None:
        try:
            loop.call_soon_threadsafe(queue.put_nowait, said)
        except RuntimeError:  # the loop was closed
            left.set()

    def read() -> None:
        said: List[Any] = [None, None]
        try:
            for event in stream:
                while not room.acquire(timeout=1.0):
                    if left.is_set():
                        return
                if left.is_set():
                    return
                tell([event, None])
        except BaseException as e:  # handed to who reads
            said = [None, e]
        finally:
            if not left.is_set():
                tell(said)

    threading.Thread(target=read, name="muster-stream", daemon=True).start()
    try:
        while True:
            event, error = await queue.get()
            if error is not None:
                raise error
            if event is None:
                return
            room.release()
            yield event
    finally:
        left.set()
