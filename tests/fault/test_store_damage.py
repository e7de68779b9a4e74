"""The store is damaged: the server says what and where, by name, and everything else works."""
import glob
import os
import shutil
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, command_line, wait_for
from tests.patience import PATIENCE_S
from tests.store import store_of


def test_unreadable_records_are_in_quarantine_by_name_and_the_rest_works(tmp_path):
    with Cluster(str(tmp_path), slots=1) as cluster:
        runs = cluster.submit(specs.command("sleep 100000"))["id"]
        cluster.wait(runs, "running")
        waits = [cluster.submit(specs.command("true"))["id"] for _ in range(3)]
        cluster.api("PUT", "/v1/projects/prod", {"quota": 1})
        with store_of(cluster) as store:
            was = store("HGET", "muster:job:2", "rec")
            store("HSET", "muster:job:2", "rec", b"\xff\x00 no record")
            store("DEL", "muster:job:3", "muster:job:3:events")
            store("SET", "muster:job:3", "of another kind")
            store("HSET", "muster:nodes", b"n\xff9", "{}")
            store("HSET", "muster:projects", "prod", b"\x00{")
            store("HSET", "muster:tokens", "f00", "[]")
            store("LPUSH", "muster:job:1:events", "nonsense")
        cluster.kill_server()
        cluster.start_server()
        status, ready = cluster.request("GET", "/readyz", token="")
        assert (status, ready) == (200, {"status": "degraded", "quarantined": 5})
        said = cluster.muster("list", check=True)
        assert f"5 records of the store cannot be read, among them of {waits[0]}, {waits[1]}" in said.stderr
        assert [line.split()[0] for line in said.stdout.splitlines()[1:]] == [waits[2], runs]
        told = cluster.muster("quarantine", "list", check=True).stdout
        for name in ("job:j2", "job:j3", "node:n_9", "project:prod", "token:f00"):
            assert name in told and f"'{name.split(':')[1]}' goes into quarantine" in cluster.tail("musterd"), name
        assert cluster.request("GET", "/v1/jobs/j2")[0] == 409
        assert cluster.request("GET", "/v1/quarantine", token="x")[0] == 401
        assert [e["type"] for e in cluster.events(runs)][0] == "unreadable"
        assert cluster.job(runs)["generation"] == 1  # it ran on
        cluster.action(runs, "cancel")
        cluster.wait(waits[2], "succeeded")
        assert cluster.muster("quarantine", "retry", "job:j2").returncode == 4
        with store_of(cluster) as store:
            store("HSET", "muster:job:2", "rec", was)
        cluster.muster("quarantine", "retry", "job:j2", check=True)
        cluster.wait(waits[0], "succeeded")
        for name in ("job:j3", "node:n_9", "project:prod", "token:f00"):
            cluster.muster("quarantine", "drop", name, check=True)
        assert cluster.request("GET", "/readyz", token="")[1] == {"status": "ready"}
        cluster.kill_server()
        cluster.start_server()
        wait_for("all to be read", lambda: cluster.request("GET", "/readyz", token="")[1] == {"status": "ready"})
        assert cluster.request("GET", f"/v1/jobs/{waits[1]}")[0] == 404
        assert cluster.submit(specs.command("true"))["id"] == "j5"
    assert not cluster.leftovers()


def test_tables_of_another_kind_are_set_aside_by_name_and_the_rest_works(tmp_path):
    tables = ("nodes", "projects", "tokens", "speeds", "links", "joins", "secrets")
    with Cluster(str(tmp_path), slots=1) as cluster:
        runs = cluster.submit(specs.command("sleep 100000"))["id"]
        cluster.wait(runs, "running")
        with store_of(cluster) as store:
            for table in tables:
                store("DEL", f"muster:{table}")
                store("SET", f"muster:{table}", "of another kind")
        cluster.kill_server()
        cluster.start_server()
        told = wait_for("what was set aside to be told", lambda: "key:muster:nodes" in (
            text := cluster.muster("quarantine", "list", check=True).stdout) and text)
        for table in tables:
            assert f"key:muster:{table} " in told and f"'muster:{table}' is not what it should be" in \
                cluster.tail("musterd"), table
        assert cluster.request("GET", "/readyz", token="")[1] == {"status": "degraded", "quarantined": len(tables)}
        cluster.wait_nodes(["n1"])
        assert cluster.job(runs)["generation"] == 1  # it ran on
        cluster.action(runs, "cancel")
        cluster.wait(cluster.submit(specs.command("true"))["id"], "succeeded")
        with store_of(cluster) as store:
            assert store("GET", "muster:aside:key:muster:nodes") == b"of another kind"
        cluster.kill_server()
        cluster.start_server()  # with tables of the right kind
        assert cluster.tail("musterd").count("'muster:nodes' is not what it should be") == 1
    assert not cluster.leftovers()


