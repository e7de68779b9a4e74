"""Everything on this machine's GPU, beside the processor: make check-gpu.

    run.py --build BUILD [--quick] [--json FILE]

Kernels, codecs and benchmarks (tests/gpu/check), the same kernels under compute-sanitizer where it is found, then
training on GPU 0: layouts of ranks that share it, in f32 and bf16, a job that moves from one rank to two and back, and
one that is killed and resumed. One table at the end, with a line of JSON each. Exit status: 0, 1 when something is
wrong, 77 without a library, a driver or a GPU. Takes Python's own modules alone."""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BUDGET_S = 470  # for all of it; what would begin later is left out, and said to be
RUN_S = 90      # for one job
F32, BF16, CPU = 1e-4, 2e-2, 1e-3  # how far losses of layouts, and of GPU and processor, may be apart

ROWS = []
SPEEDS = []
BEGAN = time.monotonic()


class Failed(Exception):
    """words say what is wrong"""


def environment(args, **more):
    library = os.environ.get("MUSTER_CUDA_BACKEND") or str(args.build / "lib/muster/muster-cuda.so")
    return dict(os.environ, MUSTER_CUDA_BACKEND=library, **more)


def call(argv, env, seconds):
    """Exit status and output of a program with all that it starts; both end in time."""
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as p:
        try:
            out = p.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired as e:
            kill_tree(p)
            raise Failed(f"did not end in {seconds:.0f} s") from e
    return p.returncode, out


def descendants(pid):
    found = []
    for child in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for one in child.read_text().split():
            found += [int(one), *descendants(int(one))]
    return found


