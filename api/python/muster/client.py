"""Muster's REST surface from Python.

    from muster.client import Client

    client = Client()                  # MUSTER_SERVER and MUSTER_TOKEN, else this machine's cluster
    job = client.submit({"command": "python3 train.py", "devices": {"min": 2}})
    for line in job.logs(follow=True):
        print(line["text"], end="")
    print(job.wait()["state"])

A method for each route (`list_jobs`, `get_job`, `put_project`, ...) stands beside these, as api/openapi.yaml has them.
Calls are made again while a server is busy or away, up to 5 times; a submit carries one key through all of them, so
that the job exists once. `muster.aio` is the same for asyncio.
"""
from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Dict, Generator, Iterator, Mapping, Optional, Tuple, cast

from ._http import ApiError, NotFound, Transport, Unreachable, quote
from ._routes import Routes, new_key

if TYPE_CHECKING:
    from . import types

__all__ = ["ApiError", "Client", "Job", "NotFound", "Unreachable"]

NOW = str(2**63 - 1)  # the id of an event that is not there yet: all that have been come before it
SIGN_S = 15.0  # an open stream says something in each
POLL_S = 2.0   # between two looks at a job whose events cannot be followed
LAST_S = 10.0  # how long the last output of a job is awaited after its end
ENDED = ("succeeded", "failed", "cancelled")


class Client(Routes):
    """A server, or several that take over from each other, and who calls it. Any thread may use it."""

    def __init__(self, url: Optional[str] = None, token: Optional[str] = None, *, timeout_s: float = 30.0) -> None:
        self._transport = Transport(url, token, timeout_s)

    def submit(self, spec: Mapping[str, Any], *, key: Optional[str] = None) -> Job:
        """Submit a job. The same key twice gives the same job."""
        return Job(self, cast("types.Job", self.submit_job(dict(spec), key=key or new_key()))["id"])

    def job(self, name: str) -> Job:
        """A job that is there already, by its id."""
        return Job(self, name)

    def jobs(self, **filters: Any) -> Iterator[types.Job]:
        """All jobs that the filters of `list_jobs` name, the newest first, page after page."""
        cursor: Optional[str] = None
        while True:
            page: Any = self.list_jobs(cursor=cursor, **filters)
            yield from page["jobs"]
            cursor = page["next_cursor"]
            if not cursor:
                return

    def events(self, job: Optional[str] = None, *, last: str = "", patience_s: float = 60.0) -> Iterator[types.Event]:
        """What happens from the event `last` on, as it happens; of one job until it has ended."""
        path = f"/v1/jobs/{quote(job)}/events" if job else "/v1/events"
        for event in self._transport.stream(path, last=last, patience_s=patience_s):
            document = json.loads(event.data)
            if "id" in document and "type" in document:
                yield cast("types.Event", document)


class Job:
    """A job of a server."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.id = client, name

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def get(self) -> types.Job:
        return self.client.get_job(self.id)

    def wait(self, timeout_s: Optional[float] = None) -> types.Job:
        """The job once it has ended. TimeoutError when that is not within timeout_s."""
        until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        pause = 0.1
        while True:
            job = self.get()
            if job["state"] in ENDED:
                return job
            if until - time.monotonic() > 2 * SIGN_S:
                for _ in self.until_end():
                    if until - time.monotonic() < SIGN_S:  # the next sign may come too late
                        break
                continue
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{self.id} is {job['state']} after {timeout_s} s")
            time.sleep(min(pause, left))
            pause = min(2.0, 1.5 * pause)

    def until_end(self) -> Iterator[None]:
        """Signs of life of the server, one in SIGN_S at least, until it says that the job has ended; or a pause where
        it gives no events, as to who follows too many streams."""
        path = f"/v1/jobs/{quote(self.id)}/events"
        try:
            for _ in self.client._transport.stream(path, last=NOW, patience_s=SIGN_S, signs=True):
                yield None
        except NotFound:
            raise
        except ApiError:
            time.sleep(POLL_S)

    def logs(self, *, rank: Optional[int] = None, follow: bool = False) -> Iterator[types.LogPiece]:
        """What the ranks of the newest attempt printed, in pieces; follow: as it comes, until the job has ended."""
        known: Dict[Tuple[int, int], int] = {}  # how far each log has been given
        yield from self._rest(rank, known)
        if not follow:
            return
        for event in self.client._transport.stream(f"/v1/jobs/{quote(self.id)}/logs", {"rank": rank}):
            if event.kind == "log":
                piece: Any = json.loads(event.data)
                yield from self._gap(piece, known, piece["offset"])
                yield from fresh(piece, known)
        until = time.monotonic() + LAST_S
        while not (yield from self._rest(rank, known)) and time.monotonic() < until:
            time.sleep(0.2)

    def _rest(self, rank: Optional[int], known: Dict[Tuple[int, int], int]) -> Generator[types.LogPiece, None, bool]:
        """All that the server has and is not known; whether nothing more comes."""
        answer: Any = self.client.read_job_logs(self.id, rank=rank)
        for log in answer["logs"]:
            yield from fresh(log, known)
            yield from self._gap(log, known, log.get("size", 0))
        return bool(answer["complete"])

    def _gap(self, log: Any, known: Dict[Tuple[int, int], int], end: int) -> Iterator[types.LogPiece]:
        """What is not known of a log up to a byte, as far as the server has it."""
        key, was = (log["rank"], log["generation"]), -1
        while was < known.get(key, 0) < end:
            was = known.get(key, 0)
            answer: Any = self.client.read_job_logs(self.id, rank=key[0], generation=key[1], offset=was)
            for piece in answer["logs"]:
                yield from fresh(piece, known)

    def events(self, *, last: str = "") -> Iterator[types.Event]:
        return self.client.events(self.id, last=last)

    def metrics(self, *names: str, points: Optional[int] = None) -> types.ReadJobMetricsAnswer:
        return self.client.read_job_metrics(self.id, names=",".join(names) or None, points=points)

    def explain(self) -> types.Explain:
        return self.client.explain_job(self.id)

    def checkpoint(self) -> types.Job:
        return self.client.checkpoint_job(self.id)

    def suspend(self) -> types.Job:
        return self.client.suspend_job(self.id)

    def resume(self) -> types.Job:
        return self.client.resume_job(self.id)

    def cancel(self) -> types.Job:
        return self.client.cancel_job(self.id)

    def scale(self, *, least: Optional[int] = None, most: Optional[int] = None) -> types.Job:
        """Change how many devices it may have."""
        devices: Dict[str, int] = {k: v for k, v in (("min", least), ("max", most)) if v is not None}
        body: Any = {"devices": devices}
        return self.client.change_job(self.id, body)

    def priority(self, value: int) -> types.Job:
        body: Any = {"priority": value}
        return self.client.change_job(self.id, body)


def fresh(piece: Any, known: Dict[Tuple[int, int], int]) -> Iterator[types.LogPiece]:
    """The piece less what is known of it."""
    key, text = (piece["rank"], piece["generation"]), piece["text"].encode()
    start, end = piece["offset"], piece["offset"] + len(text)
    at = max(start, known.get(key, 0))
    if at >= end:
        return
    known[key] = end
    yield cast("types.LogPiece", {**piece, "offset": at, "text": text[at - start:].decode("utf-8", "replace")})
