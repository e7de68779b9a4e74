"""muster.torch.ddp_codec_hook on Debian's PyTorch: gradients of DistributedDataParallel as blocks of a codec."""
import os
import sys

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from tests.cluster import BIN, ROOT
from tests.torch_ranks import ranks

sys.path.insert(0, f"{ROOT}/api/python")
os.environ.setdefault("MUSTER_LIB", os.path.join(os.path.dirname(BIN), "lib", "muster"))
from muster._ddp import (FIRST, LOOK, ROUNDS, TRIED, _Bucket,  # noqa: E402  pylint: disable=wrong-import-position
                         _Choice)
from muster.torch import Checkpointer, ddp_codec_hook  # noqa: E402  pylint: disable=wrong-import-position

WIDTH = 203  # no slice of whose tensors is a multiple of a codec's group


def make():
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH),
                                torch.nn.Tanh(), torch.nn.Linear(WIDTH, 7))
    return DistributedDataParallel(model, bucket_cap_mb=0.1)  # several buckets, one of them small


def take_steps(model, rank, steps, update=False):
    """Gradients of each step."""
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=1e-2), []
    for step in range(steps):
        x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))
        optimizer.zero_grad()
        model(x).square().sum().backward()
        seen.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        if update:
            optimizer.step()
    return torch.stack(seen)


def decibel(right, got):
    return float(10 * torch.log10(right.square().sum() / (right - got).square().sum()))


def plain_and_coded(rank, _):
    """Gradients of the same steps as DistributedDataParallel reduces them, and as each codec does."""
    found = {None: (take_steps(make(), rank, 3), 0)}
    for codec in ("none", "g8", "r8", "r6", "sdp4bit"):
        model = make()
        hook = ddp_codec_hook(model, codec, min_bytes=1000, feedback=False)
        found[codec] = take_steps(model, rank, 3), hook.bytes
        hook.close()
    return found


def test_the_mean_over_ranks_is_near_and_all_replicas_have_its_bits():
    found, *others = ranks(3, plain_and_coded)
    right, _ = found.pop(None)
    assert torch.equal(found["none"][0], right), "plain is what DistributedDataParallel does, bit for bit"
    for codec, least, share in (("g8", 38, 0.28), ("r8", 38, 0.28), ("r6", 27, 0.21), ("sdp4bit", 17, 0.22)):
        mean, sent = found[codec]
        assert all(torch.equal(mean, other[codec][0]) for other in others), codec
        assert torch.equal(mean[0], right[0]), "buckets are made anew after the first step, which goes plainly"
        assert all(decibel(a, b) > least for a, b in zip(right[1:], mean[1:])), codec
        assert 0 < sent / (4 / 3 * 4 * right.shape[1]) < share, codec


def narrow(rank, world):
    """Buckets of 16 bits, which DistributedDataParallel over gloo has only with a newer PyTorch."""
    hook = ddp_codec_hook(make(), "r8", min_bytes=1000)
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        for codec in ("none", "r8"):
            every = [torch.randn(3001, generator=torch.Generator().manual_seed(r)).to(dtype) for r in range(world)]
            mean = torch.stack(every).float().mean(0)
            hook._codec, values = codec, every[rank]
            hook._reduce(_Bucket("w", False, 0.0, values, None))
            found.append((values, decibel(mean, values.float())))
    return found


def test_values_of_16_bits_are_reduced_too():
    one, other = ranks(2, narrow)
    assert all(torch.equal(a, b) and a.element_size() == 2 for (a, _), (b, _) in zip(one, other))
    assert all(quality > 35 for _, quality in one)


def updated(rank, _):
    model = make()
    ddp_codec_hook(model, "sdp4bit", min_bytes=1000)
    return take_steps(model, rank, 8, update=True)


def test_the_same_run_has_the_same_bits_and_replicas_that_update_stay_equal():
    once, again = ranks(2, updated), ranks(2, updated)
    assert torch.equal(once[0], once[1]) and torch.equal(once[0], again[0])


def constant(rank, _):
    """How near the mean of steps is to gradients that do not change, without feedback and with it."""
    found = []
    for feedback in (False, True):
        model = make()
        hook = ddp_codec_hook(model, "sdp4bit", min_bytes=1000, feedback=feedback)
        x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(rank))
        total = []
        for _ in range(31):
            model.zero_grad()
            model(x).square().sum().backward()
            total.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        found.append(decibel(total[0], torch.stack(total[1:]).mean(0)))
        hook.close()
    return found


def test_feedback_gives_back_what_coding_leaves_out():
    (without, fed), _ = ranks(2, constant)
    assert fed > without + 8


