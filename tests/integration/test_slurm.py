"""Nodes that a real Slurm lends: Debian's slurmctld, four slurmd and munge on this host (tests/slurm.py)."""
import contextlib
import datetime
import json
import os
import time

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.gpus import Gpus, gpu
from tests.slurm import MISSING, Slurm

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"Debian's slurm-wlm and munge are not here: no {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a slurmd of a test's own needs root")]
AGENT = "--profile-idle=0"  # nothing is measured while a test waits


@pytest.fixture(name="slurm", scope="module")
def of_slurm(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("slurm"))
    with Slurm(folder, nodes=4, gpus={"s4": 2}) as slurm:
        slurm.gpus_here = Gpus(folder)
        slurm.gpus_here.show(gpu("GPU-a"), gpu("GPU-b"))
        yield slurm


@contextlib.contextmanager
def cluster_of(slurm, folder, **more):
    with Cluster(str(folder), slots=0, env={"SLURM_CONF": slurm.env["SLURM_CONF"]}, **more) as cluster:
        try:
            yield cluster
        finally:  # the agents are Slurm's: they end with its jobs, and no more are asked for
            cluster.cancel_since(0)
            slurm.run("scancel", "--me")
            wait_for("Slurm to be idle", lambda: not slurm.jobs())


def up(cluster, *args):
    """Nodes by a batch job; the job's number."""
    log = os.path.join(cluster.folder, f"agents-{time.monotonic_ns()}.log")
    got = cluster.muster("slurm", "up", "--time", "1:00:00", "--agent", AGENT, "--log", log, *args)
    assert got.returncode == 0, got.stderr
    return got.stdout.strip()


def steps_done(cluster, job):
    """The steps that the job's generations have done, in order, as the lines of its metrics tell them."""
    told = cluster.api("GET", f"/v1/jobs/{job}/metrics?names=step,loss")
    assert told["points"] == told["steps"], told  # each line is here
    return told["metrics"].get("step", [])


