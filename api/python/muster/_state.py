"""libmuster-state.so.1 by ctypes: loaded at the first use, its errors as exceptions. docs/programs.md has its calls."""
from __future__ import annotations

import ctypes
import errno
import json
import os
import threading
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

from ._library import places

NAME = "libmuster-state.so.1"
DIMS = 6
ROLES = ("master", "weight", "moment1", "moment2", "optimizer", "ema", "gradient", "buffer", "opaque")
TYPES = ("f32", "bf16", "f16", "f64", "i64", "i32", "u8", "i8", "i16", "bool", "f8e4m3fn", "f8e5m2", "u16", "u32",
         "u64", "c64", "c128")


class MusterError(OSError):
    """What Muster's libraries report: errno and words."""

    def __str__(self) -> str:
        return str(self.strerror)


class NotFound(MusterError):
    """There is no such checkpoint or tensor."""


class Corrupt(MusterError):
    """A checkpoint is damaged."""


class Superseded(MusterError):
    """A newer run of the job writes here: this one does no more."""


class DiskFull(MusterError):
    """The disk, or a quota or limit on it, takes no more."""


_KINDS: Dict[int, Type[Exception]] = {
    errno.ENOENT: NotFound, errno.EBADMSG: Corrupt, errno.ESTALE: Superseded, errno.ENOSPC: DiskFull,
    errno.EDQUOT: DiskFull, errno.EFBIG: DiskFull, errno.ETIMEDOUT: TimeoutError, errno.EINVAL: ValueError,
    errno.E2BIG: ValueError}


def error_of(code: int, words: str) -> Exception:
    """The exception for a negative errno of a library."""
    kind = _KINDS.get(-code, MusterError)
    return ValueError(words) if kind is ValueError else kind(-code, words)


class _Buffer(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("role", c_int32), ("dtype", c_int32), ("ndim", c_int32), ("name", c_char_p),
                ("shape", c_uint64 * DIMS), ("off", c_uint64 * DIMS), ("len", c_uint64 * DIMS),
                ("sub_begin", c_uint64), ("sub_end", c_uint64), ("data", c_void_p), ("bucket", c_int32),
                ("replica", c_uint32)]


class _Options(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("rank", c_int32), ("world", c_int32), ("keep", c_int32),
                ("keep_every", c_uint64), ("dir", c_char_p), ("codec", c_char_p), ("generation", c_uint64),
                ("pool_bytes", c_uint64), ("mode", c_int32), ("timeout_s", c_int32)]


class _SequenceOptions(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("replicas", c_int32), ("ranks", c_int32), ("micro", c_int32),
                ("policy", c_char_p), ("capacity", c_int64), ("seed", c_uint64), ("hidden", c_int64),
                ("kv_hidden", c_int64), ("layers", c_int64), ("flops_per_s", c_double), ("micro_s", c_double),
                ("lin_s", c_double), ("quad_s", c_double)]


class _Site(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("tensor", c_uint32), ("step", c_uint32), ("micro", c_uint32), ("seed", c_uint64),
                ("offset", c_uint64)]


class _Parts(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("own_type", c_int32), ("blocks", POINTER(c_void_p)), ("n", c_size_t),
                ("len", c_size_t), ("own", c_void_p)]


_TEXT = POINTER(c_void_p)
_FLAGS = POINTER(c_uint32)
_CALLS: Dict[str, Tuple[Any, Sequence[Any]]] = {
    "mstate_last_error": (c_char_p, []),
    "mstate_text_free": (None, [c_void_p]),
    "mstate_writer_new": (c_int, [POINTER(_Options), POINTER(_Buffer), c_size_t, POINTER(c_void_p)]),
    "mstate_writer_begin": (c_int, [c_void_p, c_uint64, c_char_p, c_uint32]),
    "mstate_writer_gate": (c_int, [c_void_p, c_int32]),
    "mstate_writer_abandon": (c_int, [c_void_p, c_uint64, c_char_p]),
    "mstate_writer_drain": (c_int, [c_void_p, c_int64]),
    "mstate_writer_next_done": (c_int, [c_void_p, _TEXT]),
    "mstate_writer_free": (None, [c_void_p]),
    "mstate_list": (c_int, [c_char_p, _TEXT]),
    "mstate_open": (c_int, [c_char_p, c_uint64, POINTER(c_void_p)]),
    "mstate_free": (None, [c_void_p]),
    "mstate_inspect": (c_int, [c_void_p, c_uint32, _TEXT]),
    "mstate_load": (c_int, [c_void_p, POINTER(_Buffer), c_size_t]),
    "morder_index": (c_uint64, [c_uint64, c_uint64, c_uint64]),
    "mseq_plan": (c_int, [POINTER(_SequenceOptions), POINTER(c_int64), c_size_t, _TEXT]),
    "mseq_free": (None, [c_void_p]),
    "mcodec_find": (c_int, [c_char_p, POINTER(c_void_p)]),
    "mcodec_group": (c_size_t, [c_void_p]),
    "mcodec_size": (c_size_t, [c_void_p, c_size_t]),
    "mcodec_encode": (c_int, [c_void_p, POINTER(_Site), c_int32, c_void_p, c_size_t, c_void_p, _FLAGS]),
    "mcodec_decode": (c_int, [c_void_p, c_void_p, c_size_t, c_int32, c_void_p, c_size_t, _FLAGS]),
    "mcodec_reduce": (c_int, [c_void_p, POINTER(_Parts), c_int32, c_void_p, c_size_t, _FLAGS]),
    "mcodec_reduce_encode": (c_int, [c_void_p, POINTER(_Parts), c_void_p, POINTER(_Site), c_void_p, c_size_t, _FLAGS]),
}

