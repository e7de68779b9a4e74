"""Jobs that go from node to node while they train, through the server and real agents, each with a memory of its own:
their state goes from memory to memory, with the same bits and no step lost."""
import os
import signal

import pytest

from tests import specs
from tests.cluster import wait_for
from tests.hold import START
from tests.integration.test_elastic import check_end, elastic_cluster, go_on, scale
from tests.results import lines, undisturbed

STEPS = 200


def the_spec(corpus, least, most, **extra):
    spec = specs.train(corpus, steps=STEPS, virtual_workers=8, every_steps=0, **extra)
    spec["devices"] = {"min": least, "max": most}
    spec["train"]["model"]["dropout"] = 0.1
    spec["train"]["batch"]["sequences"] = 8
    return spec


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


@pytest.fixture(scope="module")
def static(tmp_path_factory, corpus):
    return undisturbed(str(tmp_path_factory.mktemp("static")), the_spec(corpus, 1, 8))


def cluster_of(folder, nodes, **how):
    cluster = elastic_cluster(folder, slots=0, **how)
    with cluster:
        for name, slots in nodes.items():
            cluster.start_agent(name, f"cpu:{slots}")
        cluster.wait_nodes(list(nodes))
        yield cluster
    assert not cluster.leftovers()


@pytest.fixture
def three(tmp_path):
    """Nodes of one device."""
    yield from cluster_of(tmp_path, {"n1": 1, "n2": 1, "n3": 1})


def nodes_of(cluster, job):
    return sorted({place["node"] for place in cluster.job(job)["assignment"]})


def resumed(cluster, job):
    return [e["data"] for e in cluster.events(job) if (e["data"] or {}).get("type") == "resumed"]


def drain(cluster, node, **query):
    cluster.api("POST", f"/v1/nodes/{node}/drain" + "".join(f"?{k}={v}" for k, v in query.items()))


def state_of(cluster, node):
    return next(n["state"] for n in cluster.nodes() if n["id"] == node)


def moved(cluster, job, times, nodes):
    """Wait until the job trains on these nodes after so many changes; from where its state came."""
    wait_for(f"change {times}", lambda: len(resumed(cluster, job)) == times and nodes_of(cluster, job) == nodes)
    return (resumed(cluster, job) or [None])[-1]


def memory_of(cluster, job, node):
    root = cluster.memory(node)
    return [path for user in (os.listdir(root) if os.path.isdir(root) else [])
            for path in os.listdir(os.path.join(root, user)) if path == job]


def gone(cluster, job, nodes):
    for node in nodes:
        wait_for(f"the memory of {node} to be given back", lambda n=node: not memory_of(cluster, job, n))


def check_nothing_on_disk(cluster, job):
    """Between a run and the next one no checkpoint was written."""
    stopped = False
    for event in cluster.events(job):
        if event["type"] == "state":
            stopped = event["to"] == "rescaling" or (stopped and event["to"] == "starting")
        assert not (event["type"] == "checkpoint" and stopped), event


def test_a_job_moves_grows_and_shrinks_from_memory_to_memory(three, corpus, static):
    job = three.submit(the_spec(corpus, 1, 1))["id"]
    step = go_on(three, job, 5, 1)
    first = nodes_of(three, job)
    drain(three, first[0])
    wait_for("the job to leave", lambda: nodes_of(three, job) not in ([], first))
    second = nodes_of(three, job)
    came = moved(three, job, 1, second)
    assert came["source"] == "peers" and came["step"] >= step
    gone(three, job, first)
    wait_for("the node to be drained", lambda: state_of(three, first[0]) == "drained")
    scale(three, job, 2, 2)
    both = sorted({"n1", "n2", "n3"} - set(first))
    came = moved(three, job, 2, both)
    assert came["source"] == "peers"
    go_on(three, job, came["step"] + 3, 2)
    three.api("POST", f"/v1/nodes/{first[0]}/undrain")
    drain(three, both[0])
    third = sorted([first[0], both[1]])
    came = moved(three, job, 3, third)
    assert came["source"] == "peers"
    gone(three, job, both[:1])
    go_on(three, job, came["step"] + 3, 2)
    scale(three, job, 1, 1)
    wait_for("one device", lambda: len(resumed(three, job)) == 4)
    assert resumed(three, job)[3]["source"] in ("peers", "memory")
    ended = check_end(three, job, static, 5)
    assert sum(ended["restarts"].values()) == 0
    assert len(lines(ended["dir"])) == STEPS, "with notice no step is lost"
    check_nothing_on_disk(three, job)
    gone(three, job, ["n1", "n2", "n3"])


