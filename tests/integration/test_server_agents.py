"""The agents' protocol of musterd: runs and their ends, nodes that come, drain, fall silent and leave."""
import base64
import concurrent.futures
import datetime
import json

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.integration.fake_agent import FakeAgent, given_a_job, run_of
from tests.patience import PATIENCE_S


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
    status, _ = agent.call("PUT", f"/n1/rendezvous/{job}/1/ucx-0?incarnation=i1", None, data=b"QQ==")
    assert status == 409
    agent.report([run_of(b, "exited")])
    cluster.wait(job, "succeeded")


def test_a_users_error_is_not_tried_again(cluster):
    agent, job, a = given_a_job(cluster)
    agent.report([run_of(a, "exited", code=3, tail=["no such file"])])
    got = cluster.wait(job, "failed")
    assert (got["outcome"]["class"], got["outcome"]["exit_code"], got["restarts"]["user"]) == ("user", 3, 0)


@pytest.mark.parametrize("status, cause, class_", [(74, "program", "user"), (74, "node", "node"), (1, "user", "user"),
                                                   (75, "internal", "system"), (137, "program", "system")])
def test_an_end_is_judged_by_its_cause_not_by_its_status(cluster, status, cause, class_):
    agent = FakeAgent(cluster)
    agent.register()
    job = cluster.submit(specs.command("x", retry={"max": 0}))["id"]
    run = run_of(agent.until(job), "exited", code=status, sig=9 if status == 137 else 0)
    run["ranks"][0]["cause"] = cause
    agent.report([run])
    outcome = cluster.wait(job, "failed")["outcome"]
    assert (outcome["class"], outcome["exit_code"]) == (class_, status)


def test_an_agent_of_a_later_protocol_is_refused_by_name(cluster):
    agent = FakeAgent(cluster)
    body = {"node": "n1", "incarnation": "i1", "slots": [], "protocol": 3}
    status, problem = agent.call("POST", "/register", body)
    assert status == 422 and problem["type"].endswith("protocol-unknown"), problem
    assert "the agent of node 'n1' speaks version 3 of the protocol" in problem["detail"]
    assert cluster.nodes() == []
    status, answer = agent.call("POST", "/register", {**body, "protocol": 2})
    assert status == 200 and answer["protocol"] == 2


def test_suspend_resume_cancel_and_drain_of_a_running_job(cluster):
    agent, job, a = given_a_job(cluster)
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
    wait_for("the reason", lambda: cluster.job(job)["reason"]["code"] == "nodes-drained")
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
        assert all(told.result(PATIENCE_S) for told in [pool.submit(is_stopped, agent) for agent in agents])


def test_a_drains_deadline_outlives_the_server(cluster):
    agent, job, a = given_a_job(cluster)
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
    agent, job, a = given_a_job(cluster)
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
        poll = pool.submit(agent.call, "GET", f"/n1/assignments?version={agent.version}&wait=30&incarnation=i1")
        wait_for("the poll", lambda: "muster_long_polls 1" in cluster.request("GET", "/metrics", token="")[1])
        assert cluster.api("DELETE", "/v1/nodes/n1")["state"] == "drained"
        assert poll.result(PATIENCE_S)[0] == 404
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
        wait_for("n2 alone", lambda: [(n["id"], n["state"]) for n in cluster.nodes()] == [("n2", "lost")])
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
    wait_for("n1 to be unknown", lambda: state() == "unknown")
    assert cluster.job(job)["state"] == "running"
    wait_for("n1 to be lost", lambda: state() == "lost")
    b = second.until(job)
    assert b["generation"] == 2 and cluster.job(job)["restarts"]["node"] == 1
    assert first.report([run_of(a, "running")])["stale"] == [{"job": job, "generation": 1}]  # it comes back
    node = {n["id"]: n for n in cluster.nodes()}["n1"]
    assert all(s["state"] == "quarantined" for s in node["slots"])  # its old ranks still sit there


def test_rendezvous_keys_reach_those_who_wait(cluster):
    agent, job, _ = given_a_job(cluster)
    path = f"/n1/rendezvous/{job}/1"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        start = FakeAgent(cluster).call("GET", f"{path}?since=0&wait=0&incarnation=i1")[1]
        waiting = pool.submit(FakeAgent(cluster).call, "GET", f"{path}?since={start['next']}&wait=20&incarnation=i1")
        value = base64.b64encode(b"address").decode()
        assert agent.call("PUT", f"{path}/ucx-0?incarnation=i1", None, data=value)[0] == 200
        assert agent.call("PUT", f"{path}/ucx-0?incarnation=i1", None, data=value)[0] == 200
        status, answer = waiting.result(PATIENCE_S)
    assert status == 200 and answer["keys"] == [{"key": "ucx-0", "value": value}]


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
    agent, job, a = given_a_job(cluster)
    run = run_of(a, "running")
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


def test_a_run_that_goes_on_from_an_earlier_step_shows_that_step(cluster):
    agent, job, a = given_a_job(cluster)

    def line(**fields):
        return json.dumps(fields) + "\n"

    def step(run, generation, resumed="", metrics=""):
        agent.report([run], events=[{"job": job, "generation": generation, "offset": 0, "text": resumed}],
                     metrics=[{"job": job, "generation": generation, "offset": 0, "text": metrics}])
        return cluster.job(job)["progress"]["step"]

    assert step(run_of(a, "running"), 1, metrics=line(step=129, step_ms=1.0)) == 129
    agent.report([run_of(a, "exited", sig=9)])
    b = agent.until(job)
    assert b["generation"] == 2
    assert step(run_of(b, "running"), 2, resumed=line(type="resumed", rank=0, step=100)) == 100
    agent.report([run_of(b, "exited", sig=9)])
    c = agent.until(job)  # its first line comes with the word of where it went on from
    assert step(run_of(c, "running"), 3, line(type="resumed", rank=0, step=90), line(step=90, step_ms=1.0)) == 90


def test_a_report_of_very_many_events_is_taken_in_parts(cluster):
    agent, job, a = given_a_job(cluster)
    run = run_of(a, "running")
    text, done, reports = '{"type":"a"}\n' * 1000, 0, 0  # within what a node may tell at once
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
