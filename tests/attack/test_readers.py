"""What readers, chatty jobs and a full disk may do to the others: nothing. ("One user against all")"""
import concurrent.futures
import contextlib
import json
import os
import socket
import subprocess
import time

import pytest
import requests

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.integration.fake_agent import given_a_job, run_of
from tests.patience import PATIENCE_S

MIB = 1 << 20


def processor_ns(pid):
    """Of each thread, by its name."""
    used = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{task}/comm", encoding="ascii") as name, \
                open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as stat:
            thread = name.read().strip()
            used[thread] = used.get(thread, 0) + int(stat.read().split()[0])
    return used


def test_threads_that_read_and_parse_for_others_leave_the_processor_to_what_is_decided(tmp_path):
    with Cluster(str(tmp_path), slots=0) as cluster:
        nice = {}
        for task in os.listdir(f"/proc/{cluster.server.pid}/task"):
            with open(f"/proc/{cluster.server.pid}/task/{task}/stat", encoding="ascii") as stat:
                name, rest = stat.read().split("(")[1].rsplit(")", 1)
                nice.setdefault(name, int(rest.split()[16]))
    assert nice["reads"] == nice["core"] + 10 and nice["core"] == nice["files"] == nice["MHD-single"], nice


def test_a_flood_of_logs_takes_little_time_of_the_threads_that_serve_everybody(tmp_path):
    """Parsing 4 MiB takes some 50 ms, for which other users' requests waited."""
    with Cluster(str(tmp_path), slots=0) as cluster:
        agent, job, assignment = given_a_job(cluster)
        line, at = "x" * 99 + "\n", 0
        before = processor_ns(cluster.server.pid)

        def flood():
            """Where the log goes on; None: it was not taken, as at any agent's that sends too much at once."""
            acks = agent.report([run_of(assignment, "running")], logs=[{
                "job": job, "generation": 1, "rank": 0, "offset": at, "text": line * (3 * MIB // len(line))}])["acks"]
            return acks["logs"][0]["offset"] if acks["logs"] else None
        for _ in range(6):
            at = wait_for("the log to be taken", flood)
        spent = {name: ns - before.get(name, 0) for name, ns in processor_ns(cluster.server.pid).items()}
        assert spent["MHD-single"] < sum(spent.values()) / 2, spent


def test_twenty_reads_of_62_mib_of_junk_hold_up_no_report(tmp_path):
    """A report is on its way while all of them wait: it overtakes them."""
    with Cluster(str(tmp_path), slots=0) as cluster:
        agent, job, assignment = given_a_job(cluster)
        runs = [run_of(assignment, "running")]
        line = "x" * 99 + "\n"
        junk = line * (4 * MIB // len(line))
        at = 0
        while at < 62 * MIB:
            acks = agent.report(runs, metrics=[{"job": job, "generation": 1, "offset": at, "text": junk}])["acks"]
            at = acks["metrics"][0]["offset"] if acks["metrics"] else at
        headers, url = {"Authorization": f"Bearer {cluster.token()}"}, f"{cluster.url}/v1/jobs/{job}/metrics"
        waits = []
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            reads = [pool.submit(requests.get, url, headers=headers, timeout=PATIENCE_S) for _ in range(20)]
            began = time.monotonic()
            while not all(read.done() for read in reads):
                sent = time.monotonic()
                agent.report(runs)
                waits.append(time.monotonic() - sent)
            took = time.monotonic() - began
        assert all(read.result().status_code == 200 for read in reads)
    # Where the reads are over at once, nothing was to be held up.
    assert took < 1 or max(waits) < took / 4, f"a report waited {max(waits):.1f} s of {took:.1f} s"


def test_reads_beyond_a_users_share_are_refused_with_the_time_to_come_again(tmp_path):
    with Cluster(str(tmp_path), slots=0) as cluster:
        _, job, _ = given_a_job(cluster)
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(100))
            headers = {"Authorization": f"Bearer {cluster.token()}"}
            got = list(pool.map(lambda _: requests.get(f"{cluster.url}/v1/jobs/{job}/logs", headers=headers,
                                                       timeout=PATIENCE_S), range(400)))
        assert {r.status_code for r in got} <= {200, 429} and any(r.status_code == 200 for r in got)
        assert all(r.headers["Retry-After"] == "1" for r in got if r.status_code == 429)


@contextlib.contextmanager
def small_disk(folder, size):
    """A disk of so many bytes at a folder, where this process may mount one."""
    os.makedirs(folder)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=False,
                      capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("reserve", ["1m", "1k"], ids=["with a reserve", "to the last byte"])
def test_logs_that_fill_a_disk_restart_no_job_and_come_when_there_is_room(tmp_path, reserve):
    with small_disk(str(tmp_path / "jobs"), 6 * MIB), \
            Cluster(str(tmp_path), slots=2, server_args=["--min-free", reserve]) as cluster:
        chatty = cluster.submit(specs.command("yes 'all work and no play' | head -c 12000000; touch $MUSTER_RUN_DIR/x"))
        wait_for("the disk to be full", lambda: requests.get(f"{cluster.url}/readyz", timeout=PATIENCE_S).json()
                 == {"status": "degraded", "logs": "wait for room on the disk"})
        assert "muster_logs_waiting 1" in requests.get(f"{cluster.url}/metrics", timeout=PATIENCE_S).text
        free = os.statvfs(cluster.jobs_dir).f_bavail * os.statvfs(cluster.jobs_dir).f_frsize
        assert free >= (MIB if reserve == "1m" else 0) and free < 2 * MIB
        small = cluster.submit(specs.command("true"))
        for job in (chatty, small):  # both end, at the first attempt, though their logs wait
            ended = cluster.wait(job["id"], "succeeded")
            assert ended["generation"] == 1 and not any(ended["restarts"].values())
        assert [n["state"] for n in cluster.api("GET", "/v1/nodes")["nodes"]] == ["ready"]
        assert not cluster.api("GET", f"/v1/jobs/{chatty['id']}/logs")["complete"]
        subprocess.run(["mount", "-o", "remount,size=64m", cluster.jobs_dir], check=True)
        wait_for("all of the log", lambda: cluster.api("GET", f"/v1/jobs/{chatty['id']}/logs")["complete"])
        log = cluster.api("GET", f"/v1/jobs/{chatty['id']}/logs?tail=1")["logs"][0]
        assert 12000000 <= log["size"] <= 12000001 and "left_out" not in log
        assert requests.get(f"{cluster.url}/readyz", timeout=PATIENCE_S).json() == {"status": "ready"}
    assert not cluster.leftovers()


def test_one_users_chatty_jobs_lose_old_logs_and_anothers_stay(tmp_path):
    """The disk is small for real; the limit in all comes with a restart, so that the first look is at once."""
    with small_disk(str(tmp_path / "jobs"), 16 * MIB), \
            Cluster(str(tmp_path), slots=2, server_args=["--min-free", "1m"]) as cluster:
        token = cluster.api("POST", "/v1/tokens", {"user": "bob", "role": "user"})["token"]
        quiet = cluster.request("POST", "/v1/jobs", specs.command("echo quiet"), token=token)[1]["id"]
        chatty = [cluster.submit(specs.command("yes 'all work and no play' | head -c 2000000"))["id"] for _ in range(3)]

        def logs(job):
            return cluster.api("GET", f"/v1/jobs/{job}/logs?tail=1")

        for job in (quiet, *chatty):
            cluster.wait(job, "succeeded")
            wait_for("all of the log", lambda job=job: logs(job)["complete"])
        cluster.stop_server()
        cluster.server_args = ["--min-free", "1m", "--all-logs", "3m"]
        cluster.start_server()
        wait_for("two of three to lose their logs", lambda: [logs(job)["removed"] for job in chatty]
                 == [True, True, False])
        assert logs(quiet)["lines"] == ["quiet"] and not logs(quiet)["removed"]
        assert logs(chatty[2])["logs"][0]["size"] >= 2000000 and logs(chatty[0])["logs"] == []
        assert os.listdir(f"{cluster.jobs_dir}/.spool/{chatty[0]}") == ["logs-removed"]
        told = cluster.muster("logs", chatty[0])
        assert told.returncode == 0 and "were removed" in told.stderr
        assert "logs-removed" in [e["cause"]["code"] for e in cluster.events(chatty[0]) if e.get("cause")]
        again = cluster.submit(specs.command("echo again"))["id"]  # and the server goes on
        cluster.wait(again, "succeeded")
        wait_for("its log", lambda: logs(again)["lines"] == ["again"])


def test_a_server_that_takes_over_elsewhere_finds_logs_and_metrics(tmp_path):
    """Another machine: it shares Redis and --jobs-dir with the first, and nothing of its state."""
    redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", str(tmp_path / "r.sock"), "--dir",
                              str(tmp_path), "--appendonly", "yes", "--appendfsync", "always", "--save", ""],
                             stdout=subprocess.DEVNULL)
    try:
        wait_for("redis", (tmp_path / "r.sock").exists)
        url = f"unix://{tmp_path}/r.sock"
        with Cluster(str(tmp_path / "a"), slots=0, server_args=["--redis", url, "--lease", "5"]) as cluster:
            agent, job, assignment = given_a_job(cluster)
            line = json.dumps({"step": 0, "loss": 1.5}) + "\n"
            agent.report([run_of(assignment, "running")],
                         logs=[{"job": job, "generation": 1, "rank": 0, "offset": 0, "text": "hello\n"}],
                         metrics=[{"job": job, "generation": 1, "offset": 0, "text": line}])
            cluster.kill_server()
            cluster.state = str(tmp_path / "b")
            cluster.start_server()
            assert cluster.api("GET", f"/v1/jobs/{job}/logs")["lines"] == ["hello"]
            assert cluster.api("GET", f"/v1/jobs/{job}/metrics")["metrics"] == {"step": [0], "loss": [1.5]}
    finally:
        redis.terminate()
        redis.wait(PATIENCE_S)


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_metrics_of_450_nodes_with_8_gpus_are_answered_in_bounded_memory_to_a_thousand_who_do_not_read(tmp_path):
    with Cluster(str(tmp_path), slots=0) as cluster:
        agent, _, _ = given_a_job(cluster)
        slots = [{"slot": i, "kind": "gpu", "class": "h100", "threads": 1, "memory_mib": 100} for i in range(8)]
        gpus = [{"slot": i, "uuid": f"GPU-{i:032d}", "name": "NVIDIA H100 80GB HBM3", "pci": "0000:00:00.0", "numa": 0,
                 "mig": None, "memory_mib": 81559, "memory_used_mib": 100, "utilization": 99, "power_w": 700,
                 "temperature_c": 65, "slowed": [], "ecc_uncorrected": 0, "why": ""} for i in range(8)]
        for i in range(450):
            name = f"node-with-a-long-name-{i:04d}"
            status, answer = agent.call("POST", "/register", {
                "node": name, "boot_id": "b", "incarnation": name, "address": "127.0.0.1", "version": "0.1.0",
                "runs": [], "slots": slots, "gpus": gpus})
            assert status == 200, answer
        got = requests.get(f"{cluster.url}/metrics", timeout=PATIENCE_S)
        assert got.status_code == 200 and len(got.content) > MIB
        assert got.text.count("muster_node_up{") == 451
        before = resident_bytes(cluster.server.pid)
        with contextlib.ExitStack() as stack:
            for _ in range(1000):
                s = stack.enter_context(socket.socket())
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                s.connect(("127.0.0.1", cluster.port))
                s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert s.recv(12) == b"HTTP/1.1 200"  # it was answered, and so were those before it
            grown = resident_bytes(cluster.server.pid) - before
            again = requests.get(f"{cluster.url}/metrics", timeout=PATIENCE_S)  # and so is who reads
            assert again.status_code == 200 and again.text.count("muster_node_up{") == 451
        assert grown < 200 * MIB, f"{grown >> 20} MiB where {1000 * len(got.content) >> 20} were asked for"
