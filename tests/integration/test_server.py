"""musterd over REST with its real Redis; agents are played by the tests, call by call."""
import concurrent.futures
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
from tests.integration.fake_agent import FakeAgent, run_of
from tests.patience import PATIENCE_S


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
    assert requests.post(f"{cluster.url}/v1/jobs", data=b"{nope", headers=head, timeout=PATIENCE_S).status_code == 400
    assert requests.post(f"{cluster.url}/v1/jobs", data=b"[]", headers=head, timeout=PATIENCE_S).status_code == 422
    for path in ("/v1/jobs/j9", "/v1/jobs/x", "/v1/jobs/j9/events", "/v1/jobs/j9/logs", "/v1/jobs/j9/explain"):
        assert cluster.request("GET", path)[0] == 404, path
    assert cluster.request("GET", "/v1/jobs?state=resting")[0] == 422
    assert cluster.request("POST", "/v1/nodes/n9/drain")[0] == 404
    assert cluster.request("PUT", "/v1/projects/p", {"quota": {"devices": 3}})[0] == 422


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
    etag = requests.get(f"{cluster.url}/v1/jobs/{job}", timeout=PATIENCE_S,
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
        wait_for("some submits", lambda n=before: len(acked) > n + 20)
        if victim == "redis":
            os.kill(cluster.redis_pid(), signal.SIGKILL)
        else:
            cluster.kill_server()
            cluster.start_server()
        assert round_ < 3
    wait_for("submits afterwards", lambda n=len(acked): len(acked) > n + 20)
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


def test_jobs_whose_stored_specs_are_refused_fail_and_the_others_go_on(cluster):
    """As after an upgrade with stricter limits: one such job waits, one is suspended, one runs, one is as it was."""
    agent = FakeAgent(cluster)
    agent.register()
    runs = cluster.submit(specs.command("sleep 100000", devices=4))["id"]
    run = agent.until(runs)
    agent.report([run_of(run, "running")])
    waits, sleeps, good = (cluster.submit(specs.command("true", name=name))["id"] for name in ("w", "s", "g"))
    cluster.api("POST", f"/v1/jobs/{sleeps}/suspend")
    socket = f"{cluster.state}/redis/redis.sock"
    wrong = {runs: {"command": {"argv": ["sleep", "600"], "speed": 3}},
             waits: {"command": {"argv": ["/bin/echo", "x" * 200_000]}},
             sleeps: {"command": {"argv": ["true"]}, "retry": {"max": 10**9}}}
    for job, spec in wrong.items():
        subprocess.run(["redis-cli", "-s", socket, "-x", "HSET", f"muster:job:{job[1:]}", "spec"],
                       input=json.dumps(spec).encode(), check=True, capture_output=True, timeout=PATIENCE_S)
    cluster.kill_server()
    cluster.start_server()
    cluster.described = False  # the wrong specs are shown as they are

    for job, said in ((waits, "/command/argv/1: "), (sleeps, "/retry/max: ")):
        failed = cluster.job(job)
        assert failed["state"] == "failed" and failed["outcome"]["class"] == "user", failed
        assert said in failed["outcome"]["message"] and "submit it anew" in failed["outcome"]["message"], failed
        assert failed["spec"] == wrong[job]
        assert cluster.events(job)[-1]["cause"]["code"] == "spec-refused"
    assert cluster.job(good)["state"] == "queued"
    agent.register([run_of(run, "running")])
    agent.until(runs, "stop")
    agent.report([run_of(run, "exited", 143, 15)])
    wait_for("what ran to have failed", lambda: cluster.job(runs)["state"] == "failed")
    assert "/command/speed: " in cluster.job(runs)["outcome"]["message"]
    agent.until(good)
    cluster.kill_server()
    cluster.start_server()
    assert [cluster.job(job)["state"] for job in (runs, waits, sleeps)] == 3 * ["failed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_folder_for_jobs_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    read_only = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    got = subprocess.run(["unshare", "--mount", "sh", "-c", read_only, str(jobs), f"{BIN}/musterd", "--state",
                          str(tmp_path / "state"), "--port", "0", "--jobs-dir", str(jobs)],
                         capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert got.returncode != 0 and f"cannot make folders of jobs in '{jobs}'" in got.stderr, got.stderr
    assert "Read-only" in got.stderr and "ProtectSystem" in got.stderr


def test_a_second_server_on_the_same_state_is_refused(cluster):
    got = subprocess.run([f"{BIN}/musterd", "--state", cluster.state, "--port", "0"], capture_output=True, text=True,
                         timeout=PATIENCE_S, check=False, env=cluster.env)
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
                         text=True, timeout=PATIENCE_S, check=False)
    assert got.returncode in (1, 2) and says in got.stderr


