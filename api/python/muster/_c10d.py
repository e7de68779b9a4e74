"""The backend "muster" of torch.distributed: gloo, whose operations are told through the rank's flight page, so that a
run that stands still is diagnosed by them (docs/programs.md)."""
from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ._library import places
from ._run import init
from ._tensors import torch

NAME = "libmuster-flight.so.1"
RECV = 8
LOOK_S = 0.1
Bytes = Callable[[Sequence[Any]], Tuple[int, int]]  # of a call's arguments: its bytes, and what members agree on

_library: Any = None
_looked = False


def _flight() -> Any:
    """The library, where this process is a rank with a page."""
    global _library, _looked
    if not _looked:
        _looked = True
        path = next((path for path in places(NAME) if os.path.exists(path)), None)
        if path is not None and init().active:
            lib = ctypes.CDLL(path)
            lib.mflight_group_new.restype = ctypes.c_void_p
            lib.mflight_group_new.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]
            lib.mflight_begin.restype = ctypes.c_uint64
            lib.mflight_begin.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint64,
                                          ctypes.c_uint64]
            lib.mflight_end.argtypes = [ctypes.c_uint64]
            _library = lib if lib.mflight_open() else None
    return _library


def _size(tensors: Sequence[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _root(arguments: Sequence[Any]) -> int:
    return int(getattr(arguments[-1], "rootRank", 0))


def _same(which: int) -> Bytes:
    """Members have as many bytes, in the argument of that number, and the same root."""
    def found(arguments: Sequence[Any]) -> Tuple[int, int]:
        size = _size(arguments[which]) if which < len(arguments) else 0
        return size, size * 31 + _root(arguments)
    return found


def _own(arguments: Sequence[Any]) -> Tuple[int, int]:
    """Each has its own bytes, in its second argument."""
    tensors = arguments[1]
    return _size(tensors if isinstance(tensors, (list, tuple)) else [tensors]), 0


def _rooted(arguments: Sequence[Any]) -> Tuple[int, int]:
    return _own(arguments)[0], _root(arguments)


_CALLS: Dict[str, Tuple[int, Bytes]] = {  # numbers: base/ops.h
    "allreduce": (1, _same(0)), "allreduce_coalesced": (1, _same(0)), "reduce_scatter": (2, _same(0)),
    "allgather": (3, _same(1)), "allgather_coalesced": (3, _same(1)), "_allgather_base": (3, _own),
    "alltoall": (4, _own), "alltoall_base": (4, _own), "broadcast": (5, _same(0)), "barrier": (6, lambda _: (0, 0)),
    "reduce": (9, _same(0)), "gather": (10, _same(1)), "scatter": (11, lambda a: (_size(a[0]), _root(a)))}


class _UnderWay:
    """Operations that are not done, looked through whenever another begins, and by a thread. Functions that are called
    at an operation's end would let gloo's threads wait for Python's lock, and training with them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: List[Tuple[Any, int]] = []
        self._thread: Optional[threading.Thread] = None
        self._ending = threading.Event()
        atexit.register(self._ending.set)

    def begin(self, *told: Any) -> int:
        self.look()
        return int(_flight().mflight_begin(*told))

    def end(self, number: int) -> None:
        _flight().mflight_end(number)

    def follow(self, work: Any, number: int) -> None:
        with self._lock:
            self._open.append((work, number))
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="muster-c10d", daemon=True)
                self._thread.start()

    def look(self) -> None:
        with self._lock:
            done = [work.is_completed() for work, _ in self._open]
            for number in (number for (_, number), is_done in zip(self._open, done) if is_done):
                self.end(number)
            self._open = [one for one, is_done in zip(self._open, done) if not is_done]

    def _watch(self) -> None:
        while not self._ending.wait(LOOK_S):
            self.look()


_under_way = _UnderWay()


class _Receive(torch._C._distributed_c10d.Work):  # type: ignore[misc]
    """A message that is to come. The rank waits for it while the program does."""

    def __init__(self, inner: Any, told: Tuple[Any, ...]) -> None:
        super().__init__()
        self._inner, self._told = inner, told

    def wait(self, *timeout: Any) -> Any:
        number = _under_way.begin(*self._told)
        try:
            return self._inner.wait(*timeout)
        finally:
            _under_way.end(number)

    def is_completed(self) -> Any:
        return self._inner.is_completed()

    def is_success(self) -> Any:
        return self._inner.is_success()

    def exception(self) -> Any:
        return self._inner.exception()

    def source_rank(self) -> Any:
        return self._inner.source_rank()

    _source_rank = source_rank

    def synchronize(self) -> Any:
        return self._inner.synchronize()


class MusterGroup(torch.distributed.ProcessGroup):  # type: ignore[misc]
    """A process group of gloo, watched."""

    def __init__(self, inner: Any, name: str, ranks: List[int]) -> None:
        super().__init__(inner.rank(), inner.size())
        self._inner, self._ranks, self._group = inner, ranks, None
        lib = _flight()
        if lib is not None and len(ranks) > 1:
            told = f"{name} {ranks}".encode()
            key = int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "little")
            words = "world" if name in ("", "0", "default_pg") else f"group-{name}"
            self._group = lib.mflight_group_new(words.encode(), key, len(ranks))

    def _watched(self, method: str, arguments: Sequence[Any], options: Dict[str, Any]) -> Any:
        call = getattr(self._inner, method)
        if self._group is None:
            return call(*arguments, **options)
        op, of = _CALLS[method]
        size, agree = of([*arguments, *options.values()])
        number = _under_way.begin(self._group, op, -1, size, agree % (1 << 64))
        try:
            work = call(*arguments, **options)
        except BaseException:
            _under_way.end(number)
            raise
        _under_way.follow(work, number)
        return work

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        work = self._inner.recv(tensors, source, tag)
        return _Receive(work, (self._group, RECV, self._ranks[source], _size(tensors), 0)) if self._group else work

    def send(self, *arguments: Any) -> Any:
        return self._inner.send(*arguments)

    def recv_anysource(self, *arguments: Any) -> Any:
        return self._inner.recv_anysource(*arguments)

    def monitored_barrier(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.monitored_barrier(*arguments, **options)

    def _set_sequence_number_for_group(self) -> None:
        self._inner._set_sequence_number_for_group()

    def _get_sequence_number_for_group(self) -> Any:
        return self._inner._get_sequence_number_for_group()

    def getBackendName(self) -> str:
        return "muster"  # of one called "gloo" PyTorch 1.13 reads what only its own class has


def _method(name: str) -> Callable[..., Any]:
    def call(self: MusterGroup, *arguments: Any, **options: Any) -> Any:
        return self._watched(name, arguments, options)
    return call


for _name in _CALLS:
    setattr(MusterGroup, _name, _method(_name))


def _make(options: Any, _: Optional[Any] = None) -> MusterGroup:
    inner = torch.distributed.ProcessGroupGloo(options.store, options.group_rank, options.group_size,
                                               timeout=options.timeout)
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    return MusterGroup(inner, str(options.group_id or ""), ranks)


def register() -> None:
    """Let init_process_group("muster") make such groups."""
    distributed = torch.distributed
    if distributed.is_available() and not hasattr(distributed.Backend, "MUSTER"):
        distributed.Backend.register_backend("muster", _make, extended_api=True)
