"""musterd over REST with its real Redis; agents are played by the tests, call by call."""
import base64
import concurrent.futures
import datetime
import http.client
import json
import os
import re
import signal
import subprocess
import threading

import pytest
import requests

from tests import specs
from tests.cluster import BIN, Cluster, wait_for


@pytest.fixture(name="cluster")
def one_server(tmp_path):
    with Cluster(str(tmp_path), slots=0, server_args=["--unknown-after", "2", "--lost-after", "4"]) as c:
        yield c
    assert not c.leftovers()


class FakeAgent:
    """The agents' protocol as plain calls. slots: classes, one a slot."""

    def __init__(self, cluster, node="n1", slots=("cpu",) * 4, boot="b1"):
        self.cluster, self.node, self.slots, self.boot = cluster, node, slots, boot
        with open(f"{cluster.state}/agent-token", encoding="ascii") as f:
            self.token = f.read().strip()
        self.incarnation = "i1"
        self.version = 0
        self.session = requests.Session()

    def call(self, method, path, body=None, **more):
        answer = self.session.request(method, f"{self.cluster.url}/v1/agents{path}", json=body, timeout=40,
                                      headers={"Authorization": f"Bearer {self.token}"}, **more)
        return answer.status_code, answer.json() if answer.content else None

    def register(self, runs=()):
        status, answer = self.call("POST", "/register", {
            "node": self.node, "boot_id": self.boot, "incarnation": self.incarnation, "address": "127.0.0.1",
            "version": "0.1.0", "runs": list(runs),
            "slots": [{"slot": i, "kind": "cpu", "class": c, "threads": 1, "memory_mib": 100}
                      for i, c in enumerate(self.slots)]})
        assert status == 200, answer
        return answer

    def assignments(self, wait=5):
        status, answer = self.call("GET", f"/{self.node}/assignments?version={self.version}&wait={wait}")
        assert status == 200, answer
        self.version = answer["version"]
        return {a["job"]: a for a in answer["assignments"]}

    def until(self, job, order="run"):
        return wait_for(f"{job} with order {order}",
                        lambda: (a := self.assignments().get(job)) and a["order"] == order and a, 30)

    def report(self, runs=(), **pieces):
        status, answer = self.call("POST", f"/{self.node}/report",
                                   {"incarnation": self.incarnation, "seq": 1, "runs": list(runs), **pieces})
        assert status == 200, answer
        return answer


def run_of(assignment, state, code=0, sig=0, tail=()):
    return {"job": assignment["job"], "generation": assignment["generation"], "ranks": [
        {"rank": r["rank"], "slot": r["slot"], "state": state, "pid": 1, "exit_code": code, "signal": sig,
         "log_tail": list(tail)} for r in assignment["ranks"]]}


def test_submit_is_answered_with_the_job_and_listed(cluster):
    job = cluster.submit(specs.command("true", name="first"))
    assert (job["id"], job["state"], job["name"], job["user"]) == ("j1", "queued", "first", "admin")
    assert [j["id"] for j in cluster.list_jobs()] == ["j1"]
    assert cluster.job("j1")["spec"]["command"]["argv"][0] == "/bin/sh"
    assert cluster.events("j1")[0]["data"] == cluster.job("j1")["spec"]
    assert cluster.api("GET", "/v1/jobs/j1/explain")["causes"][0]["code"] == "no-nodes"


@pytest.mark.parametrize("body, status, pointer", [
    ({"command": {"argv": ["x"]}, "pririty": 1}, 422, "/pririty"),
    ({"command": {"argv": []}}, 422, "/command/argv"),
    ({"command": {"argv": ["x"]}, "devices": {"min": "two"}}, 422, "/devices/min"),
    ({}, 422, ""),
])
def test_a_bad_spec_names_every_fault(cluster, body, status, pointer):
    got, problem = cluster.request("POST", "/v1/jobs", body)
    assert got == status and pointer in [e["pointer"] for e in problem["errors"]], problem
    assert cluster.list_jobs() == []


def test_what_no_program_could_be_given_is_refused_at_its_place(cluster):
    for command, pointer in (({"argv": ["/bin/true", "x" * 900_000]}, "/command/argv/1"),
                             ({"argv": 3 * ["x" * 131_071]}, "/command/argv/2"),
                             ({"argv": ["x"], "env": {"BIG": "x" * 131_068}}, "/command/env/BIG"),
                             ({"argv": ["x"], "workdir": "/" + "x" * 4095}, "/command/workdir")):
        status, problem = cluster.request("POST", "/v1/jobs", {"command": command})
        assert status == 422 and [e["pointer"] for e in problem["errors"]] == [pointer], problem
    most = {"argv": ["x", "y" * 131_071], "env": {"BIG": "x" * 131_067}, "workdir": "/" + "x" * 4094}
    assert cluster.submit({"command": most})["id"] == "j1"


def test_what_is_not_json_or_not_known_is_refused(cluster):
    head = {"Authorization": f"Bearer {cluster.token()}"}
    assert requests.post(f"{cluster.url}/v1/jobs", data=b"{nope", headers=head, timeout=10).status_code == 400
    assert requests.post(f"{cluster.url}/v1/jobs", data=b"[]", headers=head, timeout=10).status_code == 422
    for path in ("/v1/jobs/j9", "/v1/jobs/x", "/v1/jobs/j9/events", "/v1/jobs/j9/logs", "/v1/jobs/j9/explain"):
        assert cluster.request("GET", path)[0] == 404, path
    assert cluster.request("GET", "/v1/jobs?state=resting")[0] == 422
    assert cluster.request("POST", "/v1/nodes/n9/drain")[0] == 404
    assert cluster.request("PUT", "/v1/projects/p", {"quota": {"devices": 3}})[0] == 422