_lock = threading.Lock()
_library: Optional[Any] = None


def _load() -> Any:
    tried = places(NAME)
    path = next((path for path in tried if os.path.exists(path)), NAME)
    try:
        lib = ctypes.CDLL(path, mode=getattr(os, "RTLD_LOCAL", 0))
    except OSError as e:
        raise MusterError(errno.ELIBACC, f"{NAME} cannot be loaded from {' or '.join(tried)}; MUSTER_LIB tells where "
                                         f"it is: {e}") from None
    for name, (result, arguments) in _CALLS.items():
        call = getattr(lib, name)
        call.restype, call.argtypes = result, arguments
    return lib


def library() -> Any:
    """The library, its prototypes declared. Calls let other threads run meanwhile."""
    global _library
    with _lock:
        if _library is None:
            _library = _load()
        return _library


def check(code: int) -> int:
    """The result of a call, or the exception that it stands for."""
    if code < 0:
        raise error_of(code, library().mstate_last_error().decode("utf-8", "replace"))
    return code


def _take_json(text: c_void_p, free: str = "mstate_text_free") -> Any:
    try:
        return json.loads(ctypes.string_at(text.value or 0))
    finally:
        getattr(library(), free)(text)


# --- checkpoints ------------------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """Memory that holds elements [begin, end) of a box of a tensor; end 0: the whole box."""
    name: str
    role: str
    dtype: str
    shape: Tuple[int, ...]
    data: int
    off: Tuple[int, ...] = ()
    len: Tuple[int, ...] = ()
    begin: int = 0
    end: int = 0
    replica: bool = False


def _buffers(pieces: Sequence[Piece]) -> Any:
    array = (_Buffer * max(len(pieces), 1))()
    for b, p in zip(array, pieces):
        b.size, b.ndim = ctypes.sizeof(_Buffer), len(p.shape)
        b.role, b.dtype = ROLES.index(p.role), TYPES.index(p.dtype)
        b.name, b.data, b.sub_begin, b.sub_end, b.replica = p.name.encode(), p.data, p.begin, p.end, p.replica
        for d, n in enumerate(p.shape):
            b.shape[d] = n
            b.off[d] = p.off[d] if p.off else 0
            b.len[d] = p.len[d] if p.len else n
    return array


