"""Ranks that are frozen by a control group, or stopped and let go on: named, fenced, and done with once.

What waits for long runs with MUSTER_TEST_LONG=1 alone.
"""
import contextlib
import glob
import os
import signal
import time

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.fault.test_hangs import step_of, verdicts
from tests.results import lines

LONG = bool(os.environ.get("MUSTER_TEST_LONG"))
VERSION_1, VERSION_2 = "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified"
if not os.path.isdir(VERSION_2):
    VERSION_2 = "/sys/fs/cgroup"
# Where groups are made, and the file and words that freeze one and let it go on.
FREEZERS = {"v1": (VERSION_1, "freezer.state", "FROZEN", "THAWED"), "v2": (VERSION_2, "cgroup.freeze", "1", "0")}


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def can_freeze(version):
    top, file, _, _ = FREEZERS[version]
    path = os.path.join(top, f"muster-test-{os.getpid()}")
    try:
        os.mkdir(path)
    except OSError:
        return False
    can = os.path.exists(os.path.join(path, file))
    os.rmdir(path)
    return can


class Freezer:
    """A control group of the test's own, which a rank is moved to."""

    def __init__(self, version, pid):
        self.top, self.file, self.frozen, self.thawed = FREEZERS[version]
        self.path = os.path.join(self.top, f"muster-test-{pid}")
        self.pid = pid
        with open(f"/proc/{pid}/cgroup", encoding="ascii") as f:
            at = {line.split(":", 2)[1]: line.strip().split(":", 2)[2] for line in f}
        self.home = self.top + at["freezer" if version == "v1" else ""]

    def __enter__(self):
        os.mkdir(self.path)
        write(os.path.join(self.path, "cgroup.procs"), str(self.pid))
        return self

    def freeze(self):
        write(os.path.join(self.path, self.file), self.frozen)

    def thaw(self):
        write(os.path.join(self.path, self.file), self.thawed)

    def empty(self):
        with open(os.path.join(self.path, "cgroup.procs"), encoding="ascii") as f:
            return not f.read().strip()

    def __exit__(self, kind, value, trace):
        self.thaw()
        if not self.empty():
            with contextlib.suppress(OSError):
                write(os.path.join(self.home, "cgroup.procs"), str(self.pid))
        wait_for("the group to be empty", self.empty)
        os.rmdir(self.path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("cluster")), slots=2, server_args=["--round", "1"]) as c:
        c.corpus = specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))
        yield c
    assert not c.leftovers()


def begin(cluster):
    job = cluster.submit(specs.train(cluster.corpus, steps=1000000, devices=2))["id"]
    wait_for("enough steps to know the rank's pace", lambda: step_of(cluster, job) > 20)
    return job


def end(cluster, job):
    cluster.api("POST", f"/v1/jobs/{job}/cancel")
    cluster.wait(job, "cancelled")


def attempts_follow_each_other(cluster, job):
    told = [line["generation"] for line in lines(cluster.job(job)["dir"])]
    assert told == sorted(told), "no attempt does a step once a later one has"


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_rank_whose_control_group_is_frozen_is_named_so_and_its_job_goes_on(cluster, version):
    if not can_freeze(version):
        pytest.skip(f"control groups of version {version[1]} that freeze cannot be made here")
    if version == "v2" and can_freeze("v1") and not LONG:
        pytest.skip("one of both is enough: MUSTER_TEST_LONG=1")
    job = begin(cluster)
    victim = cluster.rank_pids(job)[1]
    with Freezer(version, victim) as freezer:
        freezer.freeze()
        began = time.monotonic()
        verdict = wait_for("a verdict", lambda: verdicts(cluster, job))[0]
        print(f"named after {time.monotonic() - began:.1f} s: {verdict['cause']['text']}")
        assert (verdict["data"]["class"], verdict["data"]["roots"]) == ("stopped", [1]), verdict
        assert "rank 1 on n1: its control group has been frozen for" in verdict["cause"]["text"], verdict
        if version == "v1":  # whose frozen processes cannot be killed: nothing starts beside it
            wait_for("the other rank to end", lambda: len(cluster.rank_pids(job)) == 1)
            assert cluster.job(job)["generation"] == 1
            freezer.thaw()
        wait_for("the job to go on", lambda: (k := cluster.job(job))["generation"] == 2 and k["state"] == "running")
        assert victim not in cluster.alive()
    assert len(verdicts(cluster, job)) == 1
    assert cluster.job(job)["restarts"] == {"system": 1, "node": 0, "user": 0}
    end(cluster, job)


