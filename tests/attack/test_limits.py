"""One user against all: members and ceilings of projects, and what one user may have of the server."""
import json
import os
import signal

import pytest
import requests

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.patience import PATIENCE_S


@pytest.fixture(name="cluster", scope="module")
def _cluster(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("limits"))
    with Cluster(folder, slots=0, server_args=["--user-jobs", "20", "--user-bytes", "4m", "--user-streams", "4",
                                               "--audit-file", f"{folder}/audit.jsonl"]) as cluster:
        yield cluster
    assert not cluster.leftovers()


def token(cluster, user, role="user"):
    return cluster.api("POST", "/v1/tokens", {"user": user, "role": role})["token"]


def test_a_user_submits_into_project_prod_at_priority_100(cluster):
    cluster.muster("project", "set", "prod", "--max-priority", "50", check=True)
    cluster.muster("project", "member", "prod", "ann", check=True)
    cluster.muster("project", "member", "prod", "max", "--role", "manager", check=True)
    ann, eve, boss = (token(cluster, name) for name in ("ann", "eve", "max"))
    spec = dict(specs.command("x"), project="prod", priority=100)
    status, problem = cluster.request("POST", "/v1/jobs", spec, token=eve)
    assert status == 403 and problem["type"].endswith(":not-a-member") and "'prod'" in problem["detail"]
    status, problem = cluster.request("POST", "/v1/jobs", spec, token=ann)
    assert status == 422 and problem["type"].endswith(":over-ceiling") and "over 50" in problem["detail"]
    job = cluster.api("POST", "/v1/jobs", dict(spec, priority=50), token=ann)["id"]
    assert cluster.request("PATCH", f"/v1/jobs/{job}", {"priority": 100}, token=ann)[0] == 422
    assert cluster.request("GET", f"/v1/jobs/{job}", token=eve)[0] == 404
    shown = cluster.muster("project", "show", "prod", check=True).stdout
    assert "max-priority          50" in shown and "manager               max" in shown
    refused = cluster.muster("project", "delete", "prod")
    assert refused.returncode == 4 and "1 jobs of project 'prod' have not ended" in refused.stderr
    assert [j["id"] for j in cluster.api("GET", "/v1/jobs?project=prod", token=boss)["jobs"]] == [job]
    cluster.api("POST", f"/v1/jobs/{job}/cancel", token=boss)
    assert cluster.muster("project", "delete", "prod").returncode == 0
    assert cluster.request("POST", "/v1/jobs", dict(spec, priority=100), token=eve)[0] == 201


def test_400_specs_of_250_kb_and_many_jobs_of_one_user_leave_room_for_others(cluster):
    mallory, ann = token(cluster, "mallory"), token(cluster, "ann")
    large = specs.command("x")
    large["command"] = {"argv": ["x", "y" * 125000, "z" * 125000]}
    answers = [cluster.request("POST", "/v1/jobs", large, token=mallory) for _ in range(18)]
    assert [status for status, _ in answers].count(201) == 16  # of 4 MiB
    assert answers[-1][0] == 429 and answers[-1][1]["type"].endswith(":too-many-bytes")
    many = [cluster.request("POST", "/v1/jobs", specs.command("x"), token=mallory)[0] for _ in range(6)]
    assert many == [201] * 4 + [429] * 2
    assert cluster.request("POST", "/v1/jobs", large, token=ann)[0] == 201
    assert cluster.request("POST", "/v1/jobs", large)[0] == 201


def stream(cluster, of):
    return requests.get(f"{cluster.url}/v1/events", stream=True, timeout=PATIENCE_S,
                        headers={"Authorization": f"Bearer {of}", "Accept": "text/event-stream"})


