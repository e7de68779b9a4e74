"""How fast nodes reach each other: measured by a run when the server asks, kept, and used for the next layout."""
import json

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.integration.fake_agent import FakeAgent, run_of

NODES = ["n1", "n2", "n3", "n4"]
FAST, SLOW = 1e10, 1e8


def links(cluster):
    """Bytes a second from each node to each, of those that were measured."""
    return {n["id"]: {link["to"]: link["bytes_per_s"] for link in n.get("links", [])} for n in cluster.nodes()}


def test_the_first_run_on_two_nodes_measures_their_link_and_the_server_keeps_it(tmp_path):
    corpus = specs.write_corpus(str(tmp_path / "corpus.txt"))
    with Cluster(str(tmp_path), slots=0) as cluster:
        for node in "n1", "n2":
            cluster.start_agent(node, "cpu:1")
        cluster.wait_nodes(["n1", "n2"])
        assert links(cluster) == {"n1": {}, "n2": {}}
        job = cluster.submit(specs.train(corpus, steps=5, pp=2))["id"]
        cluster.wait(job, "succeeded")
        first = cluster.nodes()
        seen = links(cluster)
        assert seen["n1"]["n2"] == seen["n2"]["n1"] > 1e6
        assert not [e for e in cluster.events(job) if (e["data"] or {}).get("type") == "links"], "is not of the job"
        again = cluster.submit(specs.train(corpus, steps=5, pp=2))["id"]
        cluster.wait(again, "succeeded")
        assert [n["links"] for n in cluster.nodes()] == [n["links"] for n in first], "within the hour it stands"
        cluster.stop_server()
        cluster.start_server()
        assert links(cluster) == seen
        assert cluster.muster("nodes", "-o", "json", check=True).stdout.count('"measured_at"') == 2
    assert not cluster.leftovers()


@pytest.fixture(name="cluster")
def one_server(tmp_path):
    with Cluster(str(tmp_path), slots=0) as c:
        yield c
    assert not c.leftovers()


def the_job():
    spec = specs.train(__file__, steps=1000, pp=4)
    spec["retry"] = {"max": 0}
    return spec


def assigned(agents, job):
    """What each node is told of the job, by node."""
    return {agent.node: agent.until(job) for agent in agents}


def tell(agent, assignment, rank, to):
    """A rank's event of what it measured."""
    text = json.dumps({"type": "links", "rank": rank, "to": to}) + "\n"
    return agent.report([run_of(assignment, "running")],
                        events=[{"job": assignment["job"], "generation": assignment["generation"], "offset": 0,
                                 "text": text}])


def end(cluster, agents, job, told):
    cluster.action(job, "cancel")
    for agent in agents:
        agent.report([run_of(told[agent.node], "exited", 75)])
    cluster.wait(job, "cancelled")


def test_the_next_job_is_laid_on_nodes_as_their_measured_links_suit_it(cluster):
    fast = [{"n1", "n3"}, {"n3", "n2"}, {"n2", "n4"}]  # of all pairs these alone; a pipeline should go along them
    agents = [FakeAgent(cluster, node, slots=("cpu",)) for node in NODES]
    for agent in agents:
        agent.register()
    first = cluster.submit(the_job())["id"]
    told = assigned(agents, first)
    assert all(a["measure_links"] is True for a in told.values())
    node_of = {r["rank"]: r["node"] for r in told["n1"]["ranks"]}
    for rank, node in node_of.items():
        agent = next(a for a in agents if a.node == node)
        tell(agent, told[node], rank, [{"rank": to, "bytes_per_s": FAST if {node, node_of[to]} in fast else SLOW}
                                       for to in range(rank + 1, 4)])
    assert links(cluster)["n3"] == {"n1": FAST, "n2": FAST, "n4": SLOW}
    end(cluster, agents, first, told)
    second = cluster.submit(the_job())["id"]
    told = assigned(agents, second)
    assert not any(a["measure_links"] for a in told.values()), "it is known"
    order = [r["node"] for r in sorted(told["n1"]["ranks"], key=lambda r: r["rank"])]
    assert order in (["n1", "n3", "n2", "n4"], ["n4", "n2", "n3", "n1"])
    end(cluster, agents, second, told)


@pytest.mark.parametrize("rank, to", [
    (9, [{"rank": 1, "bytes_per_s": 5}]), (-1, [{"rank": 1, "bytes_per_s": 5}]), (0, None), (0, 7), (0, [3, None]),
    (0, [{"rank": 0, "bytes_per_s": 5}, {"rank": 44, "bytes_per_s": 5}, {"rank": 1, "bytes_per_s": -5},
         {"rank": 1, "bytes_per_s": 1e300}, {"rank": 1}]),
])
def test_what_cannot_have_been_measured_is_passed_over(cluster, rank, to):
    agents = [FakeAgent(cluster, node, slots=("cpu",) * 2) for node in NODES[:2]]
    for agent in agents:
        agent.register()
    job = cluster.submit(the_job())["id"]
    told = assigned(agents, job)
    tell(agents[0], told["n1"], rank, to)
    assert links(cluster) == {"n1": {}, "n2": {}}
    end(cluster, agents, job, told)


@pytest.mark.parametrize("nic, says", [
    ({"family": "token-ring"}, "'token-ring'"), ({"gbit_s": 10}, "want infiniband"), ("roce", "want infiniband"),
    ({"family": "roce", "gbit_s": -1}, "'gbit_s'"), ({"family": "roce", "gbit_s": "fast"}, "'gbit_s'"),
])
def test_a_nic_that_is_not_known_is_refused_by_name(cluster, nic, says):
    agent = FakeAgent(cluster)
    body = {"node": "n1", "incarnation": "i1", "slots": [{"slot": 0, "kind": "cpu", "class": "cpu"}], "nic": nic}
    status, problem = agent.call("POST", "/register", body)
    assert status == 422 and says in problem["detail"]
    assert cluster.nodes() == [], "and nothing of it is kept"
    body["nic"] = {"family": "roce", "gbit_s": None}
    assert agent.call("POST", "/register", body)[0] == 200
    assert wait_for("the node", cluster.nodes)[0]["nic"] == {"family": "roce", "gbit_s": None}
