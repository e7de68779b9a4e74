"""muster.torch.Checkpointer on Debian's PyTorch: what is kept, by how many ranks it is written and read, and how it
fails."""
import collections
import contextlib
import fcntl
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from tests.cluster import BIN, ROOT, wait_for
from tests.torch_ranks import ranks

sys.path.insert(0, f"{ROOT}/api/python")
os.environ.setdefault("MUSTER_LIB", os.path.join(os.path.dirname(BIN), "lib", "muster"))
from muster import _objects, _tensors  # noqa: E402  pylint: disable=wrong-import-position
from muster.torch import (Checkpointer, Corrupt, NotFound,  # noqa: E402  pylint: disable=wrong-import-position
                          Superseded, register)


class Model(torch.nn.Module):
    """Tensors below and above the size from which they are cut, tied ones, buffers."""

    def __init__(self, width=96):
        super().__init__()
        self.embed = torch.nn.Embedding(400, width)
        self.block = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.BatchNorm1d(4 * width),
                                         torch.nn.GELU(), torch.nn.Linear(4 * width, width))
        self.head = torch.nn.Linear(width, 400, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, x):
        return self.head(self.block(self.embed(x)))


def make(seed=1, kind=torch.optim.AdamW, **options):
    torch.manual_seed(seed)
    model = Model()
    return model, kind(model.parameters(), **{"lr": 1e-2, **options})


def train(model, optimizer, steps, first=0):
    for step in range(first, first + steps):
        x = torch.randint(0, 400, (16,), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), (x * 7) % 400).backward()
        optimizer.step()


def flat(value, at=""):
    """Every tensor and value of nested dicts by its path."""
    if isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {k: v for key, inner in items for k, v in flat(inner, f"{at}.{key}").items()}
    return {at: value.clone() if torch.is_tensor(value) else value}


def state(model, optimizer=None):
    return flat({"model": model.state_dict(), "optimizer": optimizer.state_dict() if optimizer else {}})


def same(a, b):
    assert a.keys() == b.keys(), sorted(a.keys() ^ b.keys())
    for name, value in a.items():
        if torch.is_tensor(value):
            assert value.dtype == b[name].dtype and torch.equal(value, b[name]), name
        else:
            assert value == b[name], name
    return True


def muster(*argv):
    return subprocess.run([f"{BIN}/muster", "checkpoint", *map(str, argv)], capture_output=True, text=True, check=False)


def steps_in(folder):
    return sorted(int(name[5:]) for name in os.listdir(folder) if name.startswith("step-") and os.path.exists(
        os.path.join(folder, name, "MANIFEST")))


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_save_keeps_the_state_of_its_moment_while_training_goes_on(tmp_path):
    model, optimizer = make()
    checkpointer = Checkpointer(tmp_path, keep=9)
    states = {}
    for step in range(1, 6):
        train(model, optimizer, 1, step)
        states[step] = state(model, optimizer)
        assert checkpointer.save(step, model, optimizer) or checkpointer.busy
    checkpointer.close()
    found = steps_in(tmp_path)
    assert found and found[0] == 1
    for step in found:
        model, optimizer = make(2)
        loaded = checkpointer.load(model, optimizer, step=step)
        assert loaded.step == step and loaded.notes == [] and same(state(model, optimizer), states[step])
        assert model.head.weight is model.embed.weight
    train(model, optimizer, 2, 5)


@pytest.mark.parametrize("kind, options", [
    (torch.optim.SGD, {"momentum": 0.9}), (torch.optim.SGD, {}), (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.Adagrad, {}), (torch.optim.RMSprop, {"centered": True}), (torch.optim.Rprop, {}),
    (torch.optim.NAdam, {}), (torch.optim.Adadelta, {})])
def test_optimizers_go_on_as_if_never_interrupted(tmp_path, kind, options):
    model, optimizer = make(1, kind, **options)
    train(model, optimizer, 3)
    Checkpointer(tmp_path).save(3, model, optimizer, wait=True)
    train(model, optimizer, 2, 3)
    other, another = make(2, kind, **options)
    assert Checkpointer(tmp_path).load(other, another).step == 3
    train(other, another, 2, 3)
    assert same(state(model, optimizer), state(other, another))


