"""Programs of users that go on with another number of devices: elastic commands, and torchrun (docs/programs.md)."""
import os
import subprocess

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for

PYTHON = "/usr/bin/python3"
TORCH = subprocess.run([PYTHON, "-c", "import torch.distributed.run"], capture_output=True, check=False).returncode == 0
needs_torch = pytest.mark.skipif(not TORCH, reason="Debian's PyTorch (python3-torch) is not here")
QUICK = ["--hold", "0", "--round", "1", "--unknown-after", "2", "--lost-after", "4"]

# Each rank waits for an order to end, obeys it as MODE says, and ends for good once it finds the file "end".
WAITER = """
import json, os, signal, sys, time
D, R, J = os.environ['MUSTER_RUN_DIR'], int(os.environ['RANK']), os.environ['MUSTER_JOB_DIR']
mode, told = sys.argv[1], {}
def say(*words):
    with open(f'{J}/said-{R}', 'a') as f: print(*words, file=f)
def put(name, what):
    with open(f'{D}/{name}.new', 'w') as f: json.dump(what, f)
    os.rename(f'{D}/{name}.new', f'{D}/{name}')
def look():
    global told
    try: told = json.load(open(f'{D}/order.json'))
    except FileNotFoundError: pass
    return told.get('order')
def term(*_):
    say('SIGTERM', told.get('order'))
    if mode == 'signal': sys.exit(0)
signal.signal(signal.SIGTERM, term)
E = os.environ
say('world', E['WORLD_SIZE'], 'attempt', E['MUSTER_ATTEMPT'], 'resume', E['MUSTER_RESUME'], 'elastic',
    E['MUSTER_ELASTIC'], E['MUSTER_DEVICES_MIN'], E['MUSTER_DEVICES_MAX'])
if mode == 'hang':
    with open(D + '/events.jsonl', 'a') as f: f.write('{"type":"checkpoint","rank":0,"step":5}\\n')
while not os.path.exists(J + '/end'):
    if look() == 'save' and R == 3:
        put(f'rank-{R:05d}.ack', {'seq': told['seq'], 'step': 7, 'did': 'saved'})
        if mode == 'beats':
            put(f'rank-{R:05d}.beat', {'step': 7, 'at': time.monotonic(), 'section': 'eval', 'for_s': 1})
        mode = 'files'
    if mode == 'hang' and R == 1 and told: time.sleep(600)
    if told.get('order') in ('stop', 'scale') and mode in ('files', 'hang'):
        say('told', told['order'], told['devices'])
        if R == 0:
            with open(D + '/events.jsonl', 'a') as f: f.write('{"type":"checkpoint","rank":0,"step":5}\\n')
        put(f'rank-{R:05d}.ack', {'seq': told['seq'], 'step': 5, 'did': 'stopping'})
        put(f'rank-{R:05d}.result', {'outcome': 'stopped', 'step': 5})
        sys.exit(76)
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("elastic")), slots=4, server_args=QUICK) as c:
        yield c
    assert not c.leftovers()


def waiter(cluster, mode, least, most, **command):
    spec = {"name": "waiter", "devices": {"min": least, "max": most},
            "command": {"argv": [PYTHON, "-c", WAITER, mode], "elastic": True, **command}}
    job = cluster.submit(spec)["id"]
    says(cluster, job, "world")
    return job


def said(cluster, job, rank=0):
    """What a rank of all attempts has said."""
    try:
        with open(os.path.join(cluster.job(job)["dir"], f"said-{rank}"), encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def says(cluster, job, words, rank=0):
    wait_for(f"{job} to say {words!r}", lambda: words in said(cluster, job, rank))


def end(cluster, job):
    with open(os.path.join(cluster.job(job)["dir"], "end"), "w", encoding="ascii"):
        pass
    return cluster.wait(job, "succeeded")


def scale(cluster, job, devices):
    assert cluster.muster("scale", job, str(devices), check=True)


def test_an_elastic_command_is_ordered_to_scale_and_goes_on_with_other_devices(cluster):
    job = waiter(cluster, "files", 1, 1, stop_s=600)
    says(cluster, job, "world 1 attempt 1 resume 0 elastic 1 1 1\n")
    scale(cluster, job, 3)
    says(cluster, job, "world 3 attempt 2 resume 1 elastic 1 3 3\n", rank=2)
    assert "told scale {'now': 1, 'next': 3}\n" in said(cluster, job)
    assert "SIGTERM" not in said(cluster, job), "it obeyed the file"
    scale(cluster, job, 2)
    says(cluster, job, "world 2 attempt 3", rank=1)
    assert "told scale {'now': 3, 'next': 2}\n" in said(cluster, job, 2)
    cluster.action(job, "suspend")
    cluster.wait(job, "suspended")
    assert "told stop {'now': 2}\n" in said(cluster, job, 1)
    cluster.action(job, "resume")
    says(cluster, job, "world 2 attempt 4")
    ended = end(cluster, job)
    assert ended["generation"] == 4 and sum(ended["restarts"].values()) == 0


def test_an_elastic_command_is_sent_sigterm_after_its_time_to_obey(cluster):
    """What ends by SIGTERM with 0 has saved, as ever."""
    job = waiter(cluster, "signal", 2, 2, stop_s=1)
    scale(cluster, job, 1)
    says(cluster, job, "world 1 attempt 2")
    assert "SIGTERM scale\n" in said(cluster, job, 1)
    assert sum(end(cluster, job)["restarts"].values()) == 0


def test_an_elastic_command_that_hangs_at_the_order_is_killed_and_goes_on(cluster):
    job = waiter(cluster, "never", 2, 2, stop_s=0, grace_s=1)
    scale(cluster, job, 1)
    says(cluster, job, "world 1 attempt 2")
    ended = end(cluster, job)
    assert ended["outcome"]["class"] == "done" and sum(ended["restarts"].values()) == 0


def test_a_command_that_is_not_elastic_keeps_its_devices(cluster):
    spec = specs.command("while [ ! -e $MUSTER_JOB_DIR/end ]; do sleep 0.02; done; echo $WORLD_SIZE",
                         devices=1)
    spec["devices"] = {"min": 1, "max": 4}
    first = cluster.submit({**spec, "devices": {"min": 3, "max": 3}})["id"]
    cluster.wait(first, "running")
    job = cluster.submit(spec)["id"]
    cluster.wait(job, "running")
    end(cluster, first)
    waits = waiter(cluster, "files", 3, 3)  # rounds have gone by, and it took what the other left
    assert end(cluster, job)["generation"] == 1
    assert cluster.log_text(job) == "1\n"
    end(cluster, waits)


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("torchrun")), slots=2, server_args=QUICK) as c:
        c.start_agent("n2", "cpu:2")
        c.wait_nodes(["n1", "n2"])
        yield c
    assert not c.leftovers()


@needs_torch
def test_torchrun_starts_the_ranks_of_each_node_and_what_they_say_counts(two_nodes):
    """It ends with 1 where its ranks stop; an acknowledgement and a beat of one of them are heard: it hangs."""
    cluster = two_nodes
    job = waiter(cluster, "beats", 4, 4, launcher="torchrun", stop_s=600)
    for rank in range(4):
        says(cluster, job, "world 4 attempt 1", rank)
    cluster.action(job, "checkpoint")
    saved = wait_for("rank 3's word", lambda: [e for e in cluster.events(job) if e["cause"]["code"] == "saved"])
    assert saved[0]["cause"]["text"] == "rank 3 has saved at step 7"
    hang = wait_for("its hang", lambda: [e for e in cluster.events(job) if "section 'eval'" in e["cause"]["text"]])
    assert "rank 3 on n2 has been in section 'eval'" in hang[0]["cause"]["text"]
    says(cluster, job, "world 4 attempt 2", 3)
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


@needs_torch
def test_where_all_ranks_of_torchrun_have_stopped_its_1_is_no_failure(two_nodes):
    cluster = two_nodes
    job = waiter(cluster, "files", 4, 4, launcher="torchrun", stop_s=600)
    scale(cluster, job, 3)
    says(cluster, job, "world 3 attempt 2 resume 1", 2)
    assert "told scale {'now': 4, 'next': 3}\n" in said(cluster, job, 3)
    assert "SIGTERM" not in said(cluster, job)
    ended = end(cluster, job)
    assert ended["generation"] == 2 and sum(ended["restarts"].values()) == 0


@needs_torch
@pytest.mark.parametrize("how, class_, words", [("kill -9 $$", "system", "rank 1: ended by signal 9"),
                                                ("exit 3", "user", "rank 1: ended with exit code 3")])
def test_of_a_launched_rank_that_fails_the_job_is_told_how(cluster, how, class_, words):
    job = cluster.submit({"name": "fails", "devices": {"min": 2, "max": 2}, "retry": {"max": 0}, "command": {
        "argv": ["/bin/sh", "-c", f"[ $RANK = 0 ] || {how}; sleep 600"], "launcher": "torchrun",
        "env": {"PATH": "/usr/bin:/bin"}}})["id"]
    outcome = cluster.wait(job, "failed")["outcome"]
    assert (outcome["class"], outcome["message"]) == (class_, f"rank 0 on n1: {words}")


@needs_torch
def test_a_launched_rank_that_hangs_at_a_stop_is_killed_and_the_job_goes_on(cluster):
    job = waiter(cluster, "hang", 2, 2, launcher="torchrun", stop_s=0, grace_s=1)
    scale(cluster, job, 1)
    says(cluster, job, "world 1 attempt 2 resume 1")
    ended = end(cluster, job)
    assert ended["outcome"]["class"] == "done" and sum(ended["restarts"].values()) == 0