def test_tokens_decide(cluster):
    with open(f"{cluster.state}/agent-token", encoding="ascii") as f:
        agent = f.read().strip()
    assert os.stat(f"{cluster.state}/token").st_mode & 0o777 == 0o600
    assert cluster.request("GET", "/v1/jobs", token="")[0] == 401
    assert cluster.request("GET", "/v1/jobs", token="mst_wrong")[0] == 401
    assert cluster.request("GET", "/v1/jobs", token=agent)[0] == 403
    assert cluster.request("POST", "/v1/agents/register", {})[0] == 403


def make_token(cluster, user, role="user"):
    made = cluster.api("POST", "/v1/tokens", {"user": user, "role": role})
    assert made["user"] == user and made["role"] == role and made["token"].startswith("mst_")
    return made


def test_a_user_sees_and_touches_their_own_jobs_only(cluster):
    alice, bob = (make_token(cluster, name)["token"] for name in ("alice", "bob"))
    viewer = make_token(cluster, "grafana", "viewer")["token"]
    job = cluster.request("POST", "/v1/jobs", specs.command("true"), token=alice)[1]
    assert job["user"] == "alice"
    assert cluster.request("GET", f"/v1/jobs/{job['id']}", token=bob)[0] == 404
    assert cluster.request("POST", f"/v1/jobs/{job['id']}/cancel", token=bob)[0] == 404
    assert cluster.request("GET", "/v1/jobs", token=bob)[1]["jobs"] == []
    for who in (alice, viewer, None):
        assert [j["id"] for j in cluster.request("GET", "/v1/jobs", token=who)[1]["jobs"]] == [job["id"]]
    assert cluster.request("POST", f"/v1/jobs/{job['id']}/cancel", token=viewer)[0] == 403
    assert cluster.request("POST", "/v1/jobs", specs.command("true"), token=viewer)[0] == 403
    for method, path in (("GET", "/v1/tokens"), ("POST", "/v1/tokens"), ("DELETE", "/v1/tokens/0"),
                         ("PUT", "/v1/projects/p")):
        assert cluster.request(method, path, {}, token=alice)[0] == 403
    assert cluster.request("POST", f"/v1/jobs/{job['id']}/cancel", token=alice)[0] == 202


def test_a_token_outlives_the_server_but_not_its_revocation(cluster):
    made = make_token(cluster, "alice")
    cluster.kill_server()
    cluster.start_server()
    assert cluster.request("GET", "/v1/jobs", token=made["token"])[0] == 200
    listed = {t["id"]: t for t in cluster.api("GET", "/v1/tokens")["tokens"]}
    assert listed[made["id"]] == {k: v for k, v in made.items() if k != "token"}
    assert sorted(t["user"] for t in listed.values() if t["file"]) == ["admin", "agent"]
    with requests.get(f"{cluster.url}/v1/events", stream=True, timeout=20, headers={
            "Authorization": f"Bearer {made['token']}", "Accept": "text/event-stream"}) as stream:
        assert cluster.api("DELETE", f"/v1/tokens/{made['id']}")["user"] == "alice"
        assert stream.content is not None  # it ends
    assert cluster.request("GET", "/v1/jobs", token=made["token"])[0] == 401
    cluster.kill_server()
    cluster.start_server()
    assert cluster.request("GET", "/v1/jobs", token=made["token"])[0] == 401


@pytest.mark.parametrize("body, status, words", [
    ({}, 422, "'user' is wanted"), ({"user": ""}, 422, "'user' is wanted"), ({"user": 'a"b'}, 422, "'user' is wanted"),
    ({"user": "a" * 64}, 422, "'user' is wanted"), ({"user": "a", "role": "root"}, 422, "viewer, user, admin or agent"),
    ({"user": "a", "role": 3}, 422, "viewer, user, admin or agent"),
    ({"user": "a", "days": 3}, 422, "no field 'days'")])
def test_a_token_that_cannot_be_is_refused(cluster, body, status, words):
    got, problem = cluster.request("POST", "/v1/tokens", body)
    assert (got, words in problem["detail"]) == (status, True), problem


def test_the_files_tokens_are_not_revoked_by_a_call(cluster):
    admin = [t for t in cluster.api("GET", "/v1/tokens")["tokens"] if t["user"] == "admin"][0]
    status, problem = cluster.request("DELETE", f"/v1/tokens/{admin['id']}")
    assert status == 409 and "state folder" in problem["detail"]
    assert cluster.request("DELETE", "/v1/tokens/0123456789ab")[0] == 404


