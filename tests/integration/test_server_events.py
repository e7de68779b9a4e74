"""What musterd tells of jobs: events and output, page by page and as they come."""
import concurrent.futures
import json

import requests

from tests import specs
from tests.answers import check_event
from tests.cluster import wait_for
from tests.integration.fake_agent import FakeAgent, given_a_job, make_token, run_of
from tests.patience import PATIENCE_S


def follow(cluster, path, last=None):
    head = {"Authorization": f"Bearer {cluster.token()}", "Accept": "text/event-stream"}
    if last:
        head["Last-Event-ID"] = last
    answer = requests.get(cluster.url + path, headers=head, stream=True, timeout=PATIENCE_S)
    assert answer.status_code == 200
    event = {}
    for line in answer.iter_lines(decode_unicode=True):
        if line.startswith(":"):
            continue
        if not line:
            if "event" in event:
                check_event(event["event"], json.loads(event["data"]))
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


def test_logs_are_followed_as_they_come_and_the_stream_ends_with_the_job(cluster):
    agent, job, a = given_a_job(cluster)
    stream = follow(cluster, f"/v1/jobs/{job}/logs?follow=1&rank=0")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, stream)
        wait_for("the follower", lambda: "muster_followers 1" in cluster.request("GET", "/metrics", token="")[1])
        agent.report([run_of(a, "running")],
                     logs=[{"job": job, "generation": 1, "rank": 0, "offset": 0, "text": "a\n"}])
        assert json.loads(first.result(PATIENCE_S)["data"])["text"] == "a\n"
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
    wait_for("no followers", lambda: followers(0))


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
