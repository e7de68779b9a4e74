"""What keeps work off a node: checks of its agent, a person's program, a person, an active test."""
import os

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for

PROGRAM = """#!/bin/sh
read status reason < {folder}/says
echo "$reason"
exit "$status"
"""


@pytest.fixture(name="cluster", scope="module")
def with_a_health_program(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("health"))
    program = os.path.join(folder, "program")
    say(folder, 0, "")
    with open(os.open(program, os.O_CREAT | os.O_WRONLY, 0o700), "w", encoding="utf-8") as f:
        f.write(PROGRAM.format(folder=folder))
    with Cluster(os.path.join(folder, "cluster"), slots=1,
                 agent_args=["--health-check", program, "--health-every", "1"]) as c:
        c.health = folder
        yield c
    assert not c.leftovers()


def say(folder, status, reason):
    with open(os.path.join(folder, "next"), "w", encoding="utf-8") as f:
        f.write(f"{status} {reason}\n")
    os.replace(os.path.join(folder, "next"), os.path.join(folder, "says"))


def health(cluster):
    return cluster.nodes()[0]["health"]


def test_a_program_keeps_work_off_a_node_drains_it_and_lets_it_back(cluster):
    say(cluster.health, 1, "the room is warm")
    wait_for("the finding", lambda: health(cluster)["check"]["level"] == "no-work")
    job = cluster.submit(specs.command("true"))["id"]
    wait_for("the job to wait for it", lambda: cluster.job(job)["reason"]["code"] == "nodes-drained")
    assert "n1: no-work since 2" in cluster.muster("nodes").stdout
    assert "the room is warm" in cluster.muster("nodes").stdout
    say(cluster.health, 2, "the room burns")
    wait_for("the drain", lambda: cluster.nodes()[0]["state"] == "drained")
    assert health(cluster)["reason"] == "the room burns"
    say(cluster.health, 0, "")
    assert cluster.wait(job, "succeeded")["generation"] == 1
    assert health(cluster)["state"] == "well"


def test_who_drains_says_why_and_all_see_it(cluster):
    cluster.muster("drain", "n1", "--reason", "fan & Lüfter 50%?", check=True)
    shown = cluster.muster("nodes").stdout
    assert "n1: drained since 2" in shown and "fan & Lüfter 50%?" in shown, shown
    cluster.muster("undrain", "n1", check=True)
    assert "since" not in cluster.muster("nodes").stdout


def test_an_active_test_is_done_by_the_agent_for_admins_and_is_in_the_audit_log(cluster):
    done = cluster.muster("node", "test", "n1")
    assert done.returncode == 0 and "n1 has passed its test" in done.stdout, done
    for unit in "GB/s of memory copied", "GFLOP/s of matrices", "MB/s written to disk", "GB/s over loopback":
        assert unit in done.stdout
    test = cluster.nodes()[0]["test"]
    assert test["passed"] and test["running"] is None and test["memory_gb_s"] > 0.1
    ann = cluster.api("POST", "/v1/tokens", {"user": "ann", "role": "user"})["token"]
    assert cluster.request("POST", "/v1/nodes/n1/test", token=ann)[0] == 403
    audit = cluster.list("/v1/audit", "audit", "")
    assert [e["status"] for e in audit if e["path"] == "/v1/nodes/n1/test"] in ([403, 202], [202, 403]), audit
    assert cluster.muster("node", "test", "nobody").returncode != 0


def test_a_busy_node_is_not_tested(cluster):
    job = cluster.submit(specs.command("exec tail -f /dev/null"))["id"]
    cluster.wait(job, "running")
    refused = cluster.muster("node", "test", "n1")
    assert refused.returncode != 0 and "every device of node 'n1' is busy" in refused.stderr, refused
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")
