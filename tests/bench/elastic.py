"""How long a job stands still when its devices change.

    python3 tests/bench/elastic.py [--quick] [--only rescale|move|tree|hetero|pair]

Prints one JSON object a line, as every benchmark does. A rescale is timed from the request that changes the job's
devices to the first line of metrics of its next run: the step under way, the hand-over, the start, the first step. The
median of each of these parts is told, too. A move is a rescale to another node, each node having a memory of its own.
"""
import argparse
import contextlib
import datetime
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests.cluster import BIN, Cluster, wait_for  # noqa: E402


def row(metric, value, unit, reference, ratio):
    print(json.dumps({"bench": "elastic", "metric": metric, "value": round(value, 4), "unit": unit,
                      "reference": reference, "ratio": round(ratio, 4)}), flush=True)


def the_spec(folder, steps, least, most, quick):
    """A GPT of 30 million parameters (quick: a small one) with steps short enough for a laptop's cores."""
    path = os.path.join(folder, "tokens.bin")
    vocab = 8192
    if not os.path.exists(path):
        with open(path, "wb") as f:
            f.write(b"".join(struct.pack("<H", (i * 2654435761 >> 7) % vocab) for i in range(40000)))
    size = {"layers": 2, "hidden": 64, "heads": 4} if quick else {"layers": 8, "hidden": 512, "heads": 8}
    return {"name": "elastic", "devices": {"min": least, "max": most},
            "train": {"model": {"family": "gpt2", "context": 16, "vocab": vocab, **size},
                      "data": {"path": path, "format": "tokens", "order": "sequential", "holdout": 0},
                      "batch": {"sequences": 4, "micro": 1}, "steps": steps, "eval": {"every_steps": 0},
                      "optimizer": {"lr": 1e-4}},
            "parallel": {"virtual_workers": 4}, "checkpoint": {"every_steps": 0, "keep": 2}}


def newest(folder):
    """The last whole line of the job's metrics, and when the file was written."""
    try:
        with open(os.path.join(folder, "metrics.jsonl"), "rb") as f:
            whole = f.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
            return (json.loads(whole), os.fstat(f.fileno()).st_mtime) if whole else (None, 0)
    except FileNotFoundError:
        return None, 0


