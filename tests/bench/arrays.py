#!/usr/bin/env python3
"""bench arrays - what an array of 100,000 tasks takes: the time of its submit, and memory of the server and its store.

Run from the repository's root: python3 -m tests.bench.arrays [--quick]. Each case has a server of its own without
nodes; beside it stands a submit of a single job to the same server. cpu_ms is what server and store computed for a
submit: a loaded machine makes it hardly longer. Exits with 1 where 100,000 tasks take more than 200 ms or 10 MiB."""
import argparse
import contextlib
import glob
import json
import re
import statistics
import sys
import tempfile
import time

from tests import specs
from tests.cluster import Cluster, wait_for

TASKS = 100000
TIMES, QUICK_TIMES = 9, 3
MOST_MS, MOST_MIB = 200, 10
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


def cpu_ms(*pids):
    """What the threads of these processes have computed so far."""
    total = 0
    for path in (path for pid in pids for path in glob.glob(f"/proc/{pid}/task/*/schedstat")):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as f:  # a thread may end
            total += int(f.read().split()[0])
    return total / 1e6


def measure(case, times):
    with tempfile.TemporaryDirectory() as folder, Cluster(folder, slots=1) as cluster:
        cluster.kill_agent()
        cluster.submit(specs.command("true"))
        took, cpu, server, redis = [], [], [], []
        pids = cluster.server.pid, cluster.redis_pid()
        for i in range(times):
            before = memory_mib(pids[0]), memory_mib(pids[1])
            began, computed = time.monotonic(), cpu_ms(*pids)
            job = cluster.submit(specs.command(f"echo ${{{{index}}}} {i}" if case else "true", **case))["id"]
            took.append((time.monotonic() - began) * 1000)
            cpu.append(cpu_ms(*pids) - computed)
            if case:
                wait_for("the first tasks", lambda job=job: cluster.job(job)["array"]["waiting"][:1] != "0")
            server.append(memory_mib(pids[0]) - before[0])
            redis.append(memory_mib(pids[1]) - before[1])
            cluster.action(job, "cancel")
        return {"submit_ms": {"median": round(statistics.median(took), 1), "worst": round(max(took), 1)},
                "cpu_ms": round(statistics.median(cpu), 1),
                "server_mib": {"first": round(server[0], 2), "median": round(statistics.median(server), 2)},
                "redis_mib": {"first": round(redis[0], 2), "median": round(statistics.median(redis), 2)}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="the first array alone, and it less often")
    quick = parser.parse_args().quick
    good = True
    for name, case in list(CASES.items())[:2 if quick else None]:
        found = measure(case, QUICK_TIMES if quick else TIMES)
        print(json.dumps({"case": name, **found}), flush=True)
        good = good and found["submit_ms"]["median"] < MOST_MS and found["server_mib"]["first"] < MOST_MIB
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
