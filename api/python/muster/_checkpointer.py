"""Checkpoints of PyTorch programs by Muster's own writer: muster.torch.Checkpointer."""
from __future__ import annotations

import atexit
import errno
import json
import os
import sys
import time
import types
import warnings
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _random, _run
from ._objects import LIMIT, pack, unpack
from ._state import Corrupt, MusterError, NotFound, Piece, Reader, Superseded, Writer, error_of, listing
from ._tensors import (MASTERS, MOMENTS, PAGE, TORCH_TYPES, TYPES, Entry, Found, as_dict, clean, entries_of, find,
                       flat_entries, flattened, parallel, pieces_of, torch)

POOL = 256 << 20  # at most, of memory for copies
PATIENCE_S = 300.0  # for a save that was begun
AT_END_S = 60.0


_all: weakref.WeakSet[Checkpointer] = weakref.WeakSet()
_busy: set[Checkpointer] = set()  # they live on until what is under way is done


class Save:
    """A checkpoint that was asked for."""

    def __init__(self, owner: Checkpointer, step: int) -> None:
        self._owner = owner
        self.step = step
        self.done = False  # committed on rank 0, written on others; or given up: error tells why
        self.error: Optional[Exception] = None
        self.path = ""
        self.bytes = 0
        self.seconds = 0.0

    def wait(self, timeout_s: float = PATIENCE_S) -> None:
        """Until it is done; raises what ended it. The state is let be until then."""
        self._owner._await(self, timeout_s)
        if self.error is not None:
            raise self.error


class Loaded(NamedTuple):
    """What was loaded."""
    step: int
    path: str
    extra: Any
    sampler: Any
    notes: List[str]  # what is not as it was, as random numbers in another world


class _Held(NamedTuple):
    """What a save reads until the gate: the tensors, and how often each had been changed."""
    step: int
    tensors: List[Tuple[str, Any, int]]


def _state_of(thing: Any) -> Any:
    """What there is to keep of a scheduler or the like. Functions in it stay as the program makes them."""
    state = thing.state_dict() if hasattr(thing, "state_dict") else thing
    if isinstance(state, dict):
        return {k: v for k, v in state.items() if not isinstance(v, (types.FunctionType, types.MethodType))}
    return state


