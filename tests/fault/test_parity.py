"""Snapshots in the memories of several nodes: a lost node's part is made again from parity, with the same bits.

Each node has a folder and a memory of its own, as on its own host; a node is lost with its memory."""
import glob
import os
import shutil
import signal

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.fault.test_kill import digest
from tests.integration import ranks

STEPS = 100000
LONG = bool(os.environ.get("MUSTER_TEST_LONG"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


@pytest.fixture
def job(corpus):
    """With a rate that does not depend on how many steps there are to come."""
    spec = specs.train(corpus, steps=STEPS, every_steps=STEPS)
    spec["train"]["optimizer"]["schedule"] = "constant"
    spec["checkpoint"]["memory_every_steps"] = 4
    return spec


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    """Losses of the first steps, by step."""
    spec = specs.train(corpus, steps=120, every_steps=0)
    spec["train"]["optimizer"]["schedule"] = "constant"
    run = ranks.train(spec, str(tmp_path_factory.mktemp("alone")))
    return {m["step"]: m["loss"] for m in run.metrics()}


def committed(memory):
    return sorted(int(p.parent.name[5:]) for p in memory.glob("step-*/PARITY"))


def memories(folder, nodes):
    found = [folder / f"memory-{i}" for i in range(nodes)]
    for m in found:
        m.mkdir(exist_ok=True)
    return found


def interrupted(job, folder, nodes, **layout):
    """A run killed once there are a checkpoint and two newer snapshots; where these are, and the newest step."""
    where = memories(folder, nodes)
    with ranks.Run(str(folder), job, memory=where, nodes=nodes, hold_at=2, **layout) as run:
        run.until(lambda: len(run.metrics()) == 2)
        run.order(0, ranks.SAVE)
        assert run.until(run.checkpoints) == [2]
        run.walk(4, 8, ready=lambda step: all(step in committed(m) for m in where))
    return where, min(committed(m)[-1] for m in where)


def go_on(job, folder, steps, where, nodes, **how):
    job["train"]["steps"] = steps
    run = ranks.train(job, str(folder), memory=where, nodes=nodes, **how)
    return run.events("resumed")[0], run


def lose(memory):
    shutil.rmtree(memory)
    memory.mkdir()


def matches(run, undisturbed):
    lines = run.metrics()
    assert [m["loss"] for m in lines] == [undisturbed[m["step"]] for m in lines]
    assert [m["step"] for m in lines] == list(range(len(lines)))


def test_one_node_of_two_has_all_of_it(job, undisturbed, tmp_path):
    where, step = interrupted(job, tmp_path, 2, dp=2)
    resumed, run = go_on(job, tmp_path, step + 8, where[0], 1, generation=2)
    assert (resumed["source"], resumed["step"]) == ("parity", step)
    matches(run, undisturbed)


# --- a whole cluster ------------------------------------------------------------------------------------

NODES = [f"n{i + 1}" for i in range(6)]
SNAPSHOT_EVERY = 10


class Struck:
    """A job of three nodes in a cluster of six, and ways to hurt it."""

    def __init__(self, cluster, spec):
        self.cluster, self.step = cluster, 0
        self.job = cluster.submit(spec)["id"]
        self.folder = cluster.job(self.job)["dir"]

    def nodes(self):
        return sorted({a["node"] for a in self.cluster.job(self.job)["assignment"]})

    def resumed(self):
        return [e["data"] for e in self.cluster.events(self.job) if e["data"].get("type") == "resumed"]

    def committed(self, node):
        """The newest step of which it has a committed snapshot; 0: none."""
        found = glob.glob(f"{self.cluster.memory(node)}/*/{self.job}/step-*/PARITY")
        return max((int(os.path.basename(os.path.dirname(path))[5:]) for path in found), default=0)

    def until(self, last):
        """Go on until three nodes have committed a snapshot of this step, and wait there. Each snapshot on the way is
        waited for: of those that come faster than they are written, some are left out."""
        def ready(step):
            nodes = self.nodes()
            return len(nodes) == 3 and all(self.committed(n) >= step and self.cluster.rank_pids(self.job, n)
                                           for n in nodes)
        while self.step < last:
            self.step += SNAPSHOT_EVERY
            self.cluster.hold.at(self.step)
            wait_for(f"snapshots of step {self.step}", lambda: ready(self.step))

    def kill(self, pids):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def lose(self, node):
        self.cluster.kill_agent(node)
        self.kill(self.cluster.rank_pids(self.job, node))
        shutil.rmtree(self.cluster.memory(node))

    def goes_on(self, times):
        wait_for(f"resumption {times}", lambda: len(self.resumed()) == times)
        return self.resumed()[-1]


def test_a_job_survives_ranks_a_node_and_two_nodes_with_the_same_bits(corpus, tmp_path):
    spec = specs.train(corpus, steps=160, pp=3, devices=3, every_steps=50)
    spec["checkpoint"]["memory_every_steps"] = SNAPSHOT_EVERY
    alone = ranks.train(spec | {"parallel": {"virtual_workers": 4}}, str(tmp_path / "alone"))
    quick = ["--unknown-after", "2", "--lost-after", "3"]
    with Cluster(str(tmp_path / "cluster"), slots=0, server_args=quick, hold_at=0) as cluster:
        for name in NODES:
            cluster.start_agent(name, "cpu:1")
        cluster.wait_nodes(NODES)
        job = Struck(cluster, spec)
        job.until(20)
        job.kill(cluster.rank_pids(job.job)[1:2])
        assert job.goes_on(1)["tier"] == "memory"  # there or elsewhere: its end says nothing of its node
        job.until(60)
        lost = job.nodes()[1]
        job.lose(lost)
        got = job.goes_on(2)
        assert (got["tier"], got["source"]) == ("memory", "parity") and lost not in job.nodes()
        job.until(110)
        for node in job.nodes()[:2]:
            job.lose(node)
        assert job.goes_on(3)["source"] == "disk"
        cluster.hold.release()
        ended = cluster.wait(job.job, ["succeeded", "failed"])
        assert ended["state"] == "succeeded", ended["outcome"]
        notes = [e["data"]["message"] for e in cluster.events(job.job) if e["data"].get("type") == "note"]
        assert any("2 of the 3 ranks' data is gone" in m and m.endswith("on disk") for m in notes), notes
        assert digest(f"{job.folder}/checkpoints") == digest(f"{alone.job}/checkpoints")


# --- more of the same, by hand ---------------------------------------------------------------------------

if LONG:
    @pytest.mark.parametrize("nodes, layout", [(2, {"dp": 2}), (2, {"pp": 2, "dp": 2}), (3, {"pp": 3})])
    def test_all_nodes_alive_go_on_from_their_snapshots(job, undisturbed, nodes, layout, tmp_path):
        where, step = interrupted(job, tmp_path, nodes, **layout)
        resumed, run = go_on(job, tmp_path, step + 8, where, nodes, generation=2, **layout)
        assert (resumed["tier"], resumed["rebuilt_bytes"]) == ("memory", 0) and resumed["step"] >= step
        matches(run, undisturbed)

    @pytest.mark.parametrize("lost", [0, 1, 2])
    def test_a_lost_node_is_made_again_from_parity_on_a_spare(job, undisturbed, lost, tmp_path):
        where, step = interrupted(job, tmp_path, 3, pp=3)
        lose(where[lost])
        resumed, run = go_on(job, tmp_path, step + 8, where, 3, generation=2, pp=3)
        assert (resumed["tier"], resumed["source"], resumed["step"]) == ("memory", "parity", step)
        assert resumed["rebuilt_bytes"] > 0 and not run.events("note")
        matches(run, undisturbed)

    def test_two_lost_nodes_fall_back_to_the_disk_and_an_event_says_so(job, undisturbed, tmp_path):
        where, step = interrupted(job, tmp_path, 3, dp=3)
        lose(where[0])
        lose(where[2])
        resumed, run = go_on(job, tmp_path, step + 8, where, 3, generation=2, dp=3)
        assert (resumed["tier"], resumed["source"]) == ("disk", "disk") and resumed["step"] < step
        notes = [e["message"] for e in run.events("note")]
        assert len(notes) == 1 and "was in the nodes' memory, but 2 of the 3 ranks' data is gone" in notes[0]
        assert "going on from step" in notes[0] and notes[0].endswith("on disk")
        matches(run, undisturbed)

    def test_the_nodes_that_are_left_go_on_without_the_lost_one_in_another_layout(job, undisturbed, tmp_path):
        where, step = interrupted(job, tmp_path, 3, dp=3)
        resumed, run = go_on(job, tmp_path, step + 8, where[1:], 2, generation=2, pp=2)
        assert (resumed["source"], resumed["step"]) == ("parity", step)
        matches(run, undisturbed)

    def test_nodes_that_need_nothing_of_each_other_send_nothing(job, tmp_path):
        job["train"]["model"]["tie_embeddings"] = False
        where, step = interrupted(job, tmp_path, 2, pp=2)
        resumed, _ = go_on(job, tmp_path, step + 8, where, 2, generation=2, pp=2)
        assert (resumed["source"], resumed["fetched_bytes"]) == ("memory", 0) and resumed["step"] >= step

    def test_a_damaged_parity_gives_way_to_what_is_older(job, undisturbed, tmp_path):
        where, step = interrupted(job, tmp_path, 2, dp=2)
        with open(where[0] / f"step-{step:08d}" / "PARITY", "r+b") as f:
            f.seek(8192)
            f.write(b"\xff" * 64)
        lose(where[1])
        resumed, run = go_on(job, tmp_path, step + 8, where, 2, generation=2, dp=2)
        assert resumed["step"] < step
        assert any("fails its checksum" in e["message"] for e in run.events("note"))
        matches(run, undisturbed)

    def test_snapshots_left_over_are_collected(job, tmp_path):
        where, step = interrupted(job, tmp_path, 2, dp=2)
        _, run = go_on(job, tmp_path, step + 20, where, 2, generation=2, dp=2)
        run.must()
        for m in where:
            assert len(committed(m)) <= 3 and not list(m.glob(".view")) and not list(m.glob(".trash-*")), os.listdir(m)
