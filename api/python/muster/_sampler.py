"""Which samples a rank takes at a step, so that any number of ranks goes on where others stopped."""
from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

MASK = (1 << 64) - 1
ROUNDS = 4


def _mix(x: int) -> int:
    """A permutation of 64 bits, each of which depends on all."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def order_index(seed: int, number: int, n: int) -> int:
    """Which of n samples comes as the number-th of all epochs: a permutation of each epoch's, without memory."""
    epoch, at = divmod(number, n)
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1
    key = _mix((_mix(seed & MASK) + epoch) & MASK)
    while True:  # a network of 4^half values; on average fewer than four walks lead back below n
        left, right = at >> half, at & low
        for turn in range(ROUNDS):
            left, right = right, left ^ (_mix((key + (turn << 56) + right) & MASK) >> 20 & low)
        at = left << half | right
        if at < n:
            return at


class ElasticSampler:
    """Batches of indexes into n samples, for DataLoader(batch_sampler=…): batch samples a step over all ranks, each
    once an epoch, whatever the number of ranks at which step. What is iterated over may run ahead: only advance(),
    after the update, moves the cursor, which belongs into the checkpoint (state_dict).

    A step takes the next samples of the epoch, at most batch; ranks take contiguous parts of them, whose sizes differ
    by one at most. A rank whose part is empty is given a sample all the same, with weight 0: so its collectives
    match."""

    def __init__(self, n: int, batch: int, seed: int = 0, *, rank: Optional[int] = None,
                 world: Optional[int] = None) -> None:
        self.rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        self.world = int(os.environ.get("WORLD_SIZE", 1)) if world is None else world
        if n < 1 or batch < 1 or not 0 <= self.rank < self.world:
            raise ValueError(f"want n and batch of at least 1, and a rank of the world, not {n}, {batch}, "
                             f"{self.rank} of {self.world}")
        self.n, self.batch, self.seed = n, batch, seed
        self.epoch = self.position = 0

    def _size(self, position: int) -> int:
        return min(self.batch, self.n - position)

    def _part(self, position: int) -> range:
        size = self._size(position)
        return range(position + size * self.rank // self.world, position + size * (self.rank + 1) // self.world)

    def part(self, position: Optional[int] = None) -> List[int]:
        """This rank's samples of the step at the cursor, or at a position of its epoch."""
        at = self.position if position is None else position
        part = self._part(at)
        return [order_index(self.seed, self.epoch * self.n + i, self.n) for i in part or range(at, at + 1)]

    def __iter__(self) -> Iterator[List[int]]:
        """From the cursor to the end of its epoch."""
        for at in range(self.position, self.n, self.batch):
            yield self.part(at)

    def __len__(self) -> int:
        """Steps to the end of the epoch."""
        return -(-(self.n - self.position) // self.batch)

    def weight(self, samples: Optional[int] = None) -> float:
        """What the mean loss of so many of this rank's samples (all of them) of the step at the cursor is multiplied
        with: DDP's mean over ranks is then the mean over the step's samples, whatever the number of ranks."""
        part = len(self._part(self.position))
        return min(part, part if samples is None else samples) * self.world / self._size(self.position)

    def advance(self) -> None:
        """The step is done."""
        self.position += self._size(self.position)
        if self.position == self.n:
            self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> Dict[str, int]:
        return {"epoch": self.epoch, "position": self.position, "n": self.n, "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if (state["n"], state["seed"]) != (self.n, self.seed):
            raise ValueError(f"the cursor is of {state['n']} samples with seed {state['seed']}, "
                             f"not of {self.n} with seed {self.seed}")
        if not 0 <= state["position"] < self.n or state["epoch"] < 0:
            raise ValueError("the cursor is not within an epoch")
        self.epoch, self.position = int(state["epoch"]), int(state["position"])


class LengthBatchSampler(ElasticSampler):
    """As ElasticSampler, for sequences of different lengths: those of a step are laid out over ranks and micro-batches
    by Muster's planner (docs/sequence.md), by what they cost: lin_s S + quad_s S^2 seconds for S tokens. A micro-batch
    holds at most capacity tokens. overlong, of longer ones: "fail", "cut" (the program cuts them), "drop"."""

    POLICIES = ("pad", "static", "sorted", "pack", "pack-lpt", "round-robin", "skrull", "sweep")

    def __init__(self, lengths: Sequence[int], sequences: int, capacity: int, policy: str = "sweep", seed: int = 0,
                 overlong: str = "fail", *, lin_s: float = 1e-6, quad_s: float = 1e-10, rank: Optional[int] = None,
                 world: Optional[int] = None) -> None:
        if policy not in self.POLICIES:
            raise ValueError(f"policy '{policy}' is none of {', '.join(self.POLICIES)}"
                             + ("; chunks need an attention that knows of them" if policy == "chunk" else ""))
        if overlong not in ("fail", "cut", "drop"):
            raise ValueError(f"overlong is fail, cut or drop, not '{overlong}'")
        self.lengths, self.capacity, self.policy, self.cost = lengths, capacity, policy, (lin_s, quad_s)
        self.kept = [i for i, n in enumerate(lengths) if n <= capacity] if overlong == "drop" else range(len(lengths))
        longest = max(range(len(lengths)), key=lengths.__getitem__, default=0)
        if overlong == "fail" and lengths and lengths[longest] > capacity:
            raise ValueError(f"sequence {longest} has {lengths[longest]} tokens, more than the capacity {capacity}")
        super().__init__(len(self.kept), sequences, seed, rank=rank, world=world)
        self._planned: Tuple[int, int, List[List[int]], int] = (-1, -1, [], 0)

    def _tokens(self, sample: int) -> int:
        return min(self.lengths[sample], self.capacity)

    def _plan(self, position: int) -> Tuple[List[List[int]], int]:
        """This rank's micro-batches of a step, and the tokens of all ranks'."""
        if self._planned[:2] != (self.epoch, position):
            from ._state import plan
            first = self.epoch * self.n + position
            step = [self.kept[order_index(self.seed, first + i, self.n)] for i in range(self._size(position))]
            found = plan([self._tokens(i) for i in step], replicas=self.world, capacity=self.capacity,
                         policy=self.policy, seed=self.seed, lin_s=self.cost[0], quad_s=self.cost[1])
            mine = [[step[piece["sequence"]] for piece in micro["pieces"]] for micro in found["plan"][self.rank]]
            self._planned = (self.epoch, position, [micro for micro in mine if micro] or [step[:1]],
                             sum(map(self._tokens, step)) if any(mine) else 0)
        return self._planned[2:]

    def micro_batches(self, position: Optional[int] = None) -> List[List[int]]:
        """Of this rank, of the step at the cursor, or at a position of its epoch. One whose share is empty has one of
        one sequence, with weight 0. Ranks may have different numbers of them: synchronise gradients in the last."""
        return self._plan(self.position if position is None else position)[0]

    def weights(self) -> List[float]:
        """What the mean loss over the tokens of each of micro_batches() is multiplied with: DDP's mean over ranks is
        then the mean over the tokens of the step, whatever the number of ranks."""
        mine, tokens = self._plan(self.position)
        return [sum(map(self._tokens, micro)) * self.world / tokens if tokens else 0.0 for micro in mine]

    def part(self, position: Optional[int] = None) -> List[int]:
        return [i for micro in self.micro_batches(position) for i in micro]

    def weight(self, samples: Optional[int] = None) -> float:
        raise TypeError("micro-batches of sequences have weights()")

    def __iter__(self) -> Iterator[List[int]]:
        """The micro-batches from the cursor to the end of its epoch."""
        for at in range(self.position, self.n, self.batch):
            yield from self.micro_batches(at)
