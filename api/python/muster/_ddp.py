"""Gradients of DistributedDataParallel that travel as blocks of a codec: muster.torch.ddp_codec_hook."""
from __future__ import annotations

import os
import queue
import statistics
import sys
import threading
import time
import zlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ._run import init
from ._state import Codec, Site
from ._tensors import torch

PLAIN = "none"
PAIRS = {"g8": ("g8", "g8"), "r8": ("r8", "r8"), "r6": ("r6", "r6"), "sdp4bit": ("hs4", "hs8")}
TRIED = (PLAIN, "g8", "r8", "r6")  # by auto: the more exact ones first
FIRST, ROUNDS = 5, 3  # plain steps before it measures, and how often it tries each
GAIN = 1.05  # that a less exact codec has to be faster by
LOOK, LOOK_MAX, LOOKED_AT = 50, 1600, 7  # steps between two looks at how long communication takes, and those looked at
CHANGED = 1.5


class _Bucket(NamedTuple):
    """A bucket of gradients that is to be reduced."""
    name: str  # of its first parameter
    first: bool  # of its step
    at: float  # when the step's first one was ready
    values: Any
    future: Any


class _Choice:
    """Which codec each step takes; all of it on rank 0's times, told to the others by a word."""

    def __init__(self, codec: str, word: Any) -> None:
        self.auto, self.now, self._word = codec == "auto", PLAIN, word
        self._coming = [PLAIN] * FIRST + self._trial() if self.auto else [PLAIN]
        self._fixed = codec
        self._last = 0.0
        self._tried: Dict[str, List[float]] = {}
        self._measures = self.auto
        self._every, self._since = LOOK, 0
        self._times: List[float] = []  # of communication, a step
        self.chosen = PLAIN if self.auto else codec
        self.told = ""

    @staticmethod
    def _trial() -> List[str]:
        return list(TRIED) * ROUNDS

    def go_on(self, codec: str) -> None:
        """With what was chosen before."""
        self.chosen, self._coming, self._measures = codec, [PLAIN], False

    def step(self, at: float) -> str:
        """What the step that begins takes."""
        if self._measures and len(self._coming) < len(TRIED) * ROUNDS:
            self._tried.setdefault(self.now, []).append(at - self._last)
        self._last = at
        if self._coming:
            self.now = self._coming.pop(0)
            return self.now
        if self._measures:
            self._decide()
        elif self.auto:
            self._look()
        self.now = self.chosen
        return self.now

    def _decide(self) -> None:
        took = {name: statistics.median(times) for name, times in self._tried.items()}
        best = PLAIN
        for name in TRIED[1:]:
            if took[name] * GAIN < took[best]:
                best = name
        found = TRIED[self._word(TRIED.index(best))]
        if found != self.chosen:
            self._every = LOOK
        self.told = (f"gradients travel {'plain' if found == PLAIN else 'as ' + found}: "
                     + ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in took.items()) + " a step")
        self.chosen, self._measures, self._since = found, False, 0
        self._tried, self._times = {}, []

    def _look(self) -> None:
        self._since += 1
        if self._since % self._every or len(self._times) < 2 * LOOKED_AT:
            return
        usual, late = (statistics.median(times) for times in (self._times[:LOOKED_AT], self._times[-LOOKED_AT:]))
        if self._word(int(not usual / CHANGED < late < usual * CHANGED)):
            self._coming, self._measures = self._trial(), True
            self._every = min(2 * self._every, LOOK_MAX)  # more seldom, where it is in vain

    def spent(self, seconds: float) -> None:
        """In communication, in the step that is over."""
        if self.auto and not self._coming:
            self._times.append(seconds)
            del self._times[LOOKED_AT:-LOOKED_AT]


