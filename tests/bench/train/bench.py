"""How fast training is, beside what the machine's matrix products and PyTorch allow.

    bench.py [--quick] [--rows gemm,torch,layouts,start,files] [--sizes small,gpt2_124m] [--rounds N] [--steps N]

Real muster-train ranks, started as an agent starts them. One JSON object a line; ratio is value / reference. Sides take
turns, `rounds` times; each time its first steps are left out and a median taken, and the median of the rounds counts.

  *_vs_gemm   tokens/s over the bound: the rate of the model's own matrix products (matrix.c: medians, measured before
              and after each run) over its flops a token, 6 (12 L C^2 + V C) + 6 L C T; beside it in words the rate of
              their fastest calls
  *_vs_torch  tokens/s over PyTorch's (torch_steps.py)
  small_dp2, small_tp2, small_pp2   two ranks of one thread over one rank of two
  start_to_first_step_s             from exec of a fresh 124M job's rank to the begin of its first step
  first_step_vs_next                its first step, which takes most of its memory, over the next
  peak_rss_vs_plan                  resident memory at its highest over the planned
  files_step                        a step of 124M with memory.optimizer files, over the larger of a step without and of
                                    what fio takes for 24 bytes a parameter, half read and half written
  files_peak_rss_vs_plan            as peak_rss_vs_plan, of that

MUSTER_BENCH_STEPS and MUSTER_BENCH_ROUNDS do as --steps and --rounds; MUSTER_BENCH_BLAS is a BLAS for PyTorch."""
import argparse
import array
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
from tests.bench.fast_blas import fast_blas  # noqa: E402
from tests.integration import ranks  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"
THREADS, LENGTH, SEQUENCES = 2, 256, 4
TOKENS = LENGTH * SEQUENCES
HEAD_ROWS = 512  # rows of logits that the trainer makes at once
SIZES = {"small": dict(layers=6, hidden=384, heads=6, vocab=256), "gpt2_124m": dict(layers=12, hidden=768, heads=12,
                                                                                  vocab=50257)}
STEPS = {"small": 12, "gpt2_124m": 4}  # of a run; the first SKIP do not count
SKIP = {"small": 3, "gpt2_124m": 1}
WAIT_S = 300


def row(metric, value, unit, reference, ratio):
    print(json.dumps({"bench": "train", "metric": metric, "value": float(f"{value:.5g}"), "unit": unit,
                      "reference": reference, "ratio": float(f"{ratio:.4g}")}), flush=True)


def refuse(metric, why):
    print(f"bench train: {metric} is not measured: {why}", file=sys.stderr, flush=True)


def flops_per_token(m):
    return 6 * (12 * m["layers"] * m["hidden"] ** 2 + m["vocab"] * m["hidden"]) + 6 * m["layers"] * m["hidden"] * LENGTH


def processor_has(flag):
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        return re.search(rf"^flags.*\b{flag}\b", f.read(), re.M) is not None


def spec(folder, model, precision, micro, leaves, optimizer="device"):
    tokens = os.path.join(folder, "tokens.bin")
    if not os.path.exists(tokens):
        rng = random.Random(1)
        with open(tokens, "wb") as f:
            array.array("H", [rng.randrange(model["vocab"]) for _ in range(64 * LENGTH + 1)]).tofile(f)
    return {"name": "bench", "devices": {"min": 1, "max": 2},
            "train": {"model": dict(model, family="gpt2", context=1024), "init": {"seed": 1},
                      "data": {"path": tokens, "format": "tokens", "order": "sequential", "holdout": 0},
                      "batch": {"sequences": SEQUENCES, "micro": micro, "length": LENGTH}, "steps": 100000,
                      "precision": precision, "eval": {"every_steps": 0}},
            "parallel": {"virtual_workers": leaves}, "memory": {"optimizer": optimizer},
            "checkpoint": {"every_steps": 0}}


class Went:
    """What is known of a run that was stopped after some steps."""

    def __init__(self, run, skip, start_s):
        lines = run.metrics()
        self.start_s = start_s - lines[0]["step_ms"] / 1e3
        self.steps_ms = [m["step_ms"] for m in lines]
        self.rate = statistics.median(TOKENS / (m["step_ms"] / 1e3) for m in lines[skip:])
        self.planned_mib = sum(float(re.search(r"all ([0-9.]+) MiB", run.log(r)).group(1)) for r in range(run.world))
        self.peak_mib = 0
        for p in run.ranks:
            with open(f"/proc/{p.pid}/status", encoding="ascii") as f:
                self.peak_mib += int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) / 1024


