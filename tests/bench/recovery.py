"""How soon a job of three nodes goes on after a rank hangs, a rank is killed, and a node is lost, part by part.

    python3 tests/bench/recovery.py [--quick] [--times N] [--only KIND,…] [--spare] [--warm]

Prints one JSON object a line, as every benchmark does, and a table of the parts on standard error. Three agents, each
with a memory of its own, train one model of 30 million parameters (quick: a small one), of which they keep snapshots in
memory; a fourth one is idle (--spare: kept as a spare; --warm: and on each device a started program waits for the next
attempt). Again and again a rank is stopped, a rank is killed, or a node
with its agent and all of its ranks. The parts: until the verdict; until every rank of the run has ended; until the next
attempt has its devices; until its processes are there; until its state is loaded; until its first step is done.
"""
import argparse
import contextlib
import glob
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests.bench.elastic import newest, seconds, the_spec  # noqa: E402
from tests.cluster import Cluster, wait_for  # noqa: E402

PARTS = ["verdict", "ended", "decided", "started", "loaded", "first_step"]
# Kind -> what is wanted: seconds of the fault to its verdict, of the verdict to the next step, and of both.
WANTED = {"hang": (6, 4, 10), "crash": (1, 4, 5), "node": (None, 4, 6)}
SNAPSHOT_EVERY = 5
SEED = int(os.environ.get("MUSTER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)


def row(metric, value, wanted):
    print(json.dumps({"bench": "recovery", "metric": metric, "value": round(value, 3), "unit": "s",
                      "reference": "the most that is wanted", "ratio": round(value / wanted, 3)}), flush=True)


def strike_rank(sig):
    def strike(cluster, job, node):
        os.kill(cluster.rank_pids(job, node)[0], sig)
    return strike


def strike_node(cluster, job, node):
    """Agent, shims and ranks of a node at once: nothing of it says a word."""
    pids = [cluster.agents[node].pid]
    for pid in cluster.alive():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as f, open(f"/proc/{pid}/cmdline", "rb") as line:
                if f"agent-{node}/".encode() in f.read() + line.read():
                    pids.append(pid)
    for pid in sorted(set(pids)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.agents[node].wait()


STRIKES = {"hang": strike_rank(signal.SIGSTOP), "crash": strike_rank(signal.SIGKILL), "node": strike_node}


def loaded_at(cluster, job, generation, node):
    """When rank 0 said that its state is loaded."""
    path = f"{cluster.agent_state(node)}/runs/{job}-g{generation}/rank-00000.log"
    with open(path, encoding="utf-8", errors="replace") as f:
        said = [line for line in f if "resumed from step" in line]
    return seconds(said[0].split(" ", 1)[0]) if said else None


def go_on(cluster, job, strike, draw):
    """Strike one of the job's nodes: the parts of what it takes until the first step of the next attempt, and the
    node."""
    before = cluster.job(job)
    folder = before["dir"]
    node = draw.choice([a["node"] for a in before["assignment"]])
    began = time.time()
    strike(cluster, job, node)

    def went_on():
        line, at = newest(folder)
        assert cluster.job(job)["state"] not in ("failed", "cancelled"), cluster.job(job)["outcome"]
        return line and line["generation"] > before["generation"] and at
    done = wait_for("the job to go on", went_on, every=0.01)
    after = wait_for("it to be known to run", lambda: (j := cluster.job(job))["state"] == "running" and j)
    marks = {}
    for e in cluster.events(job):
        if e["type"] == "state" and seconds(e["at"]) > began - 0.002:
            name = "failed" if e["cause"]["code"] == "rank-failed" else "ended" if e["to"] == e["from"] else e["to"]
            marks.setdefault(name, seconds(e["at"]))
    first = after["assignment"][0]["node"]
    loaded = loaded_at(cluster, job, after["generation"], first) or done
    at = [began, marks["failed"], marks.get("ended", marks["starting"]), marks["starting"], marks["running"], loaded,
          done]
    return [b - a for a, b in zip(at, at[1:])], node


def newest_snapshot(cluster, job, node):
    """The newest step of which the node holds its part; 0: none."""
    found = glob.glob(f"{cluster.memory(node)}/*/{job}/step-*/PARITY")
    return max((int(os.path.basename(os.path.dirname(path))[5:]) for path in found), default=0)


def steps_pass(cluster, job):
    """Wait until the attempt has done steps of its own, of which there are snapshots."""
    cluster.wait(job, "running")
    generation = cluster.job(job)["generation"]
    folder = cluster.job(job)["dir"]
    first = wait_for("a step", lambda: (n := newest(folder)[0]) and n["generation"] == generation and n)
    wait_for("steps", lambda: newest(folder)[0]["step"] >= first["step"] + 3 * SNAPSHOT_EVERY)
    wait_for("a snapshot", lambda: all(newest_snapshot(cluster, job, a["node"]) >= first["step"]
                                       for a in cluster.job(job)["assignment"]))


def new_job(cluster, folder, quick):
    spec = the_spec(folder, 1000000, 3, 3, quick)
    spec["retry"] = {"max": 1000}
    spec["checkpoint"]["memory_every_steps"] = SNAPSHOT_EVERY
    return cluster.submit(spec)["id"]


def end(cluster, job):
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


def measure(kinds, times, quick, spare):  # spare: "cpu=1" or the like; "": none
    draw = random.Random(SEED)
    took = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="muster-bench-", dir="/dev/shm") as memory, \
            tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, \
            Cluster(folder, devices="cpu:1", memory=memory,
                    server_args=["--slow-ratio", "0"] + (["--spare", spare] if spare else [])) as cluster:
        for name in ("n2", "n3", "n4"):
            cluster.start_agent(name, "cpu:1")
        cluster.wait_nodes(["n1", "n2", "n3", "n4"])
        for kind in kinds:
            job = new_job(cluster, folder, quick)
            for i in range(times):
                steps_pass(cluster, job)
                if "warm" in spare:
                    wait_for("started programs", lambda: len(waiting(cluster, job)) == 4)
                parts, node = go_on(cluster, job, STRIKES[kind], draw)
                took[kind].append(parts)
                if kind == "node":
                    cluster.start_agent(node)
                    cluster.wait_nodes([node])
                if i % 2 == 1:  # three nodes lost in a row would end the job
                    end(cluster, job)
                    job = new_job(cluster, folder, quick)
            end(cluster, job)
    return took


def waiting(cluster, job):
    """Processes of the nodes that have started, and are no rank yet."""
    ranks = {pid for node in cluster.agents for pid in cluster.rank_pids(job, node)}
    found = set()
    for pid in cluster.alive() - ranks:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as line:
            if line.read().startswith(b"muster-train\0--wait"):
                found.add(pid)
    return found


def p99(values):
    return sorted(values)[min(len(values) - 1, round(0.99 * len(values) - 0.5))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="a small model, two of each")
    parser.add_argument("--times", type=int, default=0, help="faults of each kind (20)")
    parser.add_argument("--only", default=",".join(STRIKES), help="kinds of them")
    parser.add_argument("--spare", action="store_true", help="keep the fourth node as a spare")
    parser.add_argument("--warm", action="store_true", help="the same, with started programs")
    args = parser.parse_args()
    print(f"MUSTER_SEED={SEED}", file=sys.stderr)
    took = measure(args.only.split(","), args.times or (2 if args.quick else 20), args.quick,
                   "cpu=1:warm" if args.warm else "cpu=1" if args.spare else "")
    print(f"{'':6}{'':5}" + "".join(f"{p:>11}" for p in PARTS) + f"{'total':>11}", file=sys.stderr)
    for kind, all_parts in took.items():
        wanted = WANTED[kind]
        sums = {"fault_to_verdict": [p[0] for p in all_parts], "verdict_to_step": [sum(p[1:]) for p in all_parts],
                "fault_to_step": [sum(p) for p in all_parts]}
        for what, (metric, values) in zip(wanted, sums.items()):
            if what:
                row(f"{kind}_{metric}_p50", statistics.median(values), what)
                row(f"{kind}_{metric}_p99", p99(values), what * (2 if metric == "fault_to_step" else 1))
        for name, of in (("p50", statistics.median), ("p99", p99)):
            print(f"{kind:6}{name:5}" + "".join(f"{of(v):11.3f}" for v in zip(*all_parts)) +
                  f"{of(sums['fault_to_step']):11.3f}", file=sys.stderr)


if __name__ == "__main__":
    main()