def test_a_manager_sees_the_events_of_the_projects_jobs_as_they_come_and_afterwards(cluster):
    cluster.muster("project", "set", "seen", "--quota", "9", check=True)
    cluster.muster("project", "member", "seen", "mara", "--role", "manager", check=True)
    cluster.muster("project", "member", "seen", "abe", check=True)
    mara, abe, carl = (token(cluster, name) for name in ("mara", "abe", "carl"))
    with stream(cluster, mara) as manager, stream(cluster, abe) as owner, stream(cluster, carl) as other:
        for project, of in (("seen", abe), ("default", carl)):
            cluster.api("POST", "/v1/jobs", dict(specs.command("x"), project=project), token=of)
        first = [next(json.loads(line[6:])["job"] for line in s.iter_lines(decode_unicode=True)
                      if line.startswith("data: ")) for s in (manager, owner, other)]
    assert first[0] == first[1] != first[2]
    listed = [[e["job"] for e in cluster.api("GET", "/v1/events?limit=1000", token=of)["events"]]
              for of in (mara, abe, carl)]
    assert first[0] in listed[0] and first[2] not in listed[0]
    assert first[0] in listed[1] and first[0] not in listed[2] and first[2] in listed[2]
    for job in (first[0], first[2]):
        cluster.action(job, "cancel")


def test_the_streams_of_one_viewer_leave_room_for_an_admins(cluster):
    viewer = token(cluster, "spy", "viewer")
    held = [stream(cluster, viewer) for _ in range(6)]
    assert [s.status_code for s in held] == [200] * 4 + [429] * 2
    assert int(held[-1].headers["Retry-After"]) > 0
    assert json.loads(held[-1].text)["type"].endswith(":too-many-streams")
    held.append(stream(cluster, cluster.token()))
    assert held[-1].status_code == 200
    for s in held:
        s.close()


def audited(cluster, **query):
    return cluster.list("/v1/audit", "audit", "".join(f"&{name}={value}" for name, value in query.items()))


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def test_changes_and_refusals_leave_entries_with_actor_token_address_and_request(cluster):
    oscar, ann = token(cluster, "oscar"), token(cluster, "ann")
    job = cluster.api("POST", "/v1/jobs", specs.command("x"), token=ann)["id"]
    assert cluster.request("GET", f"/v1/jobs/{job}", token=oscar, headers={"X-Request-Id": "spy-1"})[0] == 404
    assert cluster.request("PUT", "/v1/projects/p", {}, token=oscar)[0] == 403
    assert cluster.request("GET", "/v1/audit", token=oscar)[0] == 403
    assert cluster.request("GET", "/v1/jobs", token="mst_stolen")[0] == 401
    cluster.muster("project", "set", "audited", "--quota", "4", check=True)
    cluster.muster("project", "set", "audited", "--quota", "8", check=True)
    refused = wait_for("oscar's refusals", lambda: len(found := audited(cluster, user="oscar")) == 3 and found)
    assert [e["code"] for e in refused] == ["unknown-job", "forbidden", "forbidden"]
    assert refused[0]["request_id"] == "spy-1" and refused[0]["path"] == f"/v1/jobs/{job}"
    assert all(e["actor"] == "user:oscar" and e["token"] and e["address"] == "127.0.0.1" for e in refused)
    all_of_it = audited(cluster)
    assert any(e["code"] == "unknown-token" and e["actor"] is None for e in all_of_it)
    changed = [e for e in all_of_it if e["path"] == "/v1/projects/audited"]
    assert [(e["before"] or {}).get("quota") for e in changed] == [None, 4]
    assert [e["after"]["quota"] for e in changed] == [4, 8]
    made = [e for e in all_of_it if e["path"] == "/v1/tokens" and e["after"]["user"] == "oscar"]
    assert made and oscar not in json.dumps(all_of_it)
    printed = cluster.muster("audit", "--user", "oscar", check=True).stdout
    assert printed.count("refused: forbidden") == 2