def test_an_optimizer_with_lists_of_tensors_is_refused_by_path(tmp_path):
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.LBFGS(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().sum()
        loss.backward()
        return loss
    optimizer.step(closure)
    with pytest.raises(TypeError, match=r"optim\.0\.weight\.\w+.*Tensor cannot be kept"):
        Checkpointer(tmp_path).save(1, model, optimizer)


def test_schedulers_scaler_sampler_average_and_extra_come_back(tmp_path):
    class Sampler:
        place = {"epoch": 2, "at": 17}

        def state_dict(self):
            return self.place

        def load_state_dict(self, value):
            self.place = value

    def all_of(seed):
        model, optimizer = make(seed)
        scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [
            torch.optim.lr_scheduler.ConstantLR(optimizer), torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 50)], [
                4]) if seed < 0 else torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 50)
        return model, optimizer, scheduler, torch.cuda.amp.GradScaler(enabled=False), Sampler(), \
            torch.optim.swa_utils.AveragedModel(model)

    model, optimizer, scheduler, scaler, sampler, ema = all_of(1)
    for step in range(3):
        train(model, optimizer, 1, step)
        scheduler.step()
        ema.update_parameters(model)
    extra = {"best": math.inf, "seen": {3, 1}, (1, "a"): [torch.arange(3), None, b"\0x"], "big": 1 << 70}
    Checkpointer(tmp_path).save(3, model, optimizer, scheduler=scheduler, scaler=scaler, sampler=sampler, ema=ema,
                                extra=extra, wait=True)
    other = all_of(2)
    other[4].place = None
    loaded = Checkpointer(tmp_path).load(*other[:2], scheduler=other[2], scaler=other[3], sampler=other[4],
                                          ema=other[5])
    assert same(flat(extra), flat(loaded.extra)) and loaded.sampler == other[4].place == Sampler.place
    assert same(flat(ema.state_dict()), flat(other[5].state_dict()))
    for a, b, c in ((model, optimizer, scheduler), other[:3]):
        train(a, b, 2, 3)
        c.step()
    assert same(state(model, optimizer), state(*other[:2])) and scheduler.get_last_lr() == other[2].get_last_lr()


def test_objects_are_closed_json_and_unknown_ones_are_refused_with_their_path():
    value = [None, True, -3, 1.5, "ä\0", "\ud800", float("nan"), -math.inf, (1, [2]), {1: "a", None: {}}, {1, 2},
             frozenset(["x"]), b"\xff", 1 << 80, collections.OrderedDict(b=1, a=2), collections.Counter("aab"),
             {"!": "tuple", "v": [1]}, np.float64(0.25)]
    text = json.dumps(_objects.pack(value, "extra"))
    back = _objects.unpack(json.loads(text))
    assert repr(back) == repr(value[:-1] + [0.25]) and type(back[-4]) is collections.OrderedDict
    assert list(back[-4]) == ["b", "a"] and "\\u0000" not in text

    class Own:
        def __init__(self, n):
            self.n = n

    with pytest.raises(TypeError, match=r"extra\.a\[1\]: a .*Own cannot be kept"):
        _objects.pack({"a": [0, Own(1)]}, "extra")
    register(Own, lambda o: {"n": o.n}, lambda d: Own(d["n"]), "own")
    assert _objects.unpack(_objects.pack([Own(5)], ""))[0].n == 5
    for odd in ({"!": "os.system", "v": "x"}, {"a": 1}, {"!": "pickle", "v": "gASVAAAA"}, {"!": "tuple", "v": 3}):
        with pytest.raises(ValueError):
            _objects.unpack(odd)
    loop = []
    loop.append(loop)
    with pytest.raises(TypeError, match="in itself"):
        _objects.pack(loop, "extra")


def test_pickles_are_kept_and_run_only_where_both_ends_allow_it(tmp_path):
    model, _ = make()
    extra = {"when": range(3)}
    with pytest.raises(TypeError, match=r"extra\.when: a builtins\.range"):
        Checkpointer(tmp_path).save(1, model, extra=extra)
    Checkpointer(tmp_path, allow_pickle=True).save(1, model, extra=extra, wait=True)
    with pytest.raises(ValueError, match="allow_pickle=True"):
        Checkpointer(tmp_path).load(model)
    assert Checkpointer(tmp_path, allow_pickle=True).load(model).extra == extra