def with_a_nan(rank, _):
    found = []
    for codec in ("r6", "sdp4bit"):
        model = make()
        hook = ddp_codec_hook(model, codec, min_bytes=1000)
        take_steps(model, rank, 2)
        for bad in (rank == 1, False):
            x = torch.randn(8, WIDTH)
            x[0, 0] = float("inf") if bad else 1
            model.zero_grad()
            model(x).square().sum().backward()
            found.append(all(bool(torch.isfinite(p.grad).all()) for p in model.parameters()))
        hook.close()
    return found


def test_what_is_not_finite_on_one_rank_is_seen_by_all_and_is_gone_at_the_next_step():
    assert ranks(2, with_a_nan) == [[False, True] * 2] * 2


class Clock:
    """Steps whose length depends on what their gradients travel as."""

    def __init__(self, seconds):
        self.at, self.seconds, self.words = 0.0, dict(seconds), []
        self.choice = _Choice("auto", lambda word: self.words.append(word) or word)

    def steps(self, n):
        taken = []
        for _ in range(n):
            taken.append(self.choice.step(self.at))
            self.at += self.seconds[taken[-1]]
            self.choice.spent(self.seconds[taken[-1]] - 0.1)
        return taken


def test_auto_tries_each_in_turn_and_takes_what_is_faster_by_enough():
    clock = Clock({"none": 3.0, "g8": 0.9, "r8": 0.92, "r6": 0.7})
    assert clock.steps(FIRST + len(TRIED) * ROUNDS) == ["none"] * FIRST + list(TRIED) * ROUNDS
    assert set(clock.steps(10)) == {"r6"} and "as r6: none 3000 ms, g8 900 ms" in clock.choice.told
    near = Clock({"none": 1.0, "g8": 0.97, "r8": 0.97, "r6": 0.96})
    near.steps(FIRST + len(TRIED) * ROUNDS)
    assert set(near.steps(10)) == {"none"}


def test_auto_measures_again_when_communication_takes_another_time_and_more_seldom_in_vain():
    clock = Clock({"none": 3.0, "g8": 0.9, "r8": 0.92, "r6": 0.7})
    clock.steps(FIRST + len(TRIED) * ROUNDS + 20)
    clock.seconds.update(none=0.2, g8=0.3, r8=0.3, r6=0.4)
    after = clock.steps(3 * LOOK)
    assert after[-1] == "none" and after.count("g8") == ROUNDS
    clock.seconds.update(none=0.3, g8=0.4, r8=0.4, r6=0.5)  # no other choice
    assert clock.steps(4 * LOOK).count("g8") == ROUNDS and clock.choice._every == 2 * LOOK


def kept(rank, _, folder, resume):
    model = make()
    hook = ddp_codec_hook(model, "auto", min_bytes=1000)
    checkpointer = Checkpointer(folder)
    if resume:
        hook.load_state_dict(checkpointer.load(model).extra["codec"])
        taken = hook.codec
        return hook.step, taken, [(take_steps(model, rank, 1), hook._codec)[1] for _ in range(3)]
    hook._choice.go_on("r8")
    take_steps(model, rank, 3)
    checkpointer.save(3, model, extra={"codec": hook.state_dict()}, wait=True)
    checkpointer.close()
    return hook.state_dict()


def test_what_was_chosen_goes_into_the_checkpoint_and_is_taken_at_once_by_the_next_run(tmp_path):
    assert ranks(2, kept, str(tmp_path), False) == [{"step": 3, "codec": "r8", "world": 2}] * 2
    assert ranks(2, kept, str(tmp_path), True) == [(3, "r8", ["none", "r8", "r8"])] * 2
    three = ranks(3, kept, str(tmp_path), True)  # another number of ranks: it is measured anew
    assert three == [(3, "none", ["none"] * 3)] * 3


def failing(rank, _):
    model = make()
    hook = ddp_codec_hook(model, "r6", min_bytes=1000)
    take_steps(model, rank, 2)
    hook._codecs.clear()
    try:
        take_steps(model, rank, 1)
    except Exception as e:  # pylint: disable=broad-except
        return type(e).__name__, str(e)
    return None


def test_a_failure_of_the_thread_ends_backward_and_does_not_hang():
    told = ranks(2, failing)
    assert all(found is not None for found in told), told


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="codec 'zstd' is none of auto, none, g8, r8, r6, sdp4bit"):
        ddp_codec_hook(torch.nn.Linear(2, 2), "zstd")
    with pytest.raises(TypeError, match="that DistributedDataParallel has wrapped"):
        ddp_codec_hook(torch.nn.Linear(2, 2))