def median(values):
    return sorted(values)[len(values) // 2]


def test_up_brings_agents_that_offer_their_slots_soon_after_slurm_runs_the_job(slurm, tmp_path):
    """Figure: from squeue R to the agent's slots offered, p50 below 2 s."""
    took = []
    with cluster_of(slurm, tmp_path) as cluster:
        for i in range(5):
            job = up(cluster, "--name", f"x{i}", "--nodes", "1")
            wait_for("Slurm to run it", lambda job=job: slurm.state(job) == "RUNNING", every=0.02)
            began = time.monotonic()
            wait_for("its slots", lambda i=i: any(n["id"] == f"x{i}-0" and n["state"] == "ready"
                                                  for n in cluster.nodes()), every=0.02)
            took.append(time.monotonic() - began)
            slurm.run("scancel", job)
            wait_for("the node to leave", lambda: not cluster.nodes())
            wait_for("Slurm to be idle", lambda: not slurm.jobs())
    print(f"from R to slots: p50 {median(took):.2f} s, most {max(took):.2f} s")
    assert median(took) < 2


def test_up_passes_on_accounting_and_tells_the_end_of_the_nodes(slurm, tmp_path):
    with cluster_of(slurm, tmp_path) as cluster:
        job = up(cluster, "--nodes", "2", "--account", "ml", "--sbatch", "--comment=bert --exclusive", "--name", "x")
        cluster.wait_nodes(["x-0", "x-1"])
        told = slurm.run("scontrol", "show", "job", job).stdout
        assert "Account=ml" in told and "Comment=bert" in told and "OverSubscribe=NO" in told
        end = slurm.run("squeue", "-h", "-j", job, "-o", "%e").stdout.strip()
        assert {n["leaves_at"][:19] for n in cluster.nodes()} == {end}
        assert [len(n["slots"]) for n in cluster.nodes()] == [2, 2]
        long = cluster.submit({**specs.command("true"), "limits": {"time_s": 2 * 3600}})["id"]
        cluster.wait(cluster.submit({**specs.command("true"), "limits": {"time_s": 60}})["id"], "succeeded")
        assert cluster.job(long)["state"] == "queued"  # nothing is placed beyond the end


def test_the_gpus_are_those_that_slurm_bound(slurm, tmp_path):
    with cluster_of(slurm, tmp_path) as cluster:
        cluster.env.update(slurm.gpus_here.env)
        one = up(cluster, "--name", "one", "--sbatch", "--gres=gpu:1")
        cluster.wait_nodes(["one-0"])
        up(cluster, "--name", "two", "--sbatch", "--gres=gpu:1")
        cluster.wait_nodes(["two-0"])
        nodes = {n["id"]: n for n in cluster.nodes()}
        uuids = [s["gpu"]["uuid"] for name in ("one-0", "two-0") for s in nodes[name]["slots"]]
        assert sorted(uuids) == ["GPU-a", "GPU-b"], nodes
        assert slurm.state(one) == "RUNNING"


@pytest.mark.parametrize("how", ["signal", "cancel", "preempt"])
def test_a_job_over_two_allocations_that_end_at_different_times_loses_no_step(slurm, tmp_path, how):
    corpus = specs.write_corpus(str(tmp_path / "corpus.txt"))
    with cluster_of(slurm, tmp_path, hold_at=20) as cluster:
        first = up(cluster, "--name", "x", "--sbatch", "--nodelist=s1 --exclusive", "--devices", "1")
        cluster.wait_nodes(["x-0"])
        up(cluster, "--name", "y", "--sbatch", "--nodelist=s2 --exclusive", "--devices", "1")
        cluster.wait_nodes(["y-0"])
        spec = specs.train(corpus, steps=60, devices=2, every_steps=1000)
        spec["devices"] = {"min": 1, "max": 2}
        job = cluster.submit(spec)["id"]
        cluster.wait(job, "running")
        wait_for("20 steps on both", lambda: len(steps_done(cluster, job)) == 20)
        assert {p["node"] for p in cluster.job(job)["assignment"]} == {"x-0", "y-0"}
        if how == "signal":
            slurm.run("scancel", "--signal=USR1", first)
        elif how == "cancel":
            slurm.run("scancel", first)
        else:
            slurm.run("sbatch", "--partition=high", "--nodelist=s1", "--exclusive", "--output=/dev/null",
                      "--wrap=sleep 60")
        cluster.hold.release()
        ended = cluster.wait(job, "succeeded")
        wait_for("the first node to leave", lambda: [n["id"] for n in cluster.nodes()] == ["y-0"])
        assert ended["generation"] > 1
        assert steps_done(cluster, job) == list(range(60))  # none twice, none lost


def lending(slurm, folder, queue, **more):
    """A cluster whose server asks this Slurm for nodes."""
    return cluster_of(slurm, folder, server_args=["--provider", "slurm", "--provider-queues", queue], **more)


def test_a_job_that_waits_has_nodes_asked_for_and_starts_soon_after_slurm_grants_them(slurm, tmp_path):
    """Figure: a job that waits for nodes starts within 5 s of Slurm's grant. Then they are handed back."""
    with lending(slurm, tmp_path, f"low:devices=1,most=2,time=1h,idle=2s,account=ml,agent={AGENT}") as cluster:
        took = []
        for _ in range(3):
            slurm.run("scontrol", "update", "partitionname=low", "state=down")  # jobs wait there
            job = cluster.submit(specs.command("true", devices=2))["id"]
            wait_for("the provider to ask", lambda: [j[1:4] for j in slurm.jobs()] == [("PENDING", "low", "ml")])
            assert cluster.api("GET", "/v1/allocations")["allocations"][0]["nodes"] == 2
            slurm.run("scontrol", "update", "partitionname=low", "state=up")
            wait_for("Slurm's grant", lambda: [j[1] for j in slurm.jobs()] == ["RUNNING"], every=0.02)
            began = time.time()
            cluster.wait(job, "succeeded")
            started = [e for e in cluster.events(job) if e["to"] == "starting"][0]["at"]
            took.append(datetime.datetime.fromisoformat(started.replace("Z", "+00:00")).timestamp() - began)
            wait_for("the nodes to be handed back", lambda: not slurm.jobs() and not cluster.nodes())
        print(f"from the grant to the start: {', '.join(f'{t:.2f}' for t in took)} s")
        assert median(took) < 5
        wait_for("nothing to be held", lambda: not cluster.api("GET", "/v1/allocations")["allocations"])


def test_a_server_that_is_killed_finds_its_allocations_and_cancels_those_it_does_not_know(slurm, tmp_path):
    with lending(slurm, tmp_path, f"low:devices=1,most=3,time=1h,idle=5m,agent={AGENT}") as cluster:
        job = cluster.submit(specs.command("exec sleep 1000"))["id"]
        cluster.wait(job, "running")
        (_, _, _, _, name), = slurm.jobs()
        cluster.kill_server()
        batch = ["sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 1000"]
        orphan = slurm.run(*batch, f"--job-name={name[:-1]}9")
        other = slurm.run(*batch, "--job-name=muster-0-a1")
        cluster.start_server()
        wait_for("the orphan to be cancelled", lambda: not slurm.state(orphan.stdout.strip()))
        assert slurm.state(other.stdout.strip()) in ("RUNNING", "PENDING")
        assert cluster.job(job)["state"] == "running" and name in [j[4] for j in slurm.jobs()]


def test_a_queue_that_slurm_refuses_is_told_and_asked_again(slurm, tmp_path):
    with lending(slurm, tmp_path, "nowhere:devices=1") as cluster:
        cluster.submit(specs.command("true"))
        wait_for("the refusal", lambda: "invalid partition" in
                 str(cluster.api("GET", "/v1/allocations")["queues"][0]["trouble"]))
        told = cluster.muster("allocations")
        assert "invalid partition" in told.stderr and told.returncode == 0
        assert [e["cause"]["code"] for e in cluster.events() if e["type"] == "allocation"][:2] == ["asked", "refused"]


def test_run_in_an_allocation_trains_on_all_of_its_nodes(slurm, tmp_path):
    corpus = specs.write_corpus(str(tmp_path / "corpus.txt"))
    spec = tmp_path / "job.json"
    spec.write_text(json.dumps(specs.train(corpus, steps=20, devices=2)))
    got = slurm.run("salloc", "--nodes=2", "--exclusive", "--time=10", "--partition=low", f"{BIN}/muster", "run",
                    str(spec), "--dir", str(tmp_path / "run"), check=False)
    logs = "".join((tmp_path / "run" / name).read_text() for name in ("musterd.log", "agents.log"))
    assert got.returncode == 0, f"{got.stdout}\n{got.stderr}\n{logs}"
    assert (tmp_path / "run" / "jobs" / "j1" / "checkpoints").is_dir()
    assert "joined as node n0" in logs and "joined as node n1" in logs
    wait_for("Slurm to be idle", lambda: not slurm.jobs())
