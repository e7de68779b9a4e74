"""Calls to a Muster server over the standard library: retries, several servers, streams of events."""
from __future__ import annotations

import http.client
import json
import os
import random
import ssl
import time
import urllib.parse
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

TRIES = 5               # of a call, the first one included
WAIT_S = (0.2, 10.0)    # before the second try, and at most before any
AFTER_MAX_S = 60.0      # a server that says to come later than this is not waited for
QUIET_S = 60.0          # a stream says something at least every 15 s
ANSWER_MAX = 64 << 20   # bytes
BUSY = (429, 502, 503, 504)


class ApiError(Exception):
    """The server refused a call, or failed at it. `status` is 0 where there was no answer."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        words = str(problem.get("detail") or problem.get("title") or f"status {status}")
        faults = [f"{e.get('pointer') or '(the whole)'}: {e.get('message')}" for e in problem.get("errors") or []]
        super().__init__("\n  ".join([words, *faults]))


class NotFound(ApiError):
    """There is nothing of that name, or it is not for the caller to see."""


class Unreachable(ApiError):
    """No server could be reached, or answered in time."""


class Event(NamedTuple):
    """Of a stream: its kind, its id and its text."""
    kind: str
    id: str
    data: str


def state_folder() -> str:
    given = os.environ.get("MUSTER_STATE")
    if given:
        return given
    if os.environ.get("XDG_STATE_HOME"):
        return os.path.join(os.environ["XDG_STATE_HOME"], "muster")
    return "/var/lib/muster" if os.geteuid() == 0 else os.path.expanduser("~/.local/state/muster")


def find(url: Optional[str], token: Optional[str]) -> Tuple[List[str], Optional[str]]:
    """The servers and the token: given, else of the environment, else of this machine's cluster."""
    url = url or os.environ.get("MUSTER_SERVER")
    token = token or os.environ.get("MUSTER_TOKEN")
    if not url:
        path = os.path.join(state_folder(), "server.json")
        try:
            with open(path, encoding="utf-8") as f:
                url = str(json.load(f)["url"])
        except (OSError, ValueError, KeyError) as e:
            raise Unreachable(0, {"detail": f"no server is known: {path!r} cannot be read ({e}); name one by url= or "
                                            "MUSTER_SERVER, or start one with `muster up`"}) from e
    if not token:
        try:
            with open(os.path.join(state_folder(), "token"), encoding="utf-8") as f:
                token = f.readline().strip()
        except OSError:
            token = None
    urls = [one.strip().rstrip("/") for one in url.split(",") if one.strip()]
    return [one if "://" in one else f"http://{one}" for one in urls], token


def pause(attempt: int, after: Optional[str]) -> Optional[float]:
    """Seconds to wait before the next try; None: not at all, since the server asks for too much patience."""
    if after is not None and after.isdigit():
        return float(after) if float(after) <= AFTER_MAX_S else None
    return min(WAIT_S[1], WAIT_S[0] * 2.0 ** attempt) * random.uniform(0.5, 1.0)


