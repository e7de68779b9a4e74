"""Who may do what at musterd: tokens and their roles, made, kept and revoked."""
import os

import pytest
import requests

from tests import specs
from tests.integration.fake_agent import make_token
from tests.patience import PATIENCE_S


def test_tokens_decide(cluster):
    with open(f"{cluster.state}/agent-token", encoding="ascii") as f:
        agent = f.read().strip()
    assert os.stat(f"{cluster.state}/token").st_mode & 0o777 == 0o600
    assert cluster.request("GET", "/v1/jobs", token="")[0] == 401
    assert cluster.request("GET", "/v1/jobs", token="mst_wrong")[0] == 401
    assert cluster.request("GET", "/v1/jobs", token=agent)[0] == 403
    assert cluster.request("POST", "/v1/agents/register", {})[0] == 403


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
    assert listed[made["id"]].pop("last_used_at")
    assert listed[made["id"]] == {k: v for k, v in made.items() if k not in ("token", "last_used_at")}
    assert sorted(t["user"] for t in listed.values() if t["file"]) == ["admin", "agent"]
    with requests.get(f"{cluster.url}/v1/events", stream=True, timeout=PATIENCE_S, headers={
            "Authorization": f"Bearer {made['token']}", "Accept": "text/event-stream"}) as stream:
        assert cluster.api("DELETE", f"/v1/tokens/{made['id']}")["user"] == "alice"
        assert stream.content is not None  # it ends
    assert cluster.request("GET", "/v1/jobs", token=made["token"])[0] == 401
    cluster.kill_server()
    cluster.start_server()
    assert cluster.request("GET", "/v1/jobs", token=made["token"])[0] == 401


@pytest.mark.parametrize("body, status, words", [
    ({}, 422, "'user' is wanted"), ({"user": ""}, 422, "'user' is wanted"), ({"user": 'a"b'}, 422, "'user' is wanted"),
    ({"user": "a" * 64}, 422, "'user' is wanted"), ({"user": "a", "role": "root"}, 422, "viewer, user or admin"),
    ({"user": "a", "role": 3}, 422, "viewer, user or admin"),
    ({"user": "a", "role": "agent"}, 422, "muster node enroll"),
    ({"user": "a", "expires_at": "2001-01-01T00:00:00Z"}, 422, "a time to come"),
    ({"user": "a", "expires_at": "2226-01-01T00:00:00Z"}, 422, "within ten years"),
    ({"user": "a", "expires_at": 7}, 422, "a time to come"),
    ({"user": "a", "expires_at": "soon"}, 422, "a time to come"),
    ({"user": "a", "days": 3}, 422, "no field 'days'")])
def test_a_token_that_cannot_be_is_refused(cluster, body, status, words):
    got, problem = cluster.request("POST", "/v1/tokens", body)
    assert (got, words in problem["detail"]) == (status, True), problem


def test_the_files_tokens_are_not_revoked_by_a_call(cluster):
    admin = [t for t in cluster.api("GET", "/v1/tokens")["tokens"] if t["user"] == "admin"][0]
    status, problem = cluster.request("DELETE", f"/v1/tokens/{admin['id']}")
    assert status == 409 and "state folder" in problem["detail"]
    assert cluster.request("DELETE", "/v1/tokens/0123456789ab")[0] == 404
