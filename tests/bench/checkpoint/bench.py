"""How fast checkpoints are written and read, and what they cost training.

    bench.py --build BUILD [--quick] [--dir DIR] [--mib N] [--samples N] [--rows io,codec,torch,train,memory]
             [--model small|gpt2-124m]

One JSON object a line; ratio is value / reference, where the reference ran in turns with the value. Writes at most
6 GiB under DIR (a new folder there, removed at the end). write_direct_gbps is the I/O layer with both checksums from
aligned memory; write_staged_gbps the whole way of a writer, commit included."""
import argparse
import collections
import contextlib
import datetime
import glob
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from tests import specs  # noqa: E402
from tests.cluster import Cluster, wait_for  # noqa: E402

SKIP = 9  # steps until caches, pages and clocks are warm; a checkpoint is due after the next

# What is trained with and without checkpoints: model, sequences, micro-batch, tokens of each, steps.
TRAINED = {
    "small": ({"family": "gpt2", "layers": 6, "hidden": 384, "heads": 4, "context": 256, "vocab": 256}, 16, 8, 256, 50),
    "quick": ({"family": "gpt2", "layers": 4, "hidden": 256, "heads": 4, "context": 128, "vocab": 256}, 8, 4, 128, 25),
    "gpt2-124m": ({"preset": "gpt2-124m"}, 4, 2, 128, 30),  # seconds a step on two cores: some minutes a sample
}

# How a job comes to write with a codec.
HOW = {"none": "codec none, a job's default", "plane": "codec plane, which auto takes where the disk is slower"}

TORCH = """
import os, sys, time, torch
path, mib = sys.argv[1], int(sys.argv[2])
tensors = {f"layer.{i}.weight": torch.randn(4 << 20) * 0.02 for i in range(mib // 16)}
start = time.monotonic()
with open(path, "wb") as f:
    torch.save(tensors, f)
    f.flush()
    os.fsync(f.fileno())
print(time.monotonic() - start)
"""


def row(metric, value, unit, reference, ratio):
    print(json.dumps({"bench": "checkpoint", "metric": metric, "value": float(f"{value:.5g}"), "unit": unit,
                      "reference": reference, "ratio": None if ratio is None else float(f"{ratio:.4g}")}), flush=True)


def refuse(metric, why):
    print(f"bench checkpoint: {metric} is not measured: {why}", file=sys.stderr, flush=True)


def run(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"bench checkpoint: '{' '.join(argv[:3])}' failed: {done.stderr.strip()[-400:]}")
    return done.stdout


