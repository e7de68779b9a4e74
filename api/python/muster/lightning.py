"""Muster for Lightning: Trainer(logger=MusterLogger(), callbacks=[MusterCheckpoint(every=100)])."""
from __future__ import annotations

from typing import Any, Dict, Optional

try:
    from lightning.pytorch import Callback  # type: ignore[import]
    from lightning.pytorch.loggers import Logger  # type: ignore[import]
except ImportError:
    from pytorch_lightning import Callback  # type: ignore[import]
    from pytorch_lightning.loggers import Logger  # type: ignore[import]

from ._trainer import Steps
from .torch import Checkpointer, Loaded


class MusterLogger(Logger):  # type: ignore[misc]
    """What the module logs goes to the job's page."""

    name, version, first = "muster", 0, 0  # first: steps of earlier runs

    def log_metrics(self, metrics: Dict[str, Any], step: Optional[int] = None) -> None:
        Steps(lambda *_: None, agree=False).log(metrics, self.first + (step or 0))

    def log_hyperparams(self, params: Any, *_: Any, **__: Any) -> None:
        Steps(lambda *_: None, agree=False).run.summary(hyperparameters=str(params)[:8000])


class MusterCheckpoint(Callback):  # type: ignore[misc]
    """Loads the newest checkpoint when training begins, saves each so many steps, and when asked to stop ends training
    and the program. The trainer counts its steps from 0 again; this counts on, and ends it at max_steps."""

    def __init__(self, every: int = 0, checkpointer: Optional[Checkpointer] = None) -> None:
        self._every, self._checkpointer, self._seen = every, checkpointer, 0
        self._state: Dict[str, Any] = {}
        self._steps = Steps(self._save, agree=True)
        self.loaded: Optional[Loaded] = None

    def _save(self, step: int, wait: bool) -> None:
        assert self._checkpointer is not None
        self._checkpointer.save(step, **self._state, wait=wait)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._state = {"model": pl_module, "optimizer": {str(i): o for i, o in enumerate(trainer.optimizers)},
                       "scheduler": {str(i): c.scheduler for i, c in enumerate(trainer.lr_scheduler_configs)}}
        self._checkpointer = self._checkpointer or Checkpointer()
        self.loaded = self._checkpointer.load(**self._state) if self._steps.run.resume else None
        MusterLogger.first, self._seen = self.loaded.step if self.loaded else 0, trainer.global_step
        self._steps.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == self._seen:  # gradients of several batches make a step
            return
        self._seen = trainer.global_step
        step = MusterLogger.first + self._seen
        if self._steps.done(step, due=self._every > 0 and step % self._every == 0) or 0 < trainer.max_steps <= step:
            trainer.should_stop = True

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._steps.end()
