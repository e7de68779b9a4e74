"""What of a PyTorch program is kept in a checkpoint: each tensor's name, role and place, and which rank writes what."""
from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._state import DIMS, Piece

torch: Any = importlib.import_module("torch")

WRAPPED = {"_orig_mod", "_fsdp_wrapped_module", "_fpw_module", "_checkpoint_wrapped_module"}
WHOLE = 64 << 10  # bytes: smaller tensors are written by one rank
PAGE = 4096  # cuts lie at multiples of it, so that what lies in pages can be written from there
MASTERS = ("master_param", "master", "fp32_param")  # where optimizers of others keep f32 copies
MOMENTS = {"exp_avg": "moment1", "momentum_buffer": "moment1", "exp_avg_sq": "moment2"}

TYPES: Dict[Any, str] = {getattr(torch, long): short for long, short in (
    ("float32", "f32"), ("bfloat16", "bf16"), ("float16", "f16"), ("float64", "f64"), ("int64", "i64"),
    ("int32", "i32"), ("uint8", "u8"), ("int8", "i8"), ("int16", "i16"), ("bool", "bool"),
    ("float8_e4m3fn", "f8e4m3fn"), ("float8_e5m2", "f8e5m2"), ("uint16", "u16"), ("uint32", "u32"),
    ("uint64", "u64"), ("complex64", "c64"),
    ("complex128", "c128")) if hasattr(torch, long)}
TORCH_TYPES = {short: long for long, short in TYPES.items()}


@dataclass
class Entry:
    """A tensor of the program and what it is of one in the checkpoint."""
    name: str
    role: str
    tensor: Any
    lazy: bool = False  # the optimizer alone changes it, in step(): read until then
    how: str = "row"  # who writes it. row: each rank its part of all; first: rank 0; own: each what it has
    shape: Tuple[int, ...] = ()  # of the whole
    off: Tuple[int, ...] = ()  # own: of the box that is here,
    len: Tuple[int, ...] = ()
    begin: int = 0  # or the range of it; 0, 0: all
    end: int = 0
    like: Optional[Entry] = None  # cut as this one

    @property
    def key(self) -> Tuple[str, str]:
        return self.name, self.role

    @property
    def dtype(self) -> str:
        return TYPES[self.tensor.dtype]

    @property
    def numel(self) -> int:
        n = 1
        for d in self.shape:
            n *= d
        return n


def flattened(shape: Sequence[int]) -> Tuple[int, ...]:
    """A shape as checkpoints have it: beyond six dimensions one."""
    n = 1
    for d in shape:
        n *= int(d)
    return tuple(int(d) for d in shape) if len(shape) <= DIMS else (n,)