def test_models_of_every_type_many_dimensions_and_odd_strides_come_back(tmp_path):
    def odd(seed):
        torch.manual_seed(seed)
        model = torch.nn.Module()
        model.deep = torch.nn.Parameter(torch.randn(2, 1, 2, 3, 1, 2, 2))
        model.scalar = torch.nn.Parameter(torch.randn(()))
        model.empty = torch.nn.Parameter(torch.randn(0, 3))
        model.channels = torch.nn.Parameter(torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last))
        model.small = torch.nn.Parameter(torch.randn(5, 40000).bfloat16())
        for i, dtype in enumerate(_tensors.TYPES):
            model.register_buffer(f"b{i}", (torch.rand(7) * 5).to(dtype))
        return model

    model = odd(1)
    Checkpointer(tmp_path).save(1, model, wait=True)
    other = odd(2)
    Checkpointer(tmp_path).load(other)
    assert same(state(model), state(other)) and other.channels.stride() == model.channels.stride()
    model.small = torch.nn.Parameter(model.small.detach().to_sparse())
    with pytest.raises(TypeError, match="'small' is a sparse or quantised tensor"):
        Checkpointer(tmp_path).save(2, model)


def test_an_f32_copy_of_16_bit_weights_is_the_master_weight(tmp_path):
    def mixed(seed):
        torch.manual_seed(seed)
        model = torch.nn.Linear(40, 30).bfloat16()
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    model, optimizer = mixed(1)
    for p in model.parameters():
        optimizer.state[p]["master_param"] = torch.randn(p.shape)
    Checkpointer(tmp_path).save(1, model, optimizer, wait=True)
    doc = json.loads(muster("inspect", "-o", "json", tmp_path / "step-00000001").stdout)
    assert {(t["name"], t["role"], t["dtype"]) for t in doc["tensors"] if t["name"] == "weight"} == {
        ("weight", "master", "f32"), ("weight", "weight", "bf16")}
    other = mixed(2)
    Checkpointer(tmp_path).load(*other)
    assert same(state(model, optimizer), state(*other))


def test_tied_tensors_are_kept_once_and_partly_shared_ones_refused(tmp_path):
    model, _ = make()
    Checkpointer(tmp_path).save(1, model, wait=True)
    doc = json.loads(muster("inspect", "-o", "json", tmp_path / "step-00000001").stdout)
    names = {t["name"] for t in doc["tensors"]}
    assert "embed.weight" in names and "head.weight" not in names
    model.head.weight = torch.nn.Parameter(model.head.weight.detach().clone())
    with pytest.raises(ValueError, match="'head.weight' and 'embed.weight' are one tensor in the checkpoint"):
        Checkpointer(tmp_path).load(model)
    shared = torch.randn(10)
    model.a, model.b = torch.nn.Parameter(shared[:6]), torch.nn.Parameter(shared[4:])
    with pytest.raises(ValueError, match="'a' and 'b' share a part of their memory"):
        Checkpointer(tmp_path).save(2, model)
    again = torch.nn.Module()  # one in memory, though not one object
    again.a, again.b = torch.nn.Parameter(shared.view(2, 5)), torch.nn.Parameter(shared.view(2, 5))
    assert _tensors.find(again).tied == {"b": "a"}


def test_models_and_optimizers_of_a_dict_have_its_keys_before_their_names(tmp_path):
    def two(seed):
        torch.manual_seed(seed)
        models = {"gen": torch.nn.Linear(3, 4), "crit": torch.nn.Linear(4, 1)}
        return models, {k: torch.optim.Adam(m.parameters()) for k, m in models.items()}

    def steps(models, optimizers):
        for one in optimizers.values():
            one.zero_grad()
        models["crit"](models["gen"](torch.ones(2, 3))).sum().backward()
        for one in optimizers.values():
            one.step()

    models, optimizers = two(1)
    steps(models, optimizers)
    Checkpointer(tmp_path).save(1, models, optimizers, wait=True)
    other = two(2)
    Checkpointer(tmp_path).load(*other)
    steps(models, optimizers)
    steps(*other)
    for k in models:
        assert same(state(models[k], optimizers[k]), state(other[0][k], other[1][k]))
    with pytest.raises(ValueError, match="a parameter that is in no model"):
        Checkpointer(tmp_path).save(2, models["gen"], optimizers["crit"])


