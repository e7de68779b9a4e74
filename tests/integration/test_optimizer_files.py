"""The optimizer's masters and moments in files (memory.optimizer 'files'): the same bits as in memory; the files are
checkpoints; what a killed run leaves there is what the next attempt goes on from."""
import array
import os
import random
import re

import pytest

from tests.integration.ranks import USER, Run, digest, losses, train

STEPS = 6


@pytest.fixture(name="tokens", scope="module")
def fixture_tokens(tmp_path_factory):
    rng = random.Random(1)
    path = tmp_path_factory.mktemp("data") / "tokens.bin"
    path.write_bytes(array.array("H", [rng.randrange(4096) for _ in range(4096)]).tobytes())
    return str(path)


def spec(tokens, place, precision="f32", clip=1.0, every=0, steps=STEPS, **more):
    """A model of 1.6 million parameters: two tiles, and tensors that lie in both."""
    return {"name": "small", "devices": {"min": 1, "max": 8},
            "train": {"model": {"family": "gpt2", "layers": 2, "hidden": 192, "heads": 4, "vocab": 4096, "context": 64},
                      "init": {"seed": 1}, "precision": precision, "steps": steps,
                      "optimizer": {"clip": clip, "schedule": "constant"},
                      "data": {"path": tokens, "format": "tokens", "order": "sequential", "holdout": 0},
                      "batch": {"sequences": 6, "micro": 1, "length": 16}, "eval": {"every_steps": 0}},
            "parallel": {"virtual_workers": 6}, "memory": {"optimizer": place}, "checkpoint": {"every_steps": every},
            **more}


def result(run):
    return losses(run), digest(run), run.checkpoints()


@pytest.mark.parametrize("precision,clip,layout", [("f32", 1.0, {"dp": 2}), ("f32", 0.0, {"tp": 2}),
                                                   ("bf16", 1.0, {"pp": 2}), ("bf16", 0.0, {"dp": 3})])
def test_the_bits_are_those_of_an_optimizer_in_memory(tmp_path, tokens, precision, clip, layout):
    how = [result(train(spec(tokens, place, precision, clip, every=4), tmp_path / place, **layout))
           for place in ("device", "files")]
    assert how[0] == how[1]
    assert how[1][2] == [4, STEPS]
    assert not [n for n in os.listdir(tmp_path / "files" / "job" / "checkpoints") if n.startswith(".opt")]


def test_a_checkpoint_of_either_place_is_gone_on_from_in_the_other(tmp_path, tokens):
    want = result(train(spec(tokens, "device"), tmp_path / "whole"))
    for first, then in (("files", "device"), ("device", "files")):
        folder = tmp_path / first
        train(spec(tokens, first, steps=3), folder, dp=2)
        run = train(spec(tokens, then), folder, generation=2)
        assert (losses(run)[-3:], digest(run)) == (want[0][-3:], want[1])


def state_files(run):
    folder = os.path.join(run.job, "checkpoints", ".optimizer-j1")
    return sorted(os.path.join(folder, n) for n in os.listdir(folder))


def kill_at(folder, a_spec, step, **layout):
    """A run that is killed before a step of its own, without a checkpoint."""
    with Run(folder, a_spec, hold_at=step, **layout) as run:
        run.until(lambda: "held before step" in run.log())
        for p in run.ranks:
            p.kill()
    assert not run.checkpoints()
    return run


@pytest.mark.parametrize("then", [{"dp": 2}, {"dp": 1}, {"tp": 2}])
def test_a_killed_run_loses_no_step_that_its_files_hold(tmp_path, tokens, then):
    want = result(train(spec(tokens, "files"), tmp_path / "whole", **then))
    kill_at(tmp_path, spec(tokens, "files"), 3, dp=2)
    run = train(spec(tokens, "files"), tmp_path, generation=2, **then)
    assert [e["step"] for e in run.events("resumed")] in ([2], [3]) and run.checkpoints()[-1] == STEPS
    if "tp" not in then:
        assert digest(run) == want[1]


def test_a_damaged_file_is_found_and_the_other_taken(tmp_path, tokens):
    want = result(train(spec(tokens, "files"), tmp_path / "whole"))
    killed = kill_at(tmp_path, spec(tokens, "files"), 3)
    newest = max(state_files(killed), key=os.path.getmtime)
    with open(newest, "r+b") as f:
        f.seek(4096 + 12345)
        byte = f.read(1)
        f.seek(4096 + 12345)
        f.write(bytes([byte[0] ^ 1]))
    run = train(spec(tokens, "files"), tmp_path, generation=2)
    assert [e["step"] for e in run.events("resumed")] == [2]
    assert digest(run) == want[1]


def test_what_does_not_go_with_files_is_refused(tmp_path, tokens):
    for i, (more, where) in enumerate([({"parallel": {"zero": 0}}, "parallel.zero"),
                                       ({"parallel": {"cp": 2}, "devices": {"min": 2, "max": 8}}, "cp above 1"),
                                       ({"compress": {"checkpoint": "zstd"}}, "compress.checkpoint"),
                                       ({"compress": {"dp": "g8"}}, "compress.dp"),
                                       ({"checkpoint": {"memory_every_steps": 5}}, "memory_every_steps")]):
        run = train({**spec(tokens, "files"), **more}, tmp_path / str(i), want=USER)
        assert where in run.log()


def test_the_plan_says_what_files_spare(tmp_path, tokens):
    planned = [float(re.search(r"optimizer ([0-9.]+)", train(spec(tokens, p, steps=1), tmp_path / p).log()).group(1))
               for p in ("device", "files")]
    assert planned[0] > 12 and planned[1] == 24.0  # two tiles of three planes of 4 MiB, which a large model has four of
