"""Whatever a job makes of the files that its node's agent reads, the agent and its other jobs go on."""
import os

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for

FILES = ["metrics.jsonl", "events.jsonl", "rank-00000.log"]
SPOILERS = {"pipe": "rm -f {0}; mkfifo {0}", "folder": "rm -f {0}; mkdir {0}", "link": "ln -sf /dev/zero {0}",
            "socket": "rm -f {0}; /usr/bin/python3 -c 'import socket; "
                      "socket.socket(socket.AF_UNIX).bind(\"{0}\")'"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("files")), slots=2) as c:
        yield c
    assert not c.leftovers()


def assert_goes_on(cluster):
    other = cluster.submit(specs.command("true"))["id"]
    cluster.wait(other, "succeeded")
    assert cluster.agents["n1"].poll() is None
    assert cluster.nodes()[0]["state"] == "ready"


def spoil(cluster, script):
    """A job that does this in the folder of its run, and goes on."""
    job = cluster.submit(specs.command(f"cd $MUSTER_RUN_DIR && {{ {script}; }} && touch $MUSTER_JOB_DIR/spoilt; "
                                       "while :; do sleep 0.1; done"))
    wait_for("what the job does", lambda: os.path.exists(os.path.join(job["dir"], "spoilt")))
    return job["id"]


def end(cluster, job):
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")
    assert_goes_on(cluster)


@pytest.mark.parametrize("name, kind", [(name, "pipe") for name in FILES] +
                         [("metrics.jsonl", kind) for kind in SPOILERS if kind != "pipe"])
def test_what_is_no_plain_file_is_not_read_and_the_job_is_told(cluster, name, kind):
    job = spoil(cluster, SPOILERS[kind].format(name))
    told = wait_for("the event", lambda: [e for e in cluster.events(job) if e["cause"]["code"] == "file-not-read"])
    assert len(told) == 1
    assert told[0]["cause"]["text"] == f"'{name}' in the folder of the run is no plain file, so it is not read"
    assert_goes_on(cluster)
    end(cluster, job)


def test_a_file_that_ends_nowhere_holds_up_nobody(cluster):
    end(cluster, spoil(cluster, "truncate -s 4T metrics.jsonl; truncate -s 4T events.jsonl"))


@pytest.mark.parametrize("spoiler", ["truncate -s 0 {0}", "truncate -s 4T {0}", "rm -f {0}; mkfifo {0}",
                                     "printf %0100d 7 > {0}"])
@pytest.mark.parametrize("name", ["rank-00000.flight", "rank-00000.pid", "assignment.json", "rendezvous/x",
                                  "rank-00000.beat", "rank-00000.result", "order.json"])
def test_no_file_of_a_run_can_stop_its_agent(cluster, name, spoiler):
    end(cluster, spoil(cluster, spoiler.format(name)))


def test_an_agent_that_comes_back_gets_over_the_files_of_its_runs(cluster):
    jobs = [spoil(cluster, "truncate -s 0 rank-00000.flight; rm -f assignment.json; mkfifo assignment.json"),
            spoil(cluster, "for f in rank-00000.flight rank-00000.log; do rm -f $f; mkfifo $f; done")]
    unknown = cluster.rank_pids(jobs[0])
    assert unknown
    cluster.kill_agent()
    cluster.start_agent("n1")
    cluster.wait_nodes(["n1"])
    wait_for("the end of what nobody knows any more", lambda: not cluster.alive() & set(unknown))
    for job in jobs:
        cluster.action(job, "cancel")
        cluster.wait(job, "cancelled")
    assert_goes_on(cluster)


def test_folders_too_deep_for_a_path_do_not_keep_a_run_on_its_node(cluster):
    """A node holds so many runs: those that could not be removed would fill it."""
    dig = "import os; [(os.mkdir(n), os.chdir(n)) for n in ['x' * 200] * 100]"
    job = cluster.submit(specs.command(f'cd $MUSTER_RUN_DIR && exec /usr/bin/python3 -c "{dig}"'))["id"]
    cluster.wait(job, "succeeded")
    wait_for("the run's folder to be removed",
             lambda: not os.path.exists(os.path.join(cluster.agent_state(), "runs", f"{job}-g1")))


@pytest.mark.parametrize("spoiler", ["rm -f {0}; mkfifo {0}", "rm -rf {0}; mkdir {0}", "ln -sf /dev/zero {0}",
                                     "truncate -s 4T {0}", "printf '{{\"outcome\": ' > {0}"])
def test_a_result_that_cannot_be_read_is_no_result(cluster, spoiler):
    """The shim reads it as the rank ends: whatever stands there, the end is told, and by its status."""
    script = "cd $MUSTER_RUN_DIR; " + "; ".join(spoiler.format(f"rank-00000.{name}") for name in ("result", "ack"))
    outcome = cluster.wait(cluster.submit(specs.command(script + "; exit 74"))["id"], "failed")["outcome"]
    assert (outcome["class"], outcome["exit_code"]) == ("user", 74)
    assert_goes_on(cluster)


def test_a_rank_cannot_speak_for_a_rank_beside_it_that_speaks_for_itself(cluster):
    """Two ranks of one node: each is judged by its own result."""
    script = ("cd $MUSTER_RUN_DIR; [ $RANK = 0 ] || exec sleep 1000; "
              "echo '{\"outcome\":\"failed\",\"class\":\"node\"}' > rank-00001.result; exit 3")
    outcome = cluster.wait(cluster.submit(specs.command(script, devices=2))["id"], "failed")["outcome"]
    assert (outcome["class"], outcome["rank"], outcome["exit_code"]) == ("user", 0, 3)


def test_lines_of_metrics_without_end_are_thinned_and_the_job_is_told(cluster):
    job = cluster.submit(specs.command(
        "i=0; while [ $i -lt 400 ]; do i=$((i+1)); "
        "printf '{\"v\":1,\"step\":'$i',\"a\":1}\\n%.0s' 1 2 3 4 5 6 7 8 9 10; done >> $MUSTER_RUN_DIR/metrics.jsonl; "
        "touch $MUSTER_JOB_DIR/written; while :; do sleep 0.1; done"))["id"]
    told = wait_for("the event", lambda: [e for e in cluster.events(job) if e["cause"]["code"] == "file-not-read"])
    assert "more than 200 a second" in told[0]["cause"]["text"]
    end(cluster, job)


def test_lines_that_are_no_metrics_are_skipped_and_counted(cluster):
    job = cluster.submit(specs.command(
        "cd $MUSTER_RUN_DIR; echo '{\"v\":1,\"step\":1,\"loss\":2}' >> metrics.jsonl; echo nonsense >> metrics.jsonl; "
        "echo '{\"v\":1,\"step\":2,\"no name\":3}' >> metrics.jsonl; "
        "head -c 300000 /dev/zero | tr '\\0' x >> metrics.jsonl; echo >> metrics.jsonl; "
        "echo '{\"v\":1,\"step\":3,\"loss\":1}' >> metrics.jsonl; while :; do sleep 0.1; done"))["id"]
    told = wait_for("the event", lambda: [e for e in cluster.events(job) if e["cause"]["code"] == "file-not-read"])
    assert "'metrics.jsonl' are left out so far" in told[0]["cause"]["text"]
    lines = wait_for("the last line", lambda: (m := cluster.api("GET", f"/v1/jobs/{job}/metrics?names=loss"))
                     and m["metrics"].get("loss", [])[-1:] == [1] and m)
    assert lines["metrics"]["loss"] == [2, 1]
    end(cluster, job)