def test_a_strict_load_names_what_differs(tmp_path):
    Checkpointer(tmp_path).save(1, torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)), wait=True)
    small, large = (torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(n)]) for n in (1, 3))
    with pytest.raises(ValueError, match="step 1 has '1.bias', '1.weight' that the model lacks"):
        Checkpointer(tmp_path).load(small)
    with pytest.raises(NotFound, match="lacks '2.bias', '2.weight'"):
        Checkpointer(tmp_path).load(large)
    assert Checkpointer(tmp_path).load(large, strict=False).step == 1
    with pytest.raises(NotFound, match="no optimizer"):
        Checkpointer(tmp_path).load(small, torch.optim.SGD(small.parameters(), 1), strict=False)
    with pytest.raises(ValueError, match="'0.weight' .master. has another shape"):
        Checkpointer(tmp_path).load(torch.nn.Sequential(torch.nn.Linear(3, 2)), strict=False)
    assert Checkpointer(tmp_path / "none").load(small) is None
    with pytest.raises(NotFound):
        Checkpointer(tmp_path).load(small, step=5)


# --- the moment of capture --------------------------------------------------------------------------------------------


def test_schedulers_made_before_and_after_the_gate_still_count(tmp_path):
    for later in (False, True):
        model, optimizer = make()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scheduler = None if later else torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
            Checkpointer(tmp_path / str(later)).save(0, model, optimizer, wait=True)
            scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
            train(model, optimizer, 1)
            scheduler.step()
        assert scheduler.get_last_lr() == [5e-3] and optimizer._step_count == 1


@pytest.mark.parametrize("world", [1, 2])
def test_failure_5_a_write_outside_the_gate_gives_the_save_up_by_name(tmp_path, world):
    def run(rank, _, folder):
        model, optimizer = make()
        checkpointer = Checkpointer(folder)
        train(model, optimizer, 1)
        first = checkpointer.save(1, model, optimizer)
        train(model, optimizer, 1)
        second = checkpointer.save(2, model, optimizer)
        if rank == world - 1:
            with torch.no_grad():
                model.block[0].weight.mul_(2)
        train(model, optimizer, 1)
        first.wait()
        with contextlib.suppress(Exception):
            second.wait()
        third = checkpointer.save(3, model, optimizer, wait=True)
        return str(first.error), str(second.error), str(third.error)

    for rank, (first, second, third) in enumerate(ranks(world, run, tmp_path)):
        assert first == third == "None"
        if rank == world - 1:
            assert "'block.0.weight' was changed outside of optimizer.step()" in second
        elif rank == 0:
            assert "rank 1 could not write its part" in second and "'block.0.weight' was changed" in second
    assert steps_in(tmp_path) == [1, 3]


def test_without_an_optimizer_the_state_is_copied_in_the_call(tmp_path):
    model, _ = make()
    want = state(model)
    save = Checkpointer(tmp_path).save(1, model)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    save.wait()
    other, _ = make(2)
    Checkpointer(tmp_path).load(other)
    assert same(state(other), want)


def test_a_third_save_is_left_out_while_two_are_under_way(tmp_path):
    model, optimizer = make()
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, model, optimizer, wait=True)
    with open(tmp_path / ".generation", "rb") as fence:
        fcntl.flock(fence, fcntl.LOCK_EX)  # nothing is renamed meanwhile
        saves = [checkpointer.save(step, model, optimizer) for step in (2, 3, 4)]
        assert saves[0] and saves[1] and saves[2] is None and checkpointer.busy
    saves[1].wait()
    assert saves[0].done and not checkpointer.busy and steps_in(tmp_path) == [1, 2, 3]


