"""An agent that the tests play themselves, call by call, beside a real musterd with its real Redis."""
import requests

from tests import specs
from tests.cluster import wait_for
from tests.patience import PATIENCE_S


class FakeAgent:
    """The agents' protocol as plain calls. slots: classes, one a slot."""

    def __init__(self, cluster, node="n1", slots=("cpu",) * 4, boot="b1", token=None):
        self.cluster, self.node, self.slots, self.boot, self.token = cluster, node, slots, boot, token
        if not token:
            with open(f"{cluster.state}/agent-token", encoding="ascii") as f:
                self.token = f.read().strip()
        self.incarnation = "i1"
        self.version = 0
        self.session = requests.Session()

    def call(self, method, path, body=None, **more):
        answer = self.session.request(method, f"{self.cluster.url}/v1/agents{path}", json=body, timeout=PATIENCE_S,
                                      headers={"Authorization": f"Bearer {self.token}"}, **more)
        return answer.status_code, answer.json() if answer.content else None

    def register(self, runs=(), **more):
        status, answer = self.call("POST", "/register", {
            "node": self.node, "boot_id": self.boot, "incarnation": self.incarnation, "address": "127.0.0.1",
            "version": "0.1.0", "runs": list(runs), **more,
            "slots": [{"slot": i, "kind": "cpu", "class": c, "threads": 1, "memory_mib": 100}
                      for i, c in enumerate(self.slots)]})
        assert status == 200, answer
        return answer

    def assignments(self, wait=5):
        status, answer = self.call("GET", f"/{self.node}/assignments?version={self.version}&wait={wait}&"
                                   f"incarnation={self.incarnation}")
        assert status == 200, answer
        self.version = answer["version"]
        return {a["job"]: a for a in answer["assignments"]}

    def until(self, job, order="run"):
        return wait_for(f"{job} with order {order}",
                        lambda: (a := self.assignments().get(job)) and a["order"] == order and a)

    def report(self, runs=(), **pieces):
        status, answer = self.call("POST", f"/{self.node}/report",
                                   {"incarnation": self.incarnation, "seq": 1, "runs": list(runs), **pieces})
        if status == 413:  # it has sent too much, so nothing is taken; a real agent sends less
            return {"acks": dict.fromkeys(("logs", "metrics", "events"), []), "stale": [], "forget": []}
        assert status == 200, answer
        return answer


def run_of(assignment, state, code=0, sig=0, tail=()):
    return {"job": assignment["job"], "generation": assignment["generation"], "ranks": [
        {"rank": r["rank"], "slot": r["slot"], "state": state, "pid": 1, "exit_code": code, "signal": sig,
         "log_tail": list(tail)} for r in assignment["ranks"]]}


def given_a_job(cluster):
    """An agent that is given a job of one rank: the agent, the job's id, its assignment."""
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x"))["id"]
    return agent, job, agent.until(job)


def make_token(cluster, user, role="user"):
    made = cluster.api("POST", "/v1/tokens", {"user": user, "role": role})
    assert made["user"] == user and made["role"] == role and made["token"].startswith("mst_")
    return made