def test_an_idempotency_key_makes_one_job(cluster):
    first = cluster.submit(specs.command("true"), key="k1")
    assert cluster.submit(specs.command("true"), key="k1")["id"] == first["id"]
    status, problem = cluster.request("POST", "/v1/jobs", specs.command("false"), headers={"Idempotency-Key": "k1"})
    assert status == 409 and "k1" in problem["detail"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:  # all at once, and across a restart
        ids = {j["id"] for j in pool.map(lambda _: cluster.submit(specs.command("true"), key="k2"), range(24))}
    cluster.kill_server()
    cluster.start_server()
    assert {cluster.submit(specs.command("true"), key="k2")["id"]} == ids
    assert len(cluster.list_jobs()) == 2


def test_patch_changes_what_may_change_at_the_version_seen(cluster):
    job = cluster.submit(specs.command("true"))["id"]
    etag = requests.get(f"{cluster.url}/v1/jobs/{job}", timeout=10,
                        headers={"Authorization": f"Bearer {cluster.token()}"}).headers["ETag"]
    got = cluster.api("PATCH", f"/v1/jobs/{job}", {"priority": 80, "devices": {"max": 3}}, headers={"If-Match": etag})
    assert (got["priority"], got["devices"]["max"]) == (80, 3)
    assert cluster.request("PATCH", f"/v1/jobs/{job}", {"priority": 1}, headers={"If-Match": etag})[0] == 412
    assert cluster.request("PATCH", f"/v1/jobs/{job}", {"name": "x"})[0] == 422
    assert cluster.request("PATCH", f"/v1/jobs/{job}", {"devices": {"min": 9}})[0] == 422
    assert cluster.request("PATCH", f"/v1/jobs/{job}", {"devices": 4})[0] == 422


def test_lists_page_through_active_and_ended_jobs(cluster):
    ids = [cluster.submit(specs.command("true", name=f"n{i}"))["id"] for i in range(25)]
    for job in ids[::2]:
        cluster.action(job, "cancel")
    seen, cursor = [], ""
    while cursor is not None:
        page = cluster.api("GET", f"/v1/jobs?limit=4{cursor and '&cursor=' + cursor}")
        assert len(page["jobs"]) <= 4
        seen += [j["id"] for j in page["jobs"]]
        cursor = page["next_cursor"]
    assert seen == ids[::-1]
    assert [j["id"] for j in cluster.list("/v1/jobs", "jobs", "&state=cancelled")] == ids[::2][::-1]
    assert cluster.api("GET", "/v1/cluster")["jobs"]["cancelled"] == 13


def test_nodes_and_events_come_in_pages_and_limits_are_checked(cluster):
    for name in ("b", "a", "c"):
        FakeAgent(cluster, name).register()
    assert [n["id"] for n in cluster.nodes()] == ["a", "b", "c"]
    first = cluster.api("GET", "/v1/nodes?limit=2")
    assert [n["id"] for n in first["nodes"]] == ["a", "b"] and first["next_cursor"] == "b"
    rest = cluster.api("GET", "/v1/nodes?limit=2&cursor=b")
    assert [n["id"] for n in rest["nodes"]] == ["c"] and rest["next_cursor"] is None
    for path in ("/v1/nodes", "/v1/jobs", "/v1/events", f"/v1/jobs/{cluster.submit(specs.command('x'))['id']}/events"):
        for limit in ("0", "-1", "x", "1001", "1x", ""):
            assert cluster.request("GET", f"{path}?limit={limit}")[0] == 422, (path, limit)


def test_a_job_goes_its_way_through_an_agent(cluster):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("echo hi", devices=2))["id"]
    a = agent.until(job)
    assert (a["world"], a["generation"], [r["slot"] for r in a["ranks"]]) == (2, 1, [0, 1])
    agent.report([run_of(a, "running")])
    assert cluster.job(job)["state"] == "running"
    piece = {"job": job, "generation": 1, "rank": 0, "offset": 0, "text": "hi\n"}
    line = {"job": job, "generation": 1, "offset": 0, "text": '{"type":"checkpoint","rank":0,"step":5,"path":"p"}\n'}
    for _ in range(2):  # what is sent twice is taken in once
        acks = agent.report([run_of(a, "running")], logs=[piece], events=[line])["acks"]
        assert acks["logs"][0]["offset"] == 3 and acks["events"][0]["offset"] == len(line["text"])
    assert cluster.log_text(job) == "hi\n"
    assert [c["step"] for c in cluster.api("GET", f"/v1/jobs/{job}/checkpoints")["checkpoints"]] == [5]
    assert agent.report([run_of(a, "exited")])["forget"] == []
    assert cluster.wait(job, "succeeded")["outcome"]["class"] == "done"
    assert agent.report([run_of(a, "exited")])["forget"] == [{"job": job, "generation": 1}]
    assert all(s["state"] == "free" for s in cluster.nodes()[0]["slots"])


def test_a_failed_rank_brings_the_job_back_as_a_new_generation(cluster):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x", devices=2))["id"]
    a = agent.until(job)
    half = run_of(a, "running")
    half["ranks"][1].update(state="exited", signal=9, log_tail=["last words"])
    agent.report([half])
    got = cluster.job(job)
    assert (got["state"], got["outcome"]["class"], got["outcome"]["rank"]) == ("recovering", "system", 1)
    assert got["outcome"]["log_tail"] == ["last words"]
    assert agent.until(job, "stop")["generation"] == 1  # the other rank first has to end
    agent.report([run_of(a, "exited", sig=15)])
    b = agent.until(job)
    assert b["generation"] == 2
    assert agent.report([run_of(a, "running")])["stale"] == [{"job": job, "generation": 1}]
    status, _ = agent.call("PUT", f"/n1/rendezvous/{job}/1/k", None, data=b"QQ==")
    assert status == 409
    agent.report([run_of(b, "exited")])
    cluster.wait(job, "succeeded")


