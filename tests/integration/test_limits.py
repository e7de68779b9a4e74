"""Time limits through REST and the CLI: the warning, the end, and how a job goes on with more time."""
import os
import sys

import pytest

from tests.cluster import Cluster, wait_for

PROGRAM = """
import os, signal, sys
def said(name, text):
    with open(os.path.join(os.environ["MUSTER_JOB_DIR"], name + "-" + os.environ["MUSTER_ATTEMPT"] + ".new"), "w") as f:
        f.write(text)
    os.rename(f.name, f.name[:-4])
def on(number, frame):
    if number == signal.SIGUSR1:
        order = os.path.join(os.environ["MUSTER_RUN_DIR"], "order.json")
        said("warned", open(order).read() if os.path.exists(order) else "")
    else:
        sys.exit(0)
signal.signal(signal.SIGUSR1, on)
signal.signal(signal.SIGTERM, on)
said("up", os.environ.get("MUSTER_ENDS_AT", "none"))
while True:
    signal.pause()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("limits"), slots=1) as c:
        yield c


def said(cluster, job, name):
    def look():
        path = os.path.join(cluster.job(job)["dir"], name)
        return open(path, encoding="utf-8").read() if os.path.exists(path) else None
    return wait_for(f"{name} of {job}", look)


def codes(cluster, job):
    return [e["cause"]["code"] for e in cluster.events(job) if e["type"] == "state"]


def test_a_program_is_warned_by_signal_and_order_ended_and_resumed_with_more_time(cluster):
    done = cluster.muster("submit", "--set", "limits.warn_signal=SIGUSR1", "--set", "limits.warn_s=3000", "--",
                          sys.executable, "-c", PROGRAM, check=True)
    job = done.stdout.split()[1]
    assert said(cluster, job, "up-1") == "none"  # it has no limit, so it has no end
    assert "limits" not in cluster.job(job)
    cluster.api("PATCH", f"/v1/jobs/{job}", {"limits": {"time_s": 3600}})
    assert cluster.job(job)["ends_by"]
    cluster.api("PATCH", f"/v1/jobs/{job}", {"limits": {"time_s": 1000}})
    assert '"save"' in said(cluster, job, "warned-1")
    assert "time-warning" in codes(cluster, job)
    cluster.api("PATCH", f"/v1/jobs/{job}", {"limits": {"time_s": 1}})
    ended = cluster.wait(job)
    assert ended["state"] == "failed" and ended["outcome"]["class"] == "user"
    assert ended["reason"]["code"] == "time-limit" and codes(cluster, job)[-2:] == ["time-up", "time-limit"]
    refused = cluster.muster("resume", job)
    assert refused.returncode != 0 and "--time +1h" in refused.stderr
    assert cluster.muster("resume", job, "--time", "3600").returncode != 0
    cluster.muster("resume", job, "--time", "+3600", check=True)
    assert int(said(cluster, job, "up-2")) > 1_000_000_000
    again = cluster.job(job)
    assert again["generation"] == 2 and again["limits"]["time_s"] > 3600 and again["outcome"] is None
    assert not any(e for e in cluster.list_jobs() if e["id"] == job and e["state"] == "failed")
    cluster.action(job, "cancel")
    assert cluster.wait(job)["state"] == "cancelled"


def test_time_of_the_command_line_is_the_limit_in_slurms_forms(cluster):
    for text, seconds in (("4:00:00", 14400), ("90m", 5400), ("2-12", 216000)):
        done = cluster.muster("submit", "-o", "json", "--dry-run", "--time", text, "--", "true", check=True)
        assert f'"time_s": {seconds}' in done.stdout, done.stdout
    assert cluster.muster("submit", "--time", "soon", "--", "true").returncode != 0


def test_explain_names_time_limits_as_what_a_start_is_known_by(cluster):
    holder = cluster.submit({"command": {"argv": ["sleep", "1000"]}, "limits": {"time_s": 3000}})["id"]
    cluster.wait(holder, ["running"])
    waits = cluster.submit({"command": {"argv": ["true"]}, "limits": {"queue_s": 2000}})["id"]

    def known():
        causes = cluster.api("GET", f"/v1/jobs/{waits}/explain")["causes"]
        return [c["starts"] for c in causes if c.get("starts") and c["starts"]["basis"] == "time-limits"]
    starts = wait_for("the start to be known", known)[0]
    assert starts["at"][:16] == cluster.job(holder)["ends_by"][:16]
    cluster.api("PATCH", f"/v1/jobs/{waits}", {"priority": 60})
    for job in (waits, holder):
        cluster.action(job, "cancel")


def test_a_job_that_waits_too_long_for_its_first_devices_is_cancelled(cluster):
    holder = cluster.submit({"command": {"argv": ["sleep", "1000"]}})["id"]
    cluster.wait(holder, ["running"])
    job = cluster.submit({"command": {"argv": ["true"]}, "limits": {"queue_s": 1}})["id"]
    ended = cluster.wait(job)
    assert ended["state"] == "cancelled" and ended["reason"]["code"] == "queue-limit"
    cluster.action(holder, "cancel")


def test_a_projects_longest_limit_is_kept_to(cluster):
    cluster.muster("project", "set", "short", "--max-time-s", "600", "--default-time-s", "300", check=True)
    spec = {"project": "short", "command": {"argv": ["true"]}}
    assert cluster.submit(spec)["limits"]["time_s"] == 300
    token = cluster.muster("token", "create", "eve", check=True).stdout.strip()
    status, problem = cluster.request("POST", "/v1/jobs", {**spec, "limits": {"time_s": 601}}, token=token)
    assert status == 422 and "600 s" in problem["detail"]
