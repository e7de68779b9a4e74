"""Muster for the Trainer of Hugging Face Transformers: Trainer(..., callbacks=[MusterCallback()])."""
from __future__ import annotations

from typing import Any, Dict, Optional

from transformers import TrainerCallback  # type: ignore[import]

from ._trainer import Steps
from .torch import Checkpointer, Loaded


class MusterCallback(TrainerCallback):  # type: ignore[misc]
    """What the trainer logs goes to the job's page. Where the trainer would save, Muster's Checkpointer does instead;
    the newest checkpoint is loaded when training begins. Asked to stop, it saves, ends training and the program."""

    def __init__(self, checkpointer: Optional[Checkpointer] = None) -> None:
        self._checkpointer = checkpointer
        self._state: Dict[str, Any] = {}
        self._epoch = 0.0
        self._steps = Steps(self._save, agree=True)
        self.loaded: Optional[Loaded] = None

    def _save(self, step: int, wait: bool) -> None:
        assert self._checkpointer is not None
        self._checkpointer.save(step, **self._state, extra={"epoch": self._epoch}, wait=wait)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None,
                       lr_scheduler: Any = None, **_: Any) -> None:
        self._state = {"model": model, "optimizer": optimizer, "scheduler": lr_scheduler}
        self._checkpointer = self._checkpointer or Checkpointer()
        self.loaded = self._checkpointer.load(**self._state) if self._steps.run.resume else None
        if self.loaded is not None:
            state.global_step, state.epoch = self.loaded.step, self.loaded.extra["epoch"]
        self._steps.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._epoch = float(state.epoch or 0)
        if self._steps.done(state.global_step, due=control.should_save):
            control.should_training_stop = True
        control.should_save = False

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if control.should_save:
            self._steps.keep(state.global_step)
        control.should_save = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self._steps.log(logs or {}, state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._steps.end()