def test_a_users_error_is_not_tried_again(cluster):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x"))["id"]
    agent.report([run_of(agent.until(job), "exited", code=3, tail=["no such file"])])
    got = cluster.wait(job, "failed")
    assert (got["outcome"]["class"], got["outcome"]["exit_code"], got["restarts"]["user"]) == ("user", 3, 0)


def test_suspend_resume_cancel_and_drain_of_a_running_job(cluster):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x"))["id"]
    a = agent.until(job)
    agent.report([run_of(a, "running")])
    cluster.action(job, "suspend")
    agent.until(job, "drain")
    agent.report([run_of(a, "exited", code=76)])
    cluster.wait(job, "suspended")
    cluster.action(job, "resume")
    a = agent.until(job)
    agent.report([run_of(a, "running")])
    assert cluster.api("POST", "/v1/nodes/n1/drain")["state"] == "draining"
    agent.until(job, "drain")
    agent.report([run_of(a, "exited", code=76)])
    cluster.wait(job, "queued")
    wait_for("the reason", lambda: cluster.job(job)["reason"]["code"] == "nodes-drained", 30)
    assert cluster.nodes()[0]["state"] == "drained"
    cluster.api("POST", "/v1/nodes/n1/undrain")
    a = agent.until(job)
    agent.report([run_of(a, "running")])
    cluster.action(job, "cancel")
    agent.until(job, "stop")
    agent.report([run_of(a, "exited", sig=15)])
    assert cluster.wait(job, "cancelled")["outcome"]["class"] == "cancelled"
    assert cluster.request("POST", f"/v1/jobs/{job}/cancel")[0] == 409


def test_a_reclaimed_node_is_left_by_its_deadline(cluster):
    agent, other = FakeAgent(cluster), FakeAgent(cluster, "n2", slots=("cpu",) * 2)
    agent.register()
    job = cluster.submit(specs.command("x", devices=2))["id"]
    a = agent.until(job)
    agent.report([run_of(a, "running")])
    other.register()
    assert cluster.request("POST", "/v1/nodes/n1/drain?deadline_s=0")[0] == 422
    cluster.api("POST", "/v1/nodes/n1/drain?deadline_s=3600")
    agent.until(job, "drain")
    cluster.api("POST", "/v1/nodes/n1/drain?deadline_s=1")  # sooner than was said
    agent.until(job, "stop")
    agent.report([run_of(a, "exited", sig=9)])
    assert {r["node"] for r in other.until(job)["ranks"]} == {"n2"}
    assert sum(cluster.job(job)["restarts"].values()) == 0, "a reclaim is nobody's fault"


def test_every_node_of_a_run_that_must_stop_now_hears_of_it_at_once(cluster):
    agents = [FakeAgent(cluster, node, slots=("cpu",)) for node in ("n1", "n2")]
    for agent in agents:
        agent.register()
    job = cluster.submit(specs.command("x", devices=2))["id"]
    for agent in agents:
        agent.report([run_of(agent.until(job), "running")])

    def is_stopped(agent):
        while agent.assignments(wait=30)[job]["order"] != "stop":  # answered when there is news
            pass
        return True

    cluster.api("POST", "/v1/nodes/n1/drain?deadline_s=1")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert all(told.result(15) for told in [pool.submit(is_stopped, agent) for agent in agents])


def test_a_drains_deadline_outlives_the_server(cluster):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x"))["id"]
    a = agent.until(job)
    agent.report([run_of(a, "running")])
    assert cluster.nodes()[0]["drain_by"] is None
    cluster.api("POST", "/v1/nodes/n1/drain?deadline_s=3")
    agent.until(job, "drain")

    def drain_by():
        return datetime.datetime.fromisoformat(cluster.nodes()[0]["drain_by"].replace("Z", "+00:00")).timestamp()
    said = drain_by()
    cluster.kill_server()
    cluster.start_server()
    assert abs(drain_by() - said) < 0.5
    agent.register([run_of(a, "running")])
    agent.until(job, "stop")


def test_a_node_is_removed_once_it_does_nothing(cluster):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x"))["id"]
    a = agent.until(job)
    agent.report([run_of(a, "running")])

    def refused():
        status, problem = cluster.request("DELETE", "/v1/nodes/n1")
        return (status, problem["detail"])
    assert refused() == (409, "node 'n1' takes work; drain it first, with `muster drain n1`")
    cluster.api("POST", "/v1/nodes/n1/drain")
    assert refused()[0] == 409 and f"job '{job}' is still on node 'n1'" in refused()[1]
    agent.until(job, "drain")
    agent.report([run_of(a, "exited", code=76)])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        agent.assignments(wait=0)
        poll = pool.submit(agent.call, "GET", f"/n1/assignments?version={agent.version}&wait=30")
        wait_for("the poll", lambda: "muster_long_polls 1" in cluster.request("GET", "/metrics", token="")[1], 5)
        assert cluster.api("DELETE", "/v1/nodes/n1")["state"] == "drained"
        assert poll.result(5)[0] == 404
    assert cluster.nodes() == [] and refused()[0] == 404
    status, problem = agent.call("POST", "/register", {"node": "n1", "incarnation": agent.incarnation, "slots": []})
    assert status == 410 and "start its agent again" in problem["detail"]
    cluster.kill_server()
    cluster.start_server()
    assert cluster.nodes() == []
    status, _ = agent.call("POST", "/register", {"node": "n1", "incarnation": agent.incarnation, "slots": []})
    assert status == 410, "removed, it stays removed when the server starts again"
    agent.incarnation = "i2"  # started again
    agent.register()
    assert cluster.nodes()[0]["state"] == "ready" and agent.until(job)["generation"] == 2


