"""Everything that may happen to a job in every state that it may be in, with agents that the test plays: the job comes
to its end, its events follow from each other, its devices are free again and their time is its project's."""
import pytest

from tests import specs
from tests.cluster import ENDED, Cluster, wait_for
from tests.integration.fake_agent import FakeAgent
from tests.results import device_seconds


class Player(FakeAgent):
    """An agent that does as it is told once `obeys`; until then its ranks stay as they are. done: ranks that are to
    run end by themselves, and well."""

    def __init__(self, cluster, node):
        super().__init__(cluster, node, slots=("cpu",) * 2)
        self.ranks = {}  # (job, generation) -> its ranks here as reported
        self.obeys, self.done = True, False

    def runs(self):
        return [{"job": job, "generation": generation, "ranks": list(ranks.values())}
                for (job, generation), ranks in self.ranks.items()]

    def end(self, ranks, code, sig=0):
        for rank in ranks.values():
            if rank["state"] != "exited":
                rank.update(state="exited", exit_code=code, signal=sig)

    def follow(self):
        """Take the wanted set, do it, and report; register where the server does not know the node."""
        status, answer = self.call("GET", f"/{self.node}/assignments?version=0&wait=0&"
                                   f"incarnation={self.incarnation}")
        if status == 404:
            return self.register(self.runs())
        for a in answer["assignments"]:
            key = a["job"], a["generation"]
            if key not in self.ranks and a["order"] != "stop" and self.obeys:
                self.ranks[key] = {r["rank"]: {"rank": r["rank"], "slot": r["slot"], "state": "running", "pid": 1}
                                   for r in a["ranks"] if r["node"] == self.node}
            ranks = self.ranks.get(key)
            if ranks and self.obeys and a["order"] == "stop":
                self.end(ranks, 0, 15)
            elif ranks and self.obeys and a["order"] in ("drain", "hand-over", "move"):
                self.end(ranks, 76)
            elif ranks and self.done:
                self.end(ranks, 0)
        status, told = self.call("POST", f"/{self.node}/report",
                                 {"incarnation": self.incarnation, "seq": 1, "runs": self.runs()})
        for run in (told or {}).get("stale", ()) if status == 200 else ():
            self.end(self.ranks[run["job"], run["generation"]], 0, 15)
        for run in (told or {}).get("forget", ()) if status == 200 else ():
            self.ranks.pop((run["job"], run["generation"]), None)
        return None