@contextlib.contextmanager
def shared_memory():
    """A folder in memory, for what a job leaves to its next generation."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-", dir="/dev/shm") as folder:
        yield folder


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


PARTS = ["drain", "assign", "start", "restore", "first_step"]


def parts_of(cluster, job, generation, asked, ended, step_s):
    """How long each part of a rescale took: the step under way and what it leaves; the next assignment; processes; all
    until the first step begins; that step."""
    at = {e["to"] if e["cause"]["code"] != "drained" else "drained": seconds(e["at"]) for e in cluster.events(job)
          if e["type"] == "state" and e["generation"] >= generation - 1 and seconds(e["at"]) > asked - 0.001}
    marks = [asked, at["drained"], at["starting"], at["running"], ended - step_s, ended]
    return [b - a for a, b in zip(marks, marks[1:])]


def rescales(folder, rounds, quick):
    """Seconds from each change to the first step after it, of each of its parts, and the length of a step."""
    took, parts, steps = [], [], []
    with shared_memory() as memory, Cluster(folder, slots=3, memory=memory,
                                            server_args=["--hold", "0", "--round", "3600"]) as cluster:
        job = cluster.submit(the_spec(folder, 1000000, 1, 1, quick))["id"]
        where = cluster.job(job)["dir"]
        for i in range(rounds):
            devices = (2, 3, 1)[i % 3]
            first = wait_for(f"generation {i + 1}", lambda g=i + 1: (n := newest(where)[0]) and
                             n["generation"] == g and n, 120)
            steady = wait_for("two more steps", lambda s=first["step"]: (n := newest(where)[0])["step"] >= s + 2 and n,
                              120)
            steps.append(steady["step_ms"] / 1000)
            began = time.time()
            cluster.api("PATCH", f"/v1/jobs/{job}", {"devices": {"min": devices, "max": devices}})
            line, ended = wait_for(f"generation {i + 2}",
                                   lambda g=i + 2: (n := newest(where))[0]["generation"] == g and n, 120)
            took.append(ended - began)
            wait_for("it to be known to run", lambda: cluster.job(job)["state"] == "running", 30)
            parts.append(parts_of(cluster, job, i + 2, began, ended, line["step_ms"] / 1000))
        cluster.action(job, "cancel")
        cluster.wait(job, "cancelled", 60)
    return sorted(took), [statistics.median(p) for p in zip(*parts)], statistics.median(steps)


def moves(folder, rounds, quick, through_memory):
    """Seconds from each drain of the node that a job is on to its first step on the other, of each of its parts, and
    the length of a step. What is under way on disk is waited for, so that a move does not wait for that."""
    took, parts, phases, steps = [], [], [], []
    with shared_memory() as memory, Cluster(folder, slots=1, memory=memory,
                                            server_args=["--hold", "0", "--round", "3600"]) as cluster:
        cluster.start_agent("n2", "cpu:1")
        cluster.wait_nodes(["n1", "n2"])
        spec = the_spec(os.path.dirname(folder), 1000000, 1, 1, quick)
        spec["checkpoint"]["memory_every_steps"] = "auto" if through_memory else 0
        job = cluster.submit(spec)["id"]
        where = cluster.job(job)["dir"]
        for i in range(rounds):
            first = wait_for(f"generation {i + 1}", lambda g=i + 1: (n := newest(where)[0]) and
                             n["generation"] == g and n, 120)
            steady = wait_for("two more steps", lambda s=first["step"]: (n := newest(where)[0])["step"] >= s + 2 and n,
                              120)
            if i > 0 and through_memory:
                wait_for("the copy on disk", lambda s=first["step"]: any(
                    e["type"] == "checkpoint" and e["data"]["step"] >= s for e in cluster.events(job)), 120)
            steps.append(steady["step_ms"] / 1000)
            node = cluster.job(job)["assignment"][0]["node"]
            began = time.time()
            cluster.api("POST", f"/v1/nodes/{node}/drain")
            line, ended = wait_for(f"generation {i + 2}",
                                   lambda g=i + 2: (n := newest(where))[0]["generation"] == g and n, 120)
            took.append(ended - began)
            wait_for("it to be known to run", lambda: cluster.job(job)["state"] == "running", 30)
            parts.append(parts_of(cluster, job, i + 2, began, ended, line["step_ms"] / 1000))
            came = wait_for("it to be known from where", lambda n=i + 1: len(found := [
                e["data"] for e in cluster.events(job) if e["data"].get("type") == "resumed"]) == n and found, 30)[-1]
            assert came["source"] == ("peers" if through_memory else "disk"), came
            phases.append([came["seconds"], *(came["phases"][k] for k in ("look_s", "gather_s", "load_s"))])
            cluster.api("POST", f"/v1/nodes/{node}/undrain")
        cluster.action(job, "cancel")
        cluster.wait(job, "cancelled", 60)
    return (sorted(took), [statistics.median(p) for p in zip(*parts)],
            [statistics.median(p) for p in zip(*phases)], statistics.median(steps))


def small_spec(folder, name, workers, devices, classes=None):
    """A model whose steps are long on a small share of a processor, and whose gradients are short."""
    spec = the_spec(folder, 1000000, devices[0], devices[1], True)
    spec["name"] = name
    spec["train"]["model"].update(context=128)
    spec["train"]["batch"] = {"sequences": workers, "micro": 1}
    spec["parallel"]["virtual_workers"] = workers
    if classes:
        spec["devices"]["classes"] = classes
    return spec


def steps_of(where, generation=None):
    """Milliseconds of the steps so far, of one generation or all; the first two of a generation are left out."""
    with contextlib.suppress(FileNotFoundError):
        with open(os.path.join(where, "metrics.jsonl"), encoding="ascii") as f:
            lines = [json.loads(line) for line in f if line.endswith("\n")]
            return [line["step_ms"] for i, line in enumerate(lines)
                    if i > 1 and lines[i - 2]["generation"] == line["generation"]
                    and generation in (None, line["generation"])]
    return []


def step_ms(cluster, job, generation, n):
    """The median of n steps of a generation."""
    where = cluster.job(job)["dir"]
    return statistics.median(wait_for(f"{n} steps of {job}, generation {generation}",
                                      lambda: len(s := steps_of(where, generation)) >= n and s, 180)[:n])


def heterogeneous(folder, quick):
    """Steps a second on 2 fast and 2 slow devices of half the speed: laid by speed, laid evenly, and the sum of what
    the devices do alone. Each device is a share of a processor, small enough that shares are what limits them."""
    fast, workers, n = 0.08, 6 if quick else 24, 2 if quick else 5
    with shared_memory() as memory, Cluster(folder, devices=f"cpu:2=fast@{fast},cpu:2=slow@{fast / 2}", memory=memory,
                                            server_args=["--hold", "5" if quick else "25", "--round", "2"]) as cluster:
        alone = [cluster.submit(small_spec(folder, k, workers, (1, 1), [k]))["id"] for k in ("fast", "slow")]
        times = [step_ms(cluster, job, 1, n) for job in alone]
        for job in alone:
            cluster.action(job, "cancel")
            cluster.wait(job, "cancelled", 60)
        job = cluster.submit(small_spec(folder, "mixed", workers, (4, 4)))["id"]
        even = step_ms(cluster, job, 1, n)
        laid = step_ms(cluster, job, 2, n)
        cluster.action(job, "cancel")
        cluster.wait(job, "cancelled", 60)
    return 1000 / laid, 1000 / even, sum(2000 / t for t in times)


def train_on(cluster, jobs, seconds):
    """Let the jobs be at it for that long; one that ends before ends the benchmark."""
    until = time.monotonic() + seconds

    def passed():
        for job in jobs:
            state = cluster.job(job)["state"]
            assert state not in ("succeeded", "failed", "cancelled"), f"{job} has {state} before its time"
        return time.monotonic() >= until

    wait_for(f"{seconds:.0f} s of training", passed, seconds + 10, every=0.5)


def pair(folder, elastic, seconds_long):
    """Steps that two jobs do together while a node comes and goes, each in four devices at most."""
    spent = ["--hold", "2", "--round", "2"] if elastic else ["--policy", "fifo", "--round", "2"]
    with shared_memory() as memory, Cluster(folder, devices="cpu:2=c@0.08", memory=memory,
                                            server_args=spent) as cluster:
        cluster.start_agent("n2", "cpu:2=c@0.08")
        cluster.wait_nodes(["n1", "n2"])
        jobs = [cluster.submit(small_spec(folder, f"p{i}", 12, (1, 4) if elastic else (3, 3)))["id"] for i in range(2)]
        where = [cluster.job(job)["dir"] for job in jobs]
        for verb in ("drain", "undrain", None):
            train_on(cluster, jobs, seconds_long / 3)
            if verb:
                cluster.api("POST", f"/v1/nodes/n2/{verb}")
        done = sum(n["step"] + 1 for n, _ in map(newest, where) if n)
        for job in jobs:
            cluster.action(job, "cancel")
            cluster.wait(job, "cancelled", 60)
    return done


def tree_and_plain(folder, quick, context):
    """Step times of two replicas in alternating runs: a tree over 8 virtual workers, and one virtual worker a replica,
    which is plain: micro-batches added up in one buffer, then one reduce-scatter and all-gather over the replicas. A
    virtual worker has one sequence a step, so `context` is the work that pays for adding up its gradients."""
    times = {8: [], 2: []}
    for turn in range(1 if quick else 4):
        for workers, into in times.items():
            spec = the_spec(folder, 6 if quick else 10, 2, 2, quick)
            spec["train"]["batch"] = {"sequences": 8, "micro": 1}
            spec["train"]["model"].update({"layers": 4, "hidden": 256, "heads": 4, "context": context})
            spec["parallel"]["virtual_workers"] = workers
            where = os.path.join(folder, f"c{context}-v{workers}-{turn}")
            path = os.path.join(folder, "spec.json")
            with open(path, "w", encoding="ascii") as f:
                json.dump(spec, f)
            subprocess.run([f"{BIN}/muster", "run", path, "--devices", "2", "--dir", where], capture_output=True,
                           timeout=300, check=True)
            into += steps_of(where)
    return statistics.median(times[8]), statistics.median(times[2])


def bench_tree(folder, quick):
    for name, context in (("tree_vs_ring", 512), ("tree_vs_ring_64_tokens", 64)):
        tree, plain = tree_and_plain(folder, quick, context)
        reference = f"the same batch with one virtual worker a replica; {context} tokens a virtual worker"
        row(name, plain / tree, "1", reference, plain / tree)


def bench_rescale(folder, quick):
    took, parts, step = rescales(folder, 3 if quick else 24, quick)
    row("rescale_p50_s", statistics.median(took), "s", "a step of the same job", statistics.median(took) / step)
    worst = took[min(len(took) - 1, int(len(took) * 0.99))]
    row("rescale_p99_s", worst, "s", "a step of the same job", worst / step)
    for name, part in zip(PARTS, parts):
        row(f"rescale_{name}_s", part, "s", "a step of the same job", part / step)


def bench_move(folder, quick):
    n = 2 if quick else 12
    disk = statistics.median(moves(os.path.join(folder, "disk"), n, quick, False)[0])
    took, parts, phases, step = moves(os.path.join(folder, "memory"), n, quick, True)
    beside = "the same moves through disk"
    row("rescale_other_node_p50_s", statistics.median(took), "s", beside, statistics.median(took) / disk)
    worst = took[min(len(took) - 1, int(len(took) * 0.99))]
    row("rescale_other_node_p99_s", worst, "s", beside, worst / disk)
    for name, part in zip(PARTS, parts):
        row(f"rescale_other_node_{name}_s", part, "s", "a step of the same job", part / step)
    for name, part in zip(("resume", "look", "gather", "load"), phases):
        row(f"rescale_other_node_{name}_s", part, "s", "a step of the same job", part / step)


def bench_hetero(folder, quick):
    laid, even, alone = heterogeneous(folder, quick)
    row("hetero_efficiency", laid / alone, "1", "the devices' throughputs alone, summed", laid / alone)
    row("hetero_even_split", even / alone, "1", "the devices' throughputs alone, summed", even / alone)


def bench_pair(folder, quick):
    elastic, rigid = (pair(os.path.join(folder, kind), kind == "elastic", 24 if quick else 90)
                      for kind in ("elastic", "rigid"))
    row("elastic_vs_fifo", elastic / max(rigid, 1), "1", "the pair as gangs of three, first come first served",
        elastic / max(rigid, 1))


def main():
    benches = {"rescale": bench_rescale, "move": bench_move, "tree": bench_tree, "hetero": bench_hetero,
               "pair": bench_pair}
    ask = argparse.ArgumentParser()
    ask.add_argument("--quick", action="store_true")
    ask.add_argument("--only", choices=list(benches))
    told = ask.parse_args()
    for name, bench in benches.items():
        if told.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
                bench(folder, told.quick)


if __name__ == "__main__":
    main()
