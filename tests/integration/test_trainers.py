"""muster.lightning, muster.transformers and muster.keras. Debian packages none of these libraries, so what calls the
callbacks here are trainers of this file, which do so in the order that the libraries' documents give:

Lightning      on_train_start, (on_train_batch_end, logger.log_metrics)*, on_train_end, on_fit_end; global_step rises at
               the optimizer's steps, and should_stop ends training after a batch
Transformers   on_train_begin, (on_step_end, on_log)*, on_epoch_end, on_train_end; its own callback comes first and sets
               control.should_save, by which the trainer saves after on_step_end; should_training_stop ends training
Keras          set_model, on_train_begin, (on_train_batch_end(batch, logs))*, on_epoch_end(epoch, logs), on_train_end;
               model.stop_training ends training after a batch
"""
import importlib
import json
import os
import shutil
import sys
import types

import pytest
import torch

from tests.cluster import BIN, ROOT, wait_for

sys.path.insert(0, f"{ROOT}/api/python")
os.environ.setdefault("MUSTER_LIB", os.path.join(os.path.dirname(BIN), "lib", "muster"))
from muster import _elastic, _run  # noqa: E402  pylint: disable=wrong-import-position

NAMES = ["lightning", "transformers", "keras"]


class Lightning:
    """A Trainer that accumulates gradients over two batches."""

    modules = {"lightning": {}, "lightning.pytorch": {"Callback": object},
               "lightning.pytorch.loggers": {"Logger": object}}

    def __init__(self, package, at):
        self.logger, self.callback = package.MusterLogger(), package.MusterCheckpoint(every=4)
        self.max_steps, self.global_step, self.should_stop, self.at = 10, 0, False, at

    def fit(self, model):
        self.optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)]
        self.lr_scheduler_configs = []
        self.callback.on_train_start(self, model)
        batch = 0
        while not self.should_stop and self.global_step < self.max_steps:
            model(torch.ones(1, 4)).sum().backward()
            if batch % 2:
                self.optimizers[0].step()
                self.optimizers[0].zero_grad()
                self.global_step += 1
                self.logger.log_metrics({"train loss": torch.tensor(0.5), "text": "no number"}, step=self.global_step)
                self.at(self.logger.first + self.global_step)
            self.callback.on_train_batch_end(self, model, None, None, batch)
            batch += 1
        self.callback.on_fit_end(self, model)