class Bench:
    def __init__(self, args, folder):
        self.folder = folder
        self.args = args
        self.rounds = args.rounds or (1 if args.quick else 3)

    def train(self, size, precision="f32", threads=THREADS, micro=SEQUENCES, leaves=1, steps=None,
              optimizer="device", **layout):
        """One run of a few steps, stopped then."""
        folder = tempfile.mkdtemp(dir=self.folder)
        skip = SKIP[size]
        steps = steps or self.args.steps or (skip + 1 if self.args.quick else STEPS[size])
        run = ranks.Run(folder, spec(self.folder_of(size), SIZES[size], precision, micro, leaves, optimizer),
                        threads=threads, **layout)
        began = time.monotonic()
        with run:
            run.until(run.metrics, WAIT_S)
            start_s = time.monotonic() - began
            run.until(lambda: len(run.metrics()) >= steps, WAIT_S)
            went = Went(run, min(skip, steps - 1), start_s)
        shutil.rmtree(folder)
        return went

    def folder_of(self, size):
        """Tokens of a vocabulary, shared by its runs."""
        folder = os.path.join(self.folder, size)
        os.makedirs(folder, exist_ok=True)
        return folder

    def matrix(self, size, precision):
        """GFLOP/s of the model's forward products: by the medians, by the fastest."""
        m, n = SIZES[size], TOKENS
        c, layers, head = m["hidden"], m["layers"], TOKENS // HEAD_ROWS
        shapes = [f"{n}x{3 * c}x{c}x{layers}", f"{n}x{c}x{c}x{layers}", f"{n}x{4 * c}x{c}x{layers}",
                  f"{n}x{c}x{4 * c}x{layers}", f"{HEAD_ROWS}x{m['vocab']}x{c}x{head}"]
        out = subprocess.run([os.path.join(ranks.BUILD, "bench", "train-matrix"), str(THREADS),
                              "20" if self.args.quick else "300", precision, *shapes],
                             capture_output=True, text=True, timeout=WAIT_S)
        if out.returncode:
            sys.exit(f"bench train: train-matrix failed: {out.stderr.strip()}")
        went = json.loads(out.stdout)
        return went["gflops"], went["fastest"]

    def torch(self, size, precision):
        """Tokens/s of PyTorch, or None when it is not installed."""
        m, skip = SIZES[size], SKIP[size]
        steps = self.args.steps or (skip + 1 if self.args.quick else STEPS[size])
        big = str(16 << 30)
        env = dict(os.environ, OMP_NUM_THREADS=str(THREADS), OPENBLAS_NUM_THREADS=str(THREADS),
                   LD_PRELOAD=fast_blas(), MALLOC_TRIM_THRESHOLD_=big,
                   MALLOC_MMAP_MAX_="0", MALLOC_TOP_PAD_=str(64 << 20))
        out = subprocess.run([PYTHON, os.path.join(HERE, "torch_steps.py"),
                              *(str(m[k]) for k in ("layers", "hidden", "heads", "vocab")), str(LENGTH), str(SEQUENCES),
                              str(steps), precision], capture_output=True, text=True, env=env, timeout=WAIT_S)
        if out.returncode:
            sys.exit(f"bench train: PyTorch failed: {out.stderr.strip()[-500:]}")
        return TOKENS / statistics.median(float(s) for s in out.stdout.split()[skip:])


def bench_size(b, size, with_gemm, torch):
    """Both precisions and their references, in turns."""
    bf16_torch = "bf16" if processor_has("avx512bw") else "f32"  # without, its bf16 has no matrix kernels
    ours, bound, theirs = {"f32": [], "bf16": []}, {"f32": [], "bf16": []}, {"f32": [], "bf16": []}
    for _ in range(b.rounds):
        for precision, seen in ours.items():
            if with_gemm:
                bound[precision].append(b.matrix(size, precision))
            seen.append(b.train(size, precision).rate)
            if with_gemm:
                bound[precision].append(b.matrix(size, precision))
        if torch:
            theirs["f32"].append(b.torch(size, "f32"))
            theirs["bf16"].append(b.torch(size, bf16_torch) if bf16_torch != "f32" else theirs["f32"][-1])
    for precision, seen in ours.items():
        rate = statistics.median(seen)
        if with_gemm:
            gflops, fastest = (statistics.median(r[i] for r in bound[precision]) for i in (0, 1))
            most = gflops * 1e9 / flops_per_token(SIZES[size])
            row(f"{size}_{precision}_vs_gemm", rate, "tokens/s",
                f"bound {most:.1f} tokens/s: products of its shapes at {gflops:.1f} GFLOP/s, the fastest at "
                f"{fastest:.1f}", rate / most)
        if torch:
            other = statistics.median(theirs[precision])
            used = precision if precision == "f32" else bf16_torch
            row(f"{size}_{precision}_vs_torch", rate, "tokens/s", f"PyTorch in {used}: {other:.1f} tokens/s",
                rate / other)


