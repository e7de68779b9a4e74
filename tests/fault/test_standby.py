"""A leader is killed, again and again: another server takes over, and nothing that was acknowledged is lost or done
twice."""
import os
import subprocess
import threading

import requests

from tests import specs
from tests.cluster import BIN, wait_for
from tests.patience import PATIENCE_S
from tests.servers import Servers

KILLS = 100 if os.environ.get("MUSTER_TEST_LONG") else 5


def test_one_that_stands_by_names_the_leader_and_takes_over_its_jobs_tokens_logs_and_runs(tmp_path):
    with Servers(str(tmp_path), slots=2) as servers:
        assert servers.leader() == "a"
        b = servers.urls["b"]
        ready = requests.get(f"{b}/readyz", timeout=PATIENCE_S)
        assert ready.status_code == 503 and ready.json()["type"].endswith(":standby")
        assert requests.get(f"{b}/healthz", timeout=PATIENCE_S).status_code == 200
        for method, path, body in (("GET", "/v1/jobs?limit=3&state=queued", None), ("GET", "/", None),
                                   ("POST", "/v1/jobs", b"x" * 3_000_000), ("PATCH", "/v1/jobs/j1", b"{}"),
                                   ("GET", "/no/such", None)):
            got = requests.request(method, b + path, data=body, timeout=PATIENCE_S, allow_redirects=False)
            assert (got.status_code, got.headers["Location"]) == (307, servers.urls["a"] + path)
        go = os.path.join(servers.folder, "go")
        runs = servers.submit(specs.command(f"echo before; while [ ! -e {go} ]; do sleep 0.1; done; echo after"))["id"]
        servers.wait(runs, "running")
        wait_for("the first line", lambda: "before" in servers.log_text(runs))
        pids = servers.rank_pids(runs)
        took = servers.take_over()
        assert took < servers.lease + 2, took
        assert servers.leader() == "b"
        assert [j["id"] for j in servers.list_jobs()] == [runs]
        assert servers.muster("list", check=True).stdout.split("\n")[1].startswith(runs)  # by the token of a
        servers.wait_nodes(["n1"])
        assert servers.rank_pids(runs) == pids and servers.job(runs)["generation"] == 1
        with open(go, "w", encoding="ascii"):
            pass
        servers.wait(runs, "succeeded")
        wait_for("the whole log", lambda: servers.log_text(runs) == "before\nafter\n")
    assert not servers.leftovers()


def test_a_client_goes_to_servers_that_it_was_given_and_to_no_other(tmp_path):
    with Servers(str(tmp_path), slots=0) as servers:
        def muster(url, *args):
            env = dict(servers.env, MUSTER_TOKEN=servers.token(), NO_COLOR="1")
            return subprocess.run([f"{BIN}/muster", *args, "--server", url], env=env, capture_output=True, text=True,
                                  timeout=PATIENCE_S, check=False)
        a, b = servers.urls["a"], servers.urls["b"]
        nobody = "http://127.0.0.1:9"
        for url in (f"{b},{a}", f"{a},{b}", f"{nobody},{b}/,{a}/", f"{b[7:]},{a[7:]}"):
            run = muster(url, "list")
            assert run.returncode == 0, run.stderr
        run = muster(b, "list")
        assert run.returncode == 5 and f"'{b}' sends calls on to '{a}/" in run.stderr
        assert "none of the servers named" in run.stderr
    assert not servers.leftovers()


class Load:
    """Users who submit without a rest, each job with a key of its own; what was acknowledged: `jobs`, key -> id."""

    def __init__(self, servers, users=3):
        self.servers, self.jobs, self.ends, self.faults = servers, {}, threading.Event(), []
        self.token = servers.token()
        self.threads = [threading.Thread(target=self.submit, args=(user,)) for user in range(users)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()

    def submit(self, user):
        head = {"Authorization": f"Bearer {self.token}"}
        number, names = 0, list(self.servers.names)
        while not self.ends.is_set():
            key = f"k{user}-{number}"
            spec = specs.command(f"echo {key}", name=key)
            try:
                got = requests.post(f"{self.servers.urls[names[0]]}/v1/jobs", json=spec, timeout=10,
                                    headers={**head, "Idempotency-Key": key}, allow_redirects=False)
            except requests.RequestException:
                got = None
            if got is not None and got.status_code in (200, 201):
                self.jobs[key] = got.json()["id"]
                number += 1
            elif got is not None and got.status_code not in (307, 503, 504):
                self.faults.append((key, got.status_code, got.text))
            else:
                names.append(names.pop(0))  # and the same job again
            self.ends.wait(0.02)


def test_leaders_are_killed_under_load_and_no_acknowledged_job_is_lost_or_doubled(tmp_path):
    """Each take-over within the lease and 2 s; every job once, with its whole log."""
    with Servers(str(tmp_path), slots=4, server_args=["--token-rate", "0"]) as servers:
        took = []
        with Load(servers) as load:
            for kill in range(KILLS):
                before = len(load.jobs)
                took.append(servers.take_over())
                wait_for(f"submits after kill {kill}", lambda before=before: len(load.jobs) >= before + 5)
        assert not load.faults
        print(f"{KILLS} kills, {len(load.jobs)} jobs, take-over {min(took):.2f} to {max(took):.2f} s")
        assert max(took) < servers.lease + 2, took
        wait_for("all jobs to end", lambda: not servers.list("/v1/jobs", "jobs", "&state=active"))
        jobs = {job["name"]: job for job in servers.list_jobs()}
        listed = servers.list_jobs()
        assert len(listed) == len(jobs), "a job is there twice"
        assert len({job["id"] for job in listed}) == len(listed)
        assert {key: jobs[key]["id"] for key in load.jobs} == load.jobs
        assert len(jobs) <= len(load.jobs) + 3  # one of each user may have been made and not acknowledged
        for key, job in jobs.items():
            assert job["state"] == "succeeded" and job["generation"] == 1, job
            assert servers.log_text(job["id"]) == f"{key}\n"
    assert not servers.leftovers()
