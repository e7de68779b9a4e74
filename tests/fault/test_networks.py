"""What becomes of a job whose nodes' network fails, for real: hosts of their own (network namespaces) whose packets the
kernel drops, refuses or holds up.

All of it runs with MUSTER_TEST_LONG=1 alone. Prints what was told, and after how many seconds.
"""
import contextlib
import os
import subprocess
import time

import pytest

from tests import specs
from tests.cluster import wait_for
from tests.fault.test_slow import MODEL
from tests.hosts import NEEDS, Hosts, can_make_hosts
from tests.integration.test_many_hosts import HostCluster
from tests.results import lines

LONG = bool(os.environ.get("MUSTER_TEST_LONG"))
HEAD = "10.78.0.1"
HOSTS = {"head": HEAD, "node1": "10.78.0.2", "node2": "10.78.0.3", "node3": "10.78.0.4", "node4": "10.78.0.5"}
NODES = list(HOSTS)[1:]
BEFORE = 65  # steps by which the pace of a run is known, and not where it saves, which may take a minute
LOST_S = 8   # after which a silent node is lost

pytestmark = [pytest.mark.skipif(not can_make_hosts(), reason=NEEDS),
              pytest.mark.skipif(not LONG, reason="minutes of real networks: MUSTER_TEST_LONG=1")]


@pytest.fixture(name="cluster", scope="module")
def five_hosts(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("networks"))
    with Hosts(HOSTS, slowed=["node1"]) as hosts, hosts.inside("head"):
        with HostCluster(folder, hosts, server_args=["--unknown-after", "4", "--lost-after", str(LOST_S),
                                                     "--slow-ratio", "0", "--round", "1"]) as c:
            for node in NODES:
                c.start_agent(node, "cpu:1")
            c.wait_nodes(NODES)
            c.corpus = specs.write_corpus(f"{folder}/corpus.txt")
            yield c
        assert not c.leftovers()


@pytest.fixture(autouse=True)
def tidy(cluster):
    """No rule and no job of a test is left for the next, and no node is known for its faults."""
    for node in NODES:
        cluster.api("POST", f"/v1/nodes/{node}/undrain")
    cluster.wait_nodes(NODES)
    wait_for("devices that all are free", lambda: all(n["slots"][0]["state"] == "free" for n in cluster.nodes()))
    yield
    for node in NODES:
        heal(cluster, node)
    cluster.hold.release()
    for job in cluster.list_jobs():
        cluster.request("POST", f"/v1/jobs/{job['id']}/cancel")


def iptables(cluster, node, *rule):
    subprocess.run(["ip", "netns", "exec", cluster.hosts.ns(node), "iptables", "-w", *rule], check=True)


def heal(cluster, node):
    iptables(cluster, node, "-F")
    subprocess.run(["ip", "-n", cluster.hosts.ns("head"), "link", "set", f"to-{node}", "up"], check=True)
    cluster.hosts.slow(0, 0)


def nodes_of(cluster, job):
    """Of each rank of its newest attempt."""
    return [[p["node"] for p in e["data"]["assignment"]] for e in cluster.events(job)
            if e["type"] == "state" and "assignment" in (e["data"] or {})][-1]


def step_of(cluster, job):
    told = cluster.job(job)
    return (told["progress"] or {}).get("step") or 0


def verdicts(cluster, job, code="hang"):
    return [e for e in cluster.events(job) if e["cause"]["code"] == code and e["data"].get("class") != "stage"]


def begin(cluster, devices=2, least=None, model=None):
    """A run that is held at a step by which its pace is known, with its nodes."""
    cluster.hold.at(BEFORE)
    spec = specs.train(cluster.corpus, steps=1000000, devices=devices, every_steps=20)
    spec["devices"]["min"] = least or devices
    spec["train"]["model"].update(model or {})
    job = cluster.submit(spec)["id"]
    wait_for("the hold", lambda: step_of(cluster, job) >= BEFORE - 1)
    assert not verdicts(cluster, job)
    return job, nodes_of(cluster, job)


