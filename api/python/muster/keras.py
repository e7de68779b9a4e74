"""Muster for Keras: model.fit(..., callbacks=[MusterCallback(every=100)]), in a program of one rank."""
from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, List, Optional

from keras.callbacks import Callback  # type: ignore[import]

from ._trainer import Steps

NAME = re.compile(r"step-(\d+)\.weights\.h5")


class MusterCallback(Callback):  # type: ignore[misc]
    """What fit() tells of its batches and epochs goes to the job's page. Weights are saved each so many steps by
    save_weights(), as Keras's own BackupAndRestore does, and the newest are loaded when training begins; two are kept.
    Asked to stop, it saves, ends training and the program."""

    def __init__(self, every: int = 0) -> None:
        super().__init__()
        self._every, self._step = every, 0
        self._steps = Steps(self._save, agree=False)

    def _kept(self) -> List[Path]:
        """Oldest first."""
        folder = self._steps.run.checkpoint_dir
        return sorted(p for p in folder.glob("step-*.weights.h5") if NAME.fullmatch(p.name)) if folder.is_dir() else []

    def _save(self, step: int, _: bool) -> None:
        folder = self._steps.run.checkpoint_dir
        folder.mkdir(parents=True, exist_ok=True)
        path, new = folder / f"step-{step:012}.weights.h5", folder / "new.weights.h5"
        self.model.save_weights(str(new), overwrite=True)
        with open(new, "rb") as f:
            os.fsync(f.fileno())
        new.replace(path)
        self._steps.run.checkpoint(str(path.absolute()), step=step)
        for old in self._kept()[:-2]:
            old.unlink()

    def on_train_begin(self, logs: Optional[Any] = None) -> None:
        newest = self._kept()[-1:] if self._steps.run.resume else []
        if newest:
            self.model.load_weights(str(newest[0]))
            self._step = int(newest[0].name[len("step-"):].split(".")[0])
        self._steps.begin()

    def on_train_batch_end(self, batch: int, logs: Optional[Any] = None) -> None:
        self._step += 1
        self._steps.log(logs or {}, self._step)
        if self._steps.done(self._step, due=self._every > 0 and self._step % self._every == 0):
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Optional[Any] = None) -> None:
        self._steps.log({k: v for k, v in (logs or {}).items() if k.startswith("val_")}, self._step)

    def on_train_end(self, logs: Optional[Any] = None) -> None:
        self._steps.end()
