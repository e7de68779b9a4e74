"""A command that shows signs of life is watched: the rank that holds up the others is named with its section."""
import os
import signal

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for

# Two ranks that wait for each other after each step, as those of a training program do; HANG is what rank 1 does at
# step 20 of the first attempt.
LIBRARY = """
import ctypes
lib = ctypes.CDLL(os.environ['MUSTER_LIB'] + '/libmuster.so.1')
m = ctypes.c_void_p()
assert lib.muster_open(None, ctypes.byref(m)) == 0
section = lambda name, s: lib.muster_section_begin(m, name.encode(), ctypes.c_double(s))
done = lambda step: lib.muster_step(m, ctypes.c_int64(step))
"""
PACKAGE = """
import muster
section = lambda name, s: muster.init().section(name, s).__enter__()
done = muster.init().step
"""
PROGRAM = """
import os, time
run, rank = os.environ['MUSTER_RUN_DIR'], int(os.environ['RANK'])
SPEAKS
step = 0
while True:
    step += 1
    if step == 20 and rank == 1 and os.environ['MUSTER_ATTEMPT'] == '1':
        HANG
    with open(f'{run}/at-{rank}-{step}', 'w'): pass
    while not os.path.exists(f'{run}/at-{1 - rank}-{step}'): time.sleep(0.002)
    done(step)
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("cluster")), slots=2, server_args=["--round", "1"]) as c:
        yield c
    assert not c.leftovers()


def begin(cluster, hang, speaks=LIBRARY):
    spec = specs.command("", devices=2, retry={"max": 3})
    spec["command"]["argv"] = ["/usr/bin/python3", "-c", PROGRAM.replace("SPEAKS", speaks).replace("HANG", hang)]
    return cluster.submit(spec)["id"]


def verdicts(cluster, job):
    return [e for e in cluster.events(job) if e["cause"]["code"] == "hang"]


def goes_on(cluster, job):
    wait_for("the next attempt", lambda: (j := cluster.job(job))["generation"] > 1 and j["state"] == "running"
             and (j["progress"] or j))
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


@pytest.mark.parametrize("speaks", [LIBRARY, PACKAGE], ids=["library", "package"])
def test_a_rank_that_stays_in_its_section_is_named_with_it_and_its_age(cluster, speaks):
    """A thread of the library and of the package shows signs of life all the while: they are the program's."""
    job = begin(cluster, "section('data', 2); time.sleep(100000)", speaks)
    told = wait_for("the verdict", lambda: verdicts(cluster, job))[0]
    text = told["cause"]["text"]
    assert "rank 1 on n1 has been in section 'data' for " in text and "which was to take 2.0 s at most" in text, text
    assert float(text.split(" for ")[1].split(" s")[0]) < 60
    assert told["data"]["roots"] == [1] and told["data"]["class"] == "phase"
    assert text in cluster.muster("explain", job).stdout
    goes_on(cluster, job)


def test_a_rank_that_is_stopped_is_named_while_the_others_wait_for_it(cluster):
    job = begin(cluster, "pass")
    wait_for("the ranks", lambda: len(cluster.rank_pids(job)) == 2)
    wait_for("signs of life", lambda: all(os.path.exists(os.path.join(
        cluster.agent_state(), "runs", f"{job}-g1", f"rank-{r:05d}.beat")) for r in range(2)))
    os.kill(cluster.rank_pids(job)[1], signal.SIGSTOP)
    told = wait_for("the verdict", lambda: verdicts(cluster, job))[0]
    assert told["cause"]["text"].startswith("rank 1 on n1: its process has been stopped since step ")
    assert told["data"]["class"] == "stopped" and told["data"]["roots"] == [1]
    goes_on(cluster, job)


def test_an_evaluation_of_one_rank_that_said_how_long_it_takes_is_no_fault(cluster):
    """The others wait for it beyond what they themselves may take; nobody is named, and all go on."""
    job = begin(cluster, "section('eval', 600)\n        while not os.path.exists(run + '/go'): time.sleep(0.01)\n"
                         "        lib.muster_section_end(m)")
    folder = os.path.join(cluster.agent_state(), "runs", f"{job}-g1")

    def beat():
        with open(os.path.join(folder, "rank-00001.beat"), encoding="ascii") as f:
            return f.read()
    wait_for("the section", lambda: os.path.exists(os.path.join(folder, "rank-00001.beat")) and "eval" in beat())
    seen = [cluster.job(job)["progress"]]
    with open(os.path.join(folder, "go"), "w", encoding="ascii"):
        pass
    wait_for("the next steps", lambda: "eval" not in beat() and '{"step":1' not in beat())
    assert not verdicts(cluster, job) and cluster.job(job)["generation"] == 1, seen
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")
