"""Sessions beside ranks (`muster exec`) whose server, agent, own process is killed: whoever is left hears of
it in words and within a deadline, no process of the session stays, and the job goes on."""
import os
import signal
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, command_line, wait_for
from tests.patience import PATIENCE_S

STAY = "sleep 7741"
GENTLE = ["sh", "-c", f"echo on; setsid {STAY} & {STAY}; {STAY}"]
STUBBORN = ["sh", "-c", f"trap '' TERM HUP; {GENTLE[2]}"]


@pytest.fixture(scope="module", name="cluster")
def a_cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("exec")), slots=2) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture(name="job", scope="module")
def a_job(cluster):
    job = cluster.submit(specs.command("exec sleep 3600"))["id"]
    cluster.wait(job, ["running"])
    return job


def of_session(cluster):
    """Processes of the session: what carries it on the node, and its program's."""
    return [pid for pid in cluster.alive()
            if STAY in command_line(pid) and f"{BIN}/muster exec" not in command_line(pid)
            or "muster-agent session" in command_line(pid)]


def begun(cluster, job, program=STUBBORN):
    """`muster exec` of the program, which has begun."""
    cli = subprocess.Popen([f"{BIN}/muster", "exec", job, "--", *program], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cluster.cli_env(), text=True)
    assert cli.stdout.readline() == "on\n"
    wait_for("the program", lambda: len(of_session(cluster)) >= 4)
    return cli


def ended(cli):
    """What the client said as it ended, which was that the session was lost."""
    said = cli.communicate(timeout=PATIENCE_S)[1]
    assert cli.returncode == 255, said
    assert said.startswith("muster: ") and said.count("\n") == 1, said
    return said


def all_gone(cluster, job):
    wait_for("the session's processes to end", lambda: not of_session(cluster))
    cluster.wait(job, ["running"])
    assert cluster.job(job)["generation"] == 1


def test_a_server_that_is_killed_ends_its_sessions_at_both_ends(cluster, job):
    cli = begun(cluster, job)
    cluster.kill_server()
    assert "server" in ended(cli)
    wait_for("the session's processes to end", lambda: not of_session(cluster))
    cluster.start_server()
    cluster.wait_nodes(["n1"])
    all_gone(cluster, job)


def test_an_agent_that_is_killed_ends_the_sessions_of_its_node(cluster, job):
    cli = begun(cluster, job)
    cluster.kill_agent("n1")
    said = cli.communicate(timeout=PATIENCE_S)[1]
    assert "killed" in said and cli.returncode == 137, said
    wait_for("the session's processes to end", lambda: not of_session(cluster))
    cluster.start_agent("n1")
    cluster.wait_nodes(["n1"])
    all_gone(cluster, job)


def test_what_carries_a_session_on_its_node_is_killed_and_the_client_is_told(cluster, job):
    cli = begun(cluster, job)
    with open(f"/proc/{cluster.agents['n1'].pid}/task/{cluster.agents['n1'].pid}/children", encoding="ascii") as f:
        carries, = [int(pid) for pid in f.read().split() if "muster-agent session" in command_line(pid)]
    os.kill(carries, signal.SIGKILL)
    assert "the node has gone" in ended(cli)
    all_gone(cluster, job)


def test_a_session_in_which_nothing_passes_is_ended_with_words_at_both_ends(cluster, job):
    cluster.server_args += ["--exec-idle", "1"]
    cluster.stop_server()
    cluster.start_server()
    cluster.wait_nodes(["n1"])
    assert "--exec-idle" in ended(begun(cluster, job, GENTLE))
    all_gone(cluster, job)


def test_an_agent_that_lets_nobody_in_is_named_at_once(cluster, job):
    cluster.agent_args += ["--no-exec"]
    cluster.kill_agent("n1")
    cluster.start_agent("n1")
    wait_for("the agent to say so",
             lambda: cluster.request("POST", f"/v1/jobs/{job}/exec", {"argv": ["true"]})[0] == 403)
    done = cluster.muster("exec", job, "--", "true")
    assert done.returncode != 0 and "node 'n1' of rank 0 lets nobody into jobs (muster-agent --no-exec)" in done.stderr
    all_gone(cluster, job)
