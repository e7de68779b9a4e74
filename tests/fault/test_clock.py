"""Somebody sets the machines' clock while jobs run: device time, waits and deadlines go on as if nobody had."""
import os
import struct
import time

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.integration.fake_agent import FakeAgent, run_of

LIBRARY = os.path.join(os.path.dirname(BIN), "tests", "fault", "set_clock.so")
HOUR = 3600
STEPS = [HOUR, -2 * HOUR, 400 * 24 * HOUR]


class Clock:
    """By how many seconds the clock of what runs with env is ahead."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "clock")
        self.env = {"LD_PRELOAD": LIBRARY, "SET_CLOCK": self.path}
        self.ahead = 0
        self.set(0)

    def set(self, by):
        self.ahead += by
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as f:
            f.write(struct.pack("=q", self.ahead * 1000000))


@pytest.fixture
def clock(tmp_path):
    return Clock(str(tmp_path))


@pytest.fixture
def cluster(tmp_path, clock):
    with Cluster(str(tmp_path), slots=0, env=clock.env, server_args=["--hold", "2", "--round", "1"]) as c:
        yield c
    assert not c.leftovers()


def used(cluster):
    return cluster.api("GET", "/v1/projects/lab")["used"]["device_seconds"]


def test_device_time_is_the_time_that_passed(cluster, clock):
    cluster.api("PUT", "/v1/projects/lab", {})
    agent = FakeAgent(cluster, slots=("cpu",) * 2)
    agent.register()
    began = time.monotonic()
    job = cluster.submit(specs.command("x", devices=2, project="lab"))["id"]
    run = run_of(agent.until(job), "running")
    agent.report([run])

    def within(least, step):
        spent = used(cluster)
        assert least <= spent <= 2 * (time.monotonic() - began) + 0.1, step
        return spent
    spent = 0
    for step in STEPS:
        clock.set(step)
        wait_for("time to pass", lambda: used(cluster) > spent)
        spent = within(spent, step)
        cluster.kill_server()
        cluster.start_server()
        agent.register([run])
        spent = within(spent, f"{step} and a restart")
    agent.report([run_of(agent.until(job), "exited")])
    cluster.wait(job, "succeeded")
    within(spent, "the end")
    assert "the clock of this machine was set by" in cluster.tail("musterd", 1 << 20)


@pytest.mark.parametrize("step", STEPS)
def test_a_failed_job_waits_no_longer_before_it_starts_again(cluster, clock, step):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x", retry={"max": 5}))["id"]
    for failures in 1, 2:  # no wait, then one of about 5 s
        agent.report([run_of(agent.until(job), "exited", sig=9)])
        wait_for("the failure", lambda: cluster.job(job)["restarts"]["system"] == failures)
    clock.set(step)
    assert agent.until(job)["generation"] == 3


def test_a_drains_deadline_holds(cluster, clock):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x"))["id"]
    run = run_of(agent.until(job), "running")
    agent.report([run])
    cluster.api("POST", "/v1/nodes/n1/drain?deadline_s=4")
    agent.until(job, "drain")
    clock.set(-HOUR)
    wait_for("the server to see it", lambda: "was set by -3600" in cluster.tail("musterd", 1 << 20))
    cluster.kill_server()
    cluster.start_server()
    agent.register([run])
    agent.until(job, "stop")