def aof(cluster):
    """The file of the append-only log that grows."""
    return glob.glob(f"{cluster.state}/redis/appendonlydir/*.incr.aof")[0]


def refused(cluster, *args):
    """What a server says that does not start on the cluster's state."""
    run = subprocess.run([f"{BIN}/musterd", "--state", cluster.state, "--port", "0", "--jobs-dir", cluster.jobs_dir,
                          *args], capture_output=True, text=True, timeout=PATIENCE_S, env=cluster.env, check=False)
    assert run.returncode == 1, run.stderr
    return run.stderr


@pytest.mark.parametrize("damage", ["cut off", "gone", "gone with its watermark"])
def test_a_store_that_lost_acknowledged_jobs_is_refused_until_the_loss_is_accepted(tmp_path, damage):
    with Cluster(str(tmp_path), slots=1) as cluster:
        runs = cluster.submit(specs.command("sleep 100000"))["id"]
        cluster.wait(runs, "running")
        pids = cluster.rank_pids(runs)
        kept = os.path.getsize(aof(cluster))
        lost = [cluster.submit(specs.command("true"))["id"] for _ in range(3)]
        cluster.kill_server()
        wait_for("the Redis to end with its server", lambda: not [
            pid for pid in cluster.alive() if "redis-server" in command_line(pid)])
        if damage == "cut off":
            os.truncate(aof(cluster), kept)
        else:
            shutil.rmtree(f"{cluster.state}/redis")
        if damage == "gone with its watermark":
            os.unlink(f"{cluster.jobs_dir}/.watermark")
        for _ in range(3):  # however often it is tried
            said = refused(cluster)
            assert "what was acknowledged is lost" in said and "--accept-loss" in said
            if damage == "cut off":
                assert "3 jobs are missing, j2 to j4" in said
            elif damage == "gone":
                assert "4 jobs are missing, j1 to j4" in said
            else:
                assert "holds a folder of a job j1" in said
        assert cluster.rank_pids(runs) == pids  # nobody stopped it
        cluster.server_args = ["--accept-loss"]
        cluster.start_server()
        assert "--accept-loss" in cluster.tail("musterd") or damage == "gone with its watermark"
        if damage == "cut off":
            cluster.action(runs, "cancel")
            cluster.wait(runs, "cancelled")
        fresh = cluster.submit(specs.command("true"))["id"]
        assert fresh == ("j2" if damage == "gone with its watermark" else "j5"), lost
        cluster.wait(fresh, "succeeded")
        cluster.kill_server()
        cluster.server_args = []
        cluster.start_server()  # what was accepted is
        assert cluster.job(fresh)["state"] == "succeeded"
    assert not cluster.leftovers()


def test_an_agent_that_runs_a_job_of_which_the_store_does_not_know_shows_a_loss(tmp_path):
    with Cluster(str(tmp_path), slots=1) as cluster:
        runs = cluster.submit(specs.command("sleep 100000"))["id"]
        cluster.wait(runs, "running")
        pids = cluster.rank_pids(runs)
        cluster.kill_server()
        tokens = {name: open(f"{cluster.state}/{name}", encoding="ascii").read() for name in ("token", "agent-token")}
        wait_for("the Redis to end with its server", lambda: not [
            pid for pid in cluster.alive() if "redis-server" in command_line(pid)])
        for folder in (cluster.state, cluster.jobs_dir):  # the server comes up on a machine where there is nothing
            os.rename(folder, folder + "-old")
            os.mkdir(folder, 0o700)
        for name, token in tokens.items():
            with open(os.open(f"{cluster.state}/{name}", os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
                f.write(token)
        cluster.start_server()
        wait_for("the server to tell", lambda: "has given no number from j1 on" in cluster.tail("musterd"))
        assert cluster.nodes() == [] and cluster.rank_pids(runs) == pids
        cluster.stop_server()
        cluster.server_args = ["--accept-loss"]
        cluster.start_server()
        cluster.wait_nodes(["n1"])
        assert cluster.submit(specs.command("true"))["id"] == "j2"
    assert not cluster.leftovers()


def test_a_redis_that_goes_back_under_a_running_server_ends_it(tmp_path):
    with Cluster(str(tmp_path), slots=0) as cluster:
        for _ in range(2):
            cluster.submit(specs.command("true"))
        with store_of(cluster) as store:
            store("HINCRBY", "muster:meta", "batch", -1)
        cluster.request("POST", "/v1/jobs", specs.command("true"), timeout=PATIENCE_S)
        cluster.server.wait(PATIENCE_S)
        assert "the store has lost changes" in cluster.tail("musterd")
    assert not cluster.leftovers()
