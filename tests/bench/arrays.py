#!/usr/bin/env python3
"""bench arrays - what an array of 100,000 tasks takes: the time of its submit, and memory of the server and its store.

Run from the repository's root: python3 -m tests.bench.arrays. Each case has a server of its own without nodes; beside
it stands a submit of a single job to the same server."""
import json
import re
import statistics
import tempfile
import time

from tests import specs
from tests.cluster import Cluster, wait_for

TASKS = 100000
TIMES = 9
CASES = {
    "one job": {},
    "count": {"array": {"count": TASKS}},
    "index": {"array": {"index": f"0-{2 * TASKS - 2}:2"}},
    "matrix": {"array": {"matrix": {"lr": [i / 1000 for i in range(1, 1001)], "seed": list(range(100))}}},
    "random": {"array": {"count": TASKS, "search": {"method": "random"}, "ranges": {"lr": {"min": 1e-5, "max": 1.0}}}},
}


def memory_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) / 1024


def measure(case, times=TIMES):
    with tempfile.TemporaryDirectory() as folder, Cluster(folder, slots=1) as cluster:
        cluster.kill_agent()
        cluster.submit(specs.command("true"))
        took, server, redis = [], [], []
        for i in range(times):
            before = memory_mib(cluster.server.pid), memory_mib(cluster.redis_pid())
            began = time.monotonic()
            job = cluster.submit(specs.command(f"echo ${{{{index}}}} {i}" if case else "true", **case))["id"]
            took.append((time.monotonic() - began) * 1000)
            if case:
                wait_for("the first tasks", lambda job=job: cluster.job(job)["array"]["waiting"][:1] != "0")
            server.append(memory_mib(cluster.server.pid) - before[0])
            redis.append(memory_mib(cluster.redis_pid()) - before[1])
            cluster.action(job, "cancel")
        return {"submit_ms": {"median": round(statistics.median(took), 1), "worst": round(max(took), 1)},
                "server_mib": {"first": round(server[0], 2), "median": round(statistics.median(server), 2)},
                "redis_mib": {"first": round(redis[0], 2), "median": round(statistics.median(redis), 2)}}


if __name__ == "__main__":
    for name, case in CASES.items():
        print(json.dumps({"case": name, **measure(case)}), flush=True)
