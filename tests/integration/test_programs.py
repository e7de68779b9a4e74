"""A program of a user that knows it runs under Muster, by files alone: docs/programs.md, version 1."""
import json
import os

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("programs")), slots=2) as c:
        yield c
    assert not c.leftovers()


def run_dir(cluster, job):
    return os.path.join(cluster.agent_state(), "runs", f"{job}-g{cluster.job(job)['generation']}")


def order(cluster, job):
    try:
        with open(os.path.join(run_dir(cluster, job), "order.json"), encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def python(text, **extra):
    """A job of this Python program, which finds its run's folder in D."""
    spec = specs.command("", **extra)
    spec["command"]["argv"] = ["/usr/bin/python3", "-c", "import json, os, signal, sys, time\n"
                               "D = os.environ['MUSTER_RUN_DIR']; R = int(os.environ['RANK'])\n"
                               "def put(name, what):\n"
                               "    with open(f'{D}/{name}.new', 'w') as f: json.dump(what, f)\n"
                               "    os.rename(f'{D}/{name}.new', f'{D}/{name}')\n"
                               "def order():\n"
                               "    try: return json.load(open(f'{D}/order.json'))\n"
                               "    except FileNotFoundError: return None\n" + text]
    return spec


LISTENER = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
while not (o := order()): time.sleep(0.01)
put(f'rank-{R:05d}.ack', {'seq': o['seq'], 'step': 5, 'did': 'stopping'})
"""


def test_a_command_is_told_of_its_job_in_its_environment(cluster):
    spec = specs.command("env | grep ^MUSTER_ | sort; cat $MUSTER_RUN_DIR/abi.json", name="words", project="default")
    job = cluster.submit(spec)
    cluster.wait(job["id"], "succeeded")
    said = cluster.log_text(job["id"])
    for line in ["MUSTER_ABI=1", "MUSTER_NODES=1", "MUSTER_NODE=n1", "MUSTER_PROJECT=default", "MUSTER_NAME=words",
                 "MUSTER_USER=admin", "MUSTER_ATTEMPT=1", "MUSTER_RESUME=0", "MUSTER_ELASTIC=0", "MUSTER_DEVICES_MIN=1",
                 "MUSTER_DEVICES_MAX=1", f"MUSTER_CHECKPOINT_DIR={job['dir']}/checkpoints"]:
        assert line + "\n" in said
    assert json.loads(said.splitlines()[-1])["abi"] == 1


def test_steps_of_version_1_are_shown_as_they_are_and_a_loss_that_is_none_is_none(cluster):
    job = cluster.submit(specs.command(
        "cd $MUSTER_RUN_DIR; echo '{\"v\":1,\"step\":6,\"loss\":null,\"my/metric\":4}' >> metrics.jsonl; "
        "while [ ! -e go ]; do sleep 0.02; done"))["id"]
    shown = wait_for("its progress", lambda: cluster.job(job)["progress"])
    assert (shown["step"], shown["steps"], shown["loss"], shown["tokens_per_s"]) == (6, 0, None, None)
    told = cluster.muster("show", job).stdout
    assert "progress      step 6\n" in told
    assert cluster.api("GET", f"/v1/jobs/{job}/metrics?names=my/metric")["metrics"]["my/metric"] == [4]
    with open(os.path.join(run_dir(cluster, job), "go"), "w", encoding="ascii"):
        pass
    cluster.wait(job, "succeeded")


def test_what_a_program_was_given_and_came_to_stays_with_its_job_and_is_compared(cluster):
    """The newest counts; what is no object, or longer than a line may be, is a line of the history and no more."""
    def ran(lr, *lines):
        script = f"""
def tell(o):
    with open(f'{{D}}/events.jsonl', 'a') as f: f.write(json.dumps(o) + chr(10))
tell({{'type': 'config', 'rank': 0,
      'config': {{'lr': {lr}, 'net': {{'deep': True}}, 'name': 'a' + chr(27) + '[31mb'}}}})
""" + "\n".join(f"tell({line})" for line in lines)
        job = cluster.submit(python(script, name="told"))["id"]
        cluster.wait(job, "succeeded")
        return job
    first = ran(0.1, {"type": "summary", "rank": 0, "accuracy": 0.25}, {"type": "summary", "rank": 0, "accuracy": 0.5},
                {"type": "summary", "rank": 1, "accuracy": 0.75},
                {"type": "config", "config": 7}, {"type": "config", "config": {"long": "x" * 16384}})
    second = ran(0.2)
    job = wait_for("what it came to", lambda: (j := cluster.job(first))["summary"] and j)
    assert job["config"] == {"lr": 0.1, "net": {"deep": True}, "name": "a\x1b[31mb"}
    assert job["summary"] == {"accuracy": 0.5}
    assert cluster.job(second)["summary"] is None
    assert all("config" not in j for j in cluster.api("GET", "/v1/jobs")["jobs"])
    shown = cluster.muster("show", first).stdout
    assert 'config        lr 0.1, net {"deep":true}, name a' in shown and "summary       accuracy 0.5\n" in shown
    assert "\x1b[31m" not in shown
    differs = json.loads(cluster.muster("compare", first, second, "-o", "json").stdout)["differs"]
    assert differs["config.lr"] == [0.1, 0.2] and not any(k.startswith("config.net") for k in differs)
    assert cluster.job(cluster.submit(specs.command("true"))["id"])["config"] is None


def test_a_program_stops_when_told_says_so_and_goes_on_where_it_was(cluster):
    job = cluster.submit(python(f"""
if os.environ['MUSTER_RESUME'] == '1':
    print('goes on from', open(os.environ['MUSTER_JOB_DIR'] + '/at').read(), 'attempt', os.environ['MUSTER_ATTEMPT'])
    sys.exit(0)
{LISTENER}
open(os.environ['MUSTER_JOB_DIR'] + '/at', 'w').write('5')
with open(f'{{D}}/events.jsonl', 'a') as f: f.write(json.dumps({{'type': 'checkpoint', 'rank': 0, 'step': 5}}) + '\\n')
put('rank-00000.result', {{'outcome': 'stopped', 'step': 5}})
sys.exit(76)
"""))["id"]
    wait_for("the program", lambda: "up" in cluster.log_text(job))
    assert order(cluster, job) is None
    cluster.action(job, "suspend")
    cluster.wait(job, "suspended")
    assert cluster.job(job)["outcome"] is None
    cluster.action(job, "resume")
    cluster.wait(job, "succeeded")
    assert "goes on from 5 attempt 2" in cluster.log_text(job)


def test_a_command_saves_when_asked_or_says_that_it_will_not(cluster):
    job = cluster.submit(python("""
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print('up', flush=True)
seq = 0
while seq < 2:
    o = order()
    if o and o['seq'] > seq:
        seq = o['seq']
        assert o['order'] == 'save'
        put(f'rank-{R:05d}.ack', {'seq': seq, 'step': 10 * seq, 'did': 'saved' if seq == 1 else 'refused'})
    time.sleep(0.01)
while True: time.sleep(1)
"""))["id"]

    def told(code):
        return wait_for(code, lambda: [e["cause"]["text"] for e in cluster.events(job) if e["cause"]["code"] == code])

    wait_for("the program", lambda: "up" in cluster.log_text(job))
    assert cluster.muster("checkpoint", "now", job, check=True).stdout == f"asked for a checkpoint of {job}\n"
    assert told("saved") == ["rank 0 has saved at step 10"]
    cluster.action(job, "checkpoint")
    assert told("save-refused") == ["rank 0 refused to save at step 20"]
    assert cluster.job(job)["state"] == "running"
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


def test_orders_are_numbered_and_name_their_reason_and_deadline(cluster):
    job = cluster.submit(python("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\n"
                                "while not os.path.exists(D + '/go'): time.sleep(0.02)\n"))["id"]
    wait_for("the program", lambda: "up" in cluster.log_text(job))
    cluster.action(job, "suspend")
    first = wait_for("the order", lambda: order(cluster, job))
    assert (first["v"], first["seq"], first["order"], first["devices"]) == (1, 1, "stop", {"now": 1})
    assert first["deadline"].endswith("Z") and first["reason"]
    cluster.action(job, "cancel")
    second = wait_for("the next order", lambda: (o := order(cluster, job)) and o["seq"] > 1 and o)
    assert second["order"] == "abort"
    with open(os.path.join(run_dir(cluster, job), "go"), "w", encoding="ascii"):
        pass
    cluster.wait(job, "cancelled")


def test_a_mate_of_a_failed_rank_is_told_to_give_up(cluster):
    job = cluster.submit(python(f"""
if R == 0:
    while not os.path.exists(D + '/ready'): time.sleep(0.01)
    sys.exit(9)
open(D + '/ready', 'w').close()
{LISTENER}
print(o['order'], o['reason'])
put('rank-00001.result', {{'outcome': 'failed', 'class': 'system', 'message': 'a peer is gone'}})
sys.exit(70)
""", devices=2))["id"]
    outcome = cluster.wait(job, "failed")["outcome"]
    assert (outcome["rank"], outcome["exit_code"], outcome["class"]) == (0, 9, "user")
    assert "abort another rank of the job has failed" in cluster.log_text(job, 1)


@pytest.mark.parametrize("status, outcome, said", [
    (65, "user", None), (70, "system", None), (74, "node", None), (76, "user", "it stopped itself"),
    (1, "node", "the disk is gone")])
def test_with_an_ack_or_a_result_statuses_are_of_the_table(cluster, status, outcome, said):
    text = "put('rank-00000.ack', {'seq': 1, 'step': 1, 'did': 'refused'})\n"
    if status == 1:
        text = f"put('rank-00000.result', {{'outcome': 'failed', 'class': 'node', 'message': '{said}'}})\n"
    job = cluster.submit(python(text + f"sys.exit({status})", retry={"max": 0}))["id"]
    got = cluster.wait(job, "failed")["outcome"]
    assert (got["class"], got["exit_code"]) == (outcome, status)
    assert not said or said in got["message"]


def test_a_launcher_that_ends_with_1_has_stopped_where_all_that_it_launched_have(cluster):
    """As torchrun does: workers of its own ranks end with 76, it with 1."""
    job = cluster.submit(python(f"""
{LISTENER}
for r in range(2): put(f'rank-{{r:05d}}.result', {{'outcome': 'stopped', 'step': 5}})
sys.exit(1)
"""))["id"]
    wait_for("the program", lambda: "up" in cluster.log_text(job))
    before = cluster.job(job)["restarts"]
    cluster.action(job, "suspend")
    assert cluster.wait(job, "suspended")["restarts"] == before
    cluster.action(job, "cancel")


def test_an_order_is_given_once_though_the_agent_is_killed_before_its_answer(cluster):
    job = cluster.submit(python("signal.signal(signal.SIGTERM,\n"
                                "              lambda *_: print('signal', order()['seq'], flush=True))\n"
                                "print('up', flush=True)\nwhile True: time.sleep(0.02)\n"))["id"]
    wait_for("the program", lambda: "up" in cluster.log_text(job))
    cluster.action(job, "suspend")
    first = wait_for("the order", lambda: order(cluster, job))
    cluster.kill_agent()
    cluster.start_agent("n1")
    wait_for("the order again", lambda: cluster.log_text(job).count("signal 1\n") == 2)
    cluster.action(job, "cancel")
    wait_for("the next order", lambda: order(cluster, job)["order"] == "abort")
    assert order(cluster, job)["seq"] == first["seq"] + 1
    cluster.wait(job, "cancelled")
