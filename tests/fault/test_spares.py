"""A node that is lost is replaced by a spare at once: no queue, and the newest snapshot."""
import contextlib
import glob
import os
import shutil
import signal

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for

NODES = ["n1", "n2", "n3", "n4"]


@pytest.fixture(name="cluster")
def four_nodes(tmp_path):
    with Cluster(str(tmp_path), devices="cpu:1", server_args=["--round", "1", "--spare", "cpu=1:warm"]) as c:
        for name in NODES[1:]:
            c.start_agent(name, "cpu:1")
        c.wait_nodes(NODES)
        c.corpus = specs.write_corpus(str(tmp_path / "corpus.txt"))
        yield c


def spares(cluster):
    return [n["id"] for n in cluster.nodes() if n["slots"][0]["state"] == "spare"]


def started(cluster, node):
    """Processes of a node that began as programs that wait for a rank."""
    found = []
    for pid in cluster.alive():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as line, \
                open(f"/proc/{pid}/environ", "rb") as env:
            if line.read().startswith(b"muster-train\0--wait") and f"/agent-{node}/".encode() in env.read():
                found.append(pid)
    return found


def nodes_of(cluster, job):
    return sorted(a["node"] for a in cluster.job(job)["assignment"])


def gang(cluster, **more):
    spec = specs.train(cluster.corpus, steps=100000, every_steps=0, devices=3, **more)
    spec["checkpoint"]["memory_every_steps"] = 4
    return cluster.submit(spec)["id"]


def lose(cluster, node, job):
    cluster.kill_agent(node)
    for pid in cluster.rank_pids(job, node):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(cluster.memory(node))


def test_a_gang_takes_the_spare_for_a_lost_node_before_all_who_wait(cluster):
    spare, = wait_for("a spare", lambda: spares(cluster))
    job = gang(cluster)
    cluster.wait(job, "running")
    before = nodes_of(cluster, job)
    assert spare not in before
    waits = cluster.submit(specs.command("true", priority=100))["id"]
    assert "kept as spares" in wait_for("why it waits", lambda: cluster.muster("explain", waits).stdout)
    assert "spare" in next(line for line in cluster.muster("nodes").stdout.splitlines() if line.startswith(spare))
    wait_for("snapshots", lambda: all(glob.glob(f"{cluster.memory(n)}/*/{job}/step-*/PARITY")
                                       for n in before))
    lost = before[-1]
    waiting = wait_for("a started program on the spare", lambda: started(cluster, spare))
    lose(cluster, lost, job)
    wait_for("it to go on", lambda: cluster.job(job)["generation"] == 2 and cluster.job(job)["state"] == "running")
    assert nodes_of(cluster, job) == sorted({*before, spare} - {lost})
    assert cluster.rank_pids(job, spare) == waiting
    wait_for("the end of the lost node's", lambda: not started(cluster, lost))
    assert cluster.job(waits)["state"] == "queued"
    resumed = wait_for("its state", lambda: [e["data"] for e in cluster.events(job)
                                             if e["data"].get("type") == "resumed"])[0]
    assert resumed["tier"] == "memory", resumed
    cluster.start_agent("n5", "cpu:1")
    wait_for("the next spare", lambda: spares(cluster) == ["n5"])
    assert cluster.job(waits)["state"] == "queued"
