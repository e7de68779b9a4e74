"""A cluster over hosts of their own: jobs come, nodes join, drain and are lost, quotas hold, the guaranteed go first;
nothing is lost, nothing is done twice, and device time is accounted to the projects."""
import os
import signal

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.hosts import NEEDS, Hosts, can_make_hosts
from tests.patience import PATIENCE_S
from tests.results import device_seconds, digest, lines, losses, undisturbed

HOSTS = {"head": "10.78.0.1", "node1": "10.78.0.2", "node2": "10.78.0.3", "node3": "10.78.0.4"}
STEPS = {"elastic": 900, "guest": 300} if os.environ.get("MUSTER_TEST_LONG") else {"elastic": 160, "guest": 60}

pytestmark = pytest.mark.skipif(not can_make_hosts(), reason=NEEDS)


@pytest.fixture(name="hosts")
def four_hosts():
    with Hosts(HOSTS) as h, h.inside("head"):
        yield h


class HostCluster(Cluster):
    """The server here, on the head; each agent on the host of its name."""

    def __init__(self, folder, hosts, **more):
        super().__init__(folder, slots=0, **more)
        self.hosts = hosts
        self.url = f"http://{HOSTS['head']}:{self.port}"
        self.server_args += ["--bind", HOSTS["head"], "--insecure", "--agents", "shared"]

    def spawn(self, name, argv):
        host = name.removeprefix("agent-")
        return super().spawn(name, argv if host == name else ["ip", "netns", "exec", self.hosts.ns(host), *argv])

    def lose(self, host):
        """The agent and its ranks are gone at once."""
        self.hosts.kill(host)
        assert self.agents[host].wait(PATIENCE_S) == -signal.SIGKILL


def training(corpus, kind, least, most, project):
    spec = specs.train(corpus, steps=STEPS[kind], virtual_workers=8, every_steps=20, name=kind, project=project)
    spec["devices"] = {"min": least, "max": most}
    spec["train"]["model"]["dropout"] = 0.1
    return spec


def on_devices(cluster, job, devices):
    """Let the job, which is held, do a few steps; until it has done them on so many devices."""
    told = cluster.job(job)
    cluster.hold.at(len(lines(told["dir"])) + 5, told["name"])

    def there():
        got = lines(told["dir"])
        return got and got[-1]["ranks"] == devices and got[-1]["generation"] == cluster.job(job)["generation"]
    wait_for(f"{job} on {devices} devices", there)


def test_nothing_is_lost_or_doubled_while_jobs_and_nodes_come_and_go(hosts, tmp_path):
    corpus = specs.write_corpus(str(tmp_path / "corpus.txt"))
    specs_of = {"elastic": training(corpus, "elastic", 1, 4, "lab"), "guest": training(corpus, "guest", 2, 2, "guests")}
    alone = {kind: undisturbed(str(tmp_path), {**spec, "devices": {"min": 1, "max": 8}})
             for kind, spec in specs_of.items()}
    ran, gate = tmp_path / "ran", tmp_path / "gate"
    with HostCluster(str(tmp_path), hosts, server_args=["--hold", "0", "--round", "1", "--unknown-after", "2",
                                                         "--lost-after", "4"]) as cluster:
        cluster.api("PUT", "/v1/projects/prod", {"quota": 2, "class": "guaranteed"})
        cluster.api("PUT", "/v1/projects/lab", {"quota": 4})
        cluster.api("PUT", "/v1/projects/guests", {"quota": 0, "borrow": 2, "class": "opportunistic"})
        for host in "node1", "node2":
            cluster.start_agent(host, "cpu:2")
        cluster.wait_nodes(["node1", "node2"])
        for kind in STEPS:
            cluster.hold.at(0, kind)
        jobs = {"elastic": cluster.submit(specs_of["elastic"])["id"]}
        on_devices(cluster, jobs["elastic"], 4)

        cluster.start_agent("node3", "cpu:2")  # a node joins, and a job comes that may have what others leave
        jobs["guest"] = cluster.submit(specs_of["guest"])["id"]
        on_devices(cluster, jobs["guest"], 2)

        # Who has a guarantee takes devices from those without, as many as its quota: the second waits for the first.
        first = cluster.submit(specs.command(f"until [ -e {gate} ]; do sleep 0.05; done; echo first-$RANK >> {ran}",
                                             devices=2, project="prod"))["id"]
        second = cluster.submit(specs.command(f"echo second >> {ran}", devices=1, project="prod"))["id"]
        cluster.wait(first, "running")
        wait_for("the quota to hold", lambda: cluster.job(second)["reason"]["code"] == "tenant-limit")
        assert cluster.api("GET", "/v1/projects/prod")["used"]["devices"] == 2
        gate.touch()
        for job in first, second:
            cluster.wait(job, "succeeded")

        # A node is drained and comes back; another is gone without a word and comes back.
        cluster.api("POST", "/v1/nodes/node1/drain")
        wait_for("node1 to be left", lambda: cluster.nodes()[0]["state"] == "drained")
        cluster.api("POST", "/v1/nodes/node1/undrain")
        cluster.lose("node3")
        wait_for("node3 to be lost", lambda: cluster.nodes()[2]["state"] == "lost")
        cluster.start_agent("node3")
        cluster.wait_nodes(list(HOSTS)[1:])

        for kind, job in jobs.items():
            cluster.hold.release(kind)
            ended = cluster.wait(job, "succeeded")
            assert [line["step"] for line in lines(ended["dir"])] == list(range(STEPS[kind])), "each step once"
            assert (digest(f"{ended['dir']}/checkpoints"), losses(ended["dir"])) == alone[kind]
            assert ended["restarts"]["user"] == ended["restarts"]["system"] == 0
        assert cluster.job(jobs["elastic"])["generation"] > 1
        assert sorted(ran.read_text().split()) == ["first-0", "first-1", "second"]
        for project, of in {"lab": [jobs["elastic"]], "guests": [jobs["guest"]], "prod": [first, second]}.items():
            used = cluster.api("GET", f"/v1/projects/{project}")["used"]
            assert used["devices"] == 0
            assert used["device_seconds"] == pytest.approx(sum(device_seconds(cluster, job) for job in of), abs=1e-5)
    assert not cluster.leftovers()