def want(name: str, tensor: Any) -> Any:
    """TypeError where it is no tensor that can be kept."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"'{name}' is a sparse or quantised tensor, which checkpoints do not keep: make it dense")
    if tensor.device.type == "meta":
        raise TypeError(f"'{name}' has no values: it is on the device meta")
    if tensor.dtype not in TYPES:
        raise TypeError(f"'{name}' is of {tensor.dtype}, which checkpoints do not keep")
    return tensor


# --- names ------------------------------------------------------------------------------------------------------------


@dataclass
class Found:
    """The tensors of models under their names."""
    params: Dict[str, Any] = field(default_factory=dict)  # each once
    tied: Dict[str, str] = field(default_factory=dict)  # other names of these: the name that keeps it
    buffers: Dict[str, Any] = field(default_factory=dict)
    flat: List[Tuple[str, Any]] = field(default_factory=list)  # FSDP: folder of names, parameter
    name_of: Dict[int, str] = field(default_factory=dict)  # of a parameter by id()


def parallel(module: Any) -> bool:
    return isinstance(module, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel))


def clean(path: str) -> str:
    """A name without what wrappers have put into it."""
    return ".".join(part for part in path.split(".") if part and part not in WRAPPED)


def _named(modules: Mapping[str, Any]) -> Iterator[Tuple[str, Any, str]]:
    """Folder of names, module, and what stands between it and names: each module once for each of its places."""
    for prefix, top in modules.items():
        while parallel(top):
            top = top.module
        for path, module in top.named_modules(remove_duplicate=False):
            yield clean(f"{prefix}.{path}"), module, path


def as_dict(of: Any) -> Dict[str, Any]:
    """One, or several by names."""
    return {} if of is None else dict(of) if isinstance(of, Mapping) else {"": of}


def _extent(t: Any) -> Tuple[int, int]:
    begin = t.data_ptr()
    return begin, begin + (sum((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1) * t.element_size()


def _lies(t: Any) -> bool:
    """Has it an address?"""
    return not hasattr(t, "local_shards") and bool(
        t.numel() and t.device.type != "meta" and t.layout == torch.strided)


def _join(found: Found) -> None:
    """Parameters that are one in memory are kept once; those that share only a part are refused."""
    first: Dict[Any, str] = {}
    for name, p in list(found.params.items()):
        if not _lies(p):
            continue
        same = (p.data_ptr(), tuple(p.shape), p.stride(), p.dtype, p.device)
        if first.setdefault(same, name) != name:
            found.tied[name] = first[same]
            del found.params[name]
    last = ""
    reached: Tuple[str, int] = ("", 0)
    for device, (begin, end), name in sorted((str(p.device), _extent(p), name) for name, p in found.params.items()
                                             if _lies(p)):
        if reached[0] == device and begin < reached[1]:
            raise ValueError(f"parameters '{last}' and '{name}' share a part of their memory: "
                             "only those that share all of it can be kept")
        last, reached = name, (device, end)


def find(model: Any) -> Found:
    """The parameters and buffers of a model, or of several by names."""
    found = Found()
    for folder, module, _ in _named(as_dict(model)):
        where = f"{folder}." if folder else ""
        if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
            raise TypeError(f"module '{folder}' has extra state of its own, which is not kept: pass it in extra")
        for key, p in module._parameters.items():
            if p is None:
                continue
            if hasattr(p, "_prefixed_param_names"):
                if all(p is not other for _, other in found.flat):
                    found.flat.append((where, p))
                continue
            name = found.name_of.setdefault(id(p), where + key)
            if name == where + key:
                found.params[name] = p
            else:
                found.tied[where + key] = name
        for key, b in module._buffers.items():
            if b is not None and key not in module._non_persistent_buffers_set:
                found.buffers.setdefault(where + key, b)
    _join(found)
    for name in found.params:
        if name.startswith(("layout.", "extra.", "optim.")):
            raise ValueError(f"a parameter is called '{name}': names below layout, extra and optim are taken")
    return found


# --- FSDP and sharded tensors: what is here of the whole --------------------------------------------------------------


def flat_spans(names: Sequence[str], shapes: Sequence[Sequence[int]], indices: Optional[Tuple[int, int]],
               offsets: Sequence[Tuple[int, int]]) -> List[Tuple[str, Tuple[int, ...], int, int, int]]:
    """Of a FlatParameter: (name, shape, begin, end, where that begins in the local shard) for each parameter of which
    the rank has elements [begin, end). indices None: it has all of all. FSDP counts the last ones in, both ways."""
    spans, at = [], 0
    if indices is None:
        indices, offsets = (0, len(names) - 1), [(0, torch.Size(s).numel() - 1) for s in shapes]
    for i, (first, last) in zip(range(indices[0], indices[1] + 1), offsets):
        spans.append((names[i], tuple(shapes[i]), first, last + 1, at))
        at += last + 1 - first
    return spans


def flat_entries(folder: str, flat: Any, tensor: Any, role: str, suffix: str = "") -> List[Entry]:
    """The parameters in a FlatParameter; tensor: its local shard, or one of the optimizer's that lies as it does."""
    entries = []
    for name, shape, begin, end, at in flat_spans(flat._prefixed_param_names, flat._shapes,
                                                  getattr(flat, "_shard_indices", None),
                                                  getattr(flat, "_shard_param_offsets", ())):
        entries.append(Entry(folder + clean(name) + suffix, role, tensor.view(-1)[at:at + end - begin], True, "own",
                             flattened(shape), begin=begin, end=end))
    return entries


