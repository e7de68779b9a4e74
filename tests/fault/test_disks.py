"""A node whose disk fails, for real: a file system of its own that answers each call with an input/output error."""
import contextlib
import fcntl
import os
import struct
import subprocess

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.fault.test_hangs import step_of, verdicts
from tests.results import lines

SHUTDOWN, NO_LOG = 0x8004587D, 2  # the ioctl that ends an ext4 or XFS at once, as a disk that is gone does


@contextlib.contextmanager
def disk(image, folder):
    """An ext4 at the folder; break_disk() has it fail."""
    os.makedirs(folder, exist_ok=True)
    with open(image, "wb") as f:
        f.truncate(2 << 30)  # most of it holes
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def break_disk(folder):
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_LOG))
    finally:
        os.close(fd)


def can_break(tmp):
    try:
        with disk(f"{tmp}/probe.img", f"{tmp}/probe"):
            break_disk(f"{tmp}/probe")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@pytest.mark.skipif(not os.environ.get("MUSTER_TEST_LONG"), reason="a real disk that fails: MUSTER_TEST_LONG=1")
def test_a_node_whose_disk_has_errors_is_left_by_its_jobs_and_gets_no_more(tmp_path):
    if not can_break(tmp_path):
        pytest.skip("mounting a file system and ending it needs root and a loop device")
    cluster = Cluster(str(tmp_path), slots=0, server_args=["--round", "1"], agent_args=["--health-every", "1"])
    bad = cluster.agent_state("n1")
    with disk(f"{tmp_path}/disk.img", bad), cluster:
        corpus = specs.write_corpus(f"{tmp_path}/corpus.txt")
        cluster.start_agent("n1", "cpu:1")
        cluster.wait_nodes(["n1"])
        job = cluster.submit(specs.train(corpus, steps=1000000, devices=1, every_steps=20))["id"]
        wait_for("checkpoints", lambda: step_of(cluster, job) > 60)
        cluster.start_agent("n2", "cpu:1")
        cluster.wait_nodes(["n1", "n2"])
        break_disk(bad)

        def told():
            node = next(n for n in cluster.nodes() if n["id"] == "n1")
            return (node["health"].get("check") or {}).get("level") == "drain" and node["health"]["reason"]
        reason = wait_for("the finding", told)
        print(reason)
        assert "its state folder cannot be written" in reason and "Input/output error" in reason, reason
        wait_for("the job to go on elsewhere", lambda: (k := cluster.job(job))["generation"] == 2 and
                 k["state"] == "running" and cluster.rank_pids(job, "n2"))
        reached = step_of(cluster, job)
        wait_for("steps", lambda: step_of(cluster, job) > reached + 20)
        told_of = cluster.job(job)
        print(told_of["outcome"], told_of["restarts"])
        assert told_of["restarts"]["user"] == 0 and not verdicts(cluster, job)
        steps = [line["step"] for line in lines(told_of["dir"]) if line["generation"] == 2]
        assert steps[0] > 0, "it goes on from what was saved"
        second = cluster.submit(specs.command("exec sleep 100000"))["id"]  # n2 has no other device

        def waits():
            told = cluster.job(second)
            assert told["state"] == "queued", [e for e in cluster.events(second) if e["type"] == "state"]
            return told["reason"]["code"] not in ("queued", "submitted") and told["reason"]
        print(wait_for("the other job to wait for a device", waits))
        for each in job, second:
            cluster.action(each, "cancel")
            cluster.wait(each, "cancelled")