def test_the_audit_file_has_the_entries_and_is_opened_anew_on_sighup(cluster):
    path = os.path.join(cluster.folder, "audit.jsonl")
    cluster.api("PUT", "/v1/projects/file1", {"quota": 1})
    wait_for("a line", lambda: any(e["path"] == "/v1/projects/file1" for e in lines(path)))
    os.rename(path, path + ".1")
    cluster.server.send_signal(signal.SIGHUP)

    def told():
        cluster.api("PUT", "/v1/projects/file2", {"quota": 2})
        return any(e["path"] == "/v1/projects/file2" for e in lines(path))
    wait_for("a line in a new file", told)
    assert cluster.server.poll() is None


def flood(cluster, path, count, token):
    """Answers by status, and the last that was told to wait."""
    headers, statuses, told = {"Authorization": f"Bearer {token}"} if token else {}, {}, None
    for _ in range(count):
        answer = cluster.session.get(cluster.url + path, headers=headers, timeout=PATIENCE_S)
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        told = answer if answer.status_code == 429 else told
    return statuses, told


def test_a_token_and_an_address_without_one_are_told_to_come_less_often(tmp_path):
    rates = ["--token-rate", "1", "--token-burst", "40", "--address-rate", "1", "--address-burst", "20"]
    with Cluster(str(tmp_path), slots=0, server_args=rates) as cluster:
        hasty, calm = token(cluster, "hasty"), token(cluster, "calm")
        first = cluster.session.get(f"{cluster.url}/v1/cluster", headers={"Authorization": f"Bearer {hasty}"},
                                    timeout=PATIENCE_S)
        assert (first.headers["RateLimit-Limit"], first.headers["RateLimit-Remaining"]) == ("40", "39")
        statuses, told = flood(cluster, "/v1/cluster", 100, hasty)
        assert set(statuses) == {200, 429} and 39 <= statuses[200] < 90
        assert int(told.headers["Retry-After"]) >= 1 and told.headers["RateLimit-Remaining"] == "0"
        assert told.json()["type"].endswith(":too-many-requests")
        assert cluster.request("GET", "/v1/cluster", token=calm)[0] == 200  # another token is none the wiser
        statuses, told = flood(cluster, "/openapi.yaml", 60, None)
        assert set(statuses) == {200, 429} and 20 <= statuses[200] < 50 and told.headers["Retry-After"]
        assert set(flood(cluster, "/healthz", 100, None)[0]) == {200}  # probes are always answered
        with open(f"{cluster.state}/agent-token", encoding="ascii") as f:
            agent = f.read().strip()
        assert 429 not in flood(cluster, "/v1/agents/n1/assignments?version=0", 100, agent)[0]  # agents come often
        metrics = wait_for("room for one more", lambda: isinstance(text := cluster.request(
            "GET", "/metrics", token="")[1], str) and text)
        assert 'muster_rate_limited_total{by="token"} 0' not in metrics
        assert 'muster_rate_limited_total{by="token"} ' in metrics
    assert not cluster.leftovers()


def test_jobs_are_cancelled_by_a_selector_within_the_callers_rights(cluster):
    carl, dora = token(cluster, "carl"), token(cluster, "dora")
    spec = dict(specs.command("x", name="sweep"), labels={"team": "nlp"})
    own = [cluster.api("POST", "/v1/jobs", dict(spec, priority=10 + i), token=carl)["id"] for i in range(3)]
    plain = cluster.api("POST", "/v1/jobs", specs.command("x"), token=carl)["id"]
    other = cluster.api("POST", "/v1/jobs", spec, token=dora)["id"]

    def cancel(selector, dry_run=False, **more):
        return cluster.api("POST", "/v1/jobs:cancel", {"selector": selector, "dry_run": dry_run}, **more)
    for bad in ({}, {"who": "x"}, {"state": "odd"}, {"label": "x"}, {"user": 3}):
        assert cluster.request("POST", "/v1/jobs:cancel", {"selector": bad}, token=carl)[0] == 422, bad
    assert [j["id"] for j in cancel({"label": "team=nlp"}, True, token=carl)["jobs"]] == own[::-1]
    assert cluster.api("GET", f"/v1/jobs/{own[0]}", token=carl)["state"] == "queued"
    assert cancel({"user": "dora"}, token=carl)["jobs"] == []
    assert {j["state"] for j in cancel({"label": "team=nlp", "name": "swe"}, token=carl)["jobs"]} == {"cancelled"}
    assert cluster.api("GET", f"/v1/jobs/{other}", token=dora)["state"] == "queued"
    assert cluster.muster("cancel", "--user", "carl", "--state", "queued").returncode == 2  # nobody to ask
    shown = cluster.muster("cancel", "--user", "carl", "--state", "queued", "--dry-run", check=True).stdout
    assert shown == f"would cancel {plain}\n"
    assert cluster.muster("cancel", "--user", "carl", "--state", "queued", "--yes", check=True).stdout == \
        f"cancelling {plain}\n"
    assert cluster.muster("cancel", plain, "--user", "carl").returncode == 2
    cancel({"user": "dora"})
    assert cluster.api("GET", f"/v1/jobs/{other}", token=dora)["state"] == "cancelled"


