"""How soon a job of three nodes goes on after one of them is lost, from memory or parity.

    python3 tests/bench/lost_node.py [--quick]

Prints one JSON object a line, as every benchmark does. Three agents, each with a memory of its own, train one model of
30 million parameters (quick: a small one); a fourth one is idle. One of the three is killed with all of its ranks,
again and again; timed is from the kill to the first line of metrics of the next attempt. The reference is what the same
job takes from the kill of one rank, whose node says so at once.
"""
import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests.bench.elastic import newest, the_spec  # noqa: E402
from tests.cluster import Cluster, wait_for  # noqa: E402


def row(metric, value, reference):
    print(json.dumps({"bench": "lost_node", "metric": metric, "value": round(value, 3), "unit": "s",
                      "reference": "a rank is killed, its node lives", "ratio": round(value / reference, 3)}),
          flush=True)


def kill_rank(cluster, job, node):
    os.kill(cluster.rank_pids(job, node)[0], signal.SIGKILL)


def kill_node(cluster, job, node):
    """Agent, shims and ranks of a node at once: nothing of it says a word."""
    pids = [cluster.agents[node].pid]
    for pid in cluster.alive():
        try:
            with open(f"/proc/{pid}/environ", "rb") as f, open(f"/proc/{pid}/cmdline", "rb") as line:
                whole = f.read() + line.read()
            if f"agent-{node}/".encode() in whole:
                pids.append(pid)
        except OSError:
            pass
    for pid in sorted(set(pids)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    cluster.agents[node].wait()


def go_on_s(cluster, job, blow):
    """Seconds from a blow at one of the job's nodes to the first step of the next attempt."""
    before = cluster.job(job)
    folder = f"{cluster.jobs_dir}/{job}"
    node = before["assignment"][-1]["node"]
    began = time.time()
    blow(cluster, job, node)

    def went_on():
        found = cluster.job(job)
        assert found["state"] not in ("failed", "cancelled"), found["outcome"]
        return found["generation"] > before["generation"] and found["state"] == "running" and \
            newest(folder)[1] > began + 0.2
    wait_for("the job to go on", went_on)
    return newest(folder)[1] - began, node


def measure(quick):
    times = {"rank": [], "node": []}
    with tempfile.TemporaryDirectory(prefix="muster-bench-", dir="/dev/shm") as memory, \
            tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, \
            Cluster(folder, devices="cpu:1", memory=memory) as cluster:
        for name in ("n2", "n3", "n4"):
            cluster.start_agent(name, "cpu:1")
        cluster.wait_nodes(["n1", "n2", "n3", "n4"])
        spec = the_spec(folder, 1000000, 3, 3, quick)
        spec["parallel"]["virtual_workers"] = 4
        spec["retry"] = {"max": 1000}
        spec["checkpoint"]["memory_every_steps"] = 5
        job = cluster.submit(spec)["id"]
        for kind, blow, n in (("rank", kill_rank, 2 if quick else 5), ("node", kill_node, 2 if quick else 7)):
            for _ in range(n):
                cluster.wait(job, "running")
                first = newest(f"{cluster.jobs_dir}/{job}")[0]
                wait_for("steps", lambda: (newest(f"{cluster.jobs_dir}/{job}")[0] or {}).get("step", 0) >=
                         (first or {}).get("step", 0) + 12)
                seconds, node = go_on_s(cluster, job, blow)
                times[kind].append(seconds)
                if kind == "node":
                    cluster.start_agent(node)
                    cluster.wait_nodes([node])
                if kind == "node" and len(times[kind]) % 2 == 0:  # three nodes lost in a row would end the job
                    cluster.action(job, "cancel")
                    cluster.wait(job, "cancelled")
                    job = cluster.submit(spec)["id"]
        cluster.action(job, "cancel")
        cluster.wait(job, "cancelled")
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="a small model, two of each")
    times = measure(parser.parse_args().quick)
    reference = statistics.median(times["rank"])
    row("lost_node_to_step_p50", statistics.median(times["node"]), reference)
    row("lost_node_to_step_worst", max(times["node"]), reference)


if __name__ == "__main__":
    main()