class Transport:
    """Calls of one client. Any thread may use it; each call has a connection of its own."""

    def __init__(self, url: Optional[str], token: Optional[str], timeout_s: float) -> None:
        self.urls, self._token = find(url, token)
        self.timeout_s = timeout_s
        self._first = 0  # the server that answered last
        self._context: Optional[ssl.SSLContext] = None

    def _open(self, url: str, timeout_s: float) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the server {url!r} is no http:// or https:// address")
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout_s)
        if self._context is None:
            self._context = ssl.create_default_context(cafile=os.environ.get("MUSTER_CACERT") or None)
        return http.client.HTTPSConnection(parts.hostname, parts.port or 443, timeout=timeout_s, context=self._context)

    def _send(self, url: str, method: str, path: str, body: Optional[bytes], headers: Mapping[str, str],
              timeout_s: float) -> Tuple[http.client.HTTPConnection, http.client.HTTPResponse, bool]:
        """The connection, the answer, and whether the answer is that of a server that leads."""
        connection = self._open(url, timeout_s)
        try:
            connection.connect()
        except OSError as e:
            connection.close()
            raise _NotSent(e) from e
        try:
            own = dict(headers)
            if self._token:
                own["Authorization"] = f"Bearer {self._token}"
            connection.request(method, path, body=body, headers=own)
            answer = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        return connection, answer, answer.status != 307

    def _anywhere(self, method: str, path: str, body: Optional[bytes], headers: Mapping[str, str], timeout_s: float,
                  again: bool) -> Tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """The answer of the first server that leads. again: a call that may have been taken may be made once more."""
        why: Exception = OSError("no server is named")
        for i in range(len(self.urls)):
            at = (self._first + i) % len(self.urls)
            try:
                connection, answer, leads = self._send(self.urls[at], method, path, body, headers, timeout_s)
            except _NotSent as e:
                why = e.why
                continue
            except (OSError, http.client.HTTPException) as e:
                why = e
                if not again:
                    raise Unreachable(0, {"detail": f"{self.urls[at]} did not answer {method} {path} ({e}); it may "
                                                    "have been done"}) from e
                continue
            if leads:
                self._first = at
                return connection, answer
            connection.close()
            why = OSError("it stands by for another")
        raise Unreachable(0, {"detail": f"cannot reach {' or '.join(self.urls)}: {why}"}) from why

    def call(self, method: str, path: str, *, query: Optional[Mapping[str, Any]] = None, body: Any = None,
             headers: Optional[Mapping[str, Optional[str]]] = None, again: bool = True) -> Any:
        """One call, made again while the server is busy or away; the document or the text of its answer."""
        target = path_of(path, query)
        data = None if body is None else json.dumps(body).encode()
        own = {"Accept": "application/json, text/plain"}
        own.update({k: v for k, v in (headers or {}).items() if v is not None})
        trace = os.environ.get("TRACEPARENT", "")  # whoever calls us is in a trace, which goes on
        if len(trace) == 55 and set(trace) <= set("0123456789abcdef-"):
            own.setdefault("traceparent", trace)
        if data is not None:
            own["Content-Type"] = "application/json"
        for attempt in range(TRIES):
            last = attempt == TRIES - 1
            try:
                connection, answer = self._anywhere(method, target, data, own, self.timeout_s, again)
            except Unreachable:
                if last or not again:
                    raise
                time.sleep(pause(attempt, None) or 0)
                continue
            try:
                content = answer.read(ANSWER_MAX + 1)
                if answer.length and len(content) <= ANSWER_MAX:  # read(n) takes an early end for the end
                    raise http.client.IncompleteRead(content, answer.length)
            except (OSError, http.client.HTTPException) as e:
                if last or not again:
                    raise Unreachable(0, {"detail": f"the answer to {method} {path} was cut: {e}"}) from e
                time.sleep(pause(attempt, None) or 0)
                continue
            finally:
                connection.close()
            if len(content) > ANSWER_MAX:
                raise ApiError(answer.status, {"detail": f"{method} {path} answers more than {ANSWER_MAX} bytes"})
            if answer.status in BUSY and (again or answer.status == 429) and not last:
                wait = pause(attempt, answer.getheader("Retry-After"))
                if wait is not None:
                    time.sleep(wait)
                    continue
            return read_answer(answer, content)
        raise AssertionError("the last try returns or raises")

    def stream(self, path: str, query: Optional[Mapping[str, Any]] = None, last: str = "",
               patience_s: float = 60.0, signs: bool = False) -> Iterator[Event]:
        """Events as they come, until the server ends the stream. After a loss of contact it goes on after the last one
        seen; a server that is away for patience_s ends it with Unreachable. signs: each sign of life is an event
        without data."""
        target, seen, attempt = path_of(path, query), last, 0
        until = time.monotonic() + patience_s
        while True:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": seen} if seen else {})}
            try:
                connection, answer = self._anywhere("GET", target, None, headers, QUIET_S, True)
                try:
                    if answer.status in BUSY:
                        raise OSError(f"status {answer.status}")
                    if answer.status != 200:
                        read_answer(answer, answer.read(ANSWER_MAX))
                    for event in read_events(answer):
                        until, attempt = time.monotonic() + patience_s, 0
                        seen = event.id or seen
                        if event.kind == "end":
                            return
                        if event.data or signs:
                            yield event
                finally:
                    connection.close()
                lost: Exception = OSError("the stream was cut")
            except (OSError, http.client.HTTPException, Unreachable) as e:
                lost = e
            if time.monotonic() > until:
                where = " or ".join(self.urls)
                raise Unreachable(0, {"detail": f"no contact with {where} for {patience_s:.0f} s: {lost}"})
            time.sleep(pause(attempt, None) or 0)
            attempt = min(attempt + 1, 5)


class _NotSent(Exception):
    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


def path_of(path: str, query: Optional[Mapping[str, Any]]) -> str:
    given = {k: str(int(v)) if isinstance(v, bool) else v for k, v in (query or {}).items() if v is not None}
    return path + ("?" + urllib.parse.urlencode(given) if given else "")


def quote(part: Union[str, int]) -> str:
    return urllib.parse.quote(str(part), safe="")


def read_answer(answer: http.client.HTTPResponse, content: bytes) -> Any:
    kind = (answer.getheader("Content-Type") or "").split(";")[0]
    text = content.decode("utf-8", "replace")
    document: Any = None
    if kind.endswith("json") and text:
        try:
            document = json.loads(text)
        except ValueError as e:
            raise ApiError(answer.status, {"detail": f"the answer is no JSON: {e}"}) from e
    if 200 <= answer.status < 300:
        return document if kind.endswith("json") else text
    problem: Dict[str, Any] = document if isinstance(document, dict) else {"detail": text[:1000] or answer.reason}
    raise (NotFound if answer.status == 404 else ApiError)(answer.status, problem)


def read_events(lines: Iterator[bytes]) -> Iterator[Event]:
    """Server-sent events, as the HTML standard has them; a comment is an event without data, as a sign of life."""
    kind, event_id, data = "", "", []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith(":"):
            yield Event("", "", "")
        elif line:
            field, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if field == "event":
                kind = value
            elif field == "id" and "\0" not in value:
                event_id = value
            elif field == "data":
                data.append(value)
        else:
            if data or kind or event_id:
                yield Event(kind or "message", event_id, "\n".join(data))
            kind, event_id, data = "", "", []
