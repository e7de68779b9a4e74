"""What the callbacks of trainers share: the end of a step, at which it is told, saved where that is due, and obeyed."""
from __future__ import annotations

import math
import time
from typing import Any, Callable, Mapping, Optional

from ._run import Run, init

SAVE_S = 600.0  # that a save may take without a step


class Steps:
    """The steps of a trainer. save(step, wait) keeps the state; agree: whether the ranks are to agree on orders, as
    those of PyTorch do."""

    def __init__(self, save: Callable[[int, bool], Any], agree: bool) -> None:
        self.run: Run = init()
        self._save, self._agree, self._began = save, agree, 0.0
        self.stopped: Optional[int] = None  # after which step

    def begin(self) -> None:
        """Before the first step."""
        self._began = time.monotonic()

    def done(self, step: int, due: bool = False) -> bool:
        """step steps are done; due: the trainer would save now. Whether it is to end."""
        if self._agree:
            from ._elastic import agree
            stop, save = agree()[:2]
        else:
            stop, save = self.run.should_stop(), self.run.should_save()
        self.run.step(step)
        self.log({"step_ms": (time.monotonic() - self._began) * 1000}, step)
        if stop or save or due:
            self.keep(step, stop or save)
        if stop:
            self.stopped = step
        self._began = time.monotonic()
        return stop

    def keep(self, step: int, wait: bool = False) -> None:
        """Save now, and answer whoever has asked for it."""
        order = self.run.order()
        if order is None or order.order != "abort":
            with self.run.section("checkpoint", SAVE_S):
                self._save(step, wait)
        if wait and self.run.should_save():
            self.run.saved(step)

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """What of a trainer's values is a number, by names that Muster takes."""
        numbers = {_name(k): float(v) for k, v in values.items() if _is_number(v)}
        if numbers:
            self.run.log(numbers, step=step)

    def end(self) -> None:
        """The trainer has ended: so does the program, where it was asked to stop."""
        if self.stopped is not None:
            self.run.stopped(self.stopped)


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (str, bytes, bool)) and not math.isnan(float(value))
    except (TypeError, ValueError):
        return False


def _name(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_./:-") else "_" for c in name)[:128] or "_"