class Checkpointer:
    """Saves and loads the state of a training program. All ranks call alike. dir: one for all ranks, by default the
    job's. keep: the newest that stay, at least 2; those whose step keep_every divides stay too. codec: none, plane,
    zstd, lz4, auto. adopt: parameters and moments are moved into memory from which they are written without a copy;
    make the Checkpointer and call adopt(model) before DistributedDataParallel wraps it. group: the process group,
    by default all. allow_pickle: objects that nothing else keeps are pickled, and pickles are loaded; they may run
    any code."""

    def __init__(self, dir: Union[str, os.PathLike[str], None] = None, *, keep: int = 3, keep_every: int = 0,
                 codec: str = "none", adopt: bool = False, group: Any = None, allow_pickle: bool = False) -> None:
        if keep < 2:
            raise ValueError("at least 2 checkpoints are kept")
        self._run = _run.init()
        self.dir = Path(dir) if dir is not None else self._run.checkpoint_dir
        self._keep, self._keep_every, self._codec, self._group = keep, keep_every, codec, group
        self._adopts, self._pickles = adopt, allow_pickle
        self._writer: Optional[Writer] = None
        self._signature: Any = None
        self._generation: Optional[int] = None
        self._staged: Dict[Any, Any] = {}
        self._arenas: Dict[Any, Any] = {}
        self._held: Optional[_Held] = None
        self._saves: List[Save] = []
        self._over: Optional[Exception] = None  # a newer run writes here
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()
        self._told: set[str] = set()
        self._pid = os.getpid()
        _all.add(self)

    # --- ranks ------------------------------------------------------------------------------------------------------

    def _place(self) -> Tuple[int, int]:
        """Rank and world."""
        dist = torch.distributed
        if dist.is_available() and dist.is_initialized():
            return int(dist.get_rank(self._group)), int(dist.get_world_size(self._group))
        if int(os.environ.get("WORLD_SIZE", "1") or 1) > 1:
            raise RuntimeError("WORLD_SIZE says that there are several ranks: call torch.distributed."
                               "init_process_group() before a checkpoint")
        return 0, 1

    def _most(self, value: int) -> int:
        """The largest value of any rank; all call."""
        if self._place()[1] == 1:
            return value
        dist = torch.distributed
        device = "cuda" if dist.get_backend(self._group) == "nccl" else "cpu"
        word = torch.tensor([value], dtype=torch.int64, device=device)
        dist.all_reduce(word, op=dist.ReduceOp.MAX, group=self._group)
        return int(word.item())

    def _want_generation(self, rank: int) -> int:
        """Which attempt of the job this is: writers of older ones commit no more."""
        if self._generation is None:
            told = os.environ.get("MUSTER_GENERATION", "") if self._run.active else ""
            newest = 0
            if not told.isdecimal() and rank == 0:
                try:
                    newest = int((self.dir / ".generation").read_text(encoding="ascii"))
                except (OSError, ValueError):
                    pass
            self._generation = int(told) if told.isdecimal() else self._most(newest + 1)
        return self._generation

    # --- saving -----------------------------------------------------------------------------------------------------

    def save(self, step: int, model: Any, optimizer: Any = None, *, scheduler: Any = None, scaler: Any = None,
             sampler: Any = None, ema: Any = None, extra: Any = None, wait: bool = False) -> Optional[Save]:
        """Begin a checkpoint of the state after step, and return while it is written: what the optimizer changes is
        read until its next step(), which waits for that; the rest is copied here. None: two are under way, and this one
        is left out (of one rank; several wait for room). wait: return when it is done."""
        if step < 0:
            raise ValueError(f"step {step} is none")
        rank, world = self._place()
        self.gate()
        self._poll()
        if self._over is not None:
            raise self._over
        optimizers = as_dict(optimizer)
        entries, program, found = self._collect(model, optimizers, scheduler, scaler, sampler, ema, extra)
        entries += _random.entries(rank, world)
        cursor = self._cursor(step, model, program, found, world)
        memory, held = self._memory(entries)
        self._want_writer(pieces_of(entries, memory, world, rank), rank, world)
        for one in optimizers.values():
            self._hook(one)
        if not self._begin(step, cursor, wait, world):
            return None
        self._held = _Held(step, held)
        save = Save(self, step)
        self._saves.append(save)
        _busy.add(self)
        if wait or not optimizers:  # nobody else would tell when the state changes
            self.gate()
        if wait:
            save.wait()
        return save

    def _begin(self, step: int, cursor: bytes, sync: bool, world: int) -> bool:
        assert self._writer is not None
        deadline = time.monotonic() + PATIENCE_S
        while not self._writer.begin(step, cursor, sync=sync):
            if world == 1 and not sync:
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"no room for the checkpoint of step {step}: two are being written")
            try:
                self._writer.drain(0.02)
            except TimeoutError:
                continue
        return True

    @property
    def busy(self) -> bool:
        """Whether a save would be left out now, or wait: two are under way."""
        self._poll()
        return len(self._saves) > 1

    def gate(self) -> None:
        """Return once nothing reads the state any more. optimizer.step() calls it; call it before the state is changed
        in ways that PyTorch does not count, as through .data."""
        if self._writer is None or os.getpid() != self._pid:
            return
        held, self._held = self._held, None
        changed = next((name for name, t, version in held.tensors if t._version != version), None) if held else None
        if held and changed is not None:
            self._writer.abandon(held.step, f"'{changed}' was changed outside of optimizer.step() while it was read")
        self._writer.gate()
        self._poll()

    def _poll(self) -> None:
        """Take what has ended."""
        while self._writer is not None:
            done = self._writer.next_done()
            if done is None:
                if not self._saves:
                    _busy.discard(self)
                return
            save = next((s for s in self._saves if s.step == done["step"]), None)
            if save is not None:
                self._saves.remove(save)
                save.done, save.path, save.bytes = True, done["path"], done["bytes"]
                save.seconds = done["write_us"] * 1e-6
                save.error = error_of(done["code"], done["message"]) if done["code"] else None
                self._tell(save)

    def _tell(self, save: Save) -> None:
        if save.error is None:
            if self._place()[0] == 0:
                self._run.checkpoint(os.path.abspath(save.path), step=save.step, bytes=save.bytes,
                                     seconds=round(save.seconds, 3))
            return
        if isinstance(save.error, Superseded):
            self._over = save.error
        self._run.event("checkpoint", step=save.step, error=str(save.error))
        kind = type(save.error).__name__
        if kind not in self._told:
            self._told.add(kind)
            warnings.warn(f"muster: {save.error}", RuntimeWarning, stacklevel=4)

    def _await(self, save: Save, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self.gate()
        while not save.done:
            if self._writer is None or time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"the checkpoint of step {save.step} is still being written")
            try:
                self._writer.drain(min(1.0, timeout_s))
            except TimeoutError:
                pass
            self._poll()

    def close(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait for what is under way, and end the writer; the next save begins another. At the program's end this is
        done by itself."""
        if self._writer is None or os.getpid() != self._pid:
            return
        try:
            self.gate()
            self._writer.drain(timeout_s)
            self._poll()
        finally:
            writer, self._writer, self._signature = self._writer, None, None
            writer.close()
            for save in self._saves:
                save.done, save.error = True, MusterError(errno.ECANCELED, f"step {save.step} was not written in time")
            self._saves.clear()
            _busy.discard(self)

    def _want_writer(self, pieces: List[Piece], rank: int, world: int) -> None:
        """A writer for just these pieces: the one there is, where they are the same."""
        signature = (world, tuple(pieces))
        if self._writer is not None and signature == self._signature:
            return
        self.close()
        mine = sum(p.end - p.begin if p.end else torch.Size(p.len or p.shape).numel()
                   for p in pieces if not p.replica)
        self._writer = Writer(pieces, str(self.dir), rank=rank, world=world, generation=self._want_generation(rank),
                              keep=self._keep, keep_every=self._keep_every, codec=self._codec,
                              pool_bytes=min(max(8 * mine, 8 << 20), POOL))
        self._signature = signature

    def _memory(self, entries: List[Entry]) -> Tuple[Dict[int, Any], List[Tuple[str, Any, int]]]:
        """Where each entry is read from: its own memory, or a copy."""
        memory, held = {}, []
        with torch.no_grad():
            for e in entries:
                t = e.tensor
                if e.lazy and t.device.type == "cpu" and t.is_contiguous():
                    memory[id(e)] = t
                    held.append((e.name, t, t._version))
                    continue
                key = (e.key, e.off, e.begin, t.shape, t.dtype)
                copy = self._staged.get(key)
                if copy is None:
                    copy = self._staged[key] = torch.empty(t.shape, dtype=t.dtype)
                memory[id(e)] = copy.copy_(t)
        return memory, held

    def _hook(self, optimizer: Any) -> None:
        """Let optimizer.step() begin with the gate."""
        if optimizer in self._hooked:
            return
        self._hooked.add(optimizer)
        me = weakref.ref(self)

        def gate() -> None:
            checkpointer = me()
            if checkpointer is not None:
                checkpointer.gate()

        if hasattr(optimizer, "register_step_pre_hook"):
            optimizer.register_step_pre_hook(lambda *_: gate())
            return
        inner = optimizer.step

        def step(_: Any, *args: Any, **more: Any) -> Any:
            gate()
            return inner(*args, **more)

        if hasattr(inner, "_with_counter"):  # by which schedulers know that they have wrapped it
            step._with_counter = inner._with_counter  # type: ignore[attr-defined]
        optimizer.step = types.MethodType(step, optimizer)

    # --- what is kept -----------------------------------------------------------------------------------------------

    def _pack(self, value: Any, path: str, entries: List[Entry]) -> Any:
        """An object, its tensors as entries."""
        def take(at: str, v: Any) -> Optional[str]:
            if not torch.is_tensor(v):
                return None
            name = at if at.startswith("extra") else f"extra#{at}"
            entries.extend(entries_of(name, "opaque", v.detach(), lazy=False, how="first"))
            return name
        return pack(value, path, pickles=self._pickles, take=take)

    def _collect(self, model: Any, optimizers: Dict[str, Any], scheduler: Any, scaler: Any, sampler: Any, ema: Any,
                 extra: Any) -> Tuple[List[Entry], Dict[str, Any], Found]:
        found = find(model)
        if self._adopts:
            self._adopt(found, optimizers)
        entries: List[Entry] = []
        for name, p in found.params.items():
            entries += entries_of(name, "master", p, lazy=True)
        for folder, flat in found.flat:
            entries += flat_entries(folder, flat, getattr(flat, "_local_shard", flat), "master")
        for name, b in found.buffers.items():
            entries += entries_of(name, "buffer", b, lazy=False, how="first")
        program: Dict[str, Any] = {"tied": found.tied}
        program["optimizers"] = {key: self._optimizer(key, one, found, entries) for key, one in optimizers.items()}
        for key, value in as_dict(ema).items():
            for name, t in _tensors_of(value, key):
                entries += entries_of(name, "ema", t.detach(), lazy=False, how="first")
        for part, thing in (("scheduler", scheduler), ("scaler", scaler), ("sampler", sampler)):
            if thing is not None:
                program[part] = {key: self._pack(_state_of(one), f"{part}.{key}" if key else part, entries)
                                 for key, one in as_dict(thing).items()}
        if extra is not None:
            program["extra"] = self._pack(extra, "extra", entries)
        program["shapes"] = {e.name: list(e.tensor.shape) for e in entries
                             if e.how != "own" and len(e.tensor.shape) != len(e.shape)}
        return entries, program, found

    def _optimizer(self, key: str, optimizer: Any, found: Found, entries: List[Entry]) -> Dict[str, Any]:
        where = f"optim.{key or 0}"
        entry_of = {e.name: e for e in entries if e.role == "master"}
        flats = {id(flat): (folder, flat) for folder, flat in found.flat}
        taken = {e.key for e in entries}
        kinds: Dict[str, str] = {}
        values: Dict[str, Any] = {}
        steps: Dict[str, Any] = {}

        def names(p: Any) -> List[str]:
            return _names_of(p, found, flats)

        for p, state in optimizer.state.items():
            name = names(p)[0]
            for k, v in state.items():
                if torch.is_tensor(v) and v.dim() == 0 and k == "step":
                    steps.update((n, v) for n in names(p))
                elif not torch.is_tensor(v) and not hasattr(v, "local_shards"):
                    for n in names(p):
                        values.setdefault(n, {})[k] = pack(v, f"{where}.{n}.{k}", pickles=self._pickles)
                elif id(p) in flats and v.shape == p.shape:
                    role = kinds.setdefault(k, MOMENTS.get(k, "optimizer"))
                    entries += flat_entries(*flats[id(p)], v, role, "" if k in MOMENTS else f"#{k}")
                else:
                    self._add_state(name, k, v, p, entry_of.get(name), kinds, taken, entries)
        if steps:
            stepped = sorted(steps)
            entries += entries_of(f"{where}.step", "optimizer", torch.stack([steps[n].detach().cpu() for n in stepped]),
                                  lazy=False, how="first")
        groups = [{"params": [n for p in group["params"] for n in names(p)],
                   "options": self._pack({k: v for k, v in group.items() if k != "params"}, f"{where}.groups", entries)}
                  for group in optimizer.param_groups]
        return {"class": type(optimizer).__name__, "groups": groups, "kinds": kinds, "values": values,
                "stepped": sorted(steps)}

    @staticmethod
    def _add_state(name: str, key: str, v: Any, p: Any, of: Optional[Entry], kinds: Dict[str, str],
                   taken: set[Tuple[str, str]], entries: List[Entry]) -> None:
        """A tensor that an optimizer keeps of one parameter."""
        same = getattr(v, "shape", None) == p.shape
        role = MOMENTS.get(key, "optimizer") if same else "optimizer"
        if key in MASTERS and same and of is not None and v.dtype == torch.float32 and p.element_size() == 2:
            of.role, role = "weight", "master"
        if role != "optimizer" and (name, role) in taken and role != "master":
            role = "optimizer"
        if role != "optimizer":
            kinds[key] = role
        kept = name if role != "optimizer" else f"{name}#{key}"
        taken.add((kept, role))
        like = of if same and of is not None and of.how == "row" else None
        entries += entries_of(kept, role, v, lazy=True, like=like)

    def _cursor(self, step: int, model: Any, program: Dict[str, Any], found: Found, world: int) -> bytes:
        """The JSON beside the tensors."""
        first: Any = next(iter(as_dict(model).values()), None)
        kind = "fsdp" if found.flat else "ddp" if parallel(first) else "plain"
        doc: Dict[str, Any] = {"step": step, "program": program,
                               "layout": {"world": world, "torch": str(torch.__version__), "kind": kind,
                                          "seed": str(torch.initial_seed())}}
        config: Any = getattr(first.module if parallel(first) else first, "config", None)
        if hasattr(config, "to_dict"):
            doc["model"] = _plain(config.to_dict())
        text = json.dumps(doc, separators=(",", ":"), sort_keys=True)
        if len(text) > LIMIT:
            raise ValueError(f"what is to be kept beside tensors takes {len(text)} bytes: at most {LIMIT} can be")
        return text.encode("ascii")

    # --- memory that needs no copy ------------------------------------------------------------------------------------

    def adopt(self, model: Any) -> None:
        """Move the parameters into memory from which they are written without a copy: before anything holds on to where
        they are now, as DistributedDataParallel does."""
        self.gate()
        self._adopt(find(model), {})

    def _adopt(self, found: Found, optimizers: Dict[str, Any]) -> None:
        """Parameters, and each kind of moments, lie one behind another as they are written, each at a page."""
        self._move("master", [(name, p, None, "") for name, p in sorted(found.params.items())])
        for key, role in MOMENTS.items():
            states = {found.tied.get(n, n): (state, key) for one in optimizers.values()
                      for p, state in one.state.items() if key in state
                      for n in [found.name_of.get(id(p), "")] if n}
            self._move(f"{role} {key}", [(name, state[k], state, k) for name, (state, k) in sorted(states.items())])

    def _move(self, kind: str, tensors: List[Tuple[str, Any, Optional[Dict[str, Any]], str]]) -> None:
        for dtype in TYPES:
            of = [(t, state, key) for _, t, state, key in tensors if t.dtype == dtype and t.device.type == "cpu"
                  and t.is_contiguous() and not hasattr(t, "local_shards")]
            lengths = [-(-t.numel() * t.element_size() // PAGE) * PAGE for t, _, _ in of]
            places = tuple(t.data_ptr() for t, _, _ in of)
            if not of or self._arenas.get((kind, dtype), (None,))[0] == places:
                continue
            memory = torch.zeros(sum(lengths) + 2 * PAGE, dtype=torch.uint8)
            at = -memory.data_ptr() % PAGE
            with torch.no_grad():
                for (t, state, key), length in zip(of, lengths):
                    new = memory[at:at + t.numel() * t.element_size()].view(dtype).view(t.shape).copy_(t)
                    at += length
                    if state is None:
                        t.data = new
                    else:
                        state[key] = new
            moved = tuple((t if state is None else state[key]).data_ptr() for t, state, key in of)
            self._arenas[kind, dtype] = (moved, memory)

    # --- loading ----------------------------------------------------------------------------------------------------

    def load(self, model: Any, optimizer: Any = None, *, step: Optional[int] = None, strict: bool = True,
             scheduler: Any = None, scaler: Any = None, sampler: Any = None, ema: Any = None) -> Optional[Loaded]:
        """Load the newest whole checkpoint, or that of step, into all that is given, whatever world wrote it. None:
        there is none. One that turns out to be damaged is passed over for the next older, which the notes tell.
        strict: the checkpoint has the same tensors as the model. What sampler keeps is given to its
        load_state_dict(), where it has one, and returned."""
        self.close()
        rank, world = self._place()
        notes: List[str] = []
        candidates: List[int] = []
        if step is None and rank == 0:
            whole, skipped = listing(str(self.dir)) if self.dir.is_dir() else ([], [])
            candidates = [int(one["step"]) for one in whole]
            notes += [f"step {one['step']} is passed over: {one['reason']}" for one in skipped]
        corrupt: Optional[Exception] = None
        while True:
            at = step if step is not None else self._most(candidates.pop() if candidates else -1)
            if at < 0:
                if corrupt is not None:
                    raise corrupt
                return None
            failure: Optional[Exception] = None
            loader = None
            try:
                with Reader(str(self.dir), at) as reader:
                    loader = _Loader(self, reader, model, as_dict(optimizer), strict)
                    loader.tensors(ema)
            except Exception as e:  # told to the other ranks first
                failure = e
            worst = self._most(0 if failure is None else 1 if isinstance(failure, Corrupt) and step is None else 2)
            if worst == 0 and loader is not None:
                return loader.finish(rank, world, scheduler, scaler, sampler, notes)
            if worst == 2:
                raise failure or MusterError(errno.ECOMM, f"another rank could not load step {at}")
            corrupt = failure or Corrupt(errno.EBADMSG, f"step {at} is damaged where another rank reads it")
            notes.append(f"step {at} is passed over: {corrupt}")


class _Loader:
    """One checkpoint on its way into a program."""

    def __init__(self, owner: Checkpointer, reader: Reader, model: Any, optimizers: Dict[str, Any],
                 strict: bool) -> None:
        self._pickles, self._reader, self._optimizers, self._strict = owner._pickles, reader, optimizers, strict
        self._found = find(model)
        self._flats = {id(flat): (folder, flat) for folder, flat in self._found.flat}
        doc = reader.inspect()
        self._step, self._path, self._kv = int(doc["step"]), str(doc["path"]), doc["kv"]
        self._there = {(t["name"], t["role"]): (str(t["dtype"]), tuple(t["shape"])) for t in doc["tensors"]}
        self._program: Dict[str, Any] = self._kv.get("program") or {}
        self._pieces: List[Piece] = []
        self._copies: List[Tuple[Any, Any]] = []  # to, from
        self._made: Dict[str, Any] = {}  # tensors of objects

    def tensors(self, ema: Any) -> None:
        """All that lies in tensors."""
        self._check_names()
        entries: List[Entry] = []
        for name, p in self._found.params.items():
            if self._has(name):
                role = "weight" if (name, "weight") in self._there else "master"
                entries += entries_of(name, role, p, lazy=True)
        for folder, flat in self._found.flat:
            entries += flat_entries(folder, flat, getattr(flat, "_local_shard", flat), "master")
        for name, b in self._found.buffers.items():
            if (name, "buffer") in self._there:
                entries += entries_of(name, "buffer", b, lazy=False)
        for key, value in as_dict(ema).items():
            for name, t in _tensors_of(value, key):
                entries += entries_of(name, "ema", t.detach(), lazy=False)
        new = [self._optimizer(key, one, entries) for key, one in self._optimizers.items()]
        for e in entries:
            self._read(e)
        for (name, role), (dtype, shape) in self._there.items():
            if role == "opaque" and name.startswith(("extra.", "extra#")) or (name, role) == ("extra", "opaque"):
                was = self._program.get("shapes", {}).get(name, shape)
                self._made[name] = torch.empty(tuple(was), dtype=TORCH_TYPES[dtype])
                self._read(Entry(name, role, self._made[name], shape=shape))
        self._random = _random.pieces(self._there)
        self._pieces += [piece for piece, _ in self._random.values()]
        self._reader.load(self._pieces)
        with torch.no_grad():
            for to, from_ in self._copies:
                to.copy_(from_)
        for finish in new:
            finish()

    def _has(self, name: str) -> bool:
        return (name, "master") in self._there or (name, "weight") in self._there

    def _check_names(self) -> None:
        mine = set(self._found.params) | {
            n for _, flat in self._found.flat for n in _names_of(flat, self._found, self._flats)}
        theirs = {name for name, role in self._there if role in ("master", "weight")}
        missing = sorted(mine - theirs) + sorted(n for n in self._found.buffers if (n, "buffer") not in self._there)
        others = sorted(theirs - mine) + sorted(
            n for n, role in self._there if role == "buffer" and n not in self._found.buffers)
        tied = self._program.get("tied", {})
        if not self._strict:
            return
        if tied != self._found.tied and "program" in self._kv:
            odd = sorted(set(tied.items()) ^ set(self._found.tied.items()))[0]
            where = "the checkpoint and not here" if odd in tied.items() else "the model and not in the checkpoint"
            raise ValueError(f"'{odd[0]}' and '{odd[1]}' are one tensor in {where}, of step {self._step}")
        if missing:
            raise NotFound(errno.ENOENT, f"the checkpoint of step {self._step} lacks {_few(missing)}")
        if others:
            raise ValueError(f"the checkpoint of step {self._step} has {_few(others)} that the model lacks")

    def _read(self, e: Entry) -> None:
        t = e.tensor.detach()
        if t.numel() == 0:
            return
        if t.device.type != "cpu" or not t.is_contiguous():
            dense = torch.empty(t.shape, dtype=t.dtype)
            self._copies.append((t, dense))
            t = dense
        self._pieces.append(Piece(e.name, e.role, e.dtype, e.shape, t.data_ptr(), e.off, e.len, e.begin, e.end))

    def _optimizer(self, key: str, optimizer: Any, entries: List[Entry]) -> Callable[[], None]:
        """Make the optimizer's tensors, as entries; what is returned ends the load."""
        kept = self._program.get("optimizers", {}).get(key)
        if kept is None:
            raise NotFound(errno.ENOENT, f"the checkpoint of step {self._step} has no optimizer '{key}'")
        flats = self._flats
        mine = [[n for p in group["params"] for n in _names_of(p, self._found, flats)]
                for group in optimizer.param_groups]
        if [sorted(g) for g in mine] != [sorted(g["params"]) for g in kept["groups"]]:
            raise ValueError("the optimizer's groups hold other parameters than those of the checkpoint")
        steps = torch.zeros(0)
        where = (f"optim.{key or 0}.step", "optimizer")
        if where in self._there:
            dtype, shape = self._there[where]
            steps = torch.empty(shape, dtype=TORCH_TYPES[dtype])
            entries.append(Entry(*where, steps, shape=shape))
        step_of = {n: i for i, n in enumerate(kept["stepped"])}
        more: Dict[str, List[str]] = {}
        for name, role in self._there:
            if role == "optimizer" and "#" in name:
                more.setdefault(name.rpartition("#")[0], []).append(name.rpartition("#")[2])
        states: List[Tuple[Any, Dict[str, Any], str]] = []
        for group in optimizer.param_groups:
            for p in group["params"]:
                name = _names_of(p, self._found, flats)[0]
                state = {k: unpack(v, pickles=self._pickles) for k, v in kept["values"].get(name, {}).items()}
                wanted = [(k, role, name) for k, role in kept["kinds"].items() if role != "optimizer"]
                wanted += [(k, "optimizer", f"{name}#{k}") for k in more.get(name, [])]
                for k, role, full in wanted:
                    if (full, role) in self._there:
                        state[k] = self._state(p, full, role, flats, entries)
                states.append((p, state, name))

        def finish() -> None:
            optimizer.state.clear()
            for p, state, name in states:
                if name in step_of:
                    state = {"step": steps[step_of[name]].clone(), **state}
                if state:
                    optimizer.state[p] = state
            for group, saved in zip(optimizer.param_groups, kept["groups"]):
                group.update(unpack(saved["options"], pickles=self._pickles, tensor=self._made.__getitem__))
        return finish

    def _state(self, p: Any, full: str, role: str, flats: Mapping[int, Tuple[str, Any]], entries: List[Entry]) -> Any:
        """A tensor of the optimizer for a parameter, as the checkpoint has it."""
        dtype, shape = self._there[full, role]
        if id(p) in flats:
            t = torch.zeros_like(p, dtype=TORCH_TYPES[dtype])
            suffix = f"#{full.rpartition('#')[2]}" if role == "optimizer" else ""
            entries += flat_entries(*flats[id(p)], t, role, suffix)
        elif hasattr(p, "local_shards"):
            raise TypeError(f"'{full}': the state of an optimizer of sharded tensors is not loaded yet")
        else:
            same = shape == flattened(p.shape)
            was = tuple(p.shape) if same else tuple(self._program.get("shapes", {}).get(full, shape))
            t = torch.zeros_like(p, dtype=TORCH_TYPES[dtype], requires_grad=False) if same else torch.zeros(
                was, dtype=TORCH_TYPES[dtype], device=p.device)
            entries.append(Entry(full, role, t, shape=shape))
        return t

    def finish(self, rank: int, world: int, scheduler: Any, scaler: Any, sampler: Any, notes: List[str]) -> Loaded:
        """What lies beside tensors."""
        def read(value: Any) -> Any:
            return unpack(value, pickles=self._pickles, tensor=self._made.__getitem__)

        for part, thing in (("scheduler", scheduler), ("scaler", scaler), ("sampler", sampler)):
            for key, one in as_dict(thing).items():
                if key not in self._program.get(part, {}):
                    raise NotFound(errno.ENOENT, f"the checkpoint of step {self._step} has no {part}")
                if hasattr(one, "load_state_dict"):
                    one.load_state_dict(read(self._program[part][key]))
        notes += _random.restore(self._random, rank, world, self._kv.get("layout") or {}, self._step)
        kept = {key: read(v) for key, v in self._program.get("sampler", {}).items()}
        return Loaded(self._step, self._path, read(self._program.get("extra")), kept.get("", kept or None), notes)


def _few(names: List[str]) -> str:
    return ", ".join(f"'{n}'" for n in names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _names_of(p: Any, found: Found, flats: Mapping[int, Tuple[str, Any]]) -> List[str]:
    """The names of what an optimizer calls a parameter: several in a FlatParameter."""
    if id(p) in flats:
        folder, flat = flats[id(p)]
        return [folder + clean(str(n)) for n in flat._prefixed_param_names]
    name = found.name_of.get(id(p))
    if name is None:
        raise ValueError("the optimizer has a parameter that is in no model that is saved: pass a dict of all models")
    return [found.tied.get(name, name)]


def _tensors_of(value: Any, key: str) -> Iterator[Tuple[str, Any]]:
    """The tensors of a moving average: a model of its own, or a dict of tensors, by the names of the model."""
    if isinstance(value, torch.nn.Module):
        averaged = type(value).__name__ == "AveragedModel"
        value = {n[len("module."):] if averaged and n.startswith("module.") else n: t
                 for n, t in value.state_dict().items()}
    for name, t in value.items():
        yield (f"{key}.{name}" if key else name), t


def _plain(value: Any) -> Any:
    """What JSON has of a configuration."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _close_all() -> None:
    """At the end of the program."""
    for checkpointer in list(_all):
        try:
            checkpointer.close(AT_END_S)
        except Exception as e:
            print(f"muster: {e}", file=sys.stderr)


atexit.register(_close_all)