def bench_layouts(b):
    """The same batch on two ranks of one thread, beside one rank of two."""
    layouts = {"dp": dict(micro=2, leaves=2, dp=2), "tp": dict(tp=2), "pp": dict(micro=1, pp=2)}
    alone, seen = [], {name: [] for name in layouts}
    for _ in range(b.rounds):
        alone.append(b.train("small").rate)
        for name, how in layouts.items():
            seen[name].append(b.train("small", threads=1, **how).rate)
    one = statistics.median(alone)
    for name, rates in seen.items():
        rate = statistics.median(rates)
        row(f"small_{name}2", rate, "tokens/s", f"1 rank of 2 threads: {one:.1f} tokens/s", rate / one)


def bench_start(b):
    went = [b.train("gpt2_124m", steps=2) for _ in range(b.rounds)]
    start = statistics.median(w.start_s for w in went)
    row("start_to_first_step_s", start, "s", "2 s", start / 2)
    first, then = (statistics.median(w.steps_ms[i] for w in went) for i in (0, 1))
    row("first_step_vs_next", first, "ms", f"the step after it: {then:.1f} ms", first / then)
    peak, plan = went[-1].peak_mib, went[-1].planned_mib
    row("peak_rss_vs_plan", peak, "MiB", f"planned {plan:.1f} MiB", peak / plan)


def mixed_rate(folder, mib=2048):
    """Bytes a second that fio reads and writes together, half of each, past the page cache."""
    path = os.path.join(folder, "fio.bin")
    out = subprocess.run(["fio", "--name=x", "--rw=rw", "--rwmixread=50", f"--filename={path}", "--bs=4m",
                          "--iodepth=8", "--ioengine=io_uring", "--direct=1", f"--size={mib}m", "--output-format=json"],
                         capture_output=True, text=True, check=True, timeout=WAIT_S).stdout
    os.unlink(path)
    job = json.loads(out[out.index("{"):])["jobs"][0]
    return (job["read"]["io_bytes"] + job["write"]["io_bytes"]) / (job["job_runtime"] / 1e3)


def bench_files(b):
    """In turns, for the disk is others', too."""
    parameters = 124_439_808
    steps, without, rates, went = [], [], [], None
    for _ in range(b.rounds):
        rates.append(mixed_rate(b.folder))
        without += b.train("gpt2_124m", steps=4).steps_ms[1:]
        went = b.train("gpt2_124m", steps=4, optimizer="files")
        steps += went.steps_ms[1:]
    step, alone, rate = statistics.median(steps), statistics.median(without), statistics.median(rates)
    least = max(alone, 24e3 * parameters / rate)
    row("files_step", step, "ms", f"without: {alone:.1f} ms; 24 bytes a parameter at fio's {rate / 1e6:.0f} MB/s: "
        f"{24e3 * parameters / rate:.1f} ms", step / least)
    row("files_peak_rss_vs_plan", went.peak_mib, "MiB", f"planned {went.planned_mib:.1f} MiB",
        went.peak_mib / went.planned_mib)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--rows", default="gemm,torch,layouts,start,files")
    p.add_argument("--sizes", default="small,gpt2_124m")
    p.add_argument("--rounds", type=int, default=int(os.environ.get("MUSTER_BENCH_ROUNDS", "0")))
    p.add_argument("--steps", type=int, default=int(os.environ.get("MUSTER_BENCH_STEPS", "0")))
    args = p.parse_args()
    rows, sizes = args.rows.split(","), args.sizes.split(",")
    torch = "torch" in rows
    if torch and subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode:
        refuse("*_vs_torch", "python3-torch is not installed")
        torch = False
    if torch and fast_blas() is None:
        refuse("*_vs_torch", "PyTorch would multiply by the reference BLAS; install libopenblas0-pthread")
        torch = False
    folder = tempfile.mkdtemp(prefix="muster-bench-")
    try:
        b = Bench(args, folder)
        for size in sizes:
            if torch or "gemm" in rows:
                bench_size(b, size, "gemm" in rows, torch)
        if "layouts" in rows:
            bench_layouts(b)
        if "start" in rows:
            bench_start(b)
        if "files" in rows and shutil.which("fio") is None:
            refuse("files_step", "fio is not installed")
        elif "files" in rows:
            bench_files(b)
    finally:
        shutil.rmtree(folder)


main()