def test_a_node_that_is_lost_for_long_is_forgotten_unless_it_is_drained(tmp_path):
    with Cluster(str(tmp_path), slots=0, server_args=["--lost-after", "1", "--forget-after", "1"]) as cluster:
        for name in ("n1", "n2"):
            FakeAgent(cluster, name).register()
        cluster.api("POST", "/v1/nodes/n2/drain")
        wait_for("n2 alone", lambda: [(n["id"], n["state"]) for n in cluster.nodes()] == [("n2", "lost")], 10)
        told = [(e["cause"]["code"], e["cause"]["text"]) for e in cluster.events() if e["type"] == "node"]
        assert ("forgotten", "n1") in told and ("forgotten", "n2") not in told
        assert cluster.api("DELETE", "/v1/nodes/n2")["id"] == "n2"
        assert cluster.nodes() == []
    assert not cluster.leftovers()


def test_a_server_that_was_killed_adopts_the_runs(cluster):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x", devices=2))["id"]
    a = agent.until(job)
    agent.report([run_of(a, "running")])
    cluster.kill_server()
    cluster.start_server()
    assert agent.call("POST", "/n1/report", {"incarnation": "i1", "seq": 9, "runs": []})[0] == 404
    agent.register([run_of(a, "running")])
    assert agent.until(job)["generation"] == 1
    got = cluster.job(job)
    assert (got["state"], got["generation"], sum(got["restarts"].values())) == ("running", 1, 0)
    agent.report([run_of(a, "exited")])
    cluster.wait(job, "succeeded")


def test_contact_lost_is_no_failure_until_the_node_is_lost(cluster):
    first, second = FakeAgent(cluster, "n1"), FakeAgent(cluster, "n2")
    first.register()
    job = cluster.submit(specs.command("x", devices=4))["id"]
    a = first.until(job)
    first.report([run_of(a, "running")])
    second.register()

    def state():
        second.report()
        return {n["id"]: n["state"] for n in cluster.nodes()}["n1"]
    wait_for("n1 to be unknown", lambda: state() == "unknown", 10)
    assert cluster.job(job)["state"] == "running"
    wait_for("n1 to be lost", lambda: state() == "lost", 10)
    b = second.until(job)
    assert b["generation"] == 2 and cluster.job(job)["restarts"]["node"] == 1
    assert first.report([run_of(a, "running")])["stale"] == [{"job": job, "generation": 1}]  # it comes back
    node = {n["id"]: n for n in cluster.nodes()}["n1"]
    assert all(s["state"] == "quarantined" for s in node["slots"])  # its old ranks still sit there


def test_rendezvous_keys_reach_those_who_wait(cluster):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x"))["id"]
    agent.until(job)
    path = f"/n1/rendezvous/{job}/1"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        start = FakeAgent(cluster).call("GET", f"{path}?since=0&wait=0")[1]
        waiting = pool.submit(FakeAgent(cluster).call, "GET", f"{path}?since={start['next']}&wait=20")
        value = base64.b64encode(b"address").decode()
        assert agent.call("PUT", f"{path}/ucx-0", None, data=value)[0] == 200
        assert agent.call("PUT", f"{path}/ucx-0", None, data=value)[0] == 200
        status, answer = waiting.result(20)
    assert status == 200 and answer["keys"] == [{"key": "ucx-0", "value": value}]


def follow(cluster, path, last=None):
    head = {"Authorization": f"Bearer {cluster.token()}", "Accept": "text/event-stream"}
    if last:
        head["Last-Event-ID"] = last
    answer = requests.get(cluster.url + path, headers=head, stream=True, timeout=20)
    assert answer.status_code == 200
    event = {}
    for line in answer.iter_lines(decode_unicode=True):
        if line.startswith(":"):
            continue
        if not line:
            if "event" in event:
                yield event
            event = {}
        else:
            key, _, value = line.partition(":")
            event[key] = value.strip()


def test_followers_get_each_event_once_and_resume(cluster):
    job = cluster.submit(specs.command("x"))["id"]
    stream = follow(cluster, f"/v1/jobs/{job}/events")
    first = next(stream)
    assert first["event"] == "submitted" and json.loads(first["data"])["data"]["command"]
    for verb in ("suspend", "resume", "cancel"):
        cluster.action(job, verb)
    rest = list(stream)  # the end of the job ends the stream
    assert [json.loads(e["data"]).get("to") for e in rest] == ["suspended", "queued", "cancelled", None]
    again = [e for e in follow(cluster, f"/v1/jobs/{job}/events", last=rest[0]["id"]) if e["event"] == "state"]
    assert again == rest[1:3]


def test_impossible_requests_are_refused_at_submit(cluster):
    FakeAgent(cluster).register()
    status, problem = cluster.request("POST", "/v1/jobs", specs.command("x", devices=5))
    assert status == 422 and "5 devices" in problem["detail"] and "has 4" in problem["detail"]
    spec = specs.command("x")
    spec["devices"]["classes"] = ["h200"]
    assert cluster.request("POST", "/v1/jobs", spec)[0] == 422
    plan = cluster.api("POST", "/v1/jobs?dry_run=1", specs.command("x", devices=2))
    assert plan["plan"]["devices"] == 2 and cluster.list_jobs() == []