def kill_tree(p):
    """SIGKILL for a program we started and for what it started."""
    for pid in [p.pid, *descendants(p.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    p.wait()


# --- the jobs ---------------------------------------------------------------------------------------------------------

class Jobs:
    def __init__(self, args, folder):
        self.args, self.folder, self.n = args, pathlib.Path(folder), 0
        words = random.Random(7)
        text = " ".join(words.choice("the of and to in is that it was for on are as with at be".split())
                        for _ in range(60000))
        (self.folder / "text").write_text(text)

    def spec(self, precision="f32", steps=4, devices=1, compress=None, **parallel):
        small = self.args.quick
        model = {"family": "gpt2", "layers": 2 if small else 6, "hidden": 16 if small else 384,
                 "heads": 2 if small else 6, "context": 16 if small else 512, "vocab": 256, "dropout": 0.1}
        return {"name": "check-gpu", "devices": {"min": devices, "max": devices}, "train": {
            "model": model, "data": {"path": str(self.folder / "text")}, "steps": steps, "precision": precision,
            "batch": {"sequences": 4, "micro": 1}, "init": {"seed": 5},
            "optimizer": {"lr": 1e-3, "schedule": "constant", "warmup": 0}},
            "parallel": {"virtual_workers": 2, **parallel}, "compress": compress or {},
            "checkpoint": {"every_steps": 2, "keep": 8}}

    def argv(self, spec, folder, resume=False):
        self.n += 1
        path = self.folder / f"spec-{self.n}.json"
        path.write_text(json.dumps(spec))
        return [str(self.args.build / "bin/muster"), "run", str(path), "--devices", str(spec["devices"]["max"]),
                "--dir", str(folder)] + (["--resume"] if resume else [])

    def environment(self, kernels="cuda", **more):
        return environment(self.args, MUSTER_KERNELS=kernels, **more)

    def train(self, spec, name, resume=False, **env):
        folder = self.folder / name
        code, out = call(self.argv(spec, folder, resume), self.environment(**env), RUN_S)
        if code != 0:
            logs = "".join(f.read_text(errors="replace")[-2000:] for f in sorted(folder.rglob("*.log")))
            raise Failed(f"{name} ended with {code}: {' '.join((out + logs).split())[-600:]}")
        return folder

    def losses(self, *args, **kwargs):
        lines = (self.train(*args, **kwargs) / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines]

    def expect_same(self, a, b, step):
        path = [str(f / "checkpoints" / f"step-{step:08d}") for f in (a, b)]
        code, out = call([str(self.args.build / "bin/muster"), "checkpoint", "diff", "-o", "json", *path],
                      os.environ.copy(), RUN_S)
        said = json.loads(out[out.index("{"):out.rindex("}") + 1]) if "{" in out else {}
        if code not in (0, 1) or "tensors" not in said:
            raise Failed(f"checkpoints cannot be compared: {out[:300]}")
        if said["equal"] != said["tensors"]:
            raise Failed(f"{said['tensors'] - said['equal']} of {said['tensors']} tensors have other bits")


def apart(some, others):
    if len(some) != len(others):
        raise Failed(f"{len(some)} steps instead of {len(others)}")
    return max(abs(a - b) / abs(b) for a, b in zip(some, others))


LAYOUTS = [(2, {}), (2, {"pp": 2}), (2, {"tp": 2}), (2, {"cp": 2}), (4, {"tp": 2, "pp": 2})]


def layouts(jobs):
    for precision, limit in (("f32", F32), ("bf16", BF16)):
        alone = []

        def one(name, devices=1, kernels="cuda", against=None, limit=limit, precision=precision, parallel=None):
            got = jobs.losses(jobs.spec(precision, devices=devices, **(parallel or {})), name, kernels=kernels)
            if against is None:
                alone[:] = got
                return 0, 0
            error = apart(got, against)
            if not error <= limit:
                raise Failed(f"losses are {error:.2g} apart")
            return error, limit

        step(f"training in {precision}, one rank", lambda: one(f"{precision}-1"))
        if not alone:
            continue
        step(f"training in {precision}, GPU against processor",
             lambda: one(f"{precision}-cpu", kernels="cpu", against=alone, limit=max(limit, CPU)))
        for devices, parallel in LAYOUTS[:1 if jobs.args.quick else None]:
            words = " ".join(f"{k} {v}" for k, v in parallel.items()) or f"dp {devices}"
            step(f"training in {precision}, {words} on one GPU",
                 lambda d=devices, l=parallel, w=words: one(f"{precision}-{w.replace(' ', '')}", d, against=alone,
                                                            parallel=l))
        step(f"training in {precision}, dp 2 with coded gradients on one GPU",
             lambda: one(f"{precision}-coded", 2, against=alone, limit=BF16, parallel={"compress": {"dp": "sdp4bit"}}))


def graphs(jobs, precision):
    """With CUDA graphs in place of calls, and with the calls."""
    spec = jobs.spec(precision, steps=4)
    one = jobs.train(spec, f"{precision}-graphs")
    logs = "".join(f.read_text(errors="replace") for f in one.rglob("*.log"))
    if not re.search(r"[1-9]\d* CUDA graphs, launched", logs) or "cannot be recorded" in logs:
        raise Failed(" ".join(line for line in logs.splitlines() if "CUDA graph" in line) or "no graphs were made")
    other = jobs.train(spec, f"{precision}-no-graphs", MUSTER_CUDA_GRAPHS="off")
    jobs.expect_same(one, other, 4)
    rate, reference = (json.loads((f / "metrics.jsonl").read_text().splitlines()[-1])["tokens_per_s"]
                       for f in (one, other))
    SPEEDS.append({"bench": "gpu", "metric": f"a small step with CUDA graphs, {precision}", "value": rate,
                   "unit": "tokens/s", "reference": "calls one by one", "ratio": round(rate / reference, 3)})
    print(f"{SPEEDS[-1]['metric']:64} {rate:10.4g} tokens/s {rate / reference:8.3f} of calls one by one")


def rescale(jobs):
    whole = jobs.train(jobs.spec(steps=6, exact="strict"), "whole")
    for steps, devices in ((2, 1), (4, 2), (6, 1)):
        moved = jobs.train(jobs.spec(steps=steps, devices=devices, exact="strict"), "moved", resume=steps > 2)
    jobs.expect_same(whole, moved, 6)
    return whole


def killed(jobs, whole):
    """The job of rescale() again, killed once it has saved something."""
    folder, spec = jobs.folder / "killed", jobs.spec(steps=6, exact="strict")
    deadline = time.monotonic() + RUN_S
    with subprocess.Popen(jobs.argv(spec, folder), env=jobs.environment(), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as p:
        while not list(folder.glob("checkpoints/step-*/MANIFEST")) and p.poll() is None:
            if time.monotonic() > deadline:
                kill_tree(p)
                raise Failed(f"no checkpoint in {RUN_S} s")
            try:
                p.wait(0.02)
            except subprocess.TimeoutExpired:
                pass
        kill_tree(p)
    jobs.expect_same(whole, jobs.train(spec, "killed", resume=True), 6)


# --- the whole --------------------------------------------------------------------------------------------------------

def step(what, fn):
    """A row of the table: fn gives (error, limit), or nothing, or raises."""
    row = {"check": what, "ok": True}
    at = time.monotonic()
    if at - BEGAN > BUDGET_S:
        row.update(ok=None, words=f"left out: {BUDGET_S} s are over")
    else:
        try:
            row.update(zip(("error", "limit"), fn() or ()))
        except (Failed, OSError, ValueError, KeyError) as e:
            row.update(ok=False, words=str(e) or repr(e))
    row["seconds"] = round(time.monotonic() - at, 1)
    ROWS.append(row)
    state = {True: "ok", False: "FAILED", None: ""}[row["ok"]]
    print(f"{what:64} {row['seconds']:8.1f} s  {state} {row.get('words', '')}".rstrip(), flush=True)


def kernels(args, lines):
    """Exit status of the program that checks kernels, codecs and speeds; its JSON goes to lines."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as f:
        argv = [str(args.build / "tests/gpu/check"), "--json", f.name] + (["--quick"] if args.quick else [])
        code, out = call(argv, environment(args), 240)
        print(out, flush=True)
        lines += f.read().splitlines()
    return code


def sanitize(args):
    argv = ["compute-sanitizer", "--error-exitcode", "9", str(args.build / "tests/gpu/check"), "--quick"]
    code, out = call(argv, environment(args), 150)
    if code != 0:
        raise Failed(" ".join(out.split())[-600:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--quick", action="store_true", help="small jobs, no benchmarks")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    args.build = args.build.resolve()
    lines = []
    code = kernels(args, lines)
    if code == 77:
        return 77
    ROWS.append({"check": "kernels, codecs and speeds, as above", "ok": code == 0, "seconds": 0})
    if shutil.which("compute-sanitizer"):
        step("kernels and codecs under compute-sanitizer", lambda: sanitize(args))
    else:
        ROWS.append({"check": "kernels and codecs under compute-sanitizer", "ok": None, "words": "it is not found"})
    with tempfile.TemporaryDirectory(prefix="muster-check-gpu.") as folder:
        jobs = Jobs(args, folder)
        layouts(jobs)
        for precision in ("f32", "bf16"):
            step(f"the same bits with CUDA graphs and without, {precision}", lambda p=precision: graphs(jobs, p))
        whole = []
        step("the same bits on 1, 2 and 1 ranks", lambda: whole.append(rescale(jobs)))
        if whole:
            step("the same bits after a kill and a resume", lambda: killed(jobs, whole[0]))
    failed = [row for row in ROWS if row["ok"] is False]
    if args.json:
        args.json.write_text("".join(line + "\n" for line in [*lines, *map(json.dumps, ROWS + SPEEDS)]))
    print(f"\n{len(ROWS)} parts, {len(failed)} failed, {sum(row['ok'] is None for row in ROWS)} left out")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