def test_a_node_that_leaves_by_a_deadline_is_left_through_the_disk(three, corpus, static):
    job = three.submit(the_spec(corpus, 1, 1))["id"]
    step = go_on(three, job, 5, 1)
    first = nodes_of(three, job)
    drain(three, first[0], deadline_s=30)
    wait_for("the job to go on elsewhere", lambda: resumed(three, job) and nodes_of(three, job) != first)
    came = resumed(three, job)[0]
    assert came["source"] == "disk" and came["step"] >= step
    ended = check_end(three, job, static, 2)
    assert len(lines(ended["dir"])) == STEPS


# --- source nodes that are hurt ------------------------------------------------------------------

def source_processes(cluster, job, node):
    """Live processes of the job on a source node: ranks of a run after all that train."""
    return cluster.rank_pids(job, node)


def held_up(cluster, corpus):
    """A job on its way to another node, of which a rank is held before it reads its state: (job, its node before, its
    source node's process, the rank's)."""
    spec = the_spec(corpus, 1, 1)
    job = cluster.submit(spec)["id"]
    go_on(cluster, job, 5, 1)
    where = nodes_of(cluster, job)[0]
    before = cluster.rank_pids(job, where)
    cluster.hold.at(START)
    drain(cluster, where)
    found = {}

    def started():
        ours = [pid for pid in source_processes(cluster, job, where) if pid not in before]
        theirs = [pid for node in cluster.agents if node != where for pid in cluster.rank_pids(job, node)]
        found.update(source=ours, rank=theirs)
        return ours and theirs
    wait_for("a source node and a rank", started)
    return job, where, found["source"][0], found["rank"][0]


def ends_well(cluster, job, static, whole=True):
    ended = check_end(cluster, job, static, 2)
    if whole:
        assert len(lines(ended["dir"])) == STEPS
    return (resumed(cluster, job) or [None])[-1]


def test_a_source_node_that_is_killed_costs_no_more_than_what_was_not_on_disk(three, corpus, static):
    job, where, source, _ = held_up(three, corpus)
    os.kill(source, signal.SIGKILL)
    three.hold.release()
    ends_well(three, job, static, whole=False)
    wait_for("the node to be drained", lambda: state_of(three, where) == "drained")
    assert not source_processes(three, job, where)


def test_an_agent_that_dies_leaves_its_source_node_at_work(three, corpus, static):
    """And the one that is started anew finds it."""
    job, where, _, _ = held_up(three, corpus)
    three.kill_agent(where)
    three.hold.release()
    folder = three.job(job)["dir"]
    wait_for("the next run to train", lambda: 2 in [m["generation"] for m in lines(folder)])
    three.start_agent(where)
    ends_well(three, job, static, whole=False)
    wait_for("the node to be drained", lambda: state_of(three, where) == "drained")
    assert not source_processes(three, job, where)


def test_a_server_that_is_killed_while_the_state_is_sent_goes_on(three, corpus, static):
    job, where, _, _ = held_up(three, corpus)
    three.kill_server()
    three.hold.release()
    three.start_server()
    came = ends_well(three, job, static)
    assert came["source"] == "peers"
    wait_for("the node to be drained", lambda: state_of(three, where) == "drained")
    gone(three, job, [where])


def test_a_job_cancelled_while_its_state_is_sent_leaves_nothing(three, corpus):
    job, where, source, _ = held_up(three, corpus)
    three.action(job, "cancel")
    three.hold.release()
    three.wait(job, "cancelled")
    wait_for("the source node to end", lambda: source not in three.alive())
    wait_for("the node to be drained", lambda: state_of(three, where) == "drained")


def test_a_rank_that_dies_before_it_has_its_state_costs_no_step(three, corpus, static):
    """What the source node has is still there for the run after."""
    job, where, source, rank = held_up(three, corpus)
    os.kill(rank, signal.SIGKILL)
    three.hold.release()
    wait_for("the first source node to end", lambda: source not in three.alive())
    came = ends_well(three, job, static)
    assert came["source"] == "peers"
    gone(three, job, [where])


def test_a_node_lost_while_it_gives_costs_no_more_than_what_was_not_on_disk(three, corpus, static):
    job, where, source, _ = held_up(three, corpus)
    three.kill_agent(where)
    os.kill(source, signal.SIGSTOP)  # neither answers nor is seen to be gone, as a machine without power
    three.hold.release()
    ends_well(three, job, static, whole=False)
    os.kill(source, signal.SIGKILL)
