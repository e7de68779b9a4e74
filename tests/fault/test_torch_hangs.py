"""A PyTorch program whose process groups are of the backend "muster" is watched by its collectives: the rank that skips
one is named."""
import subprocess

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for

PYTHON = "/usr/bin/python3"
TORCH = subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True, check=False).returncode == 0
pytestmark = pytest.mark.skipif(not TORCH, reason="Debian's PyTorch (python3-torch) is not here")

PROGRAM = """
import os, time, torch, torch.distributed as dist
import muster, muster.torch

run = muster.init()
dist.init_process_group("muster")
torch.set_num_threads(1)
beside = dist.new_group()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
word = torch.zeros(1)
for step in range(1, 1000000):
    with run.section("step", 2):
        told = dist.all_reduce(word, group=beside, async_op=True)  # is under way beside those of the model
        loss = model(torch.ones(2, 100)).sum()
        if step == 20 and run.rank == 1 and run.attempt == 1:
            HANG
        loss.backward()
        told.wait()
    run.step(step)
"""
ELSE = {"skip": "time.sleep(100000)", "message": "dist.recv(torch.zeros(1), 0)"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("cluster")), slots=2, server_args=["--round", "1"]) as c:
        yield c
    assert not c.leftovers()


@pytest.mark.parametrize("hang", ELSE)
def test_the_rank_of_a_torch_program_that_skips_an_all_reduce_is_named(cluster, hang):
    spec = specs.command("", devices=2, retry={"max": 3})
    spec["command"]["argv"] = [PYTHON, "-c", PROGRAM.replace("HANG", ELSE[hang])]
    job = cluster.submit(spec)["id"]
    told = wait_for("the verdict", lambda: [e for e in cluster.events(job) if e["cause"]["code"] == "hang"])[0]
    text, data = told["cause"]["text"], told["data"]
    if hang == "skip":
        assert text.startswith("rank 1 on n1 has not entered all-reduce ") and " of 'world' at step 19 " in text, text
        assert " that 1 other waits in; it has been in section 'step' for " in text, text
        assert (data["class"], data["roots"]) == ("not-entered", [1])
    else:  # each waits for the other
        assert (data["class"], [r["op"] for r in data["ranks"]]) == ("cycle", ["all_reduce", "recv"]), data
        assert data["ranks"][1]["peer"] == 0
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")
