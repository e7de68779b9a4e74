#!/usr/bin/env python3
"""bench scale - what nodes, large gangs, starts, ended jobs, followers and dashboards cost the server and its Redis.

    make bench-scale                          every part at its full size, some ten minutes
    make bench-scale BENCH_FLAGS=--quick      smaller ones
    python3 -m tests.bench.scale --only nodes,gang [--nodes 1000,4000] [--programs OTHER/bin]

Prints one JSON object a line. Agents are played by tests/bench/swarm.c, so each report and long-poll is a real request
over the loopback; both share the machine with the server. So each part also reports `cpu`, the seconds of a processor
that the server and its Redis took, which say the same on a machine that does other things meanwhile. --programs
measures another build by the same script, to be run in turns beside this one. Two connections a node are two
descriptors here and two there: parts that do not fit below the limit (ulimit -n) say so and are left out."""
import argparse
import contextlib
import json
import os
import queue
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from tests import cluster as clusters
from tests import specs
from tests.bench.arrays import cpu_ms, memory_mib
from tests.cluster import Cluster, wait_for

SWARM = os.path.join(os.path.dirname(clusters.BIN), "bench", "swarm")
SLOTS = 8
PATIENCE_S = 240
IDLE_S = 10
SETTLE_S = 2  # before a window is measured: what begins with registrations or submits is part of it no more
COPY = """
for job = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  redis.call('COPY', 'muster:job:1', 'muster:job:' .. job)
  redis.call('COPY', 'muster:job:1:events', 'muster:job:' .. job .. ':events')
  redis.call('HSET', 'muster:job:' .. job, 'rec',
             (string.gsub(redis.call('HGET', 'muster:job:1', 'rec'), '"id":"?j?1"?', '"id":' .. job)))
  redis.call('ZADD', 'muster:jobs:ended', job, job)
  redis.call('HSET', 'muster:jobs:catalog', job, redis.call('HGET', 'muster:jobs:catalog', '1'))
end
"""


def say(part, **found):
    print(json.dumps({"bench": "scale", "part": part, **{
        key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()}}), flush=True)