@pytest.mark.skipif(not LONG, reason="stands still for longer than its deadline: MUSTER_TEST_LONG=1")
def test_a_rank_that_is_let_go_on_before_its_verdict_has_none_and_after_it_ends_all_the_same(cluster):
    job = begin(cluster)
    old = cluster.rank_pids(job)
    os.kill(old[0], signal.SIGSTOP)
    stopped = time.monotonic()
    wait_for("less than the deadline", lambda: time.monotonic() > stopped + 3)
    os.kill(old[0], signal.SIGCONT)
    reached = step_of(cluster, job)
    wait_for("it to go on", lambda: step_of(cluster, job) > reached + 20)
    assert cluster.job(job)["generation"] == 1 and not verdicts(cluster, job)
    os.kill(old[0], signal.SIGSTOP)
    wait_for("a verdict", lambda: verdicts(cluster, job), every=0.005)
    with contextlib.suppress(ProcessLookupError):
        os.kill(old[0], signal.SIGCONT)
    wait_for("the job to go on", lambda: (k := cluster.job(job))["generation"] == 2 and k["state"] == "running")
    assert not set(old) & cluster.alive(), "who goes on after the verdict ends"
    reached = step_of(cluster, job)
    wait_for("steps", lambda: step_of(cluster, job) > reached + 20)
    assert len(verdicts(cluster, job)) == 1 and cluster.job(job)["generation"] == 2
    attempts_follow_each_other(cluster, job)
    end(cluster, job)


@pytest.mark.skipif(not LONG, reason="waits until a node is lost: MUSTER_TEST_LONG=1")
def test_ranks_whose_agent_is_killed_past_its_lease_save_nothing_and_end_with_its_return(tmp_path):
    """The job goes on on another node; what the old rank computes on is refused where it would be saved."""
    with Cluster(str(tmp_path), slots=0, server_args=["--round", "1", "--unknown-after", "2", "--lost-after",
                                                      "4"]) as cluster:
        corpus = specs.write_corpus(f"{tmp_path}/corpus.txt")
        for node in "n1", "n2":
            cluster.start_agent(node, "cpu:1")
        cluster.wait_nodes(["n1", "n2"])
        cluster.hold.at(45)
        job = cluster.submit(specs.train(corpus, steps=1000000, devices=1, every_steps=20))["id"]
        wait_for("the hold", lambda: step_of(cluster, job) >= 44)
        node = "n1" if cluster.rank_pids(job, "n1") else "n2"
        old, = cluster.rank_pids(job, node)
        cluster.kill_agent(node)
        wait_for("another attempt", lambda: (k := cluster.job(job))["generation"] == 2 and k["state"] == "running")
        assert old in cluster.alive(), "nobody there could end it yet"
        cluster.hold.release()  # both go on
        wait_for("the old rank to end where it would have saved", lambda: old not in cluster.alive())
        reached = step_of(cluster, job)
        wait_for("steps of the new attempt", lambda: step_of(cluster, job) > reached + 40)
        cluster.start_agent(node)
        cluster.wait_nodes(["n1", "n2"])
        assert not cluster.rank_pids(job, node)
        told = cluster.job(job)
        assert told["generation"] == 2 and told["restarts"] == {"system": 0, "node": 1, "user": 0}, told
        attempts_follow_each_other(cluster, job)
        marks = glob.glob(os.path.join(told["dir"], "checkpoints", "*"))
        assert marks
        end(cluster, job)
    assert not cluster.leftovers()
