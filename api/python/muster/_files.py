"""The files of docs/programs.md, as a rank writes and reads them. Wrong arguments raise ValueError or TypeError, what
the disk refuses OSError; nothing here waits for anybody."""
from __future__ import annotations

import json
import math
import operator
import os
import re
import stat
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Union

JSON = Union[None, bool, int, float, str, List["JSON"], Dict[str, "JSON"]]

LINE_BYTES = 16384
NAMES = 512
ARTIFACT_BYTES = 1 << 20
MESSAGE_BYTES = 1024
SECTION_NAME = 31
FILE_BYTES = 4096  # of an order
BEAT_BYTES = 256
ORDERS = ("none", "save", "stop", "scale", "abort")

_is_name = re.compile(r"[A-Za-z0-9_./:-]{1,128}").fullmatch
# Parts that climb or hide are no names.
_is_key = re.compile(r"(?!.{129})[A-Za-z0-9_:-][A-Za-z0-9_.:-]*(/[A-Za-z0-9_:-][A-Za-z0-9_.:-]*)*").fullmatch
_is_section = re.compile(rf"[A-Za-z0-9_./:-]{{1,{SECTION_NAME}}}").fullmatch
_CARE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Order(NamedTuple):
    """What Muster asks for: order is "none", "save", "stop", "scale" or "abort"."""

    order: str
    seq: int
    deadline: Optional[float]  # when SIGKILL follows, in seconds since 1970
    reason: str
    devices_next: Optional[int]  # of "scale"


def want_step(step: int) -> int:
    """A step, from 0, in 63 bits; what only looks like a number of steps, such as a NumPy integer, is one."""
    step = operator.index(step)
    if not 0 <= step < 1 << 63:
        raise ValueError(f"a step counts from 0: {step}")
    return step


def number(name: str, value: Any, sync: bool = False) -> float:
    """A number, or an array of no dimensions."""
    if type(value) is float or type(value) is int:
        return float(value)
    if isinstance(value, (str, bytes, bytearray)) or getattr(value, "ndim", 0) != 0:
        raise TypeError(f"the metric '{name}' wants one number, not {type(value).__name__}")
    if getattr(value, "is_cuda", False) and not sync:
        raise TypeError(f"the metric '{name}' is on a GPU: sync=True waits for it, or log a number of the step before")
    return float(value)


class Line:
    """A line of metrics.jsonl in the making: what is told of one step."""

    def __init__(self, step: int) -> None:
        self.step, self.t, self.bytes = step, time.time(), 64
        self.parts: Dict[str, str] = {}

    def add(self, values: Mapping[str, Any], sync: bool = False) -> None:
        for name, value in values.items():
            if not _is_name(name) or name in ("v", "t", "step"):
                raise ValueError(f"'{name}' is no name of a metric: 1 to 128 of A-Z a-z 0-9 _ . / : -")
            x = number(name, value, sync)
            part = repr(x) if math.isfinite(x) else "null"
            self.bytes += len(name) + len(part) + 4
            self.parts[name] = part
        if len(self.parts) > NAMES or self.bytes > LINE_BYTES:
            raise ValueError(f"a line has at most {NAMES} metrics and {LINE_BYTES} bytes")

    def takes(self, more: Line) -> bool:
        """Whether a later line is of the same step and has room here; if so it is here now."""
        if more.step != self.step or len(self.parts) + len(more.parts) > NAMES or self.bytes + more.bytes > LINE_BYTES:
            return False
        self.parts.update(more.parts)
        self.bytes += more.bytes
        return True

    def text(self) -> bytes:
        parts = "".join(f',"{name}":{part}' for name, part in self.parts.items())
        return f'{{"v":1,"step":{self.step},"t":{self.t:.6f}{parts}}}\n'.encode("ascii")