class Transformers:
    """A Trainer with save_steps 4."""

    modules = {"transformers": {"TrainerCallback": object}}

    def __init__(self, package, at):
        self.callback, self.at, self.saved = package.MusterCallback(), at, 0

    def fit(self, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
        state = types.SimpleNamespace(global_step=0, epoch=0.0)
        control = types.SimpleNamespace(should_training_stop=False, should_save=False)
        told = (None, state, control)
        more = {"model": model, "optimizer": optimizer, "lr_scheduler": scheduler}
        self.callback.on_train_begin(*told, **more)
        while not control.should_training_stop:
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            state.global_step += 1
            state.epoch = state.global_step / 10
            control.should_save = state.global_step % 4 == 0
            control.should_training_stop = state.global_step >= 10
            self.at(state.global_step)
            self.callback.on_step_end(*told, **more)
            self.callback.on_log(*told, logs={"train loss": 0.5, "text": "no number"}, **more)
            self.saved += control.should_save
        self.callback.on_epoch_end(*told, **more)
        self.callback.on_train_end(*told, **more)
        assert not self.saved, "what Muster has saved is not saved by the trainer"


class Keras:
    """A model whose fit() calls one callback."""

    modules = {"keras": {}, "keras.callbacks": {"Callback": type("Callback", (), {})}}

    def __init__(self, package, at):
        self.callback, self.at, self.stop_training = package.MusterCallback(every=4), at, False

    def save_weights(self, path, overwrite):
        assert overwrite
        torch.save(self.model.state_dict(), path)

    def load_weights(self, path):
        self.model.load_state_dict(torch.load(path))

    def fit(self, model):
        self.model = model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.callback.model = self
        self.callback.on_train_begin()
        while not self.stop_training and self.callback._step < 10:
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            self.at(self.callback._step + 1)
            self.callback.on_train_batch_end(0, {"train loss": 0.5, "text": "no number"})
        self.callback.on_epoch_end(0, {"train loss": 0.5, "val_loss": 0.25})
        self.callback.on_train_end({})


TRAINERS = dict(zip(NAMES, (Lightning, Transformers, Keras)))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A run of one rank."""
    for name in ("RANK", "WORLD_SIZE", "MUSTER_RESUME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "run").mkdir()
    for name, value in {"MUSTER_RUN_DIR": tmp_path / "run", "MUSTER_JOB_DIR": tmp_path, "RANK": "0", "WORLD_SIZE": "1",
                        "MUSTER_CHECKPOINT_DIR": tmp_path / "checkpoints"}.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path / "run"


def fit(name, monkeypatch, at=lambda step: None, resume=False):
    """A new run, whose program fits a model; its first weight at the end, and what ended it."""
    kind = TRAINERS[name]
    for module, content in kind.modules.items():
        fake = types.ModuleType(module)
        fake.__dict__.update(content, __path__=[])
        monkeypatch.setitem(sys.modules, module, fake)
    monkeypatch.setenv("MUSTER_RESUME", "1" if resume else "0")
    monkeypatch.setattr(_run, "_the_run", None)
    monkeypatch.setattr(_elastic, "_the_agreement", None)
    monkeypatch.delitem(sys.modules, f"muster.{name}", raising=False)
    torch.manual_seed(1)
    model, ended = torch.nn.Linear(4, 1), None
    try:
        trainer = kind(importlib.import_module(f"muster.{name}"), at)
        trainer.fit(model)
    except SystemExit as e:
        ended = e.code
    run = _run.init()
    run._flush()
    checkpointer = getattr(trainer.callback, "_checkpointer", None)
    if checkpointer is not None:
        checkpointer.close()
    run._end()
    return float(model.weight[0, 0]), ended


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def order(place, **members):
    (place / "order.new").write_text(json.dumps({"v": 1, "deadline": None, "reason": "", **members}), encoding="ascii")
    (place / "order.new").rename(place / "order.json")
    wait_for("the order", lambda: (o := _run.init().order()) is not None and o.seq == members["seq"])


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_is_told_of_saved_stopped_and_goes_on_where_it_was(place, monkeypatch, name):
    whole, ended = fit(name, monkeypatch)
    assert ended is None
    metrics = lines(place / "metrics.jsonl")
    assert {m["step"] for m in metrics} == set(range(1, 11)) and all(m["train_loss"] == 0.5 for m in metrics
                                                                     if "train_loss" in m)
    assert any("step_ms" in m for m in metrics) and not any("text" in m for m in metrics)
    assert [e["step"] for e in lines(place / "events.jsonl") if e["type"] == "checkpoint"] == [4, 8]

    (place / "events.jsonl").unlink()
    shutil.rmtree(place.parent / "checkpoints")

    def at(step):
        if step == 2:
            order(place, seq=1, order="save")
        if step == 6:
            order(place, seq=2, order="stop")
    _, ended = fit(name, monkeypatch, at)
    assert ended == 76
    assert json.loads((place / "rank-00000.result").read_text(encoding="ascii"))["outcome"] == "stopped"
    assert json.loads((place / "rank-00000.ack").read_text(encoding="ascii")) == {
        "seq": 2, "step": 6, "did": "stopping"}
    assert [e["step"] for e in lines(place / "events.jsonl") if e["type"] == "checkpoint"] == [2, 4, 6]

    (place / "order.json").unlink()
    (place / "metrics.jsonl").unlink()
    resumed, ended = fit(name, monkeypatch, resume=True)
    assert ended is None and {m["step"] for m in lines(place / "metrics.jsonl")} == {7, 8, 9, 10}
    assert resumed == whole, "weights, and the optimizer's momentum where it is kept, are those of the run that was not"


def test_each_callback_has_at_most_60_lines():
    for name in NAMES:
        with open(f"{ROOT}/api/python/muster/{name}.py", encoding="ascii") as f:
            assert len(f.read().splitlines()) <= 60
