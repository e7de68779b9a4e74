"""A rank that stands still, or calls something else than its peers, is named in seconds, and the job goes on.

Faults of a rank's own come from muster-train as tests/fault/inject.c wraps it. MUSTER_TEST_LONG=1 has each of them many
times in each layout. Prints how long verdicts took, and then a table of what was told of which fault.
"""
import json
import os
import random
import signal
import time

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for

SEED = int(os.environ.get("MUSTER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
LONG = bool(os.environ.get("MUSTER_TEST_LONG"))
TIMES = 40 if LONG else 1
INJECT = os.path.join(os.path.dirname(BIN), "tests", "fault", "inject")
# Fault -> class of the verdict, what its sentence says, and layouts.
FAULTS = {
    "skip": ("differs", "has called something else than its peers", [{"tp": 2}, {"tp": 2, "pp": 2}]),
    "swap": ("differs", "has called something else than its peers", [{"tp": 2}]),  # else it is in nobody's way
    "size": ("differs", "of another size, type or root than theirs", [{"tp": 2}, {"tp": 2, "pp": 2}]),
    "spin": ("not-entered", "has not", [{"tp": 2}, {"pp": 2}]),
    "lock": ("not-entered", "has not", [{"tp": 1}, {"pp": 2}]),
    "data": ("phase", "in the data loader", [{"tp": 1}, {"tp": 2}]),
    "link": ("in-call", "nothing moves in", [{"tp": 2}, {"tp": 1}]),
}
CASES = [(fault, layout) for fault, row in FAULTS.items() for layout in row[2]] if LONG else \
    [(fault, FAULTS[fault][2][0]) for fault in ("skip", "swap", "size", "data", "link")]
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


def told_alike(cluster, job, text):
    """People read the same sentence of an incident wherever they look: the job's page prints the incident's verdict."""
    for command in ("show", job), ("explain", job), ("diagnose", job, "--incident", "1-1"):
        assert text in " ".join(cluster.muster(*command).stdout.split()), (command, text)
    assert cluster.api("GET", f"/v1/jobs/{job}/incidents/1-1")["verdict"]["text"] == text
    assert cluster.job(job)["outcome"]["message"] == text


def said_alike(cluster, job, victim, text):
    """The verdict is told in the same words everywhere, and what the ranks did was looked at before they ended."""
    told_alike(cluster, job, text)
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


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A cluster whose ranks have the fault that the returned function asks for."""
    order = str(tmp_path_factory.mktemp("inject") / "order")
    c = Cluster(str(tmp_path_factory.mktemp("faulty")), slots=0, server_args=["--round", "1"],
                env={"FAKE_INJECT": order})
    c.programs = INJECT

    def ask(fault, rank):
        with open(f"{order}.new", "w", encoding="ascii") as f:
            f.write(f"{fault} {rank}\n")
        os.rename(f"{order}.new", order)
        wait_for("the rank to take its fault", lambda: not os.path.exists(order))
    with c:
        c.start_agent("n1", "cpu:4")
        c.wait_nodes(["n1"])
        c.corpus = specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))
        c.table = {}
        yield c, ask
        for (fault, told), times in sorted(c.table.items()):
            print(f"{fault:5} told as {told:12} {times} times")


@pytest.mark.parametrize("fault,layout", CASES, ids=lambda of: of if isinstance(of, str) else
                         "".join(f"{k}{v}" for k, v in of.items()))
def test_each_fault_of_a_rank_is_told_by_its_class_with_that_rank(faulty, fault, layout):
    (cluster, ask), (want, says, _) = faulty, FAULTS[fault]
    draw = random.Random(SEED)
    print(f"MUSTER_SEED={SEED}")
    for _ in range(TIMES):
        job = cluster.submit(specs.train(cluster.corpus, steps=100000, devices=4, **layout))["id"]
        wait_for("enough steps to know the rank's pace", lambda j=job: step_of(cluster, j) > 20)
        # only ranks of the first stage read what a step begins with
        victim = draw.choice([0, 1]) if fault == "data" and "pp" in layout else draw.randrange(4)
        ask(fault, victim)
        began = time.monotonic()
        verdict = wait_for("a verdict", lambda j=job: verdicts(cluster, j))[0]
        told = verdict["data"]
        print(f"{fault} in {layout}: {told['class']} of {told['roots']} after {time.monotonic() - began:.1f} s, rank "
              f"{victim}: {verdict['cause']['text']}")
        cluster.table[fault, told["class"]] = cluster.table.get((fault, told["class"]), 0) + 1
        assert told["class"] == want and says in verdict["cause"]["text"], verdict
        if fault == "link":
            assert victim in told["roots"], verdict
        else:
            assert told["roots"] == [victim], verdict
            assert cluster.job(job)["outcome"]["rank"] == victim
        if want == "differs":
            assert told["odd"]["group"] and told["odd"]["step"] > 0
        wait_for("the job to go on", lambda j=job: (k := cluster.job(j))["generation"] == 2 and k["state"] == "running")
        assert len(verdicts(cluster, job)) == 1
        told_alike(cluster, job, verdict["cause"]["text"])
        cluster.api("POST", f"/v1/jobs/{job}/cancel")
        cluster.wait(job, "cancelled")


@pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGSEGV] + LONG * [signal.SIGBUS], ids=lambda s: s.name)
def test_who_is_killed_in_a_call_is_named_and_whoever_lost_it_is_not(cluster, killer):
    draw = random.Random(SEED)
    print(f"MUSTER_SEED={SEED}")
    for _ in range(TIMES):
        job = cluster.submit(specs.train(cluster.corpus, steps=100000, devices=4, tp=2))["id"]
        wait_for("steps", lambda j=job: step_of(cluster, j) > 5)
        victim = draw.randrange(4)
        began = time.monotonic()
        os.kill(cluster.rank_pids(job)[victim], killer)
        outcome = wait_for("a verdict", lambda j=job: cluster.job(j)["outcome"])
        print(f"{killer.name}: rank {outcome['rank']} named after {time.monotonic() - began:.2f} s, rank {victim}")
        assert (outcome["rank"], outcome["signal"]) == (victim, killer), outcome
        wait_for("the job to go on", lambda j=job: cluster.job(j)["generation"] == 2)
        assert not [e for e in cluster.events(job) if e["cause"]["code"] == "roots"]
        assert cluster.job(job)["restarts"] == {"system": 1, "node": 0, "user": 0}
        cluster.api("POST", f"/v1/jobs/{job}/cancel")
        cluster.wait(job, "cancelled")


def test_two_that_are_killed_at_once_are_one_incident_with_two_roots(cluster):
    job = cluster.submit(specs.train(cluster.corpus, steps=100000, devices=4, tp=2))["id"]
    wait_for("steps", lambda: step_of(cluster, job) > 5)
    pids = cluster.rank_pids(job)
    cluster.agents["n1"].send_signal(signal.SIGSTOP)  # else it may see one end before the other is struck
    os.kill(pids[0], signal.SIGSTOP)  # so that it does not end by itself once it has lost the other
    os.kill(pids[3], signal.SIGKILL)
    os.kill(pids[0], signal.SIGKILL)
    wait_for("both ends", lambda: not any(os.path.exists(f"/proc/{pids[rank]}") for rank in (0, 3)))
    cluster.agents["n1"].send_signal(signal.SIGCONT)
    roots = wait_for("the roots", lambda: [e for e in cluster.events(job) if e["cause"]["code"] == "roots"])
    assert roots[-1]["data"]["roots"] == [0, 3] and "ranks 0 on n1, 3 on n1 failed" in roots[-1]["cause"]["text"], roots
    wait_for("the job to go on", lambda: cluster.job(job)["generation"] == 2)
    assert cluster.job(job)["outcome"]["rank"] in (0, 3)
    assert cluster.job(job)["restarts"] == {"system": 1, "node": 0, "user": 0}
    cluster.api("POST", f"/v1/jobs/{job}/cancel")
    cluster.wait(job, "cancelled")


def test_a_number_that_is_none_has_the_job_go_on_from_a_checkpoint_further_back_and_no_node_is_blamed(faulty):
    cluster, ask = faulty
    job = cluster.submit(specs.train(cluster.corpus, steps=100000, devices=4, tp=2, every_steps=20))["id"]

    def saved():
        return [e["data"]["step"] for e in cluster.events(job) if e["type"] == "checkpoint"]
    wait_for("two checkpoints", lambda: len(saved()) > 1)
    cluster.api("POST", "/v1/nodes/n1/undrain")  # whatever other tests did on it
    ask("nan", random.Random(SEED).randrange(4))
    resumed = wait_for("the next run", lambda: [e["data"] for e in cluster.events(job)
                                                if e["cause"]["code"] == "resumed"])[0]
    fault = wait_for(f"what the rank has told, in {[e['cause'] for e in cluster.events(job)]}", lambda: [
        e for e in cluster.events(job) if e["cause"]["code"] == "fault"])[0]["cause"]["text"]
    print(fault)
    assert "is not finite" in fault and "step" in fault
    told = cluster.job(job)
    assert (told["outcome"]["action"], told["outcome"]["back"], told["outcome"]["cause"]) == ("roll-back", 1, "numbers")
    before = [step for step in saved() if step > resumed["step"]]
    assert resumed["tier"] == "disk" and before and told["generation"] == 2, (resumed, saved())
    assert cluster.api("GET", "/v1/nodes/n1")["health"]["state"] == "well"
    wait_for("the job to go on", lambda: step_of(cluster, job) > max(before))
    cluster.api("POST", f"/v1/jobs/{job}/cancel")
    cluster.wait(job, "cancelled")


def test_a_gradient_that_jumps_is_told_once_and_ends_nothing(faulty):
    cluster, ask = faulty
    job = cluster.submit(specs.train(cluster.corpus, steps=100000, devices=4, tp=2))["id"]

    def told():
        return [e for e in cluster.events(job) if e["type"] == "note" and e["cause"]["code"] == "numbers"]
    wait_for("a level", lambda: step_of(cluster, job) > 50)
    ask("jump", random.Random(SEED).randrange(4))
    found = wait_for("the jump", told)[0]
    print(found["cause"]["text"])
    assert (found["data"]["class"], found["data"]["of"]) == ("jump", "gradient norm")
    assert found["data"]["value"] >= 1000 > 5 * found["data"]["level"], found
    wait_for("steps after it", lambda: step_of(cluster, job) > found["data"]["step"] + 60)
    assert len(told()) == 1 and cluster.job(job)["generation"] == 1
    cluster.api("POST", f"/v1/jobs/{job}/cancel")
    cluster.wait(job, "cancelled")


@pytest.mark.parametrize("tp", [2, 1])
def test_a_replica_whose_weights_differ_by_a_bit_is_named_and_the_job_goes_on_from_before(faulty, tp):
    cluster, ask = faulty
    spec = specs.train(cluster.corpus, steps=100000, devices=4, tp=tp, every_steps=20)
    spec["parallel"]["zero"] = 0  # each replica keeps all of its weights, so that a bit that has changed stays so
    cluster.api("POST", "/v1/nodes/n1/undrain")  # what other tests did on it may have it left by its jobs
    job = cluster.submit(spec)["id"]

    def saved():
        return [e["data"]["step"] for e in cluster.events(job) if e["type"] == "checkpoint"]
    wait_for("two checkpoints", lambda: len(saved()) > 1)
    cluster.api("POST", "/v1/nodes/n1/undrain")  # what other tests did on it within a minute would be one incident
    victim = random.Random(SEED).randrange(4)
    ask("flip", victim)
    resumed = wait_for("the next run", lambda: [e["data"] for e in cluster.events(job)
                                                if e["cause"]["code"] == "resumed"])[0]
    fault = wait_for("what the rank has told", lambda: [e for e in cluster.events(job) if e["cause"]["code"] == "fault"]
                     )[0]["cause"]["text"]
    print(fault)
    told = cluster.job(job)
    outcome = told["outcome"]
    assert (outcome["action"], outcome["back"], told["generation"]) == ("roll-back", 1, 2), told
    assert resumed["tier"] == "disk" and resumed["step"] < max(saved()), (resumed, saved())
    if tp == 1:  # three replicas agree
        assert f"the weights of rank {victim} are not those that the other 3 replicas agree on" in fault
        assert (outcome["cause"], outcome["rank"], outcome["class"]) == ("replica", victim, "node"), outcome
        assert told["restarts"] == {"system": 0, "node": 1, "user": 0}
    else:  # one of two, and nobody knows which
        assert f"the weights of ranks {victim % 2}, {victim % 2 + 2} are not the same" in fault
        assert outcome["cause"] == "numbers" and outcome["rank"] % 2 == victim % 2, outcome
    wait_for("the job to go on", lambda: step_of(cluster, job) > max(saved()))
    cluster.api("POST", f"/v1/jobs/{job}/cancel")
    cluster.wait(job, "cancelled")
    assert cluster.api("GET", "/v1/nodes/n1")["health"]["state"] == ("suspect" if tp == 1 else "well")


def test_ranks_that_are_held_at_a_step_are_not_taken_for_ones_that_hang(tmp_path):
    with Cluster(str(tmp_path), slots=2, hold_at=10) as cluster:
        job = cluster.submit(specs.train(specs.write_corpus(str(tmp_path / "corpus")), steps=20, devices=2))["id"]
        wait_for("the hold", lambda: step_of(cluster, job) >= 10)
        seen = time.monotonic()
        wait_for("longer than any deadline of a step", lambda: time.monotonic() - seen > 7)
        assert cluster.job(job)["generation"] == 1 and not verdicts(cluster, job)
        cluster.hold.release()
        cluster.wait(job, "succeeded")
