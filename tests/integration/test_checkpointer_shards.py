"""muster.torch.Checkpointer on sharded parameters: FSDP's flat ones, and ShardedTensor.

Debian's PyTorch 1.13 cannot import either under Python 3.11, which refuses defaults of its dataclasses, and its FSDP
wants a GPU. With a hash for these defaults, in these tests alone, its own FlatParamHandle makes flat parameters on the
processor, and ShardedTensor works; a whole model under FSDP runs on a host with GPUs only.
"""
import dataclasses
import importlib
import math
import os
import sys
import types

import pytest
import torch

from tests.cluster import BIN, ROOT
from tests.torch_ranks import ranks

sys.path.insert(0, f"{ROOT}/api/python")
os.environ.setdefault("MUSTER_LIB", os.path.join(os.path.dirname(BIN), "lib", "muster"))
from muster._tensors import flat_spans  # noqa: E402  pylint: disable=wrong-import-position
from muster.torch import Checkpointer  # noqa: E402  pylint: disable=wrong-import-position

SHAPES = {"cut": {"a": (64, 300), "b": (64,)}, "few": {"a": (7,)}, "empty_ranks": {"a": (2,), "b": (1,)},
          "many": {"a": (3, 5), "b": (1,), "c": (2, 2, 2), "d": (500, 40)},
          "deep": {"a": (2, 1, 2, 3, 1, 2, 2), "b": (1, 70000)}}


def hashable():
    """PyTorch's modules of sharded tensors and flat parameters, whose defaults get a hash."""
    original = dataclasses._get_field

    def get_field(cls, name, *rest):
        default = getattr(cls, name, dataclasses.MISSING)
        kind = type(default.default if isinstance(default, dataclasses.Field) else default)
        if kind.__module__.startswith("torch.") and kind.__hash__ is None:
            kind.__hash__ = object.__hash__
        return original(cls, name, *rest)
    dataclasses._get_field = get_field
    try:
        return (importlib.import_module("torch.distributed._shard.sharded_tensor"),
                importlib.import_module("torch.distributed.fsdp.flat_param"))
    finally:
        dataclasses._get_field = original


def plain(seed):
    torch.manual_seed(seed)
    model = torch.nn.Module()
    for kind, shapes in SHAPES.items():
        inner = torch.nn.Module()
        for name, shape in shapes.items():
            inner.register_parameter(name, torch.nn.Parameter(torch.randn(shape)))
        setattr(model, kind, inner)
    return model


def sharded(seed, rank, world):
    """The same under FSDP's own flat parameters: its wrappers' names, and what this rank has."""
    _, fsdp = hashable()
    model, flats = plain(seed), {}
    config = fsdp.HandleConfig(fsdp.HandleShardingStrategy.FULL_SHARD, False, None, None)
    for kind, shapes in SHAPES.items():
        inner = getattr(model, kind)
        handle = fsdp.FlatParamHandle(list(inner.parameters()), inner, torch.device("cpu"), config)
        handle.shard(types.SimpleNamespace(rank=lambda: rank, size=lambda: world))
        for name in shapes:
            if hasattr(inner, name):
                delattr(inner, name)
        wrapper, outer = torch.nn.Module(), torch.nn.Module()
        wrapper._fpw_module = inner
        wrapper.flat_param = flats[kind] = handle.flat_param
        outer._fsdp_wrapped_module = wrapper
        setattr(model, kind, outer)
    return model, flats


def step(module, optimizer):
    for p in module.parameters():
        p.grad = p.detach() * 0.5 + 0.1  # of each element alone, so the same however they are cut
    optimizer.step()


def write(rank, world, folder):
    model, flats = sharded(1, rank, world)
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer)
    Checkpointer(folder).save(1, model, optimizer, wait=True)
    return {kind: flat._shard_param_offsets for kind, flat in flats.items()}


def read(rank, world, folder):
    model, flats = sharded(2, rank, world)
    optimizer = torch.optim.Adam(model.parameters())
    Checkpointer(folder).load(model, optimizer)
    step(model, optimizer)
    return {kind: (flat._shard_indices, flat._shard_param_offsets, flat.detach().clone())
            for kind, flat in flats.items()}


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5])
def test_flat_parameters_are_written_and_read_in_other_worlds_and_by_one_process(tmp_path, world):
    want = plain(1)
    want_optimizer = torch.optim.Adam(want.parameters())
    step(want, want_optimizer)
    after = {name: p.detach().clone() for name, p in want.named_parameters()}
    step(want, want_optimizer)
    metadata = ranks(world, write, tmp_path)
    for kind, shapes in SHAPES.items():
        have = sum(b + 1 - a for offsets in metadata for a, b in offsets[kind])
        assert have == sum(map(math.prod, shapes.values()))
    other = plain(2)
    optimizer = torch.optim.Adam(other.parameters())
    Checkpointer(tmp_path).load(other, optimizer)
    assert all(torch.equal(p, after[name]) for name, p in other.named_parameters())
    step(other, optimizer)
    assert all(torch.equal(p, q) for p, q in zip(other.parameters(), want.parameters()))
    for answer in ranks(world % 5 + 1, read, tmp_path):
        for kind, (indices, offsets, local) in answer.items():
            names, shapes = list(SHAPES[kind]), list(SHAPES[kind].values())
            for name, _, begin, end, at in flat_spans(names, shapes, indices, offsets):
                whole = getattr(getattr(want, kind), name).detach().view(-1)
                assert torch.equal(local[at:at + end - begin], whole[begin:end]), (kind, name)


def with_sharded_tensor(rank, world, folder, seed):
    """A model one of whose parameters is cut by rows, and another by columns, over two ranks."""
    st, _ = hashable()
    spec = importlib.import_module("torch.distributed._shard.sharding_spec")
    torch.manual_seed(seed)
    module = torch.nn.Module()
    for name, dim in (("rows", 0), ("columns", 1)):
        cut = spec.ChunkShardingSpec(dim=dim, placements=[f"rank:{r}/cpu" for r in range(world)])
        tensor = st.empty(cut, 301, 200)
        for shard in tensor.local_shards():
            r, c = shard.metadata.shard_offsets
            h, w = shard.metadata.shard_sizes
            shard.tensor.copy_((torch.arange(301 * 200.).view(301, 200) * seed)[r:r + h, c:c + w])
        module._parameters[name] = tensor
    module.plain = torch.nn.Parameter(torch.randn(40000))
    checkpointer = Checkpointer(folder)
    if seed == 3:
        checkpointer.save(1, module, wait=True)
        return rank
    checkpointer.load(module)
    return [(name, s.metadata.shard_offsets, s.tensor.clone()) for name in ("rows", "columns")
            for s in module._parameters[name].local_shards()]


def test_sharded_tensors_are_written_by_their_boxes_and_read_by_others(tmp_path):
    ranks(2, with_sharded_tensor, tmp_path, 3)
    want = torch.arange(301 * 200.).view(301, 200) * 3
    module = torch.nn.Module()
    module.rows, module.columns = (torch.nn.Parameter(torch.zeros(301, 200)) for _ in range(2))
    module.plain = torch.nn.Parameter(torch.zeros(40000))
    Checkpointer(tmp_path).load(module)
    assert torch.equal(module.rows, want) and torch.equal(module.columns, want)
    for answers in ranks(3, with_sharded_tensor, tmp_path, 5):
        for name, (r, c), tensor in answers:
            h, w = tensor.shape
            assert torch.equal(tensor, want[r:r + h, c:c + w]), name
