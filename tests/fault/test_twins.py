"""Two agents of one name, as cloned machines have them: one of them is the node, and nothing runs twice."""
import os
import signal

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.patience import PATIENCE_S


@pytest.fixture
def cluster(tmp_path):
    with Cluster(str(tmp_path), slots=2) as c:
        yield c
    assert not c.leftovers()


def start_twin(cluster):
    """Another agent n1, with a folder of its own."""
    folder = os.path.join(cluster.folder, "twin")
    cluster.agents["twin"] = cluster.spawn("agent-twin", [
        f"{BIN}/muster-agent", "--server", cluster.url, "--token-file", f"{cluster.state}/agent-token", "--state",
        folder, "--node", "n1", "--devices", "cpu:2", "--stop-ranks-on-exit", "--memory", f"{folder}/memory"])


def running(cluster):
    """A job that says when it begins, and runs."""
    job = cluster.submit(specs.command(f"echo $$ >> {cluster.folder}/begun; exec sleep 100000", retry={"max": 3}))["id"]
    cluster.wait(job, "running")
    return job


def begun(cluster):
    with open(f"{cluster.folder}/begun", encoding="ascii") as f:
        return [int(pid) for pid in f.read().split()]


def runs(pid):
    return os.path.exists(f"/proc/{pid}/exe")


def test_a_second_agent_of_a_name_waits_until_the_first_is_gone(cluster):
    job = running(cluster)
    start_twin(cluster)
    refused = "another agent, at 127.0.0.1, is node 'n1'; give this one a name of its own"
    wait_for("the twin to be refused", lambda: refused in cluster.tail("agent-twin"))
    cluster.kill_server()
    cluster.start_server()
    wait_for("the agent to be back", lambda: cluster.nodes()[0]["state"] == "ready")
    assert cluster.job(job)["generation"] == 1 and len(begun(cluster)) == 1
    cluster.kill_agent("n1")
    os.kill(begun(cluster)[0], signal.SIGKILL)
    wait_for("the twin to have the job", lambda: cluster.job(job)["generation"] == 2 and len(begun(cluster)) == 2)
    assert cluster.job(job)["restarts"]["node"] == 1
    assert cluster.agents["twin"].poll() is None


def test_an_agent_that_stood_still_while_another_took_its_name_ends_with_its_ranks(cluster):
    job = running(cluster)
    (first,) = begun(cluster)
    cluster.agents["n1"].send_signal(signal.SIGSTOP)
    start_twin(cluster)
    wait_for("the twin to have the job", lambda: cluster.job(job)["generation"] == 2 and len(begun(cluster)) == 2)
    cluster.agents["n1"].send_signal(signal.SIGCONT)
    assert cluster.agents["n1"].wait(PATIENCE_S) == 3
    assert not runs(first) and runs(begun(cluster)[1])
    assert cluster.job(job)["generation"] == 2 and len(begun(cluster)) == 2
    cluster.agents["twin"].terminate()
    cluster.agents["twin"].wait(PATIENCE_S)
    cluster.start_agent("n1")  # a person has seen to it
    # An attempt that was to start while the node was silent may have been given up.
    wait_for("it to be the node again", lambda: cluster.job(job)["generation"] >= 3 and len(begun(cluster)) == 3)


def test_an_agent_that_is_started_anew_in_its_folder_need_not_wait(cluster):
    job = running(cluster)

    def registrations():
        return cluster.tail("agent-n1", 1 << 20).count("registered with the server")
    for times in 2, 3, 4:
        cluster.kill_agent("n1")
        cluster.start_agent("n1")
        wait_for("it to register", lambda: registrations() == times)
    assert "answers register" not in cluster.tail("agent-n1", 1 << 20)
    assert cluster.job(job)["generation"] == 1 and len(begun(cluster)) == 1
