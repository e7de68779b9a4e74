"""A loop whose job may be given other devices: all ranks stop at one step, and the next run goes on there."""
from __future__ import annotations

import importlib
import time
from typing import Any, Callable, Iterator, NamedTuple, Optional

from ._run import Run, init

SAVE_S = 600.0  # that a save may take without a step


class Agreed(NamedTuple):
    """What all ranks have agreed upon at a step."""
    stop: bool
    save: bool  # an order to save, and no more
    busy: bool  # of some rank


class Agreement:
    """Each step all ranks reduce [seq, stop, save, busy] by maximum, on a group of its own and beside the step's work.
    What counts at a step is what was told at the step before: so all ranks hear of an order at the same step, whenever
    its file came to their nodes."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._torch: Any = None
        self._group: Any = None
        self._work: Any = None
        self._word: Any = None
        self._saved = 0  # seq of the newest order to save that was agreed upon
        if run.world > 1:
            self._torch = importlib.import_module("torch")
            if not self._torch.distributed.is_initialized():
                raise RuntimeError("call torch.distributed.init_process_group first: ranks agree through it")
            self._group = self._torch.distributed.new_group(backend="gloo")

    def _own(self, busy: bool) -> list[int]:
        order = self.run.order()
        save = order is not None and order.order == "save" and order.seq > self._saved
        return [order.seq if order is not None and save else 0, self.run.should_stop(), save, busy]

    def next(self, busy: bool = False) -> Agreed:
        """At the end of each step, on all ranks."""
        told = [0, 0, 0, 0] if self._work is not None or self.run.world > 1 else self._own(busy)
        if self._work is not None:
            self._work.wait()
            told = self._word.tolist()
            self._work = None
        save = bool(told[2]) and told[0] > self._saved
        if save:
            self._saved = told[0]
        if self.run.world > 1 and not told[1]:
            self._word = self._torch.tensor(self._own(busy), dtype=self._torch.int64)
            self._work = self._torch.distributed.all_reduce(
                self._word, op=self._torch.distributed.ReduceOp.MAX, group=self._group, async_op=True)
        return Agreed(bool(told[1]), save, bool(told[3]))

    def meet(self) -> None:
        """Wait for all ranks."""
        if self.run.world > 1:
            self._torch.distributed.barrier(group=self._group)

    def close(self) -> None:
        """After the last step."""
        if self._work is not None:
            self._work.wait()
            self._work = None


_the_agreement: Optional[Agreement] = None


def agree(*, busy: bool = False) -> Agreed:
    """What all ranks are to do after this step; to be called once a step by all of them."""
    global _the_agreement
    if _the_agreement is None:
        _the_agreement = Agreement(init())
    return _the_agreement.next(busy)


def should_stop() -> bool:
    """Whether all ranks are to save and call stopped() after this step; to be called once a step by all of them."""
    return agree().stop


def _answer_save(run: Run, step: int) -> None:
    if run.should_save():
        run.saved(step)


def elastic(steps: int, *, save: Callable[[int], object], load: Optional[Callable[[], Optional[int]]] = None,
            sampler: Any = None, every: int = 0) -> Iterator[int]:
    """for step in elastic(1000, save=save, load=load, sampler=sampler): the body is one step with its update.

    Begins where load(), which puts the newest state back and returns how many steps it has, or None, says; it is called
    only where there is something to load. After the first step, each every steps, when told to and after the last step
    all ranks call save(steps done) alike; it returns once the state is safe. sampler.advance() is called before. When
    the job is to stop or to go on with other devices the loop saves and ends the program, as Run.stopped() does."""
    run = init()
    agreement = Agreement(run)
    done = (load() or 0) if load is not None and run.resume else 0
    began = time.monotonic()
    while done < steps:
        yield done
        done += 1
        if sampler is not None:
            sampler.advance()
        run.step(done)
        now = time.monotonic()
        run.log({"step_ms": (now - began) * 1000}, step=done)
        order = run.order()
        if order is not None and order.order == "abort":
            run.stopped(done)
        told = agreement.next()
        if told.stop or told.save or done in (1, steps) or (every > 0 and done % every == 0):
            with run.section("checkpoint", SAVE_S):
                save(done)
                agreement.meet()  # a launcher ends all of its ranks once one has ended
        if told.save:
            _answer_save(run, done)
        if told.stop:
            run.stopped(done)
        began = now if not (told.save or told.stop) else time.monotonic()
    agreement.close()
