"""The disk under the server's Redis is full for a while, or Redis stands still: nothing that was acknowledged is lost,
nothing that was asked for again is done twice, and all goes on once it can."""
import os
import signal
import subprocess
import time

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.fault.test_hangs import step_of, verdicts

MIB = 4


class SmallDisk(Cluster):
    """The store is on a file system of a few MiB, which is there as long as the server runs."""

    def spawn(self, name, argv):
        if name == "musterd":
            os.makedirs(f"{self.state}/redis", mode=0o700)
            argv = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={MIB}m none "$0" && exec "$@"',
                    f"{self.state}/redis", *argv]
        return super().spawn(name, argv)

    def filler(self):
        return f"/proc/{self.server.pid}/root{self.state}/redis/filler"

    def fill(self):
        with open(self.filler(), "wb", buffering=0) as f:
            for size in 65536, 4096, 1:  # to the last byte
                try:
                    while f.write(b"x" * size) == size:
                        pass
                except OSError:
                    continue


def can_mount():
    return subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True,
                          check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="mounting a small file system needs root")
def test_a_full_disk_under_the_store_costs_time_only(tmp_path):
    with SmallDisk(str(tmp_path), slots=2) as cluster:
        ran = f"{tmp_path}/ran"
        before = cluster.submit(specs.command(f"echo before >> {ran}; exec sleep 100000"))["id"]
        cluster.wait(before, "running")
        cluster.fill()
        spec = specs.command(f"echo after >> {ran}")

        def refused():
            status, problem = cluster.request("POST", "/v1/jobs", spec, headers={"Idempotency-Key": "k"}, timeout=2)
            assert status in (0, 503, 504), problem
            return cluster.request("GET", "/readyz", token="")[0] == 503
        wait_for("the server to say that it cannot write", refused)
        assert "the store" in cluster.tail("musterd")
        os.unlink(cluster.filler())
        wait_for("the server to be ready", lambda: cluster.request("GET", "/readyz", token="")[0] == 200)
        after = cluster.submit(spec, key="k")["id"]
        cluster.wait(after, "succeeded")
        assert sorted(job["id"] for job in cluster.list_jobs()) == sorted([before, after])
        still = cluster.job(before)
        assert (still["state"], still["generation"]) == ("running", 1)
        cluster.action(before, "cancel")
        cluster.wait(before, "cancelled")
        with open(ran, encoding="ascii") as f:
            assert f.read().split() == ["before", "after"]
    assert not cluster.leftovers()


@pytest.mark.skipif(not os.environ.get("MUSTER_TEST_LONG"), reason="stands still for seconds: MUSTER_TEST_LONG=1")
def test_a_redis_that_stands_still_restarts_no_job_and_what_was_asked_for_then_is_done_once(tmp_path):
    lost_s = 4
    with Cluster(str(tmp_path), slots=4, server_args=["--round", "1", "--unknown-after", "2", "--lost-after",
                                                      str(lost_s)]) as cluster:
        corpus = specs.write_corpus(f"{tmp_path}/corpus.txt")
        job = cluster.submit(specs.train(corpus, steps=1000000, devices=2))["id"]
        wait_for("steps", lambda: step_of(cluster, job) > 20)
        redis = cluster.redis_pid()
        spec = specs.command(f"echo ran >> {tmp_path}/ran")
        os.kill(redis, signal.SIGSTOP)
        try:
            began = time.monotonic()

            def refused():
                status, problem = cluster.request("POST", "/v1/jobs", spec, headers={"Idempotency-Key": "k"}, timeout=2)
                assert status in (0, 503, 504), problem
                return cluster.request("GET", "/readyz", token="")[0] == 503
            wait_for("the server to say that it cannot write", refused)
            wait_for("longer than after which a silent node is lost", lambda: time.monotonic() > began + 3 * lost_s)
        finally:
            os.kill(redis, signal.SIGCONT)
        wait_for("the server to be ready", lambda: cluster.request("GET", "/readyz", token="")[0] == 200)
        cluster.wait(cluster.submit(spec, key="k")["id"], "succeeded")
        reached = step_of(cluster, job)
        wait_for("steps", lambda: step_of(cluster, job) > reached + 20)
        still = cluster.job(job)
        assert (still["state"], still["generation"]) == ("running", 1) and not verdicts(cluster, job)
        assert still["restarts"] == {"system": 0, "node": 0, "user": 0}
        assert sorted(j["name"] for j in cluster.list_jobs()) == ["command", "small"]
        assert (tmp_path / "ran").read_text(encoding="ascii") == "ran\n"
        cluster.action(job, "cancel")
        cluster.wait(job, "cancelled")
    assert not cluster.leftovers()