class Swarm:
    """The program, and what it has said so far."""

    def __init__(self, cluster, nodes, slots=SLOTS, run_ms=0, key_bytes=0):
        self.process = subprocess.Popen(
            [SWARM, str(cluster.port), f"{cluster.state}/agent-token", str(nodes), str(slots), str(run_ms),
             str(key_bytes)], stdout=subprocess.PIPE, text=True)
        self.said, self.count = queue.Queue(), {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            news = json.loads(line)
            if news["what"] == "count":
                self.count = news
            else:
                self.said.put(news)
        self.said.put(None)

    def wait(self, what):
        """When it happened, on time.monotonic()."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            news = self.said.get(timeout=max(0, deadline - time.monotonic()))
            assert news, "the swarm has ended"
            if news["what"] == what:
                return news["at"]

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        ended = self.process.poll()
        self.process.kill()
        self.process.wait()
        assert ended is None or failure[0], f"the swarm has ended with {ended}"


class Costs:
    """Processor time of the server and of its Redis since the beginning, and their memory."""

    def __init__(self, cluster):
        self.pids = cluster.server.pid, cluster.redis_pid()
        self.began = [cpu_ms(pid) for pid in self.pids]
        self.at = time.monotonic()

    def found(self):
        server, redis = ((cpu_ms(pid) - began) / 1000 for pid, began in zip(self.pids, self.began))
        return {"cpu_s": server, "redis_cpu_s": redis, "wall_s": time.monotonic() - self.at,
                "server_mib": memory_mib(self.pids[0]), "redis_mib": memory_mib(self.pids[1])}


@contextlib.contextmanager
def bare(*server_args):
    with tempfile.TemporaryDirectory() as folder, Cluster(folder, slots=0, server_args=server_args) as cluster:
        cluster.described = False
        yield cluster


def times(many):
    ordered = sorted(many)
    return {"p50_ms": round(statistics.median(ordered) * 1000, 2),
            "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 2)}


def timed_submits(cluster, n):
    took = []
    for _ in range(n):
        began = time.monotonic()
        cluster.submit(specs.command("true"))
        took.append(time.monotonic() - began)
    return times(took)


def nodes(sizes):
    most = (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 600) // 2
    for n in sizes:
        if n > most:
            say("nodes", nodes=n, left_out=f"the limit of descriptors here allows {most}")
            continue
        with bare() as cluster:
            began = Costs(cluster)
            with Swarm(cluster, n) as swarm:
                registered = swarm.wait("registered") - began.at
                joining = began.found()["cpu_s"]
                time.sleep(SETTLE_S)
                idle, before = Costs(cluster), swarm.count["reports"]
                time.sleep(IDLE_S)
                found = idle.found()
                reports = (swarm.count["reports"] - before) / IDLE_S
                submits = timed_submits(cluster, 200)
                cluster.kill_server()
                at = time.monotonic()
                cluster.start_server(PATIENCE_S)
                again = Costs(cluster)
                back = swarm.wait("registered") - at
                say("nodes", nodes=n, slots=n * SLOTS, registered_s=registered, registered_cpu_s=joining,
                    idle_cores=found["cpu_s"] / found["wall_s"], redis_cores=found["redis_cpu_s"] / found["wall_s"],
                    reports_per_s=reports, server_mib=found["server_mib"], redis_mib=found["redis_mib"],
                    submit_p50_ms=submits["p50_ms"], submit_p99_ms=submits["p99_ms"], back_after_restart_s=back,
                    back_cpu_s=again.found()["cpu_s"])


def gang(sizes):
    for ranks in sizes:
        with bare() as cluster, Swarm(cluster, ranks // SLOTS, key_bytes=300) as swarm:
            swarm.wait("registered")
            time.sleep(SETTLE_S)
            costs, before = Costs(cluster), memory_mib(cluster.server.pid)
            spec = {**specs.command("true"), "devices": {"min": ranks, "max": ranks}}
            status, answer = cluster.request("POST", "/v1/jobs", spec)
            if status != 201:
                say("gang", ranks=ranks, left_out=answer["errors"][0]["message"])
                continue
            told = swarm.wait("told") - costs.at
            cluster.wait(answer["id"], ["running"], PATIENCE_S)
            running = time.monotonic() - costs.at
            met = swarm.wait("met") - costs.at
            found = costs.found()
            say("gang", ranks=ranks, told_s=told, running_s=running, met_s=met, cpu_s=found["cpu_s"],
                more_mib=found["server_mib"] - before)


def starts(jobs):
    with bare() as cluster:
        cluster.api("POST", "/v1/jobs", {**specs.command("true"), "array": {"count": jobs}})
        single = jobs // 4
        for _ in range(single):
            cluster.submit(specs.command("true"))
        costs = Costs(cluster)
        with Swarm(cluster, 1000) as swarm:
            swarm.wait("registered")
            began = Costs(cluster)
            wanted = min(8000, jobs + single)
            wait_for("all starts", lambda: swarm.count.get("starts", 0) >= wanted, PATIENCE_S)
            found = began.found()
            say("starts", jobs=wanted, starts_per_s=wanted / found["wall_s"],
                starts_per_cpu_s=wanted / costs.found()["cpu_s"])


def redis(path, *words):
    """One command; the reply's first line."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.sendall(b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(
            lambda word: str(word).encode(), words))]))
        return s.makefile("rb").readline().strip()