class Play:
    """Two nodes of two devices, and a job that wants one to four."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.agents = [Player(cluster, node) for node in ("n1", "n2")]
        for agent in self.agents:
            agent.register()
        self.job = None

    def follow(self):
        for agent in self.agents:
            agent.follow()

    def until(self, what, check):
        def once():
            self.follow()
            return check()
        return wait_for(what, once)

    def state(self):
        return self.cluster.job(self.job)["state"]

    def here(self):
        """The agents on whose nodes the job is."""
        nodes = {place["node"] for place in self.cluster.job(self.job)["assignment"]}
        return [agent for agent in self.agents if agent.node in nodes]

    # --- states --------------------------------------------------------------------------------------

    def queued(self):
        for agent in self.agents:
            self.cluster.api("POST", f"/v1/nodes/{agent.node}/drain")
        self.submit()
        self.until("it to wait", lambda: self.state() == "queued")

    def starting(self):
        for agent in self.agents:
            agent.obeys = False
        self.submit()
        self.until("it to have devices", lambda: self.state() == "starting")

    def running(self):
        self.submit()
        self.until("it to run", lambda: self.state() == "running")
        for agent in self.agents:
            agent.obeys = False

    def rescaling(self):
        self.running()
        self.ask("PATCH", "", {"devices": {"min": 1, "max": 1}})
        self.until("it to be told to save", lambda: self.state() == "rescaling")

    def recovering_alive(self):
        self.running()
        ranks = list(self.here()[0].ranks.values())[0]
        next(iter(ranks.values())).update(state="exited", exit_code=0, signal=9)
        self.until("the failure", lambda: self.state() == "recovering")

    def backing_off(self):
        self.running()
        for failures in 1, 2:  # the second wait is long
            for agent in self.agents:
                agent.obeys = True
                for ranks in agent.ranks.values():
                    agent.end(ranks, 0, 9)
                agent.follow()
            if failures < 2:
                self.until("it to run again", lambda: self.state() == "running")
        self.until("the wait", lambda: self.state() == "recovering")

    def suspending(self):
        self.running()
        self.ask("POST", "/suspend")

    def suspended(self):
        self.running()
        for agent in self.agents:
            agent.obeys = True
        self.ask("POST", "/suspend")
        self.until("it to be suspended", lambda: self.state() == "suspended")

    def cancelling(self):
        self.running()
        self.ask("POST", "/cancel")

    def requeueing(self):
        self.running()
        for agent in self.agents:
            self.cluster.api("POST", f"/v1/nodes/{agent.node}/drain")
        self.until("it to be told to save", lambda: self.cluster.job(self.job)["reason"]["code"] in
                   ("draining", "rescaling"))

    # --- what happens --------------------------------------------------------------------------------

    def submit(self):
        spec = specs.train(__file__, steps=1000, virtual_workers=4, project="lab", retry={"max": 20})
        spec["devices"] = {"min": 3, "max": 4}
        self.job = self.cluster.submit(spec)["id"]

    def ask(self, method, what, body=None):
        status, answer = self.cluster.request(method, f"/v1/jobs/{self.job}{what}", body)
        assert status in (200, 202, 409), answer

    def nothing(self):
        pass

    def kill_the_server(self):
        self.cluster.kill_server()
        self.cluster.start_server()

    def cancel(self):
        self.ask("POST", "/cancel")

    def suspend(self):
        self.ask("POST", "/suspend")

    def resume(self):
        self.ask("POST", "/resume")

    def patch(self):
        for least, most in (1, 2), (4, 4), (2, 3), (1, 1):
            self.ask("PATCH", "", {"devices": {"min": least, "max": most}})

    def drain_with_a_deadline(self):
        for agent in self.agents:
            self.cluster.api("POST", f"/v1/nodes/{agent.node}/drain?deadline_s=1")

    def take_the_quota(self):
        self.cluster.api("PUT", "/v1/projects/lab", {"quota": 0})

    def start_a_machine_anew(self):
        agent = self.agents[0]
        agent.ranks, agent.boot = {}, agent.boot + "x"
        agent.register()

    def lose_an_agents_memory(self):
        agent = self.agents[1]
        agent.ranks = {}
        agent.register()

    # --- and the end ---------------------------------------------------------------------------------

    def finish(self):
        self.cluster.api("PUT", "/v1/projects/lab", {"quota": None})
        for agent in self.agents:
            agent.obeys = True
            self.cluster.api("POST", f"/v1/nodes/{agent.node}/undrain")

        def settled():
            self.ask("POST", "/resume")
            job = self.cluster.job(self.job)
            leaves = job["reason"]["code"] in ("suspending", "cancelling", "draining")
            return job["state"] in ENDED or (job["state"] == "running" and not leaves)
        self.until("it to go on", settled)
        for agent in self.agents:
            agent.done = True
        self.until("its end", lambda: self.state() in ENDED)
        self.until("all to be forgotten", lambda: not any(agent.ranks for agent in self.agents))
        return self.cluster.job(self.job)


STATES = ["queued", "starting", "running", "rescaling", "recovering_alive", "backing_off", "suspending", "suspended",
          "cancelling", "requeueing"]
HAPPENS = ["nothing", "kill_the_server", "cancel", "suspend", "resume", "patch", "drain_with_a_deadline",
           "take_the_quota", "start_a_machine_anew", "lose_an_agents_memory"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("states")), slots=0,
                 server_args=["--hold", "0", "--round", "1", "--unknown-after", "30", "--lost-after", "60"]) as c:
        yield c
    assert not c.leftovers()


def used(cluster):
    status, project = cluster.request("GET", "/v1/projects/lab")
    return project["used"]["device_seconds"] if status == 200 else 0


@pytest.mark.parametrize("happens", HAPPENS)
@pytest.mark.parametrize("state", STATES)
def test_a_job_comes_to_its_end_from(cluster, state, happens):
    before = used(cluster)
    play = Play(cluster)
    getattr(play, state)()
    getattr(play, happens)()
    ended = play.finish()
    assert ended["state"] == ("cancelled" if "cancel" in state + happens else "succeeded"), ended
    assert used(cluster) - before == pytest.approx(device_seconds(cluster, play.job), abs=1e-4)
    assert {slot["state"] for node in cluster.nodes() for slot in node["slots"]} == {"free"}
