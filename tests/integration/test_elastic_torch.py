"""muster.torch: samplers and a loop that goes on with any number of ranks (docs/programs.md)."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys

import pytest

from tests.cluster import BIN, ROOT, Cluster, wait_for
from tests.id_logs import check_epochs, history, steps_of

sys.path.insert(0, f"{ROOT}/api/python")
from muster._sampler import (ElasticSampler, LengthBatchSampler,  # noqa: E402  pylint: disable=wrong-import-position
                             order_index)

PYTHON = "/usr/bin/python3"
TORCH = subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True, check=False).returncode == 0
needs_torch = pytest.mark.skipif(not TORCH, reason="Debian's PyTorch (python3-torch) is not here")
SAMPLES, BATCH = 500, 8


@pytest.mark.parametrize("n", [1, 2, 3, 5, 16, 17, 1000])
def test_each_epoch_is_another_order_of_all_samples(n):
    orders = [[order_index(7, epoch * n + i, n) for i in range(n)] for epoch in range(3)]
    assert all(sorted(order) == list(range(n)) for order in orders)
    if n > 16:
        assert len({tuple(order) for order in [*orders, sorted(orders[0])]}) == 4
        assert orders[0] != [order_index(8, i, n) for i in range(n)]


def one_history(draw):
    """A run of steps with rescales, and kills that go back to the newest commit: the ids of its committed steps."""
    n, batch, taken, world = draw.randint(1, 60), draw.randint(1, 20), [], draw.randint(1, 8)
    committed, steps = None, 0
    ranks = [ElasticSampler(n, batch, 3, rank=r, world=world) for r in range(world)]
    rescales = kills = 0
    while steps < 3 * -(-n // batch):
        event = draw.random()
        if event < 0.15 or committed is None:
            committed = (ranks[0].state_dict(), steps)
        if event < 0.05 or event > 0.9:  # an order to scale, after the commit; or a kill
            rescales, kills = rescales + (event < 0.05), kills + (event > 0.9)
            world = draw.randint(1, 8)
            ranks = [ElasticSampler(n, batch, 3, rank=r, world=world) for r in range(world)]
            for sampler in ranks:
                sampler.load_state_dict(committed[0])
            steps = committed[1]
            del taken[steps:]
            continue
        parts = [sampler.part() if sampler.weight() > 0 else [] for sampler in ranks]
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert abs(sum(sampler.weight() for sampler in ranks) - world) < 1e-9
        assert all(next(iter(sampler)) == sampler.part() for sampler in ranks), "what is fetched ahead moves nothing"
        taken.append([i for part in parts for i in part])
        for sampler in ranks:
            sampler.advance()
        steps += 1
    check_epochs(taken, n, batch)
    return rescales, kills


def test_every_sample_comes_once_an_epoch_along_200_histories_of_rescales_and_kills():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    told = [one_history(draw) for _ in range(200)]
    assert sum(r for r, _ in told) > 20 and sum(k for _, k in told) > 20


def test_a_cursor_of_other_samples_is_refused():
    with pytest.raises(ValueError, match="the cursor is of 10 samples with seed 0, not of 11"):
        ElasticSampler(11, 2, rank=0, world=1).load_state_dict(ElasticSampler(10, 2, rank=0, world=1).state_dict())
    with pytest.raises(ValueError, match="not within an epoch"):
        ElasticSampler(4, 2, rank=0, world=1).load_state_dict({"n": 4, "seed": 0, "epoch": 0, "position": 4})
    with pytest.raises(ValueError, match="a rank of the world"):
        ElasticSampler(4, 2, rank=2, world=2)


@pytest.mark.parametrize("policy", LengthBatchSampler.POLICIES)
def test_sequences_come_once_an_epoch_in_micro_batches_that_hold_them(monkeypatch, policy):
    monkeypatch.setenv("MUSTER_LIB", f"{os.path.dirname(BIN)}/lib/muster")
    draw = random.Random(1)
    lengths, capacity = [draw.randint(1, 100) for _ in range(45)], 128
    state, seen = None, []
    for world in (3, 1, 8, 2, 5):  # 8 ranks have an empty share at the last step of 5
        ranks = [LengthBatchSampler(lengths, 10, capacity, policy, rank=r, world=world) for r in range(world)]
        for sampler in ranks:
            if state:
                sampler.load_state_dict(state)
        weights = [sum(sampler.weights()) for sampler in ranks]
        assert abs(sum(weights) - world) < 1e-9
        for sampler, weight in zip(ranks, weights):
            if weight > 0:
                seen += sampler.part()
                assert all(sum(lengths[i] for i in micro) <= capacity for micro in sampler.micro_batches())
            assert len(sampler.weights()) == len(sampler.micro_batches()) > 0
            assert next(iter(sampler)) == sampler.micro_batches()[0]
            sampler.advance()
        state = ranks[0].state_dict()
    assert sorted(seen) == list(range(45)) and (state["epoch"], state["position"]) == (1, 0)


def test_sequences_that_are_too_long_are_refused_cut_or_dropped(monkeypatch):
    monkeypatch.setenv("MUSTER_LIB", f"{os.path.dirname(BIN)}/lib/muster")
    with pytest.raises(ValueError, match="sequence 1 has 9 tokens, more than the capacity 8"):
        LengthBatchSampler([3, 9, 4], 3, 8, rank=0, world=1)
    assert sorted(LengthBatchSampler([3, 9, 4], 3, 8, overlong="cut", rank=0, world=1).part()) == [0, 1, 2]
    assert sorted(LengthBatchSampler([3, 9, 4], 3, 8, overlong="drop", rank=0, world=1).part()) == [0, 2]
    with pytest.raises(ValueError, match="chunks need an attention"):
        LengthBatchSampler([3], 1, 8, "chunk", rank=0, world=1)


@pytest.mark.parametrize("rule, scales", [("same", (1, 1)), ("linear", (2, 0.5)), ("sqrt", (2 ** 0.5, 0.5 ** 0.5))])
def test_a_local_batch_grows_with_the_ranks_and_the_learning_rate_follows_its_rule(rule, scales):
    state = ElasticSampler(10000, 8, rank=0, world=2, local=True, lr=rule).state_dict()
    for world, scale in zip((4, 1), scales):
        ranks = [ElasticSampler(10000, 8, rank=r, world=world, local=True, lr=rule) for r in range(world)]
        for sampler in ranks:
            sampler.load_state_dict(state)
        assert [len(sampler.part()) for sampler in ranks] == [8] * world and ranks[0].lr_scale() == 1
        for _ in range(50):
            ranks[0].advance()
        assert abs(ranks[0].lr_scale() - (1 + scale) / 2) < 1e-9, "it is on its way there"
        half = ElasticSampler(10000, 8, rank=0, world=world, local=True, lr=rule)
        half.load_state_dict(ranks[0].state_dict())
        assert half.lr_scale() == ranks[0].lr_scale(), "a stop on the way changes nothing at once"
        for _ in range(60):
            ranks[0].advance()
        assert abs(ranks[0].lr_scale() - scale) < 1e-9
    assert ElasticSampler(100, 8, rank=0, world=4).batch == 8, "a global batch stays"
    with pytest.raises(ValueError, match="lr is same, linear, sqrt, not 'log'"):
        ElasticSampler(4, 2, rank=0, world=1, lr="log")


def test_what_sequences_cost_is_learned_and_counts_from_the_next_epoch_on(monkeypatch):
    monkeypatch.setenv("MUSTER_LIB", f"{os.path.dirname(BIN)}/lib/muster")
    draw = random.Random(2)
    lengths = [draw.randint(1, 100) for _ in range(40)]
    sampler = LengthBatchSampler(lengths, 10, 200, rank=0, world=1, lin_s=1e-6, quad_s=1e-10)
    true = (2e-3, 3e-5, 4e-8)
    assert sampler.refit() == 0, "nothing was observed"
    for _ in range(60):
        micro = [draw.randint(1, 2000) for _ in range(draw.randint(1, 8))]
        sampler.observe(micro, true[0] + true[1] * sum(micro) + true[2] * sum(n * n for n in micro))
    before = sampler.cost
    with pytest.warns(RuntimeWarning, match="another time than they were planned with"):
        assert sampler.refit() > 0.5
    assert sampler.cost == before, "what is fetched ahead is planned alike by all ranks"
    for _ in range(4):
        sampler.advance()
    assert sampler.epoch == 1 and all(abs(a / b - 1) < 1e-6 for a, b in zip(sampler.cost, true))
    assert sampler.refit() < 1e-6 and sorted(sum(sampler.micro_batches(), [])) == sorted(sampler.part())
    other = LengthBatchSampler(lengths, 10, 200, rank=0, world=1)
    other.load_state_dict(sampler.state_dict())
    assert other.cost == sampler.cost and other.micro_batches() == sampler.micro_batches()


STOPPED_IN_A_SAVE = """
import json, os, sys, time, torch, muster, muster.torch
run = muster.init()
model = torch.nn.Linear(4, 4)
checkpointer = muster.torch.Checkpointer()