def plain(value: Any) -> JSON:
    """The same value as every reader of JSON takes it: no NaN, no infinity, no NUL, no integer beyond 64 bits."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.replace("\0", " ")
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return int(value)
    if isinstance(value, (int, float)):
        try:
            x = float(value)
        except OverflowError:
            return None
        return x if math.isfinite(x) else None
    if isinstance(value, Mapping):
        return {str(plain(str(key))): plain(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(member) for member in value]
    if hasattr(value, "__fspath__"):
        return plain(os.fsdecode(value))
    raise TypeError(f"no JSON is made of {type(value).__name__}")


def encode(value: Mapping[str, Any]) -> bytes:
    """An object on a line of its own."""
    return (json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")) + "\n").encode("utf-8", "replace")


def config_of(values: Mapping[str, Any]) -> JSON:
    """What a program was given, for people to read: what is no JSON, as a function or a class, is there as its text."""
    def leaf(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): leaf(member) for key, member in value.items()}
        if isinstance(value, (list, tuple)):
            return [leaf(member) for member in value]
        try:
            return plain(value)
        except TypeError:
            return str(value)
    if not isinstance(values, Mapping):
        raise TypeError(f"config wants a dict, as vars(args), not {type(values).__name__}")
    return plain(leaf(values))


def event_line(rank: int, kind: str, data: Mapping[str, Any]) -> bytes:
    """A line of events.jsonl."""
    if not isinstance(kind, str) or not kind:
        raise ValueError("an event has a type")
    line = encode({"rank": rank, **data, "type": kind})
    if len(line) > LINE_BYTES:
        raise ValueError(f"an event has at most {LINE_BYTES} bytes")
    return line


def parse_order(text: bytes) -> Optional[Order]:
    """An order as the agent writes it; None: it is damaged."""
    try:
        found = json.loads(text)
        seq, order, devices = found["seq"], found["order"], found.get("devices")
        when = found.get("deadline")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if type(seq) is not int or seq < 1:
        return None
    deadline = None
    if isinstance(when, str):
        from datetime import datetime  # takes time to import, and an order is rare
        try:
            deadline = datetime.fromisoformat(when.replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError):
            pass
    following = devices.get("next") if isinstance(devices, dict) else None
    reason = found.get("reason")
    return Order(order if order in ORDERS else "none", seq, deadline, reason if isinstance(reason, str) else "",
                 following if type(following) is int else None)


def _want_plain(fd: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(f"'{path}' is no plain file")


def _sync_folder(path: str) -> None:
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def publish(path: str, data: bytes, durable: bool = False) -> None:
    """Put data into a file at once or not at all; durable: until after a loss of power."""
    temp = f"{path}.{os.urandom(6).hex()}"
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CARE, 0o640)
    try:
        try:
            os.fchmod(fd, 0o640)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest):]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temp, path)
    except BaseException:
        os.unlink(temp)
        raise
    if durable:
        _sync_folder(path)


class Files:
    """Those of one rank: in the folder of the run, and in that of the job ("": there is none)."""

    def __init__(self, run: str, job: str, rank: int) -> None:
        if not 0 <= rank <= 99999:
            raise ValueError(f"RANK is no number of a rank: {rank}")
        self.run, self.job, self.rank = run, job, rank
        self._torn: Dict[str, bool] = {}  # the last line of this file is not whole

    def of_rank(self, suffix: str) -> str:
        return f"{self.run}/rank-{self.rank:05d}.{suffix}"

    def append(self, name: str, line: bytes) -> None:
        """A whole line, by one write. Where the disk is full a part may be written: the next has a line of its own."""
        path = f"{self.run}/{name}"
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _CARE, 0o640)
        try:
            _want_plain(fd, path)
            if self._torn.get(name):
                line = b"\n" + line
            if os.write(fd, line) < len(line):
                self._torn[name] = True
                raise OSError(f"the disk takes no more of '{path}'")
            self._torn[name] = False
        finally:
            os.close(fd)

    def artifact(self, kind: str, key: str, step: int, data: bytes) -> None:
        """A picture ("image": PNG or JPEG) or text ("text") in the job's folder, and the event that tells of it."""
        if kind == "text":
            ending = "txt"
        elif data.startswith(b"\x89PNG\r\n\x1a\n"):
            ending = "png"
        elif data.startswith(b"\xff\xd8\xff"):
            ending = "jpeg"
        else:
            raise ValueError("an image is PNG or JPEG")
        if not _is_key(key):
            raise ValueError(f"'{key}' is no key: parts of A-Z a-z 0-9 _ . : - between '/', none with . first")
        if len(data) > ARTIFACT_BYTES:
            raise ValueError(f"an artifact has at most {ARTIFACT_BYTES} bytes")
        path = f"artifacts/{kind}/{key}/{want_step(step)}-r{self.rank}.{ending}"
        if not self.job:
            return
        os.makedirs(os.path.dirname(f"{self.job}/{path}"), mode=0o750, exist_ok=True)
        publish(f"{self.job}/{path}", data)
        self.append("events.jsonl", event_line(self.rank, "artifact", {"step": step, "path": path}))

    def order(self) -> Optional[Order]:
        """The order that stands; None: none does."""
        path = f"{self.run}/order.json"
        try:
            fd = os.open(path, os.O_RDONLY | _CARE)
        except OSError:
            return None
        try:
            _want_plain(fd, path)
            return parse_order(os.read(fd, FILE_BYTES))
        except OSError:
            return None
        finally:
            os.close(fd)

    def ack(self, seq: int, step: int, did: str) -> None:
        publish(self.of_rank("ack"), encode({"seq": seq, "step": want_step(step), "did": did}))

    def result(self, outcome: str, step: int, kind: str = "", message: str = "") -> None:
        what: Dict[str, Any] = {"outcome": outcome, "step": want_step(step)}
        if kind:
            what["class"] = kind
        what["message"] = message.encode("utf-8", "replace")[:MESSAGE_BYTES].decode("utf-8", "ignore")
        publish(self.of_rank("result"), encode(what), durable=True)

    def beat(self, step: int, at: float, section: str = "", for_s: float = 0) -> None:
        """One call of the system writes all of it, so no reader sees half."""
        text = f'{{"step":{step},"at":{at:.6f}'
        if section:
            text += f',"section":"{section}","for_s":{math.ceil(min(for_s, 1e9))}'
        path = self.of_rank("beat")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | _CARE, 0o640)
        try:
            _want_plain(fd, path)
            os.fchmod(fd, 0o640)
            os.pwrite(fd, (text + "}").ljust(BEAT_BYTES - 1).encode("ascii") + b"\n", 0)
        finally:
            os.close(fd)

    def end_beat(self) -> None:
        try:
            os.unlink(self.of_rank("beat"))
        except FileNotFoundError:
            pass


def want_section(name: str, timeout_s: float) -> None:
    if not _is_section(name) or not timeout_s > 0:
        raise ValueError(f"a section has a name of 1 to {SECTION_NAME} of A-Z a-z 0-9 _ . / : - and a time above 0")
