"""A rank that stands still is named in seconds, with what the others wait in, and the job goes on.

MUSTER_TEST_LONG=1 stops ranks of each layout several times; else one of two layouts. Prints how long verdicts took.
"""
import json
import os
import random
import signal
import time

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for

SEED = int(os.environ.get("MUSTER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
LONG = bool(os.environ.get("MUSTER_TEST_LONG"))
TIMES = 40 if LONG else 1
LAYOUTS = [{"tp": 2, "pp": 2}, {"tp": 1, "pp": 1}] + LONG * [{"tp": 2, "pp": 1}, {"tp": 1, "pp": 2}]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("cluster")), slots=4, server_args=["--round", "1"]) as c:
        c.corpus = specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))
        yield c


def step_of(cluster, job):
    return (cluster.job(job)["progress"] or {}).get("step") or 0


def verdicts(cluster, job):
    return [e for e in cluster.events(job) if e["cause"]["code"] == "hang"]


def said_alike(cluster, job, victim, text):
    """The verdict is told in the same words everywhere, and what the ranks did was looked at before they ended."""
    assert text in cluster.muster("show", job).stdout and text in cluster.muster("explain", job).stdout
    incident = wait_for("what the node told", lambda: (i := cluster.api(
        "GET", f"/v1/jobs/{job}/incidents/1-1")).get("parts") and i)
    assert incident["verdict"]["text"] == text and incident["verdict"]["roots"] == [victim]
    ranks = {r["told"]["rank"]: r for r in incident["parts"][0]["ranks"]}
    assert len(ranks) == 4 and all(r["processes"] and r["flight"]["ops"] and r["log"] for r in ranks.values())
    assert ranks[victim]["processes"][0]["state"].startswith("T")
    assert not any(r["processes"][0]["state"].startswith("T") for i, r in ranks.items() if i != victim)
    dump = os.path.join(cluster.folder, f"{job}.json")
    with open(dump, "w", encoding="utf-8") as f:
        json.dump(incident, f)
    assert json.loads(cluster.muster("diagnose", "--dump", dump, "-o", "json").stdout)["verdict"] == incident["verdict"]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda of: f"tp{of['tp']}pp{of['pp']}")
def test_a_stopped_rank_is_named_in_seconds_and_its_job_goes_on(cluster, layout):
    draw = random.Random(SEED)
    print(f"MUSTER_SEED={SEED}")
    for _ in range(TIMES):
        spec = specs.train(cluster.corpus, steps=100000, devices=4, **layout)
        job = cluster.submit(spec)["id"]
        wait_for("enough steps to know the rank's pace", lambda j=job: step_of(cluster, j) > 20)
        victim = draw.randrange(4)
        os.kill(cluster.rank_pids(job)[victim], signal.SIGSTOP)
        began = time.monotonic()
        verdict = wait_for("a verdict", lambda j=job: verdicts(cluster, j))[0]
        print(f"{layout}: rank {victim} named after {time.monotonic() - began:.1f} s")
        assert verdict["data"]["class"] == "stopped" and verdict["data"]["roots"] == [victim], verdict
        assert "its process has been stopped" in verdict["cause"]["text"]
        told = cluster.job(job)["outcome"]
        assert (told["class"], told["rank"]) == ("system", victim) and "stopped" in told["message"], told
        reached = step_of(cluster, job)
        wait_for("the job to go on", lambda j=job: (k := cluster.job(j))["generation"] == 2 and
                 k["state"] == "running" and step_of(cluster, j) > reached)
        assert len(verdicts(cluster, job)) == 1
        assert cluster.job(job)["restarts"] == {"system": 1, "node": 0, "user": 0}
        said_alike(cluster, job, victim, verdict["cause"]["text"])
        shown = cluster.muster("explain", job).stdout
        assert f"rank {victim} on n1: its process has been stopped" in shown
        cluster.api("POST", f"/v1/jobs/{job}/cancel")
        cluster.wait(job, "cancelled")


def test_ranks_that_are_held_at_a_step_are_not_taken_for_ones_that_hang(tmp_path):
    with Cluster(str(tmp_path), slots=2, hold_at=10) as cluster:
        job = cluster.submit(specs.train(specs.write_corpus(str(tmp_path / "corpus")), steps=20, devices=2))["id"]
        wait_for("the hold", lambda: step_of(cluster, job) >= 10)
        seen = time.monotonic()
        wait_for("longer than any deadline of a step", lambda: time.monotonic() - seen > 7)
        assert cluster.job(job)["generation"] == 1 and not verdicts(cluster, job)
        cluster.hold.release()
        cluster.wait(job, "succeeded")