def test_adopted_memory_lies_in_pages_and_is_written_and_trained_as_any(tmp_path):
    model, optimizer = make()
    plain, same_optimizer = make()
    checkpointer = Checkpointer(tmp_path, adopt=True)
    checkpointer.adopt(model)
    for step in (1, 2, 3):
        train(model, optimizer, 1, step)
        train(plain, same_optimizer, 1, step)
        checkpointer.save(step, model, optimizer, wait=step > 1)
    params = [p for _, p in sorted(model.named_parameters())]
    for lie in (params, [optimizer.state[p]["exp_avg"] for p in params]):
        places = [(t.data_ptr(), -(-t.numel() * 4 // 4096) * 4096) for t in lie]
        assert all(at % 4096 == 0 for at, _ in places)
        assert all(at + length == next_ for (at, length), (next_, _) in zip(places, places[1:]))
    assert same(state(model, optimizer), state(plain, same_optimizer))
    assert model.head.weight is model.embed.weight
    other, another = make(2)
    Checkpointer(tmp_path).load(other, another)
    assert same(state(other, another), state(model, optimizer))


# --- ranks ------------------------------------------------------------------------------------------------------------


def wrap(model, world):
    return DistributedDataParallel(model) if world > 1 else model


def write(rank, world, folder):
    model, optimizer = make()
    model = wrap(model, world)
    train(model, optimizer, 2)
    model.eval()  # so that statistics of batches stay the same for all
    Checkpointer(folder).save(2, model, optimizer, extra={"at": [1, torch.ones(2) * 3]}, wait=True)
    return rank


def read(rank, world, folder):
    answers = []
    for writers in (1, 2, 4):
        model, optimizer = make(2)
        model = wrap(model, world)
        loaded = Checkpointer(f"{folder}/{writers}").load(model, optimizer)
        answers.append((state(model.module if world > 1 else model, optimizer), loaded.notes, loaded.extra["at"][0]))
    return answers


def test_what_1_2_and_4_ranks_write_has_one_digest_and_loads_in_worlds_of_1_to_4(tmp_path):
    for writers in (1, 2, 4):
        ranks(writers, write, tmp_path / str(writers))
    digests = {muster("digest", tmp_path / str(writers) / "step-00000002").stdout for writers in (1, 2, 4)}
    assert len(digests) == 1 and digests.pop().strip()
    doc = json.loads(muster("inspect", "-o", "json", tmp_path / "4" / "step-00000002").stdout)
    written = collections.Counter()
    for tensor in doc["tensors"]:
        for shard in tensor["shards"]:
            written[shard["rank"]] += shard["bytes"] * (tensor["role"] != "buffer")
    assert len(written) == 4 and max(written.values()) < 1.3 * min(written.values()), written
    model, optimizer = make()
    train(model, optimizer, 2)
    want = state(model, optimizer)
    for world in (1, 2, 3, 4):
        for answers in ranks(world, read, tmp_path):
            for writers, (got, notes, extra) in zip((1, 2, 4), answers):
                assert same(got, want) and extra == 1
                assert bool(notes) == (writers != world) and all("random numbers begin anew" in n for n in notes)


def test_random_numbers_go_on_in_an_equal_world(tmp_path):
    def draw():
        return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random(), random.gauss(0, 1)

    def run(rank, _, folder):
        model, _ = make()
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(5 + rank)
        random.gauss(0, 1)
        Checkpointer(folder).save(1, model, wait=True)
        want = draw()
        torch.distributed.barrier()
        assert Checkpointer(folder).load(model).notes == []
        return draw() == want, want

    answers = ranks(2, run, tmp_path)
    assert answers[0][0] and answers[1][0] and answers[0][1] != answers[1][1]


def test_failure_9_ranks_of_other_parameters_commit_nothing_and_the_tensor_is_named(tmp_path):
    def run(rank, _, folder):
        model, _ = make()
        if rank:
            model.zz = torch.nn.Parameter(torch.ones(70000))
        save = Checkpointer(folder).save(1, model)
        with contextlib.suppress(Exception):
            save.wait()
        return str(save.error)

    error = ranks(2, run, tmp_path)[0]
    assert re.search(r"tensor '[\w.]+' \(master\): (only \d+ of its \d+ elements|rank 0 and rank 1 both store)", error)
    assert steps_in(tmp_path) == []


def test_several_ranks_without_a_process_group_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="init_process_group"):
        Checkpointer(tmp_path).save(1, torch.nn.Linear(2, 2))


# --- failures ---------------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys
import torch
torch.set_num_threads(1)
from muster.torch import Checkpointer
torch.manual_seed(1)
model = torch.nn.Linear(1000, 1000)
optimizer = torch.optim.Adam(model.parameters())
checkpointer = Checkpointer(sys.argv[1], keep=3)
loaded = checkpointer.load(model, optimizer)
at = loaded.step if loaded else 0
print("begins", at, flush=True)
def step():
    model(torch.ones(2, 1000)).square().mean().backward()
    optimizer.step()
def stop():
    os.kill(os.getpid(), 9)
"""


def run_program(folder, more, **env):
    return subprocess.run(["/usr/bin/python3", "-c", PROGRAM + more, str(folder)], capture_output=True, text=True,
                          check=False, env={**os.environ, "PYTHONPATH": f"{ROOT}/api/python", **env})


@pytest.fixture(scope="module")
def rename_kills(tmp_path_factory):
    """A library that kills the process as it renames what KILL_AT ends with."""
    folder = tmp_path_factory.mktemp("preload")
    (folder / "kill.c").write_text("""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int rename(const char *from, const char *to);
int rename(const char *from, const char *to)
{
    const char *at = getenv("KILL_AT");
    int (*next)(const char *, const char *);
    *(void **)&next = dlsym(RTLD_NEXT, "rename");
    if (at && strlen(to) > strlen(at) && !strcmp(to + strlen(to) - strlen(at), at))
        (void)kill(getpid(), SIGKILL);
    return next(from, to);
}
""", encoding="ascii")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "kill.so", folder / "kill.c", "-ldl"], check=True)
    return str(folder / "kill.so")


def forked(folder, more):
    """As run_program, without an interpreter of its own: what it ended with."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            sys.argv[1:] = [str(folder)]
            exec(PROGRAM + more, {})  # pylint: disable=exec-used
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


SAVES = "step(); checkpointer.save(2, model, optimizer, wait=True)"


@pytest.mark.parametrize("where, more, kill_at", [
    ("in capture", "step(); checkpointer.save(2, model, optimizer); stop()", ""),
    ("at the gate", "step(); checkpointer.save(2, model, optimizer); checkpointer._writer.gate = stop; step()", ""),
    ("at the rename of its file", SAVES, "rank-00000.mck"), ("at the rename of MANIFEST", SAVES, "/MANIFEST")])
def test_failure_1_kill_9_leaves_the_older_whole_step(tmp_path, rename_kills, where, more, kill_at):
    assert forked(tmp_path, "step(); checkpointer.save(1, model, optimizer, wait=True)") == 0
    killed = run_program(tmp_path, more, LD_PRELOAD=rename_kills, KILL_AT=kill_at).returncode if kill_at else \
        forked(tmp_path, more)
    assert killed == -signal.SIGKILL and steps_in(tmp_path) == [1], where
    assert forked(tmp_path, f"assert at == 1\n{SAVES}") == 0
    assert steps_in(tmp_path) == [1, 2]


def test_a_program_that_ends_right_after_a_save_has_saved(tmp_path):
    assert run_program(tmp_path, "step(); checkpointer.save(1, model, optimizer)").returncode == 0
    out = run_program(tmp_path, "if os.fork() == 0: sys.exit(7)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))")
    assert out.stdout == "begins 1\n7\n", out.stderr  # a child does not wait for what only its parent has


def test_failure_4_a_full_disk_is_told_once_and_training_goes_on(tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    more = """
import resource, signal, warnings
step(); checkpointer.save(1, model, optimizer, wait=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
for i in (2, 3):
    step(); checkpointer.save(i, model, optimizer)
    step()
    checkpointer._writer.drain(100); checkpointer.gate()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
step(); checkpointer.save(4, model, optimizer, wait=True)
print("trained on")
"""
    out = run_program(tmp_path / "dir", more, MUSTER_RUN_DIR=str(place), RANK="0", MUSTER_GENERATION="3")
    assert out.returncode == 0 and out.stdout.endswith("trained on\n"), out.stderr
    assert out.stderr.count("RuntimeWarning: muster: checkpoint of step 2") == 1 and "step 3" not in out.stderr
    events = [json.loads(line) for line in (place / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(e["type"], e["step"], "error" in e) for e in events] == [
        ("checkpoint", 1, False), ("checkpoint", 2, True), ("checkpoint", 3, True), ("checkpoint", 4, False)]
    assert events[0]["path"] == str(tmp_path / "dir" / "step-00000001") and events[0]["bytes"] > 12e6
    assert (tmp_path / "dir" / ".generation").read_text(encoding="ascii").strip("0\n") == "3"
    assert steps_in(tmp_path / "dir") == [1, 4]


def test_failure_8_a_rank_of_an_old_generation_replaces_nothing(tmp_path):
    model, optimizer = make()
    old, new = Checkpointer(tmp_path), Checkpointer(tmp_path)
    old.save(1, model, optimizer, wait=True)
    new.save(2, model, optimizer, wait=True)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("step-*/*")}
    with pytest.warns(RuntimeWarning), pytest.raises(Superseded):
        old.save(2, model, optimizer, wait=True) and old.save(3, model, optimizer, wait=True)
    with pytest.raises(Superseded):
        old.save(4, model, optimizer)
    train(model, optimizer, 1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("step-*/*")} == before


@pytest.mark.parametrize("world", [1, 2])
def test_a_damaged_newest_step_is_passed_over_for_the_next_by_all_ranks(tmp_path, world):
    def run(rank, _, folder):
        model, optimizer = make()
        checkpointer = Checkpointer(folder)
        for step in (1, 2):
            train(model, optimizer, 1, step)
            if step == 1:
                want = state(model, optimizer)
            checkpointer.save(step, model, optimizer, wait=True)
        checkpointer.close()
        if rank == 0:
            wait_for("both steps", lambda: steps_in(folder) == [1, 2])
            with open(folder / "step-00000002" / "rank-00000.mck", "r+b") as f:
                f.seek(4096 + 100000)
                f.write(b"\1\2\3\4")
        if world > 1:
            torch.distributed.barrier()
        loaded = Checkpointer(folder).load(model, optimizer)
        equal = same(state(model, optimizer), want)
        with pytest.raises((Corrupt, OSError)):
            Checkpointer(folder).load(model, optimizer, step=2)
        return loaded.step, loaded.notes, equal

    for step, notes, equal in ranks(world, run, tmp_path):
        assert step == 1 and equal and any("step 2 is passed over" in note for note in notes)


# --- the tools --------------------------------------------------------------------------------------------------------


def test_the_tools_for_checkpoints_work_on_them(tmp_path):
    ranks(2, write, tmp_path / "two")
    model, optimizer = make()
    train(model, optimizer, 3)
    Checkpointer(tmp_path / "one").save(3, model, optimizer, extra={"at": [2]}, wait=True)
    assert "2" in muster("list", tmp_path / "two").stdout
    step2, step3 = tmp_path / "two" / "step-00000002", tmp_path / "one" / "step-00000003"
    assert muster("verify", step2).returncode == 0
    tensors = {(t["name"], t["role"]): t for t in json.loads(muster("inspect", "-o", "json", step2).stdout)["tensors"]}
    assert {s["rank"] for s in tensors["block.0.weight", "moment2"]["shards"]} <= {0, 1}
    assert tensors["optim.0.step", "optimizer"]["shape"] == [len(list(model.parameters()))]
    diff = muster("diff", step2, step3)
    assert diff.returncode == 1 and "block.0.weight" in diff.stdout and "layout" not in diff.stdout
    assert muster("diff", step2, step2).returncode == 0
    assert muster("export", step3, tmp_path / "out").returncode == 0
    with open(tmp_path / "out" / "model.safetensors", "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        base = f.tell()
        names = {n for n, _ in model.named_parameters()}
        assert set(header) - {"__metadata__"} == names
        for name, p in model.named_parameters():
            at, to = header[name]["data_offsets"]
            f.seek(base + at)
            assert f.read(to - at) == p.detach().numpy().tobytes()
    with open(step2 / "rank-00001.mck", "r+b") as f:
        f.seek(5000)
        f.write(b"?????")
    out = muster("verify", step2)
    assert out.returncode and "(master)" in out.stderr