def ended(count):
    """Copies of one job that has ended, made in the store, which the server then reads at its start."""
    with bare("--keep-ended", str(2 * count)) as cluster, Swarm(cluster, 1, run_ms=1) as swarm:
        swarm.wait("registered")
        cluster.submit(specs.command("true"))
        wait_for("its end", lambda: cluster.job("j1")["state"] == "succeeded", PATIENCE_S)
        path = os.path.join(cluster.state, "redis", "redis.sock")
        none = timed_submits(cluster, 200)
        cluster.stop_server()
        store = subprocess.Popen(["redis-server", "--dir", os.path.dirname(path), "--port", "0", "--unixsocket", path,
                                  "--appendonly", "yes", "--save", "", "--loglevel", "warning"])
        wait_for("Redis", lambda: os.path.exists(path) and redis(path, "PING") == b"+PONG")
        for first in range(1000, count + 1000, 5000):
            assert not redis(path, "EVAL", COPY, 0, first, first + 4999).startswith(b"-")
        redis(path, "HSET", "muster:meta", "next_job", count + 10000)
        redis(path, "SHUTDOWN")
        store.wait()
        at = time.monotonic()
        cluster.start_server(PATIENCE_S)
        restart = time.monotonic() - at
        costs = Costs(cluster)
        found, lists = costs.found(), {}
        for name, filters in {"none": "", "state": "state=succeeded", "failed": "state=failed",
                              "project": "project=default", "name": "name~=nothing", "label": "label=a%3Db"}.items():
            took = []
            for _ in range(5):
                began = time.monotonic()
                cluster.api("GET", f"/v1/jobs?limit=50&{filters}")
                took.append(time.monotonic() - began)
            lists[name] = round(statistics.median(took) * 1000, 2)
        say("ended", jobs=count, ready_s=restart, server_mib=found["server_mib"], redis_mib=found["redis_mib"],
            list_ms=lists, submit=timed_submits(cluster, 200), submit_with_none=none)


def follow(cluster, n, path):
    head = (f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {cluster.token()}\r\n"
            "Accept: text/event-stream\r\n\r\n").encode()
    followers = []
    for _ in range(n):
        one = socket.create_connection(("127.0.0.1", cluster.port))
        one.sendall(head)
        followers.append(one)
    answers = [one.recv(16) for one in followers]
    return followers, sum(answer.startswith(b"HTTP/1.1 200") for answer in answers)


def followers(n):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with bare("--user-streams", str(n)) as cluster:
        before = memory_mib(cluster.server.pid)
        held, good = follow(cluster, n, "/v1/events")
        costs = Costs(cluster)
        for _ in range(10):
            cluster.submit(specs.command("true"))
        time.sleep(SETTLE_S)
        found = costs.found()
        say("followers", wanted=n, followed=good, more_mib=found["server_mib"] - before, submits_cpu_s=found["cpu_s"])
        for one in held:
            one.close()


def dashboards(n, count):
    """What ten that watch the whole cluster add, with ten short jobs a second."""
    with bare() as cluster, Swarm(cluster, n, run_ms=2000) as swarm:
        swarm.wait("registered")
        time.sleep(SETTLE_S)
        cores, received = [], 0
        for watching in (0, count):
            held, _ = follow(cluster, watching, "/v1/events?changes=1")
            stop = threading.Event()

            def drain(held=held, stop=stop):
                nonlocal received
                while not stop.is_set():
                    for one in held:
                        one.settimeout(0.05)
                        with contextlib.suppress(TimeoutError):
                            received += len(one.recv(1 << 20))
            thread = threading.Thread(target=drain)
            if watching:
                thread.start()
            costs = Costs(cluster)
            for k in range(IDLE_S * 10):
                time.sleep(max(0, costs.at + k / 10 - time.monotonic()))
                cluster.submit(specs.command("true"))
            found = costs.found()
            cores.append(found["cpu_s"] / found["wall_s"])
            stop.set()
            if watching:
                thread.join()
            for one in held:
                one.close()
        say("dashboards", nodes=n, dashboards=count, cores_without=cores[0], cores_with=cores[1],
            cores_of_dashboards=cores[1] - cores[0], received_mib_per_s=received / IDLE_S / 2**20)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="smaller clusters")
    parser.add_argument("--only", help="parts, separated by commas")
    parser.add_argument("--nodes", help="sizes of clusters, separated by commas")
    parser.add_argument("--programs", help="folder of another build's programs")
    o = parser.parse_args()
    if o.programs:
        clusters.BIN = os.path.abspath(o.programs)
    sizes = [int(n) for n in re.findall(r"\d+", o.nodes)] if o.nodes else [500] if o.quick else [1000, 4000, 10000]
    parts = {"nodes": lambda: nodes(sizes),
             "gang": lambda: gang([512] if o.quick else [1024, 4096]),
             "starts": lambda: starts(2000 if o.quick else 6400),
             "ended": lambda: ended(20000 if o.quick else 1000000),
             "followers": lambda: followers(500 if o.quick else 10000),
             "dashboards": lambda: dashboards(500 if o.quick else 3000, 10)}
    for name in o.only.split(",") if o.only else parts:
        parts[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