def submit_many(cluster, stop, acked):
    """Submit until told to stop; every acknowledged name goes to acked."""
    n = 0
    while not stop.is_set():
        name = f"t{threading.get_ident()}-{n}"
        status, job = cluster.request("POST", "/v1/jobs", specs.command("true", name=name), timeout=20)
        n += 1
        if status == 201:
            acked[name] = job["id"]


@pytest.mark.parametrize("victim", ["redis", "server"])
def test_nothing_acknowledged_is_lost_when_something_is_killed(cluster, victim):
    stop, acked = threading.Event(), {}
    threads = [threading.Thread(target=submit_many, args=(cluster, stop, acked)) for _ in range(4)]
    for t in threads:
        t.start()
    for round_ in range(3):
        before = len(acked)
        wait_for("some submits", lambda n=before: len(acked) > n + 20, 20)
        if victim == "redis":
            os.kill(cluster.redis_pid(), signal.SIGKILL)
        else:
            cluster.kill_server()
            cluster.start_server()
        assert round_ < 3
    wait_for("submits afterwards", lambda n=len(acked): len(acked) > n + 20, 30)
    stop.set()
    for t in threads:
        t.join()
    found = {}
    for job in cluster.list_jobs():
        assert job["name"] not in found, "doubled"
        found[job["name"]] = job["id"]
    assert {n: found.get(n) for n in acked} == acked
    for job in list(acked.values())[:5]:
        assert [e["type"] for e in cluster.events(job)] == ["submitted"]


def test_a_second_server_on_the_same_state_is_refused(cluster):
    got = subprocess.run([f"{BIN}/musterd", "--state", cluster.state, "--port", "0"], capture_output=True, text=True,
                         timeout=30, check=False, env=cluster.env)
    assert got.returncode == 1 and "another musterd uses" in got.stderr
    assert cluster.submit(specs.command("true"))["id"] == "j1"


def test_the_answers_about_itself(cluster):
    assert cluster.request("GET", "/healthz", token="")[0] == 200
    assert cluster.request("GET", "/readyz", token="")[0] == 200
    cluster.submit(specs.command("true"))
    text = cluster.request("GET", "/metrics", token="")[1]
    assert 'muster_jobs{state="queued"} 1' in text and "muster_store_up 1" in text
    with open(f"{cluster.state}/server.json", encoding="ascii") as f:
        assert json.load(f)["url"] == cluster.url


@pytest.mark.parametrize("args, says", [
    (["--port", "x"], "--port"),
    (["--redis", "http://x"], "unix://"),
    (["--lease", "1"], "from 2 to 600"),
    (["--bind", "0.0.0.0"], "--tls-cert"),
    (["--nonsense"], "--help"),
    (["extra"], "extra"),
])
def test_wrong_options_are_named(tmp_path, args, says):
    got = subprocess.run([f"{BIN}/musterd", "--state", str(tmp_path / "s"), "--port", "0", *args], capture_output=True,
                         text=True, timeout=60, check=False)
    assert got.returncode in (1, 2) and says in got.stderr


def test_logs_are_followed_as_they_come_and_the_stream_ends_with_the_job(cluster):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x"))["id"]
    a = agent.until(job)
    stream = follow(cluster, f"/v1/jobs/{job}/logs?follow=1&rank=0")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, stream)
        wait_for("the follower", lambda: "muster_followers 1" in cluster.request("GET", "/metrics", token="")[1], 30)
        agent.report([run_of(a, "running")],
                     logs=[{"job": job, "generation": 1, "rank": 0, "offset": 0, "text": "a\n"}])
        assert json.loads(first.result(10)["data"])["text"] == "a\n"
    agent.report([run_of(a, "exited")])
    assert [e["event"] for e in stream] == ["end"]
    assert [e["event"] for e in follow(cluster, f"/v1/jobs/{job}/logs?follow=1")] == ["end"]


def test_a_follower_that_left_is_let_go_though_nothing_happens(cluster):
    def followers(n):
        return f"muster_followers {n}\n" in cluster.request("GET", "/metrics", token="")[1]

    job = cluster.submit(specs.command("x"))["id"]
    stream = follow(cluster, f"/v1/jobs/{job}/events")
    assert next(stream)["event"] == "submitted"
    assert followers(1)
    stream.close()
    wait_for("no followers", lambda: followers(0), 20)


def test_an_outside_redis_is_led_by_one_server_at_a_time(tmp_path):
    redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", str(tmp_path / "r.sock"), "--dir",
                              str(tmp_path), "--appendonly", "yes", "--appendfsync", "always", "--save", ""],
                             stdout=subprocess.DEVNULL)
    try:
        wait_for("redis", (tmp_path / "r.sock").exists, 10)
        url = f"unix://{tmp_path}/r.sock"
        with Cluster(str(tmp_path / "a"), slots=0, server_args=["--redis", url, "--lease", "5"]) as first:
            job = first.submit(specs.command("true"))["id"]
            got = subprocess.run([f"{BIN}/musterd", "--state", str(tmp_path / "b"), "--port", "0", "--redis", url],
                                 capture_output=True, text=True, timeout=60, check=False, env=first.env)
            assert got.returncode == 1 and "another musterd leads" in got.stderr  # once the lease was seen renewed
            # One that is led over by force must notice at its next write and end.
            subprocess.run(["redis-cli", "-s", str(tmp_path / "r.sock"), "HINCRBY", "muster:meta", "epoch", "1"],
                           check=True, stdout=subprocess.DEVNULL)
            assert first.request("POST", "/v1/jobs", specs.command("true"))[0] != 201
            assert first.server.wait(20) == 1 and "another musterd leads" in first.tail("musterd")
            first.start_server(40)
            assert [j["id"] for j in first.list_jobs()] == [job]
    finally:
        redis.terminate()
        redis.wait(10)