def test_what_the_client_has_already_is_answered_304(cluster):
    job = cluster.submit(specs.command("x"))["id"]
    headers = {"Authorization": f"Bearer {cluster.token()}"}
    for path in (f"/v1/jobs/{job}", "/v1/jobs?fields=id,state", "/v1/projects"):
        first = cluster.session.get(cluster.url + path, headers=headers, timeout=PATIENCE_S)
        known = dict(headers, **{"If-None-Match": first.headers["ETag"]})
        again = cluster.session.get(cluster.url + path, headers=known, timeout=PATIENCE_S)
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    tag = cluster.session.get(f"{cluster.url}/v1/jobs/{job}", headers=headers, timeout=PATIENCE_S).headers["ETag"]
    cluster.api("PATCH", f"/v1/jobs/{job}", {"priority": 7}, headers={"If-Match": tag})
    assert cluster.request("PATCH", f"/v1/jobs/{job}", {"priority": 8}, headers={"If-Match": tag})[0] == 412
    changed = cluster.session.get(f"{cluster.url}/v1/jobs/{job}", headers=dict(headers, **{"If-None-Match": tag}),
                                  timeout=PATIENCE_S)
    assert changed.status_code == 200 and changed.json()["priority"] == 7
    cluster.action(job, "cancel")


def held_by(pid):
    """(resident KiB, open descriptors, threads) of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        status = dict(line.rstrip("\n").split(":", 1) for line in f if ":" in line)
    return int(status["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"])


def test_cycles_of_submit_and_cancel_let_neither_memory_nor_descriptors_grow(tmp_path):
    first, cycles = (300, 2000) if os.environ.get("MUSTER_TEST_LONG") else (100, 150)
    args = ["--keep-ended", "50", "--audit-bytes", "100k", "--audit-file", str(tmp_path / "audit.jsonl")]
    with Cluster(str(tmp_path), slots=0, server_args=args) as cluster:
        user = token(cluster, "cyclist")

        def cycle(count):
            for _ in range(count):
                job = cluster.api("POST", "/v1/jobs", specs.command("x"), token=user)["id"]
                cluster.api("POST", f"/v1/jobs/{job}/cancel", token=user)
                assert cluster.request("GET", f"/v1/jobs/{job}/logs", token="mst_wrong")[0] in (401, 429)
            wait_for("old jobs to be forgotten", lambda: len(cluster.api(
                "GET", "/v1/jobs?limit=1000&fields=id")["jobs"]) <= 50)
        cycle(first)  # until what is kept is as much as may be
        before = held_by(cluster.server.pid)
        cycle(cycles)
        after = held_by(cluster.server.pid)
        assert after[0] - before[0] < 1024 and after[1] <= before[1] + 2 and after[2] == before[2], (before, after)
        print(f"{cycles} cycles: {before} before, {after} after (KiB, descriptors, threads)")
    assert not cluster.leftovers()
