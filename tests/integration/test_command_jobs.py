"""Any program as a job, through a real server and agent: gang, environment, logs, cancel with grace, retries."""
import os
import re
import time

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("commands")), slots=4) as c:
        yield c
    assert not c.leftovers()


def test_a_gang_starts_together_and_knows_itself(cluster):
    job = cluster.submit(specs.command('echo "rank $RANK of $WORLD_SIZE in $MUSTER_JOB at $MASTER_ADDR:$MASTER_PORT"',
                                       devices=3))["id"]
    cluster.wait(job, "succeeded")
    said = [cluster.log_text(job, rank) for rank in range(3)]
    assert [re.match(r"rank (\d) of 3 in (\w+) ", s).groups() for s in said] == [(str(r), job) for r in range(3)]
    assert len({s.split(" at ")[1] for s in said}) == 1  # one meeting point for all


def test_the_environment_and_folder_asked_for_are_given(cluster, tmp_path):
    spec = specs.command("pwd; echo $GREETING")
    spec["command"].update(env={"GREETING": "hello there"}, workdir=str(tmp_path))
    job = cluster.submit(spec)["id"]
    cluster.wait(job, "succeeded")
    assert cluster.log_text(job) == f"{tmp_path}\nhello there\n"


def test_the_longest_arguments_and_variables_arrive_whole(cluster):
    spec = specs.command("")
    spec["command"].update(argv=["/bin/sh", "-c", "echo ${#0} ${#1} ${#LONG}", "x" * 131071, "y" * 130900],
                           env={"LONG": "z" * 131066, **{f"N{i}": "z" * 120 for i in range(1000)}})
    job = cluster.submit(spec)["id"]
    cluster.wait(job, "succeeded")
    assert cluster.log_text(job) == "131071 130900 131066\n"


def test_cancel_asks_first_and_a_program_may_save(cluster):
    job = cluster.submit(specs.command("trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"))["id"]
    wait_for("the program", lambda: "up" in cluster.log_text(job))
    cluster.action(job, "cancel")
    assert cluster.wait(job, "cancelled")["state"] == "cancelled"
    assert cluster.log_text(job).endswith("saved\n")


def test_what_does_not_listen_is_killed_after_its_grace(cluster):
    spec = specs.command("trap '' TERM; echo up; while :; do sleep 0.1; done")
    spec["command"]["grace_s"] = 1
    job = cluster.submit(spec)["id"]
    wait_for("the program", lambda: "up" in cluster.log_text(job))
    asked = time.monotonic()
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")
    assert 0.9 < time.monotonic() - asked < 15
    assert cluster.rank_pids(job) == []


def test_a_waiting_job_is_cancelled_at_once(cluster):
    holder = cluster.submit(specs.command("sleep 100000", devices=4))["id"]
    cluster.wait(holder, "running")
    waiting = cluster.submit(specs.command("echo never"))["id"]
    cause = cluster.api("GET", f"/v1/jobs/{waiting}/explain")["causes"][0]
    assert holder in str(cause), cause
    cluster.action(waiting, "cancel")
    cluster.wait(waiting, "cancelled")
    cluster.action(holder, "cancel")
    cluster.wait(holder, "cancelled")
    assert cluster.log_text(waiting) == ""


def test_a_failure_is_tried_again_as_often_as_asked(cluster, tmp_path):
    tries = tmp_path / "tries"
    spec = specs.command(f"echo x >> {tries}; [ $(wc -l < {tries}) -ge 3 ]", retry={"user": 3})
    job = cluster.submit(spec)["id"]
    done = cluster.wait(job, "succeeded")
    assert tries.read_text() == "x\n" * 3
    assert done["generation"] == 3

    spec = specs.command(f"echo y >> {tries}.2; exit 7", retry={"user": 1})
    job = cluster.submit(spec)["id"]
    failed = cluster.wait(job, "failed")
    assert failed["outcome"]["exit_code"] == 7 and failed["outcome"]["class"] == "user"
    assert (tmp_path / "tries.2").read_text() == "y\n" * 2


@pytest.mark.parametrize("status", [65, 70, 74, 75, 76])
def test_a_command_may_end_with_a_status_that_trainers_use(cluster, status):
    job = cluster.submit(specs.command(f"[ $RANK = 1 ] || exec sleep 1000; echo out; exit {status}", devices=2))["id"]
    outcome = cluster.wait(job, "failed")["outcome"]
    assert (outcome["class"], outcome["rank"], outcome["exit_code"]) == ("user", 1, status)
    assert outcome["log_tail"] == ["out"]


def test_suspend_gives_the_devices_to_others_and_resume_goes_on(cluster):
    job = cluster.submit(specs.command("echo up; sleep 100000", devices=4))["id"]
    cluster.wait(job, "running")
    cluster.action(job, "suspend")
    cluster.wait(job, "suspended")
    other = cluster.submit(specs.command("echo other", devices=4))["id"]
    cluster.wait(other, "succeeded")
    cluster.action(job, "resume")
    cluster.wait(job, "running")
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


def test_a_program_that_is_not_there_is_named(cluster):
    job = cluster.submit({"name": "nothing", "devices": {"min": 1, "max": 1},
                          "command": {"argv": ["/nowhere/at-all"]}})["id"]
    failed = cluster.wait(job, "failed")
    assert "/nowhere/at-all" in str(failed["outcome"])


def test_higher_priority_first_then_age(cluster, tmp_path):
    order = tmp_path / "order"
    holder = cluster.submit(specs.command("sleep 100000", devices=4))["id"]
    cluster.wait(holder, "running")
    jobs = [cluster.submit(specs.command(f"[ $RANK != 0 ] || echo {name} >> {order}", devices=4, name=name,
                                         priority=priority))["id"]
            for name, priority in (("old", 50), ("young", 50), ("urgent", 90), ("idle", 10))]
    cluster.action(holder, "cancel")
    for job in jobs:
        cluster.wait(job, "succeeded")
    assert order.read_text().split() == ["urgent", "old", "young", "idle"]


def test_many_jobs_pass_through_and_leave_nothing(cluster):
    jobs = [cluster.submit(specs.command("true", devices=1 + i % 4))["id"] for i in range(40)]
    for job in jobs:
        cluster.wait(job, "succeeded")
    assert cluster.nodes()[0]["state"] == "ready"
    wait_for("the agent to forget", lambda: not os.listdir(f"{cluster.agent_state()}/runs"))


def test_what_runs_on_slots_that_an_agent_no_longer_offers_is_ended_and_queued(cluster):
    jobs = [cluster.submit(specs.command("trap 'exit 1' TERM; sleep 100000 & wait"))["id"] for _ in range(4)]
    for job in jobs:
        cluster.wait(job, "running")
    cluster.kill_agent()
    left = [pid for job in jobs[2:] for pid in cluster.rank_pids(job)]
    cluster.start_agent("n1", "cpu:2")
    for job in jobs[2:]:
        waits = wait_for(f"{job} to wait", lambda j=job: (s := cluster.job(j)) and not s["assignment"] and s)
        assert waits["restarts"]["node"] == 1, waits
    wait_for("its old processes to be gone", lambda: not set(left) & cluster.alive())
    assert [cluster.job(job)["generation"] for job in jobs[:2]] == [1, 1]
    for job in jobs:
        cluster.action(job, "cancel")
        cluster.wait(job, "cancelled")
    cluster.kill_agent()
    cluster.start_agent("n1", "cpu:4")
    wait_for("four slots", lambda: len(cluster.nodes()[0]["slots"]) == 4)