def goes_on(cluster, job, generation):
    """It does steps that it had not done, in that attempt."""
    reached = max(line["step"] for line in lines(cluster.job(job)["dir"]))
    wait_for("the job to go on", lambda: (k := cluster.job(job))["generation"] == generation and
             k["state"] == "running" and step_of(cluster, job) > reached + 10)


def all_in_contact(cluster):
    return all(n["state"] == "ready" for n in cluster.nodes())


def hangs_in_call(cluster, job, nodes, one_way=False):
    """Nothing moves between the two, who are named, while both nodes are there; the job goes on elsewhere. In one way
    the first gets nothing: the other may have got all that it waited for, and left the call."""
    cluster.hold.release()
    began = time.monotonic()
    verdict = wait_for("a verdict", lambda: verdicts(cluster, job))[0]
    text = verdict["cause"]["text"]
    print(f"{verdict['data']['class']} of {verdict['data']['roots']} after {time.monotonic() - began:.1f} s: {text}")
    roots = verdict["data"]["roots"]
    assert verdict["data"]["class"] == "in-call" and (roots == [0, 1] or (one_way and roots == [0])), verdict
    assert "nothing moves in" in text and all(f"{rank} on {nodes[rank]}" in text for rank in roots), text
    assert all_in_contact(cluster), cluster.nodes()
    goes_on(cluster, job, 2)
    assert set(nodes_of(cluster, job)) != set(nodes), "it goes on where the link is another one"
    assert len(verdicts(cluster, job)) == 1
    assert cluster.job(job)["restarts"]["user"] == 0


@pytest.mark.parametrize("ways", ["both-ways", "one-way"])
def test_workers_that_are_cut_off_from_each_other_are_named_with_their_link(cluster, ways):
    job, (a, b) = begin(cluster)
    iptables(cluster, a, "-A", "INPUT", "-s", HOSTS[b], "-j", "DROP")
    if ways == "both-ways":
        iptables(cluster, b, "-A", "INPUT", "-s", HOSTS[a], "-j", "DROP")
    hangs_in_call(cluster, job, [a, b], one_way=ways == "one-way")


def test_connections_that_are_refused_between_workers_end_the_attempt_at_once(cluster):
    job, (a, b) = begin(cluster)
    iptables(cluster, a, "-A", "INPUT", "-p", "tcp", "-s", HOSTS[b], "-j", "REJECT", "--reject-with", "tcp-reset")
    cluster.hold.release()
    began = time.monotonic()
    outcome = wait_for("a verdict", lambda: cluster.job(job)["outcome"])
    print(f"after {time.monotonic() - began:.1f} s: {outcome}")
    assert not verdicts(cluster, job), "who is refused need not wait for a deadline"
    assert f"rank 1 on {b} has lost it, and it runs: the connection between" in outcome["message"], outcome
    assert (outcome["rank"], outcome["class"], outcome["action"]) == (0, "system", "elsewhere"), outcome
    goes_on(cluster, job, 2)
    assert set(nodes_of(cluster, job)) != {a, b}, "it goes on where the link is another one"
    assert cluster.job(job)["restarts"]["user"] == 0


def test_large_packets_that_are_lost_are_a_link_that_moves_nothing_and_no_lost_node(cluster):
    job, (a, b) = begin(cluster)
    for here, there in (a, b), (b, a):
        iptables(cluster, here, "-A", "INPUT", "-s", HOSTS[there], "-m", "length", "--length", "1000:65535",
                 "-j", "DROP")
    hangs_in_call(cluster, job, [a, b])


