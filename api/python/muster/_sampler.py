"""Which samples a rank takes at a step, so that any number of ranks goes on where others stopped."""
from __future__ import annotations

import math
import os
import statistics
import warnings
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

MASK = (1 << 64) - 1
ROUNDS = 4
POWERS = {"same": 0.0, "linear": 1.0, "sqrt": 0.5}
RAMP = 100  # steps
KEPT = 256  # micro-batches that a cost is learned from
ALARM = 0.15


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
    match.

    local: batch is of each rank, so that a step takes as many times more as there are ranks. lr: what lr_scale()
    follows then: "same", "linear" or "sqrt" in the number of ranks over that of the first run, over 100 steps."""

    def __init__(self, n: int, batch: int, seed: int = 0, *, rank: Optional[int] = None, world: Optional[int] = None,
                 local: bool = False, lr: str = "same") -> None:
        self.rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        self.world = int(os.environ.get("WORLD_SIZE", 1)) if world is None else world
        if n < 1 or batch < 1 or not 0 <= self.rank < self.world:
            raise ValueError(f"want n and batch of at least 1, and a rank of the world, not {n}, {batch}, "
                             f"{self.rank} of {self.world}")
        if lr not in POWERS:
            raise ValueError(f"lr is {', '.join(POWERS)}, not '{lr}'")
        self.n, self.batch, self.seed = n, batch * self.world if local else batch, seed
        self.epoch = self.position = 0
        self._power = POWERS[lr] if local else 0.0
        self._first, self._scale, self._steps = self.world, 1.0, 0  # ranks of the first run; where the ramp began

    def lr_scale(self) -> float:
        """What the learning rate of the first run is multiplied with, at the step at the cursor."""
        wanted: float = (self.world / self._first) ** self._power
        return self._scale + (wanted - self._scale) * min(1.0, self._steps / RAMP)

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
        self._steps += 1
        self.position += self._size(self.position)
        if self.position == self.n:
            self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> Dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position, "n": self.n, "seed": self.seed, "world": self._first,
                "lr_scale": self.lr_scale()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if (state["n"], state["seed"]) != (self.n, self.seed):
            raise ValueError(f"the cursor is of {state['n']} samples with seed {state['seed']}, "
                             f"not of {self.n} with seed {self.seed}")
        if not 0 <= state["position"] < self.n or state["epoch"] < 0:
            raise ValueError("the cursor is not within an epoch")
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self._first, self._scale = int(state.get("world", self.world)), float(state.get("lr_scale", 1.0))
        self._steps = 0


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
        self.lengths, self.capacity, self.policy = lengths, capacity, policy
        self.cost = self._next_cost = (0.0, lin_s, quad_s)  # of a micro-batch, a token, and its square
        self._observed: List[Tuple[float, ...]] = []
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
                         policy=self.policy, seed=self.seed, micro_s=self.cost[0], lin_s=self.cost[1],
                         quad_s=self.cost[2])
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

    def observe(self, tokens: Sequence[int], seconds: float) -> None:
        """A micro-batch of sequences of so many tokens took this rank so long, forward and backward."""
        if seconds > 0 and tokens:
            self._observed.append((1.0, float(sum(tokens)), float(sum(n * n for n in tokens)), seconds))
            del self._observed[:-KEPT]

    def refit(self) -> float:
        """To be called by all ranks after the same step: from the next epoch on, steps are planned by what rank 0 has
        observed. How far off the cost was there, by the median; more than 15 % is warned of."""
        off, cost = 0.0, self._next_cost
        if len(self._observed) >= 8:
            off = statistics.median(abs(sum(a * b for a, b in zip(self.cost, row)) / row[3] - 1)
                                    for row in self._observed)
            cost = _fit(self._observed) or cost
        if self.world > 1:
            from ._tensors import torch
            word = torch.tensor([off, *cost], dtype=torch.float64)
            torch.distributed.broadcast(word, src=0)
            off, *told = word.tolist()
            cost = (told[0], told[1], told[2])
        self._next_cost = cost
        if off > ALARM and self.rank == 0:
            warnings.warn(f"muster: micro-batches took {off:.0%} another time than they were planned with",
                          RuntimeWarning, stacklevel=2)
        return off

    def advance(self) -> None:
        epoch = self.epoch
        super().advance()
        if self.epoch != epoch:  # what was fetched ahead of the epoch that is over was planned by all ranks alike
            self.cost = self._next_cost

    def state_dict(self) -> Dict[str, Any]:
        return {**super().state_dict(), "cost": list(self.cost), "next_cost": list(self._next_cost)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if "cost" in state:
            (a, b, c), (d, e, f) = state["cost"], state["next_cost"]
            self.cost, self._next_cost = (float(a), float(b), float(c)), (float(d), float(e), float(f))
        self._planned = (-1, -1, [], 0)


def _fit(rows: Sequence[Tuple[float, ...]]) -> Optional[Tuple[float, float, float]]:
    """Least squares of the last column by the first three, none of whose factors is below 0."""
    best: Tuple[float, Optional[Tuple[float, float, float]]] = (math.inf, None)
    scale = [max(row[i] for row in rows) for i in range(3)]
    for used in ((0, 1, 2), (1, 2), (0, 1), (0, 2), (1,), (2,)):
        of = [[row[i] / scale[i] for i in used] for row in rows]
        matrix = [[sum(x[i] * x[j] for x in of) for j in range(len(used))]
                  + [sum(x[i] * row[3] for x, row in zip(of, rows))] for i in range(len(used))]
        found = _solve(matrix)
        if found is None or min(found) < 0:
            continue
        left = sum((sum(a * b for a, b in zip(found, x)) - row[3]) ** 2 for x, row in zip(of, rows))
        if left < best[0]:
            factors = dict(zip(used, found))
            a, b, c = (factors.get(i, 0.0) / scale[i] for i in range(3))
            best = (left, (a, b, c))
    return best[1]


def _solve(matrix: List[List[float]]) -> Optional[List[float]]:
    """By elimination; None where there is no one answer."""
    n = len(matrix)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(matrix[r][i]))
        if abs(matrix[pivot][i]) < 1e-9:
            return None
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for r in range(n):
            if r != i:
                factor = matrix[r][i] / matrix[i][i]
                matrix[r] = [a - factor * b for a, b in zip(matrix[r], matrix[i])]
    return [matrix[i][n] / matrix[i][i] for i in range(n)]
