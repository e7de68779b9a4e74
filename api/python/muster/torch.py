"""Muster for PyTorch programs.

    from muster.torch import Checkpointer

    checkpointer = Checkpointer()
    loaded = checkpointer.load(model, optimizer)
    first = loaded.step if loaded else 0
    for step in range(first + 1, steps + 1):
        ...
        if step % 100 == 0:
            checkpointer.save(step, model, optimizer)

docs/programs.md tells what is kept, and when it is copied.
"""
from __future__ import annotations

from . import _c10d
from ._checkpointer import Checkpointer, Loaded, Save
from ._ddp import CodecHook, ddp_codec_hook
from ._elastic import Agreed, agree, elastic, should_stop
from ._objects import register
from ._sampler import ElasticSampler, LengthBatchSampler
from ._state import Corrupt, DiskFull, MusterError, NotFound, Superseded

__all__ = ["Agreed", "Checkpointer", "CodecHook", "Corrupt", "DiskFull", "ElasticSampler", "LengthBatchSampler",
           "Loaded", "MusterError", "NotFound", "Save", "Superseded", "agree", "ddp_codec_hook", "elastic", "register",
           "should_stop"]

_c10d.register()