class Bench:
    def __init__(self, args, folder):
        self.folder = folder
        self.quick = args.quick
        self.build = args.build
        self.model = "quick" if args.quick else args.model
        self.samples = args.samples or (1 if args.quick else 5)
        self.mib = args.mib or (64 if args.quick else 512)
        self.free_mib = shutil.disk_usage(folder).free >> 20
        self.mib = max(16, min(self.mib, 1024, self.free_mib // 8) // 16 * 16)

    def measure(self, *argv):
        return json.loads(run(os.path.join(self.build, "bench", "checkpoint-measure"), *map(str, argv)))

    def fio(self, how):
        path = os.path.join(self.folder, "fio.bin")
        out = json.loads(run("fio", "--name=x", f"--rw={how}", f"--filename={path}", "--bs=4m", "--iodepth=8",
                             f"--size={self.mib}m", "--direct=1", "--ioengine=io_uring", "--end_fsync=1",
                             "--output-format=json"))
        job = out["jobs"][0]["write" if how == "write" else "read"]
        seconds = out["jobs"][0]["job_runtime"] / 1e3 if how == "write" else job["runtime"] / 1e3
        return job["io_bytes"] / max(seconds, 1e-3) / 1e9

    def written(self, how, codec="none"):
        """A fresh folder with one checkpoint, and how it was written."""
        folder = os.path.join(self.folder, how)
        shutil.rmtree(folder, ignore_errors=True)
        return folder, self.measure(how, folder, self.mib, codec)


def speed(got):
    return got["bytes"] / got["seconds"] / 1e9


def bench_io(b):
    seen = collections.defaultdict(list)
    for _ in range(b.samples):
        write = b.fio("write")
        read = b.fio("read")
        os.unlink(os.path.join(b.folder, "fio.bin"))
        direct = b.measure("direct", b.folder, b.mib)
        folder, staged = b.written("staged")
        load = b.measure("load", folder)
        shutil.rmtree(folder)
        folder, zerocopy = b.written("zerocopy")
        shutil.rmtree(folder)
        for name, value in (("fio_write", write), ("fio_read", read), ("direct", speed(direct)),
                            ("staged", speed(staged)), ("load", speed(load)),
                            ("cpu", staged["cpu_s"] / staged["bytes"] * 2**30),
                            ("zerocopy", speed(zerocopy)), ("zerocopy_ratio", speed(zerocopy) / write),
                            ("zerocopy_cpu", zerocopy["cpu_s"] / zerocopy["bytes"] * 2**30),
                            ("direct_ratio", speed(direct) / write), ("staged_ratio", speed(staged) / write),
                            ("load_ratio", speed(load) / read)):
            seen[name].append(value)
    mid = {name: statistics.median(values) for name, values in seen.items()}
    write = f"fio direct 4 MiB QD8 fsync, {b.mib} MiB: {mid['fio_write']:.2f} GB/s"
    read = f"fio direct 4 MiB QD8 read, {b.mib} MiB: {mid['fio_read']:.2f} GB/s"
    row("write_direct_gbps", mid["direct"], "GB/s", write, mid["direct_ratio"])
    row("write_staged_gbps", mid["staged"], "GB/s", write, mid["staged_ratio"])
    row("write_zerocopy_gbps", mid["zerocopy"], "GB/s", write, mid["zerocopy_ratio"])
    row("load_gbps", mid["load"], "GB/s", read, mid["load_ratio"])
    row("cpu_s_per_gib", mid["cpu"], "s/GiB", "0.35 s/GiB, uncompressed", mid["cpu"] / 0.35)
    row("cpu_zerocopy_s_per_gib", mid["zerocopy_cpu"], "s/GiB", "0.35 s/GiB, uncompressed", mid["zerocopy_cpu"] / 0.35)


def bench_codec(b):
    for esize, name, ratio, in ((4, "f32", 1.15), (2, "bf16", 1.45)):
        got = b.measure("codec", esize, 16 if b.quick else 128)
        row(f"exponent_split_{name}_ratio", got["ratio"], "x", f"{ratio}, on N(0, 0.02)", got["ratio"] / ratio)
        row(f"exponent_split_{name}_gbps", got["encode_gbps"], "GB/s", "1.2 GB/s a core", got["encode_gbps"] / 1.2)
        row(f"exponent_join_{name}_gbps", got["decode_gbps"], "GB/s", "2 GB/s a core", got["decode_gbps"] / 2)


def bench_torch(b):
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
        refuse("torch_save_speedup", "python3-torch is not installed")
        return
    if not b.quick:
        b.mib = max(16, min(1024, b.free_mib // 8) // 16 * 16)
    path = os.path.join(b.folder, "torch.pt")
    ours, theirs = {"none": [], "plane": []}, []
    for _ in range(b.samples):
        theirs.append(float(run(python, "-c", TORCH, path, str(b.mib))))
        os.unlink(path)
        for codec, seconds in ours.items():
            folder, staged = b.written("staged", codec)
            shutil.rmtree(folder)
            seconds.append(staged["seconds"])
    for codec, seconds in ours.items():
        name = "" if codec == "none" else f"_{codec}"
        row(f"durable{name}_s", statistics.median(seconds), "s",
            f"torch.save + fsync of the same {b.mib} MiB: {statistics.median(theirs):.2f} s; {HOW[codec]}",
            statistics.median(o / t for o, t in zip(seconds, theirs)))
        speedup = statistics.median(t / o for o, t in zip(seconds, theirs))
        row(f"torch_save{name}_speedup", speedup, "x", "6 x torch.save + fsync", speedup / 6)


def train_once(b, every_steps):
    """Wall seconds for the steps after the first ones; and the stall among them, as the trainer reports it."""
    model, sequences, micro, length, steps = TRAINED[b.model]
    folder = tempfile.mkdtemp(dir=b.folder)
    corpus = os.path.join(folder, "corpus.txt")
    with open(corpus, "w", encoding="ascii") as f:
        f.write("the quick brown fox jumps over the lazy dog and goes on to the next line of words\n" * 4000)
    spec = {"name": "bench", "devices": {"min": 1, "max": 1},
            "train": {"model": model, "data": {"path": corpus, "format": "text", "tokenizer": "bytes"},
                      "batch": {"sequences": sequences, "micro": micro, "length": length}, "steps": steps,
                      "eval": {"every_steps": 0}},
            "parallel": {"virtual_workers": 1},
            "checkpoint": {"every_steps": every_steps, "keep": 2}}
    path = os.path.join(folder, "spec.json")
    with open(path, "w", encoding="ascii") as f:
        json.dump(spec, f)
    job = os.path.join(folder, "job")
    seconds = clock_steps([os.path.join(b.build, "bin", "muster"), "run", path, "--devices", "1", "--dir", job],
                          os.path.join(job, "metrics.jsonl"), steps)
    with open(os.path.join(job, "metrics.jsonl"), encoding="ascii") as f:
        stall = sum(json.loads(line).get("stall_ms", 0) for line in list(f)[SKIP:])
    shutil.rmtree(folder)
    return seconds, stall / 1e3


def clock_steps(argv, metrics, steps):
    """Wall seconds from the line of step SKIP to that of the last: what comes between steps counts."""
    seen = {}
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            try:
                with open(metrics, "rb") as f:
                    lines = f.read().count(b"\n")
            except FileNotFoundError:
                lines = 0
            for at in (SKIP, steps):
                if lines >= at:
                    seen.setdefault(at, time.monotonic())
            try:
                process.wait(0.005)
            except subprocess.TimeoutExpired:
                pass
        if process.returncode or SKIP not in seen or steps not in seen:
            sys.exit(f"bench checkpoint: muster run failed: {process.stderr.read().strip()[-400:]}")
    return seen[steps] - seen[SKIP]


def bench_train(b):
    if not os.access(os.path.join(b.build, "bin", "muster-train"), os.X_OK):
        refuse("train_loss_share", f"there is no {b.build}/bin/muster-train: make all")
        return
    steps = TRAINED[b.model][-1]
    never = steps + 10
    lost, stall = [], []
    for turn in range(b.samples):
        took = {every: train_once(b, every) for every in ((10, never) if turn % 2 else (never, 10))}
        lost.append(1 - took[never][0] / took[10][0])
        stall.append(took[10][1] / took[10][0])
    row("train_loss_share", statistics.median(lost), "share of throughput",
        f"the same {steps} steps of {b.model} without checkpoints, in turns; wanted below 0.02",
        statistics.median(lost) / 0.02)
    row("train_stall_share", statistics.median(stall), "share of time", "wanted below 0.02",
        statistics.median(stall) / 0.02)


LOST_AFTER_S = 2  # of silence, to be given up; the default is 120


def snapshots(cluster, job):
    """Nodes that have a committed snapshot."""
    return [name for name in cluster.agents
            if any(glob.glob(os.path.join(cluster.memory(name), "muster-*", job, "step-*", what))
                   for what in ("MANIFEST", "PARITY"))]


def kill_rank(cluster, job):
    os.kill(cluster.rank_pids(job)[-1], signal.SIGKILL)


def lose_node(cluster, job):
    """The last node: its agent, its rank, its memory."""
    name = max(a["node"] for a in cluster.job(job)["assignment"])
    pids = cluster.rank_pids(job, name)
    cluster.kill_agent(name)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(cluster.memory(name))


def recover_once(b, nodes, strike):
    """Seconds from the strike to the job's next step, under a cluster of so many nodes; its phases; how it resumed."""
    folder = tempfile.mkdtemp(dir=b.folder)
    corpus = specs.write_corpus(os.path.join(folder, "corpus.txt"))
    spec = specs.train(corpus, steps=100000, devices=2, every_steps=0, virtual_workers=2)
    layers, hidden = (4, 128) if b.quick else (6, 640)  # 30M parameters
    spec["train"]["model"] |= {"layers": layers, "hidden": hidden, "heads": hidden // 64, "context": 32}
    spec["train"]["batch"] = {"sequences": 2, "micro": 1}
    spec["checkpoint"]["memory_every_steps"] = 5
    lost = ["--unknown-after", "1", "--lost-after", str(LOST_AFTER_S)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, \
            Cluster(folder, slots=0, memory=memory, server_args=lost) as cluster:
        names = [f"n{i + 1}" for i in range(nodes)]
        for name in names:
            cluster.start_agent(name, "cpu:2" if nodes == 1 else "cpu:1")
        cluster.wait_nodes(names)
        job = cluster.submit(spec)["id"]
        metrics = os.path.join(cluster.job(job)["dir"], "metrics.jsonl")

        def generation():
            with contextlib.suppress(OSError, IndexError, ValueError), open(metrics, encoding="ascii") as f:
                return json.loads(f.read().splitlines()[-1])["generation"]
            return 0

        wait_for("a snapshot", lambda: len(snapshots(cluster, job)) == (1 if nodes == 1 else 2), 120)
        killed, wall = time.monotonic(), time.time()
        strike(cluster, job)
        wait_for("the next step", lambda: generation() > 1, 60, every=0.002)
        recovered = time.monotonic() - killed
        resumed = wait_for("its event", lambda: [e["data"] for e in cluster.events(job)
                                                 if e["data"].get("type") == "resumed"], 30)
        phases = {}
        for event in cluster.events(job):
            name = event["data"].get("type") or event["to"]
            seconds = datetime.datetime.fromisoformat(event["at"].replace("Z", "+00:00")).timestamp() - wall
            if seconds > 0 and name in ("recovering", "starting", "running", "resumed"):
                phases.setdefault(name, round(seconds, 3))
        cluster.request("POST", f"/v1/jobs/{job}/cancel")
    shutil.rmtree(folder)
    assert len(resumed) == 1 and resumed[0]["tier"] == "memory", resumed
    return recovered, phases, resumed[0]


def bench_memory(b):
    if not os.access(os.path.join(b.build, "bin", "musterd"), os.X_OK):
        refuse("recover_memory_s", f"there is no {b.build}/bin/musterd: make all")
        return
    for metric, nodes, strike, words, wanted_s in (
            ("recover_memory_s", 1, kill_rank, "2 s from kill -9 of a rank", 2),
            ("recover_parity_s", 3, lose_node,
             f"{LOST_AFTER_S} s of silence until a node is given up, and 2 s, from its loss", LOST_AFTER_S + 2)):
        got = sorted((recover_once(b, nodes, strike) for _ in range(b.samples)), key=lambda x: x[0])
        recovered, phases, resumed = got[len(got) // 2]
        row(metric, recovered, "s", f"{words} to the next step; after it: " +
            ", ".join(f"{name} {seconds} s" for name, seconds in phases.items()) +
            f"; of these resuming from {resumed['source']} {resumed['seconds']:.3f} s: " +
            ", ".join(f"{name[:-2]} {s:.3f} s" for name, s in resumed["phases"].items()), recovered / wanted_s)


PARTS = {"io": bench_io, "codec": bench_codec, "torch": bench_torch, "train": bench_train, "memory": bench_memory}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--dir", default=None, help="on the disk to measure; default: the build folder")
    p.add_argument("--mib", type=int, default=0)
    p.add_argument("--samples", type=int, default=0, help="of each row; default: 5, or 1 with --quick")
    p.add_argument("--rows", default=",".join(PARTS))
    p.add_argument("--model", default="small", choices=[m for m in TRAINED if m != "quick"],
                   help="which the train rows are of")
    args = p.parse_args()
    for part in args.rows.split(","):
        if part not in PARTS:
            sys.exit(f"bench checkpoint: --rows '{part}': want some of {','.join(PARTS)}")
    folder = tempfile.mkdtemp(prefix="bench-checkpoint-", dir=args.dir or args.build)
    began = time.monotonic()
    try:
        for part in args.rows.split(","):
            PARTS[part](Bench(args, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"bench checkpoint: {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
