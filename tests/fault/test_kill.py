"""kill -9 of a rank, the agent, the server and Redis at points drawn from a seed: the job ends with the right weights.

MUSTER_SEED repeats a run; MUSTER_TEST_LONG=1 tries many more seeds.
"""
import json
import os
import random
import re
import signal
import subprocess
import time

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.patience import PATIENCE_S

SEED = int(os.environ.get("MUSTER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
ROUNDS = 8 if os.environ.get("MUSTER_TEST_LONG") else 2
STEPS = 100
AHEAD = 10  # steps that a job may do after the one where it is to be struck, on a machine faster than the test
VICTIMS = ["rank", "agent", "server", "redis"]


def digest(folder):
    out = subprocess.run([f"{BIN}/muster", "checkpoint", "digest", folder], capture_output=True, text=True)
    assert out.returncode == 0, out.stdout + out.stderr
    return re.search(r"\b[0-9a-f]{32}\b", out.stdout).group()


def losses(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="ascii") as f:
        return {line["step"]: line["loss"] for line in map(json.loads, f)}


def steps_done(folder):
    """Lines of metrics.jsonl: closer than the progress that the server shows once a second."""
    try:
        with open(os.path.join(folder, "metrics.jsonl"), "rb") as f:
            return f.read().count(b"\n")
    except FileNotFoundError:
        return 0


def the_spec(corpus):
    spec = specs.train(corpus, steps=STEPS, tp=2, pp=2, every_steps=20)
    spec["train"]["model"]["dropout"] = 0.1
    return spec


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, corpus):
    """Digest of the last checkpoint and losses by step of a run that nobody disturbs."""
    folder = str(tmp_path_factory.mktemp("undisturbed"))
    spec = os.path.join(folder, "spec.json")
    with open(spec, "w", encoding="ascii") as f:
        json.dump(the_spec(corpus), f)
    out = subprocess.run([f"{BIN}/muster", "run", spec, "--devices", "4", "--dir", f"{folder}/out"],
                         capture_output=True, text=True, timeout=PATIENCE_S)
    assert out.returncode == 0, out.stdout + out.stderr
    return digest(f"{folder}/out/checkpoints"), losses(f"{folder}/out")


def kill_rank(cluster, job, rng):
    ranks = cluster.rank_pids(job)
    assert ranks, "no rank to kill"
    os.kill(rng.choice(ranks), signal.SIGKILL)


def strike(cluster, victim, job, rng):
    if victim == "rank":
        kill_rank(cluster, job, rng)
    elif victim == "agent":
        cluster.kill_agent("n1")
        if rng.random() < 0.5:  # sometimes a rank dies while nobody looks
            kill_rank(cluster, job, rng)
        cluster.start_agent("n1")
    elif victim == "server":
        cluster.kill_server()
        if rng.random() < 0.5:
            kill_rank(cluster, job, rng)
        cluster.start_server()
    else:
        os.kill(cluster.redis_pid(), signal.SIGKILL)


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_killed_process_changes_no_weight(tmp_path, corpus, undisturbed, victim, number):
    rng = random.Random(f"{SEED}-{victim}-{number}")
    at_step = rng.randint(0, STEPS - 20)
    print(f"seed {SEED}: kill {victim} after step {at_step}")
    with Cluster(str(tmp_path), slots=4, hold_at=at_step + AHEAD) as cluster:
        job = cluster.submit(the_spec(corpus))["id"]
        folder = cluster.job(job)["dir"]
        wait_for(f"step {at_step}", lambda: steps_done(folder) >= at_step and cluster.rank_pids(job))
        strike(cluster, victim, job, rng)
        cluster.hold.release()
        ended = cluster.wait(job, ["succeeded", "failed", "cancelled"])
        assert ended["state"] == "succeeded", json.dumps(ended["outcome"], indent=1)
        want_digest, want_losses = undisturbed
        assert digest(f"{ended['dir']}/checkpoints") == want_digest
        assert losses(ended["dir"]) == want_losses
        replayed = "queued"
        for event in cluster.events(job):
            if event["type"] == "state":
                assert event["from"] == replayed, event
                replayed = event["to"]
        assert replayed == "succeeded"
    assert not cluster.leftovers()


@pytest.mark.parametrize("victim", ["server", "redis"])
@pytest.mark.parametrize("number", range(ROUNDS))
def test_no_acknowledged_job_is_lost_doubled_or_stuck(tmp_path, victim, number):
    """Submits flow and jobs run while the server or its Redis is killed; each submit carries a key, so asking again is
    safe, and each job runs once."""
    rng = random.Random(f"{SEED}-submit-{victim}-{number}")
    print(f"seed {SEED}")
    with Cluster(str(tmp_path), slots=2) as cluster:
        acknowledged, total = {}, 60
        strike_at = rng.randint(10, total - 10)
        for i in range(total):
            if i == strike_at:
                if victim == "server":
                    cluster.kill_server()
                    cluster.start_server()
                else:
                    os.kill(cluster.redis_pid(), signal.SIGKILL)
            deadline = time.monotonic() + 30
            while True:
                assert time.monotonic() < deadline, f"submit {i} is not taken"
                spec = specs.command(f"echo n{i} >> {tmp_path}/ran", name=f"n{i}")
                status, body = cluster.request("POST", "/v1/jobs", spec,
                                               headers={"Idempotency-Key": f"key-{i}"})
                if status in (200, 201):
                    acknowledged[i] = body["id"]
                    break
                assert status in (0, 503, 504), (status, body)
        assert len(set(acknowledged.values())) == total
        listed = cluster.list_jobs()
        assert sorted(job["name"] for job in listed) == sorted(f"n{i}" for i in range(total))
        for job in acknowledged.values():
            assert cluster.wait(job, ["succeeded", "failed", "cancelled"])["state"] == "succeeded"
    ran = (tmp_path / "ran").read_text(encoding="ascii").split()
    assert sorted(ran) == sorted(f"n{i}" for i in range(total))


def test_ranks_run_on_while_the_server_is_down_and_report_afterwards(tmp_path, corpus, undisturbed):
    with Cluster(str(tmp_path), slots=4, hold_at=AHEAD) as cluster:
        job = cluster.submit(the_spec(corpus))["id"]
        running = cluster.wait(job, "running")
        wait_for("a step", lambda: steps_done(running["dir"]) >= 1)
        ranks = cluster.rank_pids(job)
        cluster.kill_server()
        cluster.hold.release()
        # The run goes on to its end with nobody to report to.
        wait_for("the last step", lambda: STEPS - 1 in losses(running["dir"]))
        wait_for("ranks to end", lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in ranks))
        cluster.start_server()
        ended = cluster.wait(job, ["succeeded", "failed", "cancelled"])
        assert ended["state"] == "succeeded"
        assert ended["generation"] == running["generation"], "nothing was restarted for the server's sake"
        assert digest(f"{ended['dir']}/checkpoints") == undisturbed[0]
        # The end is told by the first report, and what the ranks measured meanwhile by those after it.
        points = wait_for("its steps", lambda: (lambda v: v if v[-1:] == [STEPS - 1] else None)(
            cluster.api("GET", f"/v1/jobs/{job}/metrics?points=1000")["metrics"].get("step", [])))
        assert points == list(range(STEPS)), "every step was delivered once"
