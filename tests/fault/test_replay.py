"""A step whose numbers are bad is done again on another node, and what comes of it tells the data from a device: a real
run on two nodes, whose numbers are bad once, or each time.
"""
import os
import re

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.fault.test_hangs import INJECT, step_of

BAD = 45


@pytest.fixture(name="cluster")
def two_nodes(tmp_path):
    order = str(tmp_path / "order")
    c = Cluster(str(tmp_path), slots=0, server_args=["--round", "1"], env={"FAKE_INJECT": order})
    c.programs, c.order = INJECT, order
    with c:
        for node in "n1", "n2":
            c.start_agent(node, "cpu:1")
        c.wait_nodes(["n1", "n2"])
        yield c
    assert not c.leftovers()


def begin(cluster):
    """A run of one rank that is held before the step, with its node."""
    spec = specs.train(specs.write_corpus(f"{cluster.folder}/corpus.txt"), steps=1000000, devices=1, every_steps=20)
    spec["parallel"]["exact"] = "strict"
    spec["retry"] = {"max": 5}
    cluster.hold.at(BAD)
    job = cluster.submit(spec)["id"]
    wait_for("the hold", lambda: step_of(cluster, job) >= BAD - 1)
    return job, "n1" if cluster.rank_pids(job, "n1") else "n2"


def order(cluster, text):
    with open(f"{cluster.order}.new", "w", encoding="ascii") as f:
        f.write(text)
    os.rename(f"{cluster.order}.new", cluster.order)
    cluster.hold.release()


def test_numbers_that_are_bad_on_one_node_alone_are_its_device_s(cluster):
    job, node = begin(cluster)
    other = "n1" if node == "n2" else "n2"
    order(cluster, "nan 0\n")
    told = wait_for("the verdict", lambda: [e for e in cluster.events(job) if e["cause"]["code"] == "replayed"])[0]
    print(told["cause"]["text"])
    data = told["data"]
    assert (data["verdict"], data["bad"], data["well"], data["exact"]) == ("device", node, other, True), told
    assert f"{node} alone gave them: it is a device, not the data or the model" in told["cause"]["text"], told
    health = {n["id"]: n["health"]["state"] for n in cluster.nodes()}
    assert health[node] != "well" and health[other] == "well", health
    assert cluster.job(job)["generation"] == 2
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


def test_numbers_that_are_bad_on_each_node_are_the_data_s_or_the_model_s(cluster):
    job, node = begin(cluster)
    order(cluster, f"poison {BAD + 2}\n")
    ended = cluster.wait(job, "failed")
    print(ended["outcome"], ended["reason"])
    assert ended["generation"] == 2 and ended["outcome"]["node"] != node, ended
    assert re.search(r"step \d+ gives the same on another node: it is the data or the model, not the device",
                     ended["reason"]["text"]), ended
    assert [n["health"]["state"] for n in cluster.nodes()] == ["well", "well"]