def order(seq, word):
    with open(os.environ["MUSTER_RUN_DIR"] + "/new", "w") as f:
        json.dump({"v": 1, "seq": seq, "order": word, "deadline": None, "reason": ""}, f)
    os.rename(f.name, os.environ["MUSTER_RUN_DIR"] + "/order.json")
    end = time.monotonic() + 60
    while (run.order() is None or run.order().seq != seq) and time.monotonic() < end: time.sleep(0.01)

def save(step):
    begun = checkpointer.save(step, model)
    if run.order() is not None and run.order().seq == 1: order(2, "stop")  # while it is being written
    begun.wait()

for step in muster.torch.elastic(10, save=save):
    if step == 2: order(1, "save")
"""


@needs_torch
def test_a_stop_that_comes_during_a_save_lets_it_be_whole_and_stops_at_the_next_step(tmp_path):
    (tmp_path / "run").mkdir()
    env = {**os.environ, "MUSTER_RUN_DIR": str(tmp_path / "run"), "MUSTER_JOB_DIR": str(tmp_path), "RANK": "0",
           "WORLD_SIZE": "1", "MUSTER_CHECKPOINT_DIR": str(tmp_path / "c"), "PYTHONPATH": f"{ROOT}/api/python",
           "MUSTER_LIB": f"{os.path.dirname(BIN)}/lib/muster", "MUSTER_RESUME": "0"}
    ended = subprocess.run([PYTHON, "-c", STOPPED_IN_A_SAVE], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 76, ended.stderr
    result = json.loads((tmp_path / "run" / "rank-00000.result").read_text(encoding="ascii"))
    ack = json.loads((tmp_path / "run" / "rank-00000.ack").read_text(encoding="ascii"))
    assert result["outcome"] == "stopped" and (ack["seq"], ack["did"]) == (2, "stopping")
    whole = sorted(name for name in os.listdir(tmp_path / "c") if name.startswith("step-"))
    assert whole == [f"step-{n:08}" for n in (1, 3, 4)] and result["step"] == 4
    assert all(os.path.exists(tmp_path / "c" / name / "MANIFEST") for name in whole)


def submit(cluster, folder, steps, devices, **command):
    """The example, in a folder that holds nothing else."""
    folder.mkdir()
    shutil.copy(f"{ROOT}/examples/elastic.py", folder)
    (folder / "ids").mkdir()
    return cluster.submit({"name": "elastic", "devices": {"min": devices, "max": devices}, "command": {
        "argv": [PYTHON, "elastic.py", str(steps)], "workdir": str(folder), "elastic": True,
        "env": {"IDS": str(folder / "ids")}, **command}})["id"]


def wait_steps(folder, attempt, more=5):
    wait_for(f"steps of attempt {attempt}", lambda: len(steps_of(folder / "ids").get(attempt, {})) >= more)


@needs_torch
def test_a_ddp_program_is_rescaled_and_killed_and_takes_each_sample_once_an_epoch(tmp_path):
    steps = 1000
    with Cluster(str(tmp_path / "cluster"), slots=1, server_args=["--hold", "0", "--round", "1"]) as cluster:
        cluster.start_agent("n2", "cpu:1")
        cluster.wait_nodes(["n1", "n2"])
        folder = tmp_path / "my"
        job = submit(cluster, folder, steps, 2)
        wait_steps(folder, 1)
        late = cluster.job(job)["assignment"][1]["node"]  # hears of the order when all is over
        cluster.agents[late].send_signal(signal.SIGSTOP)
        cluster.muster("scale", job, "1", check=True)
        wait_for("its result", lambda: os.path.exists(f"{cluster.agent_state(late)}/runs/{job}-g1/rank-00001.result"))
        cluster.agents[late].send_signal(signal.SIGCONT)
        wait_steps(folder, 2)
        last = [(folder / "ids" / f"g1-r{rank}").read_text(encoding="ascii").splitlines()[-1].split()[0]
                for rank in range(2)]
        assert last[0] == last[1], "both ranks stop at one step"
        os.kill(cluster.rank_pids(job)[0], signal.SIGKILL)
        wait_steps(folder, 3)
        cluster.muster("scale", job, "2", check=True)
        wait_steps(folder, 4)
        (folder / "ids" / "go").touch()
        ended = cluster.wait(job, "succeeded")
        assert ended["generation"] == 4 and ended["restarts"]["system"] == 1
        assert ended["progress"]["step"] == steps
    check_epochs(history(folder / "ids", steps), SAMPLES, BATCH)
    assert not cluster.leftovers()