def sharded_entries(name: str, role: str, sharded: Any, lazy: bool = True) -> List[Entry]:
    """The local shards of a ShardedTensor."""
    whole = tuple(int(n) for n in sharded.metadata().size)
    if len(whole) > DIMS:
        raise TypeError(f"'{name}' is a sharded tensor of {len(whole)} dimensions: at most {DIMS} can be kept")
    return [Entry(name, role, shard.tensor, lazy, "own", whole, tuple(shard.metadata.shard_offsets),
                  tuple(shard.metadata.shard_sizes)) for shard in sharded.local_shards()]


def entries_of(name: str, role: str, tensor: Any, *, lazy: bool, how: str = "row",
               like: Optional[Entry] = None) -> List[Entry]:
    if hasattr(tensor, "local_shards"):
        return sharded_entries(name, role, tensor, lazy)
    if hasattr(tensor, "device_mesh"):
        raise TypeError(f"'{name}' is a DTensor, which is not kept yet")
    want(name, tensor)
    return [Entry(name, role, tensor, lazy, how, flattened(tensor.shape), like=like)]


# --- who writes what --------------------------------------------------------------------------------------------------


def _boundary(at: int, bytes_: int, x: int) -> int:
    """Where the border x of the row cuts a tensor that begins at `at`."""
    return 0 if x <= at else bytes_ if x >= at + bytes_ else (x - at) // PAGE * PAGE


def _cut(parts: Sequence[Entry], world: int, rank: int) -> Dict[int, Tuple[int, int]]:
    """Of each, by id(), the elements that the rank writes: all of them in order of names are one row, of which each
    rank has as many bytes as the others."""
    total = sum(e.numel * e.tensor.element_size() for e in parts)
    lo, hi = rank * total // world, (rank + 1) * total // world
    at, cuts = 0, {}
    for e in parts:
        size = e.tensor.element_size()
        bytes_ = e.numel * size
        if bytes_ < WHOLE:
            mine = lo <= at < hi or (at == total and rank == world - 1)
            cuts[id(e)] = (0, e.numel) if mine else (0, 0)
        else:
            cuts[id(e)] = (_boundary(at, bytes_, lo) // size, _boundary(at, bytes_, hi) // size)
        at += bytes_
    return cuts


def pieces_of(entries: Sequence[Entry], memory: Mapping[int, Any], world: int, rank: int) -> List[Piece]:
    """What the rank tells the writer. memory: by id() of an entry, the dense tensor of the host to be read for it."""
    row = sorted((e for e in entries if e.how == "row" and e.like is None), key=lambda e: e.key)
    cuts = _cut(row, world, rank)
    pieces = []
    for e in entries:
        t = memory[id(e)]
        begin, end, replica = e.begin, e.end, False
        if e.how == "first":
            if rank and e.role == "opaque":
                continue  # objects are rank 0's: others may have others
            replica = rank != 0
        elif e.how == "row":
            begin, end = cuts[id(e.like or e)]
            replica = begin == end and e.numel > 0
            if (begin, end) == (0, e.numel):
                begin = end = 0
        if replica:
            begin = end = 0
        elif e.how == "own" and begin == end and t.numel() == 0:
            continue
        at = begin * t.element_size() if e.how == "row" else 0
        pieces.append(Piece(e.name, e.role, e.dtype, e.shape, t.data_ptr() + at, e.off, e.len, begin, end, replica))
    return pieces
