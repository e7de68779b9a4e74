"""Which samples a rank takes at a step, so that any number of ranks goes on where others stopped."""
from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Mapping, Optional

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