def test_a_user_finds_the_end_of_a_job_among_all_events_later(cluster):
    alice, bob = (make_token(cluster, name)["token"] for name in ("alice", "bob"))
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.request("POST", "/v1/jobs", specs.command("true"), token=alice)[1]["id"]
    agent.report([run_of(agent.until(job), "exited")])
    told = cluster.request("GET", "/v1/events", token=alice)[1]["events"]
    assert [e["to"] for e in told if e["job"] == job][-1] == "succeeded"
    assert cluster.request("GET", "/v1/events", token=bob)[1]["events"] == []
    page = cluster.request("GET", "/v1/events?limit=1", token=bob)[1]  # one that holds nothing for bob leads on
    assert page["events"] == [] and page["next_cursor"]


def test_a_job_may_have_any_number_of_events(cluster):
    job = cluster.submit(specs.command("x"))["id"]

    def change(first):  # as fast as one can
        with requests.Session() as session:
            session.headers["Authorization"] = f"Bearer {cluster.token()}"
            return {session.patch(f"{cluster.url}/v1/jobs/{job}", json={"priority": (first + i) % 100}).status_code
                    for i in range(150)}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(change, range(8))) == {200}
    kept = cluster.events(job)
    ids = [int(e["id"]) for e in kept]
    assert len(kept) == 100 + 900 and ids == sorted(set(ids)) and kept[0]["type"] == "submitted"
    page = cluster.api("GET", f"/v1/jobs/{job}/events?limit=5&cursor={ids[97]}")
    assert [e["id"] for e in page["events"]] == [e["id"] for e in kept[98:103]] and page["next_cursor"] == str(ids[102])
    assert page["left_out"] == {"events": 1201 - 1000, "before": str(ids[100])}
    lines = cluster.muster("events", job, check=True).stdout.splitlines()
    assert lines[100] == "(201 events are not kept any more)" and len(lines) == 1001
    assert cluster.api("GET", f"/v1/jobs/{cluster.submit(specs.command('x'))['id']}/events")["left_out"] is None
    cluster.action(job, "suspend")  # no work is refused for it
    cluster.action(job, "cancel")
    told = list(follow(cluster, f"/v1/jobs/{job}/events"))
    assert told[0]["event"] == "left-out" and json.loads(told[0]["data"])["events"] == 203
    assert [e["event"] for e in told[-2:]] == ["state", "end"]
    cluster.stop_server()
    cluster.start_server()
    assert [e["id"] for e in cluster.events(job)] == [e["id"] for e in told if "id" in e]


def test_a_registration_past_a_limit_is_refused(cluster):
    agent = FakeAgent(cluster)
    whole = {"node": "n1", "incarnation": "i1", "slots": []}
    slot = {"slot": 0, "kind": "cpu", "class": "cpu"}
    for body in ({"node": "n" * 64}, {"incarnation": "i" * 64}, {"incarnation": ""}, {"slots": 257 * [slot]},
                 {"slots": [slot, slot]}, {"slots": [{**slot, "class": "c" * 64}]},
                 {"slots": [{**slot, "slot": 2**31}]}, {"slots": [{**slot, "memory_mib": -1}]}):
        status, problem = agent.call("POST", "/register", {**whole, **body})
        assert status == 422 and f"'{next(iter(body))}'" in problem["detail"], (body, problem)
    assert cluster.nodes() == []
    assert agent.call("POST", "/register", {**whole, "address": "\u00e9" * 40, "version": 20 * "\u20ac"})[0] == 200
    assert cluster.nodes()[0]["address"] == "\u00e9" * 31  # cut, between two characters


def test_reports_that_are_not_as_they_should_be_hurt_nobody(cluster):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x"))["id"]
    run = run_of(agent.until(job), "running")
    gone = {"job": "j99", "generation": 1, "ranks": []}
    assert agent.report([run, gone], events=[{"generation": 1}, {"job": 7, "generation": 1}, 3])["acks"]["events"] == []
    line = "x" * 300000  # longer than a piece: it is passed over, or what follows would never come
    acks = agent.report([run], events=[{"job": job, "generation": 1, "offset": 0, "text": line}])["acks"]["events"]
    assert acks == [{"job": job, "generation": 1, "offset": len(line)}]
    after = json.dumps({"type": "eval", "rank": 0, "loss": 1.5}) + "\n"
    agent.report([run], events=[{"job": job, "generation": 1, "offset": len(line), "text": "rest\n" + after}])
    assert cluster.job(job)["eval"]["loss"] == 1.5
    metrics = json.dumps({"step": 1, "loss": 2.5, "step_ms": 1e308}) + "\n"
    agent.report([run], metrics=[{"job": job, "generation": 1, "offset": 0, "text": metrics}])
    assert cluster.job(job)["progress"]["loss"] == 2.5


