"""An agent with GPUs, shown by the driver library of tests/gpu: offered, assigned by UUID, kept from use when ill."""
import json
import os

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.gpus import FAKE, Gpus, gpu
from tests.patience import PATIENCE_S
from tests.results import digest, lines

EMULATED = os.path.join(FAKE, "muster-cuda-emulated.so")
needs_nvcc = pytest.mark.skipif(not os.path.exists(EMULATED), reason="no nvcc: built without code for GPUs")


@pytest.fixture(name="gpus")
def two_gpus(tmp_path):
    g = Gpus(str(tmp_path))
    g.show(gpu("GPU-a"), gpu("GPU-b"))
    return g


@pytest.fixture(name="cluster")
def one_node(tmp_path, gpus):
    with Cluster(str(tmp_path / "cluster"), slots=0) as c:
        c.env.update(gpus.env)
        c.start_agent("n1", "auto")
        c.wait_nodes(["n1"])
        yield c
    assert not c.leftovers()


def slots(cluster):
    return cluster.nodes()[0]["slots"]


def states(cluster):
    return [s["state"] for s in slots(cluster)]


def metric(cluster, name):
    lines = cluster.request("GET", "/metrics", token="")[1].splitlines()
    return [int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{")]


def test_gpus_are_found_and_told_with_how_they_do(cluster, gpus):
    assert [(s["kind"], s["class"], s["gpu"]["uuid"], s["gpu"]["memory_mib"]) for s in slots(cluster)] == [
        ("gpu", "h100-80gb-hbm3", "GPU-a", 81559), ("gpu", "h100-80gb-hbm3", "GPU-b", 81559)]
    gpus.show(gpu("GPU-a", util=97, used_mib=40000, power_mw=691000), gpu("GPU-b"))
    wait_for("the new figures", lambda: slots(cluster)[0]["gpu"]["utilization"] == 97)
    assert metric(cluster, "muster_gpu_memory_used_bytes") == [40000 << 20, 5 << 20]
    assert metric(cluster, "muster_gpu_power_watts") == [691, 70]


def test_each_rank_sees_its_own_gpu_alone(cluster):
    job = cluster.submit(specs.command('echo "$RANK:$CUDA_VISIBLE_DEVICES"', devices=2))
    assert cluster.wait(job["id"])["state"] == "succeeded"
    text = "".join(cluster.log_text(job["id"], rank) for rank in range(2))
    assert sorted(text.split()) == ["0:GPU-a", "1:GPU-b"]


def test_an_ill_gpu_gets_no_work_until_the_agent_starts_anew(cluster, gpus):
    gpus.show(gpu("GPU-a"), gpu("GPU-b"), xid={"number": 1, "gpu": 0, "code": 79})
    wait_for("GPU-a to be ill", lambda: states(cluster) == ["quarantined", "free"])
    assert slots(cluster)[0]["gpu"]["why"] == "Xid 79: fallen off the bus"
    assert "device 0 of n1 takes no work: Xid 79: fallen off the bus\n" in cluster.muster("nodes").stdout
    events = cluster.api("GET", "/v1/events")["events"]
    assert [e for e in events if e["type"] == "node" and "Xid 79" in json.dumps(e)]
    job = cluster.submit(specs.command('echo "$CUDA_VISIBLE_DEVICES"'))
    assert cluster.wait(job["id"])["state"] == "succeeded"
    assert cluster.log_text(job["id"]).split() == ["GPU-b"]
    gpus.show(gpu("GPU-a"), gpu("GPU-b"))
    cluster.kill_agent("n1")
    cluster.start_agent("n1")
    wait_for("both to be free", lambda: states(cluster) == ["free", "free"])


def test_an_error_in_the_kernels_log_ends_the_attempt_on_its_device(tmp_path, gpus):
    log = tmp_path / "kmsg"
    log.write_text("NVRM: Xid (PCI:0000:01:00): 48, before the agent\n")
    with Cluster(str(tmp_path / "cluster"), slots=0, agent_args=["--kernel-log", str(log)]) as c:
        c.env.update(gpus.env)
        c.start_agent("n1", "auto")
        c.wait_nodes(["n1"])
        job = c.submit(specs.command("[ $CUDA_VISIBLE_DEVICES = GPU-b ] || exec tail -f /dev/null", retry={"max": 2}))
        wait_for("the job to run", lambda: c.job(job["id"])["state"] == "running")
        assert states(c) == ["busy", "free"]
        with open(log, "a", encoding="utf-8") as f:
            f.write("4,12,99,-;NVRM: Xid (PCI:0000:01:00): 48, pid=1, DBE\n")
        assert c.wait(job["id"], "succeeded")["generation"] == 2  # on the other device
        wait_for("the first to be out", lambda: states(c) == ["quarantined", "free"])
        failed = [e for e in c.events(job["id"]) if e["cause"]["code"] == "rank-failed"]
        assert "device 0: Xid 48: double-bit ECC error" in failed[0]["cause"]["text"], failed
        assert c.nodes()[0]["health"]["incidents"] == 1
    assert not c.leftovers()


def test_a_gpu_that_somebody_uses_is_not_free(cluster, gpus):
    gpus.show(gpu("GPU-a", pids=[4711]), gpu("GPU-b"))
    wait_for("GPU-a to be taken", lambda: states(cluster) == ["quarantined", "free"])
    assert slots(cluster)[0]["gpu"]["why"] == "process 4711, which is of no job here, uses it"
    job = cluster.submit(specs.command("true", devices=2))
    gpus.show(gpu("GPU-a"), gpu("GPU-b"))
    assert cluster.wait(job["id"])["state"] == "succeeded"


def test_a_job_that_has_just_ended_leaves_a_gpu_that_is_well_and_free(cluster, gpus, tmp_path):
    end = str(tmp_path / "end")
    os.mkfifo(end)
    job = cluster.submit(specs.command(f'echo pid $$ $CUDA_VISIBLE_DEVICES; read line < {end}'))
    wait_for("its number", lambda: len(cluster.log_text(job["id"]).split()) == 3)
    _, pid, uuid = cluster.log_text(job["id"]).split()
    gpus.show(*[gpu(u, used_mib=7777, live_pids=[int(pid)] if u == uuid else []) for u in ("GPU-a", "GPU-b")])
    wait_for("a sample with it", lambda: slots(cluster)[0]["gpu"]["memory_used_mib"] == 7777)
    with open(end, "w", encoding="utf-8") as f:
        f.write("now\n")
    assert cluster.wait(job["id"])["state"] == "succeeded"
    wait_for("both to be free", lambda: states(cluster) == ["free", "free"])
    assert not [e for e in cluster.api("GET", "/v1/events")["events"] if "gpu-ill" in json.dumps(e)]


def test_training_is_refused_where_only_gpus_are(cluster, tmp_path):
    status, problem = cluster.request("POST", "/v1/jobs", specs.train(str(tmp_path)))
    assert status == 422 and "--train-on-gpus" in problem["errors"][0]["message"], problem


@needs_nvcc
def test_training_uses_the_gpus_of_agents_that_let_it_and_goes_on_there(cluster, tmp_path):
    cluster.env["MUSTER_CUDA_BACKEND"] = EMULATED
    cluster.agent_args.append("--train-on-gpus")
    cluster.kill_agent("n1")
    cluster.start_agent("n1")
    wait_for("GPUs for training", lambda: [s["trains"] for s in slots(cluster)] == [True, True])
    spec = specs.train(specs.write_corpus(str(tmp_path / "corpus")), steps=20, virtual_workers=2)
    spec["train"]["model"].update({"layers": 1, "hidden": 16, "heads": 2, "context": 16})
    spec["train"]["batch"]["sequences"] = 2
    spec["devices"] = {"min": 1, "max": 1, "classes": ["h100-80gb-hbm3"]}
    whole = finish(cluster, cluster.submit(spec)["id"])
    cluster.hold.at(5)
    job = cluster.submit(spec)["id"]
    wait_for("five steps", lambda: len(lines(cluster.job(job)["dir"])) == 5)
    cluster.api("PATCH", f"/v1/jobs/{job}", {"devices": {"min": 2, "max": 2}})
    wait_for("two ranks", lambda: cluster.job(job)["generation"] == 2)
    cluster.hold.release()
    ended = finish(cluster, job)
    cluster.agent_args.remove("--train-on-gpus")
    cluster.start_agent("n2", "auto")
    cluster.wait_nodes(["n1", "n2"])
    status, problem = cluster.request("POST", "/v1/jobs", spec)
    assert status == 422 and "of class 'h100-80gb-hbm3' it may use none while the agent of 'n2' runs without " \
        "--train-on-gpus" in problem["errors"][0]["message"], problem
    assert {line["ranks"] for line in lines(ended["dir"])} == {1, 2}
    assert digest(f"{ended['dir']}/checkpoints") == digest(f"{whole['dir']}/checkpoints")
    assert "CUDA graphs" in cluster.log_text(job)


def finish(cluster, job):
    ended = cluster.wait(job)
    assert ended["state"] == "succeeded", cluster.log_text(job)
    return ended


def test_an_agent_says_why_it_cannot_offer_gpus(cluster, gpus):
    gpus.show(broken=True)
    agent = cluster.spawn("agent-broken", [
        f"{BIN}/muster-agent", "--server", cluster.url, "--token-file", f"{cluster.state}/agent-token", "--state",
        cluster.agent_state("broken"), "--node", "broken", "--devices", "gpu:2"])
    assert agent.wait(PATIENCE_S) == 2
    assert "no GPU can be offered: the GPU driver does not work: Driver Not Loaded" in cluster.tail("agent-broken")