def test_an_outside_redis_is_led_by_one_server_at_a_time(tmp_path):
    redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", str(tmp_path / "r.sock"), "--dir",
                              str(tmp_path), "--appendonly", "yes", "--appendfsync", "always", "--save", ""],
                             stdout=subprocess.DEVNULL)
    try:
        wait_for("redis", (tmp_path / "r.sock").exists)
        url = f"unix://{tmp_path}/r.sock"
        with Cluster(str(tmp_path / "a"), slots=0, server_args=["--redis", url, "--lease", "5"]) as first:
            job = first.submit(specs.command("true"))["id"]
            got = subprocess.run([f"{BIN}/musterd", "--state", str(tmp_path / "b"), "--port", "0", "--redis", url],
                                 capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=first.env)
            assert got.returncode == 1 and "another musterd leads" in got.stderr  # once the lease was seen renewed
            # One that is led over by force must notice at its next write and end.
            subprocess.run(["redis-cli", "-s", str(tmp_path / "r.sock"), "HINCRBY", "muster:meta", "epoch", "1"],
                           check=True, stdout=subprocess.DEVNULL)
            assert first.request("POST", "/v1/jobs", specs.command("true"))[0] != 201
            assert first.server.wait(PATIENCE_S) == 1 and "another musterd leads" in first.tail("musterd")
            first.start_server()
            assert [j["id"] for j in first.list_jobs()] == [job]
    finally:
        redis.terminate()
        redis.wait(PATIENCE_S)


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
        text = requests.get(f"{cluster.url}/metrics", timeout=PATIENCE_S).text
        return int(re.search(r"^muster_commit_seconds_count (\d+)", text, re.M).group(1))
    big = specs.command("true")
    big["command"]["argv"] += ["x" * 250 for _ in range(1000)]
    big["command"]["env"] = {f"NAME_{i}": "x" * 240 for i in range(1000)}  # half a MiB, nearly all there may be
    body, head = json.dumps(big), {"Authorization": f"Bearer {cluster.token()}"}
    clients = [http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=PATIENCE_S) for _ in range(24)]
    redis, before = cluster.redis_pid(), writes()
    os.kill(redis, signal.SIGSTOP)  # one write is under way, all that comes meanwhile waits for the next
    try:
        for client in clients:
            client.request("POST", "/v1/jobs", body, head)
        wait_for("the server to have read them all", lambda: unread_bytes(cluster.port) == 0)
    finally:
        os.kill(redis, signal.SIGCONT)
    assert [client.getresponse().status for client in clients] == [201] * 24
    assert writes() - before >= 3  # of at most 4 MiB and a spec, so of four


def test_of_jobs_that_have_ended_the_newest_stay_known(tmp_path):
    with Cluster(str(tmp_path), slots=0, server_args=["--keep-ended", "3"]) as cluster:
        agent = FakeAgent(cluster)
        agent.register()
        job = cluster.submit(specs.command("x"))["id"]
        run = run_of(agent.until(job), "exited")
        agent.report([run], logs=[{"job": job, "generation": 1, "rank": 0, "offset": 0, "text": "words\n"}])
        cluster.wait(job, "succeeded")
        assert os.path.isdir(f"{cluster.jobs_dir}/.spool/{job}")
        cluster.api("POST", "/v1/nodes/n1/drain")  # so that the others wait
        for _ in range(4):
            cluster.action(cluster.submit(specs.command("x"))["id"], "cancel")
        waiting = [cluster.submit(specs.command("x"))["id"] for _ in range(2)]
        wait_for("the oldest to be gone", lambda: cluster.request("GET", f"/v1/jobs/{job}")[0] == 404)
        wait_for("its logs to be gone", lambda: not os.path.exists(f"{cluster.jobs_dir}/.spool/{job}"))
        assert os.path.isdir(f"{cluster.jobs_dir}/{job}")  # its checkpoints are nobody's to remove
        wait_for("three to be left", lambda: len(cluster.list_jobs()) == 3 + len(waiting))
        assert cluster.api("GET", "/v1/cluster")["jobs"]["succeeded"] == 1
        cluster.stop_server()
        cluster.start_server()
        assert len(cluster.list_jobs()) == 3 + len(waiting)
    assert not cluster.leftovers()


def test_a_new_job_takes_no_folder_of_a_job_that_the_store_has_lost(tmp_path):
    for name in ("j41", "j7", "j50.bak", "jx", "j" + 30 * "9"):
        os.makedirs(tmp_path / "jobs" / name)
    with Cluster(str(tmp_path), slots=0, server_args=["--accept-loss"]) as cluster:
        assert cluster.submit(specs.command("x"))["id"] == "j42"
        cluster.stop_server()
        cluster.server_args = []
        cluster.start_server()
        assert cluster.submit(specs.command("x"))["id"] == "j43"


def test_nobody_makes_room_while_a_restarted_server_waits_to_hear_of_free_devices(tmp_path):
    with Cluster(str(tmp_path), slots=0, server_args=["--round", "1", "--hold", "1", "--starve-after", "1"]) as cluster:
        agents = [FakeAgent(cluster, node) for node in ("n1", "n2")]
        for agent in agents:
            agent.register()
        low = cluster.submit(specs.train(__file__, devices=4, priority=10))["id"]
        cluster.wait(low, ["starting"])
        home = {a["node"] for a in cluster.job(low)["assignment"]}
        busy, free = agents if home == {"n1"} else reversed(agents)
        run = run_of(busy.until(low), "running")
        busy.report([run])
        cluster.wait(low, "running")
        cluster.stop_server()
        cluster.start_server()
        busy.register([run])
        high = cluster.submit(specs.train(__file__, devices=4, priority=90))["id"]
        assert busy.until(low)["order"] == "run"
        assert busy.assignments(wait=4).get(low, {}).get("order") == "run"  # a round could have been each second
        free.register()
        assert free.until(high)["order"] == "run" and cluster.job(low)["state"] == "running"
