"""A rank that is slower than its peers is named, with what slows it, some steps after it became so; a run that trains,
evaluates and saves on a busy host has no such verdict.

MUSTER_TEST_LONG=1 takes all layouts, several times. Prints after how many steps verdicts came.
"""
import contextlib
import os
import random
import signal
import struct
import subprocess
import threading
import time

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.hosts import NEEDS, Hosts, can_make_hosts
from tests.integration.test_many_hosts import HOSTS, HostCluster

LIBRARY = os.path.join(os.path.dirname(BIN), "tests", "fault", "slow_rank.so")
SEED = int(os.environ.get("MUSTER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
LONG = bool(os.environ.get("MUSTER_TEST_LONG"))
TIMES = int(os.environ.get("MUSTER_TIMES", "10" if LONG else "1"))
LAYOUTS = [{"tp": 2, "pp": 1, "devices": 2}] + LONG * [
    {"tp": 1, "pp": 1, "devices": 2}, {"tp": 1, "pp": 1, "devices": 4}, {"tp": 1, "pp": 2, "devices": 2},
    {"tp": 2, "pp": 2, "devices": 4}]
BEFORE = 80  # steps by which the run's pace is known
WITHIN = 100  # sums; 20 where the machine does nothing else, which tests/bench/confusion.py counts
HELD_S = 60  # or so long: on a busy machine a rank has to be slow for 6 s of such times in which it is judged
MODEL = {"family": "gpt2", "layers": 4, "hidden": 128, "heads": 4, "context": 64, "vocab": 256}


class SlowRank:
    """Which rank's processor is slow, and by how many percent all that it computes takes longer."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "slow")
        self.set(-1, 0)
        self.env = {"LD_PRELOAD": LIBRARY, "FAKE_SLOW_RANK": self.path}

    def set(self, rank, percent):
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as f:
            f.write(struct.pack("=ii", rank, percent))


@contextlib.contextmanager
def stopped_by_turns(pid, stopped_s, runs_s):
    """The process is stopped and goes on by turns, as one that is given a share of a processor."""
    done = threading.Event()

    def turns():
        while not done.wait(runs_s):
            os.kill(pid, signal.SIGSTOP)
            done.wait(stopped_s)
            os.kill(pid, signal.SIGCONT)
    thread = threading.Thread(target=turns)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def cpu_groups():
    """Where control groups of processors are, and the file and words of a limit: of version 1 or 2."""
    if os.path.exists("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"):
        return "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", lambda share: str(int(share * 100000))
    return "/sys/fs/cgroup", "cpu.max", lambda share: f"{int(share * 100000)} 100000"


def make_limit(path, share):
    os.mkdir(path)
    _, name, words = cpu_groups()
    with open(os.path.join(path, name), "w", encoding="ascii") as f:
        f.write(words(share))


def can_limit():
    path = os.path.join(cpu_groups()[0], f"muster-test-{os.getpid()}")
    try:
        make_limit(path, 1)
    except OSError:
        return False
    finally:
        if os.path.isdir(path):
            os.rmdir(path)
    return True


@contextlib.contextmanager
def limited_to(pid, share):
    """The process has so much of a processor at most."""
    top = cpu_groups()[0]
    path = os.path.join(top, f"muster-test-{pid}")
    make_limit(path, share)

    def move(to):
        file = os.path.join(to, "cgroup.procs")
        with contextlib.suppress(ProcessLookupError), open(file, "w", encoding="ascii") as f:
            f.write(str(pid))
    try:
        move(path)
        yield
    finally:
        move(top)  # where the test runs may be another group; the process ends soon
        os.rmdir(path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    slow = SlowRank(str(tmp_path_factory.mktemp("slow")))
    with Cluster(str(tmp_path_factory.mktemp("cluster")), slots=4, env=slow.env,
                 server_args=["--round", "1", "--slow-ratio", "0"]) as c:  # no run leaves a device
        c.slow = slow
        c.corpus = specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))
        yield c


@pytest.fixture(autouse=True)
def tidy(cluster):
    """A test that fails leaves no run behind, for which the next ones would wait."""
    yield
    cluster.slow.set(-1, 0)
    for job in cluster.list_jobs():
        cluster.request("POST", f"/v1/jobs/{job['id']}/cancel")


def spec_of(cluster, **extra):
    spec = specs.train(cluster.corpus, steps=100000, every_steps=0, **extra)
    spec["train"]["model"] = dict(MODEL)
    return spec


def shape(hosts, host, rate):
    """What the host sends goes so fast from now on."""
    subprocess.run(["tc", "-n", hosts.ns(host), "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate,
                    "burst", "64kb", "latency", "50ms"], check=True)


def step_of(cluster, job):
    return (cluster.job(job)["progress"] or {}).get("step") or 0


def verdicts(cluster, job, code="slow"):
    return [e for e in cluster.events(job) if e["cause"]["code"] == code and e["data"].get("class") != "stage"]


def begin(cluster, **extra):
    """A run that is held at step BEFORE. One whose host was too busy until then, and was called so, is begun again."""
    for _ in range(10):
        cluster.hold.at(BEFORE)
        job = cluster.submit(spec_of(cluster, **extra))["id"]
        wait_for("the hold", lambda j=job: step_of(cluster, j) >= BEFORE - 1)
        told = verdicts(cluster, job)
        assert all(e["data"]["class"] == "host" for e in told), told
        if not told:
            return job
        cancel(cluster, job)
    raise AssertionError("the host was busy ten times")


def told_after(verdict, began):
    """Steps from the fault to the end of the window that told of it, and as sums of steps: short ones are told so."""
    data = verdict["data"]
    steps, span = data["end_step"] - BEFORE, max(1, (data["end_step"] - data["first_step"]) / 10)
    print(f"{data['class']} after {steps} steps, {steps / span:.0f} sums: {verdict['cause']['text']}")
    assert steps / span <= WITHIN or time.monotonic() - began <= HELD_S, verdict


def end(cluster, job):
    cluster.slow.set(-1, 0)
    cancel(cluster, job)


def cancel(cluster, job):
    cluster.api("POST", f"/v1/jobs/{job}/cancel")
    cluster.wait(job, "cancelled")


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda of: f"tp{of['tp']}pp{of['pp']}of{of['devices']}")
def test_a_rank_that_computes_more_slowly_is_named_and_is_told_to_be_well_again(cluster, layout):
    draw = random.Random(SEED)
    print(f"MUSTER_SEED={SEED}")
    for _ in range(TIMES):
        victim = draw.randrange(layout["devices"])
        job = begin(cluster, **layout)
        cluster.slow.set(victim, 50)
        began = time.monotonic()
        cluster.hold.release()
        verdict = wait_for("a verdict", lambda j=job: verdicts(cluster, j))[0]
        told_after(verdict, began)
        assert (verdict["data"]["class"], verdict["data"]["rank"]) == ("compute", victim), verdict
        assert verdict["data"]["factor"] > 1.2, verdict
        text = verdict["cause"]["text"]
        assert text.startswith(f"rank {victim} on n1 (device {verdict['data']['slot']}): computes ")
        tested = wait_for("a test of the device", lambda j=job: verdicts(cluster, j, "slow-tested"))[0]
        assert tested["data"]["confirmed"] and tested["data"]["rank"] == victim, tested
        assert tested["data"]["factor"] > 1.2 and tested["data"]["peer"] != victim, tested
        text = tested["cause"]["text"]
        assert "Confirmed by a test of the device: a product takes it " in text
        assert text in cluster.muster("show", job).stdout and text in cluster.muster("explain", job).stdout
        cluster.slow.set(-1, 0)
        wait_for("it to be well", lambda j=job: verdicts(cluster, j, "slow-over"))
        assert "slow" not in cluster.job(job)
        assert cluster.job(job)["generation"] == 1
        end(cluster, job)


def test_a_rank_whose_host_withholds_the_processor_is_told_from_one_that_computes_slowly(cluster):
    for _ in range(TIMES):
        job = begin(cluster, devices=2)
        with stopped_by_turns(cluster.rank_pids(job)[1], 0.03, 0.02):
            began = time.monotonic()
            cluster.hold.release()
            verdict = wait_for("a verdict", lambda j=job: verdicts(cluster, j))[0]
        assert (verdict["data"]["class"], verdict["data"]["rank"]) == ("host", 1), verdict
        told_after(verdict, began)
        assert verdict["data"]["withheld"] > 0.2 and "had no processor" in verdict["cause"]["text"]
        end(cluster, job)


@pytest.mark.skipif(not can_limit(), reason="control groups with a limit of processor time cannot be made here")
def test_a_rank_whose_control_group_is_at_its_limit_is_told_so(cluster):
    job = begin(cluster, devices=2)
    with limited_to(cluster.rank_pids(job)[1], 0.05):  # less than a busy host gives
        began = time.monotonic()
        cluster.hold.release()
        verdict = wait_for("a verdict", lambda: verdicts(cluster, job))[0]
    assert (verdict["data"]["class"], verdict["data"]["rank"]) == ("host", 1), verdict
    told_after(verdict, began)
    assert verdict["data"]["throttled"] > 0.1 and "its control group was at its limit in" in verdict["cause"]["text"]
    end(cluster, job)


def test_a_run_that_evaluates_and_saves_has_no_slow_rank(cluster):
    steps = 1000 if LONG else 120
    cluster.hold.release()
    spec = spec_of(cluster, devices=4)
    spec["train"]["eval"]["every_steps"] = 15
    spec["checkpoint"]["every_steps"] = 25
    job = cluster.submit(spec)["id"]
    wait_for("many steps", lambda: step_of(cluster, job) > steps)
    told = verdicts(cluster, job)
    assert all(e["data"]["class"] == "host" for e in told), told  # that other tests keep it busy may be true
    end(cluster, job)


@pytest.mark.skipif(not can_make_hosts(), reason=NEEDS)
def test_a_link_that_gives_less_than_it_did_is_told_and_no_rank_is_blamed(tmp_path):
    with Hosts(HOSTS) as hosts, hosts.inside("head"), HostCluster(str(tmp_path), hosts) as cluster:
        cluster.corpus = specs.write_corpus(str(tmp_path / "corpus.txt"))
        for host in "node1", "node2":
            cluster.start_agent(host, "cpu:1")
            shape(hosts, host, "400mbit")
        cluster.wait_nodes(["node1", "node2"])
        job = begin(cluster, devices=2)
        for host in "node1", "node2":
            shape(hosts, host, "120mbit")
        began = time.monotonic()
        cluster.hold.release()
        verdict = wait_for("a verdict", lambda: verdicts(cluster, job))[0]
        told_after(verdict, began)
        assert (verdict["data"]["class"], verdict["data"]["group"]) == ("link", "dp"), verdict
        assert verdict["data"]["factor"] > 1.5 and verdict["data"]["kib_s"] < verdict["data"]["kib_s_usual"], verdict
        cancel(cluster, job)