def unread_bytes(port):
    """What was sent to a port of this machine and is not read from there yet."""
    with open("/proc/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    ends = [(int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16), queues.split(":"))
            for _, local, remote, _, queues, *_ in rows]
    return sum(int(queues[1], 16) if local == port else int(queues[0], 16) if remote == port else 0
               for local, remote, queues in ends)


def test_what_is_much_for_one_write_comes_in_several(cluster):
    def writes():
        text = requests.get(f"{cluster.url}/metrics", timeout=10).text
        return int(re.search(r"^muster_commit_seconds_count (\d+)", text, re.M).group(1))
    big = specs.command("true")
    big["command"]["argv"] += ["x" * 250 for _ in range(1000)]
    big["command"]["env"] = {f"NAME_{i}": "x" * 240 for i in range(1000)}  # half a MiB, nearly all there may be
    body, head = json.dumps(big), {"Authorization": f"Bearer {cluster.token()}"}
    clients = [http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=40) for _ in range(24)]
    redis, before = cluster.redis_pid(), writes()
    os.kill(redis, signal.SIGSTOP)  # one write is under way, all that comes meanwhile waits for the next
    try:
        for client in clients:
            client.request("POST", "/v1/jobs", body, head)
        wait_for("the server to have read them all", lambda: unread_bytes(cluster.port) == 0, 30)
    finally:
        os.kill(redis, signal.SIGCONT)
    assert [client.getresponse().status for client in clients] == [201] * 24
    assert writes() - before >= 3  # of at most 4 MiB and a spec, so of four


def test_a_report_of_very_many_events_is_taken_in_parts(cluster):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x"))["id"]
    run = run_of(agent.until(job), "running")
    text, done, reports = '{"type":"a"}\n' * 30000, 0, 0
    while done < len(text):
        acks = agent.report([run], events=[{"job": job, "generation": 1, "offset": done, "text": text[done:]}])["acks"]
        assert done < acks["events"][0]["offset"] <= len(text)
        done, reports = acks["events"][0]["offset"], reports + 1
    assert reports > 1


def test_classes_that_only_specs_name_take_no_room(cluster):
    waiting = specs.command("x")
    for name in [*(f"class-{i}" for i in range(70)), "late"]:
        waiting["devices"] = {"min": 1, "max": 1, "classes": [name]}
        job = cluster.submit(waiting)["id"]
    agent = FakeAgent(cluster, slots=("late",))
    agent.register()
    assert agent.until(job)["ranks"][0]["class"] == "late"


def test_what_runs_teach_about_a_class_outlives_the_server(cluster):
    spec = specs.train(__file__, steps=1000)

    def predicted():
        return cluster.api("POST", "/v1/jobs?dry_run=1", spec)["plan"]["step_ms"]
    agent = FakeAgent(cluster)
    agent.register()
    assumed = predicted()
    job = cluster.submit(spec)["id"]
    run = run_of(agent.until(job), "running")
    text = "".join(json.dumps({"step": i, "loss": 1.0, "step_ms": 8 * assumed}) + "\n" for i in range(3))
    agent.report([run], metrics=[{"job": job, "generation": 1, "offset": 0, "text": text}])
    learned = predicted()
    assert learned > 2 * assumed
    cluster.stop_server()
    cluster.start_server()
    agent.register([run])
    assert predicted() == pytest.approx(learned, rel=1e-3)


def test_of_jobs_that_have_ended_the_newest_stay_known(tmp_path):
    with Cluster(str(tmp_path), slots=0, server_args=["--keep-ended", "3"]) as cluster:
        agent = FakeAgent(cluster)
        agent.register()
        job = cluster.submit(specs.command("x"))["id"]
        run = run_of(agent.until(job), "exited")
        agent.report([run], logs=[{"job": job, "generation": 1, "rank": 0, "offset": 0, "text": "words\n"}])
        cluster.wait(job, "succeeded")
        assert os.path.isdir(f"{cluster.state}/spool/{job}")
        cluster.api("POST", "/v1/nodes/n1/drain")  # so that the others wait
        for _ in range(4):
            cluster.action(cluster.submit(specs.command("x"))["id"], "cancel")
        waiting = [cluster.submit(specs.command("x"))["id"] for _ in range(2)]
        wait_for("the oldest to be gone", lambda: cluster.request("GET", f"/v1/jobs/{job}")[0] == 404, 10)
        wait_for("its logs to be gone", lambda: not os.path.exists(f"{cluster.state}/spool/{job}"), 10)
        assert os.path.isdir(f"{cluster.jobs_dir}/{job}")  # its checkpoints are nobody's to remove
        wait_for("three to be left", lambda: len(cluster.list_jobs()) == 3 + len(waiting), 10)
        assert cluster.api("GET", "/v1/cluster")["jobs"]["succeeded"] == 1
        cluster.stop_server()
        cluster.start_server()
        assert len(cluster.list_jobs()) == 3 + len(waiting)
    assert not cluster.leftovers()


def test_a_new_job_takes_no_folder_of_a_job_that_the_store_has_lost(tmp_path):
    for name in ("j41", "j7", "j50.bak", "jx", "j" + 30 * "9"):
        os.makedirs(tmp_path / "jobs" / name)
    with Cluster(str(tmp_path), slots=0) as cluster:
        assert cluster.submit(specs.command("x"))["id"] == "j42"
        cluster.stop_server()
        cluster.start_server()
        assert cluster.submit(specs.command("x"))["id"] == "j43"