class CodecHook:
    """What ddp_codec_hook gives. state_dict() belongs into the checkpoint (extra=…), so that the next run takes the
    same codec and goes on with its chance; residuals of feedback begin anew."""

    def __init__(self, model: Any, codec: str, min_bytes: int, feedback: bool) -> None:
        dist = torch.distributed
        self._dist, self.min_bytes, self.feedback = dist, min_bytes, feedback
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        backend = dist.get_backend()
        self._group = dist.new_group(backend="gloo" if backend == "nccl" else backend)
        self._names = {id(p): name for name, p in model.module.named_parameters()}
        self._codecs = {pair: Codec(pair) for pair in {one for both in PAIRS.values() for one in both}}
        self._seed = zlib.crc32(os.environ.get("MUSTER_JOB", "").encode())
        self._choice = _Choice(codec, self._tell)
        self._run = init()
        self.step, self.bytes = 0, 0  # steps so far; bytes that this rank sent of the last step
        self._sent, self._spent = 0, 0.0
        self._codec = PLAIN
        self._rooms: Dict[Tuple[str, int], Any] = {}
        self._residuals: Dict[Tuple[str, int], Any] = {}
        self._broken: Optional[BaseException] = None
        self._at = 0.0
        self._queue: queue.SimpleQueue[Optional[_Bucket]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._reduce_all, name="muster-ddp", daemon=True)
        self._thread.start()

    @property
    def codec(self) -> str:
        """What gradients travel as; "none": plainly."""
        return self._choice.chosen

    def state_dict(self) -> Dict[str, Any]:
        return {"step": self.step, "codec": self.codec, "world": self.world}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Before the first step. What was measured among another number of ranks is measured anew."""
        self.step = int(state["step"])
        if self._choice.auto and state["world"] == self.world and state["codec"] in TRIED:
            self._choice.go_on(str(state["codec"]))

    def close(self) -> None:
        """Nothing is reduced any more."""
        self._queue.put(None)
        self._thread.join()

    def __call__(self, bucket: Any) -> Any:
        """DistributedDataParallel's own thread, in backward: each bucket in its turn."""
        first = bucket.index() == 0
        if first:
            self._at = time.monotonic()
        future: Any = torch.futures.Future()
        name = self._names.get(id(bucket.parameters()[0]), "")
        self._queue.put(_Bucket(name, first, self._at, bucket.buffer(), future))
        return future

    # --- the thread, by which all ranks make the same calls in the same order -----------------------------------------

    def _reduce_all(self) -> None:
        while True:
            bucket = self._queue.get()
            if bucket is None:
                return
            try:
                if self._broken is not None:
                    raise self._broken
                self._reduce(bucket)
            except Exception as e:
                if self._broken is None:  # an older PyTorch says no more than that something failed
                    print(f"muster: gradients were not reduced: {e!r}", file=sys.stderr, flush=True)
                self._broken = e
                bucket.future.set_exception(e)
            else:
                bucket.future.set_result(bucket.values)

    def _tell(self, number: int) -> int:
        """Rank 0's number."""
        word = torch.tensor([number], dtype=torch.int64)
        self._dist.broadcast(word, src=0, group=self._group)
        return int(word.item())

    def _reduce(self, b: _Bucket) -> None:
        if b.first:
            self._begin_step(b.at)
        began = time.monotonic()
        values = b.values
        wide = values.dtype in (torch.float32, torch.bfloat16, torch.float16)
        if self._codec == PLAIN or not wide or values.numel() * values.element_size() < self.min_bytes:
            values.mul_(1 / self.world)  # as DistributedDataParallel does
            summed = values.float() if values.dtype == torch.bfloat16 else values  # which gloo does not add up
            self._dist.all_reduce(summed, group=self._group)
            if summed is not values:
                values.copy_(summed)
            self._sent += 2 * values.numel() * values.element_size() * (self.world - 1) // self.world
        elif values.dtype != torch.float16 and not self.feedback:
            self._reduce_coded(b.name, values)
        else:
            copy = values.to(torch.float32)
            self._reduce_coded(b.name, copy)
            if copy is not values:
                values.copy_(copy)
        self._spent += time.monotonic() - began

    def _begin_step(self, at: float) -> None:
        self._choice.spent(self._spent)
        self.bytes = self._sent
        if self._run.rank == 0 and self.step and self._sent:
            self._run.log({"comm_bytes": self._sent, "comm_ms": self._spent * 1000})
        self._sent, self._spent = 0, 0.0
        self._codec = self._choice.step(at)
        self.step += 1
        if self._choice.told and self.rank == 0:
            self._run.event("note", message=self._choice.told)
        self._choice.told = ""

    def _room(self, what: str, size: int) -> Any:
        """Memory for blocks; multiples of 16 bytes."""
        if (what, size) not in self._rooms:
            self._rooms[what, size] = torch.zeros(size, dtype=torch.uint8)
        return self._rooms[what, size]

    def _reduce_coded(self, name: str, values: Any) -> None:
        """The mean over ranks, in place: slice j is summed by rank j, and all decode its block of the sum, the rank
        itself too. So all have the same bits."""
        there, back = (self._codecs[one] for one in PAIRS[self._codec])
        n, size, bf16 = values.numel(), values.element_size(), values.dtype == torch.bfloat16
        group = max(there.group, back.group)
        each = -(-n // (group * self.world)) * group
        cuts = [min(j * each, n) for j in range(self.world + 1)]
        lengths = [b - a for a, b in zip(cuts, cuts[1:])]
        room, room_back = there.size(each), back.size(each)
        mine, other = self._room("mine", room * self.world), self._room("other", room * self.world)
        block, blocks = self._room("block", room_back), self._room("blocks", room_back * self.world)
        start, rank = values.data_ptr(), self.rank
        site = Site(self._seed, zlib.crc32(name.encode()), self.step, rank, 0)
        residual = self._residual(name, values) if self.feedback else None
        if residual is not None:
            values.add_(residual)
        for j in range(self.world):
            if j != rank:
                there.encode(site._replace(offset=cuts[j]), start + cuts[j] * size, lengths[j],
                             mine.data_ptr() + j * room, bf16=bf16)
        self._dist.all_to_all_single(other, mine, group=self._group)
        parts = [None if j == rank else other.data_ptr() + j * room for j in range(self.world)]
        own, site = start + cuts[rank] * size, site._replace(micro=self.world, offset=cuts[rank])
        if residual is None:
            there.reduce_encode(parts, own, back, site, block.data_ptr(), lengths[rank], bf16=bf16)
        else:
            self._feed_back(values, residual, mine, room, cuts, parts, block, site)
        there.take_flags()
        self._dist.all_gather(list(blocks.view(self.world, room_back)), block, group=self._group)
        for j in range(self.world):
            back.decode(blocks.data_ptr() + j * room_back, start + cuts[j] * size, lengths[j], bf16=bf16)
        values.div_(self.world)
        self._sent += (room + room_back) * (self.world - 1)
        if back.take_flags():  # of a sum: all ranks see the same ones
            values[0] = float("nan")
            if residual is not None:
                residual.zero_()

    # --- feedback -----------------------------------------------------------------------------------------------------

    def _residual(self, name: str, values: Any) -> Any:
        """What coding has left out of a bucket so far."""
        key = (name, values.numel())
        if key not in self._residuals:
            self._residuals[key] = torch.zeros_like(values)
        return self._residuals[key]

    def _feed_back(self, values: Any, residual: Any, mine: Any, room: int, cuts: List[int],
                   parts: List[Optional[int]], block: Any, site: Site) -> None:
        """Code the sum of the own slice, and keep what either coding leaves out for the next step."""
        there, back = (self._codecs[one] for one in PAIRS[self._codec])
        for j, (a, b) in enumerate(zip(cuts, cuts[1:])):
            if j == self.rank:
                total = torch.empty(b - a, dtype=torch.float32)
                there.reduce(parts, values[a:b].data_ptr(), total.data_ptr(), b - a)
                if there.take_flags():
                    total[:1] = float("inf")  # the block of the sum tells all ranks
                back.encode(site, total.data_ptr(), b - a, block.data_ptr())
                back.decode(block.data_ptr(), residual[a:b].data_ptr(), b - a)
                torch.sub(total, residual[a:b], out=residual[a:b])
            else:
                there.decode(mine.data_ptr() + j * room, residual[a:b].data_ptr(), b - a)
                torch.sub(values[a:b], residual[a:b], out=residual[a:b])


def _call(hook: CodecHook, bucket):  # type: ignore[no-untyped-def]  # the names and no types, as PyTorch asks
    return hook(bucket)


def ddp_codec_hook(model: Any, codec: str = "auto", min_bytes: int = 65536, *,
                   feedback: Optional[bool] = None) -> CodecHook:
    """Let the gradients of a DistributedDataParallel model travel as blocks of a codec: g8, r8, r6 or sdp4bit; auto
    measures which of plain, g8, r8 and r6 is fastest. All ranks call alike, once. Buckets below min_bytes, and values
    of other types than f32, f16 and bf16, travel plainly. feedback: what coding left out is added to the next step's
    gradients; for sdp4bit by default, whose 4 bits need it."""
    if codec not in PAIRS and codec not in ("auto", PLAIN):
        raise ValueError(f"codec '{codec}' is none of auto, {PLAIN}, {', '.join(PAIRS)}")
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise TypeError("want a model that DistributedDataParallel has wrapped")
    if any(p.device.type != "cpu" for p in model.parameters()):
        raise ValueError("gradients on a GPU are not coded: the codecs of this hook are the processor's")
    if model.process_group.size() != torch.distributed.get_world_size():
        raise ValueError("want a model whose gradients are of all ranks")
    hook = CodecHook(model, codec, min_bytes, codec == "sdp4bit" if feedback is None else feedback)
    model.register_comm_hook(hook, _call)
    return hook