class Writer:
    """A checkpoint writer for pieces whose memory stays; of one thread at a time."""

    def __init__(self, pieces: Sequence[Piece], folder: str, *, rank: int, world: int, generation: int, keep: int,
                 keep_every: int, codec: str, pool_bytes: int) -> None:
        self._lib = library()
        self._handle = c_void_p()
        self._pid = os.getpid()
        options = _Options(size=ctypes.sizeof(_Options), rank=rank, world=world, keep=keep, keep_every=keep_every,
                           dir=os.fsencode(folder), codec=codec.encode(), generation=generation,
                           pool_bytes=pool_bytes)
        check(self._lib.mstate_writer_new(options, _buffers(pieces), len(pieces), ctypes.byref(self._handle)))

    def begin(self, step: int, cursor: bytes, *, sync: bool = False) -> bool:
        """False where two are under way."""
        r = self._lib.mstate_writer_begin(self._handle, step, cursor, 1 if sync else 0)
        return r != -errno.EBUSY and check(r) == 0

    def gate(self) -> None:
        self._lib.mstate_writer_gate(self._handle, -1)

    def abandon(self, step: int, why: str) -> None:
        self._lib.mstate_writer_abandon(self._handle, step, why.encode())

    def drain(self, timeout_s: float) -> None:
        check(self._lib.mstate_writer_drain(self._handle, int(timeout_s * 1000)))

    def next_done(self) -> Optional[Dict[str, Any]]:
        text = c_void_p()
        if not check(self._lib.mstate_writer_next_done(self._handle, ctypes.byref(text))):
            return None
        done: Dict[str, Any] = _take_json(text)
        return done

    def close(self) -> None:
        handle, self._handle = self._handle, c_void_p()
        if os.getpid() == self._pid:  # a child has none of its threads
            self._lib.mstate_writer_free(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


def listing(folder: str) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """The whole checkpoints of a folder, and why newer ones are none."""
    text = c_void_p()
    check(library().mstate_list(os.fsencode(folder), ctypes.byref(text)))
    found = _take_json(text)
    return found["checkpoints"], found["skipped"]


class Reader:
    """A committed checkpoint."""

    def __init__(self, folder: str, step: int) -> None:
        self._lib = library()
        self._handle = c_void_p()
        check(self._lib.mstate_open(os.fsencode(folder), step, ctypes.byref(self._handle)))

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        handle, self._handle = self._handle, c_void_p()
        self._lib.mstate_free(handle)

    def inspect(self) -> Dict[str, Any]:
        text = c_void_p()
        check(self._lib.mstate_inspect(self._handle, 1, ctypes.byref(text)))
        found: Dict[str, Any] = _take_json(text)
        return found

    def load(self, pieces: Sequence[Piece]) -> None:
        check(self._lib.mstate_load(self._handle, _buffers(pieces), len(pieces)))


# --- samples ----------------------------------------------------------------------------------------------------------


def order_index(seed: int, i: int, n: int) -> int:
    """The sample, below n, that has number i since the run began: each epoch of n has an order of its own."""
    if n < 1 or i < 0:
        raise ValueError(f"sample {i} of {n} is none")
    found: int = library().morder_index(seed & (1 << 64) - 1, i, n)
    return found


def plan(tokens: Sequence[int], *, replicas: int, capacity: int, policy: str = "sweep", seed: int = 0, ranks: int = 1,
         micro: int = 0, **cost: float) -> Dict[str, Any]:
    """Lay sequences of so many tokens out over replicas and micro-batches: the document of docs/sequence.md. cost:
    hidden, kv_hidden, layers, flops_per_s, micro_s; or lin_s, quad_s, micro_s."""
    options = _SequenceOptions(size=ctypes.sizeof(_SequenceOptions), replicas=replicas, ranks=ranks, micro=micro,
                               policy=policy.encode(), capacity=capacity, seed=seed & (1 << 64) - 1, **cost)
    text = c_void_p()
    check(library().mseq_plan(options, (c_int64 * len(tokens))(*tokens), len(tokens), ctypes.byref(text)))
    found: Dict[str, Any] = _take_json(text, "mseq_free")
    return found


# --- codecs -----------------------------------------------------------------------------------------------------------


class Site(NamedTuple):
    """The place of a run of values: chance in rounding depends on it alone."""
    seed: int
    tensor: int
    step: int
    micro: int
    offset: int


class Codec:
    """One of docs/compression.md. Values lie at addresses, in memory that the caller keeps; of f32, or of bf16."""

    def __init__(self, name: str) -> None:
        self._lib = library()
        self._codec = c_void_p()
        self.name = name
        self._flags = c_uint32()
        check(self._lib.mcodec_find(name.encode(), ctypes.byref(self._codec)))

    @property
    def group(self) -> int:
        return int(self._lib.mcodec_group(self._codec))

    def size(self, n: int) -> int:
        """Bytes of a block of n values."""
        return int(self._lib.mcodec_size(self._codec, n))

    def take_flags(self) -> bool:
        """Whether some value since the last call was not finite."""
        found, self._flags.value = self._flags.value, 0
        return found != 0

    @staticmethod
    def _site(site: Site) -> _Site:
        return _Site(ctypes.sizeof(_Site), site.tensor, site.step & 0xFFFFFFFF, site.micro, site.seed, site.offset)

    def encode(self, site: Site, values: int, n: int, block: int, *, bf16: bool = False) -> None:
        check(self._lib.mcodec_encode(self._codec, self._site(site), bf16, values, n, block, self._flags))

    def decode(self, block: int, values: int, n: int, *, bf16: bool = False) -> None:
        check(self._lib.mcodec_decode(self._codec, block, self.size(n), bf16, values, n, self._flags))

    def _parts(self, blocks: Sequence[Optional[int]], own: int, n: int, bf16: bool) -> _Parts:
        array = (c_void_p * len(blocks))(*blocks)
        return _Parts(ctypes.sizeof(_Parts), bf16, array, len(blocks), self.size(n), own)

    def reduce(self, blocks: Sequence[Optional[int]], own: int, values: int, n: int, *, bf16: bool = False) -> None:
        """The sum of blocks, in their order; own values, of f32 or bf16, stand for the one that is None."""
        check(self._lib.mcodec_reduce(self._codec, self._parts(blocks, own, n, bf16), 0, values, n, self._flags))

    def reduce_encode(self, blocks: Sequence[Optional[int]], own: int, to: Codec, site: Site, block: int, n: int, *,
                      bf16: bool = False) -> None:
        """The same, coded again with a codec of the same transform."""
        check(self._lib.mcodec_reduce_encode(self._codec, self._parts(blocks, own, n, bf16), to._codec,
                                             self._site(site), block, n, self._flags))