def test_of_a_cluster_cut_in_halves_the_server_s_goes_on_and_the_other_stands(cluster):
    job, nodes = begin(cluster, devices=4, least=2)
    assert sorted(nodes) == NODES
    old = {node: cluster.rank_pids(job, node) for node in NODES}
    for node in "node3", "node4":
        for way in "-s", "-d":
            for other in HEAD, HOSTS["node1"], HOSTS["node2"]:
                iptables(cluster, node, "-A", "INPUT" if way == "-s" else "OUTPUT", way, other, "-j", "DROP")
    cluster.hold.release()
    began = time.monotonic()
    wait_for("the half to be lost", lambda: [n["state"] for n in cluster.nodes()[2:]] == ["lost", "lost"])
    goes_on(cluster, job, 2)
    print(f"goes on after {time.monotonic() - began:.1f} s: {cluster.job(job)['outcome']}")
    assert sorted(nodes_of(cluster, job)) == ["node1", "node2"]
    for node in "node3", "node4":
        heal(cluster, node)
    cluster.wait_nodes(NODES)
    wait_for("the ranks of the other half to end", lambda: not any(
        pid in cluster.alive() for node in ("node3", "node4") for pid in old[node]))
    told = lines(cluster.job(job)["dir"])
    generations = [line["generation"] for line in told]
    assert generations == sorted(generations), "no attempt does a step once a later one has"
    assert cluster.job(job)["restarts"]["user"] == 0


def test_a_link_that_flaps_costs_one_restart_at_most(cluster):
    job, (a, _) = begin(cluster)
    cluster.hold.release()
    for _ in range(5):
        for state, seconds in ("down", 1), ("up", 3):
            subprocess.run(["ip", "-n", cluster.hosts.ns("head"), "link", "set", f"to-{a}", state], check=True)
            until = time.monotonic() + seconds
            wait_for(f"a link that is {state}", lambda u=until: time.monotonic() > u)
    goes_on(cluster, job, cluster.job(job)["generation"])
    told = cluster.job(job)
    print(f"generation {told['generation']}, {[e['cause']['text'] for e in verdicts(cluster, job)]}")
    assert told["generation"] <= 2 and told["restarts"]["user"] == 0


def slow_but_no_hang(cluster, job):
    """Let it do many steps: what it is told to be slow for is its link, or its host, which is busy."""
    reached = step_of(cluster, job)
    wait_for("many steps", lambda: step_of(cluster, job) > reached + 150)
    assert not verdicts(cluster, job) and cluster.job(job)["generation"] == 1
    told = verdicts(cluster, job, "slow")
    print([(e["data"]["class"], e["data"]["end_step"] - BEFORE, e["cause"]["text"]) for e in told])
    assert all(e["data"]["class"] in ("link", "host") for e in told), told
    return [e for e in told if e["data"]["class"] == "link"]


def test_packets_that_are_lost_now_and_then_end_nothing(cluster):
    job, nodes = begin(cluster)
    for node in nodes:
        iptables(cluster, node, "-A", "INPUT", "-p", "tcp", "-m", "statistic", "--mode", "random", "--probability",
                 "0.01", "-j", "DROP")
    cluster.hold.release()
    slow_but_no_hang(cluster, job)


def test_a_link_with_a_delay_is_told_to_be_slow_and_no_rank_is(cluster):
    with contextlib.ExitStack() as stack:
        for node in "node3", "node4":  # the run has to be on the node whose link is slowed
            cluster.api("POST", f"/v1/nodes/{node}/drain")
            stack.callback(cluster.api, "POST", f"/v1/nodes/{node}/undrain")
        job, _ = begin(cluster, model=MODEL)
        took = sorted(line["step_ms"] for line in lines(cluster.job(job)["dir"]))
        delay_s = max(0.020, took[len(took) // 2] / 5e3)  # what calls take varies with a step on a busy machine
        cluster.hosts.slow(delay_s, 0.005)
        cluster.hold.release()
        assert slow_but_no_hang(cluster, job), f"{delay_s:.3f} s of delay make a slow link"
